"""Upstream sources, one module each, with a pure `parse()` and a thin `fetch()`.

huggingface        Hugging Face Daily Papers
arxiv              the query API and the daily feed
oai                arXiv's back catalogue, through OAI-PMH
feed               any RSS or Atom feed
huggingface_pages  search pages of Hugging Face, saved as text
jsonl              files of papers in JSON or JSON lines
files              read saved responses and files of JSON lines, and detect their kind
xml_elements       PURE: read XML elements from arXiv, even if truncated or hostile
withdrawal         PURE: recognise that authors withdrew an arXiv paper
json_rows          PURE: rows and rejections of JSON responses, used by all JSON sources
calendar           PURE: days on which a source is expected to have no papers
state              PURE: the progress of a source between polls, and the pages fetched from it
http_client        the polite HTTP client: identification, retries, size limits
host_rate_limits   limits on requests to each host: pauses for arXiv, 429, Retry-After
allowed_addresses  PURE: check the IP addresses to which a host name resolves
content_decoding   PURE: decode response bodies within limits
deadlines          asynchronous work that ends at a deadline or when the service stops
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import date, datetime

from app.papers.sources import arxiv, feed, huggingface, jsonl, oai
from app.papers.sources.http_client import Client
from app.papers.sources.state import FetchedPage, SourceState
from app.types import ParseResult, SourceKind

POLLED = (
    SourceKind.HUGGINGFACE, SourceKind.ARXIV, SourceKind.ARXIV_FEED, SourceKind.ARXIV_OAI, SourceKind.FEED,
)  # fmt: skip


def parse(kind: SourceKind, text: bytes | str, day: date | None) -> ParseResult:
    """PURE. Parse a response from a source of this kind.

    `day` is the listing day of papers for which the response does not name one.
    """
    parsers = {
        SourceKind.HUGGINGFACE: huggingface.parse,
        SourceKind.ARXIV: arxiv.parse,
        SourceKind.ARXIV_FEED: arxiv.parse_feed,
        SourceKind.ARXIV_OAI: oai.parse,
        SourceKind.FEED: feed.parse,
        SourceKind.JSONL: jsonl.parse,
    }
    return parsers[kind](text, day)


def fetch(client: Client, state: SourceState, now: datetime) -> AsyncIterator[FetchedPage]:
    """Yield the new pages from a source. The caller must store each page before it requests the next one."""
    if state.kind is SourceKind.HUGGINGFACE:
        return huggingface.fetch(client, state, now)
    if state.kind in (SourceKind.ARXIV, SourceKind.ARXIV_FEED):
        return arxiv.fetch(client, state, now)
    if state.kind is SourceKind.ARXIV_OAI:
        return oai.fetch(client, state, now)
    return feed.fetch(client, state, now)
