"""Check the planning and sending of digests.

Report late and missing digests, pauses, receivers that asked for less mail, failed emails and the warm-up.
"""

import shlex
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import Session, select

from app.bounces import rates
from app.delivery import ledger
from app.digests import planning, reconciliation
from app.doctor.findings import Finding, Level, Remedy, RemedyAction, error, ok, warning
from app.papers import poll_schedule
from app.settings import Settings
from app.storage import job_runs, schema, worker_registry
from app.storage.database import Database
from app.storage.figure_cache import FigureReader
from app.storage.models import SendingPause
from app.text.in_words import count_of

LATE = timedelta(minutes=5)  # the schedule runs every minute
CATCH_UP = timedelta(minutes=30)  # after a start, until late digests have been planned
RECENT_EDITIONS = timedelta(days=7)


def check_lateness(session: Session, now: datetime) -> Iterator[Finding]:
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


def _format_span(span: timedelta) -> str:
    """Format a time span in the largest unit that fits at least twice, such as "47 hours"."""
    units = (("days", timedelta(days=1)), ("hours", timedelta(hours=1)), ("minutes", timedelta(minutes=1)))
    unit, length = next(((name, size) for name, size in units if span >= 2 * size), units[-1])
    return f"{round(span / length)} {unit}"


def check_ledger(session: Session, now: datetime, figures: FigureReader) -> Iterator[Finding]:
    """Compare the ledger with the digests that were due."""
    result = reconciliation.reconcile_recent(session, now, figures)
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


def check_pauses(session: Session, _now: datetime) -> Iterator[Finding]:
    """Report each pause of sending, its reason and the emails that it holds."""
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


def check_receivers(session: Session, now: datetime, figures: FigureReader) -> Iterator[Finding]:
    """Report receivers that asked for less mail, and the complaints of the last week."""
    for backoff in ledger.backoffs(session, now).values():
        message = f"emails wait until {backoff.until:%Y-%m-%d %H:%M} UTC: {backoff.reason}"
        fix = "find out why: the delays grow as long as the provider asks for less mail"
        yield warning(f"receiver {backoff.receiver}", message, fix)
    week = figures.get(session, "rates of the last week", now, partial(rates.of_last_week, session, now))
    for rate in week:
        if rate.is_excessive(rates.WARN_PERCENT):
            fix = "find out why subscribers do not want these emails; providers refuse mail from 0.3 % on"
            yield warning(f"complaints {rate.receiver}", rate.describe(), fix, urgent=True)
        else:
            yield ok(f"mail to {rate.receiver}", f"{rate.counts()} since {rate.day}")


def check_unsent(session: Session, now: datetime, figures: FigureReader) -> Iterator[Finding]:
    """Check for recent digests that can be sent again, or whose outcome is unknown."""
    count_retryable = partial(ledger.count_retryable, session, now - RECENT_EDITIONS, now)
    for edition, count in figures.get(session, "retryable digests", now, count_retryable).items():
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


def check_warm_up(db: Database, settings: Settings, now: datetime) -> Iterator[Finding]:
    """Check whether emails wait because of the warm-up of the sending domain.

    Yield nothing if no warm-up is configured or the database cannot be used. `service_state` reports database
    errors.
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
