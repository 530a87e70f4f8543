"""PURE. The progress of a source between polls, and the pages that fetching it yields."""

from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

from app.types import ParseResult, SourceKind


@dataclass(frozen=True, slots=True)
class SourceState:
    """The configuration and progress of a source, from its row and the settings."""

    kind: SourceKind
    backfill_days: int
    config: dict[str, Any] = field(default_factory=dict)
    etag: str | None = None
    last_modified: str | None = None
    watermark: date | None = None
    resumption_token: str | None = None


@dataclass(frozen=True, slots=True)
class FetchedPage:
    """A fetched page. Once it is stored, all days up to `watermark` have been read completely.

    `resumption_token` leads to the next page. "" means that there is none, None that the stored token stays.
    """

    parsed: ParseResult
    watermark: date | None = None
    etag: str | None = None
    last_modified: str | None = None
    resumption_token: str | None = None


def unread_days(state: SourceState, today: date) -> list[date]:
    """Return the days before today that have not been read completely.

    For a new source, these are the last `backfill_days` days.
    """
    oldest = today - timedelta(days=state.backfill_days)
    start = state.watermark + timedelta(days=1) if state.watermark else oldest
    return [start + timedelta(days=n) for n in range((today - start).days)]


def days_to_fetch(state: SourceState, today: date) -> list[date]:
    """Return the unread days, and yesterday and today in any case, because their listings still change."""
    return sorted({*unread_days(state, today), today - timedelta(days=1), today})
