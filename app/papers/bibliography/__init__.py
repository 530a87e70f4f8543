"""PURE. Pasted or uploaded reference lists → records.

The format is recognised. An entry that cannot be read is rejected alone, with its place.

entry        one entry of any format: its title, ids and names, or why it is rejected
plain_lines  links, ids, DOIs and titles, one a line
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
MOST_REJECTIONS = 200  # more is no bibliography
MOST_BYTES = 200_000  # of what is pasted
MOST_FILE_BYTES = 600_000

_MARKUP = re.compile(r"\s*<(?:\?xml|!doctype|html|rdf:|xml)", re.IGNORECASE)
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def check_size(text: str) -> None:
    """InvalidInput for more than can be pasted at once."""
    if len(text.encode("utf-8", "replace")) > MOST_BYTES:
        raise InvalidInput(f"That is more than {MOST_BYTES // 1000} kB: please paste less at once.", "liked")


def parse(text: str) -> ParseResult:
    """The papers that a text names, at most MOST_PAPERS; InvalidInput when it is too long.

    A record has a title, an arXiv id or a DOI, or several of them.
    """
    check_size(text)
    return _parsed(text)


def parse_file(data: bytes) -> ParseResult:
    """The papers in a file; InvalidInput when it is too long, or no text."""
    if len(data) > MOST_FILE_BYTES:
        raise InvalidInput(
            f"This file is larger than {MOST_FILE_BYTES // 1000} kB: please export fewer papers at once, "
            "a collection for example.",
            "file",
        )
    return _parsed(_text_of(data))


def _text_of(data: bytes) -> str:
    """UTF-8, unless it cannot be: then Latin-1, as Windows means it."""
    if data.startswith(_UTF16):
        return data.decode("utf-16", "replace")
    if b"\0" in data or data.startswith(b"%PDF"):
        raise InvalidInput("This file is no text: please choose BibTeX, RIS, CSL JSON or CSV.", "file")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("cp1252", "replace")


def _parsed(text: str) -> ParseResult:
    records: list[PaperRecord] = []
    rejections: list[Rejection] = []
    for item in _items(text.removeprefix("\ufeff")):
        if why := _enough(item, len(records), len(rejections)):
            rejections.insert(0, Rejection(why))  # where it is seen: not all of them are shown
            break
        if isinstance(item, Rejection):
            rejections.append(item)
        else:
            records.append(item)
    return ParseResult(len(records) + len(rejections), tuple(records), tuple(rejections))


def _enough(item: Item, records: int, rejections: int) -> str:
    """Why no more is read, if so."""
    if isinstance(item, Rejection):
        many = rejections >= MOST_REJECTIONS
        return f"after {MOST_REJECTIONS} that were not understood, the rest was not read" if many else ""
    many = records >= MOST_PAPERS
    return f"only {MOST_PAPERS} papers are read at once: the rest is left out" if many else ""


def _items(text: str) -> Iterator[Item]:
    """Everything in a text, in its order, by the first format that it may be."""
    if _MARKUP.match(text):
        reason = "XML, RDF or a web page: please export BibTeX, RIS or CSL JSON instead"
        return iter([Rejection(reason)])
    if csl_json.recognises(text):
        return csl_json.items(text)
    if ris.recognises(text):
        return ris.items(text)
    return csv_table.items(text) if csv_table.recognises(text) else bibtex.items(text)
