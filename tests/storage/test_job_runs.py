"""Test that every run of a job is recorded, also a failed one."""

import subprocess
import sys
from datetime import datetime, timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlmodel import select

from app import maintenance
from app.application import Application
from app.errors import SourceError
from app.storage import job_runs
from app.storage.models import JobRun, Lock
from app.types import Rejection

KILLED_PROCESS = """
import os, signal, sys
from datetime import datetime
from app.storage import job_runs
from app.storage.database import Database

with job_runs.record(Database(sys.argv[1]), "prune", datetime.fromisoformat(sys.argv[2])):
    os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does when memory runs out
"""


def stored(app: Application, run_id: int) -> JobRun:
    with app.db.read() as session:
        return session.get_one(JobRun, run_id)


def test_run_is_recorded_while_running_and_after(app: Application, now: datetime) -> None:
    """A run without an end time is running or was killed."""
    with job_runs.record(app.db, "refresh", now) as run:
        assert stored(app, run.id).ended_at is None
        run.add({"rows": 3})
        run.add({"rows": 2, "papers_new": 1})
    row = stored(app, run.id)
    assert (row.job, row.started_at, row.counts) == ("refresh", now, {"rows": 5, "papers_new": 1})
    assert row.ended_at is not None
    assert row.ended_at >= now
    assert row.error == ""


def test_exception_is_recorded_and_raised(app: Application, now: datetime) -> None:
    """Counts from before the exception are stored."""

    def break_down() -> None:
        with job_runs.record(app.db, "refresh", now) as run:
            run.add({"rows": 1})
            raise ZeroDivisionError("by nothing")

    with pytest.raises(ZeroDivisionError):
        break_down()
    row = stored(app, 1)
    assert row.error == "ZeroDivisionError: by nothing"
    assert row.counts == {"rows": 1}
    assert row.ended_at is not None


def test_failed_part_is_recorded_and_the_run_continues(app: Application, now: datetime) -> None:
    """Each failure is a line with the name of the part."""
    with job_runs.record(app.db, "refresh", now) as run:
        run.fail("hf", SourceError("it answered 503"))
        run.fail("arxiv", SourceError("it answered 429"))
    assert stored(app, run.id).error == "hf: it answered 503\narxiv: it answered 429"


def test_failures_apart_from_those_of_some_parts(app: Application, now: datetime) -> None:
    """It is the part that counts, not how the error's text begins or how many lines it has."""
    with job_runs.record(app.db, "refresh", now) as run:
        run.fail("hf", SourceError("it answered 503\nTry again later."))
    row = stored(app, run.id)
    assert job_runs.has_failed(row)
    assert not job_runs.has_failed(row, apart_from=["hf", "arxiv"])
    with pytest.raises(SourceError), job_runs.record(app.db, "refresh", now) as run:
        raise SourceError("hf: it is not a feed")
    assert job_runs.has_failed(stored(app, run.id), apart_from=["hf"])
    with job_runs.record(app.db, "refresh", now) as run:
        pass
    assert not job_runs.has_failed(stored(app, run.id))


def test_listed_rejections_are_limited(app: Application, now: datetime) -> None:
    """A source with a million bad rows does not fill the database. All of them are counted."""
    with job_runs.record(app.db, "refresh", now) as run:
        for page in range(3):
            run.add({"rejected": 300})
            rejected = (Rejection("no title", 300 * page + row, origin="hf") for row in range(1, 301))
            run.reject(rejected)
    row = stored(app, run.id)
    assert row.counts["rejected"] == 900
    assert len(row.rejections) == job_runs.MAX_LISTED
    assert row.rejections[0] == {"origin": "hf", "row": 1, "reason": "no title", "detail": ""}


def test_parameters_of_a_failed_statement_are_not_stored(app: Application, now: datetime) -> None:
    """They may be addresses, which an erasure would not find."""

    def break_down() -> None:
        with job_runs.record(app.db, "import", now), app.db.write() as session:
            session.execute(
                text("SELECT * FROM nowhere WHERE email = :email"), {"email": "alice@example.org"}
            )

    with pytest.raises(DBAPIError):
        break_down()
    with app.db.read() as session:
        error = session.exec(select(JobRun.error)).one()
    assert ("nowhere" in error, "alice" in error) == (True, False)


def test_characters_that_no_database_stores_are_replaced(app: Application, now: datetime) -> None:
    """PostgreSQL rejects NUL, and UTF-8 has no lone surrogates. The run is still recorded."""
    with job_runs.record(app.db, "refresh", now) as run:
        run.fail("feed\x00s", "gone\x00away\ud800, not Müller")
        run.reject([Rejection("no title\x00", 1, "\ud800")])
    row = stored(app, run.id)
    assert row.error == "feed\ufffds: gone\ufffdaway\ufffd, not Müller"
    assert len(row.rejections) == 1
    with app.db.read() as session:
        assert session.exec(select(JobRun.id).where(JobRun.job == "refresh\x00")).all() == []


def test_run_whose_process_is_killed_has_failed(app: Application, now: datetime) -> None:
    """It counts as failed once its process is gone and the lease has passed. Other open runs go on."""
    url = app.db.url.render_as_string(hide_password=False)
    command = [sys.executable, "-c", KILLED_PROCESS, url, now.isoformat()]
    subprocess.run(command, check=False, timeout=60)  # noqa: S603 - our own script
    own = job_runs.begin(app.db, "train", now)
    maintenance.close_killed_runs(app, now + timedelta(minutes=1))
    with app.db.read() as session:
        assert job_runs.failed_jobs(session, now) == []
    later = now + timedelta(minutes=3)
    maintenance.close_killed_runs(app, later)
    with app.db.read() as session:
        (killed,) = job_runs.last_runs(session)
        assert job_runs.failed_jobs(session, now) == ["prune"]
        assert [lock.name for lock in session.exec(select(Lock))] == [f"run {own}"]
    assert (killed.job, killed.ended_at, killed.error) == ("prune", later, job_runs.KILLED)
    assert job_runs.has_failed(killed)


def test_run_that_seemed_killed_stores_its_result(app: Application, now: datetime) -> None:
    """Its process was alive, but had lost its connection."""
    with job_runs.record(app.db, "refresh", now) as run:
        with app.db.write() as session:
            session.exec(select(Lock)).one().holder = "elsewhere:1:0123456789ab:0123456789ab"
        app.db.presence.announce()
        maintenance.close_killed_runs(app, now + timedelta(hours=1))
        assert stored(app, run.id).error == job_runs.KILLED
        run.add({"rows": 3})
    assert (stored(app, run.id).error, stored(app, run.id).counts) == ("", {"rows": 3})
