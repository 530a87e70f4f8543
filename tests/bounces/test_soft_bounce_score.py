"""Test when soft bounces suppress an address."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.bounces import soft_bounce_score
from tests.conftest import NOW


@pytest.mark.parametrize(
    ("every", "times", "enough"),
    [(1, 7, False), (1, 8, True), (7, 5, False), (7, 6, True), (30, 100, False)],
    ids=["a week of days", "and a day", "five weeks", "six weeks", "once a month for years"],
)
def test_daily_and_weekly_readers_are_suppressed_in_time(every: int, times: int, enough: bool) -> None:
    """One bad day does not suppress, and neither does one bounce a month."""
    bounces = [NOW - timedelta(days=every * n) for n in range(times)]
    assert soft_bounce_score.exceeds_threshold(bounces, NOW) is enough


def test_one_day_is_never_enough() -> None:
    """The number of bounces on that day does not matter."""
    assert not soft_bounce_score.exceeds_threshold([NOW] * 1000, NOW)
    assert not soft_bounce_score.exceeds_threshold([], NOW)


def test_score_halves_in_a_half_life() -> None:
    """A bounce in the future, from a wrong clock, counts as one of now."""
    assert (
        soft_bounce_score.score([NOW, NOW - soft_bounce_score.HALF_LIFE, NOW + timedelta(days=1)], NOW) == 2.5
    )


@given(st.lists(st.integers(0, 10_000), max_size=50), st.integers(0, 10_000))
def test_another_bounce_never_lowers_the_score(days: list[int], another: int) -> None:
    moments = [NOW - timedelta(days=each) for each in days]
    more = soft_bounce_score.score([*moments, NOW - timedelta(days=another)], NOW)
    assert (
        more
        >= soft_bounce_score.score(moments, NOW)
        >= soft_bounce_score.score(moments, NOW + timedelta(days=1))
    )
