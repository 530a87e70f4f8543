"""PURE. Convert a CSV table with a header row, such as Zotero's or Excel's, to records."""

import csv
from collections.abc import Iterable, Iterator

from app.papers.bibliography import entry
from app.papers.bibliography.entry import Item
from app.text import sanitize
from app.types import Rejection

_OTHER_COLUMNS = {"doi", "url", "author", "authors", "abstract note", "abstract"}
_DELIMITERS = (",", ";", "\t")  # Excel saves semicolons where a comma is the decimal separator


def looks_like(text: str) -> bool:
    """Return whether the first line contains the column names of a table of papers."""
    return bool(_delimiter(text))


def parse(text: str) -> Iterator[Item]:
    """Yield a record or rejection for each row below the header."""
    lines, first = csv.reader(text.splitlines(keepends=True), delimiter=_delimiter(text)), 1
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


def _delimiter(text: str) -> str:
    """Return the delimiter with which the first line is the header of a table of papers, or ""."""
    header = text[:2_000].partition("\n")[0]
    for delimiter in _DELIMITERS:
        try:
            columns = _column_names(next(csv.reader([header], delimiter=delimiter), []))
        except csv.Error:
            continue
        if "title" in columns and _OTHER_COLUMNS & {*columns}:
            return delimiter
    return ""


def _column_names(header: Iterable[str]) -> list[str]:
    return [name.strip().lower() for name in header]
