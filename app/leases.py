"""Let only one process of all machines run a job at a time.

A lease goes by the database's clock. It ends when it is given back, when its time is over, or when the
process of its holder is dead (see `presence`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from sqlalchemy import delete, update
from sqlmodel import Session, col, select

from app import presence
from app.db import Database, insert_new, skew
from app.models import Lease
from app.presence import new_holder as new_holder


@contextmanager
def turn(db: Database, name: str, now: datetime, lasting: timedelta, edition: str = "") -> Iterator[bool]:
    """Yield whether the caller has the lease for the block. It is given back however the block ends.

    `now` is what this machine's clock shows. With an `edition` (a day, for example) the block runs once per
    edition on all machines: when it has ended without an exception, nobody gets the lease for that edition
    again.
    """
    holder = new_holder()
    with db.write() as session:
        taken = take(session, name, holder, now + skew(session), lasting, edition)
    try:
        yield taken
    except BaseException:
        edition = ""  # another process may try
        raise
    finally:
        if taken:
            with db.write() as session:
                give_back(session, name, holder, edition)


def take(
    session: Session, name: str, holder: str, now: datetime, lasting: timedelta, edition: str = ""
) -> bool:
    """Take a lease that is free, or prolong one's own; return whether the caller has it.

    `now` is the time by the database's clock: see `clock.Timeline`.
    """
    held = {"holder": holder, "until": now + lasting}
    named = update(Lease).where(col(Lease.name) == name)
    connection = session.connection()
    if connection.execute(named.where(col(Lease.holder) == holder).values(held)).rowcount:
        return True
    if announced := session.info.get("presence"):
        announced.announce()
    lease = select(Lease.holder, Lease.until, Lease.edition).where(Lease.name == name)
    row = connection.execute(lease.with_for_update(skip_locked=True)).first()
    if row is None:  # there is none, or another process is taking it at this moment
        return bool(insert_new(session, Lease, ["name"], name=name, edition="", **held))
    if (edition and row.edition == edition) or not _is_free(session, row.holder, row.until, now):
        return False
    connection.execute(named.values(held))
    return True


def _is_free(session: Session, holder: str, until: datetime, now: datetime) -> bool:
    return not holder or until <= now or presence.is_alive(session, holder) is False


def give_back(session: Session, name: str, holder: str, edition: str = "") -> None:
    """Let the next process have a lease, if it is still the caller's, and note the edition that is done."""
    mine = (col(Lease.name) == name, col(Lease.holder) == holder)
    if edition:
        session.connection().execute(update(Lease).where(*mine).values(holder="", edition=edition))
    else:
        session.connection().execute(delete(Lease).where(*mine, col(Lease.edition) == ""))
        session.connection().execute(update(Lease).where(*mine).values(holder=""))
