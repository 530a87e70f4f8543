"""What learning, matching and choosing cost, beside a plain matrix product of the same size.

    python -m benchmarks.matching ../shared

1. Learning: a model of the archive's 10,000 newest papers, as every night.
2. Matching: 30,000 distinct interests × 300 candidates.
3. Choosing: 100,000 readers with 1 to 8 of these interests × 300 candidates, with quotas, room for every
   interest's best paper and no two picks that say the same; and, to compare, only the 30 best scores of
   each reader, out of a sparse product for many readers at once.

The product runs in a process of its own, so that its peak memory is its own; one thread works unless numpy
takes more. Beside the seconds that passed stand those that a processor was busy.
"""

from __future__ import annotations

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
from scipy import sparse

from app import compose, interest, match, space, trend
from app.corpus import Corpus
from app.records import Wish
from app.words import stems
from benchmarks.relevance import Paper, view

PAPERS, CANDIDATES, INTERESTS, READERS, MOST_INTERESTS = 10_000, 300, 30_000, 100_000, 8
ROUNDS = 3  # of matching: the fastest counts


def timed(work: Callable[[], Any]) -> tuple[Any, float, float]:
    """What a piece of work gives, and its seconds: passed, and busy."""
    began, busy = time.perf_counter(), time.process_time()
    made = work()
    return made, time.perf_counter() - began, time.process_time() - busy


def wanted(papers: list[Paper]) -> list[str]:
    """Interests: runs of two and three telling stems of titles, the newest papers' first."""
    runs = dict[str, None]()
    for paper in papers:
        title = stems(paper["title"])
        for size in (2, 3):
            runs |= dict.fromkeys(" ".join(title[n : n + size]) for n in range(len(title) - size + 1))
    return list(runs)[:INTERESTS]


def readers(texts: list[str]) -> Iterator[compose.Reader]:
    """Readers with 1 to 8 interests each, always the same ones."""
    draw = random.Random(1)  # noqa: S311  no secret
    for number in range(READERS):
        chosen = draw.sample(texts, 1 + number % MOST_INTERESTS)
        yield compose.Reader(tuple(Wish(text) for text in chosen))


def shelf(papers: list[Paper], index: match.Index, hits: dict[str, dict[int, float]]) -> compose.Shelf:
    """A desk's shelf over the candidates."""
    views = [view(number, paper) for number, paper in enumerate(papers)]
    today = max(each.first_listed_on for each in views if each.first_listed_on)
    trends = trend.trends(views, datetime(2026, 11, 21, tzinfo=UTC))
    return compose.Shelf(
        {each.id: each for each in views}, trends, hits, {}, lambda *_: "", index.vectors, today, today
    )


def product(shared: Path) -> dict[str, Any]:
    """(seconds passed, seconds busy) of each part, and the peak memory in MB."""
    with lzma.open(shared / "data/papers/hf_papers.jsonl.xz", "rt") as lines:
        papers = sorted(map(json.loads, lines), key=lambda paper: paper["listed_on"], reverse=True)[:PAPERS]
    corpus, *learning = timed(lambda: Corpus.of([(paper["title"], paper["abstract"]) for paper in papers]))
    texts = wanted(papers)
    queries = [interest.parse(text) for text in texts]
    views = [view(number, paper) for number, paper in enumerate(papers[:CANDIDATES])]
    index, *indexing = timed(lambda: match.Index(views, corpus))
    matched = [timed(lambda: index.match(queries)) for _ in range(ROUNDS)]
    hits, *matching = min(matched, key=lambda one: one[1])
    laid_out, asking = (
        shelf(papers[:CANDIDATES], index, dict(zip(texts, hits, strict=True))),
        [*readers(texts)],
    )
    chosen, *choosing = timed(
        lambda: sum(len(compose.choose(one, laid_out, laid_out.papers).chosen) for one in asking)
    )
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    _, *scoring = timed(lambda: best(asking, texts, hits))
    return {
        "scoring": scoring,
        "learning": learning,
        "indexing": indexing,
        "matching": matching,
        "choosing": choosing,
        "sizes": [len(papers), len(corpus.space.stems.columns) if corpus.space else 0, len(texts), chosen],
        "megabytes": megabytes,
    }


def best(asking: list[compose.Reader], texts: list[str], hits: list[dict[int, float]]) -> None:
    """The 30 highest relevances of each reader, as 1 − exp(−weights · evidence), and nothing else."""
    rows = {text: number for number, text in enumerate(texts)}
    evidence = np.zeros((len(texts), CANDIDATES), np.float32)
    for row, found in zip(evidence, hits, strict=True):
        row[[*found]] = [*found.values()]
    evidence = -np.log1p(-evidence)
    wishes = [[rows[wish.text] for wish in one.wishes] for one in asking]
    ends = np.cumsum([0, *map(len, wishes)])
    ones = np.ones(ends[-1], np.float32)
    weights = sparse.csr_matrix((ones, [row for each in wishes for row in each], ends), (READERS, len(texts)))
    for start in range(0, READERS, 1_000):
        relevance = -np.expm1(-(weights[start : start + 1_000] @ evidence))
        np.argpartition(-relevance, 29, axis=1)[:, :30]


def dense(rows: int, inner: int, columns: int) -> list[float]:
    """(seconds passed, seconds busy) of rows × inner times inner × columns, 500 rows at once."""
    random = np.random.default_rng(1)
    left = random.random((min(500, rows), inner), np.float32)
    right = random.random((inner, columns), np.float32)
    _, *seconds = timed(lambda: [left @ right for _ in range(0, rows, 500)])
    return seconds


def main() -> None:
    if sys.argv[2:] == ["--product"]:
        print(json.dumps(product(Path(sys.argv[1]))))
        return
    command = [sys.executable, "-m", "benchmarks.matching", sys.argv[1], "--product"]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)  # noqa: S603
    papers, terms, interests, chosen = found["sizes"]
    beside = {
        "learning": (papers, terms, space.DIMENSIONS),
        "indexing": (CANDIDATES, terms, space.DIMENSIONS),
        "matching": (interests, space.DIMENSIONS, papers + CANDIDATES),
        "scoring": (READERS, space.DIMENSIONS, CANDIDATES),
        "choosing": (READERS, space.DIMENSIONS, CANDIDATES),
    }
    print(f"{papers} papers, {CANDIDATES} candidates, {interests} interests, {READERS} readers")
    print("           seconds  (busy)  numpy  (busy)   ratio  of a product of")
    for name, size in beside.items():
        (passed, busy), (plain, plain_busy) = found[name], dense(*size)
        row = f"{name:10} {passed:7.2f} {busy:7.2f} {plain:7.3f} {plain_busy:6.3f} {passed / plain:7.1f}"
        print(row, " {} × {} × {}".format(*size))
    print(f"{chosen / READERS:.1f} papers a reader; peak memory {found['megabytes']:.0f} MB")


if __name__ == "__main__":
    main()
