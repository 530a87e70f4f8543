"""The operator's hand: pause, resume, let a mail of unknown fate leave once more."""

from __future__ import annotations

from datetime import datetime

from sqlmodel import Session, col, delete, select

from app.db import insert_new
from app.deliver.claims import EVERYTHING
from app.errors import Conflict, NotFound
from app.models import Delivery, SendingPause
from app.models import DeliveryState as State


def pause(session: Session, reason: str, now: datetime, edition: str = EVERYTHING) -> None:
    """No mail of this edition, or of any, leaves from now on. A pause that stands keeps its reason."""
    insert_new(session, SendingPause, ["edition"], edition=edition, reason=reason, since=now)


def resume(session: Session, edition: str = EVERYTHING) -> bool:
    """Lift a pause; False when there was none."""
    lifted = session.execute(delete(SendingPause).where(col(SendingPause.edition) == edition))
    return bool(lifted.rowcount)  # type: ignore[attr-defined]


def release(session: Session, delivery_id: int, now: datetime) -> None:
    """Let a mail of unknown fate that is held leave once more, with the same name and the same bytes."""
    delivery = session.get(Delivery, delivery_id)
    if delivery is None:
        raise NotFound(f"there is no delivery {delivery_id}")
    if delivery.state is not State.UNCERTAIN:
        raise Conflict(f"this delivery is {delivery.state}: only one of unknown fate can be sent once more")
    delivery.next_attempt_at, delivery.give_up_at = now, None
    session.add(delivery)


def pauses(session: Session) -> list[SendingPause]:
    return list(session.exec(select(SendingPause).order_by(col(SendingPause.since))))
