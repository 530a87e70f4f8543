"""What operators changed, and by which key or door."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from sqlmodel import col, select

from app.storage.models import AuditEntry
from app.web.api.auth import CanRead, Paperboy
from app.web.api.pagination import Page, Paging, newest_first

router = APIRouter(prefix="/changes", tags=["changes"])


class ChangeOut(BaseModel):
    """One change."""

    id: int
    at: datetime
    actor: str = Field(examples=["grafana"], description="The name of the key, or `cli`.")
    action: str = Field(examples=["source.pause"])
    subject: str = Field(examples=["arXiv announcements"])
    detail: dict[str, Any]


@router.get("")
def list_changes(
    app: Paperboy,
    _key: CanRead,
    window: Paging,
    actor: Annotated[str | None, Query(max_length=100)] = None,
    action: Annotated[str | None, Query(max_length=60, examples=["source.pause"])] = None,
) -> Page[ChangeOut]:
    """The changes, the newest first."""
    wanted = {"actor": actor, "action": action}
    statement = select(AuditEntry).filter_by(
        **{name: value for name, value in wanted.items() if value is not None}
    )
    with app.db.read() as session:
        rows, cursor = newest_first(session, statement, col(AuditEntry.id), window)
    return Page(items=[ChangeOut.model_validate(row.model_dump()) for row in rows], next_cursor=cursor)
