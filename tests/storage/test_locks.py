"""Test locks with a lease."""

import threading
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlmodel import select

from app.application import Application
from app.storage import live_processes, locks
from app.storage.models import Lock

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


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


def test_lease_of_a_job_is_short(app: Application, now: datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    """It expires within two minutes even if nothing shows that its process has died."""
    monkeypatch.setattr(live_processes, "is_alive", lambda _session, _holder: None)
    with locks.hold(app.db, "train", now, HOUR) as alices:
        assert alices
        with app.db.write() as session:
            assert not locks.acquire(session, "train", "bob", now + MINUTE, HOUR)
            assert locks.acquire(session, "train", "bob", now + 2 * MINUTE, HOUR)
    with locks.hold(app.db, "train", now + 3 * MINUTE, HOUR) as alices:
        assert not alices, "Bob has it"


@pytest.mark.parametrize("lasting", [HOUR, MINUTE])
def test_lease_is_renewed_while_a_job_runs(
    app: Application, now: datetime, monkeypatch: pytest.MonkeyPatch, lasting: timedelta
) -> None:
    """The lock is not held for longer than `lasting`."""
    renewed, renew = threading.Event(), locks.renew

    def renew_and_tell(*args: Any) -> bool:
        result = renew(*args)
        if threading.current_thread() is not threading.main_thread():
            renewed.set()
        return result

    monkeypatch.setattr(locks, "RENEW_SECONDS", 0.01)
    monkeypatch.setattr(locks, "renew", renew_and_tell)
    with locks.hold(app.db, "train", now, lasting):
        for _ in range(2):
            renewed.clear()
            assert renewed.wait(timeout=60)
        with app.db.read() as session:
            until = session.exec(select(Lock.until)).one()
    assert until == now + lasting if lasting < locks.LEASE else now + locks.LEASE < until < now + lasting
    with locks.hold(app.db, "train", now, HOUR) as bobs:
        assert bobs, "the lock was released"


def test_lost_lease_is_not_renewed(app: Application, now: datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bob keeps the lock that expired while Alice's machine was suspended."""
    monkeypatch.setattr(locks, "RENEW_SECONDS", 0.01)
    with locks.hold(app.db, "train", now, HOUR):
        acquired = False
        while not acquired:  # a row that Alice is just renewing is skipped
            with app.db.write() as session:
                acquired = locks.acquire(session, "train", "bob", now + HOUR, HOUR)
        for thread in threading.enumerate():  # it may have ended already
            if "_keep_renewing" in thread.name:
                thread.join(timeout=60)
                assert not thread.is_alive()
    with app.db.read() as session:
        assert session.exec(select(Lock.holder, Lock.until)).one() == ("bob", now + 2 * HOUR)
