"""Decide whether refusals that may be about us are about us: pause sending, or give up single emails.

One email's refusal does not show whether the relay refuses us, or only this recipient or email. Other emails
show it: the relay refuses several in a row, or accepts some. This is decided from the ledger, so it does not
depend on how the emails are distributed over connections, runs and processes.
"""

from datetime import datetime, timedelta

from sqlalchemy import exists, func, update
from sqlmodel import Session, col, select

from app.storage.inserts import insert_or_ignore
from app.storage.models import Delivery, Event
from app.storage.models import DeliveryState as State
from app.text import sanitize

MAX_SUSPECTED_REFUSALS = 3  # emails refused in a row after which sending pauses
SENDER_REJECTION = "refused_us"  # the kind of event
LONGEST_WAIT = timedelta(days=8)  # between an email's creation and its last attempt, to read fewer rows
_KEY = "suspected:"
_UNDECIDED = (col(Event.kind) == SENDER_REJECTION, col(Event.key).startswith(_KEY))


def record(session: Session, delivery: Delivery, refusal: str, at: datetime) -> bool:
    """Record a refusal that may be about us. Return whether only this recipient or email can be the cause.

    This is so if the relay has accepted another email since it first refused this one.
    """
    key = f"{_KEY}{delivery.id}"
    event = insert_or_ignore(
        session,
        Event,
        ["key"],
        at=at,
        kind=SENDER_REJECTION,
        subscriber_id=delivery.subscriber_id,
        delivery_id=delivery.id,
        detail=sanitize.redact_addresses(refusal),
        key=key,
    )
    if event is not None:
        return False
    return _accepted_since(session, session.exec(select(Event.at).where(Event.key == key)).one())


def pause_reason(session: Session) -> str:
    """Return the reason to pause sending if the last emails were refused in a row, otherwise ""."""
    latest = select(Event.at, Event.detail).where(*_UNDECIDED).order_by(col(Event.at).desc())
    rows = session.exec(latest.limit(MAX_SUSPECTED_REFUSALS)).all()
    if len(rows) < MAX_SUSPECTED_REFUSALS or _accepted_since(session, rows[-1][0]):
        return ""
    return f"the relay refuses us: {rows[0][1]}"


def reset(session: Session, paused_since: datetime) -> None:
    """After a pause, retry the emails that were refused since the last accepted one, and count them again.

    They are due at once, because the operator who resumes has removed the cause, and their delays may have
    grown to hours. The earlier ones keep their delays: they were refused while others were accepted, so their
    next refusal is their last.
    """
    accepted_at = select(func.max(Delivery.sent_at)).where(
        Delivery.state == State.SENT, col(Delivery.created_at) >= paused_since - LONGEST_WAIT
    )
    last_accepted = session.exec(accepted_at).one()
    refused = update(Event).where(*_UNDECIDED)
    refused = refused.where(col(Event.at) > last_accepted) if last_accepted else refused
    session.execute(refused.values(key=None))
    # Emails with a temporary reply (4xx) keep their delays as well.
    next_is_last = exists().where(col(Event.delivery_id) == Delivery.id, *_UNDECIDED)
    retried = update(Delivery).where(
        col(Delivery.state) == State.DEFERRED, col(Delivery.smtp_code) >= 500, ~next_is_last
    )
    session.execute(retried.values(next_attempt_at=Delivery.due_at))


def _accepted_since(session: Session, since: datetime) -> bool:
    created_at = col(Delivery.created_at)
    sent = select(Delivery.id).where(
        Delivery.state == State.SENT, created_at >= since - LONGEST_WAIT, col(Delivery.sent_at) >= since
    )
    return session.exec(sent.order_by(created_at.desc()).limit(1)).first() is not None
