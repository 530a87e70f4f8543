"""Change a subscriber's address. First the owner of the old address confirms, then the owner of the new one.

An operator can request the same change, or make it at once if the new owner has confirmed it elsewhere.

The email to the new address belongs to a pending subscriber, like the email for a sign-up. The limits on mail
to one mailbox and remembered declines apply to it, and its bounces do not count against the subscriber whose
address changes. If the change ends without the new address, the pending subscriber is anonymized.
"""

from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, exists, or_
from sqlmodel import Session, col, delete, select

from app.delivery import ledger, suppression
from app.errors import Conflict, InvalidAddress
from app.links import LIFETIMES, Purpose
from app.storage.database import advisory_lock
from app.storage.inserts import storing_unique
from app.storage.models import AddressChange, Delivery, RequestKind, Subscriber
from app.storage.models import SubscriberState as State
from app.subscribers import form_submissions, mailbox_limits
from app.subscribers.address import normalize_address
from app.subscribers.event_log import ADDRESS_CHANGED, record_event, state_before_bounces
from app.subscribers.privacy import anonymize, anonymize_new_address
from app.subscribers.repository import (
    enqueue_requested_mail,
    get,
    get_for_update,
    require_not_erased,
    require_not_suppressed,
    reschedule,
)
from app.types import MailKind

LIFETIME: timedelta = LIFETIMES[Purpose.ADDRESS]


def request_change(session: Session, subscriber_id: int, email: str, now: datetime) -> int | None:
    """Store the new address, and send a link to the old one. Return the id of the email.

    Return None like `enqueue_requested_mail`: the link in the earlier email also confirms this request. Raise
    InvalidAddress if the address is invalid or unchanged, Conflict if the subscription is not active, or
    AddressSuppressed if the old address is suppressed.
    """
    email, subscriber = normalize_address(email), get_for_update(session, subscriber_id)
    if email == subscriber.email:
        raise InvalidAddress("This is your current address.", "email")
    if subscriber.state not in (State.ACTIVE, State.PAUSED):
        raise Conflict("Only an active subscription can get a new address.")
    require_not_suppressed(session, subscriber)
    anonymize_new_address(session, subscriber_id, now)
    session.merge(AddressChange(subscriber_id=subscriber_id, email=email, requested_at=now))
    record_event(session, "address_asked", subscriber, now)
    return enqueue_requested_mail(session, subscriber, MailKind.ADDRESS, now, lifetime=LIFETIME)


def request_change_by_operator(
    session: Session, subscriber_id: int, email: str, now: datetime, *, limited: bool = False
) -> int | None:
    """Request a change on behalf of an operator, who may know which addresses are registered.

    Also raise Conflict if the new address is suppressed, or belongs to another subscriber. If `limited`, the
    email to the old address counts against the limits on requested emails to its mailbox, and Conflict is
    raised if they are exceeded.
    """
    _prepare_change(session, normalize_address(email), subscriber_id, now)
    delivery_id = request_change(session, subscriber_id, email, now)
    if limited and delivery_id is not None:
        address = get(session, subscriber_id).email
        if not mailbox_limits.may_mail(session, form_submissions.mailbox_hash(address), now):
            raise Conflict(
                "Nothing was changed, because too many emails to the subscriber's mailbox were requested. "
                "Try again later."
            )
        form_submissions.store_mail(session, address, now, delivery_id)
    return delivery_id


def replace_address(session: Session, subscriber_id: int, email: str, now: datetime) -> Subscriber:
    """Change the address at once. The new owner must have confirmed the change to the operator.

    A subscriber whose email bounced gets digests again. Raise InvalidAddress if the address is invalid or
    unchanged. Raise Conflict if the address is suppressed or belongs to another subscriber, or if the
    subscription has ended or is not confirmed.
    """
    email = normalize_address(email)
    holder = _prepare_change(session, email, subscriber_id, now)
    subscriber = get(session, subscriber_id)
    require_not_erased(subscriber)
    if subscriber.state not in (State.ACTIVE, State.PAUSED, State.BOUNCING):
        raise Conflict(f"Only an active subscription can get a new address: this one is {subscriber.state}.")
    session.execute(delete(AddressChange).where(col(AddressChange.subscriber_id) == subscriber_id))
    if subscriber.state is State.BOUNCING:
        subscriber.state, subscriber.ended_at = state_before_bounces(session, subscriber), None
        record_event(session, "trusted_again", subscriber, now)
        if subscriber.state is State.PAUSED:
            record_event(session, "paused", subscriber, now)
        reschedule(session, subscriber, now)
    _move(session, subscriber, email, holder, now)
    return subscriber


def _prepare_change(session: Session, email: str, subscriber_id: int, now: datetime) -> Subscriber | None:
    """Lock the subscriber and the new address, and end a pending change.

    Return the pending sign-up that has the new address, if any. Raise InvalidAddress if it is the
    subscriber's own address, or Conflict if it is suppressed or belongs to another subscriber.
    """
    advisory_lock(session, f"mailbox {form_submissions.mailbox_hash(email)}")
    if get_for_update(session, subscriber_id).email == email:
        raise InvalidAddress(f"{email} is already the address of this subscriber.", "email")
    anonymize_new_address(session, subscriber_id, now)
    if suppression.is_suppressed(session, email):
        raise Conflict(f"{email} is suppressed: if its owner wants mail again, lift the suppression first.")
    row = (
        select(Subscriber).where(Subscriber.email == email, Subscriber.id != subscriber_id).with_for_update()
    )
    holder = session.exec(row).one_or_none()
    if holder is not None and holder.state is not State.PENDING:
        raise Conflict(f"{email} is already registered: subscriber {holder.id}, {holder.state}.")
    return holder


def open_change(
    session: Session, subscriber_id: int, delivery_id: int, now: datetime
) -> AddressChange | None:
    """Return the change that a link can confirm, or None if there is none.

    `subscriber_id` is the subscriber in the link: the one whose address changes, or the pending one with the
    new address. `delivery_id` is the email that contains the link. It is needed because two subscribers may
    want the same address.
    """
    changes = select(AddressChange).where(is_open(now)).execution_options(populate_existing=True)
    own = session.exec(changes.where(AddressChange.subscriber_id == subscriber_id)).one_or_none()
    if own is not None:
        return own
    # A link to one address must not confirm another one.
    address = select(Subscriber.email).where(Subscriber.id == subscriber_id).scalar_subquery()
    mailed = changes.where(AddressChange.delivery_id == delivery_id, AddressChange.email == address)
    return session.exec(mailed).one_or_none()


def new_address(session: Session, subscriber_id: int, now: datetime) -> str | None:
    """Return the address that a subscriber wants to change to, or None if no change is pending."""
    change = select(AddressChange.email).where(AddressChange.subscriber_id == subscriber_id, is_open(now))
    return session.exec(change).one_or_none()


def is_open(now: datetime) -> ColumnElement[bool]:
    """Return the condition that a change can still be confirmed: LIFETIME is not over for it or its email."""
    is_mailed = exists().where(
        col(Delivery.kind) == MailKind.ADDRESS,
        or_(
            col(Delivery.subscriber_id) == AddressChange.subscriber_id,
            col(Delivery.id) == AddressChange.delivery_id,
        ),
        ledger.is_recent_or_waiting(now - LIFETIME),
    )
    return or_(col(AddressChange.requested_at) > now - LIFETIME, is_mailed)


def confirm_change(
    session: Session, subscriber_id: int, delivery_id: int, email: str, visitor: str, now: datetime
) -> int | None:
    """Confirm a change of address with the link sent to the old or to the new address.

    `email` is the new address that the page showed. With the link sent to the old address, store a form
    submission whose processing emails the new address. Return its id, or None if this step has already been
    confirmed. With the link sent to the new address, change the address and return None. Raise Conflict if
    the change cannot be confirmed.
    """
    change = open_change(session, subscriber_id, delivery_id, now)
    subscriber = get_for_update(session, change.subscriber_id) if change else None
    change = open_change(session, subscriber_id, delivery_id, now)  # again, under the lock
    if change is None or subscriber is None:
        raise Conflict(
            "This change is complete, or it has expired. If it has expired, request it again in your "
            "preferences."
        )
    if subscriber.state not in (State.ACTIVE, State.PAUSED):
        raise Conflict("This subscription is no longer active.")
    if change.email != email:
        raise Conflict("The new address has changed since you opened this page. Check it, and confirm again.")
    if change.subscriber_id == subscriber_id:
        if change.approved_at is not None:
            return None
        change.approved_at = change.requested_at = now
        session.add(change)
        return form_submissions.store(
            session, RequestKind.ADDRESS, email, visitor, now, subscriber_id=subscriber_id
        )
    holder = get_for_update(session, subscriber_id)
    if suppression.is_suppressed(session, email) or holder.state is not State.PENDING:
        raise Conflict("This address cannot be used. Enter another one in your preferences, or contact us.")
    session.delete(change)
    _move(session, subscriber, email, holder, now)
    return None


def _move(
    session: Session, subscriber: Subscriber, email: str, holder: Subscriber | None, now: datetime
) -> None:
    """Store a subscriber's new address, and anonymize the pending sign-up that has this address.

    Do not record the event "erased", which operators count and webhooks report, because nobody was erased.
    """
    if holder is not None:
        anonymize(session, holder, now)
        record_event(session, "signup_replaced", holder, now)
    # Somebody may have added a subscriber with this address since it was checked.
    with storing_unique(session, Conflict(f"{email} is already registered.")):
        subscriber.email = email
    subscriber.link_epoch += 1  # links in emails to the old address no longer work
    record_event(session, ADDRESS_CHANGED, subscriber, now)
    session.add(subscriber)


def expire_changes(session: Session, now: datetime) -> None:
    """Delete changes that can no longer be confirmed."""
    expired = ~is_open(now)
    for subscriber_id in session.exec(select(AddressChange.subscriber_id).where(expired)).all():
        anonymize_new_address(session, subscriber_id, now)
    session.execute(delete(AddressChange).where(expired))
