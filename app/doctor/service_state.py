"""Check the database and its records.

The records include sources, jobs, late digests, the ledger, pauses, keys, webhooks and models.
"""

import shlex
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from itertools import pairwise

from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import Session, select

from app.bounces import rates
from app.delivery import ledger
from app.digests import clock_check, planning, reconciliation
from app.doctor.findings import Finding, Level, Remedy, RemedyAction, error, ok, run_check, warning
from app.effective_settings import hide_credentials
from app.errors import ClockError, CorruptModel
from app.papers import picture_fetching, poll_schedule, polling, silent_sources, source_registry
from app.relevance import model_store
from app.relevance.model import RelevanceModel
from app.settings import Settings
from app.storage import api_keys, job_runs, schema, webhook_endpoints, webhook_outbox, worker_registry
from app.storage.database import Database, is_read_only, sqlite_file
from app.storage.models import SendingPause, Source
from app.text.in_words import count_of
from app.types import SourceKind

RECENTLY = timedelta(hours=1)
LATE = timedelta(minutes=5)  # the schedule runs every minute
CATCH_UP = timedelta(minutes=30)  # after a start, until late digests have been planned
KEY_EXPIRES_SOON = timedelta(days=30)
RECENT_EDITIONS = timedelta(days=7)
STALE = timedelta(days=3)  # longer than a weekend, when sources publish nothing
GIVEN_UP_RECENTLY = timedelta(days=10)  # since the creation of an event, which is given up after three days
REGULAR_GAP = timedelta(days=8)  # longer than between weekly backups


def check(db: Database, models: model_store.ModelStore, now: datetime) -> Iterator[Finding]:
    """Check the database. Check its records only if the database is reachable and up to date."""
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
    checks: dict[str, Callable[[Session, datetime], Iterable[Finding]]] = {
        "sources": _check_sources,
        "jobs": _check_jobs,
        "schedule": _check_lateness,
        "clock": _check_clock,
        "ledger": _check_ledger,
        "workers": _check_workers,
        "sending": _check_pauses,
        "receivers": _check_receivers,
        "editions": _check_unsent,
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
    code = getattr(getattr(fault, "orig", None), "sqlite_errorcode", 0) & 0xFF  # without the details
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return "stop the service, and restore a backup; or correct the file name in PAPERBOY_DATABASE_URL"
    if code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
        return "check the disk, and the permissions of the file and its folder"
    if is_read_only(fault):
        return (
            "name the primary server in PAPERBOY_DATABASE_URL, not a standby, or promote the standby; or set "
            "default_transaction_read_only of the server, database and role to off"
        )
    return "check PAPERBOY_DATABASE_URL"


def _check_pauses(session: Session, _now: datetime) -> Iterator[Finding]:
    pauses = session.exec(select(SendingPause)).all()
    unsent = ledger.unsent_editions(session, [pause.edition for pause in pauses])
    for pause in pauses:
        edition, awaits_approval = pause.edition, ledger.awaits_approval(pause.reason)
        if awaits_approval and edition not in unsent:
            continue  # there is nothing to approve yet, or no longer
        if edition == ledger.ALL_EDITIONS:
            name, scope, others = "sending", "all sending", "; confirmations and requested links also wait"
            option, remedy = "", Remedy(RemedyAction.RESUME_SENDING)
        elif edition == ledger.FIRST_DIGESTS:
            held = ledger.count_held(session)
            name, scope = "first digests", "those of new subscribers"
            others = f"; {count_of(held, 'digest')} waiting" if held else "; none is waiting yet"
            option, remedy = " --first-digests", Remedy(RemedyAction.SEND_FIRST_DIGESTS)
        else:
            name, scope, others = f"sending {edition}", f"edition {edition}", ""
            option = f" --edition {shlex.quote(edition)}"
            action = RemedyAction.APPROVE_EDITION if awaits_approval else RemedyAction.RESUME_EDITION
            remedy = Remedy(action, edition)
        automatic = ledger.last_automatic(session, pause)
        state = "have been held" if edition == ledger.FIRST_DIGESTS else "has been paused"
        yield Finding(
            name,
            Level.ERROR if automatic else Level.WARNING,
            f"{scope} {state} since {pause.since:%Y-%m-%d %H:%M} UTC: {pause.reason}{others}",
            f"run `paperboy sending resume{option}` when the reason no longer applies",
            urgent=True,
            remedy=remedy,
            since=automatic or pause.since,
        )


def _check_receivers(session: Session, now: datetime) -> Iterator[Finding]:
    """Report receivers that asked for less mail, and the complaints of the last week."""
    for backoff in ledger.backoffs(session, now).values():
        message = f"emails wait until {backoff.until:%Y-%m-%d %H:%M} UTC: {backoff.reason}"
        fix = "find out why: the delays grow as long as the provider asks for less mail"
        yield warning(f"receiver {backoff.receiver}", message, fix)
    for rate in rates.of_last_week(session, now):
        if rate.is_excessive(rates.WARN_PERCENT):
            fix = "find out why subscribers do not want these emails; providers refuse mail from 0.3 % on"
            yield warning(f"complaints {rate.receiver}", rate.describe(), fix, urgent=True)
        else:
            yield ok(f"mail to {rate.receiver}", f"{rate.counts()} since {rate.day}")


def _check_unsent(session: Session, now: datetime) -> Iterator[Finding]:
    """Check for recent digests that can be sent again, or whose outcome is unknown."""
    for edition, count in ledger.count_retryable(session, now - RECENT_EDITIONS, now).items():
        digests = f"{count_of(count, 'digest')} failed and can be sent again"
        fix = (
            f"look at the reasons (`paperboy deliveries --edition {edition} --state failed`), then run "
            f"`paperboy sending retry {edition}`"
        )
        yield warning(f"edition {edition}", digests, fix, remedy=Remedy(RemedyAction.RETRY_FAILED, edition))
    for edition, count in ledger.count_held_uncertain(session, now - RECENT_EDITIONS).items():
        mails = f"{count_of(count, 'digest')} may have arrived: an operator has to decide"
        fix = (
            f"find out whether they arrived, then run `paperboy sending arrived --edition {edition}` or "
            f"`paperboy sending resend --edition {edition}`"
        )
        yield warning(f"edition {edition}", mails, fix, remedy=Remedy(None, edition))


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


def _check_sources(session: Session, now: datetime) -> Iterator[Finding]:
    sources = source_registry.all_sources(session)
    if not sources:
        yield warning("sources", "there are none", "run `paperboy sources add`")
    for source in sources:
        name, polled_at = f"source {source.name}", source.polled_at
        poll = Remedy(RemedyAction.POLL_SOURCE, str(source.id))
        if source_registry.is_read_from_files(source):
            continue
        if source.paused:
            fix = f"run `paperboy sources resume {shlex.quote(source.name)}` to poll it again"
            resume = Remedy(RemedyAction.RESUME_SOURCE, str(source.id))
            yield warning(name, "it is paused", fix, remedy=resume)
        elif _has_failed(source):
            times = "once" if source.failures == 1 else f"{source.failures} times in a row"
            message = f"it failed {times}: {source.last_error or 'the reason is unknown'}"
            fix = "Paperboy will try again; if it keeps failing, check its address and the network"
            is_failing = source.failures >= poll_schedule.FAILING_AFTER
            yield (error if is_failing else warning)(name, message, fix, remedy=poll)
        elif polled_at and polled_at - now > LATE:
            message = f"its last poll is dated {polled_at:%Y-%m-%d %H:%M} UTC, which is in the future"
            yield warning(name, message, "check the clocks of this machine and the database", remedy=poll)
        elif source.next_poll_at and polled_at and now - polled_at > STALE:
            message = f"it was last polled at {polled_at:%Y-%m-%d %H:%M} UTC"
            fix = "make sure that `paperboy serve` or `paperboy worker` is running"
            yield warning(name, message, fix, remedy=poll)
        elif message := silent_sources.describe_silence(session, source, now):
            fix = "look at its page; if there are new papers, run `paperboy sources list` and report a bug"
            yield warning(name, message, fix, urgent=True, remedy=poll)
        else:
            yield ok(
                name,
                f"it was polled at {polled_at:%Y-%m-%d %H:%M} UTC"
                if polled_at
                else "it has not been polled yet",
            )


def _has_failed(source: Source) -> bool:
    """Return whether a source's last polls failed. Ignore a first failure while its retry is running."""
    return source.failures > source_registry.is_unfinished(source)


def check_categories(db: Database, settings: Settings) -> Iterator[Finding]:
    """Warn if PAPERBOY_ARXIV_CATEGORIES was set when the database existed, because it has no effect then.

    Yield nothing if the database cannot be used. `check` reports database errors.
    """
    categories, defaults = settings.arxiv_categories, Settings.model_fields["arxiv_categories"].default
    with suppress(SQLAlchemyError):
        if {*categories} == {*defaults} or schema.revision_fault(db):
            return
        with db.read() as session:
            for source in source_registry.all_sources(session):
                if source.kind is SourceKind.ARXIV_FEED and source.config.get("categories") == [*defaults]:
                    message = (
                        f"it has no effect, because the source “{source.name}” was created with the default "
                        "categories"
                    )
                    options = "".join(f" --category {category}" for category in categories)
                    name = shlex.quote(source.name)
                    fix = f"run `paperboy sources edit {name}{options}`" if options else "remove the source"
                    yield warning("arxiv_categories", message, f"{fix}, or remove the setting")


def check_warm_up(db: Database, settings: Settings, now: datetime) -> Iterator[Finding]:
    """Check whether emails wait because of the warm-up of the sending domain.

    Yield nothing if no warm-up is configured or the database cannot be used. `check` reports database errors.
    """
    warm_up, status = ledger.warm_up_of(settings), None
    with suppress(SQLAlchemyError):
        if warm_up and not schema.revision_fault(db):
            with db.read() as session:
                status = ledger.warm_up_status(session, warm_up, now)
    if status and status.waiting:
        fix = (
            "nothing to do: the limit grows; if receivers know the domain, leave PAPERBOY_WARM_UP_START empty"
        )
        yield warning("warm-up", status.describe(), fix)
    elif status:
        yield ok("warm-up", status.describe())


def _check_jobs(session: Session, _now: datetime) -> Iterator[Finding]:
    """Check each job's last finished run.

    Do not report a run that failed only because of failed sources or digests, because they have their own
    findings.
    """
    failed_sources = [source.name for source in source_registry.all_sources(session) if _has_failed(source)]
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


def _check_lateness(session: Session, now: datetime) -> Iterator[Finding]:
    """Check that due digests were planned, and on time."""
    if failed := planning.count_failed(session, now):
        message = f"{count_of(failed, 'due digest')} could not be composed; Paperboy tries again every hour"
        fix = (
            "look for “digest not composed” or “planning failed for a subscriber” in the log; if the error "
            "does not name its cause, please report a bug"
        )
        yield warning("digests", message, fix, urgent=True)
    late = planning.lateness(session, now)
    if late > LATE and _is_catching_up(session, now, late):
        message = (
            f"a digest has been due for {_format_span(late)}; after a downtime, sources are polled first"
        )
        yield warning("schedule", message, "wait for up to half an hour: the digest is planned afterwards")
    elif late > LATE:
        message = f"a digest has been due for {_format_span(late)}, so the schedule is probably not running"
        fix = "run `paperboy serve` (with PAPERBOY_SCHEDULER on) or `paperboy worker`"
        if any(not worker.lost for worker in worker_registry.statuses(session)):
            message = f"a digest has been due for {_format_span(late)}, although a process is running jobs"
            fix = f"look for errors and restarts in the log and in `paperboy runs --job {planning.JOB}`"
        yield error("schedule", message, fix)
    else:
        yield ok("schedule", "no digest is late")


def _check_clock(session: Session, now: datetime) -> Iterator[Finding]:
    """Check that this machine's clock agrees with the database's."""
    try:
        clock_check.check_clock(session, now)
    except ClockError as fault:
        yield error("clock", str(fault), "synchronize both clocks with NTP")
    else:
        yield ok("clock", "this machine's clock agrees with the database's")


def _check_ledger(session: Session, now: datetime) -> Iterator[Finding]:
    """Compare the ledger with the digests that were due."""
    result = reconciliation.reconcile_recent(session, now)
    if faults := result.describe_faults():
        fix = (
            "nothing to do if the service was not running then; otherwise, look for “planning failed for a "
            "subscriber” in the log; if the log does not contain it, please report a bug"
            if result.missing or result.surplus
            else "update this machine's time zone database, or change the subscribers' time zones: look for "
            "“planning failed for a subscriber” in the log"
        )
        yield error("ledger", f"since yesterday: {faults}", fix)
    else:
        yield ok("ledger", "it has exactly one entry for each digest that has been due since yesterday")


def _is_catching_up(session: Session, now: datetime, late: timedelta) -> bool:
    """Return whether missed sources are being polled or retried, or a process has just started.

    Ignore the start if a process has already had CATCH_UP to plan the digest, which is overdue by `late`: for
    example, because each process crashes and is restarted.
    """
    if any(not poll_schedule.is_due(source, now) for source in poll_schedule.missed_sources(session, now)):
        return True
    workers = worker_registry.statuses(session)
    database_now = max((worker.seen_at for worker in workers), default=now)
    had_enough_time = any(
        worker.started_at <= database_now - CATCH_UP and worker.seen_at > database_now - late + LATE
        for worker in workers
    ) or job_runs.has_run(session, planning.JOB, now - late + LATE, now - CATCH_UP)
    return not had_enough_time and any(not worker.lost for worker in workers)


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
        elif each.state == "waiting" and now - each.since > LATE:
            fix = "start more workers, unless a long job of this name is running"
            yield warning(f"waiting {each.job}", f"no worker has taken this job {since}", fix)


def _format_span(span: timedelta) -> str:
    """Format a time span in the largest unit that fits at least twice, such as "47 hours"."""
    units = (("days", timedelta(days=1)), ("hours", timedelta(hours=1)), ("minutes", timedelta(minutes=1)))
    unit, length = next(((name, size) for name, size in units if span >= 2 * size), units[-1])
    return f"{round(span / length)} {unit}"


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
