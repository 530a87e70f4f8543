"""PURE. Read rows of JSON from an array, an object that contains one, or JSON lines.

Each unreadable row becomes a rejection. The complete rows of a truncated response are returned with one
rejection.
"""

import ast
import codecs
import json
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import orjson

from app.errors import UnreadableResponse
from app.types import PaperRecord, ParseResult, Rejection

CUT_OFF = "the response was cut off"
BROKEN = "the response is broken from here on"
MAX_ENTRIES = 2_000  # in a feed: arXiv's maximum
TOO_MANY = "the feed has too many entries"
NOT_JSON = "the row is not JSON"
NOT_AN_OBJECT = "the row is not an object"
_REPR_CHARS = 200_000
_REPR_DEPTH = 60
_CONTAINERS = ("data", "papers", "results", "items", "rows")
_DECODER = json.JSONDecoder()
_KEY = re.compile(r'\s*[{,]\s*"([^"\\]*)"\s*:\s*')  # with what precedes it in an object
_BETWEEN = re.compile(r"[\s,]*")
# Only the usual families: Python also has encodings that are no character sets, such as "unicode_escape".
_CHARSET = re.compile(
    r"(?:big5|cp|euc|gb|iso|koi8|latin|mac|shift|us-ascii|windows)[\w.-]{0,30}", re.ASCII | re.IGNORECASE
)
_XML_ENCODING = re.compile(
    rb"\s*<\?xml\s[^<>]{0,100}?\bencoding\s*=\s*[\"']([\w.-]{0,40})[\"']", re.IGNORECASE
)
_HEADER_ENCODING = re.compile(r";\s*charset\s*=\s*[\"']?([\w.-]{1,40})", re.ASCII | re.IGNORECASE)

Row = tuple[int, Any]  # number, counted from 1, and value


def text_of(data: bytes | str, content_type: str = "") -> str:
    """Return a response as text, without a byte order mark.

    Bytes in UTF-16 must begin with this mark. Other bytes are decoded as UTF-8 or, if they are not valid
    UTF-8, as their XML declaration or the Content-Type header says. Invalid bytes become replacement
    characters.
    """
    if isinstance(data, str):
        return data.removeprefix("\ufeff")
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", "replace")
    with suppress(UnicodeDecodeError):
        return data.decode("utf-8-sig")
    return data.decode(_declared_encoding(data, content_type), "replace")


def _declared_encoding(data: bytes, content_type: str) -> str:
    """Return the encoding in an XML declaration, else in the header. It is UTF-8 if neither is usable.

    Latin 1 is read as Windows-1252, as browsers do. The declaration comes from the feed's author, while many
    servers send their default in the header.
    """
    if declared := _XML_ENCODING.match(data):
        charset = declared[1].decode()
    else:
        header = _HEADER_ENCODING.search(content_type)
        charset = header[1] if header else ""
    if _CHARSET.fullmatch(charset):
        with suppress(LookupError):
            name = codecs.lookup(charset).name
            return {"iso8859-1": "cp1252", "utf-8": "utf-8-sig"}.get(name, name)
    return "utf-8-sig"


def refuse_markup(text: str, expected: str) -> None:
    """Raise UnreadableResponse if a text is empty or a web page, such as a login form or a proxy's error."""
    if not text.strip():
        raise UnreadableResponse(f"The response is empty; expected {expected}.")
    if re.match(r"\s*<(!doctype html|html|head|body)\b", text[:2_000], re.IGNORECASE):
        raise UnreadableResponse(f"The response is a web page (perhaps a login form), not {expected}.")


def too_many(count: int, most: int = MAX_ENTRIES) -> Rejection:
    """Return the rejection for a feed with more entries than a limit."""
    return Rejection(TOO_MANY, None, f"the first {most:,} of {count:,} were read")


def parse_rows(data: bytes | str) -> tuple[list[Row], list[Rejection]]:
    """Return the rows of a response, and rejections for its unreadable parts.

    Raise UnreadableResponse if no list of rows can be read.
    """
    text = text_of(data)
    refuse_markup(text, "JSON")
    try:
        response = json.loads(text)
    except (ValueError, RecursionError) as error:
        rows, rejections = _salvage(text)
        if not rows:
            raise UnreadableResponse(f"The response is not JSON: {str(error)[:200]}") from None
        return rows, rejections
    if isinstance(response, dict):
        listed = next((response[name] for name in _CONTAINERS if isinstance(response.get(name), list)), None)
        if listed is None and "error" in response:
            raise UnreadableResponse(f"The response is an error: {str(response['error'])[:200]}")
        response = [response] if listed is None else listed
    if not isinstance(response, list):
        kind = type(response).__name__
        raise UnreadableResponse(
            f"The response is JSON, but contains a single {kind} instead of a list of rows."
        )
    return list(enumerate(response, 1)), []


def parse_lines(lines: Iterable[bytes], first: int) -> tuple[list[Row], list[Rejection]]:
    """Return the rows of JSON lines, numbered from `first`, and a rejection for each unreadable line."""
    rows: list[Row] = []
    rejections = []
    for number, line in enumerate(lines, first):
        try:
            rows.append((number, _parse_line(line)))
        except (ValueError, RecursionError) as error:
            rejections.append(Rejection(NOT_JSON, number, str(error)[:200]))
    return rows, rejections


def _parse_line(line: bytes) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:  # orjson is stricter: it accepts neither NaN nor invalid UTF-8
        return json.loads(line.decode("utf-8", "replace"))


def _salvage(text: str) -> tuple[list[Row], list[Rejection]]:
    """Return the complete rows of a truncated array, or the rows of JSON lines."""
    start = text.lstrip()
    rows: list[Row] = []
    if position := _start_of_rows(start):
        with suppress(ValueError, RecursionError):
            while between := _BETWEEN.match(start, position):  # this also matches ""
                value, position = _DECODER.raw_decode(start, between.end())
                rows.append((len(rows) + 1, value))
        first, _, rest = start.partition("\n")
        try:
            is_json_lines = isinstance(json.loads(first), dict) and bool(rest.strip())
        except (ValueError, RecursionError):
            is_json_lines = False
        if rows and not is_json_lines:
            reason = BROKEN if text.rstrip().endswith("]" if start[0] == "[" else "}") else CUT_OFF
            return rows, [Rejection(reason, None, f"{len(rows)} complete rows were read")]
        rows = []
    lines = (part.encode("utf-8", "surrogatepass") for part in text.split("\n") if part.strip())
    return parse_lines(lines, 1)


def _start_of_rows(text: str) -> int:
    """Return the position after the bracket that opens the list of rows, or 0 if there is none."""
    if text.startswith("["):
        return 1
    starts, position = {}, 0
    with suppress(ValueError, RecursionError):
        while key := _KEY.match(text, position):
            if text.startswith("[", key.end()):
                starts[key[1]] = key.end() + 1
            _, position = _DECODER.raw_decode(text, key.end())
    return next((starts[name] for name in _CONTAINERS if name in starts), 0)


def collect(rows: Iterable[PaperRecord | Rejection], rejections: Sequence[Rejection] = ()) -> ParseResult:
    """Return the records in `rows`, and `rejections` followed by the rejections in `rows`."""
    records: list[PaperRecord] = []
    rejections = [*rejections]
    for row in rows:
        if isinstance(row, PaperRecord):
            records.append(row)
        else:
            rejections.append(row)
    rejected = sum(rejection.row is not None for rejection in rejections)
    return ParseResult(len(records) + rejected, tuple(records), tuple(rejections))


def unwrap_literal(row: Any) -> Any:
    """Decode a row that an archive stored as a JSON or Python literal string. Return other rows unchanged."""
    if not isinstance(row, str) or not row.lstrip().startswith("{") or len(row) > _REPR_CHARS:
        return row
    try:
        return json.loads(row)
    except (ValueError, RecursionError):
        pass
    deepest = depth = 0
    for char in row:
        depth += (char in "{[(") - (char in "}])")
        deepest = max(deepest, depth)
    if deepest > _REPR_DEPTH:
        return row
    try:
        return ast.literal_eval(row)  # literals only: no code is run
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return row
