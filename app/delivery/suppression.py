"""Addresses that get no mail, whatever the kind: known by their hash, so that they outlive an erasure."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from datetime import datetime

from sqlalchemy import update
from sqlmodel import Session, col, delete, select

from app.storage.database import in_array, insert_or_ignore
from app.storage.models import Subscriber, Suppression

_PREPARED = hashlib.blake2b(digest_size=32, person=b"suppression")


def address_hash(email: str) -> str:
    """The name under which an address is listed; spelling of case and outer space does not matter."""
    state = _PREPARED.copy()
    state.update(email.strip().casefold().encode("utf-8", "surrogatepass"))
    return state.hexdigest()


def suppress(session: Session, email: str, reason: str, now: datetime) -> None:
    """List an address. One that is listed already keeps its first reason and moment."""
    insert_or_ignore(
        session, Suppression, ["address_hash"], address_hash=address_hash(email), reason=reason, since=now
    )


def forget_reason(session: Session, email: str) -> None:
    """Replace the reason of an entry: an operator's or a server's words may name the reader."""
    mine = col(Suppression.address_hash) == address_hash(email)
    session.execute(update(Suppression).where(mine).values(reason="listed before its reader was erased"))


def lift(session: Session, email: str) -> bool:
    """Take an address off the list; False when it was not on it."""
    gone = session.execute(delete(Suppression).where(col(Suppression.address_hash) == address_hash(email)))
    return bool(gone.rowcount)  # type: ignore[attr-defined]


def is_suppressed(session: Session, email: str) -> bool:
    return found(session, email) is not None


def found(session: Session, email: str) -> Suppression | None:
    """The entry of one address."""
    return session.exec(select(Suppression).where(Suppression.address_hash == address_hash(email))).first()


def among(session: Session, emails: Collection[str]) -> dict[str, str]:
    """Those of the addresses that are listed, each with the reason."""
    hashes = {address_hash(email): email for email in emails}
    listed = select(Suppression).where(in_array(session, col(Suppression.address_hash), hashes))
    return {hashes[row.address_hash]: row.reason for row in session.exec(listed)}


def listed(session: Session, *, limit: int = 100, after: int = 0) -> list[Suppression]:
    """The list in the order in which it grew, a page at a time."""
    page = select(Suppression).where(col(Suppression.id) > after).order_by(col(Suppression.id)).limit(limit)
    return list(session.exec(page))


def named(session: Session) -> list[tuple[Suppression, str]]:
    """The whole list, each with its address where a reader who has it is still known."""
    known = {address_hash(email): email for email in session.exec(select(Subscriber.email))}
    rows = session.exec(select(Suppression).order_by(col(Suppression.id)))
    return [(row, known.get(row.address_hash, "")) for row in rows]
