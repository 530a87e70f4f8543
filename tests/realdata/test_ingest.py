"""All recorded answers of the real services in one archive: exact counts, and nothing twice."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlmodel import col, func, select

from app import main, pipeline
from app.application import Application
from app.papers import fields, sources
from app.papers.polling import FileImportResult
from app.settings import Settings
from app.storage.models import Listing, Merge, Paper, Source, VoteCount
from app.types import Rejection, SourceKind
from tests.conftest import SECRET, SHARED_DATA

pytestmark = [pytest.mark.realdata, pytest.mark.timeout(400)]  # reading everything teaches, too

NOW = datetime(2026, 11, 20, 9, 30, tzinfo=UTC)
FOLDERS = (
    "hf_daily", "hf_daily_next_morning", "arxiv_api", "arxiv_feed", "arxiv_daily", "search_pages",
)  # fmt: skip
# What each folder adds, in this order: files, rows, new, merged, changed, unchanged, listings, rejected.
EXPECTED = {
    "hf_daily": (74, 1428, 1428, 0, 0, 0, 1428, 0),
    "hf_daily_next_morning": (1, 2051, 814, 0, 1138, 99, 814, 0),
    "arxiv_api": (20, 221, 105, 0, 0, 116, 0, 1),
    "arxiv_feed": (3, 179, 89, 0, 0, 90, 89, 1),
    "arxiv_daily": (1, 3150, 1882, 0, 1268, 0, 3150, 0),
    "search_pages": (5, 210, 157, 2, 42, 9, 193, 0),
}
PAGE_ROWS, PAGE_PAPERS = 210, 159


def files(folder: str) -> list[Path]:
    return sorted((SHARED_DATA / folder).iterdir())


def make_app(url: str, folder: Path) -> Application:
    return main.build(Settings(_env_file=None, database_url=url, secret_keys=(SECRET,), scheduler=False))


def dump(app: Application) -> dict[str, list[dict[str, Any]]]:
    """Every row of every table that ingest writes."""
    with app.db.read() as session:
        tables = (Source, Paper, Listing, VoteCount, Merge)
        return {
            table.__name__: [row.model_dump() for row in session.exec(select(table).order_by(col(table.id)))]
            for table in tables
        }


def test_everything_is_counted_and_held_once(new_database_url: Callable[[], str], tmp_path: Path) -> None:
    """The exact figures of each folder, what could not be read, what is there; a day later nothing is new."""
    app = make_app(new_database_url(), tmp_path)
    read = {folder: pipeline.read_files(app, files(folder), NOW) for folder in FOLDERS}
    assert {folder: counts(told) for folder, told in read.items()} == EXPECTED
    assert_told_once_each([one for told in read.values() for one in told.summary.rejections])
    assert_held_once(app)
    before = dump(app)
    for folder in FOLDERS:
        told = pipeline.read_files(app, files(folder), NOW + timedelta(days=1)).summary.counts()
        assert told["unchanged"] == told["rows"]
        assert told["listings"] == 0
    assert dump(app) == before
    app.db.dispose()


def counts(read: FileImportResult) -> tuple[int, ...]:
    """The figures of a folder, which balance: every row is one thing."""
    told = read.summary.counts()
    numbered = sum(rejection.row is not None for rejection in read.summary.rejections)
    ended = told["papers_new"] + told["papers_merged"] + told["changed"] + told["unchanged"] + numbered
    assert told["rows"] == ended
    names = ("rows", "papers_new", "papers_merged", "changed", "unchanged", "listings", "rejected")
    return read.files, *(told[name] for name in names)


def assert_told_once_each(rejections: Sequence[Rejection]) -> None:
    """The recorded error of the query API, and the feed that ends in the middle of an entry."""
    assert [(Path(one.origin).name, one.reason, one.row) for one in rejections] == [
        ("id_abc_s0_m100_b79c8dcf6bc3.json", "the file cannot be read", None),
        ("cs.AI-2025-08-20-truncated.xml", "the answer was cut off", None),
    ]
    assert "incorrect id format for abc" in rejections[0].detail
    assert "86 complete entries were read" in rejections[1].detail


def assert_held_once(app: Application) -> None:
    """Papers, listings, votes and merges, by query."""
    with app.db.read() as session:
        papers = session.exec(select(func.count()).where(col(Paper.merged_into_id).is_(None))).one()
        listings = session.exec(select(func.count(col(Listing.id)))).one()
        votes = session.exec(select(func.count(col(VoteCount.id)))).one()
        merged = session.exec(select(Merge.reason)).all()
    assert papers == sum(expected[2] for expected in EXPECTED.values()) == 4475
    assert listings == sum(expected[6] for expected in EXPECTED.values()) == 5674
    assert votes == 2242
    assert merged == ["same title", "same title"]


def test_the_rows_kept_as_python_literals_are_papers() -> None:
    """Four broken archives with 66 rows: all of them readable, none of them run."""
    broken = [SHARED_DATA / "hf_daily" / f"{day}.json" for day in BROKEN_DAYS]
    counts = [
        len(sources.parse_file(path.name, path.read_bytes(), NOW.date()).parsed.records) for path in broken
    ]
    assert counts == [26, 18, 13, 9]


BROKEN_DAYS = ("2024-12-11", "2024-12-12", "2025-01-09", "2025-01-10")


def test_five_search_pages_give_159_papers(new_database_url: Callable[[], str], tmp_path: Path) -> None:
    """Without any id: 32 papers are on more than one page."""
    app = make_app(new_database_url(), tmp_path)
    summary = pipeline.read_files(app, files("search_pages"), NOW).summary
    app.db.dispose()
    assert (summary.rows, summary.papers_new, summary.papers_merged) == (PAGE_ROWS, PAGE_PAPERS, 0)


@pytest.mark.once
def test_the_order_of_files_changes_no_field(new_database_url: Callable[[], str], tmp_path: Path) -> None:
    """A part of everything, in two orders: the same papers, with the same fields, listings and votes."""
    part = [path for folder in FOLDERS for path in files(folder) if folder != "arxiv_daily"]
    part = [path for path in part if path.parent.name != "hf_daily" or path.name >= "2026-03-16"]
    lines = (SHARED_DATA / "arxiv_daily" / "2026-02-first-two-weeks.jsonl").read_text().splitlines()[::16]
    some = tmp_path / "some.jsonl"
    some.write_text("\n".join(lines))
    part.append(some)
    results = []
    for seed in range(2):
        app = make_app(new_database_url(), tmp_path)
        shuffled = random.Random(seed).sample(part, len(part))  # noqa: S311
        pipeline.read_files(app, shuffled, NOW)
        results.append(final(app))
        app.db.dispose()
    assert results[0] == results[1]


def final(app: Application) -> set[str]:
    """The papers as people see them, with what was seen of them, without the ids of rows."""
    with app.db.read() as session:
        kinds: dict[int | None, SourceKind] = {row.id: row.kind for row in session.exec(select(Source))}
        seen: dict[int, list[str]] = {}
        for listing in session.exec(select(Listing)):
            told = f"{kinds[listing.source_id]} {listing.listed_on} {listing.rank}"
            seen.setdefault(listing.paper_id, []).append(told)
        for votes in session.exec(select(VoteCount)):
            told = f"{kinds[votes.source_id]} {votes.at} {votes.upvotes} {votes.comments} {votes.stars}"
            seen.setdefault(votes.paper_id, []).append(told)
        columns = (*fields.FIELDS, "arxiv_id", "doi", "author_count", "published_on", "first_listed_on")
        return {
            json.dumps([str(getattr(paper, name)) for name in columns] + sorted(seen.get(paper.id or 0, [])))
            for paper in session.exec(select(Paper).where(col(Paper.merged_into_id).is_(None)))
        }
