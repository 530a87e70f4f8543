"""Import subscribers from a CSV file. Record a job run and entries in the audit log.

If required, pause all sending or the first digests of the added subscribers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import BinaryIO

from sqlmodel import Session

from app import subscribers
from app.application import Application
from app.delivery import ledger
from app.storage import audit_log, job_runs
from app.storage.database import BUSY_TIMEOUT_MS, wait_for_locks
from app.text.in_words import count_of
from app.types import Rejection


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

    If `hold` is true, pause all sending first. If it is false, pause nothing. If it is None, pause all
    sending if no digest has ever been sent; otherwise, hold only the first digests of the new subscribers.
    The pause ends if nobody is added. Raise InvalidInput, and change nothing, if the file is not a table of
    subscribers. An interrupted import can be repeated. `run_id` is the id of a run that has already begun.
    """
    wait_for_locks(BUSY_TIMEOUT_MS)
    contents = subscribers.survey(file, name)  # before the run: an unreadable file is not a failed job
    with job_runs.record(app.db, "import", now, run_id) as run:
        with app.db.write() as session:  # pause first, so that nobody gets a digest during a long import
            is_first = not ledger.any_sent(session)
            scope = ledger.ALL_EDITIONS if hold or is_first else ledger.FIRST_DIGESTS
            rows = count_of(contents.rows, "row")
            audit_log.record(session, actor, "subscriber.import", rows, now, run=run.id)
            paused_before = None if hold is False else _pause_for_import(session, actor, now, scope)

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
            run.fail(
                name, f"stopped after {report.rows} of {count_of(report.total, 'row')}: import the file again"
            )
        with app.db.write() as session:
            added, skipped = count_of(report.added, "subscriber"), report.rejected
            audit_log.record(session, actor, "subscriber.import", added, now, run=run.id, skipped=skipped)
            is_unused = hold is not False and not report.added
            if is_unused and ledger.end_import_pause(session, now, scope, paused_before):
                audit_log.record(session, actor, audit_log.PAUSE_ENDED, scope, now)
    return ImportResult(report, scope if hold is not False and report.added else None, run.id)


def _pause_for_import(session: Session, actor: str, now: datetime, scope: str) -> datetime | None:
    """Pause all sending or the first digests. If they were already paused, return since when."""
    before = next((pause.since for pause in ledger.pauses(session) if pause.edition == scope), None)
    ledger.pause(session, ledger.IMPORTED, now, scope)
    if before is None:
        audit_log.record(session, actor, audit_log.SENDING_PAUSED, scope, now, reason=ledger.IMPORTED)
    return before
