"""Operator controls: pause, resume, cancel, and resend an uncertain mail."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import update
from sqlmodel import Session, col, delete, select

from app.delivery.ledger.claims import ALL_EDITIONS
from app.errors import Conflict, NotFound
from app.storage.database import insert_or_ignore
from app.storage.models import Delivery, SendingPause
from app.storage.models import DeliveryState as State

CANCELLED = "cancelled by an operator"
# Claimed mails are cancelled, too. If one is already in flight, the relay's reply sets its state later.
UNSENT = (State.PENDING, State.DEFERRED, State.CLAIMED)


def pause(session: Session, reason: str, now: datetime, edition: str = ALL_EDITIONS) -> None:
    """Pause one edition or all. If an edition is already paused, keep its reason."""
    insert_or_ignore(session, SendingPause, ["edition"], edition=edition, reason=reason, since=now)


def resume(session: Session, edition: str = ALL_EDITIONS) -> bool:
    """End a pause. Return False if there was none."""
    lifted = session.execute(delete(SendingPause).where(col(SendingPause.edition) == edition))
    return bool(lifted.rowcount)  # type: ignore[attr-defined]


def cancel(session: Session, edition: str) -> int:
    """Cancel the unsent mails of an edition and return their number.

    Mails that may have arrived become uncertain and are not sent again.
    """
    may_have_arrived = col(Delivery.possibly_delivered)
    uncertain = {"state": State.UNCERTAIN, "reason": CANCELLED, "next_attempt_at": None, "lease_until": None}
    of_edition = update(Delivery).where(col(Delivery.edition) == edition)
    skipped = session.execute(
        of_edition.where(col(Delivery.state).in_(UNSENT), ~may_have_arrived).values(
            **{**uncertain, "state": State.SKIPPED}
        )
    )
    to_be_sent_again = col(Delivery.state).in_((*UNSENT, State.UNCERTAIN)) & col(
        Delivery.next_attempt_at
    ).is_not(None)
    held = session.execute(of_edition.where(to_be_sent_again, may_have_arrived).values(**uncertain))
    return skipped.rowcount + held.rowcount  # type: ignore[attr-defined, no-any-return]


def resend(session: Session, delivery_id: int, now: datetime) -> None:
    """Send an uncertain mail again, with the same Message-ID and bytes. Raise NotFound or Conflict."""
    delivery = session.get(Delivery, delivery_id)
    if delivery is None:
        raise NotFound(f"there is no delivery {delivery_id}")
    if delivery.state is not State.UNCERTAIN:
        raise Conflict(f"this delivery is {delivery.state}: only uncertain deliveries can be resent")
    delivery.next_attempt_at, delivery.give_up_at = now, None
    session.add(delivery)


def pauses(session: Session) -> list[SendingPause]:
    return list(session.exec(select(SendingPause).order_by(col(SendingPause.since))))
