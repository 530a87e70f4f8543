"""Measure training, matching, ranking and composing, compared with a matrix product of the same size.

    python -m benchmarks.matching ../shared

1. Training: a model of the 10,000 newest papers in the archive, as every night.
2. Matching: 30,000 distinct interests × 300 candidates. Filing: storing their evidence, ready for ranking.
3. Ranking: 100,000 readers with 1 to 8 of these interests × 300 candidates, in batches as in planning. For
   each reader, this sorts the papers above the floor by score and returns the best 30.
4. Selecting, for 2,000 of the readers: the best paper for each interest, without papers about the same thing.
   Composing: their digests, with selection, reasons and summaries.

Paperboy runs in its own process, so that its peak memory can be measured. It uses one thread unless numpy
uses more. Prints wall-clock seconds and CPU seconds.
"""

import json
import lzma
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from app.digests import compose, planning, ranking, selection
from app.relevance import matching, query_language, trending, vector_space
from app.relevance.model import RelevanceModel
from app.text.tokenizer import content_stems
from app.types import CardReason, Interest, PaperView
from benchmarks.relevance import Paper, view

PAPERS, CANDIDATES, INTERESTS, READERS, MAX_INTERESTS = 10_000, 300, 30_000, 100_000, 8
EDITION = "2026-11-20"
TOP, SAMPLE = 30, 2_000  # papers per reader; readers whose digests are composed
ROUNDS = 3  # repetitions of matching and of ranking, of which the fastest counts


def timed(work: Callable[[], Any]) -> tuple[Any, float, float]:
    """Return the result of `work`, its wall-clock seconds and its CPU seconds."""
    began, busy = time.perf_counter(), time.process_time()
    result = work()
    return result, time.perf_counter() - began, time.process_time() - busy


def fastest(work: Callable[[], Any]) -> tuple[Any, float, float]:
    return min((timed(work) for _ in range(ROUNDS)), key=lambda run: run[1])


def interest_texts(papers: list[Paper]) -> list[str]:
    """Return interests: runs of two and three stems from titles, the newest papers first."""
    runs = dict[str, None]()
    for paper in papers:
        title = content_stems(paper["title"])
        for size in (2, 3):
            runs |= dict.fromkeys(" ".join(title[n : n + size]) for n in range(len(title) - size + 1))
    return list(runs)[:INTERESTS]


def readers(texts: list[str]) -> list[ranking.RankingRequest]:
    """Return readers with 1 to 8 interests each. They are the same in each run."""
    draw = random.Random(1)  # noqa: S311  no secret
    counts = [1 + number % MAX_INTERESTS for number in range(READERS)]
    return [ranking.RankingRequest(tuple(map(Interest, draw.sample(texts, count)))) for count in counts]


def build_evidence(
    views: list[PaperView], texts: list[str], matches: list[matching.InterestMatches]
) -> ranking.EvidenceMatrix:
    evidence = ranking.EvidenceMatrix(view.id for view in views)
    for text, own in zip(texts, matches, strict=True):
        evidence.add_columns(text, own.rows, own.relevance, own.strength, own.excluded)
    return evidence


def candidate_pool(
    views: list[PaperView], index: matching.MatchIndex, matches: ranking.EvidenceMatrix
) -> ranking.CandidatePool:
    """Return the candidate pool for ranking."""
    trends = trending.trends(views, datetime(2026, 11, 21, tzinfo=UTC))
    today = max(each.first_listed_on for each in views if each.first_listed_on)
    papers = {view.id: view for view in views}

    def reason(text: str, paper_id: int) -> CardReason:
        return index.reason(query_language.parse(text), paper_id)

    return ranking.CandidatePool(papers, trends, matches, reason, index.vectors, today)


def rank_batches(
    pool: ranking.CandidatePool, requests: list[ranking.RankingRequest]
) -> Iterator[list[ranking.Ranked]]:
    for start in range(0, len(requests), planning.BATCH_SIZE):
        yield ranking.rank(pool, requests[start : start + planning.BATCH_SIZE])


def measure_paperboy(shared: Path) -> dict[str, Any]:
    """Return (wall-clock seconds, CPU seconds) for each stage, and the peak memory in MB."""
    with lzma.open(shared / "data/papers/hf_papers.jsonl.xz", "rt") as lines:
        papers = sorted(map(json.loads, lines), key=lambda paper: paper["listed_on"], reverse=True)[:PAPERS]
    corpus, *learning = timed(
        lambda: RelevanceModel.train([(paper["title"], paper["abstract"]) for paper in papers])
    )
    texts = interest_texts(papers)
    queries = [query_language.parse(text) for text in texts]
    views = [view(number, paper) for number, paper in enumerate(papers[:CANDIDATES])]
    index, *indexing = timed(lambda: matching.MatchIndex(views, corpus))
    found_matches, *match_cost = timed(lambda: index.matches(queries))  # once: the index keeps matches
    matches, *filing = timed(lambda: build_evidence(views, texts, found_matches))
    pool, requests = candidate_pool(views, index, matches), readers(texts)
    top, *scoring = fastest(
        lambda: sum(len(one.papers[:TOP]) for batch in rank_batches(pool, requests) for one in batch)
    )
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    found = [one for batch in rank_batches(pool, requests[:SAMPLE]) for one in batch]
    chosen, *choosing = timed(lambda: sum(len(selection.select(one).selected) for one in found))
    _, *composing = timed(lambda: [compose.compose(EDITION, one) for one in found])
    return {
        "seconds": {
            "learning": learning,
            "indexing": indexing,
            "matching": match_cost,
            "filing": filing,
            "ranking": scoring,
        },
        "sampled": {"choosing": choosing, "composing": composing},
        "sizes": [len(papers), len(corpus.space.stems.columns) if corpus.space else 0, len(texts)],
        "each": [top / READERS, chosen / len(found)],
        "megabytes": megabytes,
    }


def dense(rows: int, inner: int, columns: int) -> list[float]:
    """Return (wall-clock seconds, CPU seconds) for rows × inner times inner × columns, 500 rows at a time."""
    random = np.random.default_rng(1)
    left = random.random((min(500, rows), inner), np.float32)
    right = random.random((inner, columns), np.float32)
    _, *seconds = timed(lambda: [left @ right for _ in range(0, rows, 500)])
    return seconds


def main() -> None:
    if sys.argv[2:] == ["--product"]:
        print(json.dumps(measure_paperboy(Path(sys.argv[1]))))
        return
    command = [sys.executable, "-m", "benchmarks.matching", sys.argv[1], "--product"]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)  # noqa: S603
    papers, terms, interests = found["sizes"]
    baselines = {
        "learning": (papers, terms, vector_space.DIMENSIONS),
        "indexing": (CANDIDATES, terms, vector_space.DIMENSIONS),
        "matching": (interests, vector_space.DIMENSIONS, papers + CANDIDATES),
        "filing": (interests, vector_space.DIMENSIONS, CANDIDATES),
        "ranking": (READERS, vector_space.DIMENSIONS, CANDIDATES),
    }
    print(f"{papers} papers, {CANDIDATES} candidates, {interests} interests, {READERS} readers")
    print("           seconds  (busy)  numpy  (busy)   ratio  of a product of")
    for name, size in baselines.items():
        (passed, busy), (plain, plain_busy) = found["seconds"][name], dense(*size)
        row = f"{name:10} {passed:7.2f} {busy:7.2f} {plain:7.3f} {plain_busy:6.3f} {passed / plain:7.1f}"
        print(row, " {} × {} × {}".format(*size))
    for name, (passed, busy) in found["sampled"].items():
        each = 1000 / SAMPLE
        print(f"{name:10} {passed * each:7.2f} {busy * each:7.2f}  milliseconds a reader, of {SAMPLE}")
    print("{:.1f} papers a reader up to the best 30, {:.1f} chosen".format(*found["each"]), end="; ")
    print(f"peak memory {found['megabytes']:.0f} MB")


if __name__ == "__main__":
    main()
