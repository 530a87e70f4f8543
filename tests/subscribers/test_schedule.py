"""Test schedules: digests are due at the local hour, once a local day, through every change of the clocks."""

from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.subscribers import schedule
from app.types import Cadence


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "weekday", "hour", "zone", "after", "due"),
    [
        (Cadence.DAILY, 0, 8, "UTC", "2026-11-20T07:59", "2026-11-20T08:00"),
        (Cadence.DAILY, 0, 8, "UTC", "2026-11-20T08:00", "2026-11-21T08:00"),
        (Cadence.DAILY, 0, 8, "Asia/Tokyo", "2026-11-20T08:00", "2026-11-20T23:00"),
        (Cadence.DAILY, 0, 8, "America/Los_Angeles", "2026-11-20T08:00", "2026-11-20T16:00"),
        (Cadence.WEEKDAYS, 0, 8, "UTC", "2026-11-20T08:00", "2026-11-23T08:00"),  # Friday → Monday
        (Cadence.WEEKLY, 2, 8, "UTC", "2026-11-20T08:00", "2026-11-25T08:00"),  # Wednesdays
        (Cadence.DAILY, 0, 0, "Pacific/Kiritimati", "2026-11-20T09:59", "2026-11-20T10:00"),
        (Cadence.DAILY, 0, 2, "Europe/Berlin", "2026-03-28T12:00", "2026-03-29T01:00"),  # 02:00 is skipped
        (Cadence.DAILY, 0, 23, "America/Nuuk", "2026-03-28T12:00", "2026-03-29T00:00"),  # 23:00 is skipped
        (Cadence.DAILY, 0, 0, "Africa/Cairo", "2026-04-23T12:00", "2026-04-23T22:00"),  # 00:00 is skipped
        (Cadence.DAILY, 0, 2, "Europe/Berlin", "2026-10-24T12:00", "2026-10-25T00:00"),  # the first 02:00
        (Cadence.DAILY, 0, 2, "Europe/Berlin", "2026-10-25T00:30", "2026-10-26T01:00"),  # not the second
    ],
)
def test_next_due_time(kind: Cadence, weekday: int, hour: int, zone: str, after: str, due: str) -> None:
    """It is the local hour on the days of the cadence, and never the same hour twice."""
    assert schedule.next_due(kind, weekday, hour, zone, utc(after)) == utc(due)


@given(
    kind=st.sampled_from(Cadence),
    weekday=st.integers(0, 6),
    hour=st.integers(0, 23),
    zone=st.sampled_from(
        ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"]
    ),
    start=st.datetimes(datetime(2026, 1, 1), datetime(2027, 12, 31), timezones=st.just(UTC)),
)
def test_no_local_day_has_two_digests(
    kind: Cadence, weekday: int, hour: int, zone: str, start: datetime
) -> None:
    """Consecutive due times have different editions and are at most a week apart."""
    due = schedule.next_due(kind, weekday, hour, zone, start)
    editions = []
    for _ in range(12):
        editions.append(schedule.edition(zone, due))
        following = schedule.next_due(kind, weekday, hour, zone, due)
        assert timedelta(0) < following - due <= timedelta(days=7, hours=1)
        due = following
    assert len(set(editions)) == len(editions)


def days_of_clock_changes(zone: ZoneInfo, year: int) -> list[date]:
    """Return the days of a year on which the zone's offset at noon differs from that of the day before."""
    days = [date(year, 1, 1) + timedelta(days=number) for number in range(365)]
    offsets = [datetime.combine(day, time(12), tzinfo=zone).utcoffset() for day in days]
    changed = [later != earlier for earlier, later in pairwise(offsets)]
    return [day for day, has_changed in zip(days[1:], changed, strict=True) if has_changed]


@pytest.mark.parametrize("kind", Cadence)
def test_each_day_has_one_digest_through_every_change_of_the_clocks(kind: Cadence) -> None:
    """In all time zones and at all hours, also where the last or first hour of a day does not exist."""
    changes = [
        (name, day) for name in available_timezones() for day in days_of_clock_changes(ZoneInfo(name), 2026)
    ]
    assert len(changes) > 300
    for zone, day in changes:
        days = [day + timedelta(days=number) for number in range(-2, 3)]
        match kind:
            case Cadence.DAILY:
                due_days = days
            case Cadence.WEEKDAYS:
                due_days = [each for each in days if each.weekday() < 5]
            case Cadence.WEEKLY:
                due_days = days[1:2]  # the day that ends when a clock changes at midnight
        begin = datetime.combine(days[0], time(), tzinfo=ZoneInfo(zone)).astimezone(UTC)
        for hour in range(24):
            schedule_of = kind, due_days[0].weekday(), hour, zone
            due, times = begin - timedelta.resolution, []
            for _ in due_days:
                due = schedule.next_due(*schedule_of, after=due)
                times.append(due)
            assert [schedule.edition(zone, due) for due in times] == [each.isoformat() for each in due_days]
            assert [schedule.due_on(*schedule_of, each) for each in due_days] == times


def test_edition_is_the_local_day() -> None:
    """The same moment is Friday in Los Angeles and Saturday in Tokyo."""
    moment = utc("2026-11-20T23:00")
    assert schedule.edition("Asia/Tokyo", moment) == "2026-11-21"
    assert schedule.edition("America/Los_Angeles", moment) == "2026-11-20"


@pytest.mark.parametrize(
    ("now", "newest"),
    [
        ("2026-11-20T08:00", "2026-11-20T08:00"),
        ("2026-11-23T07:59", "2026-11-22T08:00"),
        ("2026-11-23T08:01", "2026-11-23T08:00"),
        ("2027-11-23T08:01", "2027-11-23T08:00"),
    ],
)
def test_after_an_outage_only_the_newest_edition_is_due(now: str, newest: str) -> None:
    """Missed days give one digest."""
    since = utc("2026-11-20T08:00")
    assert schedule.last_due(Cadence.DAILY, 0, 8, "UTC", since, utc(now)) == utc(newest)
