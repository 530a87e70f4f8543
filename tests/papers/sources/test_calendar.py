"""Test the arXiv calendar, which explains days without papers."""

from datetime import date, timedelta

import pytest

from app.papers.sources import calendar
from app.types import SourceKind


def test_weekends_and_holidays() -> None:
    """The reason is part of a sentence that readers and operators see."""
    saturday, friday, holiday = date(2026, 11, 21), date(2026, 11, 20), date(2026, 11, 27)
    assert "Saturday" in calendar.no_papers_reason(SourceKind.HUGGINGFACE, saturday)
    assert "Saturday" in calendar.no_papers_reason(SourceKind.ARXIV_FEED, saturday)
    assert calendar.no_papers_reason(SourceKind.ARXIV, holiday) == (
        "arXiv announces no papers on 27 November because of Thanksgiving"
    )
    assert calendar.no_papers_reason(SourceKind.HUGGINGFACE, holiday) == ""
    assert calendar.no_papers_reason(SourceKind.ARXIV, friday) == ""
    assert calendar.no_papers_reason(SourceKind.FEED, saturday) == ""


@pytest.mark.parametrize(
    ("holiday", "without_papers"),
    [
        (date(2024, 12, 25), date(2024, 12, 26)),
        (date(2025, 1, 1), date(2025, 1, 2)),
        (date(2025, 1, 20), date(2025, 1, 21)),  # the third Monday
        (date(2025, 6, 19), date(2025, 6, 20)),
        (date(2025, 7, 4), date(2025, 7, 7)),  # a Friday
        (date(2025, 9, 1), date(2025, 9, 2)),  # the first Monday
        (date(2025, 11, 27), date(2025, 11, 28)),  # the fourth Thursday
        (date(2026, 7, 4), date(2026, 7, 6)),  # a Saturday, observed on Friday
        (date(2027, 7, 4), date(2027, 7, 6)),  # a Sunday, observed on Monday
        (date(2028, 1, 1), date(2028, 1, 3)),  # observed in the year before
    ],
)
def test_papers_are_missing_on_the_weekday_after_a_holiday(holiday: date, without_papers: date) -> None:
    """A paper that is submitted on a weekday is listed on the next one. On a holiday, there is no deadline.

    The days up to 2026 are those for which arXiv published that it announces nothing in the evening.
    """
    weekdays = [
        day for n in range(-3, 5) if (day := holiday + timedelta(days=n)).weekday() < calendar.SATURDAY
    ]
    assert [day for day in weekdays if not calendar.announces(day)] == [without_papers]


@pytest.mark.parametrize("day", [date(2025, 5, 27), date(2026, 2, 17), date(2026, 5, 26), date(2026, 10, 13)])
def test_holidays_that_arxiv_does_not_observe(day: date) -> None:
    """arXiv announces papers on Memorial Day, Presidents' Day and Columbus Day."""
    assert calendar.announces(day)


def test_winter_break() -> None:
    """arXiv announces nothing on the evenings of 29 and 31 December 2026, nor on holidays."""
    days = [date(2026, 12, 21) + timedelta(days=n) for n in range(21)]
    weekdays = [day for day in days if day.weekday() < calendar.SATURDAY]
    assert [day.day for day in weekdays if not calendar.announces(day)] == [28, 30, 1, 4]


def test_previous_announcement() -> None:
    """Weekends and holidays are skipped."""
    assert calendar.announcement_before(date(2026, 11, 23)) == date(2026, 11, 20)
    assert calendar.announcement_before(date(2026, 11, 30)) == date(2026, 11, 26)
