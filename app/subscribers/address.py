"""Change a subscriber's address. The owner of the old address confirms first, then that of the new one.

The mail to the new address belongs to a pending row, as that of a sign-up does. The limits on mail to one
mailbox and remembered declines apply to it, and its bounces do not count for the subscriber.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlmodel import Session, col, delete, select

from app.delivery import suppression
from app.errors import Conflict, InvalidAddress
from app.links import LIFETIMES, Purpose
from app.storage.models import AddressChange, RequestKind
from app.storage.models import SubscriberState as State
from app.subscribers import form_submissions
from app.subscribers.preferences import normalise_address
from app.subscribers.privacy import anonymise
from app.subscribers.repository import (
    ADDRESS_CHANGED,
    enqueue_requested_mail,
    get_for_update,
    record_event,
)
from app.types import MailKind

LIFETIME: timedelta = LIFETIMES[Purpose.ADDRESS]


def request_change(session: Session, subscriber_id: int, email: str, now: datetime) -> int | None:
    """Store the new address, and mail a link to the old one. Return the id of the mail.

    Return None if such a mail was sent less than an hour ago; its link confirms the newest request. Raise
    InvalidAddress, or Conflict if the subscription is not active.
    """
    email, subscriber = normalise_address(email), get_for_update(session, subscriber_id)
    if email == subscriber.email:
        raise InvalidAddress("This is your current address.", "email")
    if subscriber.state not in (State.ACTIVE, State.PAUSED):
        raise Conflict("Only an active subscription can get a new address.")
    session.merge(AddressChange(subscriber_id=subscriber_id, email=email, requested_at=now))
    record_event(session, "address_asked", subscriber, now)
    return enqueue_requested_mail(session, subscriber, MailKind.ADDRESS, now, lifetime=LIFETIME)


def open_change(
    session: Session, subscriber_id: int, delivery_id: int, now: datetime
) -> AddressChange | None:
    """Return the change that a link to this subscriber, or to the row of the new address, can confirm.

    `delivery_id` is the mail with the link. Two subscribers may want the same address: it tells which one's
    change the new address was asked about.
    """
    recent = select(AddressChange).where(col(AddressChange.requested_at) > now - LIFETIME)
    recent = recent.execution_options(populate_existing=True)
    own = session.exec(recent.where(AddressChange.subscriber_id == subscriber_id)).one_or_none()
    return own or session.exec(recent.where(AddressChange.delivery_id == delivery_id)).one_or_none()


def confirm_change(
    session: Session, subscriber_id: int, delivery_id: int, email: str, visitor: str, now: datetime
) -> int | None:
    """Confirm a change to `email`, the address on the page, with the link to one of both addresses.

    With the old address, return the id of a request to be processed, which mails the new address, or None
    if it was confirmed before. With the new one, change the address, and return None. Raise Conflict if
    there is nothing to confirm.
    """
    change = open_change(session, subscriber_id, delivery_id, now)
    subscriber = get_for_update(session, change.subscriber_id) if change else None
    change = open_change(session, subscriber_id, delivery_id, now)  # again, under the lock
    if change is None or subscriber is None:
        raise Conflict("This change is complete, or it has expired.")
    if subscriber.state not in (State.ACTIVE, State.PAUSED):
        raise Conflict("This subscription is no longer active.")
    if change.email != email:
        raise Conflict("The new address has changed since you opened this page. Check it, and confirm again.")
    if change.subscriber_id == subscriber_id:
        if change.approved_at is not None:
            return None
        change.approved_at = now
        session.add(change)
        return form_submissions.store(
            session, RequestKind.ADDRESS, email, visitor, now, subscriber_id=subscriber_id
        )
    holder = get_for_update(session, subscriber_id)
    if suppression.is_suppressed(session, email) or holder.state is not State.PENDING:
        raise Conflict("This address cannot be used.")
    session.delete(change)
    anonymise(session, holder, now)
    record_event(session, "erased", holder, now)
    session.flush()
    subscriber.email = email
    subscriber.link_epoch += 1  # links in mails to the old address no longer work
    record_event(session, ADDRESS_CHANGED, subscriber, now)
    session.add(subscriber)
    return None


def expire_changes(session: Session, now: datetime) -> None:
    """Delete changes that can no longer be confirmed."""
    session.execute(delete(AddressChange).where(col(AddressChange.requested_at) <= now - LIFETIME))
