"""List, create, rotate and revoke keys. A key is shown only once, in the response to the form."""

from collections.abc import Collection
from typing import Annotated, Unpack

from fastapi import APIRouter, Form, Response
from pydantic import ValidationError

from app.errors import Conflict, InvalidInput
from app.storage import api_keys
from app.storage.api_keys import Scope
from app.storage.models import ApiKey
from app.web.admin.double_clicks import AdminRoute
from app.web.admin.sign_in import FormOutcome, Operator, ProspectiveWriter, Reader, Writer, back_to
from app.web.api import keys
from app.web.api.auth import Id
from app.web.forms import Text

router = APIRouter(include_in_schema=False, route_class=AdminRoute)


@router.get("/admin/keys")
def list_keys(operator: Reader, done: str = "", scope: str = "") -> Response:
    """List the keys. `scope` is selected in the form that creates a key, if the operator can grant it."""
    selected = [scope] if scope in keys.grantable_scopes(operator.key) else [Scope.READ]
    return _page(operator, message="Revoked." if done == "revoked" else "", selected=selected)


@router.post("/admin/keys")
def create_key(
    operator: Writer, name: Text = "", scope: Annotated[list[str] | None, Form()] = None
) -> Response:
    """Create and show a key. It expires after a year, or with the operator's own key if that is earlier."""
    try:
        body = keys.NewKey(name=name, scopes=[Scope(each) for each in scope or ()])
        created = keys.create_key(operator, body)
    except (ValidationError, ValueError):
        problem = f"A key needs a name of 1 to {api_keys.MAX_NAME} characters and at least one scope."
        return _page(operator, problem=problem, status=422, name=name, selected=scope or ())
    except (InvalidInput, Conflict) as error:
        return _page(operator, problem=str(error), status=422, name=name, selected=scope or ())
    return _page(operator, created=created)


@router.post("/admin/keys/{key_id}/rotate")
def rotate_key(operator: Writer, key_id: Id) -> Response:
    """Replace a key, and show the new one."""
    try:
        created = keys.rotate_key(operator, key_id)
    except Conflict as error:
        return _page(operator, problem=str(error), status=409)
    return _page(operator, created=created)


@router.get("/admin/keys/{key_id}/revoke")
def ask_revocation(operator: ProspectiveWriter, key_id: Id) -> Response:
    """Ask before a key is revoked."""
    with operator.db.read() as session:
        key = api_keys.get(session, key_id)
        others = [
            each
            for each in api_keys.list_keys(session)
            if each.name == key.name and each.id != key_id and api_keys.identity_of(each, operator.now)
        ]
    consequences = (
        "Anyone who uses this key is signed out and loses access at once. A revoked key cannot be restored. "
    )
    if others:
        consequences += " ".join(_describe_other(each, key) for each in others)
        leaked = "it leaked, revoke it" if len(others) == 1 else "they leaked, revoke them"
        consequences += f" If {leaked}, too."
    else:
        consequences += (
            "To change a key without an interruption, replace it instead: the old one then works for one "
            "more day."
        )
    facts = {
        "Scopes": ", ".join(key.scopes),
        "Created": f"{key.created_at:%Y-%m-%d %H:%M} UTC",
        "Expires": f"{key.expires_at:%Y-%m-%d %H:%M} UTC" if key.expires_at else "never",
    }
    return operator.confirmation_page(
        f"Revoke the key “{key.name}”?",
        consequences,
        confirm="Revoke the key",
        section="/admin/keys",
        back="/admin/keys",
        facts=facts,
    )


def _describe_other(other: ApiKey, key: ApiKey) -> str:
    """Say how long another key with the name of `key` works."""
    age = "older" if other.created_at < key.created_at else "newer"
    end = f"until {other.expires_at:%Y-%m-%d %H:%M} UTC" if other.expires_at else "and does not expire"
    return f"The {age} key with this name still works {end}."


@router.post("/admin/keys/{key_id}/revoke")
def revoke_key(operator: Writer, key_id: Id) -> Response:
    keys.revoke_key(operator, key_id)
    return back_to("/admin/keys", "revoked")


def _page(
    operator: Operator,
    *,
    created: keys.CreatedKey | None = None,
    name: str = "",
    selected: Collection[str] = (Scope.READ,),
    **outcome: Unpack[FormOutcome],
) -> Response:
    listed = keys.list_keys(operator)
    newest = {key.name: key.id for key in listed.items if not key.revoked_at}
    return operator.page(
        "admin/keys.html", keys=listed.items, newest=newest, now=operator.now,
        scopes=[scope for scope in Scope if scope in keys.grantable_scopes(operator.key)], created=created,
        name=name, selected=selected, **outcome,
    )  # fmt: skip
