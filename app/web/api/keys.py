"""API keys: list, create, rotate and revoke them. A key can grant only scopes that it has itself.

A key with `write` and `send` can also grant `bounces`, because it may do everything that notices cause:
`write` unsubscribes people and suppresses addresses, and `send` pauses all sending.
"""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, Field

from app.errors import Conflict
from app.storage import api_keys
from app.storage.api_keys import Scope
from app.web.api import problems
from app.web.api.auth import CanRead, CanWrite, Id
from app.web.api.idempotency import SecretResponse
from app.web.api.values import FROM_JSON, Representation, RequestBody

router = APIRouter(prefix="/keys", tags=["keys"])


class KeyOut(Representation):
    """A key without its secret text."""

    id: int
    name: str = Field(examples=["Ada Lovelace"])
    scopes: list[Scope]
    created_at: datetime
    expires_at: datetime | None = Field(description="Null if it never expires.")
    last_used_at: datetime | None
    revoked_at: datetime | None


class KeyList(BaseModel):
    """All keys, including revoked and expired ones, oldest first."""

    items: list[KeyOut]


class CreatedKey(KeyOut, SecretResponse):
    """A new key with its secret text, which is shown only here."""

    key: str = Field(examples=["pb_…"])


class NewKey(RequestBody):
    """A key to create."""

    name: str = Field(max_length=api_keys.MAX_NAME, examples=["Grace Hopper"])
    scopes: list[Scope] = Field(min_length=1, max_length=len(Scope), examples=[["read"]])
    days: Annotated[int, Field(ge=1, le=api_keys.MAX_DAYS), FROM_JSON] = Field(
        default=api_keys.DAYS,
        description="Days until the key expires. It expires no later than the key that creates it.",
    )


@router.get("")
def list_keys(caller: CanRead) -> KeyList:
    """List all keys."""
    with caller.db.read() as session:
        return KeyList(items=[KeyOut.model_validate(row) for row in api_keys.list_keys(session)])


@router.post("", status_code=201, responses=problems.responses(409))
def create_key(caller: CanWrite, body: NewKey) -> CreatedKey:
    """Create a key. It can have only scopes of the key that creates it, and expires no later than that key.

    It can also have the scope `bounces` if that key has `write` and `send`.
    The names `cli` and `paperboy`, and those that end in `, by mail`, are reserved.
    """
    _require_scopes(caller.key, body.scopes)
    with caller.db.write() as session:
        row, secret = api_keys.create(session, body.name, body.scopes, caller.now, body.days, caller.key)
        caller.record(session, "key.create", row.name, scopes=" ".join(row.scopes))
        return CreatedKey(**row.model_dump(), key=secret)


@router.post("/{key_id}/rotate", status_code=201, responses=problems.responses(404, 409))
def rotate_key(caller: CanWrite, key_id: Id) -> CreatedKey:
    """Replace a key with a new one of the same name and scopes. The old one works for one more day.

    The new key has the same lifetime as the old one, counted from now. If another key makes the request, the
    new key expires no later than that key. Status 409 if it would therefore expire earlier than the old one.
    """
    with caller.db.write() as session:
        _require_scopes(caller.key, [Scope(scope) for scope in api_keys.get(session, key_id).scopes])
        row, secret = api_keys.rotate(session, key_id, caller.now, api_keys.OVERLAP, caller.key)
        caller.record(session, "key.rotate", row.name)
        return CreatedKey(**row.model_dump(), key=secret)


@router.delete("/{key_id}", status_code=204, responses=problems.responses(404, 409))
def revoke_key(caller: CanWrite, key_id: Id) -> None:
    """Revoke a key at once. This also ends the sessions on the admin pages that were opened with the key."""
    with caller.db.write() as session:
        _require_scopes(caller.key, [Scope(scope) for scope in api_keys.get(session, key_id).scopes])
        row = api_keys.revoke_by_id(session, key_id, caller.now)
        caller.record(session, "key.revoke", row.name)


def grantable_scopes(key: api_keys.ApiKeyIdentity) -> frozenset[Scope]:
    """Return the scopes that a key can grant if it has `write`."""
    return key.scopes | {Scope.BOUNCES} if key.scopes >= {Scope.WRITE, Scope.SEND} else key.scopes


def _require_scopes(key: api_keys.ApiKeyIdentity, scopes: list[Scope]) -> None:
    """Raise Conflict if a key that has `write` may not grant these scopes."""
    if missing := sorted(set(scopes) - grantable_scopes(key)):
        raise Conflict(
            f"this key lacks the “{missing[0]}” scope: it cannot create, rotate or revoke a key that has it; "
            "use a key with this scope"
        )
