"""Send emails to the operators at PAPERBOY_ADMIN_ADDRESSES.

These emails bypass the ledger, so they are sent even while sending is paused.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import structlog

from app.application import Application
from app.delivery.send_result import SendOutcome
from app.delivery.smtp import connection_pool
from app.doctor.findings import Finding
from app.errors import DeliveryError
from app.storage import locks
from app.types import OperatorReport

log = structlog.get_logger(__name__)

LEASE = timedelta(minutes=10)  # longer than it takes to send a report or an alert
# After one of these outcomes, an issue is not sent to the address again.
FINAL = (SendOutcome.ACCEPTED, SendOutcome.HARD_BOUNCE, SendOutcome.SOFT_BOUNCE, SendOutcome.MAILBOX_FULL)


class Issue(NamedTuple):
    """An email that each operator gets once, such as the report of a day."""

    kind: str
    edition: str  # distinguishes the issues of a kind: at most 40 characters

    def lock_for(self, address: str) -> str:
        """Return the name of the lock that stores the last issue of this kind that was sent to an address."""
        return f"{self.kind} to {hashlib.sha256(address.encode()).hexdigest()[:24]}"


def addresses_left(app: Application, issue: Issue) -> list[str]:
    """Return the operators to whom an issue has yet to be sent."""
    operators = {issue.lock_for(address): address for address in app.settings.admin_addresses}
    with app.db.read() as session:
        completed = locks.completed(session, operators, issue.edition)
    return [address for name, address in operators.items() if name not in completed]


def send(
    app: Application,
    report: OperatorReport,
    now: datetime,
    to: Sequence[str] = (),
    issue: Issue | None = None,
) -> int:
    """Send a report to each operator, or to the addresses in `to`.

    With `issue`, leave out operators to whom it has been sent, or whose mailboxes have refused it. A later
    call tries the others again. Return the number of emails that the relay accepted. Raise DeliveryError if
    no operator has got the email.
    """
    failures, addresses = [], to or app.settings.admin_addresses
    left = addresses_left(app, issue) if issue else addresses
    for address in left:
        mail = app.composer.report(report, address, now)
        result = asyncio.run(connection_pool.send_one(app.settings, mail))
        if result.outcome is not SendOutcome.ACCEPTED:
            failures.append(f"{result.code or ''} {result.text}".strip())
        if issue and result.outcome in FINAL:
            with app.db.write() as session:
                locks.complete(session, issue.lock_for(address), issue.edition, now)
    if failures:
        log.warning("emails to operators were not sent", count=len(failures), error=failures[0])
    if len(failures) == len(addresses):
        raise DeliveryError(f"no operator got the email: {failures[0]}", permanent=False)
    return len(left) - len(failures)


def lines_of(findings: Sequence[Finding]) -> Iterable[str]:
    """Yield two lines for each finding: the problem and the fix."""
    for finding in findings:
        yield f"{finding.check}: {finding.message}"
        yield f"→ {finding.fix}"
