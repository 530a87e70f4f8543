"""Record the changes that operators make, with the name of the API key they used, or `cli`."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import func, update
from sqlmodel import Session, col, select

from app.storage import idempotency_keys
from app.storage.models import AuditEntry

ERASED = "erased"
SENDING_PAUSED = "sending.pause"
SENDING_RESUMED = "sending.resume"  # by an operator, who has seen the complaints: see app.bounces.rates
PAUSE_ENDED = "sending.pause_ended"  # by the import that began it, because it added nobody


def record(session: Session, actor: str, action: str, subject: object, now: datetime, **detail: Any) -> None:
    """Record a change in the transaction that makes it, so that both are committed or neither is.

    This also marks the request that makes it as carried out, if it has an idempotency key.
    """
    idempotency_keys.note_change(session, str(subject))
    session.add(AuditEntry(at=now, actor=actor, action=action, subject=str(subject), detail=detail))


def last_time(session: Session, action: str, subject: str) -> datetime | None:
    """Return when a change was last made, or None if it never was."""
    made = col(AuditEntry.action) == action, col(AuditEntry.subject) == subject
    return session.exec(select(func.max(AuditEntry.at)).where(*made)).one()


def erase_details(session: Session, subscriber_id: int, address_hash: str) -> None:
    """Delete the details in entries about a subscriber, and the stored answers to requests about them.

    Keep the actor, the action and the time.
    """
    of_subscriber = col(AuditEntry.action).startswith("subscriber.") | (
        col(AuditEntry.action) == "digest.test"
    )
    by_id = update(AuditEntry).where(col(AuditEntry.subject) == str(subscriber_id), of_subscriber)
    unsynced = {"synchronize_session": False}  # erasing a subscriber does not read the audit log
    session.execute(by_id.values(detail={}), execution_options=unsynced)
    idempotency_keys.erase_answers(session, str(subscriber_id), address_hash)
    by_hash = update(AuditEntry).where(col(AuditEntry.subject) == address_hash)
    session.execute(by_hash.values(subject=ERASED, detail={}), execution_options=unsynced)
