"""Send the operators an alert as soon as something needs attention."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlmodel import Session, col, select

from app.application import Application
from app.doctor import local_checks, operator_mail
from app.doctor.findings import Finding
from app.storage import job_runs, locks
from app.storage.database import insert_or_ignore
from app.storage.models import OperatorAlert
from app.types import OperatorReport, ReportSection

MAX_CAUSE = 200  # characters
REPEAT_AFTER = timedelta(days=1)  # a cause that was absent for longer is reported again


def send_alerts(app: Application, now: datetime) -> None:
    """Send the operators one alert about all new causes. Do not repeat an alert while its cause persists.

    Raise DeliveryError if the relay accepts none of the emails. A later run tries again.
    """
    if not app.settings.admin_addresses:
        return
    with locks.hold(app.db, "alerts", now, operator_mail.LEASE) as acquired:
        if not acquired:
            return
        findings = local_checks.all_findings(app, now)
        urgent = {finding.check[:MAX_CAUSE]: finding for finding in findings if finding.urgent}
        with app.db.write() as session:
            causes = _new_causes(session, urgent, now)
        if not causes:
            return
        section_lines = operator_mail.lines_of([urgent[cause] for cause in causes])
        subject = f"{app.settings.site_name} needs attention: {', '.join(causes):.200}"
        section = ReportSection("Needs attention", tuple(section_lines))
        with job_runs.record(app.db, "alert", now) as run:
            run.add({"mails": operator_mail.send(app, OperatorReport(subject, (section,)), now)})
        with app.db.write() as session:
            for alert in session.exec(select(OperatorAlert).where(col(OperatorAlert.cause).in_(causes))):
                alert.mailed_at = now
                session.add(alert)


def _new_causes(session: Session, urgent: dict[str, Finding], now: datetime) -> list[str]:
    """Store the causes of the `urgent` findings. Return those that have not been sent yet."""
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
            cause=cause,
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
