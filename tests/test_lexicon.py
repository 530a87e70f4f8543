"""What was learned is kept: a new model replaces the old one whole, or not at all, and nobody waits."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog
from sqlalchemy import delete, event, update
from sqlmodel import Session, col, select

from app import pipeline
from app.application import Application
from app.relevance import model, model_store
from app.relevance.model import RelevanceModel
from app.relevance.model_store import KEPT, YOUNG, ModelStore
from app.storage import locks
from app.storage.models import JobRun, Paper, TrainedModel
from tests import shelves
from tests.conftest import NOW

HOUR = timedelta(hours=1)
SHIPPED = RelevanceModel.shipped().statistics


def fill(app: Application, first: int, count: int) -> None:
    with app.db.write() as session:
        shelves.archive(session, count, NOW, first)


def current(app: Application) -> RelevanceModel:
    with app.db.read() as session:
        return app.models.current(session)


def zebrafish(app: Application) -> int:
    """In how many papers the word is, as far as is known: that tells one model from another."""
    return current(app).statistics.frequencies.get("zebrafish", 0)


def versions(app: Application) -> list[tuple[int, bool, bool]]:
    """Each model's papers, whether it is without fault, whether it is in use."""
    with app.db.read() as session:
        return [(each.archive.papers, not each.fault, each.in_use) for each in app.models.versions(session)]


def restarted(app: Application) -> Application:
    """The same service in another process, which has read nothing yet."""
    return replace(app, models=ModelStore())


def spoil(app: Application, data: bytes | None = None) -> None:
    """Cut the newest model short, or put other bytes in its place."""
    with app.db.write() as session:
        row = session.exec(select(TrainedModel).order_by(col(TrainedModel.id).desc())).first()
        assert row
        row.data = row.data[:-40] if data is None else data


@pytest.fixture
def learned(app: Application) -> Application:
    """A service that has learned from its first papers."""
    fill(app, 0, YOUNG)
    assert pipeline.learn(app, NOW).model_id
    assert zebrafish(app) == YOUNG
    return app


# --- what is learned, and when


def test_a_young_archive_teaches_nothing(app: Application) -> None:
    """299 papers say little of what is common in the field: the shipped counts serve."""
    fill(app, 0, YOUNG - 1)
    lesson = pipeline.learn(app, NOW)
    assert (lesson.model_id, lesson.papers) == (None, YOUNG - 1)
    assert "young" in lesson.why_not
    assert current(app).statistics == SHIPPED
    assert versions(app) == []


def test_a_grown_archive_speaks_for_itself(learned: Application) -> None:
    """In this process, in one that starts later, and in the run's record."""
    assert zebrafish(restarted(learned)) == YOUNG
    with learned.db.read() as session:
        run = session.exec(select(JobRun)).one()
    assert (run.job, run.counts, run.error) == ("learn", {"papers": YOUNG, "models": 1}, "")


def test_nothing_is_fitted_where_nothing_changed(learned: Application) -> None:
    """One paper more, or another text of one, is a change; the same night again is none."""
    assert "nothing has changed" in pipeline.learn(learned, NOW + HOUR).why_not
    fill(learned, YOUNG, 1)
    assert pipeline.learn(learned, NOW + HOUR).model_id
    with learned.db.write() as session:
        session.connection().execute(
            update(Paper).where(col(Paper.id) == 1).values(title="Axolotls", updated_at=NOW + HOUR)
        )
    assert pipeline.learn(learned, NOW + 2 * HOUR).model_id
    assert zebrafish(learned) == YOUNG
    assert len(versions(learned)) == 3


def test_merged_papers_count_once(app: Application) -> None:
    """A row that proved to be another paper's is no paper of the archive."""
    fill(app, 0, YOUNG)
    with app.db.write() as session:
        session.connection().execute(update(Paper).where(col(Paper.id) == 1).values(merged_into_id=2))
    assert pipeline.learn(app, NOW).papers == YOUNG - 1
    fill(app, YOUNG, 1)
    pipeline.learn(app, NOW)
    assert zebrafish(app) == YOUNG


def test_only_the_newest_papers_are_read(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """What people wrote long ago says little of how they write now; it still counts as archive."""
    monkeypatch.setattr(model_store, "NEWEST", 200)
    fill(app, 0, YOUNG)
    assert pipeline.learn(app, NOW).papers == YOUNG
    assert current(app).statistics.papers == 200
    assert "nothing has changed" in pipeline.learn(app, NOW).why_not


def test_the_newest_three_are_kept(learned: Application) -> None:
    """One to use, and two to go back to."""
    for more in range(1, KEPT + 1):
        fill(learned, YOUNG + more, 1)
        pipeline.learn(learned, NOW + more * HOUR)
    assert versions(learned) == [
        (YOUNG + 3, True, True),
        (YOUNG + 2, True, False),
        (YOUNG + 1, True, False),
    ]


# --- the intake


def pages(folder: Path, first: int, count: int) -> list[Path]:
    """A saved answer with so many papers."""
    file = folder / f"{first}.jsonl"
    told = ["the brain of larvae", "the fins of adults", "the heart of embryos", "the eggs of mothers"]
    file.write_text(
        "".join(
            f'{{"id": "2611.{number:05}", "title": "Zebrafish {number}: {told[number % 4]} under light"}}\n'
            for number in range(first, first + count)
        )
    )
    return [file]


def test_the_first_intake_teaches(app: Application, tmp_path: Path) -> None:
    """And the next ones do so once the archive has grown by half."""
    assert pipeline.read_files(app, pages(tmp_path, 1, YOUNG), NOW).summary.papers_new == YOUNG
    assert zebrafish(app) == YOUNG
    half = YOUNG // 2
    pipeline.read_files(app, pages(tmp_path, 1_000, half), NOW)
    assert zebrafish(app) == YOUNG
    pipeline.read_files(app, pages(tmp_path, 2_000, 1), NOW)
    assert zebrafish(app) == YOUNG + half + 1
    with app.db.read() as session:
        assert session.exec(select(JobRun.job).order_by(col(JobRun.id))).all() == [
            "ingest", "learn", "ingest", "ingest", "learn",
        ]  # fmt: skip


@pytest.mark.parametrize(("polled", "known"), [((), 0), (("arXiv announcements",), YOUNG)])
def test_asking_the_sources_teaches(
    polled: tuple[str, ...], known: int, app: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where one was asked: most ticks of the schedule ask none, and look at nothing."""
    fill(app, 0, YOUNG)
    monkeypatch.setattr(pipeline.polling, "poll", lambda *_: pipeline.PollResult(polled=polled))
    pipeline.refresh(app, NOW)
    assert zebrafish(app) == known


def test_what_fails_in_learning_is_no_fault_of_the_intake(
    app: Application, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The papers are in the archive, the run tells what happened, and the next intake tries again."""
    with monkeypatch.context() as patched:
        patched.setattr(model.RelevanceModel, "of", lambda _papers: 1 / 0)
        read = pipeline.read_files(app, pages(tmp_path, 1, YOUNG), NOW)
    assert (read.summary.papers_new, read.unreadable) == (YOUNG, ())
    with app.db.read() as session:
        errors = dict(session.exec(select(JobRun.job, JobRun.error)).all())
    assert errors == {"ingest": "", "learn": "ZeroDivisionError: division by zero"}
    assert current(app).statistics == SHIPPED
    pipeline.read_files(app, pages(tmp_path, 1_000, 1), NOW)
    assert zebrafish(app) == YOUNG + 1


def test_the_old_model_serves_where_the_new_one_failed(
    learned: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At night nobody catches the fault but the schedule; what was known stays known."""
    fill(learned, YOUNG, 1)
    monkeypatch.setattr(model.RelevanceModel, "of", lambda _papers: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        pipeline.learn(learned, NOW + HOUR)
    assert zebrafish(learned) == YOUNG
    assert versions(learned) == [(YOUNG, True, True)]


def test_one_process_learns_at_a_time(learned: Application) -> None:
    """The other comes back; a lease that its holder left behind runs out."""
    fill(learned, YOUNG, 1)
    with learned.db.write() as session:
        locks.take(session, "learn", "another process", NOW, HOUR)
    assert "another process" in pipeline.learn(learned, NOW).why_not
    assert pipeline.learn(learned, NOW + HOUR).model_id
    with learned.db.write() as session:
        assert locks.take(session, "learn", "a third process", NOW, HOUR), "it was given back"


# --- nobody waits, and nobody sees a half


@contextmanager
def held_up(monkeypatch: pytest.MonkeyPatch, name: str) -> Iterator[threading.Event]:
    """Let `Corpus.of` or `.decode` wait at its beginning, until the block ends; tells when it got there."""
    reached, may_go_on = threading.Event(), threading.Event()
    real = getattr(model.RelevanceModel, name)

    def waiting(given: Any) -> Any:
        reached.set()
        assert may_go_on.wait(timeout=60)
        return real(given)

    with monkeypatch.context() as patched:
        patched.setattr(model.RelevanceModel, name, waiting)
        try:
            yield reached
        finally:
            may_go_on.set()


def test_the_old_model_serves_while_the_new_one_is_fitted(
    learned: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing is locked: papers go on coming in."""
    fill(learned, YOUNG, 1)
    fitting = threading.Thread(target=pipeline.learn, args=(learned, NOW + HOUR))
    with held_up(monkeypatch, "of") as reached:
        fitting.start()
        assert reached.wait(timeout=60)
        assert zebrafish(learned) == YOUNG
        fill(learned, YOUNG + 1, 1)
    fitting.join(timeout=60)
    assert zebrafish(learned) == YOUNG + 1


def test_the_old_model_serves_while_the_new_one_is_read(
    learned: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One thread reads it; no other waits for that."""
    fill(learned, YOUNG, 1)
    pipeline.learn(restarted(learned), NOW + HOUR)
    old = learned.models
    read: list[int] = []
    reading = threading.Thread(target=lambda: read.append(zebrafish(learned)))
    with held_up(monkeypatch, "decode") as reached:
        reading.start()
        assert reached.wait(timeout=60)
        assert zebrafish(learned) == YOUNG
    reading.join(timeout=60)
    assert (read, zebrafish(learned)) == ([YOUNG + 1], YOUNG + 1)
    assert learned.models is old


def test_whoever_learned_it_has_read_it(learned: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the process that learns, which is often the one that serves, no request waits for the reading."""
    fill(learned, YOUNG, 1)
    pipeline.learn(learned, NOW + HOUR)
    monkeypatch.setattr(model.RelevanceModel, "decode", lambda _data: 1 / 0)
    assert zebrafish(learned) == YOUNG + 1


def test_threads_that_begin_together_read_it_once(
    learned: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With nothing to go on with, the others wait for the first."""
    fresh = restarted(learned)
    decoded: list[int] = []
    real = model.RelevanceModel.decode
    monkeypatch.setattr(model.RelevanceModel, "decode", lambda data: decoded.append(len(data)) or real(data))
    threads = [threading.Thread(target=current, args=(fresh,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert len(decoded) == 1


def test_a_reader_sees_the_old_model_or_the_new_one(
    learned: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the transaction ends, nobody knows of the new one; where it fails, nobody ever does."""
    fill(learned, YOUNG, 1)
    real, seen = model_store._store, list[int]()

    def failing(session: Session, *given: Any) -> int:
        real(session, *given)
        seen.append(zebrafish(restarted(learned)))
        raise OSError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(model_store, "_store", failing)
        with pytest.raises(OSError, match="full"):
            pipeline.learn(learned, NOW + HOUR)
    assert seen == [YOUNG]
    assert versions(restarted(learned)) == [(YOUNG, True, True)]


def test_asking_again_is_one_query_without_the_model(learned: Application) -> None:
    """It is asked for with every digest that is looked at."""
    statements: list[str] = []
    event.listen(learned.db.engine, "before_cursor_execute", lambda *told: statements.append(told[2]))
    first = current(learned)
    assert current(learned) is first
    asked = [statement for statement in statements if statement.startswith("SELECT")]
    assert len(asked) == 2
    assert not any("data" in statement for statement in asked)


# --- what is corrupt


@pytest.mark.parametrize(
    "data",
    [None, b"", b"PK\x03\x04", RelevanceModel.shipped().encode()],
    ids=["cut short", "empty", "torn", "another"],
)
def test_a_corrupt_model_is_refused_and_the_last_good_one_used(
    learned: Application, data: bytes | None
) -> None:
    """Also by a process that starts now; it is said once, and the next night makes a new one."""
    fill(learned, YOUNG, 1)
    pipeline.learn(restarted(learned), NOW + HOUR)
    spoil(learned, data)
    fresh = restarted(learned)
    with structlog.testing.capture_logs() as logged:
        assert [zebrafish(app) for app in (learned, fresh, fresh)] == [YOUNG] * 3
        assert versions(fresh) == [(YOUNG + 1, False, False), (YOUNG, True, True)]
        current(fresh)
    assert [entry["event"] for entry in logged] == ["model refused"] * 2, "once in each of two processes"
    assert pipeline.learn(fresh, NOW + 2 * HOUR).model_id
    assert [zebrafish(app) for app in (learned, fresh)] == [YOUNG + 1] * 2


def test_without_a_good_model_the_shipped_counts_serve(learned: Application) -> None:
    """Who has read the last good one holds on to it."""
    spoil(learned)
    fresh = restarted(learned)
    assert current(fresh).statistics == SHIPPED
    assert versions(fresh) == [(YOUNG, False, False)]
    with learned.db.write() as session:
        session.connection().execute(delete(TrainedModel))
    assert zebrafish(learned) == YOUNG


def test_another_version_learns_anew_and_leaves_the_first_one_its_own(
    learned: Application, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """After an upgrade the first intake teaches; a process that still runs the old version serves on."""
    with monkeypatch.context() as upgraded:
        upgraded.setattr(model, "FORMAT", model.FORMAT + 1)
        newer = restarted(learned)
        assert current(newer).statistics == SHIPPED
        with newer.db.read() as session:
            (old,) = newer.models.versions(session)
        assert old.fault == f"This model has format {model.FORMAT - 1}, and {model.FORMAT} is read here."
        pipeline.read_files(newer, pages(tmp_path, 1, 1), NOW + HOUR)
        assert zebrafish(newer) == YOUNG + 1
    assert [zebrafish(app) for app in (learned, restarted(learned))] == [YOUNG] * 2


def test_an_id_that_is_given_again_is_another_model(learned: Application) -> None:
    """SQLite gives the id of a newest row that was deleted to the next one."""
    with learned.db.write() as session:
        session.connection().execute(delete(TrainedModel))
    fill(learned, YOUNG, 1)
    pipeline.learn(restarted(learned), NOW + HOUR)
    assert zebrafish(learned) == YOUNG + 1


def test_only_what_would_be_used_is_worth_a_word(learned: Application) -> None:
    """Where a good model is newer than a torn one, there is nothing to mend."""
    spoil(learned)
    fresh = restarted(learned)
    with fresh.db.read() as session:
        (torn,) = model_store.refused(fresh.models.versions(session))
    assert torn.fault == "Its bytes are not those that were written."
    pipeline.learn(fresh, NOW + HOUR)
    with fresh.db.read() as session:
        assert model_store.refused(fresh.models.versions(session)) == []
