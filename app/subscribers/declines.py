"""Remember who declined a sign-up ("I did not ask for this"), and send them no confirmations for a while."""

from collections.abc import Collection
from datetime import datetime, timedelta

from sqlmodel import Session, col, exists, select, update

from app.storage.database import in_array
from app.storage.models import FormSubmission

DECLINE_LASTS = timedelta(days=90)


def has_declined(session: Session, mailbox: str, now: datetime) -> bool:
    """Return True if the mailbox's owner declined a sign-up within `DECLINE_LASTS`."""
    declined = exists().where(
        col(FormSubmission.mailbox) == mailbox, col(FormSubmission.declined_at) > now - DECLINE_LASTS
    )
    return bool(session.exec(select(declined)).one())


def remember_decline(session: Session, request: FormSubmission, now: datetime) -> None:
    """Store a decline, which blocks confirmations to this mailbox for `DECLINE_LASTS`."""
    request.declined_at = now
    session.add(request)


def forget_decline(session: Session, mailbox: str) -> None:
    """Allow confirmations to this mailbox again, because its owner has shown that they want mail."""
    forget_declines(session, [mailbox])


def forget_declines(session: Session, mailboxes: Collection[str]) -> None:
    """Allow confirmations to several mailboxes again."""
    of_mailboxes = in_array(session, col(FormSubmission.mailbox), mailboxes)
    declined = update(FormSubmission).where(of_mailboxes, col(FormSubmission.declined_at).is_not(None))
    session.execute(declined.values(declined_at=None))
