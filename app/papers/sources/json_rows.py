"""PURE. Read rows of JSON from an array, an object that holds one, or JSON lines.

Each row that cannot be read is a rejection. A truncated answer is one, too, after its complete rows.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from typing import Any

from app.errors import UnreadableAnswer
from app.types import Rejection

CUT_OFF = "the answer was cut off"
BROKEN = "the answer is broken from here on"
MOST_ENTRIES = 2_000  # of a feed: arXiv's maximum
TOO_MANY = "the feed has too many entries"
NOT_JSON = "the row is not JSON"
NOT_AN_OBJECT = "the row is not an object"
_REPR_CHARS = 200_000
_REPR_DEPTH = 60
_CONTAINERS = ("data", "papers", "results", "items", "rows")
_DECODER = json.JSONDecoder()
_BETWEEN = re.compile(r"[\s,]*")

Row = tuple[int, Any]  # its number, from 1, and its value


def text_of(data: bytes | str) -> str:
    """Return an answer as text. Bytes that are not UTF-8 become the replacement character."""
    return data.removeprefix("\ufeff") if isinstance(data, str) else data.decode("utf-8-sig", "replace")


def refuse_markup(text: str, expected: str) -> None:
    """Raise UnreadableAnswer if a text is empty or a web page, such as a login form or a proxy's error."""
    if not text.strip():
        raise UnreadableAnswer(f"The answer is empty; {expected} was expected.")
    if re.match(r"\s*<(!doctype html|html|head|body)\b", text[:2_000], re.IGNORECASE):
        raise UnreadableAnswer(f"The answer is a web page (perhaps a login form), not {expected}.")


def too_many(count: int, most: int = MOST_ENTRIES) -> Rejection:
    """Return the rejection for a feed with more entries than a limit."""
    return Rejection(TOO_MANY, None, f"the first {most:,} of {count:,} were read")


def parse_rows(data: bytes | str) -> tuple[list[Row], list[Rejection]]:
    """Return the rows of an answer, and rejections for what could not be read."""
    text = text_of(data)
    refuse_markup(text, "JSON")
    try:
        return _rows_in(json.loads(text)), []
    except (ValueError, RecursionError) as error:
        rows, rejections = _salvage(text)
        if not rows:
            raise UnreadableAnswer(f"The answer is not JSON: {str(error)[:200]}") from None
        return rows, rejections


def _rows_in(answer: Any) -> list[Row]:
    if isinstance(answer, list):
        return list(enumerate(answer, 1))
    if not isinstance(answer, dict):
        raise UnreadableAnswer(
            f"The answer is JSON, but a single {type(answer).__name__} and not a list of rows."
        )
    for name in _CONTAINERS:
        if isinstance(answer.get(name), list):
            return list(enumerate(answer[name], 1))
    if "error" in answer:
        raise UnreadableAnswer(f"The answer is an error: {str(answer['error'])[:200]}")
    return [(1, answer)]


def _salvage(text: str) -> tuple[list[Row], list[Rejection]]:
    """Return the complete rows of a truncated array, or the rows of JSON lines."""
    start = text.lstrip()
    if start.startswith("[") or re.match(r'\{\s*"[^"]*"\s*:.*\[', start.partition("\n{")[0][:300], re.DOTALL):
        rows = list(enumerate(_complete_values(text, text.find("[") + 1), 1))
        if rows and not _is_json_lines(start):
            reason = BROKEN if text.rstrip().endswith("]" if start[0] == "[" else "}") else CUT_OFF
            return rows, [Rejection(reason, None, f"{len(rows)} complete rows were read")]
    return _parse_lines(text)


def _is_json_lines(start: str) -> bool:
    first, _, rest = start.partition("\n")
    try:
        return isinstance(json.loads(first), dict) and bool(rest.strip())
    except (ValueError, RecursionError):
        return False


def _complete_values(text: str, position: int) -> Iterator[Any]:
    while True:
        position = _BETWEEN.match(text, position).end()  # type: ignore[union-attr]  # it matches "", too
        try:
            value, position = _DECODER.raw_decode(text, position)
        except (ValueError, RecursionError):
            return
        yield value


def _parse_lines(text: str) -> tuple[list[Row], list[Rejection]]:
    rows: list[Row] = []
    rejections = []
    for number, line in enumerate((part for part in text.split("\n") if part.strip()), 1):
        try:
            rows.append((number, json.loads(line)))
        except (ValueError, RecursionError) as error:
            rejections.append(Rejection(NOT_JSON, number, str(error)[:200]))
    return rows, rejections


def unwrap_literal(row: Any) -> Any:
    """Return the value of a row that an archive stored as the text of a Python literal or of JSON."""
    if not isinstance(row, str) or not row.lstrip().startswith("{") or len(row) > _REPR_CHARS:
        return row
    try:
        return json.loads(row)
    except (ValueError, RecursionError):
        pass
    if _depth(row) > _REPR_DEPTH:
        return row
    try:
        return ast.literal_eval(row)  # literals only: no code is run
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return row


def _depth(text: str) -> int:
    deepest = depth = 0
    for char in text:
        if char in "{[(":
            depth += 1
            deepest = max(deepest, depth)
        elif char in "}])":
            depth -= 1
    return deepest
