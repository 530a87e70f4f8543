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

from app.storage import live_processes
from app.storage.database import Database, insert_new, skew
from app.storage.live_processes import new_holder
from app.storage.models import Lock


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
    named = update(Lock).where(col(Lock.name) == name)
    connection = session.connection()
    if connection.execute(named.where(col(Lock.holder) == holder).values(held)).rowcount:
        return True
    if announced := session.info.get("presence"):
        announced.announce()
    lease = select(Lock.holder, Lock.until, Lock.edition).where(Lock.name == name)
    row = connection.execute(lease.with_for_update(skip_locked=True)).first()
    if row is None:  # there is none, or another process is taking it at this moment
        return bool(insert_new(session, Lock, ["name"], name=name, edition="", **held))
    if (edition and row.edition == edition) or not _is_free(session, row.holder, row.until, now):
        return False
    connection.execute(named.values(held))
    return True


def _is_free(session: Session, holder: str, until: datetime, now: datetime) -> bool:
    return not holder or until <= now or live_processes.is_alive(session, holder) is False


def give_back(session: Session, name: str, holder: str, edition: str = "") -> None:
    """Let the next process have a lease, if it is still the caller's, and note the edition that is done."""
    mine = (col(Lock.name) == name, col(Lock.holder) == holder)
    if edition:
        session.connection().execute(update(Lock).where(*mine).values(holder="", edition=edition))
    else:
        session.connection().execute(delete(Lock).where(*mine, col(Lock.edition) == ""))
        session.connection().execute(update(Lock).where(*mine).values(holder=""))
