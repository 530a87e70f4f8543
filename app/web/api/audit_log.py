"""Changes made by operators, with the key or command that made them."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field
from sqlmodel import col, select

from app.storage.models import AuditEntry
from app.web.api.auth import CanRead
from app.web.api.pagination import Page, Paging, newest_first
from app.web.api.values import Representation

router = APIRouter(prefix="/audit-log", tags=["audit-log"])


class AuditEntryOut(Representation):
    """A change made by an operator."""

    id: int
    at: datetime
    actor: str = Field(examples=["grafana"], description="The name of the key, or `cli`.")
    action: str = Field(examples=["source.pause"])
    subject: str = Field(examples=["arXiv announcements"])
    detail: dict[str, Any]


@router.get("")
def list_changes(
    caller: CanRead,
    window: Paging,
    actor: Annotated[str | None, Query(max_length=100)] = None,
    action: Annotated[str | None, Query(max_length=60, examples=["source.pause"])] = None,
) -> Page[AuditEntryOut]:
    """List the changes made by operators, newest first."""
    with caller.db.read() as session:
        rows, cursor = newest_first(
            session, select(AuditEntry), col(AuditEntry.id), window, actor=actor, action=action
        )
    return Page(items=[AuditEntryOut.model_validate(row) for row in rows], next_cursor=cursor)
