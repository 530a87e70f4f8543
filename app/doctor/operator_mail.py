"""Send emails to the operators at PAPERBOY_ADMIN_ADDRESSES.

These emails bypass the ledger, so they are sent even while sending is paused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import structlog

from app.application import Application
from app.delivery.send_result import SendOutcome
from app.delivery.smtp import connection_pool
from app.doctor.findings import Finding
from app.errors import DeliveryError
from app.types import OperatorReport

log = structlog.get_logger(__name__)

LEASE = timedelta(minutes=10)  # longer than it takes to send a report or an alert


def send(app: Application, report: OperatorReport, now: datetime, to: Sequence[str] = ()) -> int:
    """Send a report to each operator, or to the addresses in `to`.

    Return the number of emails that the relay accepted. Raise DeliveryError if it accepted none.
    """
    failures, addresses = [], to or app.settings.admin_addresses
    for address in addresses:
        mail = app.composer.report(report, address, now)
        result = asyncio.run(connection_pool.send_one(app.settings, mail))
        if result.outcome is not SendOutcome.ACCEPTED:
            failures.append(f"{result.code or ''} {result.text}".strip())
    if failures:
        log.warning("emails to operators were not sent", count=len(failures), error=failures[0])
    if len(failures) == len(addresses):
        raise DeliveryError(f"no operator got the email: {failures[0]}", permanent=False)
    return len(addresses) - len(failures)


def lines_of(findings: Sequence[Finding]) -> Iterable[str]:
    """Yield two lines for each finding: the problem and the fix."""
    for finding in findings:
        yield f"{finding.check}: {finding.message}"
        yield f"→ {finding.fix}"
