"""Test the model store: training, loading, and falling back from invalid models."""

import signal
import threading
from collections.abc import Callable, Iterator
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
from app.relevance.model_store import MAX_MODELS, ModelStore
from app.storage import locks
from app.storage.models import JobRun, Paper, TrainedModel
from tests.conftest import MIN_PAPERS, NOW
from tests.support import factories
from tests.support.fork_server import ForkServer

pytestmark = pytest.mark.usefixtures("trained_early")

HOUR = timedelta(hours=1)
BUNDLED = RelevanceModel.bundled().statistics


def fill(app: Application, first: int, count: int) -> None:
    """Add papers with "zebrafish" in their titles, numbered from `first`."""
    with app.db.write() as session:
        factories.add_unlisted_papers(session, count, NOW, first)


def current_model(app: Application) -> RelevanceModel:
    with app.db.read() as session:
        return app.models.current(session)


def zebrafish_frequency(app: Application) -> int:
    """Return the word's frequency in the current model, which tells one model from another."""
    return current_model(app).statistics.frequencies.get("zebrafish", 0)


def versions(app: Application) -> list[tuple[int, bool, bool]]:
    """Return (papers, is valid, is in use) of each model."""
    with app.db.read() as session:
        return [
            (model.archive.papers, not model.fault, model.in_use) for model in app.models.versions(session)
        ]


def restart(app: Application) -> Application:
    """Return the same service as in another process, which has loaded no model yet."""
    return replace(app, models=ModelStore())


def corrupt_newest_model(app: Application, data: bytes | None = None) -> None:
    """Truncate the newest model, or replace its bytes."""
    with app.db.write() as session:
        row = session.exec(select(TrainedModel).order_by(col(TrainedModel.id).desc())).first()
        assert row
        row.data = row.data[:-40] if data is None else data


@pytest.fixture
def trained_app(app: Application) -> Application:
    """Return a service with a model trained on its first papers."""
    fill(app, 0, MIN_PAPERS)
    assert pipeline.train(app, NOW).model_id
    assert zebrafish_frequency(app) == MIN_PAPERS
    return app


# --- when a model is trained


def test_a_small_archive_trains_no_model(app: Application) -> None:
    """With one paper too few, the bundled model is used."""
    fill(app, 0, MIN_PAPERS - 1)
    result = pipeline.train(app, NOW)
    assert (result.model_id, result.papers) == (None, MIN_PAPERS - 1)
    assert "too few papers" in result.why_not
    assert current_model(app).statistics == BUNDLED
    assert versions(app) == []


def test_a_large_archive_trains_its_own_model(trained_app: Application) -> None:
    """The model is used in a process that starts later, too, and the job run is recorded."""
    assert zebrafish_frequency(restart(trained_app)) == MIN_PAPERS
    with trained_app.db.read() as session:
        run = session.exec(select(JobRun)).one()
    assert (run.job, run.counts, run.error) == ("train", {"papers": MIN_PAPERS, "models": 1}, "")


def test_an_unchanged_archive_trains_no_model(trained_app: Application) -> None:
    """A new paper or a changed text is a change."""
    assert "nothing has changed" in pipeline.train(trained_app, NOW + HOUR).why_not
    fill(trained_app, MIN_PAPERS, 1)
    assert pipeline.train(trained_app, NOW + HOUR).model_id
    with trained_app.db.write() as session:
        session.connection().execute(
            update(Paper).where(col(Paper.id) == 1).values(title="Axolotls", updated_at=NOW + HOUR)
        )
    assert pipeline.train(trained_app, NOW + 2 * HOUR).model_id
    assert zebrafish_frequency(trained_app) == MIN_PAPERS
    assert len(versions(trained_app)) == 3


def test_merged_papers_count_once(app: Application) -> None:
    """Rows merged into another paper are not counted and not trained on."""
    fill(app, 0, MIN_PAPERS)
    with app.db.write() as session:
        session.connection().execute(update(Paper).where(col(Paper.id) == 1).values(merged_into_id=2))
    assert pipeline.train(app, NOW).papers == MIN_PAPERS - 1
    fill(app, MIN_PAPERS, 1)
    pipeline.train(app, NOW)
    assert zebrafish_frequency(app) == MIN_PAPERS


def test_training_uses_the_newest_papers(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model is trained on MAX_PAPERS papers, but all papers count for the size of the archive."""
    monkeypatch.setattr(model_store, "MAX_PAPERS", 200)
    fill(app, 0, MIN_PAPERS)
    assert pipeline.train(app, NOW).papers == MIN_PAPERS
    assert current_model(app).statistics.papers == 200
    assert "nothing has changed" in pipeline.train(app, NOW).why_not


def test_three_newest_models_are_kept(trained_app: Application) -> None:
    """One is in use, and two are fallbacks."""
    for more in range(1, MAX_MODELS + 1):
        fill(trained_app, MIN_PAPERS + more, 1)
        pipeline.train(trained_app, NOW + more * HOUR)
    assert versions(trained_app) == [
        (MIN_PAPERS + 3, True, True),
        (MIN_PAPERS + 2, True, False),
        (MIN_PAPERS + 1, True, False),
    ]


# --- training after new papers


def papers_file(folder: Path, first: int, count: int) -> list[Path]:
    """Write a file of papers with "zebrafish" in their titles. Return its path in a list."""
    file = folder / f"{first}.jsonl"
    topics = ["the brain of larvae", "the fins of adults", "the heart of embryos", "the eggs of mothers"]
    file.write_text(
        "".join(
            f'{{"id": "2611.{number:05}", "title": "Zebrafish {number}: {topics[number % 4]} under light"}}\n'
            for number in range(first, first + count)
        )
    )
    return [file]


def test_first_import_trains_a_model(app: Application, tmp_path: Path) -> None:
    """The next model is trained once the archive has grown by half."""
    assert (
        pipeline.read_files(app, papers_file(tmp_path, 1, MIN_PAPERS), NOW).summary.papers_new == MIN_PAPERS
    )
    assert zebrafish_frequency(app) == MIN_PAPERS
    half = MIN_PAPERS // 2
    pipeline.read_files(app, papers_file(tmp_path, 1_000, half), NOW)
    assert zebrafish_frequency(app) == MIN_PAPERS
    pipeline.read_files(app, papers_file(tmp_path, 2_000, 1), NOW)
    assert zebrafish_frequency(app) == MIN_PAPERS + half + 1
    with app.db.read() as session:
        assert session.exec(select(JobRun.job).order_by(col(JobRun.id))).all() == [
            "ingest", "train", "ingest", "ingest", "train",
        ]  # fmt: skip


@pytest.mark.parametrize(("polled", "frequency"), [((), 0), (("arXiv announcements",), MIN_PAPERS)])
def test_polling_trains_a_model(
    polled: tuple[str, ...], frequency: int, app: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model is trained only if a source was polled, since most ticks of the schedule poll none."""
    fill(app, 0, MIN_PAPERS)
    monkeypatch.setattr(pipeline.polling, "poll", lambda *_: pipeline.PollResult(polled=polled))
    pipeline.refresh(app, NOW)
    assert zebrafish_frequency(app) == frequency


def test_failed_training_does_not_fail_the_import(
    app: Application, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The papers are stored, the job run has the error, and the next import trains again."""
    with monkeypatch.context() as patched:
        patched.setattr(model.RelevanceModel, "train", lambda _papers: 1 / 0)
        result = pipeline.read_files(app, papers_file(tmp_path, 1, MIN_PAPERS), NOW)
    assert (result.summary.papers_new, result.unreadable) == (MIN_PAPERS, ())
    with app.db.read() as session:
        errors = dict(session.exec(select(JobRun.job, JobRun.error)).all())
    assert errors == {"ingest": "", "train": "ZeroDivisionError: division by zero"}
    assert current_model(app).statistics == BUNDLED
    pipeline.read_files(app, papers_file(tmp_path, 1_000, 1), NOW)
    assert zebrafish_frequency(app) == MIN_PAPERS + 1


def test_old_model_stays_in_use_if_training_fails(
    trained_app: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If training fails, the error is raised and the old model stays in use."""
    fill(trained_app, MIN_PAPERS, 1)
    monkeypatch.setattr(model.RelevanceModel, "train", lambda _papers: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        pipeline.train(trained_app, NOW + HOUR)
    assert zebrafish_frequency(trained_app) == MIN_PAPERS
    assert versions(trained_app) == [(MIN_PAPERS, True, True)]


def test_one_process_trains_at_a_time(trained_app: Application) -> None:
    """The other process gets no lock until the lease ends."""
    fill(trained_app, MIN_PAPERS, 1)
    with trained_app.db.write() as session:
        locks.acquire(session, "train", "another process", NOW, HOUR)
    assert "another process" in pipeline.train(trained_app, NOW).why_not
    assert pipeline.train(trained_app, NOW + HOUR).model_id
    with trained_app.db.write() as session:
        assert locks.acquire(session, "train", "a third process", NOW, HOUR), "the lock was released"


# --- concurrency: nobody waits, and a model is used as a whole


@contextmanager
def pause_method(monkeypatch: pytest.MonkeyPatch, name: str) -> Iterator[threading.Event]:
    """Pause `RelevanceModel.train` or `.decode` until the block ends. Yield an event that is set then."""
    reached, may_go_on = threading.Event(), threading.Event()
    original = getattr(model.RelevanceModel, name)

    def waiting(argument: Any) -> Any:
        reached.set()
        assert may_go_on.wait(timeout=60)
        return original(argument)

    with monkeypatch.context() as patched:
        patched.setattr(model.RelevanceModel, name, waiting)
        try:
            yield reached
        finally:
            may_go_on.set()


def test_old_model_is_used_during_training(trained_app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is locked: papers can be added meanwhile."""
    fill(trained_app, MIN_PAPERS, 1)
    fitting = threading.Thread(target=pipeline.train, args=(trained_app, NOW + HOUR))
    with pause_method(monkeypatch, "train") as reached:
        fitting.start()
        assert reached.wait(timeout=60)
        assert zebrafish_frequency(trained_app) == MIN_PAPERS
        fill(trained_app, MIN_PAPERS + 1, 1)
    fitting.join(timeout=60)
    assert zebrafish_frequency(trained_app) == MIN_PAPERS + 1


def test_old_model_is_used_while_the_new_one_loads(
    trained_app: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One thread loads it; the others do not wait."""
    fill(trained_app, MIN_PAPERS, 1)
    pipeline.train(restart(trained_app), NOW + HOUR)
    old = trained_app.models
    frequencies: list[int] = []
    loading = threading.Thread(target=lambda: frequencies.append(zebrafish_frequency(trained_app)))
    with pause_method(monkeypatch, "decode") as reached:
        loading.start()
        assert reached.wait(timeout=60)
        assert zebrafish_frequency(trained_app) == MIN_PAPERS
    loading.join(timeout=60)
    assert (frequencies, zebrafish_frequency(trained_app)) == ([MIN_PAPERS + 1], MIN_PAPERS + 1)
    assert trained_app.models is old


def test_training_process_has_the_model_loaded(
    trained_app: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that trains often serves requests, too, and they should not wait for loading."""
    fill(trained_app, MIN_PAPERS, 1)
    pipeline.train(trained_app, NOW + HOUR)
    monkeypatch.setattr(model.RelevanceModel, "decode", lambda _data: 1 / 0)
    assert zebrafish_frequency(trained_app) == MIN_PAPERS + 1


def test_concurrent_threads_load_the_model_once(
    trained_app: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an old model, the other threads wait for the first one."""
    fresh = restart(trained_app)
    decoded: list[int] = []
    original = model.RelevanceModel.decode
    monkeypatch.setattr(
        model.RelevanceModel, "decode", lambda data: decoded.append(len(data)) or original(data)
    )
    threads = [threading.Thread(target=current_model, args=(fresh,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert len(decoded) == 1


def test_new_model_is_visible_after_its_transaction(
    trained_app: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new model is visible after its transaction, and never if that fails."""
    fill(trained_app, MIN_PAPERS, 1)
    original, frequencies = model_store._store, list[int]()

    def failing(session: Session, *arguments: Any) -> int:
        original(session, *arguments)
        frequencies.append(zebrafish_frequency(restart(trained_app)))
        raise OSError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(model_store, "_store", failing)
        with pytest.raises(OSError, match="full"):
            pipeline.train(trained_app, NOW + HOUR)
    assert frequencies == [MIN_PAPERS]
    assert versions(restart(trained_app)) == [(MIN_PAPERS, True, True)]


def test_current_model_is_checked_by_one_small_query(trained_app: Application) -> None:
    """Every digest that is shown asks for the current model."""
    statements: list[str] = []
    event.listen(
        trained_app.db.engine, "before_cursor_execute", lambda *arguments: statements.append(arguments[2])
    )
    first = current_model(trained_app)
    assert current_model(trained_app) is first
    selects = [statement for statement in statements if statement.startswith("SELECT")]
    assert len(selects) == 2
    assert not any("data" in statement for statement in selects)


# --- invalid models


@pytest.mark.once
@pytest.mark.parametrize(
    "make_data",
    [lambda: None, lambda: b"", lambda: b"PK\x03\x04", lambda: RelevanceModel.bundled().encode()],
    ids=["truncated", "empty", "no archive", "another model"],
)
def test_corrupt_model_falls_back_to_the_previous_one(
    trained_app: Application, make_data: Callable[[], bytes | None]
) -> None:
    """A new process rejects it, too. Each process logs it once, and the next training replaces it."""
    fill(trained_app, MIN_PAPERS, 1)
    pipeline.train(restart(trained_app), NOW + HOUR)
    corrupt_newest_model(trained_app, make_data())
    fresh = restart(trained_app)
    with structlog.testing.capture_logs() as logged:
        assert [zebrafish_frequency(app) for app in (trained_app, fresh, fresh)] == [MIN_PAPERS] * 3
        assert versions(fresh) == [(MIN_PAPERS + 1, False, False), (MIN_PAPERS, True, True)]
        current_model(fresh)
    assert [entry["event"] for entry in logged] == ["model cannot be used; run `paperboy model train`"] * 2, (
        "once in each of two processes"
    )
    assert pipeline.train(fresh, NOW + 2 * HOUR).model_id
    assert [zebrafish_frequency(app) for app in (trained_app, fresh)] == [MIN_PAPERS + 1] * 2


def test_without_a_valid_model_the_bundled_one_is_used(trained_app: Application) -> None:
    """A process that has loaded a valid model keeps it."""
    corrupt_newest_model(trained_app)
    fresh = restart(trained_app)
    assert current_model(fresh).statistics == BUNDLED
    assert versions(fresh) == [(MIN_PAPERS, False, False)]
    with trained_app.db.write() as session:
        session.connection().execute(delete(TrainedModel))
    assert zebrafish_frequency(trained_app) == MIN_PAPERS


def test_each_version_has_its_own_model(
    trained_app: Application, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """After an upgrade the first import trains a model. Processes of the old version are not affected."""
    with monkeypatch.context() as upgraded:
        upgraded.setattr(model, "FORMAT", model.FORMAT + 1)
        newer = restart(trained_app)
        assert current_model(newer).statistics == BUNDLED
        with newer.db.read() as session:
            (old,) = newer.models.versions(session)
        assert old.fault == (
            f"The model has format {model.FORMAT - 1}, but this release reads format {model.FORMAT}."
        )
        pipeline.read_files(newer, papers_file(tmp_path, 1, 1), NOW + HOUR)
        assert zebrafish_frequency(newer) == MIN_PAPERS + 1
    assert [zebrafish_frequency(app) for app in (trained_app, restart(trained_app))] == [MIN_PAPERS] * 2


def test_reused_row_id_is_another_model(trained_app: Application) -> None:
    """SQLite reuses the id of the newest row after it was deleted."""
    with trained_app.db.write() as session:
        session.connection().execute(delete(TrainedModel))
    fill(trained_app, MIN_PAPERS, 1)
    pipeline.train(restart(trained_app), NOW + HOUR)
    assert zebrafish_frequency(trained_app) == MIN_PAPERS + 1


def test_invalid_models_older_than_the_one_in_use_are_not_reported(trained_app: Application) -> None:
    """An invalid model does not matter once there is a newer valid one."""
    corrupt_newest_model(trained_app)
    fresh = restart(trained_app)
    with fresh.db.read() as session:
        (invalid,) = model_store.rejected_versions(fresh.models.versions(session))
    assert invalid.fault == "The stored bytes do not match their SHA-256 checksum."
    pipeline.train(fresh, NOW + HOUR)
    with fresh.db.read() as session:
        assert model_store.rejected_versions(fresh.models.versions(session)) == []


KILLED = """
    import os, signal
    from sqlalchemy import Engine, event
    from app import main, pipeline
    from app.relevance import model_store

    model_store.MIN_PAPERS = min_papers

    @event.listens_for(Engine, "after_cursor_execute")
    def kill(connection, cursor, statement, *_):
        if "INSERT INTO trained_model" in statement:
            os.kill(os.getpid(), signal.SIGKILL)

    pipeline.train(main.build(settings), now)
"""


def test_killed_training_leaves_the_previous_model(app: Application, processes: ForkServer) -> None:
    """A model is stored whole or not at all, and the next run trains at once."""
    fill(app, 0, MIN_PAPERS)
    killed = processes.run(KILLED, settings=app.settings, now=NOW, min_papers=MIN_PAPERS)
    assert killed == -signal.SIGKILL
    assert versions(app) == []
    assert current_model(app).statistics == BUNDLED
    result = pipeline.train(app, NOW + timedelta(seconds=1))
    assert (result.model_id is not None, result.papers) == (True, MIN_PAPERS)
    assert versions(app) == [(MIN_PAPERS, True, True)]
