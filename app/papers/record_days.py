"""PURE. Correct the days in records: days in the future, and days on which a feed was only read again."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import date, datetime, timedelta

from app.types import PaperRecord


def latest_listing_day(now: datetime) -> date:
    """Return the latest day that is believed: tomorrow, because it may be tomorrow where the source is."""
    return now.date() + timedelta(days=1)


def correct(
    record: PaperRecord,
    now: datetime,
    earlier_days: Callable[[PaperRecord], Iterable[date]],
    *,
    is_polled_feed: bool,
) -> PaperRecord:
    """Return a record without days later than tomorrow, and with one listing day per paper of a polled feed.

    Journals, for example, name the month of an issue, and some feeds name no day. Instead, use the first of
    the `earlier_days` on which the source listed the paper, or today if the paper is new to the source. Later
    polls of a feed keep this day, because a feed names one day per entry.
    """
    latest = latest_listing_day(now)
    day, as_of = record.listed_on, record.as_of
    if day and (is_polled_feed or day > latest):
        days = [day, *earlier_days(record)]
        day = min((day for day in days if day <= latest), default=now.date())
    if as_of and as_of > latest:
        as_of = day or now.date()
    is_unchanged = (day, as_of) == (record.listed_on, record.as_of)
    return record if is_unchanged else replace(record, listed_on=day, as_of=as_of)
