"""The changes of a ledger row's state."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlmodel import Session, col, select

from app.storage.models import Delivery, Subscriber
from app.storage.models import DeliveryState as State


def with_readers(session: Session, ids: Sequence[int | None]) -> list[tuple[Delivery, Subscriber]]:
    """Load deliveries and their subscribers, in the order of the delivery ids."""
    joined = select(Delivery, Subscriber).join(Subscriber, col(Subscriber.id) == Delivery.subscriber_id)
    rows = session.exec(joined.where(col(Delivery.id).in_(ids)).execution_options(populate_existing=True))
    return sorted(rows, key=lambda row: row[0].id or 0)


def set_state(delivery: Delivery, state: State, reason: str, next_attempt_at: datetime | None = None) -> None:
    delivery.state, delivery.reason, delivery.next_attempt_at = state, reason, next_attempt_at
    delivery.lease_until = None  # `lease_owner` stays, because a late result still counts


def requeue(delivery: Delivery, next_attempt_at: datetime | None) -> None:
    """Let a mail wait again. It stays uncertain if an earlier attempt may have arrived."""
    state, reason = (State.UNCERTAIN, delivery.reason) if delivery.possibly_delivered else (State.PENDING, "")
    set_state(delivery, state, reason, next_attempt_at)


def mark_uncertain(delivery: Delivery, reason: str, next_attempt_at: datetime | None) -> None:
    set_state(delivery, State.UNCERTAIN, reason, next_attempt_at)
    delivery.possibly_delivered = True
