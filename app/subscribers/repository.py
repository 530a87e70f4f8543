"""The rows of readers: find one, note what happened, and say when the next digest is due."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from sqlmodel import Session, col, func, select

from app.delivery import ledger
from app.errors import Conflict, NotFound
from app.storage.models import Delivery, Event, Subscriber, SubscriberState
from app.subscribers import schedule
from app.subscribers.interests import interests_of, store
from app.subscribers.preferences import Preferences, normalise_address
from app.types import MailKind

# A mail that somebody asks for again within the hour is on its way already.
BETWEEN_MAILS = timedelta(hours=1)
LINKS_REPLACED = "new_links"  # the event
# What could still be of the same local day, wherever on earth the reader moved.
LOOK_BACK = timedelta(days=3)
# What is noted where the state of a reader changes, and how they are from then on.
_BECAME = {
    "signed_up": SubscriberState.PENDING,
    **dict.fromkeys(("added", "confirmed", "resumed", "came_back", "trusted_again"), SubscriberState.ACTIVE),
    "paused": SubscriberState.PAUSED,
    **dict.fromkeys(("unsubscribed", "declined"), SubscriberState.UNSUBSCRIBED),
    "bounce": SubscriberState.BOUNCING,
    "erased": SubscriberState.ERASED,
}


def get(session: Session, subscriber_id: int) -> Subscriber:
    """A reader, to be read, or NotFound."""
    found = session.get(Subscriber, subscriber_id)
    if found is None:
        raise NotFound("There is no such reader.")
    return found


def find(session: Session, name: str) -> Subscriber:
    """The reader with this address or number, or NotFound."""
    if name.isascii() and name.isdigit() and len(name) < 19:
        return get(session, int(name))
    email = normalise_address(name)
    row = session.exec(select(Subscriber).where(Subscriber.email == email)).one_or_none()
    if row is None:
        raise NotFound(f"There is no reader with the address {email}.")
    return row


def get_for_update(session: Session, subscriber_id: int) -> Subscriber:
    """A reader, to be changed: nobody else changes them until the transaction ends."""
    mine = select(Subscriber).where(col(Subscriber.id) == subscriber_id).with_for_update()
    session.exec(mine.execution_options(populate_existing=True)).one_or_none()
    return get(session, subscriber_id)


def require_not_erased(subscriber: Subscriber) -> None:
    """Conflict for a reader who is not there any more."""
    if subscriber.state is SubscriberState.ERASED:
        raise Conflict("This reader has been erased.")


def record_event(
    session: Session, kind: str, subscriber: Subscriber | None, now: datetime, detail: str = ""
) -> None:
    """Write down that something happened."""
    session.add(Event(at=now, kind=kind, subscriber_id=subscriber.id if subscriber else None, detail=detail))


def preferences_of(session: Session, subscriber: Subscriber) -> Preferences:
    """What a reader has chosen."""
    chosen = {name: getattr(subscriber, name) for name in _COLUMNS}
    own = interests_of(session, [subscriber.id or 0]).get(subscriber.id or 0, ())
    return Preferences(**chosen, muted=tuple(subscriber.muted), interests=own)


def store_preferences(session: Session, subscriber: Subscriber, wanted: Preferences) -> None:
    """Write down what a reader has chosen; `wanted` has been checked."""
    for name in _COLUMNS:
        setattr(subscriber, name, getattr(wanted, name))
    subscriber.muted = list(wanted.muted)
    session.add(subscriber)
    session.flush()
    store(session, subscriber.id or 0, wanted.interests)


_COLUMNS = tuple(field.name for field in fields(Preferences) if field.name not in ("interests", "muted"))


def reschedule(session: Session, subscriber: Subscriber, now: datetime) -> None:
    """Say when the next digest is due; never, for a reader who is not active.

    One that was composed ahead of its hour is composed anew, as the reader wants it now.
    """
    ledger.withdraw(session, subscriber.id or 0, now)
    if subscriber.state is not SubscriberState.ACTIVE:
        subscriber.next_due_at, subscriber.due_since = None, now
        return
    chosen = (subscriber.cadence, subscriber.weekday, subscriber.hour, subscriber.zone)
    before = _recent_digests(session, subscriber, now)
    due = schedule.next_due(*chosen, after=now)
    while _had(subscriber, before, due):
        due = schedule.next_due(*chosen, after=due)
    subscriber.next_due_at = subscriber.due_since = due


def _had(subscriber: Subscriber, before: Sequence[Delivery], due: datetime) -> bool:
    """Whether a digest came on this day already, by the clock that the reader lives by now.

    The ledger refuses the same edition, but after a change of zone the same day may have another name.
    """
    zone = ZoneInfo(subscriber.zone)
    edition = schedule.edition(subscriber.zone, due)
    day = due.astimezone(zone).date()
    return any(one.edition == edition or one.due_at.astimezone(zone).date() >= day for one in before)


def _recent_digests(session: Session, subscriber: Subscriber, now: datetime) -> Sequence[Delivery]:
    digests = select(Delivery).where(
        Delivery.subscriber_id == subscriber.id,
        Delivery.kind == MailKind.DIGEST,
        col(Delivery.due_at) > now - LOOK_BACK,
    )
    return session.exec(digests).all()


def enqueue_requested_mail(
    session: Session,
    subscriber: Subscriber,
    kind: MailKind,
    now: datetime,
    *,
    lifetime: timedelta = timedelta(days=1),
) -> int | None:
    """Put a mail that was asked for into the ledger; None when one has gone within the hour.

    A mail whose links were replaced since does not count: its reader cannot use it any more.
    """
    lately = select(Delivery.id).where(
        Delivery.subscriber_id == subscriber.id,
        Delivery.kind == kind,
        col(Delivery.created_at) > now - BETWEEN_MAILS,
    )
    if kind is not MailKind.NEW_LINKS:
        replaced = select(func.max(Event.at)).where(
            Event.subscriber_id == subscriber.id, Event.kind == LINKS_REPLACED
        )
        if (at := session.exec(replaced).one()) is not None:
            lately = lately.where(col(Delivery.created_at) > at)
    if session.exec(lately).first() is not None:
        return None
    # The suffix tells this mail from one of the same second whose links have been replaced.
    return enqueue_mail(session, subscriber, kind, now, lifetime, f"-{subscriber.link_epoch}")


def enqueue_mail(
    session: Session,
    subscriber: Subscriber,
    kind: MailKind,
    now: datetime,
    lifetime: timedelta,
    suffix: str = "",
) -> int | None:
    """Put a mail that was asked for into the ledger. `suffix` tells apart mails of the same second."""
    return ledger.enqueue(
        session,
        subscriber_id=subscriber.id or 0,
        kind=kind,
        edition=f"{kind}-{now:%Y%m%dT%H%M%SZ}{suffix}",
        due_at=now,
        now=now,
        give_up_at=now + lifetime,
    )


def state_at(session: Session, subscriber: Subscriber, at: datetime) -> SubscriberState | None:
    """How a reader was at a moment, by what was noted; None where they had not come yet.

    Where what was noted of so long ago is forgotten, they were a reader from their first confirmation on.
    """
    noted = select(Event.at, Event.kind).where(Event.subscriber_id == subscriber.id)
    noted = noted.where(col(Event.kind).in_(_BECAME)).order_by(col(Event.at), col(Event.id))
    changes = session.exec(noted).all()
    before = [_BECAME[kind] for moment, kind in changes if moment <= at]
    if len(before) == len(changes):
        return subscriber.state
    if before or subscriber.created_at > at:
        return before[-1] if before else None
    known = subscriber.confirmed_at is not None and subscriber.confirmed_at <= at
    return SubscriberState.ACTIVE if known else SubscriberState.PENDING


def state_before_bounces(session: Session, subscriber: Subscriber) -> SubscriberState:
    """How a reader was before mail came back, by what was noted or, later, by their consent."""
    mine = select(Event.kind).where(Event.subscriber_id == subscriber.id, col(Event.kind).in_(_BECAME))
    chosen = mine.where(col(Event.kind).not_in(("bounce", "trusted_again")))
    last = session.exec(chosen.order_by(col(Event.at).desc(), col(Event.id).desc())).first()
    if last:
        return _BECAME[last]
    return SubscriberState.ACTIVE if subscriber.confirmed_at else SubscriberState.PENDING


def history(session: Session, subscriber_id: int, limit: int = 14) -> list[Delivery]:
    """The latest digests of a reader, newest first, and those that were due but had nothing to bring."""
    digests = select(Delivery).where(
        Delivery.subscriber_id == subscriber_id, Delivery.kind == MailKind.DIGEST
    )
    return list(session.exec(digests.order_by(col(Delivery.due_at).desc()).limit(limit)))
