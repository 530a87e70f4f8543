"""Give up on emails that have waited too long. A digest expires when the next one is due."""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from sqlalchemy import ColumnElement
from sqlmodel import Session, col, select

from app.delivery.ledger import transitions
from app.delivery.ledger.claims import WAITING_STATES
from app.storage.models import Delivery
from app.storage.models import DeliveryState as State
from app.types import MailKind


def expire_overdue(session: Session, now: datetime) -> Counter[str]:
    """Give up on emails whose `give_up_at` has passed. Return the number of emails by new state."""
    rows = lock_rows(session, is_overdue(now))
    for delivery in rows:
        why = "the next digest is due" if delivery.kind is MailKind.DIGEST else "it is out of date"
        reason = f"given up because {why}: {delivery.reason or 'never attempted'}"
        state = State.UNCERTAIN if delivery.possibly_delivered else State.FAILED
        transitions.set_state(delivery, state, reason)
    return Counter(delivery.state for delivery in rows)


def is_overdue(now: datetime) -> ColumnElement[bool]:
    """Return the condition that an email is still waiting although its `give_up_at` has passed."""
    return (
        col(Delivery.state).in_(WAITING_STATES)
        & col(Delivery.next_attempt_at).is_not(None)
        & (col(Delivery.give_up_at) <= now)
    )


def lock_rows(session: Session, condition: ColumnElement[bool]) -> list[Delivery]:
    """Lock and return the deliveries that meet a condition. Skip rows that other transactions have locked."""
    return list(session.exec(select(Delivery).where(condition).with_for_update(skip_locked=True)))
