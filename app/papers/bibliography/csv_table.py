"""PURE. A table with a head, as Zotero's CSV is one → records."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping

from app.papers.bibliography import entry
from app.papers.bibliography.entry import Item
from app.text import sanitize
from app.types import PaperRecord, Rejection

_BESIDE_TITLE = {"doi", "url", "author", "authors", "abstract note", "abstract"}


def recognises(text: str) -> bool:
    columns = _columns(text)
    return "title" in columns and bool(_BESIDE_TITLE & {*columns})


def items(text: str) -> Iterator[Item]:
    """The rows under the head, in their order."""
    lines, first = csv.reader(text.splitlines(keepends=True)), 1
    try:
        columns, first = _names(next(lines)), lines.line_num + 1
        for line in lines:
            if any(line):
                yield _item(dict(zip(columns, line, strict=False)), first)
            first = lines.line_num + 1
    except csv.Error:
        yield Rejection("a table that is broken from here on", first)


def _columns(text: str) -> list[str]:
    head = text[:2_000].partition("\n")[0]
    try:
        return _names(next(csv.reader([head]), []))
    except csv.Error:
        return []


def _names(head: Iterable[str]) -> list[str]:
    return [name.strip().lower() for name in head]


def _item(row: Mapping[str, str], first: int) -> Item:
    places = (row.get("url", ""), row.get("number", ""), row.get("archive location", ""))
    arxiv_id, doi = entry.ids(row.get("doi", ""), [*places, entry.of_arxiv(row.get("extra", ""))])
    record = PaperRecord(
        title=entry.prose(row.get("title"), sanitize.TITLE_CHARS),
        arxiv_id=arxiv_id,
        doi=doi,
        abstract=entry.prose(row.get("abstract note") or row.get("abstract"), entry.ABSTRACT_CHARS),
        authors=entry.names((row.get("author") or row.get("authors") or "").split(";")),
    )
    return entry.item(entry.EntryLocation("a row of the table", first, row.get("key", "")), record)
