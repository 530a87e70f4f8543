"""PURE. RIS, as reference managers and publishers write it → records.

Read here and not by a library: those drop or join entries without a word where a line is missing.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from app.papers.bibliography import entry, plain_lines
from app.papers.bibliography.entry import Item
from app.text import sanitize
from app.types import PaperRecord

_BEGINS = re.compile(r"^TY  -", re.MULTILINE)
_TAGGED = re.compile(r"([A-Z][A-Z0-9])  - ?(.*)", re.DOTALL)
_TITLE, _ABSTRACT, _AUTHOR = ("TI", "T1", "CT"), ("AB", "N2"), ("AU", "A1")
_OF_IDS = ("UR", "AN", "M1", "M3", "L1", "L2", "L3", "LK", "JO", "JF", "T2")

Fields = defaultdict[str, list[list[str]]]  # by tag: its values, each in as many lines as it has


def recognises(text: str) -> bool:
    return bool(_BEGINS.search(text))


def items(text: str) -> Iterator[Item]:
    """Everything in a text, in its order. What is between the entries is read as typed lines."""
    fields: Fields | None = None
    value: list[str] = []
    first = 0
    for row, line in enumerate(text.splitlines(), 1):
        tagged = _TAGGED.fullmatch(line.strip("\ufeff"))
        tag = tagged[1] if tagged else ""
        if fields is not None and tag in ("TY", "ER"):
            yield _item(fields, first)
            fields = None
        if tagged and tag != "ER":
            if fields is None:
                fields, first = defaultdict(list), row
            value = [tagged[2]]
            fields[tag].append(value)
        elif fields is not None:
            value.append(line)
        elif not tagged:
            yield from plain_lines.items([line], row)
    if fields is not None:
        yield _item(fields, first)


def _item(fields: Fields, row: int) -> Item:
    def said(tags: Sequence[str]) -> list[str]:
        return [" ".join(value) for tag in tags for value in fields.get(tag, ())]

    arxiv_id, doi = entry.ids("".join(said(["DO"])[:1]), said(_OF_IDS))
    record = PaperRecord(
        title=entry.prose("".join(said(_TITLE)[:1]), sanitize.TITLE_CHARS),
        arxiv_id=arxiv_id,
        doi=doi,
        abstract=entry.prose("".join(said(_ABSTRACT)[:1]), entry.ABSTRACT_CHARS),
        authors=entry.names(said(_AUTHOR)),
    )
    return entry.item(entry.EntryLocation("a RIS entry", row, "".join(said(["ID"])[:1])), record)
