"""Suppressed addresses, stored as hashes. Only addresses of subscribers can be shown."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from sqlmodel import Session

from app import subscribers
from app.delivery import suppression
from app.delivery.receivers import receiver_of
from app.errors import NotFound
from app.storage.models import Suppression
from app.web.api import problems
from app.web.api.auth import CanRead, CanSend, CanWrite
from app.web.api.pagination import Page, Paging, cut
from app.web.api.values import RequestBody

router = APIRouter(prefix="/suppressions", tags=["suppressions"])

Address = Annotated[str, Field(max_length=320, examples=["alice@example.org"])]
Why = Annotated[str, Field(min_length=3, max_length=500, examples=["asked for it by telephone"])]


class SuppressionOut(BaseModel):
    """A suppressed address, stored as a hash."""

    id: int
    address_hash: str
    reason: str = Field(examples=["bounced: 5.1.1 no such user"])
    since: datetime
    email: str = Field(
        description="Empty if no subscriber has this address, for example after an erasure.",
        examples=["alice@example.org"],
    )
    receiver: str = Field(description="The provider or domain; empty if the address is unknown.")


class NewSuppression(RequestBody):
    """An address to suppress, and the reason."""

    email: Address
    reason: Why


class Lifting(NewSuppression):
    """The address whose suppression is lifted, and the reason."""


@router.get("")
def list_suppressions(
    caller: CanRead,
    window: Paging,
    email: Annotated[
        str | None, Query(max_length=320, description="Only this address, if it is suppressed.")
    ] = None,
    reason: Annotated[
        str,
        Query(max_length=200, description="Only entries whose reason contains this text.", examples=["spam"]),
    ] = "",
) -> Page[SuppressionOut]:
    """List the suppressed addresses, oldest first.

    Only hashes are stored. To show the addresses on a page, the addresses of all subscribers are hashed. For
    200,000 subscribers, this takes about half a second. If `email` is given, this is not necessary.
    """
    with caller.db.read() as session:
        if email is not None:
            address = subscribers.normalize_address(email)
            row = suppression.get(session, address)
            return Page(items=[_to_out(row, address)] if row else [])
        after = window.after_id or 0
        rows = suppression.list_page(session, limit=window.limit + 1, after=after, text=reason)
        page, cursor = cut(rows, window, lambda row: row.id)
        return Page(items=describe(session, page), next_cursor=cursor)


def describe(session: Session, rows: Sequence[Suppression]) -> list[SuppressionOut]:
    """Return these suppressions, each with its address if it belongs to a subscriber."""
    emails = suppression.addresses_of(session, rows)
    return [_to_out(row, emails.get(row.address_hash, "")) for row in rows]


@router.post("", status_code=201)
def add_suppression(caller: CanWrite, body: NewSuppression) -> SuppressionOut:
    """Suppress an address. If it is already suppressed, keep the first reason."""
    email = subscribers.normalize_address(body.email)
    with caller.db.write() as session:
        suppression.suppress(session, email, body.reason, caller.now)
        row = suppression.get(session, email)
        assert row is not None  # noqa: S101 - inserted above
        caller.record(session, "suppression.add", row.address_hash, reason=body.reason)
        return _to_out(row, email)


@router.post("/lift", status_code=204, responses=problems.responses(404))
def lift_suppression(caller: CanSend, body: Lifting) -> None:
    """Lift a suppression. If the subscriber's mail bounced, restore the state that they had before.

    The reason is stored in the audit log.
    """
    email = subscribers.normalize_address(body.email)
    with caller.db.write() as session:
        if not subscribers.lift_suppression(session, email, caller.now):
            raise NotFound("this address is not suppressed")
        listed_as = suppression.address_hash(email)
        caller.record(session, "suppression.lift", listed_as, reason=body.reason)


def _to_out(row: Suppression, email: str) -> SuppressionOut:
    receiver = receiver_of(email) if email else ""
    return SuppressionOut(**row.model_dump(), email=email, receiver=receiver)
