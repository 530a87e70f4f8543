"""Hugging Face Daily Papers: parse responses from its API, and fetch them day by day.

A row is `{paper: {…}, numComments, submittedBy, …}`, the inner object alone (search results), or that of a
third-party archive, `{date, arxiv_id, title, abstract, upvotes, comments}`. Each optional field may be
missing or have the wrong type. The outer `publishedAt` is New York time marked as Z and is never used.
"""

import re
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import Any
from urllib.parse import quote

from app.errors import SourceError
from app.papers.sources import json_rows
from app.papers.sources.http_client import Client
from app.papers.sources.state import FetchedPage, SourceState, days_to_fetch
from app.text import dates, identifiers, sanitize
from app.types import PaperRecord, ParseResult, Rejection

URL = "https://huggingface.co/api/daily_papers"
PAPER_URL = "https://huggingface.co/api/papers/"
NOT_FOUND = 404
PAGE_ROWS = 100  # the API's maximum; with a lower limit, it silently truncates long days
MAX_PAGES = 50
IMAGES = (".png", ".jpg", ".jpeg", ".webp", ".gif")
TITLE_CARDS = "/social-thumbnails/"
NO_ID = "the row has no arXiv ID"
NO_TITLE = "the row has no title"


def parse(data: bytes | str, day: date | None = None) -> ParseResult:
    """PURE. Return the papers in a response. `day` is the requested day, used for rows without a day."""
    return parse_rows(*json_rows.parse_rows(data), day)


def parse_rows(
    rows: Iterable[json_rows.Row], rejections: Sequence[Rejection], day: date | None = None
) -> ParseResult:
    """Return the papers in decoded rows of a response, each with its rank on its day."""
    parsed = json_rows.collect(
        (_record(number, json_rows.unwrap_literal(row), day) for number, row in rows), rejections
    )
    ranks: Counter[date | None] = Counter()
    records = []
    for record in parsed.records:
        ranks[record.listed_on] += 1
        records.append(replace(record, rank=ranks[record.listed_on]) if record.listed_on else record)
    return replace(parsed, records=tuple(records))


def _record(number: int, row: Any, day: date | None) -> PaperRecord | Rejection:
    if not isinstance(row, dict):
        return Rejection(json_rows.NOT_AN_OBJECT, number, sanitize.one_line(str(row)[:100]))
    paper: dict[str, Any] = row["paper"] if isinstance(row.get("paper"), dict) else row
    arxiv_id, version = identifiers.arxiv_id(paper.get("id") or paper.get("arxiv_id"))
    if not arxiv_id:
        return Rejection(NO_ID, number, sanitize.one_line(str(paper.get("id"))[:100]))
    title = sanitize.title(paper.get("title")) or sanitize.title(row.get("title"))
    if not title:
        return Rejection(NO_TITLE, number, arxiv_id)
    listed = paper.get("authors")
    authors = [a for a in listed if isinstance(a, dict | str)] if isinstance(listed, list) else []
    visible = sanitize.names([a for a in authors if isinstance(a, str) or not a.get("hidden")])
    inner, outer = paper.get("submittedOnDailyBy"), row.get("submittedBy")
    submitter = sanitize.one_line(inner.get("user") or inner.get("name")) if isinstance(inner, dict) else ""
    if not submitter and isinstance(outer, dict):
        submitter = sanitize.one_line(outer.get("name"))
    comments = sanitize.non_negative_int(row.get("numComments"))
    return PaperRecord(
        title=title,
        arxiv_id=arxiv_id,
        version=version,
        abstract=sanitize.clean_text(paper.get("summary"))
        or sanitize.clean_text(row.get("summary") or row.get("abstract")),
        authors=visible[: sanitize.AUTHORS_KEPT],
        author_count=len(authors),
        organization_names=sanitize.organization_names(paper.get("organization"))
        or sanitize.organization_names(row.get("organization")),
        keywords=sanitize.words(paper.get("ai_keywords")),
        tldr=sanitize.clean_text(paper.get("ai_summary"), sanitize.TITLE_CHARS * 2),
        published_on=dates.day(paper.get("publishedAt")),
        withdrawn=bool(dates.day(paper.get("withdrawnAt"))),
        listed_on=dates.day(paper.get("submittedOnDailyAt"))
        or dates.day(row.get("date") or row.get("listed_on"))
        or day,
        submitted_by=submitter,
        upvotes=sanitize.non_negative_int(paper.get("upvotes")),
        comments=sanitize.non_negative_int(row.get("comments")) if comments is None else comments,
        stars=sanitize.non_negative_int(paper.get("githubStars")),
        code_url=sanitize.url(paper.get("githubRepo")),
        project_url=sanitize.url(paper.get("projectPage")),
        thumbnail_url=_picture_url(row),
    )


def _picture_url(row: dict[str, Any]) -> str:
    """Return the first image that the submitter added, usually a figure, or else the thumbnail."""
    media = row.get("mediaUrls")
    urls = [sanitize.url(url) for url in media] if isinstance(media, list) else []
    images = (url for url in urls if re.split("[?#]", url)[0].lower().endswith(IMAGES))
    return next(images, "") or sanitize.url(row.get("thumbnail"))


def is_title_card(url: str) -> bool:
    """Return whether a picture is the title card that Hugging Face generates for link previews."""
    return TITLE_CARDS in url


async def fetch(client: Client, state: SourceState, now: datetime) -> AsyncIterator[FetchedPage]:
    """Yield one page for each unread day, and for yesterday and today in any case, because they still change.

    If a day cannot be read, the next poll requests it again. After an error, fetch only yesterday and today
    or, if Hugging Face asked to wait, nothing. Raise the first error at the end.
    """
    today = now.date()
    fault: SourceError | None = None
    for day in days_to_fetch(state, today):
        if fault and day < today - timedelta(days=1):
            continue
        try:
            parsed = await _fetch_day(client, day)
        except SourceError as error:
            fault = fault or error
            if error.retry_at:
                break
            continue
        # Yesterday and today still change, so only earlier days count as read completely.
        yield FetchedPage(parsed, watermark=None if fault else min(day, today - timedelta(days=2)))
    if fault:
        raise fault


async def fetch_paper(client: Client, arxiv_id: str) -> ParseResult:
    """Return the current record of a paper. Omit its listing and votes, because the response may lack them.

    Return an empty result if Hugging Face does not have the paper.
    """
    try:
        response = await client.get(f"{PAPER_URL}{quote(arxiv_id, safe='/')}")
    except SourceError as error:
        if error.status == NOT_FOUND:
            return ParseResult()
        raise
    parsed = parse(response.body)
    records = (
        replace(record, listed_on=None, rank=None, submitted_by="", upvotes=None) for record in parsed.records
    )
    return replace(parsed, records=tuple(records))


async def _fetch_day(client: Client, day: date) -> ParseResult:
    """Return the records of a day, ranked across all of its pages."""
    parsed = ParseResult()
    for number in range(MAX_PAGES):
        response = await client.get(URL, params={"date": day.isoformat(), "limit": PAGE_ROWS, "p": number})
        page = parse(response.body, day)
        parsed += page
        if not page.rows or 'rel="next"' not in response.headers.get("link", ""):
            break
    ranked = (replace(record, rank=rank) for rank, record in enumerate(parsed.records, 1))
    return replace(parsed, records=tuple(ranked))
