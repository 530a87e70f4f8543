"""How well a taste learned from a few liked papers finds what its reader likes later.

    python -m benchmarks.likes ../shared

runs the evaluation there over `app.taste` and over arxiv-sanity's method, with authors and without, in one
go. The evaluation can also be run by itself: `--ranker benchmarks.likes:taste` (or another factory here).
"""

from __future__ import annotations

import sys
from argparse import Namespace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.svm import LinearSVC

from app import taste as tastes
from app.corpus import Corpus
from app.records import Opinion, PaperView

Paper = dict[str, Any]
SYSTEMS = ("sanity", "sanity_with_authors", "taste", "taste_with_authors")
OTHERS = 2_000  # newest papers of the archive that stand for what was not liked, besides the pool


class Taste:
    """The product's own."""

    def __init__(self, history: list[Paper], authors: bool) -> None:
        newest = sorted(history, key=lambda paper: paper["listed_on"], reverse=True)
        self._corpus = corpus_of(tuple((paper["title"], paper["abstract"]) for paper in newest))
        self._authors = authors
        self._pools: dict[frozenset[str], tastes.Candidates] = {}

    def score(self, interests: list[str], papers: list[Paper], likes: list[Paper]) -> list[float]:
        candidates = self._candidates(papers)
        learned = candidates and tastes.learn([self._opinion(paper) for paper in likes], candidates)
        return (learned.agreement + learned.by_authors).tolist() if learned else [0.0] * len(papers)

    def _opinion(self, paper: Paper) -> Opinion:
        authors = tuple(paper["authors"]) if self._authors else ()
        return Opinion(paper["title"], paper["abstract"], authors, True, datetime(2026, 1, 1, tzinfo=UTC))

    def _candidates(self, papers: list[Paper]) -> tastes.Candidates | None:
        key = frozenset(paper["id"] for paper in papers)
        if self._corpus.space and key not in self._pools:
            views = [
                PaperView(n, p["title"], p["abstract"], tuple(p["authors"]) if self._authors else ())
                for n, p in enumerate(papers)
            ]
            self._pools = {key: tastes.Candidates(views, self._corpus, self._corpus.space)}
        return self._pools.get(key)


@lru_cache(maxsize=4)
def corpus_of(texts: tuple[tuple[str, str], ...]) -> Corpus:
    """The model of an archive; the runs of the evaluation share it."""
    return Corpus.of(texts)


class Sanity:
    """arxiv-sanity-lite's method: TF-IDF of words and pairs, and a linear SVM of the liked against all else.

    The vocabulary is the archive's; what was not liked are its newest papers and the pool itself.
    """

    def __init__(self, history: list[Paper], authors: bool) -> None:
        self._authors = authors
        self._vectorizer = TfidfVectorizer(
            stop_words="english", ngram_range=(1, 2), max_features=20_000, sublinear_tf=True, min_df=5
        )
        newest = sorted(history, key=lambda paper: paper["listed_on"])
        rows = self._vectorizer.fit_transform([self._text(paper) for paper in newest])
        self._others = rows[-OTHERS:]

    def _text(self, paper: Paper) -> str:
        authors = " ".join(name.replace(" ", "_") for name in paper["authors"]) if self._authors else ""
        return f"{paper['title']} {paper['abstract']} {authors}"

    def score(self, interests: list[str], papers: list[Paper], likes: list[Paper]) -> list[float]:
        liked = self._vectorizer.transform([self._text(paper) for paper in likes])
        pool = self._vectorizer.transform([self._text(paper) for paper in papers])
        labels = np.r_[np.ones(liked.shape[0]), np.zeros(self._others.shape[0] + pool.shape[0])]
        svm = LinearSVC(class_weight="balanced", C=0.01, tol=1e-6, max_iter=10_000)
        svm.fit(sparse.vstack([liked, self._others, pool]), labels)
        return svm.decision_function(pool).tolist()


def taste(history: list[Paper]) -> Taste:
    """Ours, authors blanked."""
    return Taste(history, authors=False)


def taste_with_authors(history: list[Paper]) -> Taste:
    """Ours, as it is."""
    return Taste(history, authors=True)


def sanity(history: list[Paper]) -> Sanity:
    """The baseline, authors blanked."""
    return Sanity(history, authors=False)


def sanity_with_authors(history: list[Paper]) -> Sanity:
    """The baseline with author names as words."""
    return Sanity(history, authors=True)


def main() -> None:
    shared = Path(sys.argv[1])
    sys.path.insert(0, str(shared / "eval"))
    import relevance as evaluation  # type: ignore[import-not-found]

    for name in SYSTEMS:
        print(f"\n{name}")
        evaluation.likes(Namespace(data=shared / "data", ranker=f"benchmarks.likes:{name}"))


if __name__ == "__main__":
    main()
