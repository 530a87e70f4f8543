"""Pages of long lists, newest first, with links to the newer and the older page."""

from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

from fastapi import Query
from sqlmodel import Session
from sqlmodel.sql.expression import SelectOfScalar

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class BidirectionalPage(Generic[Row]):
    """A page of a list, newest first. `newer` and `older` are the positions of the adjacent pages, or ""."""

    rows: list[Row]
    newer: str
    older: str


Position = Annotated[str, Query(pattern=r"^((before|after)-\d{1,18})?$")]


def page_at(
    session: Session, statement: SelectOfScalar[Row], key: Any, limit: int, position: str
) -> BidirectionalPage[Row]:
    """Return the page at a position in the list of rows that `statement` selects.

    The position is `before-ID`, `after-ID`, or empty for the newest page. `key` is the column of the id.
    """
    direction, _, number = position.partition("-")
    at = int(number or 0)
    if direction == "after":
        newer = session.exec(statement.where(key > at).order_by(key).limit(limit + 1)).all()
        rows, more_newer, more_older = list(reversed(newer[:limit])), len(newer) > limit, True
    else:
        bounded = statement.where(key < at) if direction else statement
        older = session.exec(bounded.order_by(key.desc()).limit(limit + 1)).all()
        rows, more_newer, more_older = list(older[:limit]), bool(direction), len(older) > limit
    first = getattr(rows[0], key.key) if rows else at - 1
    last = getattr(rows[-1], key.key) if rows else at + 1
    return BidirectionalPage(
        rows, f"after-{first}" if more_newer else "", f"before-{last}" if more_older else ""
    )
