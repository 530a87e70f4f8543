"""PURE. What the fetching half of a source is told, and what it hands back piece by piece."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

from app.types import ParseResult, SourceKind


@dataclass(frozen=True, slots=True)
class SourceState:
    """A source as its row in the database has it, and what the settings say about it."""

    kind: SourceKind
    backfill_days: int
    config: dict[str, Any] = field(default_factory=dict)
    etag: str | None = None
    last_modified: str | None = None
    watermark: date | None = None


@dataclass(frozen=True, slots=True)
class FetchedPage:
    """A piece that was read. When it is stored, `watermark` is the last day read to its end."""

    parsed: ParseResult
    watermark: date | None = None
    etag: str | None = None
    last_modified: str | None = None


def unread_days(state: SourceState, today: date) -> list[date]:
    """The days before today that were not read to their end: a new source reaches as far back as is set."""
    oldest = today - timedelta(days=state.backfill_days)
    start = state.watermark + timedelta(days=1) if state.watermark else oldest
    return [start + timedelta(days=n) for n in range((today - start).days)]


def days_to_fetch(state: SourceState, today: date) -> list[date]:
    """The same, with yesterday and today among them in any case: they still change."""
    return sorted({*unread_days(state, today), today - timedelta(days=1), today})
