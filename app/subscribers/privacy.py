"""Unsubscribe, replace links, export and erase readers."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

from sqlalchemy import update
from sqlmodel import Session, col, delete, select

from app.delivery import ledger, suppression
from app.errors import Conflict
from app.links import LIFETIMES, Purpose
from app.storage import audit_log
from app.storage.models import Delivery, DigestContent, Event, Subscriber
from app.storage.models import SubscriberState as State
from app.subscribers import feedback, form_submissions
from app.subscribers.preferences import Preferences
from app.subscribers.repository import (
    LINKS_REPLACED,
    enqueue_requested_mail,
    get,
    get_for_update,
    preferences_of,
    record_event,
    require_not_erased,
    store_preferences,
)
from app.types import MailKind


def unsubscribe(session: Session, subscriber_id: int, now: datetime) -> Subscriber:
    """No digest from now on: what waits in the ledger is not sent either. Twice is once."""
    subscriber = get_for_update(session, subscriber_id)
    if subscriber.state not in (State.UNSUBSCRIBED, State.ERASED):
        subscriber.state, subscriber.ended_at = State.UNSUBSCRIBED, now
        subscriber.next_due_at = subscriber.paused_until = None
        record_event(session, "unsubscribed", subscriber, now)
        session.add(subscriber)
    return subscriber


def new_links(session: Session, subscriber_id: int, now: datetime) -> int:
    """Make all links that were sent to a reader void, and mail them new ones. Return the id of that mail.

    Unsubscribing works by links of any age. Raise Conflict within the hour, and where there is no reader.
    """
    subscriber = get_for_update(session, subscriber_id)
    require_not_erased(subscriber)
    if subscriber.state is State.PENDING:
        raise Conflict("This sign-up is not confirmed yet: there are no links to replace.")
    delivery_id = enqueue_requested_mail(session, subscriber, MailKind.NEW_LINKS, now)
    if delivery_id is None:
        raise Conflict("New links were mailed less than an hour ago. Use those, or try again later.")
    subscriber.link_epoch += 1
    record_event(session, LINKS_REPLACED, subscriber, now)
    session.add(subscriber)
    return delivery_id


def request_export(session: Session, subscriber_id: int, now: datetime) -> int | None:
    """Mail the link that downloads what is stored: a digest that was forwarded must not be enough for it."""
    subscriber = get_for_update(session, subscriber_id)
    require_not_erased(subscriber)
    record_event(session, "export_asked", subscriber, now)
    return enqueue_requested_mail(
        session, subscriber, MailKind.EXPORT, now, lifetime=LIFETIMES[Purpose.EXPORT]
    )


def request_erasure(session: Session, subscriber_id: int, now: datetime) -> int | None:
    """Mail the link that erases: a digest that was forwarded must not be enough for it."""
    subscriber = get_for_update(session, subscriber_id)
    if subscriber.state is State.ERASED:
        raise Conflict("Everything about this reader is erased already.")
    record_event(session, "erasure_asked", subscriber, now)
    return enqueue_requested_mail(session, subscriber, MailKind.ERASE, now, lifetime=LIFETIMES[Purpose.ERASE])


def erase(session: Session, subscriber_id: int, now: datetime, *, keep_off: bool = True) -> None:
    """Forget a reader. `keep_off` keeps the fingerprint by which we know not to write there again."""
    subscriber = get_for_update(session, subscriber_id)
    if subscriber.state is State.ERASED:
        return
    email = subscriber.email
    anonymise(session, subscriber, now)
    if keep_off:
        suppression.suppress(session, email, "erased at the reader's wish", now)
    record_event(session, "erased", subscriber, now)


def anonymise(session: Session, subscriber: Subscriber, now: datetime) -> None:
    """Take everything personal out of the rows; what stays is that there was somebody, and counts."""
    identity = subscriber.id or 0
    audit_log.erase_details(session, identity, suppression.address_hash(subscriber.email))
    suppression.forget_reason(session, subscriber.email)
    subscriber.email = f"erased-{identity}@erased.invalid"
    subscriber.state, subscriber.ended_at = State.ERASED, now
    subscriber.next_due_at = subscriber.paused_until = None
    subscriber.consent_ip = ""
    subscriber.link_epoch += 1  # every link in every old mail is void from now on
    store_preferences(session, subscriber, Preferences())
    feedback.forget(session, identity)
    form_submissions.close(session, identity)
    session.execute(update(Event).where(col(Event.subscriber_id) == identity).values(detail=""))
    theirs = col(Delivery.subscriber_id) == identity
    session.execute(update(Delivery).where(theirs).values(subject="", smtp_text="", reason=""))
    session.execute(
        delete(DigestContent).where(
            col(DigestContent.delivery_id).in_(select(col(Delivery.id)).where(theirs))
        )
    )
    session.add(subscriber)


def export(session: Session, subscriber_id: int) -> dict[str, Any]:
    """Everything that is held about a reader, for themselves; secrets and machinery left out."""
    subscriber = get(session, subscriber_id)
    return {
        "subscriber": subscriber.model_dump(mode="json", exclude=_MACHINERY["subscriber"]),
        "interests": _interests(preferences_of(session, subscriber)),
        "deliveries": _deliveries(session, subscriber_id),
        "opinions": _opinions(session, subscriber_id),
        "unconfirmed": form_submissions.export(session, subscriber_id),
        "events": _rows(session, Event, subscriber_id, _MACHINERY["event"]),
        "do_not_mail": suppression.is_suppressed(session, subscriber.email),
    }


# Internal fields. Row numbers are among them: the next one would tell what happened to others since.
_MACHINERY = {
    "subscriber": {"id", "link_epoch", "due_since"},
    "delivery": {"lease_owner", "lease_until", "possibly_delivered"},
    "event": {"id", "delivery_id", "key"},
}


def _interests(chosen: Preferences) -> list[dict[str, Any]]:
    return [{"text": wish.text, "weight": wish.weight, "quota": wish.quota} for wish in chosen.interests]


def _opinions(session: Session, subscriber_id: int) -> list[dict[str, Any]]:
    said = feedback.all_feedback(session, [subscriber_id]).get(subscriber_id, ())
    return [asdict(opinion) | {"at": opinion.at.isoformat()} for opinion in said]


def _deliveries(session: Session, subscriber_id: int) -> list[dict[str, Any]]:
    """The mails, with all that the digests among them show."""
    rows = _rows(session, Delivery, subscriber_id, _MACHINERY["delivery"])
    numbers = [row.pop("id") for row in rows]
    digests = ledger.stored_digests(session, numbers)
    read = ledger.SnapshotStore().restore(session, list(digests.values()))
    shown = {number: asdict(restored.digest) for number, restored in zip(digests, read, strict=True)}
    return [row | {"digest": shown.get(number, {})} for number, row in zip(numbers, rows, strict=True)]


def _rows(
    session: Session, table: type[Delivery] | type[Event], subscriber_id: int, exclude: set[str]
) -> list[dict[str, Any]]:
    mine = select(table).where(col(table.subscriber_id) == subscriber_id).order_by(col(table.id))
    return [row.model_dump(mode="json", exclude={*exclude, "subscriber_id"}) for row in session.exec(mine)]
