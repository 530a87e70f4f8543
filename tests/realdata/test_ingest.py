"""Ingest all recorded responses into one archive and check exact counts."""

import json
import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlmodel import col, func, select

from app import main
from app.application import Application
from app.papers import field_precedence, polling
from app.papers.polling import FileImportResult
from app.papers.sources.files import parse_file
from app.settings import Settings
from app.storage.models import Listing, Merge, Paper, Source, VoteCount
from app.types import Rejection, SourceKind
from tests.conftest import SECRET, SHARED_DATA

pytestmark = [pytest.mark.realdata, pytest.mark.timeout(400)]

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


def read_files(app: Application, paths: list[Path], now: datetime) -> FileImportResult:
    """Ingest files without training models on them, which other tests do."""
    return polling.read_files(app.poll_context, paths, now, None, None)


def all_rows(app: Application) -> dict[str, list[dict[str, Any]]]:
    """Return every row of every table that ingestion writes."""
    with app.db.read() as session:
        tables = (Source, Paper, Listing, VoteCount, Merge)
        return {
            table.__name__: [row.model_dump() for row in session.exec(select(table).order_by(col(table.id)))]
            for table in tables
        }


def test_counts_of_all_recorded_responses(new_database_url: Callable[[], str], tmp_path: Path) -> None:
    """Check each folder's counts and the unreadable files. A second run a day later adds nothing."""
    app = make_app(new_database_url(), tmp_path)
    read = {folder: read_files(app, files(folder), NOW) for folder in FOLDERS}
    assert {folder: check_counts(summary) for folder, summary in read.items()} == EXPECTED
    assert_known_rejections(
        [rejection for summary in read.values() for rejection in summary.summary.rejections]
    )
    assert_no_duplicates(app)
    before = all_rows(app)
    for folder in FOLDERS:
        summary = read_files(app, files(folder), NOW + timedelta(days=1)).summary.counts()
        assert summary["unchanged"] == summary["rows"]
        assert summary["listings"] == 0
    assert all_rows(app) == before
    app.db.dispose()


def check_counts(read: FileImportResult) -> tuple[int, ...]:
    """Return the counts of a folder, after checking that each row is counted once."""
    counts = read.summary.counts()
    numbered = sum(rejection.row is not None for rejection in read.summary.rejections)
    ended = (
        counts["papers_new"] + counts["papers_merged"] + counts["changed"] + counts["unchanged"] + numbered
    )
    assert counts["rows"] == ended
    names = ("rows", "papers_new", "papers_merged", "changed", "unchanged", "listings", "rejected")
    return read.files, *(counts[name] for name in names)


def assert_known_rejections(rejections: Sequence[Rejection]) -> None:
    """Check the recorded error of the query API and the truncated feed."""
    assert [(Path(rejection.origin).name, rejection.reason, rejection.row) for rejection in rejections] == [
        ("id_abc_s0_m100_b79c8dcf6bc3.json", "the file cannot be read", None),
        ("cs.AI-2025-08-20-truncated.xml", "the response was cut off", None),
    ]
    assert "incorrect id format for abc" in rejections[0].detail
    assert "86 complete entries were read" in rejections[1].detail


def assert_no_duplicates(app: Application) -> None:
    """Check papers, listings, votes and merges by query."""
    with app.db.read() as session:
        papers = session.exec(select(func.count()).where(col(Paper.merged_into_id).is_(None))).one()
        listings = session.exec(select(func.count(col(Listing.id)))).one()
        votes = session.exec(select(func.count(col(VoteCount.id)))).one()
        merged = session.exec(select(Merge.reason)).all()
    assert papers == sum(expected[2] for expected in EXPECTED.values()) == 4475
    assert listings == sum(expected[6] for expected in EXPECTED.values()) == 5674
    assert votes == 2242
    assert merged == ["same title", "same title"]


def test_recorded_python_literals() -> None:
    """Four archives have 66 rows: all are readable, and no code is run."""
    literal_files = [SHARED_DATA / "hf_daily" / f"{day}.json" for day in BROKEN_DAYS]
    check_counts = [
        len(parse_file(path.name, path.read_bytes(), NOW.date()).parsed.records) for path in literal_files
    ]
    assert check_counts == [26, 18, 13, 9]


BROKEN_DAYS = ("2024-12-11", "2024-12-12", "2025-01-09", "2025-01-10")


def test_five_search_pages_give_159_papers(new_database_url: Callable[[], str], tmp_path: Path) -> None:
    """They have no ids, and 32 papers are on more than one page."""
    app = make_app(new_database_url(), tmp_path)
    summary = read_files(app, files("search_pages"), NOW).summary
    app.db.dispose()
    assert (summary.rows, summary.papers_new, summary.papers_merged) == (PAGE_ROWS, PAGE_PAPERS, 0)


@pytest.mark.once
def test_result_does_not_depend_on_the_order_of_files(
    new_database_url: Callable[[], str], tmp_path: Path
) -> None:
    """Fields, listings and votes are the same in two orders."""
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
        read_files(app, shuffled, NOW)
        results.append(final_papers(app))
        app.db.dispose()
    assert results[0] == results[1]


def final_papers(app: Application) -> set[str]:
    """Return the papers with listings and votes, without row ids."""
    with app.db.read() as session:
        kinds: dict[int | None, SourceKind] = {row.id: row.kind for row in session.exec(select(Source))}
        listings: dict[int, list[str]] = {}
        for listing in session.exec(select(Listing)):
            listed = f"{kinds[listing.source_id]} {listing.listed_on} {listing.rank}"
            listings.setdefault(listing.paper_id, []).append(listed)
        for votes in session.exec(select(VoteCount)):
            listed = f"{kinds[votes.source_id]} {votes.at} {votes.upvotes} {votes.comments} {votes.stars}"
            listings.setdefault(votes.paper_id, []).append(listed)
        columns = (*field_precedence.FIELDS, "arxiv_id", "doi", "author_count", "published_on")
        columns += ("first_listed_on",)
        return {
            json.dumps(
                [str(getattr(paper, name)) for name in columns] + sorted(listings.get(paper.id or 0, []))
            )
            for paper in session.exec(select(Paper).where(col(Paper.merged_into_id).is_(None)))
        }
