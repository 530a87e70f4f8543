"""Any RSS or Atom feed. Papers are recognised by the arXiv ids and DOIs in their links."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator, Iterator
from datetime import date, datetime
from typing import Any

import feedparser

from app.errors import UnreadableAnswer
from app.records import PaperRecord, Parsed, Rejection
from app.sources import arxiv, clean, rows
from app.sources.client import Client
from app.sources.state import Piece, State

NO_TITLE = "the entry has no title"
_TAG = re.compile(r"<[^<>]{0,2000}>")
_END = re.compile(r"</(?:\w+:)?(?:feed|rss|rdf)\s*>\s*(?:<!--.*-->\s*)?$", re.IGNORECASE | re.DOTALL)
_LAST_ENTRY = re.compile(r".*</(?:\w+:)?(?:entry|item)\s*>", re.IGNORECASE | re.DOTALL)
_ROOT = re.compile(r"<(?:\w+:)?(?:feed|rss|rdf)\b", re.IGNORECASE)


def parse(data: bytes | str, day: date | None = None) -> Parsed:
    """PURE. The papers of a feed. An entry without a date counts as listed on `day`."""
    text = rows.text_of(data)
    rows.refuse_markup(text, "a feed")
    if "<!ENTITY" in text or not _ROOT.search(text[:5_000]):
        raise UnreadableAnswer("The answer is not an RSS or Atom feed that can be trusted.")
    whole, cut_off = _whole(text)
    # Its own cleaning is slow on hostile markup; `_plain` removes all of it anyway.
    found = feedparser.parse(whole.encode(), sanitize_html=False, resolve_relative_uris=False).entries
    records: list[PaperRecord] = []
    rejections = (
        [Rejection(rows.CUT_OFF, None, f"{len(found)} complete entries were read")] if cut_off else []
    )
    for number, entry in enumerate(found, 1):
        if title := clean.title(_plain(entry.get("title", ""))):
            records.append(_record(title, entry, day))
        else:
            rejections.append(Rejection(NO_TITLE, number, clean.line(entry.get("link"))))
    return Parsed(len(found), tuple(records), tuple(rejections))


def _whole(text: str) -> tuple[str, bool]:
    """The feed up to its last complete entry, and whether its end is missing."""
    if _END.search(text[-2_000:]):
        return text, False
    complete = _LAST_ENTRY.match(text)
    return (complete.group(0) if complete else "<rss/>"), True


def _record(title: str, entry: Any, day: date | None) -> PaperRecord:
    arxiv_id, version = next((found for found in map(clean.arxiv_id, _links(entry)) if found[0]), ("", 0))
    doi = next(filter(None, map(clean.doi, _links(entry))), "")
    arxiv_id = arxiv_id or clean.arxiv_id_of_doi(doi)
    people = _people(entry)
    dated = clean.utc_day(entry.get("published")) or _parsed_day(entry) or day
    announced = clean.line(entry.get("arxiv_announce_type")) or "new"
    return PaperRecord(
        title=title,
        arxiv_id=arxiv_id,
        version=version,
        doi="" if clean.arxiv_id_of_doi(doi) else doi,
        abstract=clean.prose(arxiv.feed_abstract(_plain(entry.get("summary", "")))),
        authors=people[: clean.AUTHORS_KEPT],
        author_count=len(people),
        categories=clean.words([tag.get("term") for tag in entry.get("tags", ())]) if arxiv_id else (),
        url=clean.url(entry.get("link")),
        listed_on=dated if announced in arxiv.LISTED_TYPES else None,
        as_of=dated,
    )


def _plain(markup: str) -> str:
    text = markup[: clean.ABSTRACT_CHARS * 4]
    return clean.line(html.unescape(_TAG.sub(" ", text)), clean.ABSTRACT_CHARS * 2)


def _links(entry: Any) -> Iterator[str]:
    for name in ("link", "id", "prism_doi", "dc_identifier", "arxiv_doi"):
        yield str(entry.get(name) or "").removeprefix("oai:")
    for link in entry.get("links", ()):
        yield str(link.get("href") or "")


def _people(entry: Any) -> tuple[str, ...]:
    listed = clean.names([person.get("name") for person in entry.get("authors", ())])
    if len(listed) == 1:  # one comma-joined string
        return tuple(name for part in listed[0].split(",") if (name := part.strip()))
    return listed


def _parsed_day(entry: Any) -> date | None:
    # Past feedparser's own look-up, which takes the one for the other where it is missing, and warns.
    moment = dict.get(entry, "published_parsed") or dict.get(entry, "updated_parsed")
    try:
        return date(*moment[:3]) if moment else None
    except ValueError:
        return None


async def fetch(client: Client, state: State, now: datetime) -> AsyncIterator[Piece]:
    """The feed as it is now, unless it says that nothing changed. What it dropped meanwhile is gone."""
    reply = await client.get(
        str(state.config.get("url", "")),
        etag=state.etag,
        last_modified=state.last_modified,
        public_only=True,
    )
    parsed = parse(reply.body, now.date()) if reply.changed else Parsed(0, ())
    yield Piece(parsed, now.date(), reply.etag, reply.last_modified)
