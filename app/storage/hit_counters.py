"""Count hits for rate limits in a table that all processes share and that survives restarts."""

from datetime import datetime, timedelta
from functools import cache
from typing import NamedTuple, cast

from sqlalchemy import Executable, Table, bindparam, case, delete, inspect
from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import Session, col

from app.errors import TooManyRequests
from app.storage.database import execute_and_count
from app.storage.models import RateLimit

_ROWS = cast("Table", inspect(RateLimit).local_table)


class Window(NamedTuple):
    """The hits of a counter in its current window, and the end of the window."""

    hits: int
    expires_at: datetime

    def seconds_left(self, now: datetime) -> int:
        """Return the seconds until the window ends, rounded, but at least 1."""
        return max(1, round((self.expires_at - now).total_seconds()))


def hit(session: Session, name: str, now: datetime, lasting: timedelta) -> Window:
    """Count one hit and return the counter's window.

    A window begins with its first hit and ends after `lasting`. A rollback of the transaction undoes the hit.
    """
    statement = _count(session.get_bind().dialect.name)
    values = {"name": name, "at": now, "until": now + lasting}
    row = session.connection().execute(statement, values).one()
    return Window(row.hits, row.expires_at)


def limit(session: Session, name: str, most: int, now: datetime, lasting: timedelta) -> None:
    """Count one hit. If there are more than `most`, raise TooManyRequests, which undoes the transaction."""
    window = hit(session, name, now, lasting)
    if window.hits > most:
        raise TooManyRequests(retry_after=window.seconds_left(now))


@cache
def _count(dialect: str) -> Executable:
    """Return the statement that counts a hit, cached because building it takes longer than executing it."""
    insert = sqlite.insert if dialect == "sqlite" else postgresql.insert
    at, until = (bindparam(name, type_=_ROWS.c.expires_at.type) for name in ("at", "until"))
    expired = _ROWS.c.expires_at <= at
    statement = insert(_ROWS).values(name=bindparam("name"), hits=1, expires_at=until)
    upsert = statement.on_conflict_do_update(
        index_elements=[_ROWS.c.name],
        set_={
            "hits": case((expired, 1), else_=_ROWS.c.hits + 1),
            "expires_at": case((expired, until), else_=_ROWS.c.expires_at),
        },
    )
    return upsert.returning(_ROWS.c.hits, _ROWS.c.expires_at)


def prune(session: Session, now: datetime) -> int:
    """Delete the counters whose windows have ended, and return their number."""
    expired = delete(RateLimit).where(col(RateLimit.expires_at) <= now)
    return execute_and_count(session, expired)
