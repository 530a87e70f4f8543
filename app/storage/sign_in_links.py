"""Links that sign an operator in once. A link is stored as a key that can only read."""

from datetime import datetime, timedelta

from sqlalchemy import update
from sqlmodel import Session, col, select

from app import clock
from app.storage import api_keys
from app.storage.api_keys import ApiKeyIdentity, Scope
from app.storage.database import execute_and_count
from app.storage.models import ApiKey

LIFETIME = timedelta(minutes=15)  # of the first link; each unused link doubles that of the next
MARGIN = timedelta(minutes=5)  # a link that expires sooner may be too late for its operator


def create(session: Session, email: str, now: datetime) -> tuple[ApiKey, str] | None:
    """Create a link that signs an operator in once. Return its row and its token, a key that can only read.

    Return None if an unused link still works for more than MARGIN, because the operator already has it.
    Anyone can request links, so each unused one of the last day doubles the lifetime of the next. A mailbox
    therefore gets at most seven links a day that nobody uses, and always has one that works. Links that a
    clock that was ahead created are revoked.
    """
    name = f"{api_keys.LINK_NAME} {email}"[: api_keys.MAX_NAME]
    api_keys.lock(session)
    unused = select(ApiKey).where(
        ApiKey.name == name,
        col(ApiKey.revoked_at).is_(None),
        col(ApiKey.created_at) > now - timedelta(days=1),
    )
    links = list[ApiKey]()
    for link in session.exec(unused):
        if link.created_at > now + clock.MAX_AHEAD:
            link.revoked_at = now
        else:
            links.append(link)
    if any(link.expires_at and link.expires_at > now + MARGIN for link in links):
        return None
    return api_keys.insert(session, name, [Scope.READ], now, now + LIFETIME * 2 ** len(links))


def redeem(session: Session, token: str, now: datetime, expires_at: datetime) -> ApiKeyIdentity | None:
    """Revoke a link, create a key with an operator's scopes, and return the key's identity.

    The key expires at `expires_at`. Return None if the link has been used or has expired, or if the token
    does not belong to a link.
    """
    link = api_keys.authenticate(session, token, now)
    if link is None or not link.name.startswith(api_keys.LINK_NAME):
        return None
    api_keys.lock(session)
    unused = (col(ApiKey.id) == link.id) & col(ApiKey.revoked_at).is_(None)
    if not execute_and_count(session, update(ApiKey).where(unused).values(revoked_at=now)):
        return None  # another request has just redeemed the link
    _revoke_all(session, link.name, now)
    name = f"{link.name.removeprefix(api_keys.LINK_NAME).strip()}{api_keys.BY_MAIL}"[: api_keys.MAX_NAME]
    _revoke_all(session, name, now)
    row, _ = api_keys.insert(session, name, [Scope.READ, Scope.WRITE, Scope.SEND], now, expires_at)
    return api_keys.identity_of(row, now)


def _revoke_all(session: Session, name: str, now: datetime) -> None:
    if any(key.name == name and key.revoked_at is None for key in api_keys.list_keys(session)):
        api_keys.revoke(session, name, now)
