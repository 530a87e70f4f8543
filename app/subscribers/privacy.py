"""Unsubscribe subscribers, replace their links, export and erase their data.

Delete the preferences and feedback of former subscribers.
"""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, TypeVar, cast

from pydantic_core import to_jsonable_python
from sqlalchemy import Text, exists, func, update
from sqlalchemy import cast as sql_cast
from sqlmodel import Session, SQLModel, col, delete, or_, select

from app.delivery import ledger, suppression
from app.errors import AddressSuppressed, Conflict
from app.links import LIFETIMES, Purpose
from app.storage import audit_log
from app.storage.database import execute_and_count
from app.storage.models import (
    AddressChange,
    Delivery,
    DigestContent,
    Event,
    FeedbackRow,
    FormSubmission,
    InterestRow,
    PrivatePaper,
    Subscriber,
)
from app.storage.models import SubscriberState as State
from app.subscribers import feedback, form_submissions
from app.subscribers.event_log import LINKS_REPLACED, record_event
from app.subscribers.mailbox_limits import was_mailed_recently
from app.subscribers.preferences import Preferences
from app.subscribers.repository import (
    enqueue_requested_mail,
    get,
    get_for_update,
    preference_columns,
    preferences_of,
    require_not_erased,
    require_not_suppressed,
    store_preferences,
)
from app.types import MailKind

DELETION_BATCH = 1_000  # rows that one transaction deletes
FORGETTING_BATCH = 100  # former subscribers whose preferences one transaction deletes
_Row = TypeVar("_Row", Delivery, Event)


def unsubscribe(session: Session, subscriber_id: int, now: datetime) -> Subscriber:
    """End a subscription. Digests waiting in the ledger are not sent. Repeated calls have no effect."""
    subscriber = get_for_update(session, subscriber_id)
    if subscriber.state not in (State.UNSUBSCRIBED, State.ERASED):
        subscriber.state, subscriber.ended_at = State.UNSUBSCRIBED, now
        subscriber.next_due_at = subscriber.paused_until = None
        record_event(session, "unsubscribed", subscriber, now)
        session.add(subscriber)
    return subscriber


def new_links(session: Session, subscriber_id: int, now: datetime) -> int:
    """Invalidate a subscriber's links, except for unsubscribing, and email new ones. Return the email's id.

    Raise Conflict like `require_new_links`.
    """
    subscriber = get_for_update(session, subscriber_id)
    require_new_links(session, subscriber, now)
    delivery_id = enqueue_requested_mail(session, subscriber, MailKind.NEW_LINKS, now)
    subscriber.link_epoch += 1
    record_event(session, LINKS_REPLACED, subscriber, now)
    session.add(subscriber)
    return cast("int", delivery_id)  # not None, because of `require_new_links`


def require_new_links(session: Session, subscriber: Subscriber, now: datetime) -> None:
    """Raise Conflict if a subscriber cannot be sent new links.

    That is the case if the subscriber was erased or has not confirmed, if the address is suppressed, or if
    new links were requested in the last hour or wait in a pause of sending.
    """
    require_not_erased(subscriber)
    if subscriber.state is State.PENDING:
        raise Conflict("This sign-up is not confirmed yet: there are no links to replace.")
    if suppression.is_suppressed(session, subscriber.email):
        raise AddressSuppressed("Nothing was changed, because this address is suppressed: it gets no mail.")
    if was_mailed_recently(session, subscriber, MailKind.NEW_LINKS, now):
        raise Conflict(
            "New links were sent in the last hour, or will be sent when sending resumes. Wait for them, or "
            "try again later."
        )


def request_export(session: Session, subscriber_id: int, now: datetime) -> int | None:
    """Send a link to download the stored data. Digests lack this link, because they may be forwarded.

    Return the id of the email, or None like `enqueue_requested_mail`. Raise Conflict if the subscriber was
    erased, or AddressSuppressed if the address is suppressed.
    """
    subscriber = get_for_update(session, subscriber_id)
    require_not_erased(subscriber)
    require_not_suppressed(session, subscriber)
    record_event(session, "export_asked", subscriber, now)
    return enqueue_requested_mail(
        session, subscriber, MailKind.EXPORT, now, lifetime=LIFETIMES[Purpose.EXPORT]
    )


def request_erasure(session: Session, subscriber_id: int, now: datetime) -> int | None:
    """Send a link to erase the subscriber. Return and raise the same as `request_export`."""
    subscriber = get_for_update(session, subscriber_id)
    if subscriber.state is State.ERASED:
        raise Conflict("This subscriber has already been erased.")
    require_not_suppressed(session, subscriber)
    record_event(session, "erasure_asked", subscriber, now)
    return enqueue_requested_mail(session, subscriber, MailKind.ERASE, now, lifetime=LIFETIMES[Purpose.ERASE])


def erase(session: Session, subscriber_id: int, now: datetime, *, suppress: bool = True) -> None:
    """Erase a subscriber. If `suppress`, keep a hash of the address, so that it never gets mail again."""
    subscriber = get_for_update(session, subscriber_id)
    if subscriber.state is State.ERASED:
        return
    email = subscriber.email
    anonymize_new_address(session, subscriber_id, now)
    anonymize(session, subscriber, now)
    if suppress:
        suppression.suppress(session, email, "erased on request", now)
    record_event(session, "erased", subscriber, now)


def anonymize(session: Session, subscriber: Subscriber, now: datetime) -> None:
    """Remove all personal data from a subscriber's rows.

    The rows themselves are kept for statistics, except those of sign-ups (see `delete_unconfirmed_sign_ups`).
    """
    identity = subscriber.id or 0
    audit_log.erase_details(session, identity, suppression.address_hash(subscriber.email))
    suppression.forget_reason(session, subscriber.email)
    of_subscriber = or_(col(AddressChange.subscriber_id) == identity, AddressChange.email == subscriber.email)
    session.execute(delete(AddressChange).where(of_subscriber))
    subscriber.email = f"erased-{identity}@erased.invalid"
    subscriber.state, subscriber.ended_at = State.ERASED, now
    subscriber.next_due_at = subscriber.paused_until = None
    subscriber.consent_ip = ""
    subscriber.link_epoch += 1  # invalidate all links in earlier emails, except unsubscribe links
    store_preferences(session, subscriber, Preferences())
    feedback.forget(session, identity)
    form_submissions.close(session, identity)
    session.execute(update(Event).where(col(Event.subscriber_id) == identity).values(detail=""))
    own_rows = col(Delivery.subscriber_id) == identity
    session.execute(
        update(Delivery).where(own_rows).values(subject="", smtp_text="", reason="", receiver=None)
    )
    session.execute(
        delete(DigestContent).where(
            col(DigestContent.delivery_id).in_(select(col(Delivery.id)).where(own_rows))
        )
    )
    session.add(subscriber)


def delete_unconfirmed_sign_ups(session: Session) -> int:
    """Delete a batch of erased rows that nobody ever confirmed, once no email, event or form refers to them.

    Keep the newest row, because SQLite would give its id to the next subscriber. Return the number of deleted
    rows; call this again until it is 0.
    """
    newest = select(func.max(Subscriber.id)).scalar_subquery()
    ended = select(col(Subscriber.id)).where(
        Subscriber.state == State.ERASED, col(Subscriber.confirmed_at).is_(None), col(Subscriber.id) < newest
    )
    for table in (Delivery, Event, FormSubmission):
        ended = ended.where(~exists().where(col(table.subscriber_id) == Subscriber.id))
    batch = ended.order_by(col(Subscriber.id)).limit(DELETION_BATCH)
    return execute_and_count(session, delete(Subscriber).where(col(Subscriber.id).in_(batch)))


def forget_former_subscribers(session: Session, before: datetime, default: Preferences) -> int:
    """Delete the feedback and IP address of a batch of subscribers who unsubscribed before `before`.

    Replace their preferences by the default ones. Keep their address, so that no import adds it again and its
    owner can subscribe again, and the times and the version of their consent. Skip rows that another
    transaction has locked. Return the number of subscribers; call this again until it is 0.
    """
    has_rows = (
        exists().where(col(table.subscriber_id) == Subscriber.id)
        for table in (InterestRow, FeedbackRow, PrivatePaper)
    )
    lists = (sql_cast(column, Text) != "[]" for column in (Subscriber.muted, Subscriber.ignored_authors))
    values = {name: value for name, value in preference_columns(default).items() if name != "muted"}
    differs = (getattr(Subscriber, name) != value for name, value in values.items())
    former = select(Subscriber).where(
        Subscriber.state == State.UNSUBSCRIBED,
        col(Subscriber.ended_at) < before,
        or_(col(Subscriber.consent_ip) != "", *has_rows, *lists, *differs),
    )
    batch = former.order_by(col(Subscriber.id)).limit(FORGETTING_BATCH).with_for_update(skip_locked=True)
    subscribers = session.exec(batch.execution_options(populate_existing=True)).all()
    for subscriber in subscribers:
        subscriber.consent_ip = ""
        store_preferences(session, subscriber, default)
        feedback.forget(session, subscriber.id or 0)
    return len(subscribers)


def anonymize_new_address(session: Session, subscriber_id: int, now: datetime) -> None:
    """Anonymise the row with the new address when a subscriber's change of address ends without it.

    Keep the row if its owner signed up, too, or if another subscriber wants to change to the same address.
    Anonymise it even if the email to the new address bounced.
    """
    change = session.get(AddressChange, subscriber_id)
    if change is None:
        return
    signed_up = exists().where(
        col(Delivery.subscriber_id) == Subscriber.id, col(Delivery.kind) == MailKind.CONFIRM
    )
    other_change = exists().where(
        col(AddressChange.email) == change.email, col(AddressChange.subscriber_id) != subscriber_id
    )
    row = select(Subscriber).where(Subscriber.email == change.email, col(Subscriber.confirmed_at).is_(None))
    row = row.where(~signed_up, ~other_change).with_for_update()
    holder = session.exec(row.execution_options(populate_existing=True)).one_or_none()
    if holder is not None:
        anonymize(session, holder, now)
        record_event(session, "change_ended", holder, now)


def export(session: Session, subscriber_id: int, now: datetime) -> dict[str, Any]:
    """Return all stored data about a subscriber, except secrets, internal fields and unreleased digests."""
    subscriber, pauses = get(session, subscriber_id), ledger.pauses(session)
    deliveries = _rows(session, Delivery, subscriber_id)
    released = [row.id for row in deliveries if ledger.is_released(pauses, row, now)]
    digests = ledger.restored_digests(session, released, ledger.SnapshotStore())
    rated = feedback.all_feedback(session, [subscriber_id]).get(subscriber_id, ())
    return {
        "subscriber": _public_fields(subscriber),
        "interests": [asdict(interest) for interest in preferences_of(session, subscriber).interests],
        "deliveries": [
            _public_fields(row) | {"digest": digests[row.id].as_dict() if row.id in digests else {}}
            for row in deliveries
        ],
        "feedback": to_jsonable_python(rated),
        "new_address": change.email if (change := session.get(AddressChange, subscriber_id)) else "",
        "unconfirmed": form_submissions.export(session, subscriber_id),
        "events": [_public_fields(row) for row in _rows(session, Event, subscriber_id)],
        "do_not_mail": suppression.is_suppressed(session, subscriber.email),
    }


# Row ids are internal too, because consecutive ids would reveal how many rows other subscribers have.
_INTERNAL_FIELDS: dict[type[SQLModel], set[str]] = {
    Subscriber: {"id", "link_epoch", "due_since", "plan_after"},
    Delivery: {"id", "subscriber_id", "lease_owner", "lease_until", "possibly_delivered"},
    Event: {"id", "subscriber_id", "delivery_id", "key"},
}


def _public_fields(row: Subscriber | Delivery | Event) -> dict[str, Any]:
    return row.model_dump(mode="json", exclude=_INTERNAL_FIELDS[type(row)])


def _rows(session: Session, table: type[_Row], subscriber_id: int) -> Sequence[_Row]:
    own_rows = select(table).where(col(table.subscriber_id) == subscriber_id).order_by(col(table.id))
    return session.exec(own_rows).all()
