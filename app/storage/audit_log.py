"""What operators changed, and by which door: the name of their key, or `cli`."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import update
from sqlmodel import Session, col

from app.storage.models import AuditEntry

ERASED = "erased"


def note(
    session: Session, actor: str, action: str, subject: object, now: datetime, **detail: str | int | None
) -> None:
    """Write a change down in the transaction that makes it: neither is there without the other."""
    session.add(AuditEntry(at=now, actor=actor, action=action, subject=str(subject), detail=detail))


def forget(session: Session, subscriber_id: int, address_hash: str) -> None:
    """Delete what operators wrote about a reader. Who changed what and when stays."""
    of_reader = col(AuditEntry.action).startswith("subscriber.") | (col(AuditEntry.action) == "digest.test")
    by_id = update(AuditEntry).where(col(AuditEntry.subject) == str(subscriber_id), of_reader)
    session.execute(by_id.values(detail={}), execution_options=_UNSYNCED)
    by_hash = update(AuditEntry).where(col(AuditEntry.subject) == address_hash)
    session.execute(by_hash.values(subject=ERASED, detail={}), execution_options=_UNSYNCED)


_UNSYNCED = {"synchronize_session": False}  # the transaction that erases reads no audit
