"""What the evaluation over real reading lists asks for: a ranker, and a judge of titles.

python ../shared/eval/relevance.py keywords --ranker benchmarks.relevance:ranker
python ../shared/eval/relevance.py titles --same benchmarks.relevance:same_title
"""

from __future__ import annotations

from typing import Any

from app import compose, dedupe, match
from app.records import PaperView


def view(number: int, paper: dict[str, Any]) -> PaperView:
    """A paper of the evaluation as the product sees it."""
    return PaperView(number, paper["title"], paper["abstract"], tuple(paper["authors"]))


class Ranker:
    """The product's own matching over an archive that is all that was listed before."""

    def __init__(self, history: list[dict[str, Any]]) -> None:
        self._statistics = match.Statistics.of((p["title"], p["abstract"]) for p in history)

    def score(
        self, interests: list[str], papers: list[dict[str, Any]], likes: list[dict[str, Any]]
    ) -> list[float]:
        index = match.Index([view(number, paper) for number, paper in enumerate(papers)], self._statistics)
        found = [index.match(match.parse(text)) for text in interests]
        return [
            compose.combined([(hits[number].relevance, 1.0) for hits in found if number in hits])
            for number in range(len(papers))
        ]


def ranker(history: list[dict[str, Any]]) -> Ranker:
    """The factory that the evaluation calls once a fold."""
    return Ranker(history)


def same_title(a: str, b: str) -> bool:
    """Whether two titles are one paper's, for the `titles` part of the evaluation."""
    return dedupe.same_title(a, b)
