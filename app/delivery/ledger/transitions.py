"""State changes of a ledger row."""

from datetime import datetime

from app.storage.models import Delivery
from app.storage.models import DeliveryState as State


def set_state(delivery: Delivery, state: State, reason: str, next_attempt_at: datetime | None = None) -> None:
    delivery.state, delivery.reason, delivery.next_attempt_at = state, reason, next_attempt_at
    delivery.lease_until = None  # keep `lease_owner`, because the owner's late result still counts


def requeue(delivery: Delivery, next_attempt_at: datetime | None) -> None:
    """Put an email back in the queue. It becomes uncertain if an earlier attempt may have delivered it."""
    state, reason = (State.UNCERTAIN, delivery.reason) if delivery.possibly_delivered else (State.PENDING, "")
    set_state(delivery, state, reason, next_attempt_at)


def mark_uncertain(delivery: Delivery, reason: str, next_attempt_at: datetime | None) -> None:
    set_state(delivery, State.UNCERTAIN, reason, next_attempt_at)
    delivery.possibly_delivered = True
