"""Delete deliveries and events after their retention period, a few thousand rows at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Delete, delete, select
from sqlmodel import Session, col

from app.storage.database import in_array
from app.storage.models import Delivery, Event

BATCH_SIZE = 5_000  # rows per transaction, so that senders do not wait long for SQLite's lock


def prune_deliveries(session: Session, before: datetime) -> Counter[str]:
    """Delete a batch of the deliveries created before `before`, with their contents and events.

    Return the number of deleted rows by kind. Call this until nothing is deleted.
    """
    ids = _oldest_ids(session, col(Delivery.created_at), col(Delivery.id), before)
    events = _delete(session, delete(Event).where(in_array(session, col(Event.delivery_id), ids)))
    mails = _delete(session, delete(Delivery).where(in_array(session, col(Delivery.id), ids)))
    return Counter(events=events, deliveries=mails)


def prune_events(session: Session, before: datetime) -> Counter[str]:
    """Delete a batch of the events before `before` and return their number. Call this until it is zero."""
    ids = _oldest_ids(session, col(Event.at), col(Event.id), before)
    return Counter(events=_delete(session, delete(Event).where(in_array(session, col(Event.id), ids))))


def _oldest_ids(session: Session, at: Any, id_column: Any, before: datetime) -> Sequence[int]:
    return (
        session.execute(select(id_column).where(at < before).order_by(at).limit(BATCH_SIZE)).scalars().all()
    )


def _delete(session: Session, statement: Delete) -> int:
    return session.connection().execute(statement).rowcount
