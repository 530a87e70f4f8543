"""Create, look up and revoke the keys of the admin API: shown once, stored as a hash, and expiring."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import cast

from sqlmodel import Session, col, select

from app.errors import Conflict, InvalidInput, NotFound
from app.storage.models import ApiKey, Scope

PREFIX = "pb_"  # so that a key is recognised where it leaked: in logs, in a repository
MAX_NAME = 100
DAYS, MAX_DAYS = 365, 3650  # until a key expires
_SECRET_BYTES = 32
_USE_IS_NOTED_EVERY = timedelta(minutes=1)  # not on every request: reading must not wait for a write


@dataclass(frozen=True, slots=True)
class Holder:
    """Who is calling, and what their key allows."""

    id: int
    name: str
    scopes: frozenset[Scope]
    last_used_at: datetime | None

    def is_stale(self, now: datetime) -> bool:
        """Whether it is time to note again that the key is in use."""
        return self.last_used_at is None or now - self.last_used_at >= _USE_IS_NOTED_EVERY


def secret() -> str:
    """A new random secret of 256 bits, fit for a key and for PAPERBOY_SECRET_KEYS."""
    return secrets.token_urlsafe(_SECRET_BYTES)


def create(
    session: Session, name: str, scopes: Iterable[Scope], now: datetime, days: int | None = DAYS
) -> tuple[ApiKey, str]:
    """Make a key; the second value is the only copy of it there will ever be.

    It expires after so many `days`, or never if that is None.
    """
    name, wanted = name.strip(), sorted(set(scopes))
    if not name or len(name) > MAX_NAME:
        raise InvalidInput(f"a key needs a name of 1 to {MAX_NAME} characters", field="name")
    if not wanted:
        raise InvalidInput("a key needs at least one scope: read, write, send or bounces", field="scopes")
    if days is not None and not 1 <= days <= MAX_DAYS:
        raise InvalidInput(f"a key expires after 1 to {MAX_DAYS} days, or never", field="days")
    if any(key.name == name and key.revoked_at is None for key in listed(session)):
        raise Conflict(f"there is a key named “{name}” already: revoke it first, or choose another name")
    key = PREFIX + secret()
    row = ApiKey(
        name=name,
        key_hash=_hash(key),
        scopes=[str(scope) for scope in wanted],
        created_at=now,
        expires_at=None if days is None else now + timedelta(days=days),
    )
    session.add(row)
    session.flush()
    return row, key


def holder(session: Session, key: str, now: datetime) -> Holder | None:
    """Return the holder of a key, or None if it is unknown, revoked or expired."""
    if not key.startswith(PREFIX):
        return None
    wanted = _hash(key)
    row = session.exec(select(ApiKey).where(ApiKey.key_hash == wanted)).one_or_none()
    # The look-up compares hashes, of which nobody can choose a prefix; this makes it plain.
    if row is None or row.revoked_at or not hmac.compare_digest(row.key_hash, wanted):
        return None
    if row.expires_at is not None and row.expires_at <= now:
        return None
    return Holder(
        cast("int", row.id), row.name, frozenset(Scope(scope) for scope in row.scopes), row.last_used_at
    )


def note_use(session: Session, key_id: int, now: datetime) -> None:
    """Remember that the key is in use."""
    row = session.get_one(ApiKey, key_id)
    row.last_used_at = now
    session.add(row)


def revoke(session: Session, name: str, now: datetime) -> ApiKey:
    """End a key at once. Its row stays, so that the audit still knows it."""
    statement = select(ApiKey).where(ApiKey.name == name, col(ApiKey.revoked_at).is_(None))
    row = session.exec(statement).one_or_none()
    if row is None:
        raise NotFound(f"there is no key in use that is named “{name}”")
    row.revoked_at = now
    session.add(row)
    return row


def expiring(session: Session, before: datetime) -> list[ApiKey]:
    """Return the keys in use that expire before a moment, those that expire first at the front."""
    soon = select(ApiKey).where(col(ApiKey.expires_at) < before, col(ApiKey.revoked_at).is_(None))
    return list(session.exec(soon.order_by(col(ApiKey.expires_at))))


def listed(session: Session) -> Sequence[ApiKey]:
    """Every key there ever was, oldest first."""
    return session.exec(select(ApiKey).order_by(col(ApiKey.id))).all()


def _hash(key: str) -> str:
    # A key has 256 random bits: no salt and no slow hash is needed, and a look-up by hash is possible.
    return hashlib.sha256(key.encode()).hexdigest()
