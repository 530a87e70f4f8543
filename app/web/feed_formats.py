"""Serialize entries as Atom (RFC 4287) and JSON Feed 1.1.

Atom is built with the standard library, because feedgenerator 2 supports only one author per entry and only
HTML summaries, and fails on control characters. feedgenerator also dates an empty feed with the current
time, so the feed seems to change with each request.
"""

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from xml.etree.ElementTree import Element, SubElement, tostring

from app.text.characters import safe_line

ATOM, JSON = "application/atom+xml", "application/feed+json"
_FORBIDDEN = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # in XML 1.0


@dataclass(frozen=True, slots=True)
class FeedEntry:
    id: str  # a URL that stays the same while the entry is in the feed
    url: str  # of the paper's page on this site
    title: str
    summary: str
    content: str  # HTML
    published: datetime
    updated: datetime
    authors: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    source: str = ""  # URL of the paper at its publisher


@dataclass(frozen=True, slots=True)
class Feed:
    """A feed, with its entries in the order in which they are shown."""

    url: str  # of the feed itself
    home: str  # of the page with the same papers
    title: str
    about: str
    publisher: str
    updated: datetime
    entries: tuple[FeedEntry, ...]


def atom(feed: Feed) -> bytes:
    root = Element("feed", {"xmlns": "http://www.w3.org/2005/Atom", "xml:lang": "en"})
    _add(root, "id", feed.url)
    _add(root, "title", _line(feed.title))
    _add(root, "subtitle", _line(feed.about))
    _add(root, "updated", _rfc3339(feed.updated))
    _add(_add(root, "author"), "name", _line(feed.publisher))
    _add(root, "link", rel="self", type=ATOM, href=feed.url)
    _add(root, "link", rel="alternate", type="text/html", href=feed.home)
    for entry in feed.entries:
        item = _add(root, "entry")
        _add(item, "id", entry.id)
        _add(item, "title", _line(entry.title))
        _add(item, "published", _rfc3339(entry.published))
        _add(item, "updated", _rfc3339(entry.updated))
        for name in filter(None, map(_line, entry.authors)):
            _add(_add(item, "author"), "name", name)
        for tag in _tags(entry):
            _add(item, "category", term=tag)
        _add(item, "link", rel="alternate", type="text/html", href=entry.url)
        if entry.source:
            _add(item, "link", rel="related", href=entry.source)
        _add(item, "summary", _line(entry.summary))
        _add(item, "content", entry.content, type="html")
    return bytes(tostring(root, encoding="utf-8", xml_declaration=True))


def _add(parent: Element, tag: str, text: str = "", **attributes: str) -> Element:
    child = SubElement(parent, tag, {name: _xml_safe(value) for name, value in attributes.items()})
    child.text = _xml_safe(text) or None
    return child


def _line(text: str) -> str:
    return safe_line(_xml_safe(text))


def _xml_safe(text: str) -> str:
    return _FORBIDDEN.sub("", text)


def json_feed(feed: Feed) -> bytes:
    """Serialize a feed as JSON Feed 1.1."""
    items = [
        {
            "id": entry.id,
            "url": entry.url,
            "external_url": entry.source,
            "title": _line(entry.title),
            "summary": _line(entry.summary),
            "content_html": _xml_safe(entry.content),
            "date_published": _rfc3339(entry.published),
            "date_modified": _rfc3339(entry.updated),
            "authors": [{"name": name} for name in filter(None, map(_line, entry.authors))],
            "tags": _tags(entry),
        }
        for entry in feed.entries
    ]
    document = {
        "version": "https://jsonfeed.org/version/1.1",
        "title": _line(feed.title),
        "description": _line(feed.about),
        "home_page_url": feed.home,
        "feed_url": feed.url,
        "language": "en",
        "authors": [{"name": _line(feed.publisher)}],
        "items": [{name: value for name, value in item.items() if value} for item in items],
    }
    return json.dumps(document, ensure_ascii=False, indent=1).encode()


def _tags(entry: FeedEntry) -> list[str]:
    return [tag for tag in dict.fromkeys(map(_line, entry.tags)) if tag]


def _rfc3339(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
