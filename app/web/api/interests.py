"""Distinct interests, and the number of active subscribers who share each."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from fastapi import Query as Param
from pydantic import BaseModel, Field
from sqlalchemy import func
from sqlmodel import col, select

from app.storage.models import InterestQuery, InterestRow, Subscriber, SubscriberState
from app.web.api.auth import CanRead, Paperboy
from app.web.api.pagination import Page, Paging, cut

router = APIRouter(prefix="/interests", tags=["interests"])


class InterestCount(BaseModel):
    """An interest and the number of active subscribers who have it."""

    id: int
    text: str = Field(examples=['"language agents" -game'])
    readers: int = Field(examples=[12])


@router.get("")
def list_interests(
    app: Paperboy,
    _key: CanRead,
    window: Paging,
    q: Annotated[str, Param(max_length=300, description="Part of the text.")] = "",
) -> Page[InterestCount]:
    """List the distinct interests, newest first, including those that no longer have subscribers."""
    statement = (
        select(InterestQuery.id, InterestQuery.text, func.count(col(Subscriber.id)))
        .join(InterestRow, col(InterestRow.query_id) == InterestQuery.id, isouter=True)
        .join(
            Subscriber,
            (col(Subscriber.id) == InterestRow.subscriber_id) & (Subscriber.state == SubscriberState.ACTIVE),
            isouter=True,
        )
        .where(col(InterestQuery.text).icontains(q, autoescape=True))
        .group_by(col(InterestQuery.id), col(InterestQuery.text))
    )
    if window.after_id is not None:
        statement = statement.where(col(InterestQuery.id) < window.after_id)
    with app.db.read() as session:
        rows = session.exec(statement.order_by(col(InterestQuery.id).desc()).limit(window.limit + 1)).all()
    shown, cursor = cut(rows, window, lambda row: row[0])
    items = [InterestCount(id=number, text=text, readers=readers) for number, text, readers in shown]
    return Page(items=items, next_cursor=cursor)
