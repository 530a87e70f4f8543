"""The upstreams: one file each, `parse()` pure and `fetch()` thin.

huggingface        Hugging Face Daily Papers
arxiv              the query API and the daily feed
feed               any RSS or Atom feed
saved_pages        saved search pages
jsonl              JSON and JSON-lines files
json_rows          what the JSON sources share: rows, fields, rejections
calendar           days on which a source is expected to have no papers
state              what is remembered between two polls: ETags, days that were read
http_client        the polite HTTP client: pace, retries, Retry-After, size limits
allowed_addresses  PURE: which IP addresses a host name may lead to
content_decoding   PURE: response bodies, decoded within limits
deadlines          asynchronous work that ends at a deadline, and when the service stops
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
from app.text import sanitize
from app.types import ParseResult, SourceKind

POLLED = (SourceKind.HUGGINGFACE, SourceKind.ARXIV, SourceKind.ARXIV_FEED, SourceKind.FEED)
_ROOT = re.compile(r"<(?:\w+:)?(?:feed|rss|rdf)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ParsedFile:
    """What a file turned out to be, and what was in it."""

    kind: SourceKind
    parsed: ParseResult


def read(
    name: str, data: bytes, today: date, *, kind: SourceKind | None = None, day: date | None = None
) -> ParsedFile:
    """Read a saved answer. What it is and its day are guessed from its content and name, unless told."""
    text, given = _unwrapped(json_rows.text_of(data)), day
    guessed = _guess(text)
    if kind is None:
        kind = guessed
    elif kind is SourceKind.ARXIV and guessed is SourceKind.ARXIV_FEED:
        kind = guessed  # both are called "arxiv" by people
    if kind is None:
        raise UnreadableAnswer("This is none of the kinds of file that Paperboy reads.")
    if kind is SourceKind.PAGE:
        return ParsedFile(kind, saved_pages.parse(text, given, today=today))
    parsed = parse(kind, text, given or sanitize.day_in(name))
    if kind is SourceKind.JSONL and any(record.upvotes is not None for record in parsed.records):
        kind = SourceKind.HUGGINGFACE  # nobody else has upvotes: they must not be counted twice
    return ParsedFile(kind, parsed)


def parse(kind: SourceKind, text: bytes | str, day: date | None) -> ParseResult:
    """PURE. An answer of a kind that says by itself what day it is of, or is told."""
    parsers = {
        SourceKind.HUGGINGFACE: huggingface.parse,
        SourceKind.ARXIV: arxiv.parse,
        SourceKind.ARXIV_FEED: arxiv.parse_feed,
        SourceKind.FEED: feed.parse,
        SourceKind.JSONL: jsonl.parse,
    }
    return parsers[kind](text, day)


def fetch(client: Client, state: SourceState, now: datetime) -> AsyncIterator[FetchedPage]:
    """Ask a source for what is new, piece by piece: each piece is stored before the next is asked for."""
    if state.kind is SourceKind.HUGGINGFACE:
        return huggingface.fetch(client, state, now)
    if state.kind in (SourceKind.ARXIV, SourceKind.ARXIV_FEED):
        return arxiv.fetch(client, state, now)
    return feed.fetch(client, state, now)


def _unwrapped(text: str) -> str:
    """The body of a recorded answer `{url, status_code, body}`; any other text as it is."""
    if not text.lstrip().startswith("{") or '"status_code"' not in text or '"body"' not in text:
        return text
    try:
        answer: Any = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if not isinstance(answer, dict) or not isinstance(answer.get("body"), str):
        return text
    status = answer.get("status_code")
    if isinstance(status, int) and status >= 400:
        raise UnreadableAnswer(f"The recorded answer is an error: HTTP {status}{_told(answer['body'])}")
    return str(answer["body"])


def _told(body: str) -> str:
    """What an error feed says is wrong."""
    try:
        arxiv.parse(body)
    except UnreadableAnswer as error:
        return f". {error}"
    return ""


def _guess(text: str) -> SourceKind | None:
    start = text.lstrip()[:5_000]
    if start.startswith("<"):
        return _guess_feed(start)
    if start.startswith(("{", "[")):
        return _guess_rows(start)
    return SourceKind.PAGE if saved_pages.looks_like_one(text) else None


def _guess_feed(start: str) -> SourceKind | None:
    json_rows.refuse_markup(start, "a feed")
    if not _ROOT.search(start):
        return None
    if "<feed" not in start or "arxiv.org" not in start:
        return SourceKind.FEED
    announced = "announce_type" in start or "rss.arxiv.org" in start or "Feed error" in start
    return SourceKind.ARXIV_FEED if announced else SourceKind.ARXIV


def _guess_rows(start: str) -> SourceKind:
    """By the names of the fields: only Hugging Face has an inner paper, and votes."""
    theirs = re.search(r"""["']paper["']\s*:\s*\{|"upvotes"\s*:|"submittedOnDailyAt"\s*:""", start)
    return SourceKind.HUGGINGFACE if theirs else SourceKind.JSONL
