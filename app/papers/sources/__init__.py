"""Upstream sources, one module each, with a pure `parse()` and a thin `fetch()`.

huggingface        Hugging Face Daily Papers
arxiv              the query API and the daily feed
feed               any RSS or Atom feed
saved_pages        saved search pages
jsonl              JSON and JSON-lines files
json_rows          PURE: rows and rejections of JSON responses, used by all JSON sources
calendar           PURE: days on which a source is expected to have no papers
state              PURE: the progress of a source between polls, and the pages fetched from it
http_client        the polite HTTP client: rate limits, retries, Retry-After, size limits
allowed_addresses  PURE: which IP addresses a host name may resolve to
content_decoding   PURE: decode response bodies within limits
deadlines          asynchronous work that ends at a deadline or when the service stops
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from app.errors import UnreadableAnswer
from app.papers.sources import arxiv, feed, huggingface, json_rows, jsonl, saved_pages
from app.papers.sources.http_client import Client
from app.papers.sources.state import FetchedPage, SourceState
from app.text import dates, sanitize
from app.types import ParseResult, SourceKind

POLLED = (SourceKind.HUGGINGFACE, SourceKind.ARXIV, SourceKind.ARXIV_FEED, SourceKind.FEED)
_ROOT = re.compile(r"<(?:\w+:)?(?:feed|rss|rdf)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ParsedFile:
    """The kind and the records of a file."""

    kind: SourceKind
    parsed: ParseResult


def parse_file(
    name: str, data: bytes, today: date, *, kind: SourceKind | None = None, day: date | None = None
) -> ParsedFile:
    """Parse a saved response. Its kind and day are detected from its content and name unless given."""
    text = _unwrap_recording(json_rows.text_of(data))
    detected = _detect(text)
    if kind is None:
        kind = detected
    elif kind is SourceKind.ARXIV and detected is SourceKind.ARXIV_FEED:
        kind = detected  # users call both kinds "arxiv"
    if kind is None:
        raise UnreadableAnswer("Paperboy can't read this kind of file.")
    if kind is SourceKind.PAGE:
        return ParsedFile(kind, saved_pages.parse(text, day, today=today))
    parsed = parse(kind, text, day or dates.day_in(name))
    if kind is SourceKind.JSONL and any(record.upvotes is not None for record in parsed.records):
        kind = SourceKind.HUGGINGFACE  # only Hugging Face has upvotes, and they must not be counted twice
    return ParsedFile(kind, parsed)


def parse(kind: SourceKind, text: bytes | str, day: date | None) -> ParseResult:
    """PURE. Parse a response from a kind of source.

    `day` is the listing day of papers for which the response does not name one.
    """
    parsers = {
        SourceKind.HUGGINGFACE: huggingface.parse,
        SourceKind.ARXIV: arxiv.parse,
        SourceKind.ARXIV_FEED: arxiv.parse_feed,
        SourceKind.FEED: feed.parse,
        SourceKind.JSONL: jsonl.parse,
    }
    return parsers[kind](text, day)


def fetch(client: Client, state: SourceState, now: datetime) -> AsyncIterator[FetchedPage]:
    """Yield the new pages from a source. Store each page before requesting the next."""
    if state.kind is SourceKind.HUGGINGFACE:
        return huggingface.fetch(client, state, now)
    if state.kind in (SourceKind.ARXIV, SourceKind.ARXIV_FEED):
        return arxiv.fetch(client, state, now)
    return feed.fetch(client, state, now)


def _unwrap_recording(text: str) -> str:
    """Return the body of a recorded response `{url, status_code, body}`. Return any other text unchanged.

    Raise UnreadableAnswer if the status code is an error.
    """
    if not text.lstrip().startswith("{") or '"status_code"' not in text or '"body"' not in text:
        return text
    try:
        answer: Any = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if not isinstance(answer, dict) or not isinstance(body := answer.get("body"), str):
        return text
    status = answer.get("status_code")
    if isinstance(status, int) and status >= 400:
        message = f"The recorded response is an error: HTTP {status}"
        try:
            arxiv.parse(body)
        except UnreadableAnswer as error:  # adds the message if the body is an error feed from arXiv
            message += f". {error}"
        raise UnreadableAnswer(message)
    return body


def _detect(text: str) -> SourceKind | None:
    start = text.lstrip()[:5_000]
    if start.startswith(("{", "[")):
        # Only Hugging Face has an inner "paper" object and votes.
        is_huggingface = re.search(
            r"""["']paper["']\s*:\s*\{|"upvotes"\s*:|"submittedOnDailyAt"\s*:""", start
        )
        return SourceKind.HUGGINGFACE if is_huggingface else SourceKind.JSONL
    if not start.startswith("<"):
        return SourceKind.PAGE if saved_pages.looks_like(text) else None
    json_rows.refuse_markup(start, "a feed")
    if not _ROOT.search(start):
        return None
    if "<feed" not in start or "arxiv.org" not in start:
        return SourceKind.FEED
    is_announcement = "announce_type" in start or "rss.arxiv.org" in start or "Feed error" in start
    return SourceKind.ARXIV_FEED if is_announcement else SourceKind.ARXIV
