"""API key authentication and common parameters.

A route that takes a caller of the type `CanRead`, `CanWrite` or `CanSend` requires a key with that scope.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from fastapi import Depends, HTTPException, Path, Query, Request, params
from fastapi.params import Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer, SecurityScopes
from sqlmodel import Session

from app.application import Application
from app.settings import Settings
from app.storage import api_keys, audit_log
from app.storage.api_keys import ApiKeyIdentity, Scope
from app.storage.database import Database
from app.storage.figure_cache import MAX_AGE, FigureReader
from app.web.api import idempotency
from app.web.api.values import FROM_URL
from app.web.capacity import Capacity
from app.web.site_state import application, capacity, db
from app.web.visitors import visitor

WRONG_KEY = "unknown key: it may be mistyped, revoked or expired (see `paperboy key list`)"

_bearer = HTTPBearer(auto_error=False, description="A key created by `paperboy key create`.")


@dataclass(frozen=True, slots=True)
class Caller:
    """The holder of a request's key, with the time of the request and the application that it is for."""

    app: Application
    capacity: Capacity
    key: ApiKeyIdentity
    now: datetime
    figures: FigureReader

    @property
    def db(self) -> Database:
        return self.app.db

    def clear_public_caches(self) -> None:
        """Make this process build its public pages and feeds again, after a paper has been hidden."""
        for callback in self.app.on_paper_hidden:
            callback()

    @property
    def settings(self) -> Settings:
        return self.app.settings

    def record(self, session: Session, action: str, subject: object, **detail: Any) -> None:
        """Store a change that the caller makes in the audit log."""
        audit_log.record(session, self.key.name, action, subject, self.now, **detail)


def _now(request: Request) -> datetime:
    now: datetime = request.app.state.clock()
    return now


Paperboy = Annotated[Application, Depends(application)]
Id = Annotated[int, Path(ge=1, lt=2**31), FROM_URL]
DeliveryId = Annotated[int, Path(ge=1, lt=2**63), FROM_URL]  # a bigint; other ids are 32-bit integers
AnyId = Annotated[int | None, Query(ge=1, lt=2**31), FROM_URL]
Now = Annotated[datetime, Depends(_now)]
Limited = Annotated[Capacity, Depends(capacity)]
Given = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]


def holder(request: Request, app: Paperboy, now: Now, needed: SecurityScopes, given: Given) -> ApiKeyIdentity:
    """Return the holder of a request's key, and claim the request's idempotency key, if it has one.

    Raise HTTPException (401, or 403 if the key lacks the scope), TooManyRequests if a limit is exceeded, or
    the exceptions of `idempotency.begin`.
    """
    caller = authenticate(request, given.credentials, now) if given else None
    if caller is None:
        challenge = 'Bearer realm="paperboy"' + (', error="invalid_token"' if given else "")
        detail = WRONG_KEY if given else "a key is needed: send the header “Authorization: Bearer pb_…”"
        raise HTTPException(401, detail, {"WWW-Authenticate": challenge})
    if not caller.scopes.issuperset(needed.scopes):
        challenge = f'Bearer realm="paperboy", error="insufficient_scope", scope="{needed.scope_str}"'
        raise HTTPException(
            403,
            f"this key lacks the “{needed.scope_str}” scope: use a key that has it",
            {"WWW-Authenticate": challenge},
        )
    idempotency.begin(request, app, caller, now)
    note_use(app, caller, now)
    return caller


def authenticate(request: Request, key: str, now: datetime) -> ApiKeyIdentity | None:
    """Return the holder of a key, or None if it is wrong. Raise TooManyRequests if a limit is exceeded.

    A wrong key costs one indexed read, or none if its network has sent too many wrong keys.
    """
    limits, sender = capacity(request).keys, visitor(request)
    limits.before_lookup(key, sender)
    with db(request).read() as session:
        caller = api_keys.authenticate(session, key, now)
    if caller is None:
        limits.wrong_key(key, sender)
    else:
        limits.valid_key(key, caller.id)
    return caller


def note_use(app: Application, caller: ApiKeyIdentity, now: datetime) -> None:
    """Store the time of a key's last use, at most once a minute."""
    if caller.is_stale(now):
        with app.db.write() as session:
            api_keys.touch(session, caller.id, now)


async def _admitted(
    app: Paperboy, limits: Limited, key: Annotated[ApiKeyIdentity, Depends(holder)], now: Now
) -> AsyncIterator[Caller]:
    """Yield the caller while holding an API slot. Take the slot without waiting for a pool thread."""
    with limits.api.take():
        yield Caller(app, limits, key, now, FigureReader(app.db.figures, MAX_AGE))


async def _analysis(limits: Limited) -> AsyncIterator[None]:
    with limits.analyses.take():
        yield


def _scope(scope: Scope) -> Security:
    return Security(_admitted, scopes=[scope.value], scope="function")


CanRead = Annotated[Caller, _scope(Scope.READ)]
CanWrite = Annotated[Caller, _scope(Scope.WRITE)]
CanSend = Annotated[Caller, _scope(Scope.SEND)]
# For routes that take a second of CPU time. Declare it after the key, so that only valid keys take a slot.
Analysis = Annotated[None, params.Depends(_analysis, scope="function")]
