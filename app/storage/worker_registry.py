"""The registry of the processes that run jobs, and on PostgreSQL the waiting, running and failed jobs.

A worker is registered with its machine and pid, and writes heartbeats with the database's time. It leaves the
registry when it stops. A killed worker remains listed for FORGET_AFTER.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from threading import Event, Thread

import structlog
from sqlalchemy import delete, func, text, update
from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import Session, col, select

from app.storage import demo_clock, live_processes
from app.storage.column_types import UtcDateTime
from app.storage.database import Database
from app.storage.inserts import insert_or_ignore
from app.storage.models import WorkerRow

HEARTBEAT_SECONDS = 10.0
LOST_AFTER = timedelta(minutes=1)  # without a heartbeat
FORGET_AFTER = timedelta(days=1)
_NOW = func.now(type_=UtcDateTime())
# The last event of a job gives the time at which the job entered its state.
_JOBS = text("""
    SELECT job.task_name, CAST(job.status AS text), count(*), min(event.at), max(event.at)
    FROM procrastinate_jobs AS job
    CROSS JOIN LATERAL (SELECT max(at) AS at FROM procrastinate_events WHERE job_id = job.id) AS event
    WHERE job.status IN ('todo', 'doing', 'failed')
        AND (job.scheduled_at IS NULL OR job.scheduled_at <= now() OR job.status <> 'todo')
    GROUP BY 1, 2 ORDER BY 1, 2
""")
_STATES = {"todo": "waiting", "doing": "running", "failed": "failed"}

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """A process that runs jobs. `lost` means that it has written no heartbeat for LOST_AFTER."""

    name: str
    started_at: datetime
    seen_at: datetime
    lost: bool


@dataclass(frozen=True, slots=True)
class JobCount:
    """The number of jobs with one name and state, and the times at which the first and last entered it."""

    job: str
    state: str
    count: int
    since: datetime
    newest: datetime


@contextmanager
def registered(db: Database) -> Iterator[None]:
    """Register this process as a worker during the block, with a heartbeat from a thread."""
    name, stopped = live_processes.process_name(), Event()
    thread = Thread(target=_beat_until, args=(db, name, stopped), name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def _beat_until(db: Database, name: str, stopped: Event) -> None:
    """Write heartbeats until `stopped` is set, and then remove the worker from the registry.

    Log only the first failure of an outage, and its end.
    """
    error = None
    while not stopped.is_set():
        last_error, error = error, _try_to_write(db, partial(_beat, name=name))
        if error and not last_error:
            log.warning("could not write a heartbeat; trying again", error=str(error))
        elif last_error and not error:
            log.info("heartbeats are written again")
        stopped.wait(HEARTBEAT_SECONDS)
    own = delete(WorkerRow).where(col(WorkerRow.name) == name)
    if fault := _try_to_write(db, lambda session: session.execute(own)):
        log.warning("could not remove this process from the list of workers", error=str(fault))


def _try_to_write(db: Database, change: Callable[[Session], object]) -> SQLAlchemyError | None:
    """Make a change, and return the error if it fails, because jobs do not depend on the registry."""
    try:
        with db.write() as session:
            change(session)
    except SQLAlchemyError as error:
        return error
    return None


def _beat(session: Session, name: str) -> None:
    """Write a heartbeat. If the worker is not registered, register it, and delete workers lost long ago."""
    own = update(WorkerRow).where(col(WorkerRow.name) == name).values(seen_at=_NOW)
    if not session.connection().execute(own).rowcount:
        now = _database_time(session)
        insert_or_ignore(session, WorkerRow, ["name"], name=name, started_at=now, seen_at=now)
        session.execute(delete(WorkerRow).where(col(WorkerRow.seen_at) < now - FORGET_AFTER))


def statuses(session: Session) -> Sequence[WorkerStatus]:
    """Return all registered workers, the oldest first."""
    now = _database_time(session)
    rows = session.exec(select(WorkerRow).order_by(col(WorkerRow.started_at), col(WorkerRow.name)))
    return [
        WorkerStatus(row.name, row.started_at, row.seen_at, lost=row.seen_at < now - LOST_AFTER)
        for row in rows
        if row.seen_at >= now - FORGET_AFTER
    ]


def start_advice(db: Database) -> str:
    """Return how to start a process that runs jobs. The demo needs none."""
    if demo_clock.belongs_to_demo(db):
        return "the demo needs none, because the button on its mailboxes page sends the due emails"
    return "start `paperboy serve` with PAPERBOY_SCHEDULER=true, or `paperboy worker`"


def job_counts(session: Session) -> Sequence[JobCount]:
    """Count the waiting, running and failed jobs by name. SQLite has no stored jobs to count."""
    if session.get_bind().dialect.name != "postgresql":
        return []
    return [JobCount(job, _STATES[state], *rest) for job, state, *rest in session.execute(_JOBS)]


def _database_time(session: Session) -> datetime:
    now: datetime = session.execute(select(_NOW)).scalar_one()
    return now
