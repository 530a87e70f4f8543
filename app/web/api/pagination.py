"""Paginated lists. A cursor names the last row of a page, so added or deleted rows do not shift pages."""

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
    """A page of rows. Pass `next_cursor` as `cursor` to get the next page, until it is null."""

    items: list[Item]
    next_cursor: str | None = Field(default=None, examples=["MTIz"])


@dataclass(frozen=True, slots=True)
class PageWindow:
    """The requested part of a list: at most `limit` rows after the row `after`."""

    limit: int
    after: str | None

    @property
    def after_id(self) -> int | None:
        """Return the id in the cursor, for lists ordered by id. Raise InvalidInput if it is not an id."""
        if self.after is None:
            return None
        if not (self.after.isascii() and self.after.isdigit() and len(self.after) < 19):
            raise _invalid_cursor()
        return int(self.after)


def window_of(
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT, description="Maximum number of rows."), FROM_URL] = 50,
    cursor: Annotated[
        str | None, Query(max_length=200, description="`next_cursor` of the previous page.")
    ] = None,
) -> PageWindow:
    """Return the requested part of a list. Raise InvalidInput if the cursor is not valid."""
    if cursor is None:
        return PageWindow(limit, None)
    padded = cursor + "=" * (-len(cursor) % 4)
    try:
        return PageWindow(limit, base64.b64decode(padded, altchars=b"-_", validate=True).decode())
    except (binascii.Error, ValueError):
        raise _invalid_cursor() from None


Paging = Annotated[PageWindow, Depends(window_of)]


def cut(
    rows: Sequence[Row], window: PageWindow, name: Callable[[Row], object]
) -> tuple[list[Row], str | None]:
    """Return the rows of a page and the next cursor. `rows` has an extra row if there is a next page."""
    page = list(rows[: window.limit])
    if len(rows) <= window.limit:
        return page, None
    return page, base64.urlsafe_b64encode(str(name(page[-1])).encode()).decode().rstrip("=")


def newest_first(
    session: Session, statement: SelectOfScalar[Row], key: Any, window: PageWindow, **equal: object
) -> tuple[list[Row], str | None]:
    """Return a page of the rows that `statement` selects, in descending order of `key`, an integer column.

    `equal` contains the values that columns must have, keyed by column name. None allows any value.
    """
    statement = statement.filter_by(**{name: value for name, value in equal.items() if value is not None})
    if window.after_id is not None:
        statement = statement.where(key < window.after_id)
    rows = session.exec(statement.order_by(key.desc()).limit(window.limit + 1)).all()
    return cut(rows, window, lambda row: getattr(row, key.key))


def _invalid_cursor() -> InvalidInput:
    return InvalidInput("the cursor does not belong to this list: use one from its last response")
