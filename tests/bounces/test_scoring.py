"""When soft bounces are enough."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.bounces import scoring
from tests.conftest import NOW


@pytest.mark.parametrize(
    ("every", "times", "enough"),
    [(1, 7, False), (1, 8, True), (7, 5, False), (7, 6, True), (30, 100, False)],
    ids=["a week of days", "and a day", "five weeks", "six weeks", "once a month for years"],
)
def test_a_daily_and_a_weekly_reader_are_given_up_in_time(every: int, times: int, enough: bool) -> None:
    """Neither after one bad day, nor never; what comes back once a month is a bad day each time."""
    bounces = [NOW - timedelta(days=every * n) for n in range(times)]
    assert scoring.exceeds_threshold(bounces, NOW) is enough


def test_one_day_is_never_enough() -> None:
    """However many mails came back on it."""
    assert not scoring.exceeds_threshold([NOW] * 1000, NOW)
    assert not scoring.exceeds_threshold([], NOW)


def test_a_bounce_fades_by_half_in_a_half_life() -> None:
    """And one of tomorrow, by a clock that is wrong, counts as one of today."""
    assert scoring.score([NOW, NOW - scoring.HALF_LIFE, NOW + timedelta(days=1)], NOW) == 2.5


@given(st.lists(st.integers(0, 10_000), max_size=50), st.integers(0, 10_000))
def test_another_bounce_never_makes_it_less(days: list[int], another: int) -> None:
    """The score only fades with time."""
    moments = [NOW - timedelta(days=each) for each in days]
    more = scoring.score([*moments, NOW - timedelta(days=another)], NOW)
    assert more >= scoring.score(moments, NOW) >= scoring.score(moments, NOW + timedelta(days=1))
