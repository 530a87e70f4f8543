"""Hugging Face Daily Papers: what its API answers, and how its days are asked for.

A row is `{paper: {…}, numComments, submittedBy, …}`, or the inner object alone (search results), or bare
figures `{date, arxiv_id, title, upvotes, comments}` (archives of it). Each optional field may be missing
or of a wrong type. The outer `publishedAt` is New York time stamped Z and is never used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import Any

from app.errors import SourceError
from app.records import PaperRecord, Parsed, Rejection
from app.sources import clean, rows
from app.sources.client import Client
from app.sources.state import Piece, State, days_to_read

URL = "https://huggingface.co/api/daily_papers"
PAGE_ROWS = 100  # the most that the API gives at once; with fewer it cuts long days silently
MOST_PAGES = 50
NO_ID = "the row has no arXiv id"
NO_TITLE = "the row has no title"


def parse(data: bytes | str, day: date | None = None) -> Parsed:
    """PURE. The papers of an answer. `day` is the day asked for: it counts where a row does not say."""
    found, rejections = rows.read(data)
    records: list[PaperRecord] = []
    places: Counter[date] = Counter()
    for number, row in found:
        made = _record(number, rows.unquoted(row), day)
        if isinstance(made, Rejection):
            rejections.append(made)
            continue
        if made.listed_on:
            places[made.listed_on] += 1
            made = replace(made, rank=places[made.listed_on])
        records.append(made)
    rejected = sum(rejection.row is not None for rejection in rejections)
    return Parsed(len(records) + rejected, tuple(records), tuple(rejections))


def _record(number: int, row: Any, day: date | None) -> PaperRecord | Rejection:
    if not isinstance(row, dict):
        return Rejection(rows.NOT_AN_OBJECT, number, clean.line(str(row)[:100]))
    paper: dict[str, Any] = row["paper"] if isinstance(row.get("paper"), dict) else row
    arxiv_id, version = clean.arxiv_id(paper.get("id") or paper.get("arxiv_id"))
    if not arxiv_id:
        return Rejection(NO_ID, number, clean.line(str(paper.get("id"))[:100]))
    title = clean.title(paper.get("title")) or clean.title(row.get("title"))
    if not title:
        return Rejection(NO_TITLE, number, arxiv_id)
    return PaperRecord(
        title=title,
        arxiv_id=arxiv_id,
        version=version,
        listed_on=clean.day(paper.get("submittedOnDailyAt")) or clean.day(row.get("date")) or day,
        **_text(row, paper),
        **_people(row, paper),
        **_figures(row, paper),
        **_links(row, paper),
    )


def _text(row: dict[str, Any], paper: dict[str, Any]) -> dict[str, Any]:
    return {
        "abstract": clean.prose(paper.get("summary")) or clean.prose(row.get("summary")),
        "tldr": clean.prose(paper.get("ai_summary"), clean.TITLE_CHARS * 2),
        "keywords": clean.words(paper.get("ai_keywords")),
        "published_on": clean.day(paper.get("publishedAt")),
        "withdrawn": bool(clean.day(paper.get("withdrawnAt"))),
    }


def _people(row: dict[str, Any], paper: dict[str, Any]) -> dict[str, Any]:
    listed = paper.get("authors")
    authors = [a for a in listed if isinstance(a, dict | str)] if isinstance(listed, list) else []
    shown = clean.names([a for a in authors if isinstance(a, str) or not a.get("hidden")])
    by, outer = paper.get("submittedOnDailyBy"), row.get("submittedBy")
    submitter = clean.line(by.get("user") or by.get("name")) if isinstance(by, dict) else ""
    return {
        "authors": shown[: clean.AUTHORS_KEPT],
        "author_count": len(authors),
        "submitted_by": submitter or (clean.line(outer.get("name")) if isinstance(outer, dict) else ""),
    }


def _figures(row: dict[str, Any], paper: dict[str, Any]) -> dict[str, Any]:
    comments = clean.count(row.get("numComments"))
    return {
        "upvotes": clean.count(paper.get("upvotes")),
        "comments": clean.count(row.get("comments")) if comments is None else comments,
        "stars": clean.count(paper.get("githubStars")),
    }


def _links(row: dict[str, Any], paper: dict[str, Any]) -> dict[str, Any]:
    return {
        "code_url": clean.url(paper.get("githubRepo")),
        "project_url": clean.url(paper.get("projectPage")),
        "thumbnail_url": clean.url(row.get("thumbnail")),
    }


async def fetch(client: Client, state: State, now: datetime) -> AsyncIterator[Piece]:
    """Every day since the watermark, and always the day before and the day itself: they still change.

    A day that cannot be read is asked for again next time; it must not keep today's papers from readers.
    """
    today = now.date()
    fault: SourceError | None = None
    for day in days_to_read(state, today):
        if fault and day < today - timedelta(days=1):
            continue
        try:
            parsed = sum([page async for page in _pages(client, day)], Parsed())
        except SourceError as error:
            fault = fault or error
            if error.retry_at:
                break
            continue
        # A day is read to its end when it was read once after the day that followed it had begun.
        yield Piece(_ranked(parsed), watermark=None if fault else min(day, today - timedelta(days=2)))
    if fault:
        raise fault


async def _pages(client: Client, day: date) -> AsyncIterator[Parsed]:
    for page in range(MOST_PAGES):
        reply = await client.get(URL, params={"date": day.isoformat(), "limit": PAGE_ROWS, "p": page})
        parsed = parse(reply.body, day)
        yield parsed
        if not parsed.rows or 'rel="next"' not in reply.headers.get("link", ""):
            return


def _ranked(parsed: Parsed) -> Parsed:
    """The places counted over all pages of a day."""
    ranked = (replace(record, rank=place) for place, record in enumerate(parsed.records, 1))
    return replace(parsed, records=tuple(ranked))
