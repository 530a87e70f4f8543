"""PURE. Votes over time → how a paper is doing, as a score and in words.

No measured score ranks the papers of a day better than their votes. So the score is the percentile of a
paper's upvotes among the papers first listed on the same day; momentum appears in the words only.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from datetime import date, datetime, timedelta

from app.types import PaperView, Trend, VoteSample

# The score of a paper without votes from any source: the mean of any day. In tests that hid real votes, this
# gave such papers their share of places and the best first ten (benchmarks/trend.py).
UNVOTED = 0.5
MOMENTUM_WINDOW = timedelta(days=3)
MIN_GAIN = 5  # votes: less is noise
TOP_SHARE = 0.1
MIN_DAY_SIZE = 10  # papers: on a smaller day, "top 10 %" means nothing


def trends(papers: Sequence[PaperView], now: datetime) -> dict[int, Trend]:
    """Return the trend of each paper at `now`, by id."""
    votes_of_day: dict[date | None, list[int]] = defaultdict(list)
    for paper in papers:
        if paper.votes:
            votes_of_day[paper.first_listed_on].append(paper.upvotes)
    ranked = {day: sorted(votes) for day, votes in votes_of_day.items()}
    return {paper.id: _trend(paper, ranked.get(paper.first_listed_on, []), now) for paper in papers}


def _trend(paper: PaperView, votes_of_day: Sequence[int], now: datetime) -> Trend:
    if not paper.votes:
        return Trend(UNVOTED, "")
    return Trend(percentile(paper.upvotes, votes_of_day), _words(paper, votes_of_day, now))


def percentile(votes: int, votes_of_day: Sequence[int]) -> float:
    """Return the share in 0…1 of a day's papers with fewer votes; ties count half.

    `votes_of_day` is sorted.
    """
    below, through = bisect_left(votes_of_day, votes), bisect_right(votes_of_day, votes)
    return (below + through) / 2 / len(votes_of_day) if votes_of_day else 0.0


def _words(paper: PaperView, votes_of_day: Sequence[int], now: datetime) -> str:
    if not paper.upvotes:
        return ""
    words = [_momentum(paper, now) or ("1 vote" if paper.upvotes == 1 else f"{paper.upvotes} votes")]
    rank = len(votes_of_day) - bisect_left(votes_of_day, paper.upvotes)  # of ties, the lowest rank
    if len(votes_of_day) >= MIN_DAY_SIZE and rank <= TOP_SHARE * len(votes_of_day):
        words.append("among the top 10 % of its day")
    return ", ".join(words)


def _momentum(paper: PaperView, now: datetime) -> str:
    """Return the votes gained since an earlier day, in words, or "" if there are too few."""
    earlier = _earlier_sample(paper.votes, now)
    if earlier is None or paper.upvotes - earlier.upvotes < MIN_GAIN:
        return ""
    return f"{earlier.upvotes} → {paper.upvotes} votes {_since(earlier.at, now)}"


def _earlier_sample(votes: Sequence[VoteSample], now: datetime) -> VoteSample | None:
    """Return the newest sample of an earlier day within the window, so that "since" is true and recent."""
    earlier = [
        sample for sample in votes if sample.at.date() < now.date() and now - sample.at <= MOMENTUM_WINDOW
    ]
    return earlier[-1] if earlier else None


def _since(then: datetime, now: datetime) -> str:
    days = (now.date() - then.date()).days
    return "since yesterday" if days == 1 else f"in {days} days"
