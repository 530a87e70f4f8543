"""The one clock: read at the edges only, and passed inwards as `now`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_ahead = timedelta()


def utcnow() -> datetime:
    """The present moment, aware, in UTC."""
    return datetime.now(UTC) + _ahead


def travel(to: datetime) -> None:
    """From here on it is `to`, and time runs on from there: the demo lives in the days of its sample."""
    global _ahead
    _ahead = to - datetime.now(UTC)
