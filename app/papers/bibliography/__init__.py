"""PURE. Pasted or uploaded reference lists → records.

The format is detected. An entry that cannot be read becomes a rejection with its location.

entry        one entry of any format: its title, ids and names, or why it is rejected
plain_lines  links, ids, DOIs and titles, one per line
bibtex       BibTeX and BibLaTeX, with line numbers
ris          RIS, with line numbers
csl_json     CSL JSON
csv_table    CSV with a header row
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator

from app.errors import InvalidInput
from app.papers.bibliography import bibtex, csl_json, csv_table, ris
from app.papers.bibliography.entry import Item
from app.types import PaperRecord, ParseResult, Rejection

MOST_PAPERS = 200
MOST_REJECTIONS = 200  # a text with more is not a bibliography
MOST_BYTES = 200_000  # of a pasted text
MOST_FILE_BYTES = 600_000

_MARKUP = re.compile(r"\s*<(?:\?xml|!doctype|html|rdf:|xml)", re.IGNORECASE)
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def check_size(text: str) -> None:
    """Raise InvalidInput if a pasted text is too long."""
    if len(text.encode("utf-8", "replace")) > MOST_BYTES:
        raise InvalidInput(f"That is more than {MOST_BYTES // 1000} kB: please paste less at once.", "liked")


def parse(text: str) -> ParseResult:
    """Return the papers in a text, at most MOST_PAPERS. Raises InvalidInput if it is too long.

    A record has a title, an arXiv id or a DOI, or several of them.
    """
    check_size(text)
    return _parse_text(text)


def parse_file(data: bytes) -> ParseResult:
    """Return the papers in a file. Raises InvalidInput if it is too long or not a text."""
    if len(data) > MOST_FILE_BYTES:
        raise InvalidInput(
            f"This file is larger than {MOST_FILE_BYTES // 1000} kB: please export fewer papers at once, "
            "a collection for example.",
            "file",
        )
    return _parse_text(_decode(data))


def _decode(data: bytes) -> str:
    """Decode UTF-16 with a byte order mark, UTF-8, or else Windows-1252."""
    if data.startswith(_UTF16):
        return data.decode("utf-16", "replace")
    if b"\0" in data or data.startswith(b"%PDF"):
        raise InvalidInput("This is not a text file: please choose BibTeX, RIS, CSL JSON or CSV.", "file")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("cp1252", "replace")


def _parse_text(text: str) -> ParseResult:
    records: list[PaperRecord] = []
    rejections: list[Rejection] = []
    for item in _items(text.removeprefix("\ufeff")):
        if reason := _limit_reached(item, len(records), len(rejections)):
            rejections.insert(0, Rejection(reason))  # first, because only the first rejections are shown
            break
        if isinstance(item, Rejection):
            rejections.append(item)
        else:
            records.append(item)
    return ParseResult(len(records) + len(rejections), tuple(records), tuple(rejections))


def _limit_reached(item: Item, records: int, rejections: int) -> str:
    """Return the limit because of which reading stops before this item, or ""."""
    if isinstance(item, Rejection):
        full = rejections >= MOST_REJECTIONS
        return f"after {MOST_REJECTIONS} that were not understood, the rest was not read" if full else ""
    full = records >= MOST_PAPERS
    return f"only {MOST_PAPERS} papers are read at once: the rest is left out" if full else ""


def _items(text: str) -> Iterator[Item]:
    """Return the records and rejections of a text in order, read as the first format that it may be."""
    if _MARKUP.match(text):
        reason = "XML, RDF or a web page: please export BibTeX, RIS or CSL JSON instead"
        return iter([Rejection(reason)])
    if csl_json.looks_like(text):
        return csl_json.parse(text)
    if ris.looks_like(text):
        return ris.parse(text)
    return csv_table.parse(text) if csv_table.looks_like(text) else bibtex.parse(text)
