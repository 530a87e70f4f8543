"""Delete what is past its retention, some thousands of rows at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Delete, delete, select
from sqlmodel import Session, col

from app.storage.database import in_array
from app.storage.models import Delivery, Event

AT_ONCE = 5_000  # rows in a transaction: senders wait no longer for SQLite's lock than that takes


def prune_deliveries(session: Session, before: datetime) -> Counter[str]:
    """Delete some of the mails entered before a moment, with their contents and events; how many of what.

    Call it until it deletes none.
    """
    ids = _oldest(session, col(Delivery.created_at), col(Delivery.id), before)
    events = _deleted(session, delete(Event).where(in_array(session, col(Event.delivery_id), ids)))
    mails = _deleted(session, delete(Delivery).where(in_array(session, col(Delivery.id), ids)))
    return Counter(events=events, deliveries=mails)


def prune_events(session: Session, before: datetime) -> Counter[str]:
    """Delete some of the events before a moment; how many. Call it until it deletes none."""
    ids = _oldest(session, col(Event.at), col(Event.id), before)
    return Counter(events=_deleted(session, delete(Event).where(in_array(session, col(Event.id), ids))))


def _oldest(session: Session, at: Any, identity: Any, before: datetime) -> Sequence[int]:
    return session.execute(select(identity).where(at < before).order_by(at).limit(AT_ONCE)).scalars().all()


def _deleted(session: Session, statement: Delete) -> int:
    return session.connection().execute(statement).rowcount
