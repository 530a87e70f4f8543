"""Send emails to the operators at PAPERBOY_ADMIN_ADDRESSES.

These emails bypass the ledger, so they are sent even while sending is paused.
"""

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
FINAL = (
    SendOutcome.ACCEPTED,
    SendOutcome.HARD_BOUNCE,
    SendOutcome.SOFT_BOUNCE,
    SendOutcome.MAILBOX_FULL,
    SendOutcome.CONTENT_REFUSED,
)


class Issue(NamedTuple):
    """Content that each operator gets once, such as the report of a day."""

    kind: str  # at most 22 characters
    key: str  # distinguishes the issues of a kind: at most 32 characters

    def lock_for(self, address: str) -> str:
        """Return the name of the lock that stores the last issue of this kind that an address got or refused.

        Its edition is `key` or `refused`.
        """
        return f"{self.kind} to {hashlib.sha256(address.encode()).hexdigest()[:14]}"

    @property
    def refused(self) -> str:
        return f"refused {self.key}"


class OperatorEmail(NamedTuple):
    """An email to one operator, and the issues that it contains."""

    address: str
    report: OperatorReport
    issues: tuple[Issue, ...] = ()


def emails(app: Application, report: OperatorReport) -> list[OperatorEmail]:
    """Return an email with a report for each operator."""
    return [OperatorEmail(address, report) for address in app.settings.admin_addresses]


def addresses_left(app: Application, issue: Issue) -> list[str]:
    """Return the operators who have not got an issue, apart from those whose mailboxes refused it."""
    operators = {issue.lock_for(address): address for address in app.settings.admin_addresses}
    with app.db.read() as session:
        settled = locks.completed(session, operators, issue.key)
        settled |= locks.completed(session, operators, issue.refused)
    return [address for name, address in operators.items() if name not in settled]


def send(app: Application, emails: Sequence[OperatorEmail], now: datetime) -> int:
    """Send emails to operators. Return the number of emails that the relay accepted.

    Record who got or refused which issues. An email that the relay did not accept for now can be sent again.
    Raise DeliveryError if the relay accepts none of the emails, and no operator has got any of their issues
    before.
    """
    sent, failures = 0, []
    for email in emails:
        mail = app.composer.report(email.report, email.address, now)
        result = asyncio.run(connection_pool.send_one(app.settings, mail))
        accepted = result.outcome is SendOutcome.ACCEPTED
        sent += accepted
        if not accepted:
            failures.append(f"{result.code or ''} {result.text}".strip())
        if email.issues and result.outcome in FINAL:
            with app.db.write() as session:
                for issue in email.issues:
                    edition = issue.key if accepted else issue.refused
                    locks.complete(session, issue.lock_for(email.address), edition, now)
    if failures:
        log.warning("emails to operators were not sent", count=len(failures), error=failures[0])
    if (
        failures
        and not sent
        and not any(_is_received(app, each) for email in emails for each in email.issues)
    ):
        raise DeliveryError(f"no operator got the email: {failures[0]}", permanent=False)
    return sent


def _is_received(app: Application, issue: Issue) -> bool:
    names = [issue.lock_for(address) for address in app.settings.admin_addresses]
    with app.db.read() as session:
        return bool(locks.completed(session, names, issue.key))


def lines_of(findings: Sequence[Finding]) -> Iterable[str]:
    """Yield two lines for each finding: the problem and the fix."""
    for finding in findings:
        yield f"{finding.check}: {finding.message}"
        yield f"→ {finding.fix}"
