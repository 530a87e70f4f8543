"""The one clock: read at the edges only, and passed inwards as `now`."""

from __future__ import annotations

from datetime import UTC, datetime


def utcnow() -> datetime:
    """The present moment, aware, in UTC."""
    return datetime.now(UTC)
