"""Locks with a lease, so that only one process on all machines runs a job at a time.

Leases use the database's clock. A lease ends when it is released, when it expires, or when its holder's
process dies (see `live_processes`). The death of a process cannot be detected on a file system without
locks, or if the process ran as another user. The lease of a job is therefore short, and is
renewed while the job is running.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from threading import Event, Thread
from time import monotonic

import structlog
from sqlalchemy import delete, update
from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import Session, col, select

from app.storage import live_processes
from app.storage.database import Database, skew
from app.storage.inserts import insert_or_ignore
from app.storage.live_processes import new_holder
from app.storage.models import Lock

LEASE = timedelta(minutes=2)  # of a job; if its process dies, other processes wait at most this long
RENEW_SECONDS = 30.0

log = structlog.get_logger(__name__)


@contextmanager
def hold(db: Database, name: str, now: datetime, lasting: timedelta, edition: str = "") -> Iterator[bool]:
    """Hold a lock during the block. Yield True if it was acquired.

    `now` is the time by this machine's clock. While the block runs, a thread renews the lease, until the lock
    has been held for `lasting`. If an `edition` is given, such as a day, the block completes only once per
    edition across all machines: after it ends without an exception, the lock is not granted for that edition
    again.
    """
    holder, ended = new_holder(), Event()
    with db.write() as session:
        start = now + skew(session)
        acquired = acquire(session, name, holder, start, min(LEASE, lasting), edition)
    renewing = Thread(target=_keep_renewing, args=(db, name, holder, start, lasting, ended), daemon=True)
    try:
        if acquired:
            renewing.start()
        yield acquired
    except BaseException:
        edition = ""  # so that another process may try again
        raise
    finally:
        if acquired:
            ended.set()
            renewing.join()
            with db.write() as session:
                release(session, name, holder, edition)


def _keep_renewing(
    db: Database, name: str, holder: str, start: datetime, lasting: timedelta, ended: Event
) -> None:
    """Renew a lease until `ended` is set, `lasting` has passed, or another process holds the lock."""
    began = monotonic()  # the clock may be simulated, or jump
    while not ended.wait(RENEW_SECONDS):
        held = timedelta(seconds=monotonic() - began)
        try:
            with db.write() as session:
                if held > lasting or not renew(session, name, holder, start + min(held + LEASE, lasting)):
                    return
        except SQLAlchemyError as error:  # the lease lasts for three more attempts
            log.warning("could not renew a lease", lock=name, error=str(error))


def acquire(
    session: Session, name: str, holder: str, now: datetime, lasting: timedelta, edition: str = ""
) -> bool:
    """Acquire a free lock, or renew the holder's own lease. Return whether the holder has the lock.

    A lock is not granted for an `edition` that has been completed. `now` is the time by the database's clock
    (see `clock.Timeline`).
    """
    lease = {"holder": holder, "until": now + lasting}
    named = update(Lock).where(col(Lock.name) == name)
    connection = session.connection()
    if renew(session, name, holder, now + lasting):
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


def renew(session: Session, name: str, holder: str, until: datetime) -> bool:
    """Extend the holder's own lease. Return False if the holder no longer has the lock."""
    own = update(Lock).where(col(Lock.name) == name, col(Lock.holder) == holder)
    return bool(session.connection().execute(own.values(until=until)).rowcount)


def release(session: Session, name: str, holder: str, edition: str = "") -> None:
    """Release a lock if `holder` still has it, and store the completed edition."""
    own = (col(Lock.name) == name, col(Lock.holder) == holder)
    if edition:
        session.connection().execute(update(Lock).where(*own).values(holder="", edition=edition))
    else:
        session.connection().execute(delete(Lock).where(*own, col(Lock.edition) == ""))
        session.connection().execute(update(Lock).where(*own).values(holder=""))


def complete(session: Session, name: str, edition: str, now: datetime) -> None:
    """Store the completed edition of a lock that nobody holds."""
    session.merge(Lock(name=name, holder="", until=now, edition=edition))


def last_completed(session: Session, name: str) -> str:
    """Return the last completed edition of a lock, or "" if there is none."""
    return session.exec(select(Lock.edition).where(Lock.name == name)).first() or ""


def completed(session: Session, names: Iterable[str], edition: str) -> set[str]:
    """Return the names of the locks whose last completed edition is `edition`."""
    return {*session.exec(select(Lock.name).where(col(Lock.name).in_(names), Lock.edition == edition))}


def forget(session: Session, prefix: str) -> None:
    """Delete the locks whose names begin with `prefix`, with their completed editions."""
    session.connection().execute(delete(Lock).where(col(Lock.name).startswith(prefix, autoescape=True)))
