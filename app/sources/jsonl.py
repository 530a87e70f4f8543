"""PURE. JSON and JSON-lines files of papers: `date`, `id` or `arxiv_id` or `doi`, `title`, `abstract`, …"""

from __future__ import annotations

from datetime import date
from typing import Any

from app.records import PaperRecord, Parsed, Rejection
from app.sources import clean, rows

NO_TITLE = "the row has no title"


def parse(data: bytes | str, day: date | None = None) -> Parsed:
    """The papers of a file. A row without a date counts as listed on `day`."""
    found, rejections = rows.read(data)
    records: list[PaperRecord] = []
    for number, row in found:
        made = _record(number, rows.unquoted(row), day)
        if isinstance(made, PaperRecord):
            records.append(made)
        else:
            rejections.append(made)
    rejected = sum(rejection.row is not None for rejection in rejections)
    return Parsed(len(records) + rejected, tuple(records), tuple(rejections))


def _record(number: int, row: Any, day: date | None) -> PaperRecord | Rejection:
    if not isinstance(row, dict):
        return Rejection(rows.NOT_AN_OBJECT, number, clean.line(str(row)[:100]))
    title = clean.title(row.get("title"))
    if not title:
        return Rejection(NO_TITLE, number, clean.line(str(row.get("id") or "")[:100]))
    doi = clean.doi(row.get("doi"))
    named, version = clean.arxiv_id(row.get("arxiv_id") or row.get("id"))
    people = clean.names(row.get("authors"))
    return PaperRecord(
        title=title,
        arxiv_id=named or clean.arxiv_id_of_doi(doi),
        version=version,
        doi="" if clean.arxiv_id_of_doi(doi) else doi,
        abstract=clean.prose(row.get("abstract") or row.get("summary")),
        authors=people[: clean.AUTHORS_KEPT],
        author_count=clean.count(row.get("author_count")) or len(people),
        categories=clean.words(row.get("categories")),
        keywords=clean.words(row.get("keywords")),
        tldr=clean.prose(row.get("tldr"), clean.TITLE_CHARS * 2),
        published_on=clean.day(row.get("published_on") or row.get("published")),
        withdrawn=clean.says_withdrawn(clean.line(row.get("comment"), 1_000)),
        listed_on=clean.day(row.get("date")) or clean.day(row.get("listed_on")) or day,
        upvotes=clean.count(row.get("upvotes")),
        comments=clean.count(row.get("comments")),
        stars=clean.count(row.get("stars")),
        url=clean.url(row.get("url")),
        pdf_url=clean.url(row.get("pdf_url")),
        code_url=clean.url(row.get("code_url")),
        project_url=clean.url(row.get("project_url")),
    )
