"""PURE. JSON and JSON-lines files of papers: `date`, `id` or `arxiv_id` or `doi`, `title`, `abstract`, …"""

from collections.abc import Iterable, Sequence
from datetime import date
from typing import Any

from app.papers.sources import arxiv_dump, json_rows, withdrawal_phrases
from app.text import dates, identifiers, sanitize
from app.types import PaperRecord, ParseResult, Rejection

NO_TITLE = "the row has no title"


def parse(data: bytes | str, day: date | None = None) -> ParseResult:
    """Return the papers in a file. A row without a date counts as listed on `day`."""
    return parse_rows(*json_rows.parse_rows(data), day)


def parse_rows(
    rows: Iterable[json_rows.Row], rejections: Sequence[Rejection], day: date | None = None
) -> ParseResult:
    """Return the papers in decoded rows of a file."""
    records = (_record(number, json_rows.unwrap_literal(row), day) for number, row in rows)
    return json_rows.collect(records, rejections)


def _record(number: int, row: Any, day: date | None) -> PaperRecord | Rejection:
    if not isinstance(row, dict):
        return Rejection(json_rows.NOT_AN_OBJECT, number, sanitize.one_line(str(row)[:100]))
    title = sanitize.title(row.get("title"))
    if not title:
        return Rejection(NO_TITLE, number, sanitize.one_line(str(row.get("id") or "")[:100]))
    if arxiv_dump.is_row(row):
        row, day = arxiv_dump.as_paper(row), None
    doi = identifiers.doi(row.get("doi"))
    arxiv_id, version = identifiers.arxiv_id(row.get("arxiv_id") or row.get("id"))
    people = sanitize.authors(row.get("authors"))
    abstract = sanitize.clean_text(row.get("abstract") or row.get("summary"))
    comment = sanitize.one_line(row.get("comment"), 1_000)
    return PaperRecord(
        title=title,
        arxiv_id=arxiv_id or identifiers.arxiv_id_of_doi(doi),
        version=version,
        doi="" if identifiers.arxiv_id_of_doi(doi) else doi,
        abstract=abstract,
        authors=people[: sanitize.AUTHORS_KEPT],
        author_count=sanitize.non_negative_int(row.get("author_count")) or len(people),
        organization_names=sanitize.organization_names(row.get("organization")),
        categories=sanitize.words(row.get("categories")),
        keywords=sanitize.words(row.get("keywords")),
        tldr=sanitize.clean_text(row.get("tldr"), sanitize.TITLE_CHARS * 2),
        published_on=dates.day(row.get("published_on") or row.get("published")),
        withdrawn=withdrawal_phrases.state(comment, abstract) if "comment" in row else None,
        as_of=dates.day(row.get("update_date")),
        listed_on=dates.day(row.get("date")) or dates.day(row.get("listed_on")) or day,
        upvotes=sanitize.non_negative_int(row.get("upvotes")),
        comments=sanitize.non_negative_int(row.get("comments")),
        stars=sanitize.non_negative_int(row.get("stars")),
        url=sanitize.url(row.get("url")),
        pdf_url=sanitize.url(row.get("pdf_url")),
        code_url=sanitize.url(row.get("code_url")),
        project_url=sanitize.url(row.get("project_url")),
    )
