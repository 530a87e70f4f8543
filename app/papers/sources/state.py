"""PURE. The input of fetching from a source, and the pages that it yields."""

from __future__ import annotations

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


@dataclass(frozen=True, slots=True)
class FetchedPage:
    """A page that was fetched. Once it is stored, `watermark` is the last day that was read completely."""

    parsed: ParseResult
    watermark: date | None = None
    etag: str | None = None
    last_modified: str | None = None


def unread_days(state: SourceState, today: date) -> list[date]:
    """Return the days before today that were not read completely; for a new source, `backfill_days` days."""
    oldest = today - timedelta(days=state.backfill_days)
    start = state.watermark + timedelta(days=1) if state.watermark else oldest
    return [start + timedelta(days=n) for n in range((today - start).days)]


def days_to_fetch(state: SourceState, today: date) -> list[date]:
    """Return the unread days, and always yesterday and today, which still change."""
    return sorted({*unread_days(state, today), today - timedelta(days=1), today})
