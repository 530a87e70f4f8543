"""Parse pasted papers and files. Large inputs are parsed in a child process with a deadline."""

from collections.abc import Callable
from typing import TypeVar

from app.errors import InvalidInput, ParsingTooExpensive
from app.papers import bibliography
from app.runtime import sandbox
from app.types import ParseResult

SMALL = 20_000  # characters or bytes; parsing them in this process takes at most half a second
Given = TypeVar("Given", str, bytes)


def parse(text: str) -> ParseResult:
    """Parse pasted text. Raise InvalidInput if it is too long or takes too long."""
    return _parse_bounded(bibliography.parse, text, "liked")


def parse_file(data: bytes) -> ParseResult:
    """Parse a file. Raise InvalidInput if it is too long, is not text, or takes too long."""
    return _parse_bounded(bibliography.parse_file, data, "file")


def _parse_bounded(parser: Callable[[Given], ParseResult], data: Given, field: str) -> ParseResult:
    if len(data) <= SMALL:
        return parser(data)
    try:
        return sandbox.run(parser, data)
    except ParsingTooExpensive:
        raise InvalidInput(
            "This takes too long to process. Please send fewer papers at once.", field
        ) from None
