"""Sessions of operators who are signed in to the admin pages.

A session has the scopes of the key that opened it, and ends when the key is revoked or expires. The cookie is
a random secret, of which only the hash is stored. Forms contain a token derived from this secret, so other
sites cannot submit them.
"""

import hashlib
import hmac
from datetime import datetime, timedelta

from sqlalchemy import delete
from sqlmodel import Session, col, select

from app.storage import api_keys
from app.storage.api_keys import ApiKeyIdentity
from app.storage.models import AdminSession, ApiKey

_TOUCH_INTERVAL = timedelta(minutes=1)  # `used_at` is not written on every request


def create(session: Session, key: ApiKeyIdentity, now: datetime) -> str:
    """Open a session for the holder of a key. Return the secret for the cookie."""
    secret = api_keys.new_secret()
    session.add(AdminSession(token_hash=_hash(secret), key_id=key.id, created_at=now, used_at=now))
    return secret


def find(
    session: Session, secret: str, now: datetime, idle: timedelta, longest: timedelta
) -> tuple[ApiKeyIdentity, bool] | None:
    """Return the identity of a session's key, and True if `touch` should be called.

    Return None if the session has been unused for `idle`, is older than `longest`, or has an inactive key.
    """
    row = _find(session, secret)
    if row is None or row.used_at <= now - idle or row.created_at <= now - longest:
        return None
    key = api_keys.identity_of(session.get_one(ApiKey, row.key_id), now)
    return (key, now - row.used_at >= _TOUCH_INTERVAL) if key else None


def touch(session: Session, secret: str, now: datetime) -> None:
    """Record that a session was used at `now`."""
    if (row := _find(session, secret)) is not None:
        row.used_at = now
        session.add(row)


def close(session: Session, secret: str) -> None:
    """End an operator's session."""
    session.connection().execute(delete(AdminSession).where(col(AdminSession.token_hash) == _hash(secret)))


def prune(session: Session, before: datetime) -> None:
    """Delete the sessions that were opened at or before `before`."""
    ended = col(AdminSession.created_at) <= before
    session.connection().execute(delete(AdminSession).where(ended))


def form_token(secret: str) -> str:
    """Return the token that the forms of a session contain."""
    return hmac.digest(secret.encode(), b"form", "sha256").hex()


def _find(session: Session, secret: str) -> AdminSession | None:
    # A secret has 256 random bits, so its plain hash can be looked up, like that of a key.
    return session.exec(select(AdminSession).where(AdminSession.token_hash == _hash(secret))).one_or_none()


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
