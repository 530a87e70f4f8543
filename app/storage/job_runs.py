"""Record each run of a job: its times, its counts, the rows it rejected and its errors.

While a run is open, a row in the table of locks names its process, so that others notice if it is killed.
"""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from itertools import islice, takewhile
from typing import Any, cast

import structlog
from opentelemetry import trace
from sqlalchemy import func
from sqlmodel import Session, col, delete, select

from app import clock
from app.errors import PaperboyError
from app.runtime import tracing
from app.storage import live_processes, locks
from app.storage.database import Database, execute_and_count
from app.storage.models import JobRun, Lock
from app.types import Rejection

MAX_LISTED = 500  # rejections stored per run, so that a broken source does not fill the disk; all are counted
BACKUP_JOB = "backup"
LOCK_PREFIX = "run "  # of the locks of open runs, before the run's id
KILLED = "its process was killed or crashed, or could not store the result"
KEPT_BACKUPS = 3  # the number of runs from which regular backups are recognized

log = structlog.get_logger(__name__)


@dataclass
class JobRunRecorder:
    """The counts, rejections and errors of a run in progress. They are stored when the run ends.

    During a long run, the caller also stores the counts with `store_counts` from time to time.
    """

    id: int
    counts: Counter[str] = field(default_factory=Counter)
    rejections: list[dict[str, Any]] = field(default_factory=list)
    failures: list[tuple[str, str]] = field(default_factory=list)  # (part, error); "" is the run as a whole

    def add(self, counts: Mapping[str, int]) -> None:
        """Add to the run's counts by name."""
        for name, count in counts.items():
            self.counts[name] += count

    def reject(self, rejections: Iterable[Rejection]) -> None:
        """Store rejected rows, up to MAX_LISTED. To count them, use `add`."""
        left = MAX_LISTED - len(self.rejections)
        self.rejections += [asdict(rejection) for rejection in islice(rejections, left)]

    def fail(self, part: str, error: object) -> None:
        """Record an error in one part of the run. The rest of the run continues."""
        self.failures.append((part, str(error)))

    @property
    def error(self) -> str:
        """Return all errors, one per line, or "" if there are none."""
        return "\n".join(f"{part}: {error}" if part else error for part, error in self.failures)


def store_counts(db: Database, recorder: JobRunRecorder) -> None:
    """Store the counts of a run in progress, so that operators can follow it."""
    with db.write() as session:
        row = session.get_one(JobRun, recorder.id)
        row.counts = dict(recorder.counts)
        session.add(row)


def last_runs(session: Session) -> Sequence[JobRun]:
    """Return the last finished run of each job, sorted by the job's name."""
    newest = select(func.max(JobRun.id)).where(col(JobRun.ended_at).is_not(None)).group_by(JobRun.job)
    return session.exec(select(JobRun).where(col(JobRun.id).in_(newest)).order_by(JobRun.job)).all()


def last_backups(session: Session) -> Sequence[JobRun]:
    """Return the last KEPT_BACKUPS successful backups, newest first."""
    ended = select(JobRun).where(JobRun.job == BACKUP_JOB, col(JobRun.ended_at).is_not(None))
    successful = ended.where(JobRun.error == "")
    return session.exec(successful.order_by(col(JobRun.id).desc()).limit(KEPT_BACKUPS)).all()


def prune(session: Session, before: datetime) -> int:
    """Delete runs that began earlier, except the last KEPT_BACKUPS backups. Return their number."""
    backups = [run.id for run in last_backups(session)]
    outdated = delete(JobRun).where(col(JobRun.started_at) < before, col(JobRun.id).not_in(backups))
    return execute_and_count(session, outdated)


def failed_jobs(session: Session, _now: datetime) -> list[str]:
    """Return the names of the jobs whose last run failed."""
    return [run.job for run in last_runs(session) if run.error]


def has_run(session: Session, job: str, since: datetime, until: datetime) -> bool:
    """Return whether a run of a job began between two times."""
    runs = select(JobRun.id).where(JobRun.job == job, col(JobRun.started_at).between(since, until))
    return session.exec(runs.limit(1)).first() is not None


def has_failed(run: JobRun, apart_from: Iterable[str] = ()) -> bool:
    """Return whether a run has errors other than those that `fail` recorded for the parts in `apart_from`."""
    return bool(run.error) and not set(run.failed_parts or [""]).issubset(apart_from)


def is_backing_off(session: Session, job: str, now: datetime, first: timedelta, longest: timedelta) -> bool:
    """Return whether a job is waiting because its last runs failed.

    The wait begins with `first` and doubles with each further failure, up to `longest`.
    """
    is_dated_right = col(JobRun.started_at) <= now + clock.MAX_AHEAD
    newest = select(JobRun).where(JobRun.job == job, is_dated_right).order_by(col(JobRun.id).desc()).limit(10)
    failed = list(takewhile(lambda run: run.error or run.ended_at is None, session.exec(newest).all()))
    return bool(failed) and now < failed[0].started_at + min(first * 2.0 ** (len(failed) - 1), longest)


def begin(db: Database, job: str, now: datetime) -> int:
    """Store a JobRun that `record` will complete, and return its id."""
    with db.write() as session:
        row = JobRun(job=job, started_at=now)
        session.add(row)
        session.flush()
        if presence := session.info.get("presence"):
            presence.announce()
        holder, until = live_processes.new_holder(), now + locks.LEASE
        session.merge(Lock(name=f"{LOCK_PREFIX}{row.id}", holder=holder, until=until, edition=""))
        return cast("int", row.id)


def close_killed(db: Database, now: datetime) -> None:
    """End the open runs whose process is gone, with the error KILLED.

    A process that has only lost its connection ends its run itself, and replaces this error.
    """
    of_runs = select(Lock).where(col(Lock.name).startswith(LOCK_PREFIX), col(Lock.until) <= now)
    with db.read() as session:
        locked = session.exec(of_runs).all()
        dead = [lock.name for lock in locked if live_processes.is_alive(session, lock.holder) is False]
    for run_id in (int(name.removeprefix(LOCK_PREFIX)) for name in dead):
        log.error("run failed", run=run_id, error=KILLED)
        abort(db, run_id, now, KILLED)


def _release(session: Session, run_id: int) -> None:
    session.execute(delete(Lock).where(col(Lock.name) == f"{LOCK_PREFIX}{run_id}"))


def delete_open(session: Session, job: str) -> None:
    """Delete the open runs of a job, and their locks."""
    open_runs = select(JobRun).where(JobRun.job == job, col(JobRun.ended_at).is_(None))
    for row in session.exec(open_runs):
        _release(session, row.id or 0)
        session.delete(row)


def abort(db: Database, run_id: int, now: datetime, error: str) -> None:
    """End a run that `record` did not end. Only release its lock if it has ended or was deleted."""
    with db.write() as session:
        _release(session, run_id)
        row = session.get(JobRun, run_id)
        if row and row.ended_at is None:
            row.ended_at, row.error = now, error
            session.add(row)


@contextmanager
def record(db: Database, job: str, now: datetime, run_id: int | None = None) -> Iterator[JobRunRecorder]:
    """Store a JobRun at the beginning of the block, unless `run_id` is given, and complete it at the end.

    If the block raises an exception, store its message and raise it again.
    """
    recorder = JobRunRecorder(begin(db, job, now) if run_id is None else run_id)
    began = time.monotonic()  # so that the duration is real, even if `now` is simulated
    with tracing.span(f"job {job}", {"job": job, "run": recorder.id}) as span:
        try:
            yield recorder
        except BaseException as error:
            prefix = "" if isinstance(error, PaperboyError) else f"{type(error).__name__}: "
            recorder.fail("", f"{prefix}{error}")
            raise
        finally:
            _finish(db, recorder, job, now + timedelta(seconds=time.monotonic() - began), span)


def _finish(db: Database, recorder: JobRunRecorder, job: str, ended: datetime, span: trace.Span) -> None:
    """Store the outcome of a run, and log it with the ids of its span."""
    with db.write() as session:
        row = session.get_one(JobRun, recorder.id)
        _release(session, recorder.id)
        row.ended_at, row.error = ended, recorder.error
        row.failed_parts = [part for part, _ in recorder.failures]
        row.counts, row.rejections = dict(recorder.counts), recorder.rejections
        session.add(row)
    span.set_attributes({f"counts.{name}": count for name, count in recorder.counts.items()})
    if recorder.failures:
        tracing.fail(span, "the run failed")
        log.error("run failed", job=job, run=recorder.id, error=recorder.error)
    else:
        log.info("run ended", job=job, run=recorder.id, counts=dict(recorder.counts))
