"""Locks with a lease, so that only one process on all machines runs a job at a time.

Leases use the database's clock. A lease ends when it is released, when it expires, or when its holder's
process dies (see `live_processes`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from sqlalchemy import delete, update
from sqlmodel import Session, col, select

from app.storage import live_processes
from app.storage.database import Database, insert_or_ignore, skew
from app.storage.live_processes import new_holder
from app.storage.models import Lock


@contextmanager
def hold(db: Database, name: str, now: datetime, lasting: timedelta, edition: str = "") -> Iterator[bool]:
    """Hold a lock during the block. Yield True if it was acquired.

    `now` is the time by this machine's clock, and `lasting` is the length of the lease. With an `edition`
    (such as a day), the block completes only once per edition across all machines: after it ends without an
    exception, the lock is not granted for that edition again.
    """
    holder = new_holder()
    with db.write() as session:
        acquired = acquire(session, name, holder, now + skew(session), lasting, edition)
    try:
        yield acquired
    except BaseException:
        edition = ""  # another process may try
        raise
    finally:
        if acquired:
            with db.write() as session:
                release(session, name, holder, edition)


def acquire(
    session: Session, name: str, holder: str, now: datetime, lasting: timedelta, edition: str = ""
) -> bool:
    """Acquire a free lock, or renew the holder's own lease. Return whether the holder has the lock.

    `now` is the time by the database's clock (see `clock.Timeline`).
    """
    lease = {"holder": holder, "until": now + lasting}
    named = update(Lock).where(col(Lock.name) == name)
    connection = session.connection()
    if connection.execute(named.where(col(Lock.holder) == holder).values(lease)).rowcount:
        return True
    if presence := session.info.get("presence"):
        presence.announce()
    current = select(Lock.holder, Lock.until, Lock.edition).where(Lock.name == name)
    row = connection.execute(current.with_for_update(skip_locked=True)).first()
    if row is None:  # the row does not exist, or another process is acquiring the lock
        return bool(insert_or_ignore(session, Lock, ["name"], name=name, edition="", **lease))
    if edition and row.edition == edition:
        return False
    if row.holder and row.until > now and live_processes.is_alive(session, row.holder) is not False:
        return False
    connection.execute(named.values(lease))
    return True


def release(session: Session, name: str, holder: str, edition: str = "") -> None:
    """Release a lock if `holder` still has it, and store the completed edition."""
    own = (col(Lock.name) == name, col(Lock.holder) == holder)
    if edition:
        session.connection().execute(update(Lock).where(*own).values(holder="", edition=edition))
    else:
        session.connection().execute(delete(Lock).where(*own, col(Lock.edition) == ""))
        session.connection().execute(update(Lock).where(*own).values(holder=""))
