"""DKIM signatures that are created before a digest is due."""

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import NamedTuple, cast

from sqlalchemy import LargeBinary, Table, bindparam, inspect, literal_column, type_coerce, update
from sqlmodel import Session, col, select

from app.storage.database import in_array
from app.storage.models import Delivery, DigestContent
from app.storage.models import DeliveryState as State

NOT_AHEAD = "-"  # the fingerprint of a digest that is signed when it is sent
_CONTENTS = cast("Table", inspect(DigestContent).local_table)
_STORE = (
    update(_CONTENTS)
    .where(_CONTENTS.c.delivery_id == bindparam("of_id"))
    .values(signature=bindparam("lines"), signature_fingerprint=bindparam("fingerprint"))
)


class Signature(NamedTuple):
    """The signature of a digest, and the fingerprint of the signed content."""

    delivery_id: int
    lines: str = ""
    fingerprint: str = NOT_AHEAD


def lock_unsigned(session: Session, now: datetime, *, limit: int) -> dict[int, bool]:
    """Return the ids of up to `limit` unsigned digests, each mapped to True if the digest is not due yet.

    PostgreSQL locks these digests until the transaction ends, and skips digests that others have locked.
    """
    waits = (col(Delivery.state) == State.PENDING) & (col(Delivery.next_attempt_at) > now)
    # A literal, as in the index: a parameter would not match the partial index.
    unsigned = _CONTENTS.c.signature_fingerprint == literal_column("''")
    joined = select(_CONTENTS.c.delivery_id, waits).join(
        Delivery, col(Delivery.id) == _CONTENTS.c.delivery_id
    )
    first = joined.where(unsigned).order_by(_CONTENTS.c.delivery_id).limit(limit)
    rows = session.connection().execute(first.with_for_update(skip_locked=True, of=_CONTENTS))
    return {delivery_id: bool(waiting) for delivery_id, waiting in rows}


def encoded_digests(session: Session, ids: Collection[int]) -> dict[int, bytes]:
    """Return digests as they are stored, by id. Comparing them is faster than decoding them."""
    encoded = select(_CONTENTS.c.delivery_id, type_coerce(_CONTENTS.c.digest, LargeBinary))
    chosen = encoded.where(in_array(session, _CONTENTS.c.delivery_id, ids))
    return dict(session.connection().execute(chosen).all())


def store_signatures(session: Session, signatures: Iterable[Signature]) -> None:
    """Store the signatures of digests that are still in the ledger."""
    rows = [dict(zip(("of_id", "lines", "fingerprint"), signature, strict=True)) for signature in signatures]
    if rows:
        session.connection().execute(_STORE, rows)
