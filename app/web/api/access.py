"""Who may call what: each route asks for exactly one of `Reader`, `Writer` and `Sender`.

And the parameters that many routes share."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import Depends, HTTPException, Path, Query, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer, SecurityScopes

from app import clock, keys
from app.models import Scope
from app.pipeline import App

WRONG_KEY = "this key is not known here: it may be mistyped, or revoked (see `paperboy key list`)"

_bearer = HTTPBearer(auto_error=False, description="A key made by `paperboy key create`.")


def _the_app(request: Request) -> App:
    app: App = request.app.state.paperboy
    return app


Paperboy = Annotated[App, Depends(_the_app)]
Id = Annotated[int, Path(ge=1, lt=2**63)]
AnyId = Annotated[int | None, Query(ge=1, lt=2**63)]
Now = Annotated[datetime, Depends(clock.utcnow)]
Given = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]


def holder(app: Paperboy, now: Now, needed: SecurityScopes, given: Given) -> keys.Holder:
    """The holder of the key that was sent, or 401, or 403 where it lacks the scope."""
    caller = _known(app, given.credentials) if given else None
    if caller is None:
        said = 'Bearer realm="paperboy"' + (', error="invalid_token"' if given else "")
        detail = WRONG_KEY if given else "a key is needed: Authorization: Bearer pb_…"
        raise HTTPException(401, detail, {"WWW-Authenticate": said})
    if not caller.scopes.issuperset(needed.scopes):
        said = f'Bearer realm="paperboy", error="insufficient_scope", scope="{needed.scope_str}"'
        raise HTTPException(403, f"this key lacks the scope “{needed.scope_str}”", {"WWW-Authenticate": said})
    if caller.is_stale(now):
        with app.db.write() as session:
            keys.note_use(session, caller.id, now)
    return caller


def _known(app: App, key: str) -> keys.Holder | None:
    with app.db.read() as session:
        return keys.holder(session, key)


Reader = Annotated[keys.Holder, Security(holder, scopes=[Scope.READ.value])]
Writer = Annotated[keys.Holder, Security(holder, scopes=[Scope.WRITE.value])]
Sender = Annotated[keys.Holder, Security(holder, scopes=[Scope.SEND.value])]
