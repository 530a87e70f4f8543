"""Maintain the service as a whole: nightly, or on an operator's request.

import_subscribers()  a CSV file → subscribers
prune()               delete rows whose retention has passed
back_up()             the database and the journals → a file
restore()             a backup → an empty database, with all sending paused
move()                the database → another database, SQLite or PostgreSQL
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import BinaryIO

from sqlmodel import Session, col, delete

from app import bounces, subscribers
from app.application import Application
from app.clock import Timeline
from app.delivery import ledger
from app.digests import after_restore
from app.errors import Conflict, InvalidInput
from app.links import Purpose
from app.papers import pictures, source_history
from app.settings import Settings
from app.storage import (
    admin_sessions,
    audit_log,
    backup,
    hit_counters,
    idempotency_keys,
    job_runs,
    live_processes,
    schema,
    uploads,
    webhook_endpoints,
)
from app.storage.backup import Manifest
from app.storage.database import BUSY_TIMEOUT_MS, Database, wait_for_locks
from app.storage.models import JobRun
from app.text.in_words import count_of
from app.types import Rejection

SENDER_DATA_SINCE = timedelta(days=3)  # more than enough, because pruning runs every night
MOVING = "the database is being moved, or the move was interrupted: in that case, repeat it"
RESTORING = "a restore is running, or was interrupted: in that case, empty the database and repeat it"


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
            paused_here = hold is not False and _pause_for_import(session, actor, now, scope)

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
            if paused_here and not report.added and ledger.end_import_pause(session, now, scope):
                audit_log.record(session, actor, audit_log.PAUSE_ENDED, scope, now)
    paused_scope = scope if hold is not False and report.added else None
    return ImportResult(report, paused_scope, run.id)


def _pause_for_import(session: Session, actor: str, now: datetime, scope: str) -> bool:
    """Pause all sending or the first digests. Return False if they were already paused."""
    paused_before = ledger.is_paused(session, scope)
    ledger.pause(session, ledger.IMPORTED, now, scope)
    if not paused_before:
        audit_log.record(session, actor, audit_log.SENDING_PAUSED, scope, now, reason=ledger.IMPORTED)
    return not paused_before


def prune(app: Application, now: datetime) -> Counter[str]:
    """Delete rows whose retention has passed.

    No paper is sent twice as a result, because papers that old are never sent.

    Deliveries and events are deleted in batches of a few thousand, so that other transactions do not wait
    long. If the service stops, return between two transactions; the next nightly run continues.
    """
    now = app.timeline(now).start
    days = app.settings.retention_days, app.settings.unconfirmed_days, app.settings.run_retention_days
    old, unconfirmed, old_run = (now - timedelta(days=each) for each in days)
    with job_runs.record(app.db, "prune", now) as run:
        with app.db.write() as session:
            run.counts["unconfirmed"] += subscribers.expire_pending(session, unconfirmed, now)
            deleted = session.execute(delete(JobRun).where(col(JobRun.started_at) < old_run))
            run.counts["runs"] += deleted.rowcount  # type: ignore[attr-defined]
            run.counts["polls"] += source_history.prune(session, old_run)
            listed_before = old.date() if app.settings.pictures else None
            run.counts["pictures"] += pictures.prune(session, listed_before)
            run.counts["webhook_messages"] += webhook_endpoints.prune(session, old_run)
            run.counts["cards"] += ledger.prune_snapshots(session, old)
            subscribers.expire_changes(session, now)
            run.counts["requests"] += subscribers.prune_form_submissions(
                session, now, app.signer.lifetimes[Purpose.CONFIRM]
            )
            run.counts["queries"] += subscribers.forget_unused_queries(session)
            hit_counters.prune(session, now)
            admin_sessions.prune(session, now - timedelta(hours=app.settings.admin_session_hours))
            idempotency_keys.prune(session, now)
        uploads.delete_expired(uploads.folder(app.settings.journal_dir), now)
        run.counts.update(events=0, deliveries=0)
        for prune_batch in (ledger.prune_deliveries, ledger.prune_events):
            left = True
            while left and not app.stopping.is_set():
                with app.db.write() as session:
                    batch = prune_batch(session, old)
                run.counts.update(batch)
                left = bool(batch.total())
        run.counts["signatures"] = _drop_sender_data(app, now)
    return run.counts


def _drop_sender_data(app: Application, now: datetime) -> int:
    """Drop what only senders needed of sent emails. Return the number of dropped signatures."""
    count = 0
    with app.db.read() as session:
        first_id = ledger.first_id_since(session, now - SENDER_DATA_SINCE)
    while first_id and not app.stopping.is_set():
        with app.db.write() as session:
            dropped, first_id = ledger.drop_sender_data(session, first_id, now - 2 * ledger.LEASE)
        count += dropped
    return count


def back_up(app: Application, target: Path, now: datetime) -> Manifest:
    """Write a backup while the service is running. Raise InvalidInput if the file exists."""
    with job_runs.record(app.db, "backup", now) as run:
        manifest = backup.write(app.db, target, Path(app.settings.journal_dir), now, version("paperboy"))
        run.add({"rows": manifest.rows})
    return manifest


def restore(
    db: Database,
    settings: Settings,
    source: Path,
    manifest: Manifest,
    now: datetime,
    previous: Database | None = None,
) -> after_restore.RestoreReport:
    """Load a backup into an empty database, with all sending paused, and migrate it.

    After an interrupted restore, the database is empty or paused with the reason RESTORING: empty it and
    restore again.
    """
    if not backup.is_empty(db):
        raise Conflict(
            "the database in PAPERBOY_DATABASE_URL is not empty: move it away or set the URL of a new one, "
            "then name the old database with --previous"
        )
    if previous and (fault := schema.revision_fault(previous) or schema.table_fault(previous)):
        raise InvalidInput(f"the previous database cannot be used: {fault}")
    journals = Path(settings.journal_dir)
    if journals.exists() and any(journals.glob("*.journal")):
        raise Conflict(f"{journals} contains journals of another database: move them away first")
    time = Timeline(now, db.skew)
    backup.load(settings.database_url, source, manifest, RESTORING, now)
    schema.migrate(settings.database_url)
    with db.write() as session:  # delete the run that made the backup: it had not ended
        session.execute(delete(JobRun).where(col(JobRun.job) == "backup", col(JobRun.ended_at).is_(None)))
    # The run is recorded only now, because its table did not exist before.
    with job_runs.record(db, "restore", time(), job_runs.begin(db, "restore", now)) as run:
        backup.restore_journals(source, manifest, journals)
        report = after_restore.settle(
            db, journals, manifest.created_at, now, bounces.record_refusal, previous
        )
        run.add({"rows": manifest.rows, "recovered": report.recovered, "waiting": report.waiting})
        run.add({"due_since": report.due_since.total()})
    return report


def move(app: Application, target_url: str, file: Path, now: datetime) -> Move:
    """Copy everything into another, empty database, compare all tables, and pause the old database for good.

    `file` is the backup from which the copy is made. No process may send mail in the meantime. An interrupted
    move can be repeated. Raise Conflict if another process is still running, if the target has other rows, or
    if the copy differs.
    """
    target = Database(target_url)
    time = Timeline(now, target.skew)
    try:
        if others := live_processes.count_others(app.db.engine):
            raise Conflict(
                f"the database is in use by {others} other process{'es' * (others > 1)}: stop the service"
            )
        with app.db.write() as session:
            pauses = (each for each in ledger.pauses(session) if each.edition == ledger.ALL_EDITIONS)
            reason = next((each.reason for each in pauses), MOVING)
            ledger.pause(session, reason, now)  # pause again, so that an import does not end its own pause
        paused_before = "" if reason == MOVING else reason
        manifest = backup.write(app.db, file, Path(app.settings.journal_dir), now, version("paperboy"))
        if backup.is_empty(target):
            backup.load(target_url, file, manifest, MOVING, now)
        if differing := backup.differing_tables(target, file, manifest):
            raise Conflict(
                f"the target differs from this database in {', '.join(differing)}: empty it and retry"
            )
        _finish_move(app.db, target, paused_before, now)
        # Last, and only in the new database, because a repeated move compares the tables again.
        with job_runs.record(target, "move", time(), job_runs.begin(target, "move", now)) as run:
            run.add({"rows": manifest.rows})
    finally:
        target.dispose()
    return Move(manifest, paused_before)


@dataclass(frozen=True, slots=True)
class Move:
    """A completed move: the manifest of the copied data, and why the new database is paused ("" if not)."""

    manifest: Manifest
    pause_reason: str


def _finish_move(old: Database, new: Database, paused_before: str, now: datetime) -> None:
    """Copy the operator's pause, if any, to the new database. Then pause the old database for good."""
    moved = f"{ledger.MOVED} to {new.url.render_as_string(hide_password=True)}"
    for db, reason in ((new, paused_before), (old, moved)):
        with db.write() as session:
            ledger.resume(session, force=True)
            if reason:
                ledger.pause(session, reason, now)
            if db is old:  # last, because a repeated move compares the tables again
                webhook_endpoints.disable_all(session, moved, now)
