"""PURE. Compute when a subscriber's digests are due, in their time zone.

A subscriber gets at most one digest per local day. If a clock change skips the local hour, the digest is due
at the first moment after the gap; if the hour occurs twice, the digest is due at its first occurrence.
"""

from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from app.types import Cadence

WEEKEND = (5, 6)
_LONGEST_GAP = timedelta(days=8)


def next_due(cadence: Cadence, weekday: int, hour: int, zone: str, after: datetime) -> datetime:
    """Return the first time strictly after `after` at which a digest is due, in UTC.

    `weekday` (0 is Monday) is used only by the weekly cadence. `hour` is local.
    """
    local_zone = ZoneInfo(zone)
    day = after.astimezone(local_zone).date() - timedelta(days=1)
    while True:
        due = _local_moment(day, hour, local_zone)
        if due > after and _falls_on(cadence, weekday, day):
            return due
        day += timedelta(days=1)


def next_edition_due(cadence: Cadence, weekday: int, hour: int, zone: str, after: datetime) -> datetime:
    """Return the first time on a later local day than `after` at which a digest is due, in UTC."""
    due = next_due(cadence, weekday, hour, zone, after)
    same_day = edition(zone, due) == edition(zone, after)
    return next_due(cadence, weekday, hour, zone, due) if same_day else due


def last_due(cadence: Cadence, weekday: int, hour: int, zone: str, due: datetime, now: datetime) -> datetime:
    """Return the latest due time up to `now` for a subscriber who has been due since `due`.

    After an outage of several days, a subscriber gets one digest: for the latest edition, with papers from
    all of these days.
    """
    due = max(due, now - _LONGEST_GAP)
    while (following := next_due(cadence, weekday, hour, zone, due)) <= now:
        due = following
    return due


def due_on(cadence: Cadence, weekday: int, hour: int, zone: str, day: date) -> datetime | None:
    """Return the UTC time at which the digest for a local day is due, or None if no digest is due then."""
    for scheduled in (day - timedelta(days=1), day):  # a clock change may move an hour past midnight
        due = _local_moment(scheduled, hour, ZoneInfo(zone))
        if _falls_on(cadence, weekday, scheduled) and edition(zone, due) == day.isoformat():
            return due
    return None  # also if the zone skips the whole day


def edition(zone: str, at: datetime) -> str:
    """Return the name of the edition due at `at`: the local day, as YYYY-MM-DD."""
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
    # fold=0 selects the first of two 02:00s. In UTC, a skipped 02:00 is the first moment after the gap.
    return datetime.combine(day, time(hour), tzinfo=zone).astimezone(UTC)
