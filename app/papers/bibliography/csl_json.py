"""PURE. Convert CSL JSON from Zotero, Mendeley and pandoc to records."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from app.errors import UnreadableResponse
from app.papers.bibliography import entry, limits
from app.papers.bibliography.entry import Item
from app.papers.sources import json_rows
from app.text import sanitize
from app.types import Rejection

_BEGINS = re.compile(r'\s*(?:\[\s*)?\{\s*"')
_ID_FIELDS = ("URL", "number", "archive_location", "container-title")
_NAME_PARTS = ("given", "dropping-particle", "non-dropping-particle", "family", "suffix")


def looks_like(text: str) -> bool:
    return bool(_BEGINS.match(text))


def parse(text: str) -> Iterator[Item]:
    """Yield the records and rejections of a file in order, even if the file is truncated."""
    try:
        rows, broken = json_rows.parse_rows(text)
    except UnreadableResponse:
        yield Rejection("JSON that cannot be read")
        return
    for number, value in rows:
        row = value if isinstance(value, dict) else {}
        listed = row.get("author")
        people = [person for person in listed if isinstance(person, dict)] if isinstance(listed, list) else []
        names = (
            _text(person, "literal") or " ".join(filter(None, (_text(person, part) for part in _NAME_PARTS)))
            for person in people[: limits.MAX_AUTHORS]
        )
        yield entry.to_item(
            "a CSL JSON entry",
            None,
            _text(row, "id") or f"number {number}",
            title=entry.prose(row.get("title"), sanitize.TITLE_CHARS),
            abstract=entry.prose(row.get("abstract"), entry.ABSTRACT_CHARS),
            authors=tuple(filter(None, map(sanitize.one_line, names))),
            doi=_text(row, "DOI"),
            id_texts=[*(_text(row, name) for name in _ID_FIELDS), entry.arxiv_note(_text(row, "note"))],
        )
    for rejection in broken:
        yield Rejection("JSON that is broken or ends too early", None, rejection.detail)


def _text(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    return value if isinstance(value, str) else ""
