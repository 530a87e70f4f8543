"""Mails to the operators: a daily report, and an alert as soon as something needs attention.

They are sent to PAPERBOY_ADMIN_ADDRESSES without the ledger, so also while sending is paused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import structlog
from sqlmodel import Session, col, select

from app import subscribers
from app.application import Application
from app.bounces import rates
from app.delivery import ledger
from app.delivery.smtp import connection_pool
from app.digests import reconciliation
from app.doctor import service_state
from app.doctor.findings import Finding, Level
from app.errors import DeliveryError
from app.papers import queries, source_registry, sources
from app.storage import job_runs, locks
from app.storage.database import insert_or_ignore
from app.storage.models import OperatorAlert, SubscriberState
from app.types import OperatorReport, ReportSection, SendOutcome

log = structlog.get_logger(__name__)

DAY = timedelta(days=1)
LEASE = timedelta(minutes=10)  # longer than a report or an alert takes
REPEAT_AFTER = DAY  # an alert is repeated if its cause ends and begins again later than that
_STATES = (
    "sent",
    "deferred",
    "failed",
    "suppressed",
    "uncertain",
    "skipped",
    "pending",
    "unplanned",
    "missing",
)


def send_daily_report(app: Application, now: datetime) -> None:
    """Mail the report about yesterday, once a day, from the hour of the settings on.

    Raise DeliveryError if the relay does not take it. Then it is sent by a later run.
    """
    local = now.astimezone(ZoneInfo(app.settings.default_zone))
    if not app.settings.admin_addresses or local.hour < app.settings.report_hour:
        return
    with locks.hold(app.db, "daily report", now, LEASE, edition=local.date().isoformat()) as acquired:
        if acquired:
            with job_runs.record(app.db, "report", now) as run:
                run.add({"mails": send(app, daily_report(app, now), now)})


def send_alerts(app: Application, now: datetime) -> None:
    """Mail one alert about all causes that are new. A cause that stays is not repeated.

    Raise DeliveryError if the relay does not take it. Then it is sent by a later run.
    """
    if not app.settings.admin_addresses:
        return
    with locks.hold(app.db, "alerts", now, LEASE) as acquired:
        if not acquired:
            return
        urgent = {finding.check: finding for finding in _findings(app, now) if finding.urgent}
        with app.db.write() as session:
            causes = _new_causes(session, urgent, now)
        if not causes:
            return
        findings = [urgent[cause] for cause in causes]
        subject = f"{app.settings.site_name} needs attention: {', '.join(causes):.200}"
        section = ReportSection("Needs attention", tuple(_lines(findings)))
        with job_runs.record(app.db, "alert", now) as run:
            run.add({"mails": send(app, OperatorReport(subject, (section,)), now)})
        with app.db.write() as session:
            for alert in session.exec(select(OperatorAlert).where(col(OperatorAlert.cause).in_(causes))):
                alert.mailed_at = now
                session.add(alert)


def daily_report(app: Application, now: datetime) -> OperatorReport:
    """Return the report about yesterday, by UTC."""
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    begin, day = midnight - DAY, (midnight - DAY).date()
    findings = [finding for finding in _findings(app, now) if finding.level is not Level.OK]
    with app.db.read() as session:
        balance = reconciliation.reconcile(session, now, day.isoformat())
        counts = balance.as_dict()
        states = " + ".join(f"{counts[name]} {name}" for name in _STATES if counts[name]) or "0"
        reasons = ledger.commonest_reasons(session, day.isoformat())
        sections = (
            ReportSection("Needs attention", tuple(_lines(findings)) or ("Nothing.",)),
            ReportSection(
                f"Digests of {day}",
                (
                    f"{balance.due:,} due = {states}" if balance.due else "No digest was due.",
                    *(f"{row.digests} {row.state}: {row.reason}" for row in reasons),
                ),
            ),
            ReportSection("Mail", tuple(_rates(rates.between(session, begin, midnight)))),
            ReportSection("Subscribers", tuple(_subscribers(session, begin, midnight))),
            ReportSection("Sources", tuple(_sources(session, begin))),
        )
    attention = (
        f", {len(findings)} need attention"
        if len(findings) > 1
        else ", 1 needs attention"
        if findings
        else ""
    )
    return OperatorReport(
        f"{app.settings.site_name}, {day}: {_count(counts['sent'], 'digest')} sent{attention}", sections
    )


def send(app: Application, report: OperatorReport, now: datetime, to: Sequence[str] = ()) -> int:
    """Send a mail to each operator, or only to these. Return how many mails the relay took.

    Raise DeliveryError if it took none.
    """
    refusals, addresses = [], to or app.settings.admin_addresses
    for address in addresses:
        mail = app.composer.report(report, address, now)
        result = asyncio.run(connection_pool.send_one(app.settings, mail))
        if result.outcome is not SendOutcome.ACCEPTED:
            refusals.append(f"{result.code or ''} {result.text}".strip())
    if refusals:
        log.warning("the relay refused mails to operators", refused=len(refusals), reply=refusals[0])
    if len(refusals) == len(addresses):
        raise DeliveryError(f"no operator got the mail: {refusals[0]}", permanent=False)
    return len(addresses) - len(refusals)


def _findings(app: Application, now: datetime) -> Iterable[Finding]:
    yield from service_state.check(app.db, app.models, now)
    yield from service_state.check_warm_up(app.db, app.settings, now)
    yield from service_state.check_disk(app.db, Path(app.settings.journal_dir))


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _lines(findings: Sequence[Finding]) -> Iterable[str]:
    for finding in findings:
        yield f"{finding.check}: {finding.message}"
        yield f"→ {finding.fix}"


def _rates(by_receiver: Sequence[rates.ReceiverRate]) -> Iterable[str]:
    for rate in by_receiver:
        notices = f"{_count(rate.bounces, 'bounce')}, {_count(rate.complaints, 'complaint')}"
        yield f"{rate.receiver}: {rate.sent:,} sent, {notices}"
    if not by_receiver:
        yield "No mail was sent."


def _subscribers(session: Session, since: datetime, until: datetime) -> Iterable[str]:
    states = subscribers.count_by_state(session)
    yield ", ".join(f"{states[state]} {state}" for state in SubscriberState if states[state]) or "None yet."
    changes = subscribers.count_changes(session, since, until)
    happened = [f"{number} {kind.replace('_', ' ')}" for kind, number in changes.items() if number]
    yield f"Changes: {', '.join(happened) or 'none'}."


def _sources(session: Session, begin: datetime) -> Iterable[str]:
    listed = queries.count_listed(session, begin.date())
    for source in source_registry.all_sources(session):
        number = listed.get(source.id or 0, 0)
        if source.kind not in sources.POLLED and not number:
            continue  # it only names files
        state = f", failed {source.failures} times" if source.failures > 1 else ""
        if source.paused and source.kind in sources.POLLED:
            state = ", paused"
        yield f"{source.name}: {_count(number, 'paper')}{state}"


def _new_causes(session: Session, urgent: dict[str, Finding], now: datetime) -> list[str]:
    """Store the causes of today's alerts, and return those that no mail has told about."""
    for alert in session.exec(select(OperatorAlert)):
        if alert.cause in urgent:
            alert.seen_at = now
            session.add(alert)
        elif now - alert.seen_at > REPEAT_AFTER:
            session.delete(alert)
    for cause, finding in urgent.items():
        insert_or_ignore(
            session,
            OperatorAlert,
            ["cause"],
            cause=cause[:200],
            message=finding.message,
            since=now,
            seen_at=now,
        )
    unmailed = select(OperatorAlert.cause).where(col(OperatorAlert.mailed_at).is_(None))
    return [
        cause
        for cause in session.exec(unmailed.order_by(col(OperatorAlert.since), OperatorAlert.cause))
        if cause in urgent
    ]
