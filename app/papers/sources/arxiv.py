"""arXiv: its query API and its daily announcement feed, both Atom.

The parser is incremental, so that a truncated answer gives all its complete entries. An error is a feed whose
only entry or whose own title says so. It does not become a paper.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from typing import cast
from xml.etree.ElementTree import Element, ParseError, XMLPullParser
from zoneinfo import ZoneInfo

from app.errors import SourceError, UnreadableAnswer
from app.papers.sources import calendar, json_rows
from app.papers.sources.http_client import Client
from app.papers.sources.state import FetchedPage, SourceState, days_to_fetch, unread_days
from app.text import sanitize
from app.types import PaperRecord, ParseResult, Rejection, SourceKind

QUERY_URL = "https://export.arxiv.org/api/query"
FEED_URL = "https://rss.arxiv.org/atom/"
PAGE_ENTRIES = 2_000  # the API's maximum
MOST_PAGES = 10
MOST_ENTRIES = 5_000  # of an answer: a day of all categories has about 2,500
NO_ID = "the entry has no arXiv id"
NO_TITLE = "the entry has no title"
MALFORMED = "the feed is not well-formed from here on"
LISTED_TYPES = ("new", "cross")  # the others are new versions of papers announced before

_ATOM = "{http://www.w3.org/2005/Atom}"
_ARXIV = "{http://arxiv.org/schemas/atom}"
_DC = "{http://purl.org/dc/elements/1.1/}"
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_EASTERN = ZoneInfo("America/New_York")
_CUTOFF = time(14, 0)  # submissions until then are in that evening's announcement

EntryReader = Callable[[Element, date | None], PaperRecord | Rejection]


def parse(data: bytes | str, day: date | None = None) -> ParseResult:
    """PURE. Return the papers of an answer of the query API, as listed on `day`, if one is given."""
    return _parse(data, day, _query_record)


def parse_feed(data: bytes | str, day: date | None = None) -> ParseResult:
    """PURE. Return the papers of a daily feed. New versions update a paper and are not listings."""
    return _parse(data, day, _feed_record)


def _parse(data: bytes | str, day: date | None, to_record: EntryReader) -> ParseResult:
    entries, broken = _entries(data)
    records: list[PaperRecord] = []
    rejections = [broken] if broken else []
    if len(entries) > MOST_ENTRIES:
        rejections.append(json_rows.too_many(len(entries), MOST_ENTRIES))
    for number, entry in enumerate(entries[:MOST_ENTRIES], 1):
        result = to_record(entry, day)
        if isinstance(result, PaperRecord):
            records.append(result)
        else:
            rejections.append(Rejection(result.reason, number, result.detail))
    return ParseResult(min(len(entries), MOST_ENTRIES), tuple(records), tuple(rejections))


def _entries(data: bytes | str) -> tuple[list[Element], Rejection | None]:
    text = _CONTROLS.sub("", json_rows.text_of(data))
    json_rows.refuse_markup(text, "an Atom feed")
    if "<!ENTITY" in text or "<!DOCTYPE" in text[:2_000]:
        raise UnreadableAnswer("The answer declares XML entities, which no feed of arXiv does.")
    root, entries, fault = _elements(text)
    if root is None or root.tag != f"{_ATOM}feed":
        raise UnreadableAnswer("The answer is not an Atom feed.")
    _refuse_error(root, entries)
    if fault is None:
        return entries, None
    reason, error = fault
    return entries, Rejection(reason, None, f"{len(entries)} complete entries were read; {error}")


def _elements(text: str) -> tuple[Element | None, list[Element], tuple[str, ParseError] | None]:
    """Return the root, the complete entries, and the fault after them, if any."""
    parser: XMLPullParser[Element] = XMLPullParser(("start", "end"))
    root: Element | None = None
    entries: list[Element] = []
    parser.feed(text)
    try:
        for event, element in cast("Iterator[tuple[str, Element]]", parser.read_events()):
            root = element if root is None else root
            if event == "end" and element.tag == f"{_ATOM}entry":
                entries.append(element)
    except ParseError as error:
        return root, entries, (MALFORMED, error)
    try:
        parser.close()
    except ParseError as error:
        return root, entries, (json_rows.CUT_OFF, error)
    return root, entries, None


def _refuse_error(root: Element, entries: list[Element]) -> None:
    title = _text(root, f"{_ATOM}title")
    if title.lower().startswith("feed error"):
        raise UnreadableAnswer(
            f"arXiv answered with an error: {title} {_text(root, f'{_ATOM}subtitle')}".strip()
        )
    for entry in entries:
        if "/api/errors" in _text(entry, f"{_ATOM}id"):
            raise UnreadableAnswer(f"arXiv answered with an error: {_text(entry, f'{_ATOM}summary')}")


def _text(element: Element, tag: str) -> str:
    return sanitize.one_line(element.findtext(tag), sanitize.ABSTRACT_CHARS * 2)


def _query_record(entry: Element, day: date | None) -> PaperRecord | Rejection:
    comment = _text(entry, f"{_ARXIV}comment")
    names = (sanitize.one_line(element.text) for element in entry.findall(f"{_ATOM}author/{_ATOM}name"))
    return _record(
        entry,
        [name for name in names if name],
        abstract=_text(entry, f"{_ATOM}summary"),
        doi=sanitize.doi(_text(entry, f"{_ARXIV}doi")),
        published_on=sanitize.day(_text(entry, f"{_ATOM}published")),
        withdrawn=sanitize.says_withdrawn(comment),
        listed_on=day,
        as_of=sanitize.day(_text(entry, f"{_ATOM}updated")),
    )


def _feed_record(entry: Element, day: date | None) -> PaperRecord | Rejection:
    announced_on = sanitize.day(_text(entry, f"{_ATOM}published")) or day
    kind = _text(entry, f"{_ARXIV}announce_type").lower()
    summary = _text(entry, f"{_ATOM}summary")
    return _record(
        entry,
        [name for part in _text(entry, f"{_DC}creator").split(",") if (name := part.strip())],
        abstract=feed_abstract(summary),
        doi=sanitize.doi(_text(entry, f"{_ARXIV}DOI") or _text(entry, f"{_ARXIV}doi")),
        published_on=announced_on if kind == "new" else None,
        withdrawn=kind.startswith("replace") and sanitize.says_withdrawn(feed_abstract(summary)[:200]),
        listed_on=announced_on if kind in LISTED_TYPES else None,
        as_of=announced_on,
    )


def feed_abstract(summary: str) -> str:
    """Return the abstract without "arXiv:ID Announce Type: new Abstract:", which arXiv puts before it."""
    if summary.startswith("arXiv:"):
        return summary.partition("Abstract:")[2].strip() or summary
    return summary


def _record(
    entry: Element,
    people: list[str],
    *,
    abstract: str,
    doi: str,
    published_on: date | None,
    withdrawn: bool,
    listed_on: date | None,
    as_of: date | None,
) -> PaperRecord | Rejection:
    id_text = _text(entry, f"{_ATOM}id")
    title = sanitize.title(entry.findtext(f"{_ATOM}title"))
    arxiv_id, version = sanitize.arxiv_id(id_text.removeprefix("oai:"))
    if not arxiv_id:
        return Rejection(NO_ID, None, id_text[:100])
    if not title:
        return Rejection(NO_TITLE, None, arxiv_id)
    return PaperRecord(
        title=title,
        arxiv_id=arxiv_id,
        version=version,
        doi="" if sanitize.arxiv_id_of_doi(doi) else doi,
        abstract=sanitize.clean_text(abstract),
        authors=tuple(sanitize.latex_to_text(name) for name in people[: sanitize.AUTHORS_KEPT]),
        author_count=len(people),
        categories=sanitize.words([element.get("term", "") for element in entry.findall(f"{_ATOM}category")]),
        published_on=published_on,
        withdrawn=withdrawn,
        listed_on=listed_on,
        as_of=as_of,
    )


def window(day: date) -> tuple[datetime, datetime]:
    """Return the time span in which the papers that arXiv announces on a date were submitted."""
    return _cutoff(calendar.announcement_before(day)), _cutoff(day)


def _cutoff(day: date) -> datetime:
    """Return the deadline for the announcement of `day`: 14:00 in New York on the working day before it."""
    closing = day - timedelta(days=1)
    while closing.weekday() >= calendar.SATURDAY:
        closing -= timedelta(days=1)
    return datetime.combine(closing, _CUTOFF, _EASTERN).astimezone(UTC)


def query_of(state: SourceState) -> str:
    """Return a source's query for the query API: its own one, or any of its categories."""
    own = state.config.get("query")
    return str(own) if own else " OR ".join(f"cat:{name}" for name in state.config.get("categories", ()))


async def fetch(client: Client, state: SourceState, now: datetime) -> AsyncIterator[FetchedPage]:
    """Yield the announcements since the watermark, from the query API or from the daily feed."""
    today = now.date()
    if state.kind is SourceKind.ARXIV_FEED:
        async for page in _fetch_feed(client, state, today):
            yield page
        return
    for day in days_to_fetch(state, today):
        parsed = (
            await _fetch_announcement(client, state, day) if calendar.announces(day) else ParseResult(0, ())
        )
        yield FetchedPage(parsed, watermark=min(day, today - timedelta(days=2)))


async def _fetch_feed(client: Client, state: SourceState, today: date) -> AsyncIterator[FetchedPage]:
    """Yield the announcements since the watermark. The feed has only the newest, the query API the others.

    If the query API fails, the newest announcement is still stored, and the next poll requests both again.
    """
    newest = await _fetch_newest(client, state)
    days_in_feed = {record.listed_on for record in newest.parsed.records if record.listed_on}
    yesterday = today - timedelta(days=1)
    try:
        for day in unread_days(state, today):
            if calendar.announces(day) and day not in days_in_feed:
                yield FetchedPage(await _fetch_announcement(client, state, day), watermark=day)
    except SourceError:
        yield FetchedPage(newest.parsed)
        raise
    yield replace(newest, watermark=max(days_in_feed | {yesterday}))


async def _fetch_newest(client: Client, state: SourceState) -> FetchedPage:
    names = "+".join(str(name) for name in state.config.get("categories", ()))
    response = await client.get(FEED_URL + names, etag=state.etag, last_modified=state.last_modified)
    parsed = parse_feed(response.body) if response.changed else ParseResult(0, ())
    return FetchedPage(parsed, etag=response.etag, last_modified=response.last_modified)


async def _fetch_announcement(client: Client, state: SourceState, day: date) -> ParseResult:
    since, until = window(day)
    span = f"submittedDate:[{since:%Y%m%d%H%M} TO {until:%Y%m%d%H%M}]"
    parsed = ParseResult()
    for start in range(0, PAGE_ENTRIES * MOST_PAGES, PAGE_ENTRIES):
        response = await client.get(
            QUERY_URL,
            params={
                "search_query": f"({query_of(state)}) AND {span}",
                "sortBy": "submittedDate",
                "sortOrder": "ascending",
                "start": start,
                "max_results": PAGE_ENTRIES,
            },
        )
        page = parse(response.body, day)
        parsed += page
        if page.rows < PAGE_ENTRIES:
            break
    return parsed
