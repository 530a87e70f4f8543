"""Measure how well a profile learned from a few liked papers predicts what its reader likes later.

    python -m benchmarks.likes ../shared

This runs the evaluation in that folder on `app.relevance.user_profile` and on arxiv-sanity's method, with and
without authors, and then shows what a profile alone would send, also for readers with several tastes, and how
far a like and a dislike move the papers near them. The evaluation can also be run by itself, with
`--ranker benchmarks.likes:taste` (or another factory in this module).
"""

from __future__ import annotations

import itertools
import json
import random
import sys
from argparse import Namespace
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.feature_extraction.text import TfidfTransformer, TfidfVectorizer
from sklearn.svm import LinearSVC

from app.digests import ranking
from app.relevance import cut_offs, matching, query_language, user_profile
from app.relevance.model import RelevanceModel
from app.types import Feedback, PaperView

Paper = dict[str, Any]
SYSTEMS = ("sanity", "taste", "sanity_with_authors", "taste_with_authors")
WORDS = 20_000  # the size of arxiv-sanity's vocabulary
MIXED_READERS = 8  # drawn for each week
NEAREST, RATED_PER_INTEREST = 10, 3
LIKED_AT = datetime(2026, 1, 1, tzinfo=UTC)


class Taste:
    """A ranker that scores papers with Paperboy's user profile."""

    def __init__(self, history: list[Paper], authors: bool) -> None:
        newest = sorted(history, key=lambda paper: paper["listed_on"], reverse=True)
        self.model = corpus_of(tuple((paper["title"], paper["abstract"]) for paper in newest))
        self._authors = authors
        self._pools: dict[tuple[str, ...], user_profile.Candidates] = {}

    def score(self, interests: list[str], papers: list[Paper], likes: list[Paper]) -> list[float]:
        profile = self.profile(papers, likes)
        return (profile.agreement + profile.author_evidence).tolist() if profile else [0.0] * len(papers)

    def profile(self, papers: list[Paper], likes: list[Paper]) -> user_profile.UserProfile | None:
        """Return the profile that these likes give on these papers, which are numbered from 0."""
        candidates = self.candidates(papers)
        feedback = [
            Feedback(p["title"], p["abstract"], self._authors_of(p), liked=True, at=LIKED_AT) for p in likes
        ]
        return user_profile.build_profile(feedback, candidates) if candidates else None

    def _authors_of(self, paper: Paper) -> tuple[str, ...]:
        return tuple(paper["authors"]) if self._authors else ()

    def candidates(self, papers: list[Paper]) -> user_profile.Candidates | None:
        key = tuple(paper["id"] for paper in papers)
        if self.model.space and key not in self._pools:
            views = [
                PaperView(n, p["title"], p["abstract"], self._authors_of(p)) for n, p in enumerate(papers)
            ]
            self._pools[key] = user_profile.Candidates(views, self.model, self.model.space)
        return self._pools.get(key)


@lru_cache(maxsize=4)
def corpus_of(texts: tuple[tuple[str, str], ...]) -> RelevanceModel:
    """Return a model trained on texts. The runs of the evaluation share it."""
    return RelevanceModel.train(texts)


_words = TfidfVectorizer(
    strip_accents="unicode",
    stop_words="english",
    token_pattern=r"(?u)\b[a-zA-Z_][a-zA-Z0-9_]+\b",  # noqa: S106  a pattern of words
    ngram_range=(1, 2),
).build_analyzer()
_numbers: defaultdict[str, int] = defaultdict(itertools.count().__next__)


@cache
def term_counts(text: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers assigned to a text's words and word pairs, and how often each occurs."""
    return np.unique([_numbers[word] for word in _words(text)], return_counts=True)


class Sanity:
    """The method of arxiv-sanity-lite: TF-IDF of words and pairs, and a linear SVM against all other papers.

    The other papers are the rest of the archive and the pool, and the vocabulary is learned from both. The
    settings are arxiv-sanity-lite's own, except that a word may occur in only one paper, because a higher
    minimum gives worse results.
    """

    def __init__(self, history: list[Paper], authors: bool) -> None:
        self._history, self._authors = history, authors
        self._pools: dict[tuple[str, ...], _Features] = {}

    def score(self, interests: list[str], papers: list[Paper], likes: list[Paper]) -> list[float]:
        features, ids = self._features(papers), {paper["id"] for paper in likes}
        liked = features.weights.transform(self._counts(likes)[:, features.words])
        known = [n for n, paper in enumerate([*self._history, *papers]) if paper["id"] not in ids]
        labels = np.r_[np.ones(len(likes)), np.zeros(len(known))]
        svm = LinearSVC(class_weight="balanced", C=0.01, tol=1e-6, max_iter=10_000, random_state=0)
        svm.fit(sparse.vstack([liked, features.rows[known]]), labels)
        return svm.decision_function(features.rows[len(self._history) :]).tolist()

    def _features(self, papers: list[Paper]) -> _Features:
        key = tuple(paper["id"] for paper in papers)
        if key not in self._pools:
            counts = self._counts([*self._history, *papers])
            words = np.argsort(-np.asarray(counts.sum(0)).ravel(), kind="stable")[:WORDS]
            weights = TfidfTransformer(sublinear_tf=True).fit(counts[:, words])
            self._pools[key] = _Features(words, weights, weights.transform(counts[:, words]))
        return self._pools[key]

    def _counts(self, papers: Sequence[Paper]) -> sparse.csr_matrix:
        authors = [paper["authors"] if self._authors else [] for paper in papers]
        texts = [" ".join([p["title"], p["abstract"], *a]) for p, a in zip(papers, authors, strict=True)]
        numbers, often = zip(*map(term_counts, texts), strict=True)
        ends = np.cumsum([0, *map(len, numbers)])
        parts = (np.concatenate(often).astype(float), np.concatenate(numbers), ends)
        return sparse.csr_matrix(parts, shape=(len(papers), len(_numbers)))


@dataclass(frozen=True)
class _Features:
    """The features of an archive and a pool, in arxiv-sanity's vocabulary."""

    words: np.ndarray
    weights: TfidfTransformer
    rows: sparse.csr_matrix


def taste(history: list[Paper]) -> Taste:
    """Return Paperboy's profile without authors."""
    return Taste(history, authors=False)


def taste_with_authors(history: list[Paper]) -> Taste:
    """Return Paperboy's profile."""
    return Taste(history, authors=True)


def sanity(history: list[Paper]) -> Sanity:
    """Return the baseline without authors."""
    return Sanity(history, authors=False)


def sanity_with_authors(history: list[Paper]) -> Sanity:
    """Return the baseline with authors' names as words, as in arxiv-sanity."""
    return Sanity(history, authors=True)


def show_sent(evaluation: ModuleType, data: Path) -> None:
    """Print how many papers a profile alone would send, and how many of them are on its reader's list.

    The lists are papers that readers liked, and reading lists on topics as if a reader had liked the papers.
    """
    papers = evaluation.load_papers(data)
    by_id = {paper["id"]: paper for paper in papers}
    readers = json.loads((data / "topics/readers.json").read_text())
    topics = json.loads((data / "topics/interests.json").read_text())
    lists = {
        "readers": [entry["liked_in_order"] for entry in readers],
        "reading lists": [sorted(entry["relevant"], key=lambda i: by_id[i]["listed_on"]) for entry in topics],
    }
    weekly_counts: dict[tuple[str, int], list[tuple[int, int, int]]] = defaultdict(list)
    for ranker, pools in evaluation.folds(papers, taste_with_authors, evaluation.week):
        for pool, (kind, ids), count in itertools.product(
            pools.values(), _named_lists(lists), evaluation.LIKES
        ):
            liked, later = ids[:count], set(ids[count:])
            if by_id[ids[-1]]["listed_on"] < pool[0]["listed_on"] or len(liked) < count:
                continue
            if by_id[liked[-1]]["listed_on"] < pool[0]["listed_on"]:
                relevance = ranker.profile(pool, [by_id[i] for i in liked]).relevance
                selected = [n for n, hit in relevance.items() if hit >= cut_offs.FLOOR]
                liked_later = sum(pool[n]["id"] in later for n in selected)
                weekly_counts[kind, count].append((len(pool), len(selected), liked_later))
    print("\nby taste alone, with authors     of 100 papers it sends   of these on the list")
    for (kind, count), weeks in sorted(weekly_counts.items()):
        shown, selected, liked_later = np.sum(weeks, axis=0)
        print(
            f"{kind:14} {count:2} likes {100 * selected / shown:21.2f} {liked_later / max(1, selected):20.3f}"
        )


def _named_lists(lists: dict[str, list[list[str]]]) -> list[tuple[str, list[str]]]:
    return [(kind, ids) for kind, id_lists in lists.items() for ids in id_lists]


def show_mixed(evaluation: ModuleType, data: Path) -> None:
    """Print what readers of two or three lists, with one to three likes from each, are sent.

    The baseline is the union of what readers of one of the lists, with the same likes, would be sent.
    """
    papers = evaluation.load_papers(data)
    by_id, draw = {paper["id"]: paper for paper in papers}, random.Random(3)  # noqa: S311  no secret
    readers = json.loads((data / "topics/readers.json").read_text())
    topics = json.loads((data / "topics/interests.json").read_text())
    lists = {
        "readers": [set(entry["liked_in_order"]) for entry in readers],
        "reading lists": [{*entry["relevant"]} & by_id.keys() for entry in topics],
    }
    counts: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(4, int))
    for ranker, pools in evaluation.folds(papers, taste_with_authors, evaluation.week):
        for pool, (kind, wanted) in itertools.product(pools.values(), lists.items()):
            day = min(paper["listed_on"] for paper in pool)
            earlier = [sorted(i for i in ids if by_id[i]["listed_on"] < day) for ids in wanted]
            usable = [n for n, ids in enumerate(earlier) if len(ids) >= 3]
            for _ in range(MIXED_READERS if len(usable) >= 3 else 0):
                picked = draw.sample(usable, draw.choice((2, 3)))
                if any(wanted[a] & wanted[b] for a, b in itertools.combinations(picked, 2)):
                    continue
                likes = [[by_id[i] for i in draw.sample(earlier[n], draw.randint(1, 3))] for n in picked]
                apart = set[int]().union(*(_selected(ranker, pool, own) for own in likes))
                together = _selected(ranker, pool, list(itertools.chain(*likes)))
                listed = {n for n, p in enumerate(pool) if any(p["id"] in wanted[each] for each in picked)}
                counts[kind] += [len(apart), len(together), len(apart & listed), len(together & listed)]
    print("\nreaders with 2-3 tastes      sent apart   together   of these on the lists: apart   together")
    for kind, numbers in counts.items():
        print("{:25} {:13} {:10} {:31} {:10}".format(kind, *numbers))


def _selected(ranker: Taste, pool: list[Paper], likes: list[Paper]) -> set[int]:
    profile = ranker.profile(pool, likes)
    relevance = profile.relevance if profile else {}
    return {number for number, value in relevance.items() if value >= cut_offs.FLOOR}


def show_feedback_effect(evaluation: ModuleType, data: Path) -> None:
    """Print how far one like and one dislike move the relevance that an interest gives to other papers.

    The rated papers are some that the interest (the heading of a reading list) selects from those of a week.
    """
    papers = evaluation.load_papers(data)
    topics = json.loads((data / "topics/interests.json").read_text())
    queries = [query_language.parse(text) for text in dict.fromkeys(entry["heading"] for entry in topics)]
    draw, changes = random.Random(1), defaultdict[str, list[float]](list)  # noqa: S311  no secret
    for ranker, pools in evaluation.folds(papers, taste, evaluation.week):
        for pool in pools.values():
            views = [PaperView(n, paper["title"], paper["abstract"]) for n, paper in enumerate(pool)]
            index, candidates = matching.MatchIndex(views, ranker.model), ranker.candidates(pool)
            for hits in index.match(queries):
                before = np.array([hits.get(number, 0.0) for number in range(len(pool))])
                selected = np.flatnonzero(before >= cut_offs.FLOOR).tolist()
                if candidates and len(pool) > NEAREST:
                    for rated in draw.sample(selected, min(RATED_PER_INTEREST, len(selected))):
                        _record_changes(candidates, before, rated, changes)
    print("\nmean change of relevance by one")
    for name, values in changes.items():
        print(f"{name:50} {np.mean(values):+.3f} ({len(values)})")


def _record_changes(
    candidates: user_profile.Candidates, before: np.ndarray, rated: int, changes: dict[str, list[float]]
) -> None:
    """Record by how much a like and a dislike of a paper change the relevance of the others."""
    paper = candidates.texts[rated].paper
    feedback = {
        liked: Feedback(paper.title, paper.abstract, (), liked=liked, at=LIKED_AT) for liked in (True, False)
    }
    closeness = candidates.rated_papers([feedback[True]])[0].closeness.copy()
    closeness[rated] = -np.inf
    is_near = np.zeros(len(before), bool)
    is_near[np.argsort(-closeness)[:NEAREST]] = True
    is_selected = (before >= cut_offs.FLOOR) & (closeness > -np.inf)
    groups = {
        "10 nearest": is_near,
        "of them, those that the interest selects": is_near & is_selected,
        "other papers that the interest selects": is_selected & ~is_near,
    }
    for liked, entry in feedback.items():
        profile = user_profile.build_profile([entry], candidates)
        own = profile.relevance if profile else {}
        evidence = ranking.evidence_of(before) + ranking.evidence_of(
            own.get(n, 0.0) for n in range(len(before))
        )
        change = ranking.relevance_of(np.maximum(evidence, 0)) - before
        for name, members in groups.items():
            if members.any():
                changes[f"{'like' if liked else 'dislike'}: {name}"].append(float(change[members].mean()))


def main() -> None:
    shared = Path(sys.argv[1])
    sys.path.insert(0, str(shared / "eval"))
    import relevance as evaluation  # type: ignore[import-not-found]

    for name in SYSTEMS:
        print(f"\n{name}", flush=True)
        evaluation.likes(Namespace(data=shared / "data", ranker=f"benchmarks.likes:{name}"))
    show_sent(evaluation, shared / "data")
    show_mixed(evaluation, shared / "data")
    show_feedback_effect(evaluation, shared / "data")


if __name__ == "__main__":
    main()
