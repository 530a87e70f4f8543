"""What operators changed, and by which door: the name of their key, or `cli`."""

from __future__ import annotations

from datetime import datetime

from sqlmodel import Session

from app.models import Audit


def note(
    session: Session, actor: str, action: str, subject: object, now: datetime, **detail: str | int | None
) -> None:
    """Write a change down in the transaction that makes it: neither is there without the other."""
    session.add(Audit(at=now, actor=actor, action=action, subject=str(subject), detail=detail))
