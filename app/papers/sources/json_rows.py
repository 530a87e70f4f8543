"""PURE. JSON in the containers it comes in, opened: an array, an object around one, or one row a line.

What can be read is read. A row that cannot is one rejection; an answer that was cut off is one, too.
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
MOST_ENTRIES = 2_000  # of a feed: as many as arXiv gives at once
TOO_MANY = "the feed has too many entries"
NOT_JSON = "the row is not JSON"
NOT_AN_OBJECT = "the row is not an object"
_REPR_CHARS = 200_000
_REPR_DEPTH = 60
_CONTAINERS = ("data", "papers", "results", "items", "rows")
_DECODER = json.JSONDecoder()
_BETWEEN = re.compile(r"[\s,]*")

Row = tuple[int, Any]  # its number, from 1, and what it is


def text_of(data: bytes | str) -> str:
    """The answer as text; bytes that are not UTF-8 become the replacement character."""
    return data.removeprefix("\ufeff") if isinstance(data, str) else data.decode("utf-8-sig", "replace")


def refuse_markup(text: str, wanted: str) -> None:
    """Raise when a web page stands where data was asked for: a login form, a proxy's error page."""
    if not text.strip():
        raise UnreadableAnswer(f"The answer is empty; {wanted} was expected.")
    if re.match(r"\s*<(!doctype html|html|head|body)\b", text[:2_000], re.IGNORECASE):
        raise UnreadableAnswer(f"The answer is a web page (perhaps a login form), not {wanted}.")


def too_many(count: int, most: int = MOST_ENTRIES) -> Rejection:
    """Return the rejection of the entries of a feed that are over a limit."""
    return Rejection(TOO_MANY, None, f"the first {most:,} of {count:,} were read")


def parse_rows(data: bytes | str) -> tuple[list[Row], list[Rejection]]:
    """The rows of an answer, as they are, and what could not be read."""
    text = text_of(data)
    refuse_markup(text, "JSON")
    try:
        return _opened(json.loads(text)), []
    except (ValueError, RecursionError) as error:
        found = _salvage(text)
        if not found[0]:
            raise UnreadableAnswer(f"The answer is not JSON: {str(error)[:200]}") from None
        return found


def _opened(answer: Any) -> list[Row]:
    if isinstance(answer, list):
        return list(enumerate(answer, 1))
    if not isinstance(answer, dict):
        raise UnreadableAnswer(
            f"The answer is JSON, but a lone {type(answer).__name__} and not a list of rows."
        )
    for name in _CONTAINERS:
        if isinstance(answer.get(name), list):
            return list(enumerate(answer[name], 1))
    if "error" in answer:
        raise UnreadableAnswer(f"The answer is an error: {str(answer['error'])[:200]}")
    return [(1, answer)]


def _salvage(text: str) -> tuple[list[Row], list[Rejection]]:
    """The complete rows of an array that was cut off, or the rows of a file that has one on each line."""
    start = text.lstrip()
    if start.startswith("[") or re.match(r'\{\s*"[^"]*"\s*:.*\[', start.partition("\n{")[0][:300], re.DOTALL):
        rows = list(enumerate(_complete(text, text.find("[") + 1), 1))
        if rows and not _is_lines(start):
            reason = BROKEN if text.rstrip().endswith("]" if start[0] == "[" else "}") else CUT_OFF
            return rows, [Rejection(reason, None, f"{len(rows)} complete rows were read")]
    return _lines(text)


def _is_lines(start: str) -> bool:
    first, _, rest = start.partition("\n")
    try:
        return isinstance(json.loads(first), dict) and bool(rest.strip())
    except (ValueError, RecursionError):
        return False


def _complete(text: str, place: int) -> Iterator[Any]:
    while True:
        place = _BETWEEN.match(text, place).end()  # type: ignore[union-attr]  # it matches nothing, too
        try:
            value, place = _DECODER.raw_decode(text, place)
        except (ValueError, RecursionError):
            return
        yield value


def _lines(text: str) -> tuple[list[Row], list[Rejection]]:
    rows: list[Row] = []
    rejections = []
    for number, line in enumerate((part for part in text.split("\n") if part.strip()), 1):
        try:
            rows.append((number, json.loads(line)))
        except (ValueError, RecursionError) as error:
            rejections.append(Rejection(NOT_JSON, number, str(error)[:200]))
    return rows, rejections


def unwrap_literal(row: Any) -> Any:
    """A row that some archive stored as the text of a Python literal, or of JSON, as the value it was."""
    if not isinstance(row, str) or not row.lstrip().startswith("{") or len(row) > _REPR_CHARS:
        return row
    try:
        return json.loads(row)
    except (ValueError, RecursionError):
        pass
    if _depth(row) > _REPR_DEPTH:
        return row
    try:
        return ast.literal_eval(row)  # literals only: nothing is ever run
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
