"""Test trends: the percentile of the day, and momentum in words."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta

import pytest

from app.relevance import trending
from app.types import PaperView, Trend, VoteSample

DAY = date(2026, 11, 19)


def paper_with_votes(number: int, now: datetime, *series: tuple[int, int]) -> PaperView:
    """Return a paper with vote samples; `series` is (days ago, upvotes), oldest first."""
    votes = tuple(VoteSample(now - timedelta(days=ago), upvotes) for ago, upvotes in series)
    return PaperView(number, f"Paper {number}", first_listed_on=DAY, upvotes=series[-1][1], votes=votes)


def test_score_is_the_percentile_of_the_day(now: datetime) -> None:
    """A paper is compared with those of the same day only."""
    papers = [paper_with_votes(n, now, (0, votes)) for n, votes in enumerate([1, 5, 5, 200])]
    other_day = PaperView(9, "Loud day", first_listed_on=date(2026, 11, 18), upvotes=3, votes=papers[0].votes)
    scores = trending.trends([*papers, other_day], now)
    assert [scores[n].score for n in range(4)] == [0.125, 0.5, 0.5, 0.875]
    assert scores[9].score == 0.5


@pytest.mark.parametrize(
    ("series", "words", "note"),
    [
        ([(1, 3), (0, 140)], "3 → 140 votes since yesterday", "+137 since yesterday"),
        ([(3, 3), (2, 40), (0, 140)], "40 → 140 votes in 2 days", "+100 in 2 days"),
        ([(5, 3), (0, 140)], "140 votes", ""),  # too long ago to be momentum
        ([(1, 138), (0, 140)], "140 votes", ""),  # too few to mention
        ([(0, 1)], "1 vote", ""),
        ([(0, 0)], "", ""),
    ],
)
def test_momentum_text(now: datetime, series: list[tuple[int, int]], words: str, note: str) -> None:
    """The words name a gain since an earlier day that is recent and more than noise."""
    trend = trending.trends([paper_with_votes(1, now, *series)], now)[1]
    assert (trend.words, trend.note) == (words, note)


@pytest.mark.parametrize("time", ["19T23:50", "20T00:10", "20T00:50", "20T02:50", "20T07:50", "20T18:00"])
@pytest.mark.parametrize("first", ["17T01:50", "19T11:50"])
def test_gain_covers_a_day_at_every_hour(time: str, first: str) -> None:
    """The paper gains six votes an hour. If it was first listed yesterday, all of them count."""
    now, listed = (datetime.fromisoformat(f"2026-11-{each}Z") for each in (time, first))
    hours = (now - listed) // timedelta(hours=1)
    votes = tuple(VoteSample(listed + timedelta(hours=hour), 6 * hour) for hour in range(hours + 1))
    [trend] = trending.trends([PaperView(1, "Paper", upvotes=6 * hours, votes=votes)], now).values()
    listed_today = listed.date() == now.date()
    assert trend.note == ("" if listed_today else f"+{6 * min(hours, 24)} since yesterday")


@pytest.mark.parametrize(
    ("upvotes", "words", "note"),
    [(130, "130 votes", ""), (142, "130 → 142 votes since yesterday", "+12 since yesterday")],
)
def test_first_count_of_a_source_is_no_gain(now: datetime, upvotes: int, words: str, note: str) -> None:
    """A second source lists the paper today, with a hundred votes of unknown age."""
    paper = paper_with_votes(1, now, (1, 30))
    samples = (VoteSample(now - timedelta(hours=2), 130, 100), VoteSample(now, upvotes))
    trend = trending.trends([replace(paper, upvotes=upvotes, votes=(*paper.votes, *samples))], now)[1]
    assert (trend.words, trend.note) == (words, note)


def test_top_tenth_of_a_large_day_is_named(now: datetime) -> None:
    """The top tenth is named only on a day with enough papers."""
    large = [paper_with_votes(n, now, (0, n * 10)) for n in range(1, 13)]
    assert trending.trends(large, now)[12].words == "120 votes, among the top 10% of its day"
    assert trending.trends(large, now)[12].note == "top 10% of its day"
    assert trending.trends(large[-3:], now)[12].words == "120 votes"


@pytest.mark.parametrize(
    ("day", "named"),
    [
        (range(10), 1),
        (range(15), 1),  # the second of fifteen is in the top 13 %
        (range(20), 2),
        ([*range(8), 9, 9], 0),  # two of ten share the first place, so neither is in the top tenth
        ([*range(18), 19, 19], 2),
    ],
)
def test_top_tenth_with_equal_votes(now: datetime, day: Sequence[int], named: int) -> None:
    """Papers with equal votes are all in the top tenth, or none of them is."""
    papers = [paper_with_votes(n, now, (0, 10 * (1 + votes))) for n, votes in enumerate(day)]
    words = [trend.words for trend in trending.trends(papers, now).values()]
    assert sum("top 10%" in text for text in words) == named


def test_paper_without_vote_data_has_the_mean_score(now: datetime) -> None:
    """It ranks above a paper that could get votes and got none."""
    without_votes = PaperView(1, "From a feed", first_listed_on=DAY)
    voted_on = [paper_with_votes(n, now, (0, votes)) for n, votes in enumerate([0, 0, 4, 90], start=2)]
    scores = trending.trends([without_votes, *voted_on], now)
    assert scores[1] == Trend(sum(scores[n].score for n in range(2, 6)) / 4, "")
    assert scores[2].score < scores[1].score < scores[5].score
