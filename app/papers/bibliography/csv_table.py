"""PURE. Convert a CSV table with a header row, such as Zotero's, to records."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator

from app.papers.bibliography import entry
from app.papers.bibliography.entry import Item
from app.text import sanitize
from app.types import Rejection

_OTHER_COLUMNS = {"doi", "url", "author", "authors", "abstract note", "abstract"}


def looks_like(text: str) -> bool:
    """Return whether the first line contains the column names of a table of papers."""
    header = text[:2_000].partition("\n")[0]
    try:
        columns = _column_names(next(csv.reader([header]), []))
    except csv.Error:
        return False
    return "title" in columns and bool(_OTHER_COLUMNS & {*columns})


def parse(text: str) -> Iterator[Item]:
    """Yield a record or rejection for each row below the header."""
    lines, first = csv.reader(text.splitlines(keepends=True)), 1
    try:
        columns, first = _column_names(next(lines)), lines.line_num + 1
        for line in lines:
            if any(line):
                row = dict(zip(columns, line, strict=False))
                texts = (row.get("url", ""), row.get("number", ""), row.get("archive location", ""))
                yield entry.to_item(
                    "a row of the table",
                    first,
                    row.get("key", ""),
                    title=entry.prose(row.get("title"), sanitize.TITLE_CHARS),
                    abstract=entry.prose(
                        row.get("abstract note") or row.get("abstract"), entry.ABSTRACT_CHARS
                    ),
                    authors=entry.names((row.get("author") or row.get("authors") or "").split(";")),
                    doi=row.get("doi", ""),
                    id_texts=[*texts, entry.arxiv_note(row.get("extra", ""))],
                )
            first = lines.line_num + 1
    except csv.Error:
        yield Rejection("a table that is broken from here on", first)


def _column_names(header: Iterable[str]) -> list[str]:
    return [name.strip().lower() for name in header]
