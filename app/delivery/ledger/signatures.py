"""Signatures that are made ahead, while a digest waits for its hour."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple, cast

from sqlalchemy import Table, bindparam, inspect, literal_column, update
from sqlmodel import Session, col, select

from app.storage.models import Delivery, DigestContent
from app.storage.models import DeliveryState as State

NOT_AHEAD = "-"  # the fingerprint of a digest that is signed as it leaves
_ROWS = cast("Table", inspect(DigestContent).local_table)
_STORE = (
    update(_ROWS)
    .where(_ROWS.c.delivery_id == bindparam("of_id"))
    .values(signature=bindparam("lines"), signature_fingerprint=bindparam("fingerprint"))
)


class Signature(NamedTuple):
    """The signature of a digest, and the fingerprint of what it holds for."""

    delivery_id: int
    lines: str = ""
    fingerprint: str = NOT_AHEAD


def lock_unsigned(session: Session, now: datetime, *, limit: int) -> dict[int, bool]:
    """Return the first digests for which no `Signature` is stored: by id, whether each waits for its hour.

    On PostgreSQL they are locked until the transaction ends, and those that another process has locked are
    left out.
    """
    waits = (col(Delivery.state) == State.PENDING) & (col(Delivery.next_attempt_at) > now)
    unsigned = _ROWS.c.signature_fingerprint == literal_column(
        "''"
    )  # as in the index: a parameter would not match it
    joined = select(_ROWS.c.delivery_id, waits).join(Delivery, col(Delivery.id) == _ROWS.c.delivery_id)
    first = joined.where(unsigned).order_by(_ROWS.c.delivery_id).limit(limit)
    found = session.connection().execute(first.with_for_update(skip_locked=True, of=_ROWS))
    return {number: bool(waiting) for number, waiting in found}


def store_signatures(session: Session, signatures: Iterable[Signature]) -> None:
    """Store signatures with digests that are still in the ledger."""
    rows = [dict(zip(("of_id", "lines", "fingerprint"), each, strict=True)) for each in signatures]
    if rows:
        session.connection().execute(_STORE, rows)
