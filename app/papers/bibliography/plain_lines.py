"""PURE. Lines as people type them → records: a line names one paper by its title, or several by their ids."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from app.papers.bibliography.entry import SHOWN_CHARS, Item, arxiv_id, is_link
from app.text import sanitize
from app.types import PaperRecord, Rejection

_BULLET = re.compile(r"^(?:[-*•–]|[\[(]?\d{1,3}[\].)])\s+")
_BETWEEN_IDS = re.compile(r"[\s,;<>\[\]]+")
_REMARKS = ("%", "#")
# One long word, in letters of which words are made; or what was to be a DOI.
_NO_TITLE = re.compile(r"[!-~]{41,}|(?:doi:\s*)?10\.\d*/\S*", re.IGNORECASE)


def items(lines: Iterable[str], first: int) -> Iterator[Item]:
    """What stands in these lines, of which the first has this number."""
    for row, typed in enumerate(lines, first):
        line = _BULLET.sub("", sanitize.one_line(typed, len(typed)))
        if line and not line.startswith(_REMARKS):
            yield from _of_line(line, row)


def _of_line(line: str, row: int) -> Iterator[Item]:
    """The ids in a line, or else its words as a title."""
    named = [record for word in _BETWEEN_IDS.split(line) if (record := _by_id(word))]
    if named:
        yield from named
    elif is_link(line.lstrip("<([")):
        yield Rejection("a link in which no arXiv id or DOI stands", row, line[:SHOWN_CHARS])
    elif sum(map(str.isalpha, title := sanitize.title(line))) >= 2 and not _NO_TITLE.fullmatch(line):
        yield PaperRecord(title=title)
    else:
        yield Rejection("neither a title nor a link or id", row, line[:SHOWN_CHARS])


def _by_id(word: str) -> PaperRecord | None:
    doi = sanitize.doi(word)
    found = sanitize.arxiv_id_of_doi(doi) or arxiv_id(word)
    return PaperRecord(title="", arxiv_id=found, doi=doi) if found or doi else None
