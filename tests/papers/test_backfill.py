"""Test the import of large files: in parts, in short transactions, repeatable, with broken rows."""

import json
import threading
import time
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlmodel import col, func, select

from app import pipeline, subscribers
from app.application import Application
from app.papers import ingest, paper_views, polling, source_registry
from app.papers.sources import files
from app.storage.models import JobRun, Listing, Paper
from app.subscribers import Preferences
from app.types import MAX_REJECTIONS, IngestSummary, Interest, PaperRecord, ParseResult, Rejection, SourceKind

DUMP_ROW = {
    "id": "0704.0001",
    "submitter": "Mei Tanaka",
    "title": "Pigeons That Plan\n  in Large Cities",
    "comments": "This paper has been withdrawn by the authors",
    "doi": "10.1234/birds.1",
    "categories": "cs.AI q-bio.NC",
    "abstract": "  We teach pigeons\nto plan.\n",
    "versions": [
        {"version": "v1", "created": "Mon, 2 Apr 2007 19:18:42 GMT"},
        {"version": "v2", "created": "Tue, 24 Jul 2007 20:10:27 GMT"},
    ],
    "update_date": "2008-11-26",
    "authors_parsed": [["Tanaka", "Mei", ""], ["Silva", "Andr\\'e", "Jr.", "Kyoto"]],
}


def write_rows(path: Path, count: int, **fields: Any) -> Path:
    rows = ({"title": f"Paper {n} about birds", "id": f"0704.{n:05}", **fields} for n in range(count))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_row_of_the_metadata_dump(app: Application, now: datetime, tmp_path: Path) -> None:
    """Its papers have no listing, even if the name of the file has a day."""
    path = tmp_path / "arxiv-metadata-2026-11-20.json"
    other = DUMP_ROW | {"id": "0704.0002", "doi": None, "title": "Another", "comments": None}
    path.write_text(f"{json.dumps(DUMP_ROW)}\n{json.dumps(other)}\n")
    assert pipeline.read_files(app, [path], now).summary.papers_new == 2
    with app.db.read() as session:
        paper, _ = session.exec(select(Paper).order_by(col(Paper.id))).all()
        assert session.exec(select(func.count()).select_from(Listing)).one() == 0
        assert paper_views.candidates(session, date.min, date.max) == []
    assert (paper.arxiv_id, paper.doi) == ("0704.0001", "10.1234/birds.1")
    assert (paper.title, paper.abstract) == ("Pigeons That Plan in Large Cities", "We teach pigeons to plan.")
    assert paper.authors == ["Mei Tanaka", "André Silva Jr."]
    assert paper.categories == ["cs.AI", "q-bio.NC"]
    assert paper.published_on == date(2007, 4, 2)
    assert paper.withdrawn_at == paper.created_at
    assert now <= paper.created_at < now + timedelta(minutes=1), "when the row was stored"


@pytest.mark.parametrize("field", ["authors_parsed", "versions", "categories", "update_date", "comments"])
@pytest.mark.parametrize("value", [None, 7, "x", [7], [[None]], {"a": 1}, [{"created": 7}]])
def test_wrong_types_in_the_dump_lose_only_a_field(tmp_path: Path, field: str, value: object) -> None:
    path = tmp_path / "dump.json"
    path.write_text(f"{json.dumps(DUMP_ROW | {field: value})}\n{json.dumps(DUMP_ROW)}\n")
    [part] = files.read_file(path, date(2026, 11, 20))
    assert [record.title for record in part.parsed.records] == ["Pigeons That Plan in Large Cities"] * 2


@pytest.mark.once
def test_file_is_read_in_parts(
    app: Application, now: datetime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken rows are skipped, counted and named by their number in the file. The run shows the progress."""
    monkeypatch.setattr(files, "ROWS_PER_PART", 40)
    monkeypatch.setattr(ingest, "BATCH", 15)
    path = write_rows(tmp_path / "rows.jsonl", 90)
    lines = path.read_text().splitlines()
    lines[10], lines[50], lines[70] = "{broken", '{"id": "0704.00050"}', '{"title": "NaN", "upvotes": NaN}'
    path.write_text("\ufeff" + "\n\n".join(lines))
    progress: list[int] = []

    def note_progress(*args: Any, **options: Any) -> IngestSummary:
        with app.db.read() as session:
            progress.append(session.exec(select(JobRun)).one().counts.get("rows", 0))
        return store(*args, **options)

    store = ingest.store_in_batches
    monkeypatch.setattr(ingest, "store_in_batches", note_progress)
    summary = pipeline.read_files(app, [path], now).summary
    assert (summary.rows, summary.papers_new, summary.rejected) == (90, 88, 2)
    assert [rejection.row for rejection in summary.rejections] == [11, 51]
    assert progress == [0, 40, 80]


@pytest.mark.once
def test_killed_import_is_repeated(
    app: Application, now: datetime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batches that were stored are unchanged the second time."""
    monkeypatch.setattr(files, "ROWS_PER_PART", 40)
    path = write_rows(tmp_path / "rows.jsonl", 100)
    stored = 0

    def fail_in_third_part(*args: Any, **options: Any) -> IngestSummary:
        nonlocal stored
        stored += 1
        if stored == 3:
            raise KeyboardInterrupt
        return store(*args, **options)

    store = ingest.store_in_batches
    monkeypatch.setattr(ingest, "store_in_batches", fail_in_third_part)
    with pytest.raises(KeyboardInterrupt):
        pipeline.read_files(app, [path], now)
    monkeypatch.setattr(ingest, "store_in_batches", store)
    again = pipeline.read_files(app, [path], now).summary
    assert (again.unchanged, again.papers_new) == (80, 20)


@pytest.mark.once
def test_a_sign_up_during_an_import_is_not_kept_waiting(
    app: Application, now: datetime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others write between the batches. One transaction for the file would keep them waiting to its end."""
    monkeypatch.setattr(ingest, "BATCH", ingest.BATCH // 2)
    path = write_rows(tmp_path / "rows.jsonl", 15 * ingest.BATCH)  # similar titles, which are compared
    ended = threading.Event()

    def read() -> None:
        polling.read_files(app.poll_context, [path], now, None, None)
        ended.set()

    preferences = Preferences(interests=(Interest("birds"),))
    thread = threading.Thread(target=read)
    began = time.perf_counter()
    thread.start()
    waits = []
    while not ended.is_set():
        start = time.perf_counter()
        with app.db.write() as session:
            subscribers.add(session, f"alice{len(waits)}@example.org", preferences, now)
        waits.append(time.perf_counter() - start)
        time.sleep(0.02)
    thread.join()
    assert len(waits) >= 3
    assert max(waits) < (time.perf_counter() - began) / 2


def test_a_batch_with_copies_is_stored_as_one_by_one(app: Application, now: datetime) -> None:
    """Only papers that share nothing with others are inserted in bulk."""
    title = "Pigeons That Plan in the Streets of Large Cities"
    records = (
        PaperRecord("A Paper About Something Else", arxiv_id="2611.00001", listed_on=now.date()),
        PaperRecord(title, arxiv_id="2611.00002", authors=("Mei Tanaka",), as_of=date(2026, 12, 1)),
        PaperRecord(title.replace("Streets", "Street"), authors=("Mei Tanaka",), listed_on=now.date()),
        PaperRecord("", arxiv_id="2611.00003"),
        PaperRecord("Same DOI", doi="10.1/a"),
        PaperRecord("The Same DOI, Other Title", arxiv_id="2611.00004", doi="10.1/a"),
    )
    parsed = ParseResult(len(records), records)
    summary = ingest.store_in_batches(app.db, parsed, now, lambda session: sources_of(session, now))
    assert (summary.papers_new, summary.papers_merged, summary.unchanged) == (3, 2, 1)
    with app.db.read() as session:
        papers = session.exec(select(Paper).order_by(col(Paper.id))).all()
        visible = [paper.title for paper in papers if paper.merged_into_id is None]
        listings = session.exec(select(Listing)).all()
    assert sorted(visible) == sorted([records[0].title, title, records[5].title])
    of_title = next(paper.id for paper in papers if paper.arxiv_id == "2611.00002")
    assert of_title in {listing.paper_id for listing in listings}
    assert all(paper.sourced is None for paper in papers)


def sources_of(session: Any, now: datetime) -> Any:
    return source_registry.source_for_files(session, SourceKind.JSONL, now)


def test_rejections_are_limited() -> None:
    """A file of millions of broken rows does not fill the memory. All are counted."""
    many = IngestSummary(rejections=tuple(Rejection("broken", row) for row in range(MAX_REJECTIONS - 1)))
    total = sum([many, many, IngestSummary(rows=1)], IngestSummary())
    assert len(total.rejections) == MAX_REJECTIONS
    assert total.rejected == 2 * (MAX_REJECTIONS - 1)
    assert total.counts()["rejected"] == total.rejected
