"""PURE. Score how strongly papers trend, from their votes over time. `trend_notes` describes the trend.

None of the scores that we measured ranks a day's papers better than their votes do. So the score is the
percentile of a paper's upvotes among the papers first listed that day. Recent gains affect only the note.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from datetime import date, datetime

from app.relevance import trend_notes
from app.types import PaperView, Trend

# The score of papers whose sources have no votes: the mean score of a day. In tests that hid real votes, this
# gave such papers a fair share of places and produced the best top ten (benchmarks/trend.py).
UNVOTED = 0.5


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
            scored[paper.id] = Trend(
                percentile(paper.upvotes, votes), *trend_notes.describe(paper, votes, now)
            )
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
