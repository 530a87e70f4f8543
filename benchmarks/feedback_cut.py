"""Measure whether feedback on a paper should also move the cut-off of the interest that the paper matched.

    python -m benchmarks.feedback_cut ../shared

A simulated reader has one interest of `judged_interests.json`, likes some of the relevant papers that are
sent on eight days and dislikes some of the irrelevant ones. The table shows what is sent on the other two
days. Over all folds, each day is one of these once. A weight, which moves the cut-off, is computed by one of
two rules:

- rate: from the share of liked papers among the rated ones, with a Beta prior
- logistic: from a logistic regression of likes on evidence, with a normal prior for the cut-off

Both rules use the settings with which the product does best on the tuning half. The baselines are the product
as it is, whose profile learns from the same feedback, and the interest without a profile.
"""

import itertools
import json
import lzma
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from app.digests import ranking
from app.relevance import matching, query_language, user_profile
from app.relevance.model import RelevanceModel
from app.types import Feedback
from benchmarks.relevance import view
from benchmarks.sent import BEFORE, JUDGED, Half, Metrics, mean, metrics, train

SEEDS, FOLDS = 4, 5
SHARES = ((0.2, 0.2), (0.5, 0.5), (0.1, 0.5), (0.5, 0.1))  # of the relevant papers liked, the others disliked
LEAST, MOST = 0.5, 1.25  # weights
RATES = tuple(itertools.product((0.5, 0.7, 0.85), (5, 10, 20), (1, 2)))  # prior mean, its weight, slope
LOGISTICS = tuple(itertools.product((2, 4), (0.05, 0.1, 0.2), (0.3, 0.5, 0.7)))  # slope, deviation, share
SHIFTS = np.linspace(-0.8, 0.8, 65)  # of a cut-off, in units of evidence
RATED_AT = datetime(2026, 1, 1, tzinfo=UTC)

Array = np.ndarray[Any, Any]
Rule = Callable[[Array, Array], float]  # the evidence for the liked and for the disliked papers → the weight


def by_rate(liked: Array, disliked: Array, prior: float, prior_weight: float, slope: float) -> float:
    """Return 2^(slope × how much larger than the prior mean the posterior mean share of likes is)."""
    rate = (len(liked) + prior * prior_weight) / (len(liked) + len(disliked) + prior_weight)
    return float(np.clip(2 ** (slope * (rate - prior)), LEAST, MOST))


def by_logistic(liked: Array, disliked: Array, slope: float, deviation: float, share: float) -> float:
    """Return the weight that moves the cut-off to its posterior mean.

    A paper is relevant with the probability σ(slope × (evidence − cut-off) + logit(share)).
    """
    odds = np.log(share / (1 - share))
    logits = slope * (np.r_[liked, disliked][:, None] - ranking.ENOUGH - SHIFTS) + odds
    signs = np.r_[-np.ones(len(liked)), np.ones(len(disliked))][:, None]
    density = np.exp(-((SHIFTS / deviation) ** 2) / 2 - np.logaddexp(0, signs * logits).sum(0))
    cut_off = ranking.ENOUGH + float(np.average(SHIFTS, weights=density))
    return float(np.clip(ranking.ENOUGH / max(cut_off, 0.05), LEAST, MOST))


class Reader:
    """The papers of a half as evidence for one interest and its reader's profile."""

    def __init__(self, half: Half, text: str, row: Array, candidates: user_profile.Candidates) -> None:
        labels = half.labels[text]
        self.relevant, self.borderline = frozenset(labels["relevant"]), frozenset(labels["borderline"])
        self.ids = np.array([paper["id"] for paper in half.papers])
        self.days = np.array([paper["listed_on"] for paper in half.papers])
        self._is_relevant = np.isin(self.ids, [*self.relevant])
        self._is_irrelevant = ~np.isin(self.ids, [*self.relevant, *self.borderline])
        self._evidence, self._candidates = row, candidates
        self._profiles: dict[tuple[bytes, bytes], Array] = {}

    def simulate(
        self, seed: int, shares: tuple[float, float], rule: Rule | None, with_profile: bool
    ) -> Metrics:
        """Return what is sent on the later days of all folds."""
        random = np.random.default_rng(seed)
        days, draws = random.permutation(np.unique(self.days)), random.random(len(self.ids))
        rated = self._is_relevant & (draws < shares[0]), self._is_irrelevant & (draws < shares[1])
        sent = np.zeros(len(self.ids), bool)
        for fold in range(FOLDS):
            later = days[fold::FOLDS]
            seen, evidence = np.zeros(len(self.ids), bool), self._evidence
            for day in days[~np.isin(days, later)]:
                seen |= (evidence >= ranking.ENOUGH) & (self.days == day)
                evidence = self._after(seen & rated[0], seen & rated[1], rule, with_profile)
            sent |= (evidence >= ranking.ENOUGH) & np.isin(self.days, later)
        return metrics(frozenset(self.ids[sent].tolist()), self.relevant, self.borderline)

    def _after(self, liked: Array, disliked: Array, rule: Rule | None, with_profile: bool) -> Array:
        """Return the evidence after feedback. Only papers that match the interest change its weight."""
        matched = self._evidence * MOST >= ranking.ENOUGH
        ratings = (self._evidence[liked & matched], self._evidence[disliked & matched])
        evidence = self._evidence * (rule(*ratings) if rule else 1.0)
        return evidence + self._profile(liked, disliked) if with_profile else evidence

    def _profile(self, liked: Array, disliked: Array) -> Array:
        key = liked.tobytes(), disliked.tobytes()
        if key not in self._profiles:
            papers = [(self._candidates.texts[n].paper, liked[n]) for n in np.flatnonzero(liked | disliked)]
            feedback = [
                Feedback(paper.title, paper.abstract, paper.authors, liked=bool(like), at=RATED_AT)
                for paper, like in papers
            ]
            profile = user_profile.build_profile(feedback, self._candidates)
            relevance = profile.relevance if profile else {}
            self._profiles[key] = ranking.evidence_of(relevance.get(n, 0.0) for n in range(len(self.ids)))
        return self._profiles[key]


def readers_of(half: Half, model: RelevanceModel) -> list[Reader]:
    """Return a reader for each interest of a half."""
    papers = [view(number, paper) for number, paper in enumerate(half.papers)]
    found = matching.MatchIndex(papers, model).match([query_language.parse(text) for text in half.labels])
    if model.space is None:
        raise SystemExit("There are too few papers before the judged days to learn from feedback.")
    candidates = user_profile.Candidates(papers, model, model.space)
    rows = [ranking.evidence_of(hits.get(n, 0.0) for n in range(len(papers))) for hits in found]
    return [Reader(half, text, row, candidates) for text, row in zip(half.labels, rows, strict=True)]


def evaluate(
    readers: Sequence[Reader], shares: tuple[float, float], rule: Rule | None, with_profile: bool = True
) -> list[list[Metrics]]:
    """Return the metrics of each reader, one for each seed."""
    return [
        [reader.simulate(seed, shares, rule, with_profile) for seed in range(SEEDS)] for reader in readers
    ]


def mean_f1(rows: Sequence[Sequence[Metrics]]) -> list[float]:
    """Return the F1 of each reader, the mean over seeds."""
    return [mean(row.f1 for row in own) for own in rows]


def best(rules: Sequence[Rule], readers: Sequence[Reader]) -> Rule:
    """Return the rule with the highest macro-F1 in the product, the mean over the shares of rated papers."""
    return max(rules, key=lambda rule: np.mean([mean_f1(evaluate(readers, pair, rule)) for pair in SHARES]))


def rules_of(kind: Callable[..., float], settings: Sequence[tuple[float, ...]]) -> Iterator[Rule]:
    """Yield a rule with each of the settings."""
    names = ("prior", "prior_weight", "slope") if kind is by_rate else ("slope", "deviation", "share")
    for values in settings:
        yield partial(kind, **dict(zip(names, values, strict=True)))


def show(half: Half, readers: Sequence[Reader], rules: dict[str, Rule | None]) -> None:
    """Print what is sent by each rule, and the gain in F1 over the product."""
    for shares, with_profile in itertools.product(SHARES, (True, False)):
        baseline: list[float] = []
        for name, rule in rules.items():
            rows = evaluate(readers, shares, rule, with_profile)
            f1 = mean_f1(rows)
            baseline = baseline or f1
            gain = np.subtract(f1, baseline)
            samples = np.random.default_rng(7).integers(0, len(gain), (2_000, len(gain)))
            low, high = np.percentile(gain[samples].mean(1), [2.5, 97.5])
            every = [*itertools.chain(*rows)]
            sent = mean(row.sent for row in every) / len({*readers[0].days})
            print(f"{half.name:10} {shares[0]:.0%} / {shares[1]:.0%}".ljust(24), end="")
            print(f"{'product' if with_profile else 'no profile':12} {name:10}", end="")
            print(
                f"{mean(row.precision for row in every):9.3f} {mean(row.recall for row in every):7.3f}",
                end="",
            )
            print(
                f"{np.mean(f1):9.3f} {sent:13.2f}  {gain.mean():+.3f} [{low:+.3f}, {high:+.3f}]", flush=True
            )


def main() -> None:
    data = Path(sys.argv[1]) / "data"
    with lzma.open(data / "papers/hf_papers.jsonl.xz", "rt") as lines:
        papers = [json.loads(line) for line in lines]
    papers.sort(key=lambda paper: paper["listed_on"], reverse=True)
    model = train([paper for paper in papers if paper["listed_on"] < BEFORE])
    judged = json.loads(JUDGED.read_text(encoding="utf-8"))
    halves = [Half(name, content, papers) for name, content in judged.items()]
    readers = [readers_of(half, model) for half in halves]
    rules: dict[str, Rule | None] = {"none": None}
    for name, kind, settings in (("rate", by_rate, RATES), ("logistic", by_logistic, LOGISTICS)):
        rule = best([*rules_of(kind, settings)], readers[0])
        rules[name] = rule
        print(f"{name}: {rule.keywords}", flush=True)  # type: ignore[attr-defined]
    print(f"\n{'half':10} {'likes / dislikes':13} {'':12} {'weight by':10}", end="")
    print("precision  recall  macro-F1  papers a day  gain in F1")
    for half, own in zip(halves, readers, strict=True):
        show(half, own, rules)


if __name__ == "__main__":
    main()
