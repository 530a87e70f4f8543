"""Limit the emails that can be requested: per mailbox, and per subscriber and kind of email."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlmodel import Session, col, func, select

from app.storage.models import Delivery, Event, FormSubmission, Subscriber
from app.types import MailKind

# Limits on requested emails to one mailbox: time span and maximum number. Anyone can request such emails.
MAX_MAILS = (
    (timedelta(hours=1), 2),
    (timedelta(days=1), 3),
    (timedelta(days=7), 5),
    (timedelta(days=30), 8),
)
HISTORY = max(span for span, _ in MAX_MAILS)
# The minimum time between two requested emails of the same kind to one subscriber.
BETWEEN_MAILS = timedelta(hours=1)
LINKS_REPLACED = "new_links"  # the kind of the event after which an earlier email no longer counts


def may_mail(session: Session, mailbox: str, now: datetime) -> bool:
    """Return True if one more requested mail may be sent to the mailbox."""
    requested = select(FormSubmission.processed_at).where(
        col(FormSubmission.mailbox) == mailbox,
        col(FormSubmission.delivery_id).is_not(None),
        col(FormSubmission.processed_at) > now - HISTORY,
    )
    times = [at for at in session.exec(requested) if at is not None]
    return all(sum(at > now - span for at in times) < most for span, most in MAX_MAILS)


def was_mailed_recently(session: Session, subscriber: Subscriber, kind: MailKind, now: datetime) -> bool:
    """Return whether a requested email of this kind was enqueued less than an hour ago.

    An email does not count if its links have been replaced since, because those links no longer work.
    """
    recent = select(Delivery.id).where(
        Delivery.subscriber_id == subscriber.id,
        Delivery.kind == kind,
        col(Delivery.created_at) > now - BETWEEN_MAILS,
    )
    if kind is not MailKind.NEW_LINKS:
        replaced = select(func.max(Event.at)).where(
            Event.subscriber_id == subscriber.id, Event.kind == LINKS_REPLACED
        )
        if (at := session.exec(replaced).one()) is not None:
            recent = recent.where(col(Delivery.created_at) > at)
    return session.exec(recent).first() is not None
