"""Parse pasted papers and files: small ones here, large ones in a child process with a deadline."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from app.errors import InvalidInput, ParsingTooExpensive
from app.papers import bibliography
from app.runtime import sandbox
from app.types import ParseResult

SMALL = 20_000  # characters or bytes that may be read in this process: they take at most half a second
Given = TypeVar("Given", str, bytes)


def parse(text: str) -> ParseResult:
    """Return the papers that a pasted text names; InvalidInput when it is too long, or takes too long."""
    return _bounded(bibliography.parse, text, "liked")


def parse_file(data: bytes) -> ParseResult:
    """Return the papers in a file; InvalidInput when it is too long, no text, or takes too long."""
    return _bounded(bibliography.parse_file, data, "file")


def _bounded(read: Callable[[Given], ParseResult], given: Given, field: str) -> ParseResult:
    if len(given) <= SMALL:
        return read(given)
    try:
        return sandbox.run(read, given)
    except ParsingTooExpensive:
        raise InvalidInput("This takes too long to read: please send fewer papers at once.", field) from None
