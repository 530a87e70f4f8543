"""arXiv's back catalog: records of all papers, or of a set, through OAI-PMH 2.0 in arXiv's own format.

arXiv returns records in the order of their datestamps, the days on which they last changed. It divides the
list into pages, each with a token for the next one. The token is stored with each page, so a harvest that
takes days continues where it stopped. If arXiv no longer accepts a stored token, the harvest continues from
the watermark, the day up to which all records have been read. Later polls request only later changes.

A datestamp does not say when a paper was announced. So only new papers are listed on their datestamps:
first versions that were submitted in the week before. Other papers have no listing: they appear in no digest
and on no day's page, but searches find them.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from xml.etree.ElementTree import Element

from app.errors import SourceError, UnreadableResponse
from app.papers.sources import arxiv_dump, calendar, json_rows, withdrawal_phrases, xml_elements
from app.papers.sources.http_client import Client
from app.papers.sources.state import FetchedPage, SourceState
from app.text import dates, identifiers, sanitize
from app.types import PaperRecord, ParseResult, Rejection

URL = "https://oaipmh.arxiv.org/oai"
PAGES_PER_POLL = 30  # these take about five minutes; the next poll continues after them
NEW_WITHIN = timedelta(days=7)  # longest time from submission to announcement, including moderation
NO_ID = "the record has no arXiv ID"
NO_TITLE = "the record has no title"
EXPECTED = "an OAI-PMH response"
CUT_OFF = "The response was cut off. Its complete records were read, and the next poll requests it again."
NO_MATCH, BAD_TOKEN = "noRecordsMatch", "badResumptionToken"

_OAI = "{http://www.openarchives.org/OAI/2.0/}"
_ARXIV = "{http://arxiv.org/OAI/arXiv/}"
_TAGS = tuple(_OAI + name for name in ("record", "error", "resumptionToken"))


@dataclass(frozen=True, slots=True)
class RecordPage:
    """A page of records. `token` leads to the next page, and is empty on the last one."""

    parsed: ParseResult
    token: str = ""
    datestamps: tuple[date, ...] = ()
    complete: bool = True  # False if the response was cut off
    error: str = ""  # the code of the error that arXiv returned instead of records
    message: str = ""


def parse(data: bytes | str, day: date | None = None) -> ParseResult:
    """PURE. Return the papers in a response. New papers with a datestamp of `day` or later are listed.

    Raise UnreadableResponse if the response is an error.
    """
    page = parse_page(data, day)
    if page.error:
        raise _refusal(page)
    return page.parsed


def parse_page(data: bytes | str, listed_since: date | None = None) -> RecordPage:
    """PURE. Return the papers in a response, with the token for the next page, or arXiv's error.

    New papers with a datestamp of `listed_since` or later are listed. Raise UnreadableResponse if the data is
    not an OAI-PMH response.
    """
    _, elements, rejections = xml_elements.read(data, f"{_OAI}OAI-PMH", _TAGS, EXPECTED)
    records = [element for element in elements if element.tag == f"{_OAI}record"]
    tokens = [element.text or "" for element in elements if element.tag == f"{_OAI}resumptionToken"]
    for element in elements:
        if element.tag == f"{_OAI}error":
            message = sanitize.one_line(element.text, 500)
            return RecordPage(ParseResult(), error=element.get("code") or "unknown", message=message)
    if not (records or rejections):
        raise UnreadableResponse("The response has neither records nor an error.")
    stamps = (dates.day(_text(record.find(f"{_OAI}header"), f"{_OAI}datestamp")) for record in records)
    rows = (_record(number, record, listed_since) for number, record in enumerate(records, 1))
    return RecordPage(
        json_rows.collect(rows, rejections),
        "".join(tokens).strip(),
        tuple(filter(None, stamps)),
        complete=not rejections,
    )


def _record(number: int, record: Element, listed_since: date | None) -> PaperRecord | Rejection:
    header = record.find(f"{_OAI}header")
    metadata = record.find(f"{_OAI}metadata/{_ARXIV}arXiv")
    identifier = _text(header, f"{_OAI}identifier").removeprefix("oai:arXiv.org:")
    arxiv_id, _ = identifiers.arxiv_id(_text(metadata, f"{_ARXIV}id") or identifier)
    if not arxiv_id:
        return Rejection(NO_ID, number, identifier[:100])
    stamp = dates.day(_text(header, f"{_OAI}datestamp"))
    if header is not None and header.get("status") == "deleted":
        return PaperRecord("", arxiv_id=arxiv_id, withdrawn=True, as_of=stamp)
    title = sanitize.title(_text(metadata, f"{_ARXIV}title", sanitize.TITLE_CHARS * 4))
    if metadata is None or not title:
        return Rejection(NO_TITLE, number, arxiv_id)
    people = list(filter(None, map(_author, metadata.findall(f"{_ARXIV}authors/{_ARXIV}author"))))
    created = dates.day(_text(metadata, f"{_ARXIV}created"))
    is_first = not _text(metadata, f"{_ARXIV}updated")
    doi = identifiers.doi(_text(metadata, f"{_ARXIV}doi"))
    abstract = _text(metadata, f"{_ARXIV}abstract", sanitize.ABSTRACT_CHARS)
    return PaperRecord(
        title=title,
        arxiv_id=arxiv_id,
        doi="" if identifiers.arxiv_id_of_doi(doi) else doi,
        abstract=sanitize.clean_text(abstract),
        authors=tuple(map(sanitize.latex_to_text, people[: sanitize.AUTHORS_KEPT])),
        author_count=len(people),
        categories=sanitize.words(_text(metadata, f"{_ARXIV}categories", 1_000).split()),
        published_on=created,
        withdrawn=withdrawal_phrases.state(_text(metadata, f"{_ARXIV}comments", 1_000), abstract),
        listed_on=stamp if is_first and _is_new(created, stamp, listed_since) else None,
        as_of=stamp,
    )


def _is_new(created: date | None, stamp: date | None, listed_since: date | None) -> bool:
    """Return whether a paper was probably announced on its datestamp, on or after `listed_since`."""
    if not (created and stamp and listed_since):
        return False
    is_recent = timedelta() <= stamp - created <= NEW_WITHIN
    return stamp >= listed_since and is_recent and calendar.announces(stamp)


def _author(element: Element) -> str:
    names = [_text(element, f"{_ARXIV}{part}") for part in ("keyname", "forenames", "suffix")]
    return arxiv_dump.author_name(names)


def _text(element: Element | None, tag: str, limit: int = 300) -> str:
    return sanitize.one_line(element.findtext(tag), limit) if element is not None else ""


async def fetch(client: Client, state: SourceState, now: datetime) -> AsyncIterator[FetchedPage]:
    """Yield the pages from the stored token on or, without a token, the changes since the watermark.

    Yield at most PAGES_PER_POLL pages. The next poll continues after them.
    """
    today = now.date()
    until = dates.day(state.config.get("until"))
    listed_since = today - timedelta(days=state.backfill_days)
    if until and state.watermark and state.watermark >= until:
        return
    token, read_up_to = state.resumption_token or "", state.watermark
    for _ in range(PAGES_PER_POLL):
        page = await _get(client, state, read_up_to, token, listed_since)
        if page.error == BAD_TOKEN and token:  # the token has expired
            token = ""
            page = await _get(client, state, read_up_to, token, listed_since)
        if page.error not in ("", NO_MATCH):
            raise _refusal(page)
        if not page.complete:
            yield FetchedPage(page.parsed)
            raise SourceError(CUT_OFF)
        if page.token and page.token == token:
            raise SourceError("arXiv's token for the next page leads to the same page again.")
        token = page.token
        last_day = min(until or today, today - timedelta(days=1))  # today's records still change
        read_up_to = _watermark(page, read_up_to) if token else last_day
        yield FetchedPage(page.parsed, read_up_to, resumption_token=token)
        if not token:
            return


async def _get(
    client: Client, state: SourceState, read_up_to: date | None, token: str, listed_since: date
) -> RecordPage:
    """Request the page of a token or, without a token, the first page of changes since `read_up_to`."""
    params: dict[str, str | int] = {"verb": "ListRecords"}
    if token:
        params["resumptionToken"] = token  # OAI-PMH allows no other parameter with a token
    else:
        start = read_up_to.isoformat() if read_up_to else state.config.get("from")
        limits = {"from": start, "until": state.config.get("until"), "set": state.config.get("set")}
        params |= {"metadataPrefix": "arXiv", **{name: value for name, value in limits.items() if value}}
    return parse_page((await client.get(URL, params=params)).body, listed_since)


def _watermark(page: RecordPage, read_up_to: date | None) -> date | None:
    """Return the new watermark: the day before the newest datestamp on a page.

    The records of the newest day may continue on the next page. The watermark does not move if the records
    are not in the order of their datestamps.
    """
    stamps = page.datestamps
    if not stamps or list(stamps) != sorted(stamps) or (read_up_to and stamps[0] < read_up_to):
        return read_up_to
    return max(filter(None, (read_up_to, stamps[-1] - timedelta(days=1))))


def _refusal(page: RecordPage) -> UnreadableResponse:
    return UnreadableResponse(f"arXiv returned an error: {page.error}. {page.message}".strip())
