"""The database, and what happened in it lately: sources, jobs, late digests, pauses, models."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from datetime import datetime, timedelta

from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import func
from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import Session, col, select

from app.delivery import ledger
from app.digests import planning, reconciliation
from app.doctor.findings import Finding, Level, error, warning, well
from app.errors import ClockError
from app.relevance import model_store
from app.storage import api_keys
from app.storage.database import ROOT, Database
from app.storage.models import JobRun, SendingPause, Source, Subscriber, SubscriberState

LATE = timedelta(minutes=5)  # the schedule ticks every minute
EXPIRES_SOON = timedelta(days=30)
STALE = timedelta(days=3)  # longer than a weekend, when sources are silent


def schema(db: Database) -> tuple[str | None, str | None]:
    """The revision that the database is at, and the newest one there is."""
    with db.engine.connect() as connection:
        current = MigrationContext.configure(connection).get_current_revision()
    return current, ScriptDirectory(str(ROOT / "migrations")).get_current_head()


def look(db: Database, held: model_store.ModelStore, now: datetime) -> Iterator[Finding]:
    """All of it. Nothing is asked of a database that cannot be reached, or is not up to date."""
    found = _database(db)
    yield found
    if found.level is Level.ERROR:
        return
    with db.read() as session:
        yield from _sources(session, now)
        yield from _runs(session)
        yield _lateness(session, now)
        yield _clocks(session, now)
        yield _ledger(session, now)
        yield from _pauses(session)
        yield from _keys(session, now)
        yield from _models(session, held)


def _database(db: Database) -> Finding:
    shown = db.url.render_as_string(hide_password=True)
    try:
        current, newest = schema(db)
    except SQLAlchemyError as fault:
        said = str(fault).partition("\n")[0]
        return error("database", f"{shown}: {said}", "check PAPERBOY_DATABASE_URL")
    if current != newest:
        said = f"{shown} is at revision {current or 'none'}, the newest is {newest}"
        return error("database", said, "run `paperboy migrate`")
    return well("database", f"{shown} is reachable and up to date")


def _sources(session: Session, now: datetime) -> Iterator[Finding]:
    sources = session.exec(select(Source).order_by(col(Source.name))).all()
    if not sources:
        yield warning("sources", "there is no source yet", "run `paperboy ingest`, or add one")
    for source in sources:
        if source.next_poll_at or source.polled_at:  # others are names under which files were read
            yield _source(source, now)


def _source(source: Source, now: datetime) -> Finding:
    check = f"source {source.name}"
    if source.paused:
        fix = f"run `paperboy sources resume {shlex.quote(source.name)}` when it may go on"
        return warning(check, "is paused", fix)
    if source.failures:
        times = "once" if source.failures == 1 else f"{source.failures} times in a row"
        return Finding(
            check,
            Level.ERROR if source.failures > 2 else Level.WARNING,
            f"failed {times}: {source.last_error or 'it did not say why'}",
            "it is asked again by itself; if this goes on, look at its address and at the network",
        )
    if source.next_poll_at and source.polled_at and now - source.polled_at > STALE:
        said = f"was last read at {source.polled_at:%Y-%m-%d %H:%M} UTC"
        return warning(check, said, "is the schedule running? See `paperboy serve` or `worker`")
    last = f", last read at {source.polled_at:%Y-%m-%d %H:%M} UTC" if source.polled_at else ""
    return well(check, f"is well{last}")


def _runs(session: Session) -> Iterator[Finding]:
    newest = select(func.max(JobRun.id)).where(col(JobRun.ended_at).is_not(None)).group_by(JobRun.job)
    for run in session.exec(select(JobRun).where(col(JobRun.id).in_(newest)).order_by(JobRun.job)):
        when = f"{run.started_at:%Y-%m-%d %H:%M} UTC"
        if run.error:
            fix = f"see the run: GET /api/v1/runs/{run.id}, or the log"
            yield warning(f"job {run.job}", f"went wrong at {when}: {run.error}", fix)
        else:
            yield well(f"job {run.job}", f"last ran at {when}")


def lateness(session: Session, now: datetime) -> timedelta:
    """For how long the digest that has been due the longest is waiting to be composed."""
    oldest = session.exec(
        select(func.min(Subscriber.next_due_at)).where(
            Subscriber.state == SubscriberState.ACTIVE, col(Subscriber.next_due_at) <= now
        )
    ).one()
    return now - oldest if oldest else timedelta()


def _lateness(session: Session, now: datetime) -> Finding:
    late = lateness(session, now)
    if late <= LATE:
        return well("schedule", "no digest is late")
    return error(
        "schedule",
        f"a digest has been due for {_in_words(late)}: nothing is running the schedule",
        "run `paperboy serve` (with PAPERBOY_SCHEDULER on) or `paperboy worker`",
    )


def _clocks(session: Session, now: datetime) -> Finding:
    try:
        planning.check_clock(session, now)
    except ClockError as fault:
        return error("clock", str(fault), "set the clocks by NTP, here and on the database's machine")
    return well("clock", "this machine and the database agree on the time")


def _ledger(session: Session, now: datetime) -> Finding:
    """Compare the ledger of these days with who was due."""
    faults = reconciliation.reconcile_recent(session, now).describe_faults()
    if not faults:
        return well("ledger", "everybody who was due since yesterday is in it, and nobody else")
    fix = "look for “reader not planned” in the log; if there is none, please report this with the log"
    return error("ledger", f"since yesterday {faults}", fix)


def _in_words(span: timedelta) -> str:
    """In the largest unit of which there are two at least."""
    units = (("days", timedelta(days=1)), ("hours", timedelta(hours=1)), ("minutes", timedelta(minutes=1)))
    unit, length = next((each for each in units if span >= 2 * each[1]), units[-1])
    return f"{round(span / length)} {unit}"


def _pauses(session: Session) -> Iterator[Finding]:
    for pause in session.exec(select(SendingPause)):
        everything = pause.edition == ledger.ALL_EDITIONS
        what = "all sending" if everything else f"edition {pause.edition}"
        which = "" if everything else f" --edition {shlex.quote(pause.edition)}"
        yield warning(
            "sending",
            f"{what} is paused since {pause.since:%Y-%m-%d %H:%M} UTC: {pause.reason}",
            f"run `paperboy sending resume{which}` when the reason is gone",
        )


def _keys(session: Session, now: datetime) -> Iterator[Finding]:
    for key in api_keys.expiring_keys(session, now + EXPIRES_SOON):
        assert key.expires_at is not None  # noqa: S101 - the query compares it
        when = "has expired" if key.expires_at <= now else f"expires on {key.expires_at:%Y-%m-%d}"
        name = shlex.quote(key.name)
        fix = f"run `paperboy key revoke {name}`, and `paperboy key create {name}` where it is still in use"
        yield warning(f"key {key.name}", when, fix)


def _models(session: Session, held: model_store.ModelStore) -> Iterator[Finding]:
    versions = held.versions(session)
    used = next((version for version in versions if version.in_use), None)
    for version in model_store.rejected_versions(versions):
        said = f"model {version.id} of {version.fitted_at:%Y-%m-%d %H:%M} UTC is not used: {version.fault}"
        yield warning("model", said, "run `paperboy model learn` to make a new one")
    if used:
        learned = f"learned from {used.archive.papers} papers at {used.fitted_at:%Y-%m-%d %H:%M} UTC"
        yield well("model", f"model {used.id} is in use, {learned}")
    elif held.needs_training(session):
        said = "the archive is large enough to learn from, and nothing was learned: what was shipped serves"
        yield warning("model", said, "run `paperboy model learn`")
    else:
        yield well("model", "what was shipped serves: the archive is young")
