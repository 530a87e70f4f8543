"""Send the operators an alert as soon as something needs attention, even if the database refuses writes."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from weakref import WeakKeyDictionary

import structlog
from sqlalchemy import func
from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import Session, col, or_, select

from app.application import Application
from app.doctor import local_checks, operator_mail
from app.doctor.findings import Finding, error
from app.doctor.operator_mail import Issue, OperatorEmail
from app.storage import job_runs, locks
from app.storage.database import Database
from app.storage.inserts import insert_or_ignore
from app.storage.models import JobRun, OperatorAlert
from app.types import OperatorReport, ReportSection

JOB = "alert"
MAX_CAUSE = 200  # characters
REPEAT_AFTER = timedelta(days=1)  # a cause that was absent for longer is another one
RETRY_FOR = timedelta(hours=18)  # how long other operators' servers are tried after one operator got an alert
LONGEST_WAIT = timedelta(hours=1)  # between two attempts

log = structlog.get_logger(__name__)


@dataclass
class _Outage:
    """The runs, in a row, that failed because of the database, and the time of the last alert about it."""

    failures: int = 0
    mailed_at: datetime | None = None


_outages = WeakKeyDictionary[Database, _Outage]()  # in memory, because the database cannot store it


def send_alerts(app: Application, now: datetime) -> None:
    """Send each operator one alert about all causes that they have not got. Do not repeat it.

    It also lists the causes that ended before it could be sent, for example because the relay was down. If
    the database cannot store the alerts, see `_alert_without_database`.

    Later runs retry emails that were not accepted, at growing intervals. They stop RETRY_FOR after one of the
    operators got the alert. Raise DeliveryError if no operator gets it.
    """
    if not app.settings.admin_addresses:
        return
    try:
        with locks.hold(app.db, "alerts", now, operator_mail.LEASE) as acquired:
            if acquired:
                _send_new_alerts(app, now)
    except SQLAlchemyError as fault:
        _alert_without_database(app, fault, now)
        raise
    _outages.setdefault(app.db, _Outage()).failures = 0


def _send_new_alerts(app: Application, now: datetime) -> None:
    urgent = _find_causes(app, now)
    with app.db.write() as session:
        _store_causes(session, urgent, now)
        alerts = _unsettled_alerts(session, now)
    missing = _missing_by_operator(app, [alert for alert in alerts if alert.cause in urgent])
    if not missing or _is_backing_off(app, missing, now):
        return
    ended = _missing_by_operator(app, [alert for alert in alerts if alert.cause not in urgent])
    emails = [
        _compose(app, address, urgent, lacking, ended.get(address, ()))
        for address, lacking in missing.items()
    ]
    with job_runs.record(app.db, JOB, now) as run:
        sent = operator_mail.send(app, emails, now)
        run.add({"mails": sent})
    if not sent:
        return
    with app.db.write() as session:
        for alert in alerts:
            alert.mailed_at = alert.mailed_at or now
            session.add(alert)


def _find_causes(app: Application, now: datetime) -> dict[str, Finding]:
    """Return the findings that need an alert, by cause."""
    findings = local_checks.all_findings(app, now)
    return {finding.check[:MAX_CAUSE]: finding for finding in findings if finding.urgent}


def _alert_without_database(app: Application, fault: SQLAlchemyError, now: datetime) -> None:
    """Send an alert that nothing records, if the database has refused alerts twice in a row.

    The first time, it may only be locked or restarting. Each process repeats this alert after REPEAT_AFTER,
    with everything that needs attention, because the database may not say what the operators have got.
    """
    reason = str(getattr(fault, "orig", fault)).partition("\n")[0]
    log.error("alerts cannot be stored in the database", error=reason)
    outage = _outages.setdefault(app.db, _Outage())
    outage.failures += 1
    if outage.failures < 2 or (outage.mailed_at and now - outage.mailed_at < REPEAT_AFTER):
        return
    fix = "check the disk, and the permissions of the database: without writes, no mail is planned or sent"
    urgent = {"database": error("database", f"it refuses writes: {reason}", fix), **_find_causes(app, now)}
    subject = f"{app.settings.site_name} needs attention: {', '.join(urgent):.200}"
    section = ReportSection("Needs attention", tuple(operator_mail.lines_of([*urgent.values()])))
    operator_mail.send(app, operator_mail.emails(app, OperatorReport(subject, (section,))), now)
    outage.mailed_at = now


def _issue(alert: OperatorAlert) -> Issue:
    return Issue(_kind(alert.cause), alert.since.isoformat(timespec="seconds"))


def _kind(cause: str) -> str:
    return f"alert {hashlib.sha256(cause.encode()).hexdigest()[:16]}"


def _missing_by_operator(app: Application, alerts: Sequence[OperatorAlert]) -> dict[str, list[OperatorAlert]]:
    """Return the alerts that each operator has yet to get. Leave out operators who have got all."""
    missing: dict[str, list[OperatorAlert]] = {}
    for alert in alerts:
        for address in operator_mail.addresses_left(app, _issue(alert)):
            missing.setdefault(address, []).append(alert)
    return missing


def _is_backing_off(app: Application, missing: Mapping[str, Sequence[OperatorAlert]], now: datetime) -> bool:
    """Return whether to wait before the next attempt. A new cause does not wait.

    The wait is as long as the time between the newest cause and the last attempt, up to LONGEST_WAIT.
    """
    with app.db.read() as session:
        last = session.exec(select(func.max(JobRun.started_at)).where(JobRun.job == JOB)).one()
    newest = max(alert.since for alerts in missing.values() for alert in alerts)
    return last is not None and newest <= last and now < last + min(last - newest, LONGEST_WAIT)


def _compose(
    app: Application,
    address: str,
    urgent: Mapping[str, Finding],
    alerts: Sequence[OperatorAlert],
    ended: Sequence[OperatorAlert],
) -> OperatorEmail:
    causes = [alert.cause for alert in alerts]
    section_lines = operator_mail.lines_of([urgent[cause] for cause in causes])
    subject = f"{app.settings.site_name} needs attention: {', '.join(causes):.200}"
    sections = [ReportSection("Needs attention", tuple(section_lines))]
    if ended:
        lines = []
        for alert in ended:
            times = f"from {alert.since:%Y-%m-%d %H:%M} to {alert.seen_at:%Y-%m-%d %H:%M} UTC"
            lines += [f"{alert.cause}: {alert.message}", f"→ found {times}; you got no email about it then"]
        sections.append(ReportSection("Found earlier, but no longer", tuple(lines)))
    return OperatorEmail(
        address, OperatorReport(subject, tuple(sections)), tuple(map(_issue, [*alerts, *ended]))
    )


def _store_causes(session: Session, urgent: Mapping[str, Finding], now: datetime) -> None:
    """Store the causes of the `urgent` findings.

    Delete causes that have been absent for REPEAT_AFTER, and replace those whose finding has begun later.
    """
    for alert in session.exec(select(OperatorAlert)):
        finding = urgent.get(alert.cause)
        began_later = finding and finding.since and finding.since > alert.since
        if began_later or (finding is None and now - alert.seen_at > REPEAT_AFTER):
            locks.forget(session, f"{_kind(alert.cause)} to ")
            session.delete(alert)
        elif finding:
            alert.seen_at = now
            session.add(alert)
    for cause, finding in urgent.items():
        since = max(now, finding.since or now)  # the clock of the machine that paused may be ahead
        details = {"message": finding.message, "since": since, "seen_at": now}
        insert_or_ignore(session, OperatorAlert, ["cause"], cause=cause, **details)


def _unsettled_alerts(session: Session, now: datetime) -> Sequence[OperatorAlert]:
    """Return the alerts that an operator may have yet to get, oldest first. Their causes may have ended."""
    mailed_at = col(OperatorAlert.mailed_at)
    unsettled = select(OperatorAlert).where(or_(mailed_at.is_(None), mailed_at > now - RETRY_FOR))
    unsettled = unsettled.order_by(col(OperatorAlert.since), OperatorAlert.cause)
    return session.exec(unsettled).all()
