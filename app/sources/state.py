"""PURE. What the fetching half of a source is told, and what it hands back piece by piece."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

from app.records import Parsed, SourceKind


@dataclass(frozen=True, slots=True)
class State:
    """A source as its row in the database has it, and what the settings say about it."""

    kind: SourceKind
    backfill_days: int
    config: dict[str, Any] = field(default_factory=dict)
    etag: str | None = None
    last_modified: str | None = None
    watermark: date | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece that was read. When it is stored, `watermark` is the last day read to its end."""

    parsed: Parsed
    watermark: date | None = None
    etag: str | None = None
    last_modified: str | None = None


def days_to_read(state: State, today: date) -> list[date]:
    """From the day after the watermark, or as far back as a new source reaches, to today.

    Yesterday and today are always among them.
    """
    start = (
        state.watermark + timedelta(days=1)
        if state.watermark
        else today - timedelta(days=state.backfill_days)
    )
    start = min(start, today - timedelta(days=1))
    return [start + timedelta(days=n) for n in range((today - start).days + 1)]
