"""PURE. The chart of votes over time on a paper's page."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.text.in_words import count_of
from app.types import VoteSample

MIN_CHART_POINTS = 5  # a chart with fewer points adds nothing to the description
WIDTH, HEIGHT = 240, 60  # of a chart, in SVG units


@dataclass(frozen=True, slots=True)
class VoteChart:
    """A line of votes over time in a box of WIDTH × HEIGHT, and a description of it in words."""

    points: tuple[tuple[float, float], ...]
    description: str
    width: int = WIDTH
    height: int = HEIGHT


def vote_chart(votes: Sequence[VoteSample]) -> VoteChart | None:
    """Return a chart from the first to the last sample, or None if there are fewer than two samples.

    If there are fewer than MIN_CHART_POINTS samples, the chart has a description but no points.
    """
    if len(votes) < 2:
        return None
    first, last = votes[0], votes[-1]
    span, most = last.at - first.at, max(point.upvotes for point in votes) or 1
    drawn = votes if len(votes) >= MIN_CHART_POINTS else ()
    points = (
        (round(WIDTH * ((point.at - first.at) / span), 1), round(HEIGHT * (1 - point.upvotes / most), 1))
        for point in drawn
    )
    start = count_of(first.upvotes, "vote")
    if first.at.date() != last.at.date():
        start += f" on {first.at.day} {first.at:%B %Y}"
    description = f"From {start} to {last.upvotes} on {last.at.day} {last.at:%B %Y}."
    return VoteChart(tuple(points), description)
