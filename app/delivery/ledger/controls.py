"""The operator's hand: pause, resume, cancel, let a mail of unknown fate leave once more."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import update
from sqlmodel import Session, col, delete, select

from app.delivery.ledger.claims import EVERYTHING
from app.errors import Conflict, NotFound
from app.storage.database import insert_or_ignore
from app.storage.models import Delivery, SendingPause
from app.storage.models import DeliveryState as State

CANCELLED = "cancelled by an operator"
# A claimed mail ends as well. Where it is in flight already, its answer will say what became of it.
UNSENT = (State.PENDING, State.DEFERRED, State.CLAIMED)


def pause(session: Session, reason: str, now: datetime, edition: str = EVERYTHING) -> None:
    """No mail of this edition, or of any, leaves from now on. A pause that stands keeps its reason."""
    insert_or_ignore(session, SendingPause, ["edition"], edition=edition, reason=reason, since=now)


def resume(session: Session, edition: str = EVERYTHING) -> bool:
    """Lift a pause; False when there was none."""
    lifted = session.execute(delete(SendingPause).where(col(SendingPause.edition) == edition))
    return bool(lifted.rowcount)  # type: ignore[attr-defined]


def cancel(session: Session, edition: str) -> int:
    """End all mails of an edition that have not left; how many. What may have arrived stays uncertain."""
    doubtful = col(Delivery.possibly_delivered)
    uncertain = {"state": State.UNCERTAIN, "reason": CANCELLED, "next_attempt_at": None, "lease_until": None}
    theirs = update(Delivery).where(col(Delivery.edition) == edition)
    skipped = session.execute(
        theirs.where(col(Delivery.state).in_(UNSENT), ~doubtful).values(
            **{**uncertain, "state": State.SKIPPED}
        )
    )
    again = col(Delivery.state).in_((*UNSENT, State.UNCERTAIN)) & col(Delivery.next_attempt_at).is_not(None)
    kept = session.execute(theirs.where(again, doubtful).values(**uncertain))
    return skipped.rowcount + kept.rowcount  # type: ignore[attr-defined, no-any-return]


def resend(session: Session, delivery_id: int, now: datetime) -> None:
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
