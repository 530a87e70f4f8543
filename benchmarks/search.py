"""Compare the archive search on disk with the ranking of all papers in memory: quality, time, memory, size.

    python -m benchmarks.search ../shared --papers 10000 100000 1000000

The queries are the judged interests of the other benchmarks. The archive is that of the folder; beyond its
papers, new ones are made from the sentences of a paper and its nearest neighbors. Time is that of a search
without the database, as wall time and as CPU time, because others may use the machine. Each index is
searched in a process of its own, whose memory is shown with all libraries and the model.

`--exhaustive 20` also scores every paper of each archive for 20 of the queries, which takes long, and shows
the quality beside that.
"""

import argparse
import json
import lzma
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from app.papers.searchable_papers import SearchablePaper
from app.relevance import query_language, scoring, search_index
from app.relevance.archive_search import MAX_RESULTS, MIN_RELEVANCE, MIN_SIMILARITY
from app.relevance.matching import MatchIndex
from app.relevance.model import RelevanceModel
from app.relevance.query_language import Query
from app.relevance.search_index import IndexedPaper, IndexReader, IndexWriter, read_model
from app.relevance.search_index_fields import ListingFilter
from app.relevance.search_ranking import CandidateRanker
from app.text.tokenizer import stem_all
from app.types import PaperView

FOLDER = Path(__file__).parent
CUTS = (20, 100, MAX_RESULTS)
NEIGHBOURS = 40
PER_BATCH = 1_000
MAX_IN_MEMORY = 10_000  # papers; more were never in memory
CATEGORIES = [f"{group}.{name}" for group in ("cs", "stat", "math") for name in "ABCDEFGHIJ"]
SYNTAX = ("“phrase”", "-exclusion", "author:", "cat:")
HOSTILE = (
    '"of the" "in the" "to the" "on the" "for the" "and the" "that the" "we propose" model',
    'model -"of the" -"in the" -"to the" -"on the" -"for the" -"and the" -"language models" -"we show"',
    " ".join(
        f"{word} model"
        for word in ["language", "vision", "large", "deep", "neural", "learning", "data", "method"]
    ),
)


def queries() -> list[str]:
    """Return the texts of the judged interests."""
    files = (
        json.loads((FOLDER / f"{name}.json").read_text()) for name in ("judged_interests", "judged_twice")
    )
    return list(dict.fromkeys(text for file in files for part in file.values() for text in part["interests"]))


def with_syntax(texts: Sequence[str], papers: Sequence[PaperView]) -> Iterator[tuple[str, str]]:
    """Yield (kind, query) for queries with filters of each kind."""
    chance = random.Random(0)  # noqa: S311
    for number, text in enumerate(texts):
        kind = SYNTAX[number % len(SYNTAX)]
        author = chance.choice(papers).authors[0] if kind == "author:" else ""
        typed = {
            "“phrase”": f'"{text}"',
            "-exclusion": f'{text} -language -"we propose"',
            "author:": f'{text} author:"{author}"',
            "cat:": f"{text} cat:{chance.choice(CATEGORIES)}",
        }
        yield kind, typed[kind]


def recorded_papers(shared: Path) -> list[PaperView]:
    """Return the recorded papers, oldest first."""
    with lzma.open(shared / "data" / "papers" / "hf_papers.jsonl.xz") as file:
        rows = sorted((json.loads(line) for line in file), key=lambda row: str(row["listed_on"]))
    return [
        PaperView(
            number,
            row["title"],
            "\n".join(re.split(r"(?<=[.!?]) ", row["abstract"])),
            authors=tuple(row["authors"]) or ("Ada Lovelace",),
            categories=(CATEGORIES[number % len(CATEGORIES)],),
            last_listed_on=date.fromisoformat(row["listed_on"]),
        )
        for number, row in enumerate(rows, 1)
    ]


def archive(papers: Sequence[PaperView], model: RelevanceModel, count: int) -> Iterator[PaperView]:
    """Yield the newest papers, then new ones of the same subjects."""
    yield from papers[-count:]
    chance = random.Random(1)  # noqa: S311
    if model.space is None:
        return
    vectors = model.space.vectors([model.document(paper.title, paper.abstract) for paper in papers])
    near = np.concatenate(
        [
            np.argpartition(-(vectors[start : start + 500] @ vectors.T), NEIGHBOURS, axis=1)[:, :NEIGHBOURS]
            for start in range(0, len(papers), 500)
        ]
    )
    for number in range(len(papers), count):
        own = chance.randrange(len(papers))
        others = [papers[row] for row in chance.sample(near[own].tolist(), 2)]
        sentences = [text for paper in (papers[own], *others) for text in paper.abstract.split("\n")]
        yield PaperView(
            number + 1,
            others[0].title,
            "\n".join(chance.sample(sentences, min(len(sentences), chance.randint(5, 10)))),
            authors=papers[chance.randrange(len(papers))].authors,
            categories=(chance.choice(CATEGORIES),),
            last_listed_on=date.fromordinal(735_000 + chance.randrange(4_000)),
        )


def build(papers: Iterator[PaperView], model: RelevanceModel, folder: Path) -> None:
    """Index papers, and print the time."""
    # New papers repeat sentences, so these are stemmed once.
    stems = lru_cache(200_000)(stem_all)
    search_index.stem_all = lambda text: [stem for line in text.split("\n") for stem in stems(line)]  # type: ignore[attr-defined]
    wall, cpu, count, batch = time.perf_counter(), time.process_time(), 0, list[IndexedPaper]()
    with IndexWriter(folder, model) as writer:
        for paper in papers:
            listed = [(paper.last_listed_on or date.min, 1)]
            batch.append(IndexedPaper(SearchablePaper(paper, False, listed), "1"))
            count += 1
            if len(batch) == PER_BATCH:
                writer.put(batch)
                batch = []
        writer.put(batch)
        writer.set_state(compared_at="2026-01-01")
    seconds = time.process_time() - cpu
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    print(
        f"{count:,} papers indexed: {size / 1e6:,.0f} MB on disk; {seconds:,.0f} s of CPU time, "
        f"{time.perf_counter() - wall:,.0f} s (sentences that repeat are stemmed once)",
        flush=True,
    )


def ndcg(ids: Sequence[int], gains: Mapping[int, float], cut: int) -> float:
    """Return the normalized discounted cumulative gain of a ranking."""
    discounts = 1 / np.log2(np.arange(2, cut + 2))
    own = np.array([gains.get(number, 0.0) for number in ids[:cut]])
    ideal = np.array(sorted(gains.values(), reverse=True)[:cut])
    return float((own * discounts[: len(own)]).sum() / max((ideal * discounts[: len(ideal)]).sum(), 1e-9))


def timed(label: str, search: Callable[[str], object], texts: Sequence[str]) -> None:
    """Print the percentiles of the time of searches."""
    wall, cpu = list[float](), list[float]()
    for text in texts:
        began, used = time.perf_counter(), time.process_time()
        search(text)
        wall.append(1000 * (time.perf_counter() - began))
        cpu.append(1000 * (time.process_time() - used))
    shown = (f"{np.percentile(values, p):7.1f}" for values in (wall, cpu) for p in (50, 95, 100))
    print(f"{label:34}" + " ".join(shown), flush=True)


def memory() -> str:
    """Return the memory of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    sizes = {
        name: int(rest.split()[0]) / 1000
        for name, _, rest in (line.partition(":") for line in lines)
        if "kB" in rest
    }
    return f"{sizes['VmRSS']:.0f} MB in memory, of which {sizes['RssFile']:.0f} are pages of files"


def exhaustive(reader: IndexReader, query: Query) -> dict[int, float]:
    """Return {id: strength} of all papers that are relevant enough, scored without choosing candidates."""
    ids, papers = reader.records(range(1, reader.papers + 100))
    terms, pairs = scoring.terms_and_pairs(query, reader.model.abbreviations)
    matrices = papers.matrices([*terms, *pairs], reader.model)
    scores = scoring.score(scoring.query_batch([query], matrices, reader.model), matrices, reader.model)
    rows = np.flatnonzero(scores.relevance[0] >= MIN_RELEVANCE)
    return dict(zip(np.array(ids)[rows].tolist(), scores.strength[0, rows].tolist(), strict=True))


def show_quality(label: str, rankings: Sequence[tuple[Sequence[int], Mapping[int, float]]]) -> None:
    means = (np.mean([ndcg(ids, gains, cut) for ids, gains in rankings]) for cut in CUTS)
    worst = (np.min([ndcg(ids, gains, cut) for ids, gains in rankings]) for cut in CUTS)
    shown = ", ".join(
        f"@{cut} {mean:.4f} (worst {low:.4f})" for cut, mean, low in zip(CUTS, means, worst, strict=True)
    )
    print(f"nDCG against {label}: {shown}", flush=True)


def measure_disk(folder: Path, arguments: argparse.Namespace) -> None:
    """Search an index on disk, and print time, memory and quality."""
    papers, texts = recorded_papers(arguments.shared), queries()
    authors = [paper for paper in papers if paper.authors]
    reader = IndexReader(folder, read_model(folder))
    ranker = CandidateRanker(reader, lambda ids: [])

    def search(text: str) -> Sequence[int]:
        return ranker.search(query_language.parse(text), ListingFilter(), MAX_RESULTS, MIN_RELEVANCE).ids

    for text in texts:
        search(text)
    print(f"{'on disk, milliseconds':34}  wall p50, p95, most     CPU p50, p95, most")
    timed("  words", search, texts)
    filtered = [*with_syntax(texts, authors)]
    for kind in SYNTAX:
        timed(f"  words and {kind}", search, [text for own, text in filtered if own == kind])
    timed(
        "  related papers",
        lambda text: ranker.related(int(text), 5, MIN_SIMILARITY),
        [*map(str, range(1, 101))],
    )
    timed("  hostile", search, HOSTILE)
    print(memory(), flush=True)
    if reader.papers <= MAX_IN_MEMORY:
        views = [*archive(papers, reader.model, reader.papers)]
        index, rankings = MatchIndex(views, reader.model), []
        for text in [*texts, *(text for _, text in filtered)]:
            [matches] = index.matches([query_language.parse(text)])
            is_enough = matches.relevance >= MIN_RELEVANCE
            rows = matches.rows[is_enough].tolist()
            gains = dict(
                zip((views[row].id for row in rows), matches.strength[is_enough].tolist(), strict=True)
            )
            if gains:
                rankings.append((search(text), gains))
        show_quality(f"all papers in memory, {len(rankings)} queries", rankings)
    if arguments.exhaustive:
        some = random.Random(2).sample(texts, arguments.exhaustive)  # noqa: S311
        compared = [(search(text), exhaustive(reader, query_language.parse(text))) for text in some]
        show_quality(f"all papers on disk, {len(some)} queries", compared)


def measure_memory(count: int, folder: Path, arguments: argparse.Namespace) -> None:
    """Search all papers in memory, as before there was an index on disk, and print time and memory."""
    model = read_model(folder)
    began = time.process_time()
    index = MatchIndex([*archive(recorded_papers(arguments.shared), model, count)], model)
    index.filters.passing_mask(query_language.parse('"a phrase" author:name org:name cat:cs'))
    print(f"in memory: indexed in {time.process_time() - began:.1f} s of CPU time")
    timed("  words", lambda text: index.matches([query_language.parse(text)]), queries())
    print(memory(), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shared", type=Path)
    parser.add_argument("--papers", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--exhaustive", type=int, default=0)
    parser.add_argument(
        "--folder", type=Path, help="a folder in which to keep the indexes; existing ones are used"
    )
    parser.add_argument("--measure", choices=("disk", "memory"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        (count,) = arguments.papers
        folder = arguments.folder / str(count)
        measure_disk(folder, arguments) if arguments.measure == "disk" else measure_memory(
            count, folder, arguments
        )
        return
    root = arguments.folder or Path(tempfile.mkdtemp())
    papers = recorded_papers(arguments.shared)
    model = RelevanceModel.train([(paper.title, paper.abstract) for paper in reversed(papers)])
    for count in arguments.papers:
        if not (root / str(count)).exists():
            build(archive(papers, model, count), model, root / str(count))
        for kind in ("memory", "disk") if count <= MAX_IN_MEMORY else ("disk",):
            command: list[Any] = [
                sys.executable,
                "-m",
                "benchmarks.search",
                arguments.shared,
                "--measure",
                kind,
            ]
            command += ["--papers", count, "--folder", root, "--exhaustive", arguments.exhaustive]
            subprocess.run([*map(str, command)], check=True)  # noqa: S603
    if not arguments.folder:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
