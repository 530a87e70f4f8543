"""PURE. Convert RIS from reference managers and publishers to records.

No library is used, because existing libraries silently drop or join entries if a line is missing.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from app.papers.bibliography import entry, plain_lines
from app.papers.bibliography.entry import Item
from app.text import sanitize

_BEGINS = re.compile(r"^TY  -", re.MULTILINE)
_TAG_LINE = re.compile(r"([A-Z][A-Z0-9])  - ?(.*)", re.DOTALL)
_TITLE, _ABSTRACT, _AUTHOR = ("TI", "T1", "CT"), ("AB", "N2"), ("AU", "A1")
_ID_TAGS = ("UR", "AN", "M1", "M3", "L1", "L2", "L3", "LK", "JO", "JF", "T2")

Fields = defaultdict[str, list[list[str]]]  # the values of each tag, each a list of lines


def looks_like(text: str) -> bool:
    """Return whether a text contains the first line of a RIS entry."""
    return bool(_BEGINS.search(text))


def parse(text: str) -> Iterator[Item]:
    """Yield the records and rejections from a text in order. Text between entries is read as plain lines."""
    fields: Fields | None = None
    value: list[str] = []
    first = 0
    for row, line in enumerate(text.splitlines(), 1):
        match = _TAG_LINE.fullmatch(line.strip("\ufeff"))
        tag = match[1] if match else ""
        if fields is not None and tag in ("TY", "ER"):
            yield _item(fields, first)
            fields = None
        if match and tag != "ER":
            if fields is None:
                fields, first = defaultdict(list), row
            value = [match[2]]
            fields[tag].append(value)
        elif fields is not None:
            value.append(line)
        elif not match:
            yield from plain_lines.parse([line], row)
    if fields is not None:
        yield _item(fields, first)


def _item(fields: Fields, row: int) -> Item:
    def values(tags: Sequence[str]) -> list[str]:
        return [" ".join(value) for tag in tags for value in fields.get(tag, ())]

    return entry.to_item(
        "a RIS entry",
        row,
        "".join(values(["ID"])[:1]),
        title=entry.prose("".join(values(_TITLE)[:1]), sanitize.TITLE_CHARS),
        abstract=entry.prose("".join(values(_ABSTRACT)[:1]), entry.ABSTRACT_CHARS),
        authors=entry.names(values(_AUTHOR)),
        doi="".join(values(["DO"])[:1]),
        id_texts=values(_ID_TAGS),
    )
