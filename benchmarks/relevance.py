"""Evaluate matching and deduplication on real reading lists, compared with simple baselines.

    python -m benchmarks.relevance ../shared

This runs the evaluation in that folder on Paperboy's own code and on the baselines, and shows what each
cut-off would send. The evaluation can also be run by itself, with `--ranker benchmarks.relevance:ranker` (or
another factory in this module) and `--same benchmarks.relevance:same_title`.
"""

import contextlib
import io
import json
import re
import sys
from argparse import Namespace
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, time
from functools import cached_property, lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from app.digests import ranking
from app.papers import dedupe
from app.papers.title_normalization import Title, title_key
from app.relevance import query_language, trending
from app.relevance.cut_offs import FLOOR
from app.relevance.matching import MatchIndex
from app.relevance.model import RelevanceModel
from app.text.tokenizer import content_stems
from app.types import PaperView, Trend, VoteSample
from benchmarks.likes import Taste

Paper = dict[str, Any]
Factory = Callable[[list[Paper]], Any]
TRAIN_EVERY = 500  # papers after which the model is retrained; a service retrains it every night
CUT_OFFS = tuple(sorted({FLOOR, *(n / 20 for n in range(4, 20))}))


def view(number: int, paper: Paper) -> PaperView:
    """Return a paper from the evaluation as it is in the archive on the morning of its listing."""
    day = date.fromisoformat(paper["listed_on"])
    votes = VoteSample(datetime.combine(day, time(9), UTC), paper["upvotes"])
    seen = {"first_listed_on": day, "last_listed_on": day, "upvotes": paper["upvotes"], "votes": (votes,)}
    return PaperView(number, paper["title"], paper["abstract"], tuple(paper["authors"]), **seen)


@lru_cache(maxsize=16)
def learn(texts: tuple[tuple[str, str], ...]) -> RelevanceModel:
    """Return a model trained on texts, newest first. The runs of the evaluation share it."""
    return RelevanceModel.train(texts)


class Scores(NamedTuple):
    """The relevance and the strength in 0…1 of papers to a reader."""

    relevance: np.ndarray
    strength: np.ndarray


class Archive:
    """The papers listed before some time, and those that the evaluation has shown since.

    If the archive grows, the model is retrained, as in a service. Papers since the last training are
    candidates.
    """

    def __init__(self, history: Sequence[Paper], grows: bool) -> None:
        self._learned, self._grows = list(history), grows
        self._recent: dict[str, Paper] = {}

    def show(self, papers: Sequence[Paper]) -> None:
        """Add papers if any of them is new."""
        unseen = any(paper["id"] not in self._recent for paper in papers)
        if unseen and (not self._grows or len(self._recent) >= TRAIN_EVERY):
            self._learned += self._recent.values() if self._grows else ()
            self._recent = {}
        if unseen:
            self._recent |= {paper["id"]: paper for paper in papers}
            for known in ("_views", "_index", "_trends"):
                vars(self).pop(known, None)

    @cached_property
    def _views(self) -> dict[str, PaperView]:
        return {
            identity: view(number, paper) for number, (identity, paper) in enumerate(self._recent.items())
        }

    @cached_property
    def _index(self) -> MatchIndex:
        newest_first = sorted(self._learned, key=lambda paper: paper["listed_on"], reverse=True)
        corpus = learn(tuple((paper["title"], paper["abstract"]) for paper in newest_first))
        return MatchIndex(self._views.values(), corpus)

    @cached_property
    def _trends(self) -> dict[int, Trend]:
        return trending.trends([*self._views.values()], datetime(2026, 11, 21, tzinfo=UTC))

    def scores(self, interests: Sequence[str], papers: Sequence[Paper]) -> Scores:
        """Return the scores of papers for a reader with these interests. `show` must have added them."""
        rows = [self._views[paper["id"]].id for paper in papers]
        relevance, strength = np.zeros((2, len(self._views)))
        for matches in self._index.matches([query_language.parse(text) for text in interests]):
            relevance[matches.rows] += ranking.evidence_of(matches.relevance)
            strength[matches.rows] += ranking.evidence_of(matches.strength)
        return Scores(ranking.relevance_of(relevance)[rows], ranking.relevance_of(strength)[rows])

    def gains(self, papers: Sequence[Paper]) -> list[float]:
        """Return the factor by which votes raise the strength of each paper in a digest."""
        return [1 + ranking.TREND * self._trends[self._views[paper["id"]].id].score for paper in papers]


# Keyed by archive and call, so that rankers that use different scores share one match.
_matched: dict[tuple[Any, ...], Scores] = {}


class Ranker:
    """Rank papers as in a digest or, if not `in_order`, by the relevance that decides which ones are sent."""

    def __init__(self, history: Sequence[Paper], grows: bool = True, in_order: bool = True) -> None:
        self._archive, self._in_order = Archive(history, grows), in_order
        self._history = list(history)
        self._key = (len(history), grows)

    def score(self, interests: list[str], papers: list[Paper], likes: list[Paper]) -> list[float]:
        if likes and not interests:  # the evaluation asks for one or the other
            return self._taste.score(interests, papers, likes)
        self._archive.show(papers)
        key = (*self._key, *interests, *(paper["id"] for paper in papers))
        if key not in _matched:
            _matched[key] = self._archive.scores(interests, papers)
        scores = _matched[key]
        ordered = scores.strength * self._archive.gains(papers) if self._in_order else scores.relevance
        return [float(score) for score in ordered]

    @cached_property
    def _taste(self) -> Taste:
        return Taste(self._history, authors=True)


def ranker(history: list[Paper]) -> Ranker:
    """Return a ranker that ranks in the order of a digest. The evaluation calls this once per fold."""
    return Ranker(history)


def matching(history: list[Paper]) -> Ranker:
    """Return a ranker that uses only relevance."""
    return Ranker(history, in_order=False)


def frozen(history: list[Paper]) -> Ranker:
    """Return a ranker that uses only relevance, with one model for the half-year of the fold."""
    return Ranker(history, grows=False, in_order=False)


class Substring:
    """A ranker that counts how often a text contains an interest as typed."""

    def score(self, interests: list[str], papers: list[Paper], likes: list[Paper]) -> list[float]:
        texts = [f"{paper['title']} {paper['abstract']}".lower() for paper in papers]
        return [float(sum(text.count(interest.lower()) for interest in interests)) for text in texts]


def substring(history: list[Paper]) -> Substring:
    """Return the simplest baseline. It does not use the history."""
    return Substring()


class Bm25:
    """Okapi BM25 (k1 = 1.2, b = 0.75) on stems, summed over the interests."""

    def __init__(self, history: list[Paper]) -> None:
        texts = [words(paper) for paper in history]
        self._papers, self._length = len(texts), float(np.mean([len(text) for text in texts]))
        self._document_counts = Counter(stem for text in texts for stem in set(text))
        self._term_counts: dict[str, tuple[Counter[str], int]] = {}

    def score(self, interests: list[str], papers: list[Paper], likes: list[Paper]) -> list[float]:
        stems = [stem for text in interests for stem in set(content_stems(text))]
        return [sum(self._gain(stem, *self._counts(paper)) for stem in stems) for paper in papers]

    def _counts(self, paper: Paper) -> tuple[Counter[str], int]:
        if paper["id"] not in self._term_counts:
            self._term_counts[paper["id"]] = (Counter(words(paper)), len(words(paper)))
        return self._term_counts[paper["id"]]

    def _gain(self, stem: str, counts: Counter[str], size: int) -> float:
        papers = self._document_counts[stem]
        idf = np.log(1 + (self._papers - papers + 0.5) / (papers + 0.5))
        norm = 1.2 * (1 - 0.75 + 0.75 * size / self._length)
        return float(idf * counts[stem] * 2.2 / (counts[stem] + norm))


def bm25(history: list[Paper]) -> Bm25:
    """Return the baseline from search engines."""
    return Bm25(history)


class Sanity:
    """The method of arxiv-sanity-lite: TF-IDF of words and pairs, and a linear SVM.

    The SVM separates the papers with a tag (here the text of the interests) from all others in the archive.
    """

    def __init__(self, history: list[Paper]) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer

        self._tfidf = TfidfVectorizer(
            stop_words="english",
            token_pattern=r"(?u)\b[a-zA-Z_][a-zA-Z0-9_]+\b",  # noqa: S106  a pattern of words
            ngram_range=(1, 2),
            max_features=20_000,
            max_df=0.1,
            min_df=5,
            sublinear_tf=True,
        )
        self._rows = self._tfidf.fit_transform([f"{paper['title']} {paper['abstract']}" for paper in history])
        self._classifiers: dict[tuple[str, ...], Any] = {}

    def score(self, interests: list[str], papers: list[Paper], likes: list[Paper]) -> list[float]:
        rows = self._tfidf.transform([f"{paper['title']} {paper['abstract']}" for paper in papers])
        return [float(score) for score in self._svm(tuple(interests)).decision_function(rows)]

    def _svm(self, interests: tuple[str, ...]) -> Any:
        from scipy import sparse
        from sklearn.svm import LinearSVC

        if interests not in self._classifiers:
            rows = sparse.vstack([self._tfidf.transform(interests), self._rows])
            labels = np.arange(rows.shape[0]) < len(interests)
            svm = LinearSVC(class_weight="balanced", C=0.01, max_iter=10_000, tol=1e-6, dual=True)
            self._classifiers[interests] = svm.fit(rows, labels)
        return self._classifiers[interests]


def sanity(history: list[Paper]) -> Sanity:
    """Return the baseline from recommender systems."""
    return Sanity(history)


def words(paper: Paper) -> list[str]:
    """Return the stems of a paper's title and abstract."""
    return content_stems(f"{paper['title']} {paper['abstract']}")


def same_title(a: str, b: str) -> bool:
    """Return whether two titles belong to the same paper, for the `titles` part of the evaluation."""
    return dedupe.same_title(Title(a), Title(b))


def same_key(a: str, b: str) -> bool:
    """Return whether two titles have the same letters and digits (the baseline)."""
    return title_key(a) == title_key(b)


RANKERS = ("substring", "sanity", "bm25", "frozen", "matching", "ranker")
KINDS = {
    "keywords, weekly": ("week", False),
    "heading only, weekly": ("week", True),
    "keywords, daily": ("day", False),
}


def captured_output(run: Callable[[Namespace], None], **options: Any) -> str:
    """Run a part of the evaluation. Return its output."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        run(Namespace(**options))
    return printed.getvalue()


def figures(printed: str) -> list[str]:
    """Parse the average precision with its interval, nDCG@10, recall@10, best macro-F1 and ms per call."""
    precision = re.search(r"average_precision\s+(\S+ \[.*?\])", printed)
    patterns = (r"ndcg\s+(\S+)", r"recall\s+(\S+)", r"F1 (\S+)", r"(\S+) ms")
    others = [re.search(pattern, printed) for pattern in patterns]
    return [found.group(1) if found else "?" for found in (precision, *others)]


class Recorder:
    """A ranker that records its scores."""

    def __init__(self, inner: Ranker) -> None:
        self._inner = inner
        self.scores: dict[tuple[str, ...], list[tuple[str, float]]] = defaultdict(list)
        self.calls = Counter[tuple[str, ...]]()

    def score(self, interests: list[str], papers: list[Paper], likes: list[Paper]) -> list[float]:
        scores = self._inner.score(interests, papers, likes)
        self.scores[tuple(interests)] += zip((paper["id"] for paper in papers), scores, strict=True)
        self.calls[tuple(interests)] += 1
        return scores


def cut_offs(evaluation: ModuleType, data: Path, heading_only: bool) -> Iterator[tuple[float, ...]]:
    """Yield (relevance cut-off, macro-F1, labeled precision, recall, papers per week)."""
    recorders: list[Recorder] = []
    matched = evaluation.named("benchmarks.relevance:matching")

    def record_scores(history: list[Paper]) -> Recorder:
        recorders.append(Recorder(matched(history)))
        return recorders[-1]

    evaluation.record_scores = record_scores  # type: ignore[attr-defined]
    captured_output(
        evaluation.keywords,
        data=data,
        ranker="relevance:record_scores",
        pool="week",
        heading_only=heading_only,
    )
    rows = list[tuple[np.ndarray, np.ndarray, int]]()
    for interest in json.loads((data / "topics/interests.json").read_text()):
        texts = (interest["heading"],) if heading_only else tuple(interest["keywords"])
        scored = [pair for recorder in recorders for pair in recorder.scores[texts]]
        labels = np.array([identity in interest["relevant"] for identity, _ in scored], bool)
        if labels.any():
            weeks = sum(recorder.calls[texts] for recorder in recorders)
            rows.append((labels, np.array([score for _, score in scored]), weeks))
    for cut in CUT_OFFS:
        metrics = [cut_metrics(labels, scores >= cut, weeks) for labels, scores, weeks in rows]
        yield cut, *np.mean(metrics, axis=0).tolist()


def cut_metrics(labels: np.ndarray, selected: np.ndarray, weeks: int) -> tuple[float, ...]:
    """Return the F1, labeled precision, recall and papers per week of a selection for one interest."""
    hits, count, relevant = (labels & selected).sum(), selected.sum(), labels.sum()
    return 2 * hits / max(1, count + relevant), hits / max(1, count), hits / relevant, count / weeks


def main() -> None:
    shared = Path(sys.argv[1])
    sys.path.insert(0, str(shared / "eval"))
    import relevance as evaluation  # type: ignore[import-not-found]

    data, here = shared / "data", "benchmarks.relevance"
    for kind, (pool, heading_only) in KINDS.items():
        print(f"\n{kind:22} AP                    nDCG@10  recall@10  macro-F1, best cut  ms a call")
        for name in RANKERS:
            options = {"data": data, "ranker": f"{here}:{name}", "pool": pool, "heading_only": heading_only}
            row = figures(captured_output(evaluation.keywords, **options))
            print("{:22} {:21} {:>7} {:>10} {:>19} {:>10}".format(name, *row), flush=True)
    for heading_only in (False, True):
        print(f"\nrelevance cut at, {'heading only' if heading_only else 'keywords'}, weekly")
        print("cut   macro-F1  labeled precision  recall  papers a week")
        for row in cut_offs(evaluation, data, heading_only):
            product = "  (FLOOR)" if row[0] == FLOOR else ""
            print("{:.2f} {:9.3f} {:19.3f} {:7.3f} {:14.2f}".format(*row) + product, flush=True)
    for name in ("same_key", "same_title"):
        print(f"\n{name}\n{captured_output(evaluation.titles, data=data, same=f'{here}:{name}')}", end="")


if __name__ == "__main__":
    main()
