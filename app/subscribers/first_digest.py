"""Request and find the first digest, which a new subscriber may get at once."""

from datetime import datetime

from sqlmodel import Session, col, or_, select

from app.delivery import ledger
from app.errors import Conflict
from app.storage.models import Delivery, Subscriber
from app.storage.models import SubscriberState as State
from app.subscribers import schedule
from app.subscribers.event_log import record_event
from app.subscribers.repository import get_for_update
from app.types import MailKind


def request_first_digest(session: Session, subscriber_id: int, now: datetime) -> bool:
    """Make the first digest due now. If `first_digest` finds one already, change nothing and return False.

    The first digest is today's edition, so the scheduled digest is not sent on the same day. Raise Conflict
    if the subscription is not active.
    """
    subscriber = get_for_update(session, subscriber_id)
    if subscriber.state is State.PAUSED:
        raise Conflict("Digests are paused. Resume them first.")
    if subscriber.state is not State.ACTIVE:
        raise Conflict("There is no digest to send: this subscription is not active.")
    if first_digest(session, subscriber, now):
        return False
    subscriber.next_due_at = now
    # The schedule applies from the day after this digest, which is sent whether or not one was due today.
    subscriber.due_since = schedule.next_edition_due(
        subscriber.cadence, subscriber.weekday, subscriber.hour, subscriber.zone, now
    )
    record_event(session, "first_asked", subscriber, now)
    session.add(subscriber)
    return True


def first_digest(session: Session, subscriber: Subscriber, now: datetime) -> Delivery | None:
    """Return the latest digest that was sent, is scheduled or is for today, or None if there is none."""
    digests = select(Delivery).where(
        Delivery.subscriber_id == subscriber.id,
        Delivery.kind == MailKind.DIGEST,
        or_(
            col(Delivery.state).not_in(ledger.UNDELIVERED),
            Delivery.edition == schedule.edition(subscriber.zone, now),
        ),
    )
    return session.exec(digests.order_by(col(Delivery.due_at).desc())).first()
