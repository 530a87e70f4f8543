"""PURE. Compute when a subscriber's digests are due, in their time zone.

A subscriber gets one digest on each local day of the cadence. If a clock change skips the local hour, the
digest is due at the first moment after the gap, or at the last hour before it if the day ends in the gap. If
the hour occurs twice, the digest is due at its first occurrence.
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
    day = after.astimezone(local_zone).date()
    while True:
        due = _due_moment(cadence, weekday, hour, local_zone, day)
        if due and due > after:
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
    return _due_moment(cadence, weekday, hour, ZoneInfo(zone), day)


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


def _due_moment(cadence: Cadence, weekday: int, hour: int, zone: ZoneInfo, day: date) -> datetime | None:
    """Return the UTC time at which a digest is due on a local day, or None if no digest is due then.

    The latter is also the case if the zone skips the whole day.
    """
    if _falls_on(cadence, weekday, day):
        for local_hour in range(hour, -1, -1):
            # fold=0 selects the first of two 02:00s. In UTC, a skipped 02:00 is the moment after the gap.
            due = datetime.combine(day, time(local_hour), tzinfo=zone).astimezone(UTC)
            if due.astimezone(zone).date() == day:
                return due
    return None
