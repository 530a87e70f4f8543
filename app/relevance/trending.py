"""PURE. Votes over time and now → how a paper is doing, as a score and in words.

Nothing measured ranks a day better than the votes themselves, so the score is the percentile of a
paper's upvotes among the papers first listed on the same day; momentum is told in words.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from datetime import date, datetime, timedelta

from app.types import PaperView, Trend, VoteSample

# A paper that nobody could vote for stands where the mean of any day stands: hiding real votes showed that
# this gives such papers their share of places, and the best first ten (benchmarks/trend.py).
UNVOTED = 0.5
MOMENTUM_WINDOW = timedelta(days=3)
MIN_GAIN = 5  # votes: less is noise
TOP_SHARE = 0.1
MIN_DAY = 10  # papers: on a smaller day, "top 10 %" says nothing


def trends(papers: Sequence[PaperView], now: datetime) -> dict[int, Trend]:
    """How each paper is doing at `now`, by its id."""
    days: dict[date | None, list[int]] = defaultdict(list)
    for paper in papers:
        if paper.votes:
            days[paper.first_listed_on].append(paper.upvotes)
    ranked = {day: sorted(votes) for day, votes in days.items()}
    return {paper.id: _trend(paper, ranked.get(paper.first_listed_on, []), now) for paper in papers}


def _trend(paper: PaperView, day: Sequence[int], now: datetime) -> Trend:
    if not paper.votes:
        return Trend(UNVOTED, "")
    return Trend(percentile(paper.upvotes, day), _words(paper, day, now))


def percentile(votes: int, day: Sequence[int]) -> float:
    """The share of a day's papers (`day` sorted) that have fewer votes; ties count half. In 0…1."""
    below, through = bisect_left(day, votes), bisect_right(day, votes)
    return (below + through) / 2 / len(day) if day else 0.0


def _words(paper: PaperView, day: Sequence[int], now: datetime) -> str:
    if not paper.upvotes:
        return ""
    words = [_momentum(paper, now) or ("1 vote" if paper.upvotes == 1 else f"{paper.upvotes} votes")]
    as_high = len(day) - bisect_left(day, paper.upvotes)  # the paper itself, too
    if len(day) >= MIN_DAY and as_high <= TOP_SHARE * len(day):
        words.append("among the top 10 % of its day")
    return ", ".join(words)


def _momentum(paper: PaperView, now: datetime) -> str:
    """What the paper gained lately, told from the figure of the last earlier day; else nothing."""
    then = _before(paper.votes, now)
    if then is None or paper.upvotes - then.upvotes < MIN_GAIN:
        return ""
    return f"{then.upvotes} → {paper.upvotes} votes {_since(then.at, now)}"


def _before(votes: Sequence[VoteSample], now: datetime) -> VoteSample | None:
    """The newest figure from an earlier day within the window, so that "since" is true and fresh."""
    earlier = [point for point in votes if point.at.date() < now.date() and now - point.at <= MOMENTUM_WINDOW]
    return earlier[-1] if earlier else None


def _since(then: datetime, now: datetime) -> str:
    days = (now.date() - then.date()).days
    return "since yesterday" if days == 1 else f"in {days} days"
