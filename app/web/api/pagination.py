"""Lists a page at a time. A cursor says after which row to go on, so rows that come and go shift nothing."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

from fastapi import Depends, Query
from pydantic import BaseModel, Field
from sqlmodel import Session
from sqlmodel.sql.expression import SelectOfScalar

from app.errors import InvalidInput
from app.web.api.values import FROM_URL

MAX_LIMIT = 200

Item = TypeVar("Item")
Row = TypeVar("Row")


class Page(BaseModel, Generic[Item]):
    """Some rows, and where to go on: ask again with `cursor` = `next_cursor` until it is null."""

    items: list[Item]
    next_cursor: str | None = Field(default=None, examples=["MTIz"])


@dataclass(frozen=True, slots=True)
class Window:
    """Which part of a list is asked for: at most `limit` rows, after the one that `after` names."""

    limit: int
    after: str | None

    @property
    def after_id(self) -> int | None:
        """The id in the cursor, where the list is ordered by id."""
        if self.after is None:
            return None
        if not (self.after.isascii() and self.after.isdigit() and len(self.after) < 19):
            raise _foreign()
        return int(self.after)


def _window(
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT, description="How many rows at most."), FROM_URL] = 50,
    cursor: Annotated[
        str | None, Query(max_length=200, description="`next_cursor` of the page before.")
    ] = None,
) -> Window:
    return Window(limit, None if cursor is None else _decode(cursor))


Paging = Annotated[Window, Depends(_window)]


def cut(rows: Sequence[Row], window: Window, name: Callable[[Row], object]) -> tuple[list[Row], str | None]:
    """The rows to show out of one row more than asked for, and the cursor of the next page."""
    shown = list(rows[: window.limit])
    return shown, _encode(str(name(shown[-1]))) if len(rows) > window.limit else None


def newest_first(
    session: Session, statement: SelectOfScalar[Row], key: Any, window: Window
) -> tuple[list[Row], str | None]:
    """One page of the rows that `statement` selects, by descending `key`, an integer column."""
    if window.after_id is not None:
        statement = statement.where(key < window.after_id)
    rows = session.exec(statement.order_by(key.desc()).limit(window.limit + 1)).all()
    return cut(rows, window, lambda row: getattr(row, key.key))


def _encode(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode().rstrip("=")


def _decode(cursor: str) -> str:
    try:
        return base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise _foreign() from None


def _foreign() -> InvalidInput:
    return InvalidInput("the cursor is not one that this list gave")
