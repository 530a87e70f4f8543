"""Test write locks: they are held briefly, and requests that wait too long get 503 with Retry-After."""

import json
import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import create_engine, event, text
from sqlmodel import Session, insert, select

from app import main, pipeline
from app.application import Application
from app.errors import SourceError
from app.papers import dedupe, duplicate_candidates, ingest, polling, source_registry
from app.papers.sources.state import FetchedPage
from app.papers.title_normalization import Title, title_end, title_key
from app.storage import api_keys, live_processes
from app.storage.api_keys import Scope
from app.storage.models import Paper, Source
from app.types import IngestSummary, PaperRecord, ParseResult, SourceKind
from app.web import security
from tests.support import stored_records

SIMILAR, NEW = 3_000, 100
FORM = {"cadence": "daily", "weekday": "0", "hour": "8", "zone": "UTC", "interest": "birds"}
WORDS = [f"{a}{b}" for a in ("grap", "latt", "mosa", "pris", "quar") for b in ("h", "ice", "ic", "m", "tz")]


@contextmanager
def lock_database(app: Application) -> Iterator[None]:
    """Hold the write lock on a separate connection."""
    other = create_engine(app.db.url, isolation_level="AUTOCOMMIT")
    with other.connect() as connection:
        postgres = connection.dialect.name == "postgresql"
        connection.execute(text("BEGIN" if postgres else "BEGIN IMMEDIATE"))
        if postgres:
            connection.execute(text("LOCK TABLE subscriber, suppression, paper IN EXCLUSIVE MODE"))
        try:
            yield
        finally:
            connection.execute(text("ROLLBACK"))
    other.dispose()


@pytest.fixture
def visitor(app: Application, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    """Return a client of a service that waits only briefly for a lock."""
    monkeypatch.setattr(security, "WEB_BUSY_TIMEOUT_MS", 20)
    with TestClient(main.create_app(app), base_url="https://paperboy.test") as client:
        yield client


def test_sign_up_under_a_lock_can_be_resent(app: Application, visitor: TestClient) -> None:
    """The response has Retry-After and the filled form; sending it signs up."""
    typed = FORM | {
        "email": "alice@example.org",
        "interest": 'birds & "bees"',
        "zone": "Europe/Berlin",
        "liked": "a\nb",
    }
    with lock_database(app):
        answer = visitor.post("/subscribe", data=typed)
    assert answer.status_code == 503
    assert int(answer.headers["Retry-After"]) > 0
    fields = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)"', answer.text)
    hidden = {name: unescape(value) for name, value in fields}
    assert {name: value.replace("\r", "") for name, value in hidden.items()} == typed
    assert visitor.post("/subscribe", data=hidden | {"liked": ""}).status_code == 200


@pytest.mark.parametrize("path", ["/manage", "/subscribe"])
def test_forms_never_fail_with_500_under_a_lock(app: Application, visitor: TestClient, path: str) -> None:
    """The status is 503 or that of the usual page."""
    with lock_database(app):
        assert visitor.post(path, data=FORM | {"email": "bob@example.org"}).status_code in (200, 503)


def test_api_returns_503_with_retry_after(app: Application, visitor: TestClient, now: datetime) -> None:
    """The body is a problem document. Read requests still work."""
    with app.db.write() as session:
        key = api_keys.create(session, "lab", [Scope.READ, Scope.WRITE], now)[1]
    caller = {"Authorization": f"Bearer {key}"}
    visitor.get("/api/v1/papers", headers=caller).raise_for_status()  # records the use of the key
    with lock_database(app):
        suppression = {"email": "carol@example.org", "reason": "asked by phone"}
        answer = visitor.post("/api/v1/suppressions", headers=caller, json=suppression)
        assert visitor.get("/api/v1/papers", headers=caller).status_code == 200
    assert answer.status_code == 503
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["Retry-After"]


@pytest.mark.once
def test_a_missing_database_gives_503(app: Application, visitor: TestClient, tmp_path: Path) -> None:
    """The database file cannot be opened, as on a removed disk."""
    app.db.dispose()
    Path(app.db.url.database or "").rename(tmp_path / "away")
    Path(app.db.url.database or "").mkdir()
    for answer in (visitor.get("/"), visitor.post("/manage", data={"email": "bob@example.org"})):
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "10")


# --- storing


def similar_papers(count: int, **fields: Any) -> tuple[PaperRecord, ...]:
    """Return papers whose titles share all words but two, by different authors."""
    draw = random.Random(1)  # noqa: S311 - no secret
    start = " ".join(WORDS[:10])
    return tuple(
        PaperRecord(
            f"{start} {draw.choice(WORDS)} {draw.choice(WORDS)} {number}",
            abstract=" ".join(draw.choices(WORDS, k=60)),
            authors=(f"Ana {number:x}s",),
            **fields,
        )
        for number in range(count)
    )


def source_of(session: Session) -> Source:
    source = session.exec(select(Source).where(Source.kind == SourceKind.FEED)).first()
    if source is None:
        source = Source(name="feed", kind=SourceKind.FEED, created_at=datetime(2026, 11, 20).astimezone())
        session.add(source)
        session.flush()
    return source


class ComparisonCounter:
    """Count compared titles and papers, in total and while the archive is locked."""

    def __init__(self, app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
        self.writing = False
        self.transactions = self.titles = self.titles_locked = self.papers_locked = 0
        event.listen(app.db.engine, "begin", self._begin)
        event.listen(app.db.engine, "commit", self._end)
        is_near_title, same_paper_reason = dedupe._is_near_title, dedupe.same_paper_reason

        def compare_titles(a: Title, b: Title) -> bool:
            self.titles += 1
            self.titles_locked += self.writing
            return is_near_title(a, b)

        def compare_papers(a: dedupe.PaperIdentity, b: dedupe.PaperIdentity) -> str:
            self.papers_locked += self.writing
            return same_paper_reason(a, b)

        monkeypatch.setattr(dedupe, "_is_near_title", compare_titles)
        monkeypatch.setattr(dedupe, "same_paper_reason", compare_papers)

    def _begin(self, connection: Any) -> None:
        self.writing = bool(connection.get_execution_options().get("paperboy_write"))
        self.transactions += self.writing

    def _end(self, _connection: Any) -> None:
        self.writing = False


@pytest.mark.once
def test_similar_titles_are_compared_outside_of_the_lock(
    app: Application, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100 new titles among 3,000 similar ones need no quadratic search, and none under the lock."""
    records = similar_papers(SIMILAR)
    common = {"content_hash": "", "created_at": now, "updated_at": now}
    keys = [title_key(record.title) for record in records[:-NEW]]
    rows = [
        {"title": record.title, "title_key": key, "title_end": title_end(key), **common}
        for record, key in zip(records, keys, strict=False)
    ]
    with app.db.write() as session:
        session.execute(insert(Paper), rows)
    comparisons = ComparisonCounter(app, monkeypatch)
    summary = ingest.store_in_batches(app.db, ParseResult(NEW, records[-NEW:]), now, source_of)
    assert summary.papers_new + summary.papers_merged == NEW
    assert comparisons.transactions == 1
    assert 0 < comparisons.titles <= NEW * (4 * duplicate_candidates.MAX_COMPARED + ingest.BATCH)
    assert comparisons.titles_locked == 0
    assert comparisons.papers_locked <= NEW * 2 * duplicate_candidates.MAX_NEAR


@pytest.mark.once
def test_a_large_file_is_stored_in_short_transactions(
    app: Application, now: datetime, tmp_path: Path
) -> None:
    """Each transaction has at most BATCH rows. Reading the file again changes nothing."""
    rows = [
        {"title": r.title, "arxiv_id": f"2611.{n:05}", "abstract": r.abstract}
        for n, r in enumerate(similar_papers(220))
    ]
    file = tmp_path / "rows.json"
    file.write_text(json.dumps(rows))
    lengths: list[int] = []
    store = ingest._store_batch

    def measured(batch: Any, rows: Any) -> IngestSummary:
        lengths.append(len(rows))
        return store(batch, rows)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ingest, "_store_batch", measured)
        assert pipeline.read_files(app, [file], now).summary.papers_new == 220
    assert max(lengths) <= ingest.BATCH
    assert sum(lengths) == 220
    assert pipeline.read_files(app, [file], now).summary.unchanged == 220


def test_batch_is_inserted_with_one_statement_per_table(app: Application, now: datetime) -> None:
    """Other writers wait meanwhile."""
    inserts: list[str] = []

    def record_insert(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        inserts.extend(re.findall(r"^INSERT INTO (paper|listing|vote_count)\b", statement))

    records = similar_papers(ingest.BATCH, upvotes=3, listed_on=now.date())
    records = tuple(replace(record, arxiv_id=f"2611.{n:05}") for n, record in enumerate(records))
    event.listen(app.db.engine, "before_cursor_execute", record_insert)
    summary = ingest.store_in_batches(app.db, ParseResult(len(records), records), now, source_of)
    event.remove(app.db.engine, "before_cursor_execute", record_insert)
    assert (summary.papers_new, summary.listings) == (ingest.BATCH, ingest.BATCH)
    assert sorted(inserts) == ["listing", "paper", "vote_count"]


def test_crash_between_batches_is_recovered(app: Application, now: datetime) -> None:
    """The source is read again from the same place, because its state changes with the last batch."""
    count = 2 * ingest.BATCH + 30
    parsed = ParseResult(count, similar_papers(count, upvotes=3))
    batches = 0

    def fail_in_third_batch(session: Session) -> Source:
        nonlocal batches
        batches += 1
        if batches == 3:
            raise SourceError("killed")
        return source_of(session)

    finished: list[Source] = []
    with pytest.raises(SourceError):
        ingest.store_in_batches(app.db, parsed, now, fail_in_third_batch, finished.append, polled=True)
    assert not finished
    again = ingest.store_in_batches(app.db, parsed, now, source_of, finished.append, polled=True)
    assert (again.unchanged, again.papers_new) == (2 * ingest.BATCH, 30)
    assert len(finished) == 1
    with app.db.read() as session:
        assert len(session.exec(select(Paper)).all()) == count


def test_a_poll_renews_its_lease_and_records_progress_at_the_end(app: Application, now: datetime) -> None:
    """The lease is renewed with each batch; the ETag is stored with the last one."""
    with app.db.write() as session:
        source = source_of(session)
    holder = live_processes.new_holder()
    group = polling._LeaseGroup(app.poll_context, now, "poll-1", holder, [source], alone=False)
    with app.db.write() as session:
        assert group.renew_lease(session)
    page = FetchedPage(ParseResult(120, similar_papers(120)), etag="new")
    summary = polling._store_page(group, source, page)
    assert summary.papers_new == 120
    with app.db.read() as session:
        assert source_registry.get(session, source.id or 0).etag == "new"


@pytest.mark.once
def test_papers_with_the_same_title_are_limited(app: Application, now: datetime) -> None:
    """50 papers without an id are kept apart; further ones are rejected, also when read again."""
    records = similar_papers(70)
    weekly = tuple(
        replace(
            record,
            title="Weekly update of the reading group",
            abstract=chr(1_000 + n) * 200,
            authors=(),
        )
        for n, record in enumerate(records)
    )
    first = ingest.store_in_batches(app.db, ParseResult(70, weekly), now, source_of)
    assert first.papers_new == 50
    assert {rejection.reason for rejection in first.rejections} == {ingest.COMMON_TITLE}
    again = ingest.store_in_batches(app.db, ParseResult(70, weekly), now, source_of)
    assert (again.unchanged, again.rejected) == (50, 20)


def test_papers_of_another_process_are_compared_too(app: Application, now: datetime) -> None:
    """This includes papers stored after the candidates were found."""
    with_id = PaperRecord("Pigeons That Plan in Small Cities", arxiv_id="2611.00001", authors=("Mei Tanaka",))
    page = PaperRecord("Pigeons That Plan in Small Citys", authors=("Mei Tanaka",))

    def store_concurrently(session: Session) -> Source:
        source = source_of(session)
        stored_records.store(session, source, ParseResult(1, (with_id,)), now)
        return source

    assert (
        ingest.store_in_batches(app.db, ParseResult(1, (page,)), now, store_concurrently).papers_merged == 1
    )
