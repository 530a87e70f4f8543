"""What is wrong with this installation, and how to mend it: every finding comes with its remedy."""

from __future__ import annotations

import shlex
import smtplib
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import func
from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import Session, col, select

from app import deliver, lexicon
from app.db import ROOT, Database
from app.models import Run, SendingPause, Source, Subscriber, SubscriberState
from app.pipeline import App
from app.settings import Settings, SmtpSecurity

RELAY_TIMEOUT = 10.0
LATE = timedelta(minutes=5)  # the schedule ticks every minute
STALE = timedelta(days=3)  # longer than a weekend, when sources are silent


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"  # it works, but not as well as it should
    ERROR = "error"  # mails are not sent, or not rightly


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    check: str
    level: Level
    said: str
    fix: str = ""


def examine(app: App, now: datetime) -> list[Finding]:
    """Look at everything. A part that cannot be looked at is a finding, too."""
    findings = [*_settings(app.settings), *_database(app.db), *_relay(app.settings)]
    if all(finding.level is not Level.ERROR for finding in findings if finding.check == "database"):
        with app.db.read() as session:
            for look in (_sources, _runs, _lateness, _pauses):
                findings += look(session, now)
            findings += _models(session, app.lexicon)
    return findings


# --- what was set


def _settings(settings: Settings) -> Iterator[Finding]:
    yield Finding("settings", Level.OK, "the settings can be used")
    if settings.base_url.startswith("https://"):
        yield Finding("base_url", Level.OK, f"links begin with {settings.base_url}")
    else:
        yield Finding(
            "base_url",
            Level.WARNING,
            f"links begin with {settings.base_url}: readers elsewhere cannot open them safely, and one-click "
            "unsubscribing needs https",
            "put Paperboy behind a proxy with TLS and set PAPERBOY_BASE_URL to its https:// address",
        )
    yield from _identity(settings)


def _identity(settings: Settings) -> Iterator[Finding]:
    domain = settings.mail_domain
    if "." not in domain or domain.endswith((".localdomain", ".local", ".invalid", ".test", ".example")):
        yield Finding(
            "from_address",
            Level.WARNING,
            f"mails come from {settings.from_address}, a domain that other mail servers do not know",
            "set PAPERBOY_FROM_ADDRESS to an address of a domain of yours",
        )
    else:
        yield Finding("from_address", Level.OK, f"mails come from {settings.from_address}")
    for name in ("postal_address", "contact_address"):
        if not getattr(settings, name):
            yield Finding(
                name,
                Level.WARNING,
                "is empty: in many countries a newsletter has to say who sends it",
                f"set PAPERBOY_{name.upper()}",
            )


# --- what can be reached


def schema(db: Database) -> tuple[str | None, str | None]:
    """The revision that the database is at, and the newest one there is."""
    with db.engine.connect() as connection:
        current = MigrationContext.configure(connection).get_current_revision()
    return current, ScriptDirectory(str(ROOT / "migrations")).get_current_head()


def _database(db: Database) -> Iterator[Finding]:
    shown = db.url.render_as_string(hide_password=True)
    try:
        current, newest = schema(db)
    except SQLAlchemyError as error:
        said = str(error).partition("\n")[0]
        yield Finding("database", Level.ERROR, f"{shown}: {said}", "check PAPERBOY_DATABASE_URL")
        return
    if current != newest:
        said = f"{shown} is at revision {current or 'none'}, the newest is {newest}"
        yield Finding("database", Level.ERROR, said, "run `paperboy migrate`")
    else:
        yield Finding("database", Level.OK, f"{shown} is reachable and up to date")


def _relay(settings: Settings) -> Iterator[Finding]:
    where = f"{settings.smtp_host}:{settings.smtp_port}"
    try:
        tls, announced = _greet(settings)
    except smtplib.SMTPAuthenticationError as error:
        yield Finding(
            "relay",
            Level.ERROR,
            f"{where} refused the password ({error.smtp_code})",
            "check PAPERBOY_SMTP_USERNAME and PAPERBOY_SMTP_PASSWORD",
        )
    except (OSError, smtplib.SMTPException) as error:
        yield Finding(
            "relay",
            Level.ERROR,
            f"{where} cannot be used: {error}",
            "check PAPERBOY_SMTP_HOST, PAPERBOY_SMTP_PORT, PAPERBOY_SMTP_SECURITY, and that the relay runs",
        )
    else:
        how = "with TLS" if tls else "without TLS"
        yield Finding("relay", Level.OK, f"{where} answers {how}; it announces {announced or 'nothing'}")


def _greet(settings: Settings) -> tuple[bool, str]:
    """Connect and log in as a sender does: whether by TLS, and what the relay announces then."""
    kind = smtplib.SMTP_SSL if settings.smtp_security is SmtpSecurity.TLS else smtplib.SMTP
    made = kind(settings.smtp_host, settings.smtp_port, timeout=RELAY_TIMEOUT)
    try:
        made.ehlo_or_helo_if_needed()
        _encrypt(made, settings)
        if settings.smtp_username:
            made.login(settings.smtp_username, settings.smtp_password)
        announced = ", ".join(sorted(feature.upper() for feature in made.esmtp_features))
        return isinstance(made.sock, ssl.SSLSocket), announced
    finally:
        made.close()


def _encrypt(relay: smtplib.SMTP, settings: Settings) -> None:
    """STARTTLS as the settings want it; opportunistic is better than nothing, and proves nothing."""
    context = ssl.create_default_context()
    if settings.smtp_security is SmtpSecurity.OPPORTUNISTIC:
        if not relay.has_extn("starttls"):
            return
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    elif settings.smtp_security is not SmtpSecurity.STARTTLS:
        return
    relay.starttls(context=context)
    relay.ehlo_or_helo_if_needed()


# --- what happened lately


def _sources(session: Session, now: datetime) -> Iterator[Finding]:
    sources = session.exec(select(Source).order_by(col(Source.name))).all()
    if not sources:
        yield Finding("sources", Level.WARNING, "there is no source yet", "run `paperboy ingest`, or add one")
    for source in sources:
        if source.next_poll_at or source.polled_at:  # others are names under which files were read
            yield _source(source, now)


def _source(source: Source, now: datetime) -> Finding:
    check = f"source {source.name}"
    if source.paused:
        return Finding(
            check,
            Level.WARNING,
            "is paused",
            f"run `paperboy sources resume {shlex.quote(source.name)}` when it may go on",
        )
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
        return Finding(
            check, Level.WARNING, said, "is the schedule running? See `paperboy serve` or `worker`"
        )
    last = f", last read at {source.polled_at:%Y-%m-%d %H:%M} UTC" if source.polled_at else ""
    return Finding(check, Level.OK, f"is well{last}")


def _runs(session: Session, _now: datetime) -> Iterator[Finding]:
    newest = select(func.max(Run.id)).where(col(Run.ended_at).is_not(None)).group_by(Run.job)
    for run in session.exec(select(Run).where(col(Run.id).in_(newest)).order_by(Run.job)):
        when = f"{run.started_at:%Y-%m-%d %H:%M} UTC"
        if run.error:
            fix = f"see the run: GET /api/v1/runs/{run.id}, or the log"
            yield Finding(f"job {run.job}", Level.WARNING, f"went wrong at {when}: {run.error}", fix)
        else:
            yield Finding(f"job {run.job}", Level.OK, f"last ran at {when}")


def lateness(session: Session, now: datetime) -> timedelta:
    """For how long the digest that has been due the longest is waiting to be composed."""
    oldest = session.exec(
        select(func.min(Subscriber.next_due_at)).where(
            Subscriber.state == SubscriberState.ACTIVE, col(Subscriber.next_due_at) <= now
        )
    ).one()
    return now - oldest if oldest else timedelta()


def _lateness(session: Session, now: datetime) -> Iterator[Finding]:
    late = lateness(session, now)
    if late > LATE:
        minutes = round(late.total_seconds() / 60)
        yield Finding(
            "schedule",
            Level.ERROR,
            f"a digest has been due for {minutes} minutes: nothing is running the schedule",
            "run `paperboy serve` (with PAPERBOY_SCHEDULER on) or `paperboy worker`",
        )
    else:
        yield Finding("schedule", Level.OK, "no digest is late")


def _pauses(session: Session, _now: datetime) -> Iterator[Finding]:
    for pause in session.exec(select(SendingPause)):
        everything = pause.edition == deliver.EVERYTHING
        what = "all sending" if everything else f"edition {pause.edition}"
        where = "sending" if everything else f"editions/{pause.edition}"
        yield Finding(
            "sending",
            Level.WARNING,
            f"{what} is paused since {pause.since:%Y-%m-%d %H:%M} UTC: {pause.reason}",
            f"resume it by POST /api/v1/{where}/resume when the reason is gone",
        )


def _models(session: Session, held: lexicon.Lexicon) -> Iterator[Finding]:
    versions = held.versions(session)
    used = next((version for version in versions if version.in_use), None)
    for version in lexicon.refused(versions):
        said = f"model {version.id} of {version.fitted_at:%Y-%m-%d %H:%M} UTC is not used: {version.fault}"
        yield Finding("model", Level.WARNING, said, "run `paperboy model learn` to make a new one")
    if used:
        learned = f"learned from {used.archive.papers} papers at {used.fitted_at:%Y-%m-%d %H:%M} UTC"
        yield Finding("model", Level.OK, f"model {used.id} is in use, {learned}")
    elif held.outgrown(session):
        said = "the archive is large enough to learn from, and nothing was learned: what was shipped serves"
        yield Finding("model", Level.WARNING, said, "run `paperboy model learn`")
    else:
        yield Finding("model", Level.OK, "what was shipped serves: the archive is young")
