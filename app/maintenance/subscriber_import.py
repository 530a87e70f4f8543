"""Import subscribers from a CSV file. Record a job run and entries in the audit log.

If required, pause all sending or the first digests of the added subscribers.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import BinaryIO

from sqlmodel import Session, col, update

from app import subscribers
from app.application import Application
from app.delivery import ledger
from app.errors import Conflict
from app.storage import audit_log, job_runs, locks
from app.storage.database import BUSY_TIMEOUT_MS, Database, wait_for_locks
from app.storage.models import SendingPause
from app.text.in_words import count_of
from app.types import Rejection

LOCK_LIFETIME = timedelta(days=1)  # after this, another import may start


@dataclass(frozen=True, slots=True)
class ImportResult:
    """The result of an import, and the id of its job run."""

    report: subscribers.ImportReport
    paused_scope: str | None  # all sending, or the first digests of new subscribers; None: nothing is paused
    run_id: int


def import_subscribers(
    app: Application,
    file: BinaryIO,
    actor: str,
    now: datetime,
    *,
    hold: bool | None = None,
    name: str = "the file",
    run_id: int | None = None,
    after_batch: Callable[[subscribers.ImportReport], None] = lambda _: None,
) -> ImportResult:
    """Add the subscribers in a CSV file, who must have consented elsewhere. Skip invalid rows.

    If `hold` is true, pause all sending first. If it is false, pause nothing; the new subscribers' first
    digests are held only if others are. If it is None, pause all sending if no digest has ever been sent;
    otherwise, hold only first digests. The pause ends if nobody is added. Raise InvalidInput, and change
    nothing, if the file is not a table of subscribers, and Conflict if another import is running. An
    interrupted import can be repeated. `run_id` is the id of a run that has already begun.
    """
    wait_for_locks(BUSY_TIMEOUT_MS)
    contents = subscribers.survey(file, name)  # before the run: an unreadable file is not a failed job
    with _import_lock(app.db, now), job_runs.record(app.db, "import", now, run_id) as run:
        with app.db.write() as session:  # pause first, so that nobody gets a digest during a long import
            is_first = not ledger.any_sent(session)
            scope = ledger.ALL_EDITIONS if hold or is_first else ledger.FIRST_DIGESTS
            rows = count_of(contents.rows, "row")
            audit_log.record(session, actor, "subscriber.import", rows, now, run=run.id)
            has_paused = _pause_for_import(session, actor, now, None if hold is False else scope)

        def record_batch(report: subscribers.ImportReport) -> bool:
            run.counts = Counter(
                rows=report.rows, added=report.added, rejected=report.rejected, total=report.total
            )
            job_runs.store_counts(app.db, run)
            after_batch(report)
            return not app.stopping.is_set()

        defaults = subscribers.default_preferences(app.settings)
        report = subscribers.import_file(app.db, file, defaults, now, name=name, after_batch=record_batch)
        run.reject(Rejection(item.without_address, item.row) for item in report.rejections)
        if not report.is_complete:
            progress = f"{report.rows} of {count_of(report.total, 'row')}"
            run.fail(name, f"stopped after {progress}: import the file again")
        with app.db.write() as session:
            added, skipped = count_of(report.added, "subscriber"), report.rejected
            audit_log.record(session, actor, "subscriber.import", added, now, run=run.id, skipped=skipped)
            if has_paused and not report.added and ledger.end_import_pause(session, now, scope):
                audit_log.record(session, actor, audit_log.PAUSE_ENDED, scope, now)
            is_held = hold is not False or ledger.is_paused(session, scope := ledger.FIRST_DIGESTS)
    return ImportResult(report, scope if is_held and report.added else None, run.id)


@contextmanager
def _import_lock(db: Database, now: datetime) -> Iterator[None]:
    """Let only one import run at a time, on all machines. Raise Conflict if another one is running.

    Two imports would share one pause, so neither could tell whether to end it.
    """
    with locks.hold(db, "import", now, LOCK_LIFETIME) as has_lock:
        if not has_lock:
            raise Conflict("another import is running: wait until it has ended, and import the file again")
        yield


def _pause_for_import(session: Session, actor: str, now: datetime, scope: str | None) -> bool:
    """Pause all sending or the first digests. Return False if `scope` is None or already paused.

    An existing pause of first digests may have begun when the clock was ahead. Let it begin by `now`, so that
    it holds those of this import.
    """
    is_later = (col(SendingPause.edition) == ledger.FIRST_DIGESTS) & (col(SendingPause.since) > now)
    session.execute(update(SendingPause).where(is_later).values(since=now))
    if scope is None or ledger.is_paused(session, scope):
        return False
    ledger.pause(session, ledger.IMPORTED, now, scope)
    audit_log.record(session, actor, audit_log.SENDING_PAUSED, scope, now, reason=ledger.IMPORTED)
    return True
