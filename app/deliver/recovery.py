"""After a crash, and past the time."""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from sqlalchemy import ColumnElement
from sqlmodel import Session, col, select

from app.deliver import marking
from app.deliver.claims import may_leave
from app.models import Delivery, MailKind
from app.models import DeliveryState as State
from app.settings import UncertainPolicy


def anything_to_do(session: Session, now: datetime) -> bool:
    """Whether a mail may leave now, or a dead sender's row waits to be freed."""
    return (
        session.exec(select(Delivery.id).where(may_leave(now) | _abandoned(now)).limit(1)).first() is not None
    )


def recover(session: Session, now: datetime, policy: UncertainPolicy) -> Counter[str]:
    """Free what a dead sender held, and give up what the reader's next digest takes over."""
    rows = session.exec(select(Delivery).where(_abandoned(now)).with_for_update(skip_locked=True)).all()
    for delivery in rows:
        _recover_one(delivery, now, policy)
    return Counter(delivery.state for delivery in rows)


def _abandoned(now: datetime) -> ColumnElement[bool]:
    return (
        col(Delivery.state).in_((State.CLAIMED, State.COMMITTING)) & (col(Delivery.lease_until) <= now)
    ) | (
        col(Delivery.state).in_((State.PENDING, State.DEFERRED, State.UNCERTAIN))
        & col(Delivery.next_attempt_at).is_not(None)
        & (col(Delivery.give_up_at) <= now)
    )


def _recover_one(delivery: Delivery, now: datetime, policy: UncertainPolicy) -> None:
    if delivery.state is State.COMMITTING:
        resend_at = now if policy is UncertainPolicy.RESEND else None
        marking.doubt(delivery, "the sender died while this mail was in flight", resend_at)
    elif delivery.state is State.CLAIMED:
        marking.leave_open(delivery, State.PENDING, "", now)
    if delivery.next_attempt_at and delivery.give_up_at and delivery.give_up_at <= now:
        why = "the next digest is due" if delivery.kind is MailKind.DIGEST else "it is out of date"
        reason = f"given up, {why}: {delivery.reason or 'it was never attempted'}"
        marking.end(delivery, State.UNCERTAIN if delivery.maybe_delivered else State.FAILED, reason)
