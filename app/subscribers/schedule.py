"""PURE. Who is due, and when next, in their own time zone.

A reader gets at most one digest a local day, whatever clocks do: a local hour that the spring change
skips is served at the first moment after the gap, one that the autumn change repeats is served the first
time round.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

from app.types import Cadence

WEEKEND = (5, 6)
_LONGEST_GAP = timedelta(days=8)


def valid_zone(name: str) -> bool:
    """Whether this is an IANA zone that a reader may live in."""
    return name in _zones()


def next_due(cadence: Cadence, weekday: int, hour: int, zone: str, after: datetime) -> datetime:
    """The first moment strictly after `after` at which this reader's digest is due, in UTC.

    `weekday` counts from Monday, 0, and matters to the weekly cadence alone; `hour` is local.
    """
    local_zone = ZoneInfo(zone)
    day = after.astimezone(local_zone).date() - timedelta(days=1)
    while True:
        due = _local_moment(day, hour, local_zone)
        if due > after and _falls_on(cadence, weekday, day):
            return due
        day += timedelta(days=1)


def last_due(cadence: Cadence, weekday: int, hour: int, zone: str, due: datetime, now: datetime) -> datetime:
    """The newest due moment up to `now`, for a reader who has been due since `due`.

    After an outage of days a reader gets one digest, for the newest edition; it holds what was missed.
    """
    due = max(due, now - _LONGEST_GAP)
    while (following := next_due(cadence, weekday, hour, zone, due)) <= now:
        due = following
    return due


def due_on(cadence: Cadence, weekday: int, hour: int, zone: str, day: date) -> datetime | None:
    """Return when the digest of this local day is due, in UTC; None where the cadence leaves the day out."""
    if not _falls_on(cadence, weekday, day):
        return None
    due = _local_moment(day, hour, ZoneInfo(zone))
    return due if edition(zone, due) == day.isoformat() else None  # a zone may skip a whole day


def edition(zone: str, at: datetime) -> str:
    """The name of the edition due at `at`: the reader's local day. One reader gets it once."""
    return at.astimezone(ZoneInfo(zone)).date().isoformat()


def _falls_on(cadence: Cadence, weekday: int, day: date) -> bool:
    match cadence:
        case Cadence.DAILY:
            return True
        case Cadence.WEEKDAYS:
            return day.weekday() not in WEEKEND
        case Cadence.WEEKLY:
            return day.weekday() == weekday


def _local_moment(day: date, hour: int, zone: ZoneInfo) -> datetime:
    # fold=0 takes the first of two 02:00s; for a skipped one, going by UTC and back lands after the gap.
    return datetime.combine(day, time(hour), tzinfo=zone).astimezone(UTC)


@lru_cache(maxsize=1)
def _zones() -> frozenset[str]:
    # "localtime" and the like are this machine's, not a reader's.
    return frozenset(name for name in available_timezones() if "/" in name or name == "UTC")
