"""Limit the number of emails that all visitors together can request for one mailbox."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlmodel import Session, col, select

from app.storage.models import FormSubmission

# Limits on requested emails to one mailbox: time span and maximum number. Anyone can request such emails.
MAX_MAILS = (
    (timedelta(hours=1), 2),
    (timedelta(days=1), 3),
    (timedelta(days=7), 5),
    (timedelta(days=30), 8),
)
HISTORY = max(span for span, _ in MAX_MAILS)


def may_mail(session: Session, mailbox: str, now: datetime) -> bool:
    """Return True if one more requested mail may be sent to the mailbox."""
    requested = select(FormSubmission.processed_at).where(
        col(FormSubmission.mailbox) == mailbox,
        col(FormSubmission.delivery_id).is_not(None),
        col(FormSubmission.processed_at) > now - HISTORY,
    )
    times = [at for at in session.exec(requested) if at is not None]
    return all(sum(at > now - span for at in times) < most for span, most in MAX_MAILS)
