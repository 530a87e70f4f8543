"""Read saved responses, saved pages and JSON lines, and detect the kind and the day of each file."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from app.errors import UnreadableResponse
from app.papers.sources import arxiv, huggingface, huggingface_pages, json_rows, jsonl, source_types
from app.text import dates
from app.types import ParseResult, Rejection, SourceKind

STREAMED_START = 1_000_000  # bytes; JSON lines are not read in parts if the first line is longer
MAX_LINE = 10_000_000  # bytes
ROWS_PER_PART = 1_000
_OF_JSON = (None, SourceKind.JSONL, SourceKind.HUGGINGFACE)
BOM = b"\xef\xbb\xbf"
_LINE = re.compile(r"\S.*")
# The fields of a paper that only Hugging Face's API uses.
_HUGGING_FACE = {"submittedOnDailyAt", "discussionId"}
# The fields of an operator's own papers that archives of Hugging Face's figures lack.
_MORE_THAN_FIGURES = {
    "abstract", "summary", "authors", "categories", "keywords", "organization", "doi", "url", "pdf_url",
    "code_url", "project_url", "published_on", "stars",
}  # fmt: skip
# The id of arXiv's feeds. Entries of other feeds may also link to arXiv.
_ARXIV_FEED_ID = re.compile(r"<id>\s*https?://(?:[\w-]+\.)*arxiv\.org/")
_ROOT = re.compile(r"<(?:\w+:)?(?:feed|rss|rdf)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ParsedFile:
    """The kind and the records of a file."""

    kind: SourceKind
    parsed: ParseResult


def parse_file(
    name: str, data: bytes, today: date, *, kind: SourceKind | None = None, day: date | None = None
) -> ParsedFile:
    """Parse a saved response. Raise UnreadableResponse if it cannot be parsed.

    If `kind` is None, detect it from the content. If `day` is None, use the day in the file's name. A search
    page may omit the year of its day, which is found with the help of `today`. If `kind` is
    HUGGINGFACE, rows in the format of an operator's own papers count as Hugging Face's.
    """
    text = _unwrap_recording(json_rows.text_of(data))
    detected = _detect(text)
    if detected is SourceKind.JSONL and kind in _OF_JSON:
        return _parse_rows(*json_rows.parse_rows(text), kind=kind, day=day or dates.day_in(name))
    if kind is None:
        kind = detected
    elif kind is SourceKind.ARXIV and detected is SourceKind.ARXIV_FEED:
        kind = detected  # users call both kinds "arxiv"
    if kind is None:
        raise UnreadableResponse(
            "Paperboy can't read this kind of file. It reads JSON, feeds, and Hugging Face's search results "
            "copied as text."
        )
    if kind is SourceKind.PAGE:
        return ParsedFile(kind, huggingface_pages.parse(text, day, today=today))
    parsed = source_types.parse(kind, text, day or dates.day_in(name))
    return ParsedFile(kind, parsed)


def read_file(
    path: Path, today: date, *, kind: SourceKind | None = None, day: date | None = None
) -> Iterator[ParsedFile]:
    """Yield the records of a file. JSON lines are read in parts, so the file may be larger than the memory.

    For `today`, `kind` and `day`, see `parse_file`. Raise UnreadableResponse or OSError if the file cannot be
    read.
    """
    with path.open("rb") as file:
        start = file.read(STREAMED_START)
        if kind not in _OF_JSON or not _has_json_lines(start):
            yield parse_file(path.name, start + file.read(), today, kind=kind, day=day)
            return
        file.seek(0)
        first = 1
        lines = filter(None, map(bytes.strip, _lines(file)))
        while part := list(islice(lines, ROWS_PER_PART)):
            parsed = jsonl.parse_rows(*json_rows.parse_lines(part, first), day or dates.day_in(path.name))
            yield ParsedFile(kind or SourceKind.JSONL, parsed)
            first += len(part)


def _parse_rows(
    rows: Sequence[json_rows.Row],
    rejections: Sequence[Rejection],
    *,
    kind: SourceKind | None,
    day: date | None,
) -> ParsedFile:
    objects = (json_rows.unwrap_literal(row) for _, row in rows)
    first = next((row for row in objects if isinstance(row, dict)), {})
    is_response = _is_from_hugging_face(first)
    kind = kind or (SourceKind.HUGGINGFACE if is_response else SourceKind.JSONL)
    if kind is SourceKind.HUGGINGFACE and is_response:
        return ParsedFile(kind, huggingface.parse_rows(rows, rejections, day))
    return ParsedFile(kind, jsonl.parse_rows(rows, rejections, day))


def _has_json_lines(start: bytes) -> bool:
    """Return whether a file begins with JSON lines in UTF-8, the first of which is no row of Hugging Face."""
    text = start.removeprefix(BOM).decode(errors="ignore")
    line = _first_row(text)
    return bool(line and text.partition(line)[2].strip()) and not _is_from_hugging_face(json.loads(line))


def _first_row(text: str) -> str:
    """Return the first JSON object of JSON lines, or "" if the text has another format.

    Skip earlier lines that are not JSON objects, such as a comment. The parser rejects them.
    """
    for match in _LINE.finditer(text):
        line = match.group()
        if line.startswith(("{", "[", "<")):
            try:
                return line if isinstance(json.loads(line), dict) else ""
            except (ValueError, RecursionError):
                return ""
    return ""


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a file. If a line is too long, yield only its beginning."""
    while line := file.readline(MAX_LINE):
        yield line.removeprefix(BOM)
        while not line.endswith(b"\n") and (line := file.readline(MAX_LINE)):
            pass


def _unwrap_recording(text: str) -> str:
    """Return the body of a recorded response `{url, status_code, body}`. Return any other text unchanged.

    Raise UnreadableResponse if the status code is an error.
    """
    if not text.lstrip().startswith("{") or '"status_code"' not in text or '"body"' not in text:
        return text
    try:
        recorded: Any = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if not isinstance(recorded, dict) or not isinstance(body := recorded.get("body"), str):
        return text
    status = recorded.get("status_code")
    if isinstance(status, int) and status >= 400:
        message = f"The recorded response is an error: HTTP {status}"
        try:
            arxiv.parse(body)
        except UnreadableResponse as error:  # an error feed, which contains arXiv's message
            message += f". {error}"
        raise UnreadableResponse(message)
    return body


def _detect(text: str) -> SourceKind | None:
    """Return the kind of a file, or None if it is unknown. For all JSON, return JSONL."""
    start = text.lstrip()[:5_000]
    if not start.startswith(("{", "[", "<")):
        if huggingface_pages.looks_like(text):
            return SourceKind.PAGE
        start = _first_row(text)[:5_000]
    if start.startswith(("{", "[")):
        return SourceKind.JSONL
    if not start:
        return None
    json_rows.refuse_markup(start, "JSON, a feed, or a page of search results copied as text")
    if "<OAI-PMH" in start:
        return SourceKind.ARXIV_OAI
    if not _ROOT.search(start):
        return None
    if "<feed" not in start or not _ARXIV_FEED_ID.search(start.partition("<entry")[0]):
        return SourceKind.FEED
    is_announcement = "announce_type" in start or "rss.arxiv.org" in start or "Feed error" in start
    return SourceKind.ARXIV_FEED if is_announcement else SourceKind.ARXIV


def _is_from_hugging_face(row: dict[str, Any]) -> bool:
    """Return whether a row has fields that only Hugging Face uses, or only the figures of its papers.

    Rows of an operator's own papers may have votes, too, but they say more than the figures.
    """
    if isinstance(row.get("paper"), dict) or not _HUGGING_FACE.isdisjoint(row):
        return True
    return row.keys() >= {"arxiv_id", "upvotes"} and _MORE_THAN_FIGURES.isdisjoint(row)
