"""The suppression list: hashes of addresses that must not receive mail, even after a subscriber's erasure."""

import hashlib
from collections.abc import Collection
from datetime import datetime

from sqlalchemy import update
from sqlmodel import Session, col, delete, select
from sqlmodel.sql.expression import SelectOfScalar

from app.storage.database import contains, execute_and_count, in_array
from app.storage.inserts import insert_or_ignore
from app.storage.models import Subscriber, Suppression

_EMPTY_HASH = hashlib.blake2b(digest_size=32, person=b"suppression")


def address_hash(email: str) -> str:
    """Return the hash that stands for an address in the list, ignoring case and surrounding spaces."""
    state = _EMPTY_HASH.copy()
    state.update(email.strip().casefold().encode("utf-8", "surrogatepass"))
    return state.hexdigest()


def suppress(session: Session, email: str, reason: str, now: datetime) -> None:
    """Add an address to the list. If it is already listed, keep its first reason and time."""
    insert_or_ignore(
        session, Suppression, ["address_hash"], address_hash=address_hash(email), reason=reason, since=now
    )


def forget_reason(session: Session, email: str) -> None:
    """Replace the reason of an address's entry, because the reason may name the subscriber."""
    entry = col(Suppression.address_hash) == address_hash(email)
    session.execute(update(Suppression).where(entry).values(reason="listed before its subscriber was erased"))


def lift(session: Session, email: str) -> bool:
    """Remove an address from the list. Return False if it was not listed."""
    entry = col(Suppression.address_hash) == address_hash(email)
    return bool(execute_and_count(session, delete(Suppression).where(entry)))


def is_suppressed(session: Session, email: str) -> bool:
    return get(session, email) is not None


def get(session: Session, email: str) -> Suppression | None:
    """Return the entry for an address, or None if it is not listed."""
    return session.exec(select(Suppression).where(Suppression.address_hash == address_hash(email))).first()


def reasons_for(session: Session, emails: Collection[str]) -> dict[str, str]:
    """Return the reasons for the listed addresses among `emails`, by address."""
    hashes = {email: address_hash(email) for email in emails}
    columns = select(Suppression.address_hash, Suppression.reason)
    entries = columns.where(in_array(session, col(Suppression.address_hash), hashes.values()))
    reasons = dict(session.exec(entries).all())
    return {email: reasons[hashed] for email, hashed in hashes.items() if hashed in reasons}


def with_reason(text: str = "") -> SelectOfScalar[Suppression]:
    """Return a query for the entries whose reason contains `text`, ignoring case."""
    return select(Suppression).where(contains(col(Suppression.reason), text))


def list_page(session: Session, *, limit: int = 100, after: int = 0, text: str = "") -> list[Suppression]:
    """Return a page of the entries whose reason contains a text, oldest first.

    `after` is the last id of the previous page.
    """
    page = with_reason(text).where(col(Suppression.id) > after).order_by(col(Suppression.id)).limit(limit)
    return list(session.exec(page))


def addresses_of(session: Session, entries: Collection[Suppression]) -> dict[str, str]:
    """Return, by hash, the address of each entry that matches a subscriber.

    This hashes the addresses of all subscribers: 200,000 take about half a second.
    """
    hashes = {entry.address_hash for entry in entries}
    emails = session.exec(select(Subscriber.email)) if hashes else ()
    return {hashed: email for email in emails if (hashed := address_hash(email)) in hashes}
