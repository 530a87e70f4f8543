"""Any RSS or Atom feed. Papers are recognised by the arXiv ids and DOIs in their links."""

from __future__ import annotations

import itertools
import re
from collections.abc import AsyncIterator, Iterator
from datetime import date, datetime
from functools import partial
from typing import Any

import feedparser

from app.errors import ParsingTooExpensive, SourceError, UnreadableAnswer
from app.papers.sources import arxiv, deadlines, json_rows
from app.papers.sources.http_client import Client
from app.papers.sources.state import FetchedPage, SourceState
from app.runtime import sandbox
from app.text import characters, sanitize
from app.types import PaperRecord, ParseResult, Rejection

NO_TITLE = "the entry has no title"
BROKEN_ENTRY = "the entry cannot be read"
SMALL = 4_000  # characters that may be read in this process: hostile ones of 30,000 take 10 s
_TAG = re.compile(r"<[^<>]{0,2000}>")
_END = re.compile(r"</(?:\w+:)?(?:feed|rss|rdf)\s*>\s*(?:<!--.*-->\s*)?$", re.IGNORECASE | re.DOTALL)
_LAST_ENTRY = re.compile(r".*</(?:\w+:)?(?:entry|item)\s*>", re.IGNORECASE | re.DOTALL)
_ENTRY = re.compile(r"<(?:\w+:)?(?:entry|item)\b", re.IGNORECASE)
_ROOT = re.compile(r"<(?:\w+:)?(?:feed|rss|rdf)\b", re.IGNORECASE)


def parse(data: bytes | str, day: date | None = None) -> ParseResult:
    """Return the papers of a feed. An entry without a date counts as listed on `day`.

    feedparser takes a tag's attributes by the square of their number, and may fail in many ways. So it reads
    what is large in a process whose time and memory are limited.
    """
    text = json_rows.text_of(data)
    try:
        return _parsed(text, day) if len(text) <= SMALL else sandbox.run(_parsed, text, day)
    except SourceError:
        raise
    except ParsingTooExpensive:
        raise UnreadableAnswer("To read this feed takes more time or memory than a feed may.") from None
    except Exception as error:
        raise UnreadableAnswer(f"The feed cannot be read ({type(error).__name__}).") from error


def _parsed(text: str, day: date | None) -> ParseResult:
    json_rows.refuse_markup(text, "a feed")
    if "<!ENTITY" in text or not _ROOT.search(text[:5_000]):
        raise UnreadableAnswer("The answer is not an RSS or Atom feed that can be trusted.")
    whole, cut_off = _whole(text)
    found = _entries(whole)
    records: list[PaperRecord] = []
    rejections = (
        [Rejection(json_rows.CUT_OFF, None, f"{len(found)} complete entries were read")] if cut_off else []
    )
    if len(found) > json_rows.MOST_ENTRIES:
        rejections.append(json_rows.too_many(len(found)))
    for number, entry in enumerate(found[: json_rows.MOST_ENTRIES], 1):
        made = _read(entry, number, day)
        if isinstance(made, PaperRecord):
            records.append(made)
        else:
            rejections.append(made)
    return ParseResult(min(len(found), json_rows.MOST_ENTRIES), tuple(records), tuple(rejections))


def _entries(text: str) -> list[Any]:
    """Return the entries of a feed; None for each that cannot be read, where the whole cannot."""
    try:
        return _parsed_entries(text)
    except Exception:  # whatever trips it stands in one entry, mostly
        starts = [
            found.start() for found in itertools.islice(_ENTRY.finditer(text), json_rows.MOST_ENTRIES + 1)
        ]
        if not starts:
            raise
        head, ends = text[: starts[0]], [*starts[1:], len(text)]
        parts = (text[start:end] for start, end in zip(starts, ends, strict=True))
        return [_entry_alone(head + part) for part in parts]


def _entry_alone(text: str) -> Any:
    try:
        return next(iter(_parsed_entries(text)), None)
    except Exception:
        return None


def _parsed_entries(text: str) -> list[Any]:
    # Its own cleaning is slow on hostile markup; `_plain` removes all of it anyway.
    found = feedparser.parse(text.encode(), sanitize_html=False, resolve_relative_uris=False)
    return list(found.entries)


def _read(entry: Any, number: int, day: date | None) -> PaperRecord | Rejection:
    if entry is None:
        return Rejection(BROKEN_ENTRY, number)
    try:
        title = sanitize.title(_plain(entry.get("title", "")))
        return (
            _record(title, entry, day)
            if title
            else Rejection(NO_TITLE, number, sanitize.one_line(entry.get("link")))
        )
    except Exception as error:  # a field that feedparser made something else of
        return Rejection(BROKEN_ENTRY, number, type(error).__name__)


def _whole(text: str) -> tuple[str, bool]:
    """The feed up to its last complete entry, and whether its end is missing."""
    if _END.search(text[-2_000:]):
        return text, False
    complete = _LAST_ENTRY.match(text)
    return (complete.group(0) if complete else "<rss/>"), True


def _record(title: str, entry: Any, day: date | None) -> PaperRecord:
    arxiv_id, version = next((found for found in map(sanitize.arxiv_id, _links(entry)) if found[0]), ("", 0))
    doi = next(filter(None, map(sanitize.doi, _links(entry))), "")
    arxiv_id = arxiv_id or sanitize.arxiv_id_of_doi(doi)
    people = _people(entry)
    dated = sanitize.utc_day(entry.get("published")) or _parsed_day(entry) or day
    announced = sanitize.one_line(entry.get("arxiv_announce_type")) or "new"
    return PaperRecord(
        title=title,
        arxiv_id=arxiv_id,
        version=version,
        doi="" if sanitize.arxiv_id_of_doi(doi) else doi,
        abstract=sanitize.clean_text(arxiv.feed_abstract(_plain(entry.get("summary", "")))),
        authors=people[: sanitize.AUTHORS_KEPT],
        author_count=len(people),
        categories=sanitize.words([tag.get("term") for tag in entry.get("tags", ())]) if arxiv_id else (),
        url=sanitize.url(entry.get("link")),
        listed_on=dated if announced in arxiv.LISTED_TYPES else None,
        as_of=dated,
    )


def _plain(markup: str) -> str:
    text = markup[: sanitize.ABSTRACT_CHARS * 4]
    return sanitize.one_line(characters.unescape_html(_TAG.sub(" ", text)), sanitize.ABSTRACT_CHARS * 2)


def _links(entry: Any) -> Iterator[str]:
    for name in ("link", "id", "prism_doi", "dc_identifier", "arxiv_doi"):
        yield str(entry.get(name) or "").removeprefix("oai:")
    for link in entry.get("links", ()):
        yield str(link.get("href") or "")


def _people(entry: Any) -> tuple[str, ...]:
    listed = sanitize.names([person.get("name") for person in entry.get("authors", ())])
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


async def fetch(client: Client, state: SourceState, now: datetime) -> AsyncIterator[FetchedPage]:
    """The feed as it is now, unless it says that nothing changed. What it dropped meanwhile is gone."""
    reply = await client.get(
        str(state.config.get("url", "")),
        etag=state.etag,
        last_modified=state.last_modified,
        public_only=True,
    )
    # In a thread: other sources are asked meanwhile, and a stop does not wait for it.
    parse_reply = partial(parse, reply.body, now.date())
    parsed = await deadlines.in_thread(parse_reply) if reply.changed else ParseResult(0, ())
    yield FetchedPage(parsed, now.date(), reply.etag, reply.last_modified)
