"""Create, check and revoke keys for the admin API. A key is shown once, stored as a hash, and can expire."""

import hashlib
import hmac
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import cast

from sqlmodel import Session, col, select

from app.errors import Conflict, InvalidInput, NotFound
from app.storage.database import advisory_lock
from app.storage.models import ApiKey

PREFIX = "pb_"  # so that scanners recognize a key that leaked into logs or a repository
MAX_NAME = 100
DAYS, MAX_DAYS = 365, 3650  # the default and the maximum number of days until a key expires
COMMANDS = "cli"  # the name of the command line in the audit log
AUTOMATIC = "paperboy"  # the name of the service itself in the audit log, for automatic pauses
BY_MAIL = ", by mail"  # the suffix of the names of keys that a sign-in link created
LINK_NAME = "sign-in link to"
OVERLAP = timedelta(days=1)  # a key still works this long after it has been replaced
_SECRET_BYTES = 32
_TOUCH_INTERVAL = timedelta(minutes=1)  # `last_used_at` is not written on every request


class Scope(StrEnum):
    """An operation that a key allows, in API requests and on the admin pages."""

    READ = "read"
    WRITE = "write"
    SEND = "send"
    BOUNCES = "bounces"  # for a relay's webhook, which may only report bounces


@dataclass(frozen=True, slots=True)
class ApiKeyIdentity:
    """The caller of a request: the name of their key, and its scopes."""

    id: int
    name: str
    scopes: frozenset[Scope]
    last_used_at: datetime | None
    expires_at: datetime | None = None

    def is_stale(self, now: datetime) -> bool:
        """Return whether `last_used_at` is old enough to be updated."""
        return self.last_used_at is None or now - self.last_used_at >= _TOUCH_INTERVAL


def new_secret() -> str:
    """Return a new random secret of 256 bits, for a key or for PAPERBOY_SECRET_KEYS."""
    return secrets.token_urlsafe(_SECRET_BYTES)


def create(
    session: Session,
    name: str,
    scopes: Iterable[Scope],
    now: datetime,
    days: int | None = DAYS,
    creator: ApiKeyIdentity | None = None,
) -> tuple[ApiKey, str]:
    """Create a key. Return its row and the key itself, which is not stored anywhere.

    The key expires after `days`, or never if `days` is None, but no later than the key of its `creator`.
    Raise InvalidInput if an argument is invalid, or Conflict if an active key has the same name.
    """
    name, unique_scopes = name.strip(), sorted(set(scopes))
    if not name or len(name) > MAX_NAME:
        raise InvalidInput(f"a key needs a name of 1 to {MAX_NAME} characters", field="name")
    if not unique_scopes:
        raise InvalidInput("a key needs at least one scope: read, write, send or bounces", field="scopes")
    if days is not None and not 1 <= days <= MAX_DAYS:
        raise InvalidInput(f"a key must expire after 1 to {MAX_DAYS} days, or never", field="days")
    _refuse_reserved(name)
    lock(session)
    if any(key.name == name and identity_of(key, now) for key in list_keys(session)):
        raise Conflict(f"a key named “{name}” already exists: revoke it first, or choose another name")
    expires_at = None if days is None else now + timedelta(days=days)
    return insert(session, name, unique_scopes, now, _earlier(expires_at, creator))


def _refuse_reserved(name: str) -> None:
    """Raise InvalidInput for names that the service itself uses, in the audit log and for sign-in links."""
    if name.startswith(LINK_NAME):  # such a key could be redeemed for one with all scopes
        raise InvalidInput(f"a key’s name cannot begin with “{LINK_NAME}”, which is reserved", field="name")
    if name.casefold() in (COMMANDS, AUTOMATIC):
        raise InvalidInput(f"a key cannot be named “{name}”: the audit log uses this name", field="name")
    if name.casefold().endswith(BY_MAIL):
        raise InvalidInput(f"a key’s name cannot end in “{BY_MAIL}”, which is reserved", field="name")


def _earlier(expires_at: datetime | None, creator: ApiKeyIdentity | None) -> datetime | None:
    """Return `expires_at` or the time at which the creator's key expires, whichever is earlier."""
    ends = [expires_at, creator.expires_at if creator else None]
    return min((at for at in ends if at is not None), default=None)


def lock(session: Session) -> None:
    """Keep other transactions from creating, replacing or revoking keys."""
    advisory_lock(session, "API keys")


def insert(
    session: Session, name: str, scopes: Iterable[Scope], now: datetime, expires_at: datetime | None
) -> tuple[ApiKey, str]:
    """Insert a key whose name and scopes have been checked. Return its row and the key itself."""
    key = PREFIX + new_secret()
    row = ApiKey(
        name=name,
        key_hash=_hash(key),
        scopes=[str(scope) for scope in scopes],
        created_at=now,
        expires_at=expires_at,
    )
    session.add(row)
    session.flush()
    return row, key


def authenticate(session: Session, key: str, now: datetime) -> ApiKeyIdentity | None:
    """Return the caller with this key, or None if the key is unknown, revoked or expired."""
    if not key.startswith(PREFIX):
        return None
    key_hash = _hash(key)
    row = session.exec(select(ApiKey).where(ApiKey.key_hash == key_hash)).one_or_none()
    # The query compares hashes, and nobody can choose the prefix of a hash, so its timing reveals nothing.
    # The comparison in constant time makes this evident to readers.
    if row is None or not hmac.compare_digest(row.key_hash, key_hash):
        return None
    return identity_of(row, now)


def identity_of(row: ApiKey, now: datetime) -> ApiKeyIdentity | None:
    """Return the identity of a key, or None if it is revoked or expired."""
    if row.revoked_at or (row.expires_at is not None and row.expires_at <= now):
        return None
    return ApiKeyIdentity(
        cast("int", row.id),
        row.name,
        frozenset(Scope(scope) for scope in row.scopes),
        row.last_used_at,
        row.expires_at,
    )


def touch(session: Session, key_id: int, now: datetime) -> None:
    """Record that the key was used at `now`."""
    row = session.get_one(ApiKey, key_id)
    row.last_used_at = now
    session.add(row)


def get(session: Session, key_id: int) -> ApiKey:
    """Return a key by its id. Raise NotFound if there is no such key or it is revoked."""
    row = session.get(ApiKey, key_id)
    if row is None or row.revoked_at:
        raise NotFound(f"there is no active key {key_id}")
    return row


def lock_and_get(session: Session, key_id: int) -> ApiKey:
    """Return a key as `get` does, and keep other transactions from creating, replacing or revoking keys."""
    lock(session)
    session.get(ApiKey, key_id, populate_existing=True)
    return get(session, key_id)


def active(session: Session, name: str, now: datetime) -> ApiKey:
    """Return the newest active key with a name. Raise NotFound if there is none."""
    rows = [row for row in list_keys(session) if row.name == name and identity_of(row, now)]
    if not rows:
        raise NotFound(f"there is no active key named “{name}”")
    return rows[-1]


def revoke(session: Session, name: str, now: datetime) -> ApiKey:
    """Revoke all keys with a name and return the newest. After a rotation, two keys have the same name.

    The rows are kept for the audit log. Raise NotFound if no key with this name is left to revoke.
    """
    lock(session)
    statement = select(ApiKey).where(ApiKey.name == name, col(ApiKey.revoked_at).is_(None))
    rows = session.exec(statement.order_by(col(ApiKey.id))).all()
    if not rows:
        raise NotFound(f"there is no active key named “{name}”")
    for row in rows:
        row.revoked_at = now
        session.add(row)
    return rows[-1]


def revoke_by_id(session: Session, key_id: int, now: datetime) -> ApiKey:
    """Revoke a key and return its row. Raise NotFound if there is no such key or it is already revoked."""
    row = lock_and_get(session, key_id)
    row.revoked_at = now
    session.add(row)
    return row


def rotate(
    session: Session, key_id: int, now: datetime, overlap: timedelta, creator: ApiKeyIdentity | None = None
) -> tuple[ApiKey, str]:
    """Create a key with the same name, scopes and lifetime. The old key expires after `overlap`.

    The new key expires no later than the key of its `creator`, unless a key rotates itself. Return the new
    row and the key itself. Raise NotFound or Conflict if the old key cannot be replaced, or if the new one
    would expire earlier than the old one without the replacement.
    """
    old = lock_and_get(session, key_id)
    if (newest := active(session, old.name, now)).id != key_id:
        raise Conflict(f"the key {key_id} has expired or has been replaced: rotate key {newest.id} instead")
    if old.name.startswith(LINK_NAME):  # the new key could be redeemed for one with all scopes
        raise NotFound(f"the key {key_id} belongs to a sign-in link: create a new link instead")
    if old.name.endswith(BY_MAIL):  # otherwise one email would grant access forever
        raise Conflict(f"the key {key_id} was created by a sign-in link: sign in again to get another key")
    expires_at = now + (old.expires_at - old.created_at) if old.expires_at else None
    if creator is not None and creator.id != key_id:
        expires_at = _earlier(expires_at, creator)
    if expires_at and (old.expires_at is None or expires_at < old.expires_at):
        raise Conflict(
            f"the new key would expire earlier than the old one, at {expires_at:%Y-%m-%d %H:%M} UTC, like "
            "your own key: use a key that lasts longer, or paperboy key rotate"
        )
    old.expires_at = min(old.expires_at or now + overlap, now + overlap)
    session.add(old)
    return insert(session, old.name, [Scope(scope) for scope in old.scopes], now, expires_at)


def expiring_keys(session: Session, before: datetime) -> list[ApiKey]:
    """Return the keys that are not revoked and expire before a time, soonest first.

    Leave out replaced keys and keys of sign-in links, which are meant to expire.
    """
    statement = select(ApiKey).where(col(ApiKey.revoked_at).is_(None)).order_by(col(ApiKey.id))
    newest = {key.name: key for key in session.exec(statement)}
    expiring = [
        key
        for key in newest.values()
        if key.expires_at and key.expires_at < before and not key.name.startswith(LINK_NAME)
        if not key.name.endswith(BY_MAIL)
    ]
    return sorted(expiring, key=lambda key: (key.expires_at, key.id))


def list_keys(session: Session) -> Sequence[ApiKey]:
    """Return all keys, including revoked and expired ones, oldest first."""
    return session.exec(select(ApiKey).order_by(col(ApiKey.id))).all()


def _hash(key: str) -> str:
    # A key has 256 random bits, so it needs neither a salt nor a slow hash, and its hash can be looked up.
    return hashlib.sha256(key.encode()).hexdigest()
