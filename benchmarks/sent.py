"""Measure what is sent: the papers with enough relevance to one interest alone.

    python -m benchmarks.sent ../shared

60 interests as people type them were judged on the papers of ten days each, by title and abstract, without
seeing the results of any system (`judged_interests.json`). Half of the interests and days were used for
tuning; the other half decides. The models are trained on the papers listed before `BEFORE`. The baselines are
one floor for all interests, and BM25 with the cut that is best for the tuning half.

40 more interests, on six other days, were judged independently by two judges (`judged_twice.json`). Nothing
was tuned to them.

The order of papers was not tuned to any of these judgments.
"""

from __future__ import annotations

import itertools
import json
import lzma
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from app import subscribers
from app.relevance import cut_offs, matching, model_store, query_language
from app.relevance.model import RelevanceModel
from app.text.tokenizer import WORD, content_stems
from benchmarks.relevance import Bm25, Paper, view

JUDGED = Path(__file__).with_name("judged_interests.json")
JUDGED_TWICE = Path(__file__).with_name("judged_twice.json")
BEFORE = "2026-01-01"
SIZES = (10_000, 3_000, 300, 60)  # papers in the archive
FOLDS = ("2024-10-01", "2025-04-01", "2025-10-01", "2026-04-01")  # half-years of the topics
MIN_LABELS = 5  # topics with fewer are left out
CUTS = np.linspace(1, 12, 45).tolist()  # BM25 scores per word
ENOUGH_AGREEMENT = 0.8
MIN_ORDERED = 4  # papers of which the order is judged

Selection = Mapping[str, frozenset[str]]  # the ids of the papers sent for each interest
System = Callable[[Sequence[str], Sequence[Paper]], Selection]


@dataclass(frozen=True, slots=True)
class Metrics:
    """The metrics of one interest. Precision is None if nothing is sent, recall if nothing is relevant."""

    sent: int
    relevant: int
    precision: float | None
    recall: float | None
    f1: float


def metrics(sent: frozenset[str], relevant: frozenset[str], borderline: frozenset[str]) -> Metrics:
    """Return the metrics of an interest. Borderline papers count as right for precision, and not for F1.

    If nothing is relevant, F1 is 1 if nothing irrelevant is sent, and 0 otherwise.
    """
    wrong, hits = len(sent - relevant - borderline), len(sent & relevant)
    return Metrics(
        sent=len(sent),
        relevant=len(relevant),
        precision=1 - wrong / len(sent) if sent else None,
        recall=hits / len(relevant) if relevant else None,
        f1=2 * hits / (hits + wrong + len(relevant)) if relevant else float(not wrong),
    )


def mean(values: Iterator[float | None]) -> float:
    """Return the mean of the values that are defined, or nan if there are none."""
    defined = [value for value in values if value is not None]
    return float(np.mean(defined)) if defined else float("nan")


def jaccard(a: frozenset[str], b: frozenset[str]) -> float | None:
    """Return the share of the papers in both selections. Return None if both are empty."""
    return len(a & b) / len(a | b) if a | b else None


def permutations(text: str) -> list[str]:
    """Return the other orders of the content words of an interest."""
    words = [word for word in WORD.findall(text) if content_stems(word)]
    return [other for order in itertools.permutations(words) if (other := " ".join(order)) != text]


def paraphrases(text: str) -> list[str]:
    """Return other wordings of an interest: with function words, in the other number, LLM spelled out."""
    *first, last = text.split()
    forms = [f"using {text}", f"for {text}", " ".join([*first, other_number(last)])]
    if first and all(map(content_stems, first)):
        forms += [f"{last} {word} {' '.join(first)}" for word in ("for", "in", "using")]
    if "LLM" in text:
        forms += [text.replace("LLM", f"large language {word}") for word in ("model", "models")]
        forms.append(f"{text.replace('LLM', '').strip()} in large language models")
    return [form for form in dict.fromkeys(forms) if form != text]


def other_number(word: str) -> str:
    """Return the plural of a singular noun and vice versa. Return words without another number unchanged."""
    if word.endswith(("ing", "ss", "is", "us", "ty")):
        return word
    return word[:-1] if word.endswith("s") else f"{word}s"


def matcher(model: RelevanceModel, weight: float = 1.0) -> System:
    """Return the product's selection for interests of this weight."""
    least = 1 - (1 - cut_offs.FLOOR) ** (1 / weight)

    def select(interests: Sequence[str], papers: Sequence[Paper]) -> Selection:
        index = matching.MatchIndex([view(row, paper) for row, paper in enumerate(papers)], model)
        found = index.match([query_language.parse(text) for text in interests])
        return {
            text: frozenset(papers[row]["id"] for row, hit in hits.items() if hit >= least)
            for text, hits in zip(interests, found, strict=True)
        }

    return select


def one_floor(model: RelevanceModel) -> System:
    """Return the product's selection with the same cut-off for all interests."""
    with_own_cut_offs = matcher(model)

    def select(interests: Sequence[str], papers: Sequence[Paper]) -> Selection:
        with cut_off_weight(0):
            return with_own_cut_offs(interests, papers)

    return select


@contextmanager
def cut_off_weight(weight: float) -> Iterator[None]:
    """Set the weight of an interest's own cut-off."""
    before, cut_offs.CUT_OFF_WEIGHT = cut_offs.CUT_OFF_WEIGHT, weight
    try:
        yield
    finally:
        cut_offs.CUT_OFF_WEIGHT = before


def bm25(ranker: Bm25, cut: float) -> System:
    """Return the selection by BM25 scores of at least `cut` per word."""

    def select(interests: Sequence[str], papers: Sequence[Paper]) -> Selection:
        needed = {text: cut * len(set(content_stems(text))) for text in interests}
        return {
            text: frozenset(
                paper["id"]
                for paper, score in zip(papers, ranker.score([text], list(papers), []), strict=True)
                if score and score >= needed[text]
            )
            for text in interests
        }

    return select


def best_cut(ranker: Bm25, tuning: Half) -> float:
    """Return the BM25 score per word with the best macro-F1 in a half."""
    return float(max(CUTS, key=lambda cut: mean(row.f1 for row in tuning.evaluate(bm25(ranker, cut)))))


def systems_of(history: list[Paper], cut: float) -> dict[str, System]:
    """Return the product and the baselines, trained on papers, newest first."""
    model = train(history)
    return {
        "own cut-offs (the product)": matcher(model),
        "one floor": one_floor(model),
        "BM25": bm25(Bm25(history), cut),
    }


class Half:
    """Half of the judged interests, or those of one judge, and the papers of their days."""

    def __init__(self, name: str, content: Mapping[str, Any], papers: Sequence[Paper]) -> None:
        self.name = name.replace("_", " ")
        self.labels: Mapping[str, Mapping[str, Sequence[str]]] = content["interests"]
        self.papers = [paper for paper in papers if paper["listed_on"] in content["days"]]

    def evaluate(self, system: System) -> list[Metrics]:
        """Return the metrics of each interest."""
        sent = system([*self.labels], self.papers)
        return [
            metrics(sent[text], frozenset(labels["relevant"]), frozenset(labels["borderline"]))
            for text, labels in self.labels.items()
        ]


def show_interests(halves: Sequence[Half], systems: Mapping[str, System]) -> None:
    """Print what is sent for the judged interests, and the gain over each baseline in the last half."""
    header = f"{len({text for half in halves for text in half.labels})} interests"
    print(f"\n{header:26} {'half':10} precision  recall  macro-F1  papers each")
    f1: dict[str, list[float]] = {}
    for name, system in systems.items():
        for half in halves:
            rows = half.evaluate(system)
            f1[name] = [row.f1 for row in rows]
            numbers = mean(row.precision for row in rows), mean(row.recall for row in rows)
            print(f"{name:26} {half.name:10} {numbers[0]:9.3f} {numbers[1]:7.3f} ", end="")
            print(f"{mean(row.f1 for row in rows):9.3f} {mean(row.sent for row in rows):12.1f}", flush=True)
    first, *others = f1
    for name in others:
        gain = np.subtract(f1[first], f1[name])
        samples = np.random.default_rng(7).integers(0, len(gain), (2_000, len(gain)))
        low, high = np.percentile(gain[samples].mean(1), [2.5, 97.5])
        print(f"{halves[-1].name}: macro-F1 {gain.mean():+.3f} [{low:+.3f}, {high:+.3f}] against {name}")


def show_order(halves: Sequence[Half], history: Sequence[Paper]) -> None:
    """Print the quality of three orders for each interest that has relevant papers.

    A borderline paper is half as good as a relevant one for nDCG, and counts as irrelevant for AP. The last
    column is the AP among the papers that are sent, for interests that bring at least MIN_ORDERED.
    """
    print(f"\n{'order':26} {'half':10} archive  interests     AP  nDCG@10  gain over relevance   AP of sent")
    for size in SIZES[:3]:
        model, ranker = model_for(history[:size]), Bm25(history[:size])
        for half in halves:
            rows, of_sent = qualities(half, model, ranker)
            for name, pairs in rows.items():
                precision, quality = np.mean(pairs, axis=0)
                gain = np.subtract(pairs, rows["relevance"])[:, 1]
                samples = np.random.default_rng(7).integers(0, len(gain), (2_000, len(gain)))
                low, high = np.percentile(gain[samples].mean(1), [2.5, 97.5])
                print(f"{name:26} {half.name:10} {size:7,} {len(pairs):10} {precision:6.3f} ", end="")
                print(f"{quality:8.3f}  {gain.mean():+.3f} [{low:+.3f}, {high:+.3f}]  ", end="")
                print(f"{np.mean(of_sent[name]):.3f} ({len(of_sent[name])})", flush=True)


def qualities(
    half: Half, model: RelevanceModel, ranker: Bm25
) -> tuple[dict[str, list[tuple[float, float]]], dict[str, list[float]]]:
    """Return the AP and the nDCG@10 of each order by interest, and the AP of the papers that are sent."""
    index = matching.MatchIndex([view(row, paper) for row, paper in enumerate(half.papers)], model)
    rows, of_sent = defaultdict[str, list[tuple[float, float]]](list), defaultdict[str, list[float]](list)
    for text, labels in half.labels.items():
        if not labels["relevant"]:
            continue
        [matches] = index.matches([query_language.parse(text)])
        scores = {name: np.zeros(len(half.papers)) for name in ("relevance", "strength")}
        scores["relevance"][matches.rows] = matches.relevance
        scores["strength"][matches.rows] = matches.strength
        scores["BM25"] = np.array(ranker.score([text], half.papers, []))
        sent = np.flatnonzero(scores["relevance"] >= cut_offs.FLOOR)
        papers = [half.papers[row] for row in sent]
        is_ordered = len(sent) >= MIN_ORDERED and any(paper["id"] in labels["relevant"] for paper in papers)
        for name, own in scores.items():
            rows[name].append(order_quality(half.papers, labels, own))
            if is_ordered:
                of_sent[name].append(order_quality(papers, labels, own[sent])[0])
    return rows, of_sent


def order_quality(
    papers: Sequence[Paper], labels: Mapping[str, Sequence[str]], scores: np.ndarray
) -> tuple[float, float]:
    """Return the average precision and the nDCG@10 of papers in the order of their scores."""
    order = np.argsort(-scores, kind="stable")
    hits = np.array([paper["id"] in labels["relevant"] for paper in papers], float)
    gains = hits + np.array([paper["id"] in labels["borderline"] for paper in papers]) / 2
    precision = np.cumsum(hits[order]) / np.arange(1, len(order) + 1)
    discounts = 1 / np.log2(np.arange(2, 12))
    best, own = np.sort(gains)[::-1][:10], gains[order[:10]]
    quality = (own * discounts[: len(own)]).sum() / (best * discounts[: len(best)]).sum()
    return float((precision * hits[order]).sum() / hits.sum()), float(quality)


def show_disagreement(first: Half, second: Half) -> None:
    """Print how many papers are relevant to both judges, and Cohen's kappa of "relevant"."""
    pairs = [
        {(text, paper) for text, labels in half.labels.items() for paper in labels["relevant"]}
        for half in (first, second)
    ]
    total = len(first.labels) * len(first.papers)
    both, shares = len(pairs[0] & pairs[1]), [len(chosen) / total for chosen in pairs]
    agreement = 1 - len(pairs[0] ^ pairs[1]) / total
    by_chance = math.prod(shares) + math.prod(1 - share for share in shares)
    print(f"relevant: {len(pairs[0])} and {len(pairs[1])}, {both} to both; ", end="")
    print(f"kappa {(agreement - by_chance) / (1 - by_chance):.2f}", flush=True)


def show_weights(halves: Sequence[Half], model: RelevanceModel) -> None:
    """Print what is sent for each amount on the preferences page, which stands for a weight."""
    print(f"\n{'amount':26} {'half':10} precision  recall  macro-F1  papers a day")
    for weight, name in subscribers.AMOUNTS.items():
        for half in halves:
            rows = half.evaluate(matcher(model, weight))
            days = len({paper["listed_on"] for paper in half.papers})
            numbers = mean(row.precision for row in rows), mean(row.recall for row in rows)
            print(
                f"{name + f' (weight {weight:g})':26} {half.name:10} {numbers[0]:9.3f} {numbers[1]:7.3f} ",
                end="",
            )
            print(
                f"{mean(row.f1 for row in rows):9.3f} {mean(row.sent / days for row in rows):13.2f}",
                flush=True,
            )


def show_topics(topics: Sequence[Mapping[str, Any]], papers: Sequence[Paper], cut: float) -> None:
    """Print what is sent to readers whose interests are the keywords of a topic.

    The labels are positives only, so precision is too low. Each model is trained on the papers before a
    half-year. As in `benchmarks.relevance`, a topic's papers are those between its first and last labels.
    """
    listed = {paper["id"]: paper["listed_on"] for paper in papers}
    sent: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    keywords = [*dict.fromkeys(keyword for topic in topics for keyword in topic["keywords"])]
    for start, end in itertools.pairwise(FOLDS):
        pool = [paper for paper in papers if start <= paper["listed_on"] < end]
        for name, system in systems_of([p for p in papers if p["listed_on"] < start], cut).items():
            for keyword, ids in system(keywords, pool).items():
                sent[name][keyword] |= ids
    header = f"{len(topics)} topics by keywords"
    print(f"\n{header:26} topics  labeled precision  recall  macro-F1  papers a reader")
    for name, by_keyword in sent.items():
        rows = []
        for topic in topics:
            days = sorted(day for n in topic["relevant"] if (day := listed[n]) >= FOLDS[0])
            if len(days) >= MIN_LABELS:
                last = min(days[-1], topic["complete_until"])
                pool_ids = frozenset(n for n, day in listed.items() if days[0] <= day <= last)
                union = set[str]().union(*(by_keyword[keyword] for keyword in topic["keywords"]))
                rows.append(metrics(pool_ids & union, pool_ids.intersection(topic["relevant"]), frozenset()))
        print(f"{name:26} {len(rows):6} {mean(row.precision for row in rows):19.3f} ", end="")
        print(f"{mean(row.recall for row in rows):7.3f} {mean(row.f1 for row in rows):9.3f} ", end="")
        print(f"{mean(row.sent for row in rows):16.1f}", flush=True)


def show_agreement(halves: Sequence[Half], systems: Mapping[str, System]) -> None:
    """Print the overlap of what an interest of two to four words and its other wordings send."""
    print(f"\n{'wordings':26} {'kind':13} interests  pairs  both empty   mean  ≥ .8  least interest")
    for name, system in systems.items():
        for kind in (permutations, paraphrases):
            overlaps: dict[str, list[float | None]] = {}
            for half in halves:
                long = [text for text in half.labels if 2 <= len(set(content_stems(text))) <= 4]
                ways = {text: kind(text) for text in long}
                texts = [*dict.fromkeys([*ways, *itertools.chain(*ways.values())])]
                sent = system(texts, half.papers)
                overlaps |= {text: [jaccard(sent[text], sent[w]) for w in own] for text, own in ways.items()}
            pairs = [overlap for own in overlaps.values() for overlap in own]
            means = {text: mean(iter(own)) for text, own in overlaps.items() if {*own} - {None}}
            least = min(means, key=means.__getitem__)
            enough = mean(float(value >= ENOUGH_AGREEMENT) for value in means.values())
            print(
                f"{name:26} {kind.__name__:13} {len(means):9} {len(pairs):6} {pairs.count(None):11} ", end=""
            )
            print(f"{mean(iter(means.values())):6.3f} {enough:5.2f}  {means[least]:.3f} {least}", flush=True)


def show_sizes(halves: Sequence[Half], history: list[Paper]) -> None:
    """Print what is sent by archives of different sizes, and the interests that bring nothing.

    BM25 has the best cut for each size.
    """
    head = f"\n{'archive':26} {'model':14} macro-F1: {'  '.join(half.name for half in halves)}"
    print(f"{head}  bring nothing  of these with relevant papers")
    for size in SIZES:
        newest = history[:size]
        model = model_for(newest)
        kind = "own" if len(newest) >= model_store.MIN_PAPERS else "bundled"
        ranker = Bm25(newest)
        systems = {
            kind: matcher(model),
            f"{kind}, one floor": one_floor(model),
            "BM25": bm25(ranker, best_cut(ranker, halves[0])),
        }
        for name, system in systems.items():
            by_half = [half.evaluate(system) for half in halves]
            empty = [row for rows in by_half for row in rows if not row.sent]
            scores = [mean(row.f1 for row in rows) for rows in by_half]
            share = len(empty) / sum(map(len, by_half))
            print(f"{len(newest):<26,} {name:18} {scores[0]:13.3f} {scores[1]:10.3f} {share:14.3f} ", end="")
            print(f"{sum(row.relevant > 0 for row in empty):30}", flush=True)


def model_for(papers: Sequence[Paper]) -> RelevanceModel:
    """Return the model that an archive of these papers, newest first, uses."""
    return train(papers) if len(papers) >= model_store.MIN_PAPERS else RelevanceModel.bundled()


def train(papers: Sequence[Paper]) -> RelevanceModel:
    """Return a model trained on papers, newest first."""
    return RelevanceModel.train([(paper["title"], paper["abstract"]) for paper in papers])


def main() -> None:
    data = Path(sys.argv[1]) / "data"
    with lzma.open(data / "papers/hf_papers.jsonl.xz", "rt") as lines:
        papers = [json.loads(line) for line in lines]
    papers.sort(key=lambda paper: paper["listed_on"], reverse=True)
    history = [paper for paper in papers if paper["listed_on"] < BEFORE]
    judged = json.loads(JUDGED.read_text(encoding="utf-8"))
    halves = [Half(name, content, papers) for name, content in judged.items()]
    cut = best_cut(Bm25(history), halves[0])
    systems = systems_of(history, cut)
    print(f"trained on {len(history):,} papers; BM25 is cut at {cut:.2f} per word")
    show_interests(halves, systems)
    judges = [Half(name, content, papers) for name, content in json.loads(JUDGED_TWICE.read_bytes()).items()]
    show_interests(judges, systems)
    show_disagreement(*judges)
    show_order([*halves, *judges], history)
    show_weights(halves, train(history))
    show_topics(json.loads((data / "topics/interests.json").read_text(encoding="utf-8")), papers, cut)
    show_agreement(halves, systems)
    show_sizes(halves, history)


if __name__ == "__main__":
    main()
