"""Score what is sent for 40 interests by labels that two judges gave without knowing any system.

    python -m benchmarks.blind_picks ../shared

The interests were written down before any system ran. For each of them, `blind_picks.json` contains the
labels of both judges by paper (2: about the interest, 1: borderline, 0: wrong), and the picks drawn at random
from what each system sent. For 12 interests, it also contains a pool: the best papers of each system, and
random ones.

The candidates are the papers of the last 20 recorded days of Hugging Face and a week of arXiv. The models are
trained on the papers listed before 2026, and the BM25 score per word is cut so that as many papers are sent.

The drawn picks, and so their precision, are fixed. The second table scores what this version sends now.
Papers that were not judged don't count.
"""

from __future__ import annotations

import json
import lzma
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from app.relevance import query_language
from app.relevance.cut_offs import FLOOR
from app.relevance.matching import MatchIndex
from app.relevance.suggestions import InterestReader
from app.text.tokenizer import content_stems
from benchmarks.relevance import Bm25, Paper, learn, view
from benchmarks.sent import BEFORE, mean

LABELS = Path(__file__).with_name("blind_picks.json")
DAYS = 20  # of Hugging Face
ARXIV_SINCE = "2026-02-08"
SAMPLES = 2_000
LEAST_LABELS = {"about it": 2, "or borderline": 1}

Scores = dict[str, dict[str, float]]  # by interest, then by paper


def load(shared: Path) -> tuple[list[Paper], list[Paper]]:
    """Return the papers that the models are trained on, and the candidates."""
    with lzma.open(shared / "data/papers/hf_papers.jsonl.xz", "rt") as lines:
        papers = sorted(map(json.loads, lines), key=lambda paper: paper["listed_on"], reverse=True)
    days = sorted({paper["listed_on"] for paper in papers})[-DAYS:]
    history = [paper for paper in papers if paper["listed_on"] < BEFORE]
    candidates = [paper for paper in papers if paper["listed_on"] in days]
    seen = {key(paper) for paper in [*history, *candidates] for key in (_id, _title)}
    with (shared / "data/arxiv_daily/2026-02-first-two-weeks.jsonl").open() as lines:
        for paper in map(json.loads, lines):
            is_new = seen.isdisjoint((_id(paper), _title(paper)))
            if paper["date"] >= ARXIV_SINCE and paper["abstract"] and is_new:
                seen |= {_id(paper), _title(paper)}
                candidates.append(paper | {"listed_on": paper["date"], "upvotes": 0, "comments": 0})
    return history, candidates


def _id(paper: Mapping[str, Any]) -> str:
    return str(paper["id"])


def _title(paper: Mapping[str, Any]) -> str:
    return str(paper["title"]).lower().strip()


def product_scores(interests: Iterable[str], history: Sequence[Paper], papers: Sequence[Paper]) -> Scores:
    """Return the relevance of each paper to each interest, also as it is read if it is misspelled."""
    model = learn(tuple((paper["title"], paper["abstract"]) for paper in history))
    index, reader = MatchIndex([view(*pair) for pair in enumerate(papers)], model), InterestReader(model)
    scores: Scores = {}
    for text in interests:
        query = query_language.parse(text)
        read = reader.read(text, index.missing_words(query))
        own = scores[text] = {}
        for matches in index.match([query, *map(query_language.parse, filter(None, [read]))]):
            for row, relevance in matches.items():
                number = papers[row]["id"]
                own[number] = max(relevance, own.get(number, 0.0))
    return scores


def bm25_scores(interests: Iterable[str], history: list[Paper], papers: list[Paper]) -> Scores:
    """Return the BM25 score per word of each paper for each interest."""
    ranker = Bm25(history)
    return {
        text: {
            paper["id"]: score / len(set(content_stems(text)))
            for paper, score in zip(papers, ranker.score([text], papers, []), strict=True)
        }
        for text in interests
    }


def above(scores: Scores, least: float) -> dict[str, set[str]]:
    return {text: {n for n, score in own.items() if score >= least} for text, own in scores.items()}


def interval(values: Sequence[float | None]) -> str:
    """Return the mean over interests, and its 95 % interval by bootstrap."""
    known = np.array([value for value in values if value is not None])
    picked = np.random.default_rng(7).integers(0, len(known), (SAMPLES, len(known)))
    low, high = np.percentile(known[picked].mean(1), [2.5, 97.5])
    return f"{known.mean():.3f} [{low:.3f}, {high:.3f}]"


def precision(labels: Mapping[str, str], papers: Iterable[str], least: int) -> float | None:
    """Return the share of the judged papers with at least this label, as the mean of both judges, if any."""
    judged = [labels[paper] for paper in papers if paper in labels]
    return mean(float(int(label) >= least) for both in judged for label in both) if judged else None


def recall(labels: Mapping[str, str], pool: Sequence[str], sent: Iterable[str], least: int) -> float | None:
    """Return the recall in a pool of the papers to which both judges gave at least this label, if any."""
    relevant = {paper for paper in pool if min(map(int, labels[paper])) >= least}
    return len(relevant.intersection(sent)) / len(relevant) if relevant else None


def show_drawn(judged: Mapping[str, Any]) -> None:
    print("\ndrawn picks: precision over all of them")
    for name in ("Paperboy", "Paperboy 0.1.0", "BM25"):
        drawn = [own["labels"][n] for own in judged.values() for n in own["drawn"].get(name, ())]
        for title, least in LEAST_LABELS.items():
            share = mean(float(int(label) >= least) for both in drawn for label in both)
            print(f"{name:16} {title:14} {share:.3f} ({len(drawn)} picks)")


def show_sent(judged: Mapping[str, Any], sent: Mapping[str, Mapping[str, set[str]]]) -> None:
    print("\nsent by this version, judged papers only: precision and recall as means over interests")
    for name, papers in sent.items():
        for title, least in LEAST_LABELS.items():
            right = [precision(own["labels"], papers[text], least) for text, own in judged.items()]
            pools = {text: own["pool"] for text, own in judged.items() if "pool" in own}
            hits = [recall(judged[text]["labels"], pool, papers[text], least) for text, pool in pools.items()]
            print(f"{name:16} {title:14} precision {interval(right)}  recall {interval(hits)}", flush=True)


def main() -> None:
    judged: dict[str, Any] = json.loads(LABELS.read_text(encoding="utf-8"))
    history, papers = load(Path(sys.argv[1]))
    product, bm25 = product_scores(judged, history, papers), bm25_scores(judged, history, papers)
    sent = {"Paperboy": above(product, FLOOR)}
    total = sum(map(len, sent["Paperboy"].values()))
    scores = sorted((score for own in bm25.values() for score in own.values()), reverse=True)
    sent["BM25"] = above(bm25, scores[total - 1])
    pairs = [both for own in judged.values() for both in own["labels"].values()]
    same = mean(float(first == second) for first, second in pairs)
    print(f"{len(papers)} candidates, {total} sent, {len(pairs)} pairs judged, {same:.1%} the same by both")
    show_drawn(judged)
    show_sent(judged, sent)


if __name__ == "__main__":
    main()
