"""arXiv: its query API and its daily announcement feed, both in Atom.

The parser is incremental, so that all complete entries of a truncated response are read. arXiv reports an
error as a feed with an error entry or title. The parser raises UnreadableResponse for such a feed.

The query API sometimes returns fewer entries than it has results, or none. The entries of an incomplete
response are stored, but its day does not count as read, so the next poll requests it again.
"""

import re
from collections.abc import AsyncIterator, Sequence
from datetime import date, datetime, timedelta
from xml.etree.ElementTree import Element

from app.errors import SourceError, UnreadableResponse
from app.papers.sources import calendar, json_rows, withdrawal_phrases, xml_elements
from app.papers.sources.http_client import Client
from app.papers.sources.state import FetchedPage, SourceState, days_to_fetch, unread_days
from app.text import dates, identifiers, sanitize
from app.types import PaperRecord, ParseResult, Rejection, SourceKind

QUERY_URL = "https://export.arxiv.org/api/query"
FEED_URL = "https://rss.arxiv.org/atom/"
PAGE_ENTRIES = 2_000  # the API's maximum
MAX_PAGES = 10
IDS_PER_REQUEST = 100  # a URL with these has about 1,200 characters
MAX_ENTRIES = 5_000  # in a response: one day in all categories has about 2,500
BAD_REQUEST = 400  # the meaning of an error feed, whatever the status of its response
NO_ID = "the entry has no arXiv ID"
NO_TITLE = "the entry has no title"
LISTED_TYPES = ("new", "cross")  # the other types are new versions of announced papers
INCOMPLETE = "the response has fewer entries than arXiv has results"
_ENTRIES_MISSING = (INCOMPLETE, json_rows.CUT_OFF, xml_elements.MALFORMED)
_TOTAL_RESULTS = re.compile(rb"<(?:\w+:)?totalResults[^<>]*>\s*(\d{1,9})\s*<")

_ATOM = "{http://www.w3.org/2005/Atom}"
_ARXIV = "{http://arxiv.org/schemas/atom}"
_DC = "{http://purl.org/dc/elements/1.1/}"


def parse(data: bytes | str, day: date | None = None) -> ParseResult:
    """PURE. Return the papers in a response from the query API. Their listing day is `day`."""
    return _parse(data, day, is_feed=False)


def parse_feed(data: bytes | str, day: date | None = None) -> ParseResult:
    """PURE. Return the papers in a daily feed. New versions update a paper but are not listings."""
    return _parse(data, day, is_feed=True)


def _parse(data: bytes | str, day: date | None, *, is_feed: bool) -> ParseResult:
    entries, rejections = _entries(data)
    if len(entries) > MAX_ENTRIES:
        rejections.append(json_rows.too_many(len(entries), MAX_ENTRIES))
    numbered = enumerate(entries[:MAX_ENTRIES], 1)
    records = (_record(number, entry, day, is_feed=is_feed) for number, entry in numbered)
    return json_rows.collect(records, rejections)


def _entries(data: bytes | str) -> tuple[list[Element], list[Rejection]]:
    """Return the complete entries of a feed, and a rejection if the feed is broken after them."""
    root, entries, rejections = xml_elements.read(data, f"{_ATOM}feed", (f"{_ATOM}entry",), "an Atom feed")
    errors = [
        _text(entry, f"{_ATOM}summary") for entry in entries if "/api/errors" in _text(entry, f"{_ATOM}id")
    ]
    title = _text(root, f"{_ATOM}title")
    if title.lower().startswith("feed error"):
        errors.insert(0, f"{title} {_text(root, f'{_ATOM}subtitle')}".strip())
    if errors:
        raise UnreadableResponse(f"arXiv returned an error: {errors[0]}", status=BAD_REQUEST)
    return entries, rejections


def _text(element: Element, tag: str) -> str:
    return sanitize.one_line(element.findtext(tag), sanitize.ABSTRACT_CHARS * 2)


def feed_abstract(summary: str) -> str:
    """Return the abstract without arXiv's prefix, such as "arXiv:ID Announce Type: new Abstract:"."""
    if summary.startswith("arXiv:"):
        return summary.partition("Abstract:")[2].strip() or summary
    return summary


def _record(number: int, entry: Element, day: date | None, *, is_feed: bool) -> PaperRecord | Rejection:
    id_text = _text(entry, f"{_ATOM}id")
    arxiv_id, version = identifiers.arxiv_id(id_text.removeprefix("oai:"))
    if not arxiv_id:
        return Rejection(NO_ID, number, id_text[:100])
    title = sanitize.title(entry.findtext(f"{_ATOM}title"))
    if not title:
        return Rejection(NO_TITLE, number, arxiv_id)
    published_on = dates.day(_text(entry, f"{_ATOM}published"))
    abstract = _text(entry, f"{_ATOM}summary")
    doi = _text(entry, f"{_ARXIV}doi")
    if is_feed:
        as_of = published_on or day  # the day of the announcement
        kind = _text(entry, f"{_ARXIV}announce_type").lower()
        published_on = as_of if kind == "new" else None
        listed_on = as_of if kind in LISTED_TYPES else None
        people = [name for part in _text(entry, f"{_DC}creator").split(",") if (name := part.strip())]
        abstract = feed_abstract(abstract)
        doi = _text(entry, f"{_ARXIV}DOI") or doi
        # The feed has no comments, so it can only say that a paper was withdrawn.
        is_stated = kind.startswith("replace") and withdrawal_phrases.is_stated_in(abstract[:200])
        withdrawn: bool | None = True if is_stated else None
    else:
        as_of = dates.day(_text(entry, f"{_ATOM}updated"))
        listed_on = day
        names = (sanitize.one_line(element.text) for element in entry.findall(f"{_ATOM}author/{_ATOM}name"))
        people = [name for name in names if name]
        withdrawn = withdrawal_phrases.state(_text(entry, f"{_ARXIV}comment"), abstract)
    doi = identifiers.doi(doi)
    return PaperRecord(
        title=title,
        arxiv_id=arxiv_id,
        version=version,
        doi="" if identifiers.arxiv_id_of_doi(doi) else doi,
        abstract=sanitize.clean_text(abstract),
        authors=tuple(sanitize.latex_to_text(name) for name in people[: sanitize.AUTHORS_KEPT]),
        author_count=len(people),
        categories=sanitize.words([element.get("term", "") for element in entry.findall(f"{_ATOM}category")]),
        published_on=published_on,
        withdrawn=withdrawn,
        listed_on=listed_on,
        as_of=as_of,
    )


async def fetch(client: Client, state: SourceState, now: datetime) -> AsyncIterator[FetchedPage]:
    """Yield the announcements since the watermark, one page per day.

    An ARXIV source uses only the query API. An ARXIV_FEED source reads the newest announcement from the feed,
    and earlier announcements that the feed lacks from the query API. If the query API fails, the newest
    announcement is still stored, and the next poll requests both again.

    After an incomplete response, fetch only the newest announcements, and raise SourceError at the end.
    """
    today = now.date()
    fault: SourceError | None = None
    if state.kind is SourceKind.ARXIV:
        for day in days_to_fetch(state, today):
            if fault and day < today - timedelta(days=1):
                continue
            announces = calendar.announces(day)
            parsed = await _fetch_announcement(client, state, day) if announces else ParseResult()
            fault = fault or _missing_entries(parsed)
            yield FetchedPage(parsed, watermark=None if fault else min(day, today - timedelta(days=2)))
        if fault:
            raise fault
        return
    names = "+".join(str(name) for name in state.config.get("categories", ()))
    response = await client.get(FEED_URL + names, etag=state.etag, last_modified=state.last_modified)
    newest = parse_feed(response.body) if response.changed else ParseResult()
    days_in_feed = {record.listed_on for record in newest.records if record.listed_on}
    try:
        for day in unread_days(state, today):
            if calendar.announces(day) and day not in days_in_feed:
                parsed = await _fetch_announcement(client, state, day)
                fault = _missing_entries(parsed)
                yield FetchedPage(parsed, watermark=None if fault else day)
                if fault:
                    raise fault
        if fault := _missing_entries(newest):
            raise fault
    except SourceError:
        yield FetchedPage(newest)
        raise
    watermark = max(days_in_feed | {today - timedelta(days=1)})
    yield FetchedPage(newest, min(watermark, today), response.etag, response.last_modified)


def _missing_entries(parsed: ParseResult) -> SourceError | None:
    """Return the error for a response that lacks entries, or None if it is complete."""
    for rejection in parsed.rejections:
        if rejection.reason in _ENTRIES_MISSING:
            return SourceError(
                f"arXiv: {rejection.reason} ({rejection.detail}). The next poll requests it again."
            )
    return None


async def fetch_papers(client: Client, ids: Sequence[str]) -> ParseResult:
    """Return the current records of up to IDS_PER_REQUEST papers, without listings. Omit unknown ids.

    Raise SourceError if arXiv refuses the request. A single invalid id is enough.
    """
    params: dict[str, str | int] = {"id_list": ",".join(ids), "max_results": len(ids)}
    return parse((await client.get(QUERY_URL, params=params)).body)


async def _fetch_announcement(client: Client, state: SourceState, day: date) -> ParseResult:
    since, until = calendar.submission_window(day)
    categories = " OR ".join(f"cat:{name}" for name in state.config.get("categories", ()))
    query = state.config.get("query") or categories
    span = f"submittedDate:[{since:%Y%m%d%H%M} TO {until:%Y%m%d%H%M}]"
    parsed, total = ParseResult(), 0
    for start in range(0, PAGE_ENTRIES * MAX_PAGES, PAGE_ENTRIES):
        response = await client.get(
            QUERY_URL,
            params={
                "search_query": f"({query}) AND {span}",
                "sortBy": "submittedDate",
                "sortOrder": "ascending",
                "start": start,
                "max_results": PAGE_ENTRIES,
            },
        )
        page = parse(response.body, day)
        parsed += page
        stated = _TOTAL_RESULTS.search(response.body[:5_000])
        total = max(total, int(stated[1]) if stated else 0)
        if page.rows < min(PAGE_ENTRIES, total - start):
            detail = f"{parsed.rows:,} of {total:,} were read"
            return parsed + ParseResult(rejections=(Rejection(INCOMPLETE, None, detail),))
        if page.rows < PAGE_ENTRIES:
            break
    return parsed
