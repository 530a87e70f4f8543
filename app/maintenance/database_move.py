"""Move the service to another database. No other process may use the old one at the same time."""

import uuid
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

from sqlalchemy import inspect
from sqlmodel import Session, col, delete, func, select

from app.application import Application
from app.clock import Timeline
from app.delivery import ledger
from app.effective_settings import hide_credentials
from app.errors import Conflict
from app.storage import backup_file, job_runs, live_processes, schema, webhook_endpoints
from app.storage.backup_file import Manifest
from app.storage.database import Database
from app.storage.models import Lock, SendingPause

MOVING = "the database is being moved, or the move was interrupted: in that case, repeat it"


@dataclass(frozen=True, slots=True)
class Move:
    manifest: Manifest  # of the copied data
    pause_reason: str  # why all sending is paused in the new database; "" if it is not paused


def move(app: Application, target_url: str, file: Path, now: datetime) -> Move:
    """Copy everything into another, empty database, compare all tables, and pause the old database for good.

    `file` is the backup from which the copy is made. It is deleted if the move fails. No process may send
    mail in the meantime. An interrupted move can be repeated. If it fails before rows are copied, the pause
    is undone. Raise Conflict if another process is still running, if the database was already moved to this
    target, if the target is the same database or has other rows, or if the copy differs. Raise SchemaError if
    the target belongs to a newer release, and InvalidInput if `file` exists.
    """
    target = Database(target_url)
    time = Timeline(now, target.skew)
    try:
        live_processes.refuse_others(app.db.engine)
        is_empty = prepare_target(target, target_url)  # first, because the target may be unreachable
        refuse_same(app.db, target, now)
        backup_file.check_target(file)
        has_paused = pause_old(app.db, target, now, is_empty=is_empty)
        manifest, is_copying = None, False
        try:
            manifest = backup_file.write(
                app.db, file, Path(app.settings.journal_dir), now, version("paperboy")
            )
            if is_empty:
                is_copying = True
                backup_file.load(target_url, file, manifest, MOVING, now)
            if differing := backup_file.differing_tables(target, file, manifest):
                raise Conflict(
                    f"the target differs from this database in {', '.join(differing)}: "
                    "empty the target and retry"
                )
            is_copying = True
            paused_before = _finish_move(app.db, target, now)
        except BaseException:
            if manifest:
                file.unlink(missing_ok=True)  # it contains addresses, and a repeated move writes a new backup
            if has_paused and not is_copying:
                undo_pause(app.db)
            raise
        # Last, and only in the new database, because a repeated move compares the tables again.
        with job_runs.record(target, "move", time(), job_runs.begin(target, "move", now)) as run:
            run.add({"rows": manifest.rows})
    finally:
        target.dispose()
    return Move(manifest, paused_before)


def prepare_target(target: Database, target_url: str) -> bool:
    """Create the tables of an empty database. Return whether it is empty.

    Raise Conflict if it has rows that no interrupted move has copied, because its tables are of another
    release or program.
    """
    if backup_file.is_empty(target):
        schema.migrate(target_url)
        return True
    if schema.revision_fault(target):
        raise Conflict("the target is not empty: empty it, or name another database")
    return False


def refuse_same(old: Database, target: Database, now: datetime) -> None:
    """Raise Conflict if both are the same database. Their URLs may differ, so look for a new row in both."""
    mark = uuid.uuid4().hex
    of_mark = col(Lock.name) == mark
    with old.write() as session:
        session.add(Lock(name=mark, holder="", until=now))
    try:
        with target.read() as session:
            has_locks = inspect(session.connection()).has_table("lock")
            if has_locks and session.exec(select(func.count()).where(of_mark)).one():
                raise Conflict("the service already uses this database: name another one")
    finally:
        with old.write() as session:
            session.execute(delete(Lock).where(of_mark))


def pause_old(old: Database, target: Database, now: datetime, *, is_empty: bool) -> bool:
    """Pause all sending from the old database. Return False if an interrupted move has paused it already.

    Raise Conflict if the database was already moved to `target`, which is not empty.
    """
    with old.write() as session:
        pause = _pause_of_all(session)
        if pause and pause.reason == _moved_to(target) and not is_empty:
            raise Conflict(
                f"{pause.reason} on {pause.since:%Y-%m-%d} already: set PAPERBOY_DATABASE_URL to the new URL"
            )
        if pause and MOVING in ledger.reasons(pause):
            return False
        if pause:
            pause.reason += ledger.ALSO + MOVING
        else:  # without a webhook event, which would be sent from the new database or after a refused move
            session.add(SendingPause(edition=ledger.ALL_EDITIONS, reason=MOVING, since=now))
    return True


def undo_pause(old: Database) -> None:
    """Undo what `pause_old` did."""
    with old.write() as session:
        ledger.remove_reason(session, MOVING)


def _finish_move(old: Database, new: Database, now: datetime) -> str:
    """Copy the operator's pause, if any, to the new database. Then pause the old database for good.

    Return the reasons for the operator's pause. No email changes, and the old database stays paused, so that
    an interrupted move can be repeated.
    """
    moved, all_sending = _moved_to(new), col(SendingPause.edition) == ledger.ALL_EDITIONS
    with old.write() as session:
        pause = _pause_of_all(session)
        others = [reason for reason in ledger.reasons(pause) if reason != MOVING] if pause else []
        with new.write() as new_session:
            new_session.execute(delete(SendingPause).where(all_sending))
            if pause and others:  # without a webhook event, which a repeated move would find in this database
                copy = SendingPause(edition=pause.edition, reason=ledger.ALSO.join(others), since=pause.since)
                new_session.add(copy)
        session.execute(delete(SendingPause).where(all_sending))
        ledger.pause(session, moved, now)
        webhook_endpoints.disable_all(session, moved, now)
    return ledger.ALSO.join(others)


def _pause_of_all(session: Session) -> SendingPause | None:
    all_sending = select(SendingPause).where(SendingPause.edition == ledger.ALL_EDITIONS)
    return session.exec(all_sending.with_for_update()).first()


def _moved_to(target: Database) -> str:
    """Return the pause reason of a database that was moved to `target`."""
    return f"{ledger.MOVED} to {hide_credentials(target.url.render_as_string(hide_password=False))}"
