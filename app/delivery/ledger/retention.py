"""Delete deliveries and events after their retention period, and data that sent emails no longer need.

Each transaction changes at most a few thousand rows.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Delete, delete, select, update
from sqlmodel import Session, col

from app.delivery.ledger.signatures import NOT_AHEAD
from app.storage import locks
from app.storage.database import in_array
from app.storage.models import Delivery, DeliveryState, DigestContent, Event

BATCH_SIZE = 5_000  # rows per transaction, so that senders do not wait long for SQLite's lock
LAST_DELETED = "prune deliveries"  # the lock that stores the day of the newest deleted delivery


def prune_deliveries(session: Session, before: datetime, now: datetime) -> Counter[str]:
    """Delete a batch of the deliveries created before `before`, with their contents and events.

    Store the day of the newest one (see `retained_since`). Return the number of deleted rows by kind. Call
    this until nothing is deleted.
    """
    ids, newest_deletion = _oldest(session, col(Delivery.created_at), col(Delivery.id), before)
    if newest_deletion and newest_deletion.date() > (_last_deleted(session, now) or date.min):
        locks.complete(session, LAST_DELETED, newest_deletion.date().isoformat(), now)
    events = _delete(session, delete(Event).where(in_array(session, col(Event.delivery_id), ids)))
    mails = _delete(session, delete(Delivery).where(in_array(session, col(Delivery.id), ids)))
    return Counter(events=events, deliveries=mails)


def retained_since(session: Session, now: datetime, retention_days: int) -> date:
    """Return the day after which all deliveries are stored.

    If the retention period was raised, this is the day of the newest deleted delivery.
    """
    day = now.date() - timedelta(days=retention_days)
    return max(day, _last_deleted(session, now) or day)


def _last_deleted(session: Session, now: datetime) -> date | None:
    """Return the UTC day of the newest delivery that was deleted, or None if none was.

    Return None as well if this day is in the future, because the clock was wrong when it was stored.
    Otherwise, all papers would count as too old until then.
    """
    day = locks.last_completed(session, LAST_DELETED)
    return date.fromisoformat(day) if day and day <= now.date().isoformat() else None


def prune_events(session: Session, before: datetime, is_kept: ColumnElement[bool]) -> Counter[str]:
    """Delete a batch of the events before `before`, except those that meet the condition `is_kept`.

    Return the number of deleted rows by kind. Call this until nothing is deleted.
    """
    ids, _ = _oldest(session, col(Event.at), col(Event.id), before, ~is_kept)
    return Counter(events=_delete(session, delete(Event).where(in_array(session, col(Event.id), ids))))


def first_id_since(session: Session, since: datetime) -> int:
    """Return the id of the first delivery created at or after `since`, or 0 if there is none."""
    created_at = col(Delivery.created_at)
    number = col(Delivery.id)
    ids = select(number).where(created_at >= since).order_by(created_at, number).limit(1)
    return session.execute(ids).scalar() or 0


def drop_sender_data(session: Session, first_id: int, sent_before: datetime) -> tuple[int, int]:
    """Delete the data that only unsent emails need from a batch of sent emails, starting at `first_id`.

    This data is the signature, the name of the sender process, and the give-up time. Skip emails sent after
    `sent_before`, because their sender may still repeat their results. Return the number of deleted
    signatures, and the first id of the next batch (0 if there is none).

    If a sent email is ever resent, it is signed again, which gives the same bytes as long as the key is the
    same.
    """
    number = col(Delivery.id)
    columns = number, col(Delivery.state), col(Delivery.sent_at)
    batch = select(*columns).where(number >= first_id).order_by(number).limit(BATCH_SIZE)
    rows = session.execute(batch).all()
    sent = [row[0] for row in rows if row.state is DeliveryState.SENT and row.sent_at <= sent_before]
    count = 0
    if sent:
        owned = in_array(session, number, sent), col(Delivery.lease_owner) != ""
        session.connection().execute(update(Delivery).where(*owned).values(lease_owner="", give_up_at=None))
        content = in_array(session, col(DigestContent.delivery_id), sent)
        signed = update(DigestContent).where(content, col(DigestContent.signature) != "")
        dropped = signed.values(signature="", signature_fingerprint=NOT_AHEAD)
        count = session.connection().execute(dropped).rowcount
    return count, rows[-1][0] + 1 if len(rows) == BATCH_SIZE else 0


def _oldest(
    session: Session, at: Any, id_column: Any, before: datetime, *conditions: ColumnElement[bool]
) -> tuple[Sequence[int], datetime | None]:
    """Return the ids of a batch of the oldest rows before `before`, and the time of the newest of them."""
    oldest = select(id_column, at).where(at < before, *conditions).order_by(at).limit(BATCH_SIZE)
    rows = session.execute(oldest).all()
    return [row[0] for row in rows], rows[-1][1] if rows else None


def _delete(session: Session, statement: Delete) -> int:
    return session.connection().execute(statement).rowcount
