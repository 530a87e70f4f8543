"""Test schedules: digests are due at the local hour, once a local day, through every change of the clocks."""

from datetime import UTC, datetime, timedelta

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
