"""How well matching and recognising papers do on real reading lists, beside what anybody would try first.

    python -m benchmarks.relevance ../shared

runs the evaluation there over the product's own code and over its baselines, in one go. The evaluation
can also be run by itself: `--ranker benchmarks.relevance:ranker`, `--same benchmarks.relevance:same_title`.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from app import compose, corpus, dedupe, interest, match
from app.records import PaperView


def view(number: int, paper: dict[str, Any]) -> PaperView:
    """A paper of the evaluation as the product sees it."""
    return PaperView(number, paper["title"], paper["abstract"], tuple(paper["authors"]))


class Ranker:
    """The product's own matching over an archive that is all that was listed before."""

    def __init__(self, history: list[dict[str, Any]]) -> None:
        newest_first = sorted(history, key=lambda paper: paper["listed_on"], reverse=True)
        self._corpus = corpus.Corpus.of([(p["title"], p["abstract"]) for p in newest_first])

    def score(
        self, interests: list[str], papers: list[dict[str, Any]], likes: list[dict[str, Any]]
    ) -> list[float]:
        index = match.Index([view(number, paper) for number, paper in enumerate(papers)], self._corpus)
        found = index.match([interest.parse(text) for text in interests])
        return [
            compose.combined([(hits[number], 1.0) for hits in found if number in hits])
            for number in range(len(papers))
        ]


def ranker(history: list[dict[str, Any]]) -> Ranker:
    """The factory that the evaluation calls once a fold."""
    return Ranker(history)


def same_title(a: str, b: str) -> bool:
    """Whether two titles are one paper's, for the `titles` part of the evaluation."""
    return dedupe.same_title(a, b)


class Substring:
    """The baseline: an interest fits where its words stand as typed; more of them fit better."""

    def score(
        self, interests: list[str], papers: list[dict[str, Any]], likes: list[dict[str, Any]]
    ) -> list[float]:
        texts = [f"{paper['title']} {paper['abstract']}".lower() for paper in papers]
        return [float(sum(text.count(interest.lower()) for interest in interests)) for text in texts]


def substring(history: list[dict[str, Any]]) -> Substring:
    """The factory of the baseline, which learns nothing from history."""
    return Substring()


def same_key(a: str, b: str) -> bool:
    """The baseline: two titles are one paper's when their letters and digits are the same."""
    return dedupe.title_key(a) == dedupe.title_key(b)


def main() -> None:
    shared = Path(sys.argv[1])
    sys.path.insert(0, str(shared / "eval"))
    import relevance as evaluation  # type: ignore[import-not-found]

    here = "benchmarks.relevance"
    for heading_only in (False, True):
        for name in ("substring", "ranker"):
            print(f"\n{name}, weekly pools{', heading only' if heading_only else ''}")
            evaluation.keywords(
                Namespace(
                    data=shared / "data", ranker=f"{here}:{name}", pool="week", heading_only=heading_only
                )
            )
    for name in ("same_key", "same_title"):
        print(f"\n{name}")
        evaluation.titles(Namespace(data=shared / "data", same=f"{here}:{name}"))


if __name__ == "__main__":
    main()
