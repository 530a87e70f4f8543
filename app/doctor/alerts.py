"""Send the operators an alert as soon as something needs attention."""

from __future__ import annotations

import hashlib
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

    Raise DeliveryError if the relay accepts none of the emails. Later runs try again to send the emails that
    were not accepted.
    """
    if not app.settings.admin_addresses:
        return
    with locks.hold(app.db, "alerts", now, operator_mail.LEASE) as acquired:
        if not acquired:
            return
        findings = local_checks.all_findings(app, now)
        urgent = {finding.check[:MAX_CAUSE]: finding for finding in findings if finding.urgent}
        with app.db.write() as session:
            new = _new_alerts(session, urgent, now)
        if not new:
            return
        causes = [alert.cause for alert in new]
        section_lines = operator_mail.lines_of([urgent[cause] for cause in causes])
        subject = f"{app.settings.site_name} needs attention: {', '.join(causes):.200}"
        report = OperatorReport(subject, (ReportSection("Needs attention", tuple(section_lines)),))
        content = repr([(alert.cause, alert.since) for alert in new])
        issue = operator_mail.Issue("alert", hashlib.sha256(content.encode()).hexdigest()[:40])
        with job_runs.record(app.db, "alert", now) as run:
            run.add({"mails": operator_mail.send(app, report, now, issue=issue)})
        if operator_mail.addresses_left(app, issue):
            return
        with app.db.write() as session:
            for alert in session.exec(select(OperatorAlert).where(col(OperatorAlert.cause).in_(causes))):
                alert.mailed_at = now
                session.add(alert)


def _new_alerts(session: Session, urgent: dict[str, Finding], now: datetime) -> list[OperatorAlert]:
    """Store the causes of the `urgent` findings. Return those that not all operators have got yet."""
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
    unmailed = select(OperatorAlert).where(col(OperatorAlert.mailed_at).is_(None))
    unmailed = unmailed.order_by(col(OperatorAlert.since), OperatorAlert.cause)
    return [alert for alert in session.exec(unmailed) if alert.cause in urgent]
