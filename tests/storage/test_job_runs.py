"""Test that every run of a job is recorded, also a failed one."""

from datetime import datetime

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlmodel import select

from app.application import Application
from app.errors import SourceError
from app.storage import job_runs
from app.storage.models import JobRun
from app.types import Rejection


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
