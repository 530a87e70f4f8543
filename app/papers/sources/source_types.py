"""The kinds of sources: their parsers, how often they are polled, their options and labels.

A new kind needs an entry in SOURCE_TYPES, a rank in `field_precedence`, a case in `files._detect` if its
responses can be saved, and a migration, because the database checks the kind.
"""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from app.papers.sources import arxiv, feed, huggingface, jsonl, oai
from app.papers.sources.http_client import Client
from app.papers.sources.state import FetchedPage, SourceState
from app.types import ParseResult, SourceKind


@dataclass(frozen=True, slots=True)
class PolledType:
    """The label of a kind of source, how its sources are polled, and their options."""

    label: str
    fetch: Callable[[Client, SourceState, datetime], AsyncIterator[FetchedPage]]
    every: timedelta
    options: tuple[str, ...] = ()  # names of the options that a configuration may contain
    address_label: str = ""  # label of the option that operators can change in a form; "" if there is none


@dataclass(frozen=True, slots=True)
class SourceType:
    """A kind of source: the parser of its responses and files, and how it is polled."""

    parse: Callable[[bytes | str, date | None], ParseResult] | None  # None: see `files.parse_file`
    polled: PolledType | None = None
    source_of_files: str = ""  # name of the source for files; "" if files belong to the polled source
    is_file_format: bool = False  # operators may name it as the format of a file


_CATEGORIES = "arXiv categories"
SOURCE_TYPES = {  # in the order of forms
    SourceKind.FEED: SourceType(
        feed.parse,
        PolledType("RSS or Atom feed", feed.fetch, timedelta(hours=1), ("url",), "The feed’s URL"),
        source_of_files="Saved feeds",
        is_file_format=True,
    ),
    SourceKind.ARXIV_FEED: SourceType(
        arxiv.parse_feed,
        PolledType(
            "arXiv, daily announcements",
            arxiv.fetch,
            timedelta(hours=1),  # changes once a day, but conditional requests are cheap
            ("categories",),
            _CATEGORIES,
        ),
    ),
    SourceKind.ARXIV: SourceType(
        arxiv.parse,
        PolledType(
            "arXiv, query API",
            arxiv.fetch,
            timedelta(hours=6),  # responses change once a day
            ("categories", "query"),
            _CATEGORIES,
        ),
        source_of_files="Saved arXiv responses",
        is_file_format=True,  # includes ARXIV_FEED
    ),
    SourceKind.ARXIV_OAI: SourceType(
        oai.parse,
        PolledType(
            "All of arXiv, with its back catalog",
            oai.fetch,
            timedelta(hours=6),
            ("set", "from", "until"),
            "Set (leave empty for all of arXiv)",
        ),
    ),
    SourceKind.HUGGINGFACE: SourceType(
        huggingface.parse,
        PolledType(
            "Hugging Face Daily Papers",
            huggingface.fetch,
            timedelta(hours=1),  # a third of the day's papers are added after the morning
        ),
        is_file_format=True,
    ),
    SourceKind.PAGE: SourceType(None, source_of_files="Saved search pages", is_file_format=True),
    SourceKind.JSONL: SourceType(jsonl.parse, source_of_files="Saved rows", is_file_format=True),
}
POLLED = {kind: source_type.polled for kind, source_type in SOURCE_TYPES.items() if source_type.polled}


def parse(kind: SourceKind, text: bytes | str, day: date | None) -> ParseResult:
    """PURE. Parse a response from a source of this kind.

    `day` is the listing day of papers for which the response does not name one. Raise UnreadableResponse if
    the response cannot be parsed. Search pages are parsed by `files.parse_file` only.
    """
    parser = SOURCE_TYPES[kind].parse
    if parser is None:
        raise ValueError(f"a file of the kind “{kind}” must be parsed with `files.parse_file`")
    return parser(text, day)


def fetch(client: Client, state: SourceState, now: datetime) -> AsyncIterator[FetchedPage]:
    """Yield the new pages from a source. The caller must store each page before it requests the next one."""
    return POLLED[state.kind].fetch(client, state, now)
