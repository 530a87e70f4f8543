"""Test locks with a lease."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from app.application import Application
from app.storage import live_processes, locks

HOUR = timedelta(hours=1)


def test_lease_is_exclusive_until_released_or_expired(app: Application, now: datetime) -> None:
    """Alice acquires, renews and releases it. Bob crashes, and his lease expires."""
    with app.db.write() as session:
        assert locks.acquire(session, "refresh", "alice", now, HOUR)
        assert not locks.acquire(session, "refresh", "bob", now, HOUR)
        assert locks.acquire(session, "prune", "bob", now, HOUR), "another job is another lease"
        assert locks.acquire(session, "refresh", "alice", now + HOUR, HOUR)
        assert not locks.acquire(session, "refresh", "bob", now + HOUR, HOUR)
        locks.release(session, "refresh", "bob")
        assert not locks.acquire(session, "refresh", "bob", now + HOUR, HOUR), "only one's own"
        locks.release(session, "refresh", "alice")
        assert locks.acquire(session, "refresh", "bob", now, HOUR)
        assert locks.acquire(session, "refresh", "alice", now + HOUR, HOUR), "it ran out"


def test_lock_is_released_with_its_block(app: Application, now: datetime) -> None:
    """Bob cannot get or release Alice's lock. It is released at once when her block fails."""

    def work() -> None:
        with locks.hold(app.db, "train", now, HOUR) as alices:
            for _ in range(2):
                with locks.hold(app.db, "train", now, HOUR) as bobs:
                    assert (alices, bobs) == (True, False)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    with locks.hold(app.db, "train", now, HOUR) as bobs:
        assert bobs


def test_live_process_keeps_its_lease(app: Application, now: datetime) -> None:
    """A lease of a live process, or of a holder without a process id, is not taken before its end."""
    with app.db.write() as session:
        own = live_processes.new_holder()
        assert locks.acquire(session, "train", own, now, HOUR)
        assert locks.acquire(session, "prune", "host:1:abc", now, HOUR)
        assert [live_processes.is_alive(session, holder) for holder in (own, "host:1:abc")] == [None, None]
    with app.db.write() as session:
        assert not locks.acquire(session, "train", live_processes.new_holder(), now, HOUR)
        assert not locks.acquire(session, "prune", live_processes.new_holder(), now, HOUR)
