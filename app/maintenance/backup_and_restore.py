"""Back up the database and the journals to a file, check it, and restore it, with all sending paused."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

import structlog
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import col, select

from app import bounces
from app.application import Application
from app.clock import Timeline
from app.errors import Conflict, InvalidInput
from app.maintenance import after_restore
from app.settings import Settings
from app.storage import backup_file, job_runs, live_processes, schema
from app.storage.backup_file import Manifest
from app.storage.database import Database, existing_file, has_log, sqlite_file
from app.storage.database_errors import is_unavailable, sqlite_code
from app.storage.models import JobRun, SendingPause

log = structlog.get_logger(__name__)

# Primary result codes with which SQLite refuses to open a database because it cannot create files beside it.
_CANNOT_CREATE_FILES = (
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_READONLY,
)
RESTORING = "a restore of the backup of {} is running, or was interrupted: in that case, repeat it"


@contextmanager
def readable_url(url: str, target: Path) -> Iterator[str]:
    """Yield the URL at which a backup to `target` can read a database.

    On a full or read-only disk, SQLite cannot create its files beside the database, so it cannot open a
    database that no process uses. Then yield a read-only URL: of the database or, if it has a log, of a
    temporary copy beside `target`. Raise InvalidInput if `target` or the copy cannot be created.
    """
    location = make_url(url)
    file = sqlite_file(location)
    if not file or not file.exists() or _can_open(file):
        yield url
        return
    backup_file.check_target(target)
    with TemporaryDirectory(prefix=".paperboy-", dir=target.parent) as folder:
        if has_log(file):
            copy = Path(folder) / file.name
            try:
                for suffix in ("", "-wal"):
                    shutil.copyfile(f"{file}{suffix}", f"{copy}{suffix}")
            except OSError as error:
                reason = f"cannot copy {file} to {target.parent}: {error.strerror}"
                raise InvalidInput(
                    f"{reason}: check the permissions, or name a file on another disk"
                ) from None
            location = location.set(database=str(copy))
        yield str(existing_file(location, read_only=True))


def _can_open(file: Path) -> bool:
    """Return whether SQLite can create files beside a database. Ignore all other errors."""
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=rw", uri=True)) as connection:
            connection.execute("SELECT 1 FROM sqlite_master")
    except sqlite3.DatabaseError as error:
        return sqlite_code(error) not in _CANNOT_CREATE_FILES
    return True


def back_up(app: Application, target: Path, now: datetime) -> Manifest:
    """Write a backup while the service is running. Raise InvalidInput if the file cannot be created.

    If the database refuses to record the run, for example because its disk is full, only log a warning.
    """
    backup_file.check_target(target)  # before the run is recorded, because nothing else has failed
    write = partial(
        backup_file.write, app.db, target, Path(app.settings.journal_dir), now, version("paperboy")
    )
    try:
        run_id = job_runs.begin(app.db, job_runs.BACKUP_JOB, now)
    except SQLAlchemyError as error:
        if not is_unavailable(error):
            raise
        manifest = write()
        _warn_unrecorded(error)
        return manifest
    completed = None
    try:
        with job_runs.record(app.db, job_runs.BACKUP_JOB, now, run_id) as run:
            completed = write()
            run.add({"rows": completed.rows})
    except SQLAlchemyError as error:
        if completed is None or not is_unavailable(error):
            raise
        _warn_unrecorded(error)
    return completed


def _warn_unrecorded(error: SQLAlchemyError) -> None:
    reason = str(getattr(error, "orig", None) or error)
    log.warning("the backup was made, but the database refused to record the run", error=reason)


def restore(
    db: Database,
    settings: Settings,
    source: Path,
    manifest: Manifest,
    now: datetime,
    previous: Database | None = None,
) -> after_restore.RestoreReport:
    """Load a backup into an empty database, with all sending paused, and migrate it.

    `previous` is the database that the restored one replaces (see `after_restore.settle`). An interrupted
    restore can be repeated: until it has settled the loaded rows, which it does in one transaction, the
    database is empty or paused with the reason RESTORING. Raise Conflict if the database has other rows, if
    the journal folder contains other journals, if jobs have run since the interruption, or if other processes
    use `previous`, because they would send what the restored service sends. Raise InvalidInput if `previous`
    does not match this release.
    """
    if previous:
        live_processes.refuse_others(previous.engine, "the previous database")
    if previous and (fault := schema.revision_fault(previous) or schema.table_fault(previous)):
        raise InvalidInput(
            f"the previous database cannot be used ({fault.message}): {fault.fix_previous}, "
            "or restore without --previous"
        )
    journals, pause_reason = Path(settings.journal_dir), RESTORING.format(manifest.created_at.isoformat())
    is_loaded = was_interrupted(db, journals, manifest, pause_reason)
    time = Timeline(now, db.skew)
    if not is_loaded:
        backup_file.load(settings.database_url, source, manifest, pause_reason, now)
    schema.migrate(settings.database_url)
    with db.write() as session:
        loaded = select(SendingPause.since).where(SendingPause.reason == pause_reason).scalar_subquery()
        later = select(JobRun.id).where(JobRun.job != "restore", col(JobRun.started_at) > loaded)
        if session.exec(later).first():  # it may have given ids to new papers that `previous` gave to others
            raise Conflict(
                "the service has run since the restore was interrupted: empty the database and retry"
            )
        job_runs.delete_open(session, job_runs.BACKUP_JOB)  # the run that made the backup
    # The run is recorded only now, because its table did not exist before.
    with job_runs.record(db, "restore", time(), job_runs.begin(db, "restore", now)) as run:
        backup_file.restore_journals(source, manifest, journals)
        report = after_restore.settle(
            db, journals, manifest.created_at, now, bounces.record_refusal, previous
        )
        run.add({"rows": manifest.rows, "recovered": report.recovered, "waiting": report.waiting})
        run.add({"due_since": report.due_since.total()})
    return report


def was_interrupted(db: Database, journals: Path, manifest: Manifest, pause_reason: str) -> bool:
    """Return whether an interrupted restore has loaded this backup. If not, the database is empty.

    Raise Conflict if the database has other rows, or the journal folder contains other journals.
    """
    is_empty = backup_file.is_empty(db)
    if not is_empty and (reason := backup_file.pause_reason(db)) != pause_reason:
        if reason == after_restore.PAUSE_REASON:  # perhaps it was interrupted before it printed its report
            raise Conflict(
                "the database in PAPERBOY_DATABASE_URL is not empty: a backup has already been restored; "
                "review `paperboy deliveries --state uncertain` and `paperboy webhooks list`, or, to restore "
                "again, set the URL of a new database"
            )
        raise Conflict(
            "the database in PAPERBOY_DATABASE_URL is not empty: move it away or set the URL of a new one, "
            "then name the old database with --previous"
        )
    restored = set() if is_empty else {Path(name).name for name in manifest.journals}
    if {path.name for path in journals.glob("*.journal")} - restored:
        raise Conflict(f"{journals} contains journals of another database: move them away first")
    return not is_empty
