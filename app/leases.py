"""Who may run a job that only one process of all machines may run at a time."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from sqlalchemy import delete, update
from sqlalchemy.exc import IntegrityError
from sqlmodel import Session, col

from app.db import Database
from app.models import Lease


def new_holder() -> str:
    """A name for one who takes leases. No two are the same, on whatever machines."""
    return f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:12]}"


@contextmanager
def turn(db: Database, name: str, now: datetime, lasting: timedelta) -> Iterator[bool]:
    """Whether one has the lease for the block; it is given back at the end, however the block ends."""
    holder = new_holder()
    with db.write() as session:
        taken = take(session, name, holder, now, lasting)
    try:
        yield taken
    finally:
        with db.write() as session:
            give_back(session, name, holder)


def take(session: Session, name: str, holder: str, now: datetime, lasting: timedelta) -> bool:
    """Take a lease that is free or has run out, or prolong one's own; the count of rows decides."""
    free_or_mine = (col(Lease.until) <= now) | (col(Lease.holder) == holder)
    taken = update(Lease).where(col(Lease.name) == name, free_or_mine)
    if session.connection().execute(taken.values(holder=holder, until=now + lasting)).rowcount:
        return True
    try:
        with session.begin_nested():
            session.add(Lease(name=name, holder=holder, until=now + lasting))
            session.flush()
    except IntegrityError:
        return False
    return True


def give_back(session: Session, name: str, holder: str) -> None:
    """Let the next one have it, if it is still one's own."""
    session.connection().execute(delete(Lease).where(col(Lease.name) == name, col(Lease.holder) == holder))
