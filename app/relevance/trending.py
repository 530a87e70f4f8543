"""PURE. Votes over time → how strongly a paper trends, as a score and in words.

No score that we measured ranks the papers from one day better than their votes. So the score is the
percentile of a paper's upvotes among the papers first listed that day. Momentum affects only the words.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from datetime import date, datetime, timedelta

from app.types import PaperView, Trend

# The score of papers whose sources have no votes: the mean of any day. In tests that hid real votes, this
# gave such papers a fair share of places and produced the best top ten (benchmarks/trend.py).
UNVOTED = 0.5
MOMENTUM_WINDOW = timedelta(days=3)
MIN_GAIN = 5  # votes; smaller gains are noise
TOP_SHARE = 0.1
MIN_DAY_SIZE = 10  # papers; on a day with fewer, "top 10 %" means nothing


def trends(papers: Sequence[PaperView], now: datetime) -> dict[int, Trend]:
    """Return the trend of each paper at `now`, by id."""
    votes_of_day: dict[date | None, list[int]] = defaultdict(list)
    for paper in papers:
        if paper.votes:
            votes_of_day[paper.first_listed_on].append(paper.upvotes)
    for votes in votes_of_day.values():
        votes.sort()
    scored = dict.fromkeys((paper.id for paper in papers), Trend(UNVOTED, ""))
    for paper in papers:
        if paper.votes:
            votes = votes_of_day[paper.first_listed_on]
            scored[paper.id] = Trend(percentile(paper.upvotes, votes), *_words(paper, votes, now))
    return scored


def percentile(votes: int, votes_of_day: Sequence[int]) -> float:
    """Return the share in 0…1 of a day's papers that have fewer votes. Ties count half.

    `votes_of_day` must be sorted.
    """
    below, through = bisect_left(votes_of_day, votes), bisect_right(votes_of_day, votes)
    return (below + through) / 2 / len(votes_of_day) if votes_of_day else 0.0


def is_well_voted(trend: Trend) -> bool:
    """Return True if a paper has votes, and more of them than most papers from its day."""
    return bool(trend.words) and trend.score > 0.5


def _words(paper: PaperView, votes_of_day: Sequence[int], now: datetime) -> tuple[str, str]:
    """Return a paper's votes in words, with its recent gain if that is large and its rank if it is high.

    Also return the gain and the rank alone.
    """
    if not paper.upvotes:
        return "", ""
    notes = []
    words = "1 vote" if paper.upvotes == 1 else f"{paper.upvotes} votes"
    earlier = [
        sample
        for sample in paper.votes
        if sample.at.date() < now.date() and now - sample.at <= MOMENTUM_WINDOW
    ]
    if earlier and (gain := paper.upvotes - earlier[-1].upvotes) >= MIN_GAIN:
        days = (now.date() - earlier[-1].at.date()).days
        since = "since yesterday" if days == 1 else f"in {days} days"
        words = f"{earlier[-1].upvotes} → {paper.upvotes} votes {since}"
        notes.append(f"+{gain} {since}")
    rank = len(votes_of_day) - bisect_left(votes_of_day, paper.upvotes)  # tied papers share the lowest rank
    if len(votes_of_day) >= MIN_DAY_SIZE and rank <= TOP_SHARE * len(votes_of_day):
        words += ", among the top 10 % of its day"
        notes.append("top 10 % of its day")
    return words, ", ".join(notes)
