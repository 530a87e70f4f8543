"""Entries → Atom (RFC 4287) and JSON Feed 1.1, as bytes.

Atom is made by the standard library: feedgenerator 2 knows one author an entry, has summaries as HTML alone,
dates an empty feed by the clock, so that it is always new, and gives up at a control character.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from xml.etree.ElementTree import Element, SubElement, tostring

from app.mail.render import one_line

ATOM, JSON = "application/atom+xml", "application/feed+json"
_UNWRITABLE = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # in XML 1.0


@dataclass(frozen=True, slots=True)
class Entry:
    """A paper as feed readers show it."""

    url: str  # its page here: what it is known by, for ever
    title: str
    summary: str
    content: str  # HTML
    published: datetime
    updated: datetime
    authors: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    source: str = ""  # where the paper itself is


@dataclass(frozen=True, slots=True)
class Feed:
    """What a feed reader is given, the newest first."""

    url: str  # the Atom feed's own, or the JSON Feed's
    home: str  # the page that shows the same
    title: str
    about: str
    publisher: str
    updated: datetime
    entries: tuple[Entry, ...]


def atom(feed: Feed) -> bytes:
    """The feed as Atom."""
    root = Element("feed", {"xmlns": "http://www.w3.org/2005/Atom", "xml:lang": "en"})
    _add(root, "id", feed.url)
    _add(root, "title", _line(feed.title))
    _add(root, "subtitle", _line(feed.about))
    _add(root, "updated", _moment(feed.updated))
    _add(_add(root, "author"), "name", _line(feed.publisher))
    _add(root, "link", rel="self", type=ATOM, href=feed.url)
    _add(root, "link", rel="alternate", type="text/html", href=feed.home)
    for entry in feed.entries:
        _add_entry(root, entry)
    return bytes(tostring(root, encoding="utf-8", xml_declaration=True))


def _add_entry(root: Element, entry: Entry) -> None:
    item = _add(root, "entry")
    _add(item, "id", entry.url)
    _add(item, "title", _line(entry.title))
    _add(item, "published", _moment(entry.published))
    _add(item, "updated", _moment(entry.updated))
    for name in filter(None, map(_line, entry.authors)):
        _add(_add(item, "author"), "name", name)
    for tag in _tags(entry):
        _add(item, "category", term=tag)
    _add(item, "link", rel="alternate", type="text/html", href=entry.url)
    if entry.source:
        _add(item, "link", rel="related", href=entry.source)
    _add(item, "summary", _line(entry.summary))
    _add(item, "content", entry.content, type="html")


def _add(parent: Element, tag: str, text: str = "", **attributes: str) -> Element:
    child = SubElement(parent, tag, {name: _writable(value) for name, value in attributes.items()})
    child.text = _writable(text) or None
    return child


def _line(text: str) -> str:
    return one_line(_writable(text))


def _writable(text: str) -> str:
    return _UNWRITABLE.sub("", text)


def json_feed(feed: Feed) -> bytes:
    """The feed as JSON Feed 1.1."""
    said = {
        "version": "https://jsonfeed.org/version/1.1",
        "title": _line(feed.title),
        "description": _line(feed.about),
        "home_page_url": feed.home,
        "feed_url": feed.url,
        "language": "en",
        "authors": [{"name": _line(feed.publisher)}],
        "items": [_item(entry) for entry in feed.entries],
    }
    return json.dumps(said, ensure_ascii=False, indent=1).encode()


def _item(entry: Entry) -> dict[str, Any]:
    item = {
        "id": entry.url,
        "url": entry.url,
        "external_url": entry.source,
        "title": _line(entry.title),
        "summary": _line(entry.summary),
        "content_html": _writable(entry.content),
        "date_published": _moment(entry.published),
        "date_modified": _moment(entry.updated),
        "authors": [{"name": name} for name in filter(None, map(_line, entry.authors))],
        "tags": _tags(entry),
    }
    return {name: value for name, value in item.items() if value}


def _tags(entry: Entry) -> list[str]:
    return [tag for tag in dict.fromkeys(map(_line, entry.tags)) if tag]


def _moment(at: datetime) -> str:
    """As RFC 3339 has it."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
