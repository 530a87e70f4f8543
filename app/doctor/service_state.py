"""Check the database, and run the checks of its records.

This module checks jobs, workers, the clock, a connection pooler, keys, webhooks, backups and models.
`sources` and `sending` check the rest.
"""

import shlex
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from functools import partial
from itertools import pairwise

from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import Session

from app.digests import clock_check, planning
from app.doctor import sending, sources
from app.doctor.findings import Finding, Remedy, RemedyAction, error, ok, run_check, warning
from app.effective_settings import hide_credentials
from app.errors import ClockError, CorruptModel
from app.papers import picture_fetching, polling, source_registry
from app.relevance import model_store
from app.relevance.model import RelevanceModel
from app.storage import (
    api_keys,
    job_runs,
    live_processes,
    schema,
    webhook_endpoints,
    webhook_outbox,
    worker_registry,
)
from app.storage.database import Database, sqlite_file
from app.storage.database_errors import is_read_only, sqlite_code
from app.storage.figure_cache import FigureReader
from app.text.in_words import count_of

RECENTLY = timedelta(hours=1)
MAX_WAIT = timedelta(minutes=5)  # how long a job may wait for a worker
KEY_EXPIRES_SOON = timedelta(days=30)
GIVEN_UP_RECENTLY = timedelta(days=10)  # since the creation of an event, which is given up after three days
REGULAR_GAP = timedelta(days=8)  # longer than between weekly backups


def check(
    db: Database, models: model_store.ModelStore, now: datetime, figures: FigureReader | None = None
) -> Iterator[Finding]:
    """Check the database. Check its records only if the database is reachable and up to date.

    `figures` limits the age of figures that are slow to count. By default, they are counted anew.
    """
    url = hide_credentials(db.url.render_as_string(hide_password=False))
    if (file := sqlite_file(db.url)) and not file.exists():
        fix = (
            "start the service, or run `paperboy migrate`: both create it; if it should exist, run this "
            "command in Paperboy's folder, or check PAPERBOY_DATABASE_URL"
        )
        yield error("database", f"the file {file.absolute()} does not exist", fix)
        return
    try:
        schema_fault = schema.revision_fault(db) or schema.table_fault(db)
        if not schema_fault:
            db.require_writes()
    except SQLAlchemyError as fault:
        message = str(fault).partition("\n")[0]
        yield error("database", f"{url}: {message}", _database_fix(fault))
        return
    if schema_fault:
        yield error("database", f"{url}: {schema_fault.message}", schema_fault.fix)
        return
    yield ok("database", f"{url} is reachable and up to date")
    figures = figures or FigureReader(db.figures)
    checks: dict[str, Callable[[Session, datetime], Iterable[Finding]]] = {
        "sources": sources.check,
        "jobs": _check_jobs,
        "schedule": sending.check_lateness,
        "clock": _check_clock,
        "pooler": _check_pooler,
        "ledger": partial(sending.check_ledger, figures=figures),
        "workers": _check_workers,
        "sending": sending.check_pauses,
        "receivers": partial(sending.check_receivers, figures=figures),
        "editions": partial(sending.check_unsent, figures=figures),
        "keys": _check_keys,
        "webhooks": _check_webhooks,
        "backup": _check_backups,
        "model": partial(_check_models, models=models),
    }
    for name, check_records in checks.items():
        yield from run_check(name, partial(_in_session, db, check_records, now))


def _in_session(
    db: Database, check_records: Callable[[Session, datetime], Iterable[Finding]], now: datetime
) -> list[Finding]:
    """Run a check in a session of its own, because an error of PostgreSQL ends the use of a session."""
    with db.read() as session:
        return [*check_records(session, now)]


def _database_fix(fault: SQLAlchemyError) -> str:
    code = sqlite_code(fault)
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return "stop the service, and restore a backup; or correct the file name in PAPERBOY_DATABASE_URL"
    if code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
        return "check the disk, and the permissions of the file and its folder"
    if not code and is_read_only(fault):  # PostgreSQL
        return (
            "name the primary server in PAPERBOY_DATABASE_URL, not a standby, or promote the standby; or set "
            "default_transaction_read_only of the server, database and role to off"
        )
    return "check PAPERBOY_DATABASE_URL"


def _check_keys(session: Session, now: datetime) -> Iterator[Finding]:
    for key in api_keys.expiring_keys(session, now + KEY_EXPIRES_SOON):
        assert key.expires_at is not None  # noqa: S101 - the query selects only keys that expire
        name, subject = shlex.quote(key.name), str(key.id)
        if key.expires_at <= now:
            fix = f"run `paperboy key revoke {name}`, and `paperboy key create {name}` if it is still used"
            message, remedy = (
                f"it expired on {key.expires_at:%Y-%m-%d}",
                Remedy(RemedyAction.REVOKE_KEY, subject),
            )
        else:
            fix = f"run `paperboy key rotate {name}` if it is still used, else `paperboy key revoke {name}`"
            message = f"it expires on {key.expires_at:%Y-%m-%d}"
            remedy = Remedy(RemedyAction.REPLACE_KEY, subject)
        yield warning(f"key {key.name}", message, fix, remedy=remedy)


def _check_webhooks(session: Session, now: datetime) -> Iterator[Finding]:
    since = now - GIVEN_UP_RECENTLY
    for endpoint in webhook_endpoints.all_endpoints(session):
        name = f"webhook {webhook_endpoints.label(endpoint)}"
        if endpoint.disabled_at and endpoint.error:
            message = f"it was disabled at {endpoint.disabled_at:%Y-%m-%d %H:%M} UTC: {endpoint.error}"
            fix = f"find out why, then run `paperboy webhooks enable {endpoint.id}`, or remove the webhook"
            remedy = Remedy(RemedyAction.ENABLE_WEBHOOK, str(endpoint.id))
            yield warning(name, message, fix, urgent=True, remedy=remedy)
        elif endpoint.error:
            fix = "check the server that receives the events; failed events are retried for three days"
            yield warning(name, f"it did not accept the last event: {endpoint.error}", fix)
        elif not endpoint.disabled_at and (
            count := webhook_outbox.count_given_up(session, endpoint.id or 0, since)
        ):
            events = count_of(count, "event")
            message = f"Paperboy gave up on {events} of the last ten days, after three days of attempts"
            fix = (
                f"find out why with `paperboy webhooks messages {endpoint.id}`, then send all failed events "
                f"again with `paperboy webhooks resend {endpoint.id}`"
            )
            yield warning(name, message, fix)


def _check_backups(session: Session, now: datetime) -> Iterator[Finding]:
    """Check that regular backups have not stopped.

    Do not warn without backups: operators may use another tool.
    """
    times = [run.started_at for run in job_runs.last_backups(session)]
    if not times:
        advice = (
            "run it daily, for example with deploy/paperboy-backup.timer, unless you back up in another way"
        )
        yield ok("backup", "`paperboy backup` is not in use", advice)
        return
    gaps = [later - earlier for later, earlier in pairwise(times)]
    is_regular = len(times) == job_runs.KEPT_BACKUPS and max(gaps) <= REGULAR_GAP
    if is_regular and now - times[0] > REGULAR_GAP:
        fix = "find out why, for example with `systemctl status paperboy-backup`, and run `paperboy backup`"
        message = f"no backup has been made since {times[0]:%Y-%m-%d %H:%M} UTC"
        yield warning("backup", message, fix, urgent=True)
    else:
        yield ok("backup", f"the last one was made at {times[0]:%Y-%m-%d %H:%M} UTC")


def _check_jobs(session: Session, _now: datetime) -> Iterator[Finding]:
    """Check each job's last finished run.

    Do not report a run that failed only because of failed sources or digests, because they have their own
    findings.
    """
    all_sources = source_registry.all_sources(session)
    failed_sources = [source.name for source in all_sources if sources.has_failed(source)]
    for run in job_runs.last_runs(session):
        when = f"{run.started_at:%Y-%m-%d %H:%M} UTC"
        reported = failed_sources if run.job == polling.JOB else [planning.FAILED_PART]
        if job_runs.has_failed(run, apart_from=reported):
            fix = f"for details, run `paperboy runs {run.id}`, or see GET /api/v1/runs/{run.id} or the log"
            urgent = run.job != picture_fetching.JOB  # nothing waits for pictures
            errors = "; ".join(run.error.splitlines())
            yield warning(f"job {run.job}", f"it failed at {when}: {errors}", fix, urgent=urgent)
        else:
            yield ok(f"job {run.job}", f"it last ran at {when}")


def _check_clock(session: Session, now: datetime) -> Iterator[Finding]:
    """Check that this machine's clock agrees with the database's."""
    try:
        clock_check.check_clock(session, now)
    except ClockError as fault:
        yield error("clock", str(fault), "synchronize both clocks with NTP")
    else:
        yield ok("clock", "this machine's clock agrees with the database's")


def _check_pooler(session: Session, _now: datetime) -> Iterator[Finding]:
    """Check that a connection pooler in front of PostgreSQL uses session pooling."""
    if live_processes.uses_transaction_pooling(session.get_bind().engine):
        message = (
            "the connection pooler gives each transaction another connection, so queries fail, and processes "
            "that have died count as alive"
        )
        fix = "set session pooling (pgbouncer: pool_mode = session), or connect to PostgreSQL directly"
        yield error("pooler", message, fix)


def _check_workers(session: Session, now: datetime) -> Iterator[Finding]:
    """Check the heartbeats of the processes that run jobs, and look for failed and stuck jobs."""
    statuses = worker_registry.statuses(session)
    lost = [status for status in statuses if status.lost]
    for status in lost:
        fix = "find out why it died, and restart it; its emails are recovered, and it stays listed for a day"
        yield warning(f"worker {status.name}", f"it was lost at {status.seen_at:%Y-%m-%d %H:%M} UTC", fix)
    if alive := len(statuses) - len(lost):
        yield ok("workers", f"{alive} {'processes are' if alive > 1 else 'process is'} running jobs")
    elif lost:
        fix = "run `paperboy serve` (with PAPERBOY_SCHEDULER on) or `paperboy worker`"
        yield error("workers", "no process is running jobs", fix)
    for each in worker_registry.job_counts(session):
        since = f"since {each.since:%Y-%m-%d %H:%M} UTC"
        if each.state == "failed" and now - each.newest < RECENTLY:
            fix = f"run `paperboy jobs list_jobs task={each.job} status=failed`; the log says why"
            yield warning(f"failed {each.job}", f"it has failed {count_of(each.count, 'time')} {since}", fix)
        elif each.state == "waiting" and now - each.since > MAX_WAIT:
            fix = "start more workers, unless a long job of this name is running"
            yield warning(f"waiting {each.job}", f"no worker has taken this job {since}", fix)


def _check_models(session: Session, _now: datetime, models: model_store.ModelStore) -> Iterator[Finding]:
    versions = models.versions(session)
    current = next((version for version in versions if version.in_use), None)
    for version in model_store.rejected_versions(versions):
        message = (
            f"number {version.id} from {version.trained_at:%Y-%m-%d %H:%M} UTC is not used: {version.fault}"
        )
        fix = "run `paperboy model train` to train a new model"
        yield warning("model", message, fix, remedy=Remedy(RemedyAction.TRAIN_MODEL))
    if current:
        trained = f"trained on {current.archive.papers} papers at {current.trained_at:%Y-%m-%d %H:%M} UTC"
        yield ok("model", f"number {current.id} is in use, {trained}")
        return
    try:
        RelevanceModel.bundled()
    except CorruptModel as fault:
        yield error("model", "the bundled model cannot be read, so no digest can be composed", str(fault))
        return
    if models.needs_training(session):
        message = "the bundled model is in use, although the archive is large enough to train a model"
        yield warning("model", message, "run `paperboy model train`", remedy=Remedy(RemedyAction.TRAIN_MODEL))
    else:
        yield ok("model", "the bundled model is in use: the archive is still too small to train a model")
