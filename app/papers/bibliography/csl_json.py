"""PURE. CSL JSON, as Zotero, Mendeley and pandoc write it → records."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from app.errors import UnreadableAnswer
from app.papers.bibliography import entry
from app.papers.bibliography.entry import Item
from app.papers.sources import json_rows
from app.text import sanitize
from app.types import PaperRecord, Rejection

_BEGINS = re.compile(r'\s*(?:\[\s*)?\{\s*"')
_OF_IDS = ("URL", "number", "archive_location", "container-title")
_PARTS = ("given", "dropping-particle", "non-dropping-particle", "family", "suffix")


def recognises(text: str) -> bool:
    return bool(_BEGINS.match(text))


def items(text: str) -> Iterator[Item]:
    """The entries of a file, in their order; one that was cut off is read up to there."""
    try:
        found, broken = json_rows.parse_rows(text)
    except UnreadableAnswer:
        yield Rejection("JSON that cannot be read")
        return
    for number, row in found:
        yield _item(row if isinstance(row, dict) else {}, number)
    for rejection in broken:
        yield Rejection("JSON that is broken or ends too early", None, rejection.detail)


def _item(row: Mapping[str, Any], number: int) -> Item:
    arxiv_id, doi = entry.ids(
        _text(row, "DOI"), [*(_text(row, name) for name in _OF_IDS), entry.of_arxiv(_text(row, "note"))]
    )
    record = PaperRecord(
        title=entry.prose(row.get("title"), sanitize.TITLE_CHARS),
        arxiv_id=arxiv_id,
        doi=doi,
        abstract=entry.prose(row.get("abstract"), entry.ABSTRACT_CHARS),
        authors=_authors(row.get("author")),
    )
    return entry.item(
        entry.EntryLocation("a CSL JSON entry", None, _text(row, "id") or f"number {number}"), record
    )


def _text(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    return value if isinstance(value, str) else ""


def _authors(value: object) -> tuple[str, ...]:
    people = [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
    said = (
        _text(each, "literal") or " ".join(filter(None, (_text(each, part) for part in _PARTS)))
        for each in people[: entry.AUTHORS_READ]
    )
    return tuple(filter(None, map(sanitize.one_line, said)))
