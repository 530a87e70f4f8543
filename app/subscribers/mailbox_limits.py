"""Limit the emails that can be requested: per mailbox, and per subscriber and kind of email."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlmodel import Session, col, func, select

from app import clock
from app.delivery import ledger
from app.storage.models import Delivery, Event, FormSubmission, Subscriber
from app.subscribers.event_log import ADDRESS_CHANGED, LINKS_REPLACED
from app.types import MailKind

# Limits on all requested emails to one mailbox: time span and maximum number. Anyone can request such emails.
MAX_MAILS = (
    (timedelta(hours=1), 2),
    (timedelta(days=1), 3),
    (timedelta(days=7), 5),
    (timedelta(days=30), 8),
)
# The same limits, if the next email is the link to a subscriber's preferences. They are higher, so that other
# emails that strangers requested do not prevent a subscriber from getting the link.
MAX_MAILS_WITH_LINK = (
    (timedelta(hours=1), 3),
    (timedelta(days=1), 5),
    (timedelta(days=7), 8),
    (timedelta(days=30), 12),
)
HISTORY = max(span for span, _ in MAX_MAILS)
# The minimum time between two requested emails of the same kind to one subscriber.
BETWEEN_MAILS = timedelta(hours=1)


def may_mail(
    session: Session, mailbox: str, now: datetime, limits: Sequence[tuple[timedelta, int]] = MAX_MAILS
) -> bool:
    """Return True if one more requested email may be sent to the mailbox. Emails of all kinds count."""
    requested = select(FormSubmission.processed_at).where(
        FormSubmission.mailbox == mailbox,
        col(FormSubmission.processed_at).between(now - HISTORY, now + clock.MAX_AHEAD),
        col(FormSubmission.delivery_id).is_not(None),
    )
    times = [at for at in session.exec(requested) if at is not None]
    return all(sum(at > now - span for at in times) < most for span, most in limits)


def was_mailed_recently(session: Session, subscriber: Subscriber, kind: MailKind, now: datetime) -> bool:
    """Return whether a requested email of this kind was enqueued less than an hour ago, or waits in a pause.

    An email does not count if its links have been replaced since, because those links no longer work. But one
    that waits gets links that work.
    """
    recent = select(Delivery.id).where(
        Delivery.subscriber_id == subscriber.id,
        Delivery.kind == kind,
        ledger.is_recent_or_waiting(now - BETWEEN_MAILS),
        col(Delivery.created_at) <= now + clock.MAX_AHEAD,
    )
    if kind is not MailKind.NEW_LINKS:
        # A change of address replaces all links, too.
        replaced = select(func.max(Event.at)).where(
            Event.subscriber_id == subscriber.id, col(Event.kind).in_((LINKS_REPLACED, ADDRESS_CHANGED))
        )
        if (at := session.exec(replaced).one()) is not None:
            recent = recent.where(ledger.is_recent_or_waiting(at))
    return session.exec(recent).first() is not None
