"""Measure the import of a large file of papers: papers per second, CPU and peak memory, on both databases.

    python -m benchmarks.backfill ../shared [--papers 50000] [--before FOLDER] [--before-papers 4000] [--json]

The papers are synthesised when it runs: each has the words of a recorded title, and sentences of recorded
abstracts with their formulas. One in twenty repeats an earlier title with a typing error, without its name
or without its last word. Half of these have no arXiv id, so that only their titles can match. `import` reads
the file into an empty archive, and `again` reads it a second time. Meanwhile another process writes a row ten
times a second, as a sign-up does, and `writer_ms` is its longest wait. The CPU time includes that of
PostgreSQL.

`--before` names a checkout of an earlier release, which imports the first papers of the same file in turn.
"""

import argparse
import json
import lzma
import os
import random
import re
import resource
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

NOW = datetime(2026, 11, 20, 8, tzinfo=UTC)
DATABASES = ("sqlite", "postgresql")
COPY_SHARE = 0.05  # of the papers repeat an earlier title
PROBE_SECONDS = 0.1
ROOT = Path(__file__).resolve().parents[1]


def recorded_texts(shared: Path) -> tuple[list[str], list[str], list[str]]:
    """Return recorded titles, sentences of abstracts, and authors."""
    with lzma.open(shared / "data/papers/hf_papers.jsonl.xz", "rt") as lines:
        rows = [json.loads(line) for line in lines]
    for file in sorted((shared / "data/arxiv_daily").glob("*.jsonl")):
        rows += map(json.loads, file.read_text().splitlines())
    titles = [" ".join(row["title"].split()) for row in rows]
    sentences = [part for row in rows for part in re.split(r"(?<=\.) ", row["abstract"] or "") if part]
    return titles, sentences, [name for row in rows for name in row["authors"][:3]]


def synthesize(shared: Path, papers: int) -> Iterator[dict[str, Any]]:
    """Yield rows like those of arXiv's metadata dump."""
    titles, sentences, authors = recorded_texts(shared)
    rng = random.Random(1)  # noqa: S311 - no secret
    earlier: list[dict[str, Any]] = []
    for number in range(papers):
        copied = rng.choice(earlier) if earlier and rng.random() < COPY_SHARE else None
        title = change(copied["title"], rng) if copied else combine(titles, rng)
        without_id = copied is not None and rng.random() < 0.5
        row = {
            "id": "" if without_id else f"{1000 + number // 90_000:04}.{10_000 + number % 90_000:05}",
            "title": title,
            "abstract": copied["abstract"] if copied else " ".join(rng.choices(sentences, k=7)),
            "authors": copied["authors"] if copied else rng.choices(authors, k=4),
            "categories": ["cs.CL", "cs.LG"],
            "published_on": "2025-06-01",
        }
        if copied is None and len(earlier) < 5_000:
            earlier.append(row)
        yield row


def combine(titles: Sequence[str], rng: random.Random) -> str:
    """Return the first half of one title and the second half of another."""
    first, second = (rng.choice(titles).split() for _ in range(2))
    return " ".join([*first[: len(first) // 2 + 1], *second[len(second) // 2 :]])


def change(title: str, rng: random.Random) -> str:
    """Return a title as another source might write it."""
    place = rng.randrange(1, len(title))
    copies = (title[:place] + title[place + 1 :], title.partition(": ")[2] or title, title.rpartition(" ")[0])
    return rng.choice(copies) or title


def import_file(url: str, path: Path) -> dict[str, Any]:
    """Import a file twice with the release on the Python path. Return this process's costs and the counts."""
    from app import main
    from app.papers import polling
    from app.settings import Settings
    from app.storage import schema

    schema.migrate(url)
    app = main.build(
        Settings(_env_file=None, database_url=url, secret_keys=(secrets.token_hex(32),), scheduler=False)
    )
    costs: dict[str, Any] = {}
    for name in ("import", "again"):
        began, cpu = time.perf_counter(), time.process_time()
        result = polling.read_files(app.poll_context, [path], NOW, None, None)
        cpu, seconds = time.process_time() - cpu, time.perf_counter() - began
        costs[name] = {"cpu": cpu, "seconds": seconds, "counts": result.summary.counts()}
    costs["peak_mb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    return costs


def measure(checkout: Path, kind: str, path: Path, papers: int) -> dict[str, Any]:
    """Import a file into a new database in a process of its own, while another writer waits its turn."""
    from benchmarks.scale import run_database, server_cpu

    with tempfile.TemporaryDirectory() as folder, run_database(kind, Path(folder)) as (url, server):
        before = server_cpu(server)
        child = subprocess.Popen(  # noqa: S603
            [sys.executable, __file__, "--import", url, str(path)],
            env=os.environ | {"PYTHONPATH": str(checkout)}, cwd=checkout,
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        probe = Writer(url)
        probe.start()
        output, _ = child.communicate()
        probe.stop()
        costs = json.loads(output.splitlines()[-1])
        database_cpu = (server_cpu(server) - before) / 2  # for each of the two imports, on average
    figures = {
        name: {
            "papers_per_second": round(papers / costs[name]["seconds"]),
            "papers_per_cpu_second": round(papers / (costs[name]["cpu"] + database_cpu)),
            "cpu_us": round(costs[name]["cpu"] / papers * 1e6),
            "counts": {key: value for key, value in costs[name]["counts"].items() if value},
        }
        for name in ("import", "again")
    }
    return {
        "papers": papers, **figures, "database_cpu_us": round(database_cpu / papers * 1e6),
        "peak_mb": costs["peak_mb"], "writer_ms": round(probe.longest * 1000), "writes": probe.writes,
    }  # fmt: skip


class Writer(threading.Thread):
    """Write a row ten times a second, and record the longest wait."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url, self._ended = url, threading.Event()
        self.longest, self.writes = 0.0, 0

    def run(self) -> None:
        from app.storage import job_runs
        from app.storage.database import Database

        db = Database(self._url)
        while not self._ended.wait(PROBE_SECONDS):
            began = time.perf_counter()
            try:
                job_runs.begin(db, "probe", NOW)
            except Exception:  # noqa: S112 - the tables are not there yet
                continue
            self.longest, self.writes = max(self.longest, time.perf_counter() - began), self.writes + 1
        db.dispose()

    def stop(self) -> None:
        self._ended.set()
        self.join()


def run(shared: Path, papers: int, before: Path | None, before_papers: int) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        path, short = Path(folder) / "papers.jsonl", Path(folder) / "first.jsonl"
        with path.open("w") as file, short.open("w") as first:
            for number, row in enumerate(synthesize(shared, papers)):
                line = json.dumps(row) + "\n"
                file.write(line)
                if number < before_papers:
                    first.write(line)
        for kind in DATABASES:
            if before:
                figures[f"{kind}, before"] = measure(before, kind, short, before_papers)
            figures[kind] = measure(ROOT, kind, path, papers)
    return figures


def cli() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("shared", type=Path)
    options.add_argument("--papers", type=int, default=50_000)
    options.add_argument("--before", type=Path, help="a checkout of an earlier release")
    options.add_argument("--before-papers", type=int, default=4_000)
    options.add_argument("--json", action="store_true")
    arguments = options.parse_args()
    before = arguments.before.resolve() if arguments.before else None
    figures = run(arguments.shared, arguments.papers, before, arguments.before_papers)
    if arguments.json:
        print(json.dumps(figures))
        return
    for name, row in figures.items():
        print(name, row, sep="  ")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--import"]:
        print(json.dumps(import_file(sys.argv[2], Path(sys.argv[3]))))
    else:
        cli()
