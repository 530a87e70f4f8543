"""PURE. Convert pasted or uploaded reference lists to records.

The format is detected automatically. An unreadable entry becomes a rejection with its location.

entry        one entry in any format: its title, ids and names, or the reason for its rejection
plain_lines  lines with links, ids and DOIs, or with one title each
bibtex       BibTeX and BibLaTeX, with line numbers
ris          RIS, with line numbers
csl_json     CSL JSON
csv_table    CSV with a header row
limits       the maximum numbers of papers and bytes
"""

import codecs
import re

from app.errors import InvalidInput
from app.papers.bibliography import bibtex, csl_json, csv_table, ris
from app.papers.bibliography.limits import MAX_BYTES, MAX_FILE_BYTES, MAX_PAPERS, MAX_REJECTIONS, check_size
from app.types import PaperRecord, ParseResult, Rejection

__all__ = ["MAX_BYTES", "MAX_FILE_BYTES", "MAX_PAPERS", "check_size", "parse", "parse_file"]

_MARKUP = re.compile(r"\s*<(?:\?xml|!doctype|html|rdf:|xml)", re.IGNORECASE)
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def parse(text: str) -> ParseResult:
    """Return up to MAX_PAPERS records from a text, and rejections. Raise InvalidInput if it is too long.

    Each record has at least one of title, arXiv id, DOI and URL of a paper's page.
    """
    check_size(text)
    return _parse_text(text)


def parse_file(data: bytes) -> ParseResult:
    """Return the papers in a file. Its encoding may be UTF-16 with a byte order mark, UTF-8 or Windows-1252.

    Raise InvalidInput if the file is too large or not a text file.
    """
    if len(data) > MAX_FILE_BYTES:
        raise InvalidInput(
            f"This file is larger than {MAX_FILE_BYTES // 1000} kB: please export fewer papers at once, "
            "for example a single collection.",
            "file",
        )
    if data.startswith(_UTF16):
        return _parse_text(data.decode("utf-16", "replace"))
    if b"\0" in data or data.startswith(b"%PDF"):
        raise InvalidInput("This is not a text file: please choose BibTeX, RIS, CSL JSON or CSV.", "file")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("cp1252", "replace")
    return _parse_text(text)


def _parse_text(text: str) -> ParseResult:
    """Parse a text as the first format that it looks like, or else as BibTeX with plain lines."""
    text = text.removeprefix("\ufeff")
    if _MARKUP.match(text):
        reason = "XML, RDF or a web page: please export BibTeX, RIS or CSL JSON instead"
        return ParseResult(1, (), (Rejection(reason),))
    formats = (csl_json, ris, csv_table)
    parse_items = next((format_.parse for format_ in formats if format_.looks_like(text)), bibtex.parse)
    records: list[PaperRecord] = []
    rejections: list[Rejection] = []
    limit = ""
    for item in parse_items(text):
        if isinstance(item, PaperRecord):
            if len(records) == MAX_PAPERS:
                limit = f"only the first {MAX_PAPERS} papers were read: add the rest separately"
                break
            records.append(item)
        else:
            if len(rejections) == MAX_REJECTIONS:
                limit = f"{MAX_REJECTIONS} entries could not be read, so the rest was left out"
                break
            rejections.append(item)
    if limit:
        rejections.insert(0, Rejection(limit))  # first, because only the first rejections are shown
    return ParseResult(len(records) + len(rejections), tuple(records), tuple(rejections))
