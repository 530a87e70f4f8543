"""Signatures that are made ahead, while a digest waits for its hour."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import cast

from sqlalchemy import Table, bindparam, inspect, update
from sqlmodel import Session, col, select

from app.models import Contents, Delivery
from app.models import DeliveryState as State

_ROWS = cast("Table", inspect(Contents).local_table)
_STORE = (
    update(_ROWS)
    .where(_ROWS.c.delivery_id == bindparam("of_id"))
    .values(signature=bindparam("made"), signed_as=bindparam("mark"))
)


def lock_unsigned(session: Session, now: datetime, *, after: int, limit: int) -> list[int]:
    """Return the first digests with a larger id than `after` that wait for their hour without a signature.

    On PostgreSQL they are locked until the transaction ends, and those that another process has locked are
    left out.
    """
    waits = (col(Delivery.state) == State.PENDING) & (col(Delivery.next_attempt_at) > now)
    theirs = select(col(Contents.delivery_id)).join(Delivery, col(Delivery.id) == Contents.delivery_id)
    bare = (col(Contents.signature) == "") & (col(Contents.delivery_id) > after)
    first = theirs.where(waits, bare).order_by(col(Contents.delivery_id)).limit(limit)
    return list(session.exec(first.with_for_update(skip_locked=True, of=Contents)))


def keep_signatures(session: Session, signed: Sequence[tuple[int, str, str]]) -> None:
    """Store the id, the signature and its fingerprint of each, where it still is."""
    rows = [{"of_id": one, "made": signature, "mark": mark} for one, signature, mark in signed]
    if rows:
        session.connection().execute(_STORE, rows)
