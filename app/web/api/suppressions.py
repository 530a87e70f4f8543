"""Addresses that get no mail. They are kept as hashes, so an address can be asked for, but not listed."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from app import subscribers
from app.delivery import suppression
from app.errors import NotFound
from app.storage import audit_log
from app.storage.models import Suppression
from app.web.api import problems
from app.web.api.auth import CanRead, CanSend, CanWrite, Now, Paperboy
from app.web.api.pagination import Page, Paging, cut

router = APIRouter(prefix="/suppressions", tags=["suppressions"])

Address = Annotated[str, Field(max_length=320, examples=["alice@example.org"])]
Why = Annotated[str, Field(min_length=3, max_length=500, examples=["asked for it by telephone"])]


class SuppressionOut(BaseModel):
    """One address, by its hash."""

    id: int
    address_hash: str
    reason: str = Field(examples=["bounced: 5.1.1 no such user"])
    since: datetime


class NewSuppression(BaseModel):
    """An address that shall get no mail, and why."""

    email: Address
    reason: Why


class Lifting(BaseModel):
    """An address that may get mail again, and why."""

    email: Address
    reason: Why


@router.get("")
def list_suppressions(
    app: Paperboy,
    _key: CanRead,
    window: Paging,
    email: Annotated[
        str | None, Query(max_length=320, description="Only this address, if it is listed.")
    ] = None,
) -> Page[SuppressionOut]:
    """The list in the order in which it grew."""
    with app.db.read() as session:
        if email is not None:
            found = suppression.get(session, email)
            return Page(items=[_shown(found)] if found else [])
        rows = suppression.list_page(session, limit=window.limit + 1, after=window.after_id or 0)
    shown, cursor = cut(rows, window, lambda row: row.id)
    return Page(items=[_shown(row) for row in shown], next_cursor=cursor)


@router.post("", status_code=201)
def add_suppression(app: Paperboy, key: CanWrite, now: Now, wanted: NewSuppression) -> SuppressionOut:
    """Let an address get no mail from now on. One that is listed already keeps its first reason."""
    email = subscribers.normalise_address(wanted.email)
    with app.db.write() as session:
        suppression.suppress(session, email, wanted.reason, now)
        row = suppression.get(session, email)
        assert row is not None  # noqa: S101 - it was put there one line above
        audit_log.record(session, key.name, "suppression.add", row.address_hash, now, reason=wanted.reason)
        return _shown(row)


@router.post("/lift", status_code=204, responses=problems.responses(404))
def lift_suppression(app: Paperboy, key: CanSend, now: Now, wanted: Lifting) -> None:
    """Let an address get mail again, and its reader where mail came back. The reason is kept in the audit."""
    email = subscribers.normalise_address(wanted.email)
    with app.db.write() as session:
        if not subscribers.lift_suppression(session, email, now):
            raise NotFound("this address is not suppressed")
        listed_as = suppression.address_hash(email)
        audit_log.record(session, key.name, "suppression.lift", listed_as, now, reason=wanted.reason)


def _shown(row: Suppression) -> SuppressionOut:
    return SuppressionOut.model_validate(row.model_dump())
