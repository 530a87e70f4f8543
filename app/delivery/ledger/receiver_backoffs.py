"""Receivers that asked us to send less. Emails to them wait; emails to other receivers are sent."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from sqlmodel import Session, col, delete, select

from app import clock
from app.delivery.receivers import receiver_of
from app.storage.inserts import insert_or_ignore
from app.storage.models import ReceiverBackoff
from app.text import sanitize

FIRST_BACKOFF, LONGEST_BACKOFF = timedelta(minutes=10), timedelta(hours=4)
MEMORY = timedelta(hours=12)  # how long the count is remembered after a back-off ends


def begin(session: Session, recipient: str, reply: str, now: datetime) -> None:
    """Begin a back-off from the receiver of an address, unless one is in progress.

    `reply` is the relay's reply that asks us to send less.
    """
    receiver = receiver_of(recipient)
    session.execute(delete(ReceiverBackoff).where(col(ReceiverBackoff.until) < now - MEMORY))
    row = session.get(ReceiverBackoff, receiver, with_for_update=True)
    if row and now < row.until <= now + clock.MAX_AHEAD:
        return
    count = row.count + 1 if row else 1
    reason = f"{receiver} asked us to send less: {sanitize.redact_addresses(reply)}"
    values = {"reason": reason, "count": count, "until": now + backoff_delay(count)}
    if row:
        row.sqlmodel_update(values)
        session.flush()
    else:
        insert_or_ignore(session, ReceiverBackoff, ["receiver"], receiver=receiver, **values)


def active(session: Session, now: datetime) -> Mapping[str, ReceiverBackoff]:
    """Return the current back-offs by receiver."""
    until = col(ReceiverBackoff.until)
    rows = session.exec(select(ReceiverBackoff).where(until > now, until <= now + clock.MAX_AHEAD))
    return {row.receiver: row for row in rows}


def find(backoffs: Mapping[str, ReceiverBackoff], recipient: str) -> ReceiverBackoff | None:
    """Return the back-off from the receiver of an address, or None."""
    return backoffs.get(receiver_of(recipient)) if backoffs else None


def backoff_delay(count: int) -> timedelta:
    """Return the delay of the `count`th consecutive back-off. It doubles each time, up to LONGEST_BACKOFF."""
    return min(FIRST_BACKOFF * (1 << min(count - 1, 16)), LONGEST_BACKOFF)
