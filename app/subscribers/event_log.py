"""Record the events of subscribers, count them, and compute earlier states from them.

`event_labels` holds the labels of the kinds of events.
"""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, exists, tuple_
from sqlalchemy.orm import aliased
from sqlmodel import Session, col, func, select

from app.storage import webhook_outbox
from app.storage.models import Event, Subscriber, SubscriberState, WebhookEvent

LINKS_REPLACED, ADDRESS_CHANGED = "new_links", "address_changed"  # kinds of events
# The kinds of subscriber events that `count_changes` counts.
CHANGES = (
    "signed_up",
    "added",
    "confirmed",
    "came_back",
    "paused",
    "unsubscribed",
    "erased",
    "bounce",
    "complaint",
)
# The kinds that are reported to webhooks. `bounces.recording` reports bounces and complaints.
_WEBHOOK_EVENTS = {
    "confirmed": WebhookEvent.CONFIRMED,
    "came_back": WebhookEvent.CONFIRMED,  # after having unsubscribed
    "unsubscribed": WebhookEvent.UNSUBSCRIBED,
    "erased": WebhookEvent.ERASED,
}
# The events that change a subscriber's state, and the resulting state.
_STATE_AFTER = {
    "signed_up": SubscriberState.PENDING,
    **dict.fromkeys(("added", "confirmed", "resumed", "came_back", "trusted_again"), SubscriberState.ACTIVE),
    "paused": SubscriberState.PAUSED,
    **dict.fromkeys(("unsubscribed", "declined"), SubscriberState.UNSUBSCRIBED),
    "bounce": SubscriberState.BOUNCING,
    **dict.fromkeys(("erased", "signup_replaced", "change_ended"), SubscriberState.ERASED),
}
# Before a bounce, a subscriber has the state of the last of these events.
_STATES_BEFORE_BOUNCES = sorted(_STATE_AFTER.keys() - {"bounce", "trusted_again"})
_ENDED = (SubscriberState.UNSUBSCRIBED, SubscriberState.ERASED)


def record_event(
    session: Session,
    kind: str,
    subscriber: Subscriber | None,
    now: datetime,
    detail: str = "",
    delivery_id: int | None = None,
) -> None:
    """Record an event, and queue it for webhooks if they report events of this kind."""
    subscriber_id = subscriber.id if subscriber else None
    session.add(Event(at=now, kind=kind, subscriber_id=subscriber_id, detail=detail, delivery_id=delivery_id))
    if subscriber and kind in _WEBHOOK_EVENTS:
        webhook_outbox.emit(session, _WEBHOOK_EVENTS[kind], {"subscriber_id": subscriber.id}, now)


def count_changes(session: Session, since: datetime, until: datetime) -> dict[str, int]:
    """Return the number of events of each kind in CHANGES, from `since` until just before `until`."""
    kind = col(Event.kind)
    events = select(kind, func.count()).where(kind.in_(CHANGES), Event.at >= since, Event.at < until)
    counted = dict(session.exec(events.group_by(kind)).all())
    return {kind: counted.get(kind, 0) for kind in CHANGES}


def events(session: Session, subscriber_id: int, limit: int) -> Sequence[Event]:
    """Return a subscriber's latest events, newest first."""
    own = select(Event).where(Event.subscriber_id == subscriber_id)
    return session.exec(own.order_by(col(Event.id).desc()).limit(limit)).all()


def preference_events(session: Session, subscriber_id: int, since: datetime) -> Sequence[Event]:
    """Return the events after `since` at which a subscriber's preferences were stored, oldest first."""
    stored = select(Event).where(Event.subscriber_id == subscriber_id, Event.at > since)
    stored = stored.where(col(Event.kind).in_(("changed", "confirmed")))
    return session.exec(stored.order_by(col(Event.at), col(Event.id))).all()


def state_at(session: Session, subscriber: Subscriber, at: datetime) -> SubscriberState | None:
    """Return a subscriber's state at a time, or None if they had not signed up yet.

    The state is computed from their events. If the events from that time were deleted, the subscriber counts
    as pending until their confirmation and as active after it.
    """
    events = select(Event.at, Event.kind).where(Event.subscriber_id == subscriber.id)
    events = events.where(col(Event.kind).in_(_STATE_AFTER)).order_by(col(Event.at), col(Event.id))
    changes = session.exec(events).all()
    before = [kind for moment, kind in changes if moment <= at]
    if len(before) == len(changes):
        return subscriber.state
    state = None
    for kind in before:
        if not (kind == "bounce" and state in _ENDED):  # such a bounce only suppresses the address
            state = _STATE_AFTER[kind]
    if before or subscriber.created_at > at:
        return state
    is_confirmed = subscriber.confirmed_at is not None and subscriber.confirmed_at <= at
    return SubscriberState.ACTIVE if is_confirmed else SubscriberState.PENDING


def state_before_bounces(session: Session, subscriber: Subscriber) -> SubscriberState:
    """Return the state before mail bounced, from the events or, if they were deleted, from `confirmed_at`.

    The event of a pause is never deleted while the pause lasts.
    """
    events = select(Event.kind).where(Event.subscriber_id == subscriber.id)
    events = events.where(col(Event.kind).in_(_STATES_BEFORE_BOUNCES))
    last = session.exec(events.order_by(col(Event.at).desc(), col(Event.id).desc())).first()
    if last:
        return _STATE_AFTER[last]
    return SubscriberState.ACTIVE if subscriber.confirmed_at else SubscriberState.PENDING


def is_current_pause() -> ColumnElement[bool]:
    """Return the condition that an event began a pause that has not ended, even if mail has bounced since.

    Such an event must be kept, however old it is, because the state before bounces cannot be derived without
    it.
    """
    later = aliased(Event)
    is_over = exists().where(
        col(later.subscriber_id) == Event.subscriber_id,
        col(later.kind).in_(_STATES_BEFORE_BOUNCES),
        tuple_(col(later.at), col(later.id)) > tuple_(col(Event.at), col(Event.id)),
    )
    return (col(Event.kind) == "paused") & ~is_over
