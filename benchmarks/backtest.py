"""Measure a backtest over 14 days, compared with a preview of each of these days.

    python -m benchmarks.backtest ../shared

The archive has 10,000 real papers in SQLite, 50 listed on each day, and a model trained on them. Interests
are keywords from real reading lists. "Cold" is the first backtest in a process that has already loaded its
model. "Warm" backtests are later ones, each with new interests. Prints milliseconds of wall-clock time and
CPU time. On a busy machine, only the CPU time is meaningful.
"""

import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from sqlmodel import Session

from app import main, pipeline
from app.application import Application
from app.papers import paper_views
from app.papers.title_normalization import title_key
from app.relevance import matching
from app.settings import Settings
from app.storage import schema
from app.storage.models import Listing, Paper, Source, VoteCount
from app.subscribers import Preferences
from app.types import Digest, Interest, Skip, SourceKind

PAPERS, A_DAY, DAYS, REPEATS = 10_000, 50, 14, 7
INTERESTS = 5  # per reader
NOW = datetime(2026, 11, 20, 9, 30, tzinfo=UTC)


def build_archive(folder: str, shared: Path) -> Application:
    """Return an application with an archive whose newest papers were listed today."""
    url = f"sqlite:///{folder}/papers.db"
    schema.migrate(url)
    app = main.build(Settings(_env_file=None, database_url=url, secret_keys=("0" * 32,), scheduler=False))
    sys.path.insert(0, str(shared / "eval"))
    import relevance as evaluation  # type: ignore[import-not-found]

    papers = sorted(evaluation.load_papers(shared / "data"), key=lambda paper: paper["listed_on"])
    with app.db.write() as session:
        source = Source(name="daily", kind=SourceKind.HUGGINGFACE, created_at=NOW)
        session.add(source)
        session.flush()
        for number, paper in enumerate(reversed(papers[-PAPERS:])):
            add(session, source, paper, NOW - timedelta(days=number // A_DAY))
    pipeline.train(app, NOW)
    return app


def add(session: Session, source: Source, paper: dict[str, Any], listed: datetime) -> None:
    """Add a paper with its votes on the morning of its listing and on the next morning."""
    day = listed.date()
    known = {"authors": paper["authors"], "first_listed_on": day, "last_listed_on": day}
    titled = {"title": paper["title"], "title_key": title_key(paper["title"])[:1000]}
    row = Paper(
        **titled, **known, abstract=paper["abstract"], content_hash="", created_at=listed, updated_at=listed
    )
    session.add(row)
    session.flush()
    ids = {"paper_id": row.id, "original_paper_id": row.id, "source_id": source.id}
    session.add(Listing(**ids, listed_on=day))
    session.add(VoteCount(**ids, at=listed - timedelta(hours=3), upvotes=paper["upvotes"]))
    session.add(VoteCount(**ids, at=listed + timedelta(hours=20), upvotes=paper["upvotes_final"]))


def read_interests(shared: Path) -> Iterator[list[Interest]]:
    """Yield lists of INTERESTS distinct interests."""
    lists = json.loads((shared / "data/topics/interests.json").read_text())
    keywords = iter(dict.fromkeys(keyword for entry in lists for keyword in entry["keywords"]))
    while interests := [Interest(keyword) for keyword in itertools.islice(keywords, INTERESTS)]:
        yield interests


def previews(app: Application, interests: list[Interest]) -> list[Digest | Skip]:
    """Return a preview for each day (the baseline). Papers may be repeated on later days."""
    days = (NOW.date() - timedelta(days=back) for back in reversed(range(DAYS)))
    return [pipeline.preview(app, Preferences(interests=tuple(interests)), NOW, day=day)[0] for day in days]


def backtest(app: Application, interests: list[Interest]) -> list[Digest | Skip]:
    return [edition.digest for edition in pipeline.backtest(app, NOW, interests, DAYS)]


def milliseconds(work: Callable[[], object]) -> tuple[float, float]:
    """Return the wall-clock time and the CPU time of `work`, in milliseconds."""
    clock, processor = time.perf_counter(), time.process_time()
    work()
    return (time.perf_counter() - clock) * 1000, (time.process_time() - processor) * 1000


def format_times(times: list[tuple[float, float]]) -> str:
    clock, processor = (statistics.median(each) for each in zip(*times, strict=True))
    return f"{clock:6.0f} ms, processor {processor:6.0f} ms (best {min(p for _, p in times):.0f})"


def paper_ids(digests: list[Digest | Skip]) -> list[int]:
    return [pick.paper_id for digest in digests if isinstance(digest, Digest) for pick in digest.picks]


def measure_stages(app: Application) -> None:
    """Measure the stages of a backtest without caches."""
    with app.db.read() as session:
        corpus = app.models.current(session)
        since = NOW.date() - timedelta(days=DAYS + 8)
        candidates: list[Any] = []
        read = milliseconds(lambda: candidates.extend(paper_views.candidates(session, since, NOW.date())))
    indexed = milliseconds(lambda: matching.MatchIndex(candidates, corpus))
    print(f"{len(candidates)} candidates: read {format_times([read])}")
    print(f"{'':16} index {format_times([indexed])}")


def compare(app: Application, interest_lists: Iterator[list[Interest]]) -> None:
    """Measure one method after the other. If they alternated, previews would evict the backtest's index."""
    methods = {"14 × preview": previews, "backtest": backtest}
    for name, method in methods.items():
        runs = [partial(method, app, next(interest_lists)) for _ in range(1 + REPEATS)]
        cold, *warm = [milliseconds(run_once) for run_once in runs]
        print(f"{name:14} cold {format_times([cold])}")
        print(f"{name:14} warm {format_times(warm)}, median of {len(warm)}")
    interests = next(interest_lists)
    for name, method in methods.items():
        ids = paper_ids(method(app, interests))
        print(f"{name:14} {len(ids)} picks, {len(set(ids))} of them different")


def run() -> None:
    shared = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        app = build_archive(folder, shared)
        measure_stages(app)
        compare(app, read_interests(shared))
        app.db.dispose()


if __name__ == "__main__":
    run()
