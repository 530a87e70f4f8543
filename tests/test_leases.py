"""One process at a time."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from app.application import Application
from app.storage import live_processes, locks

HOUR = timedelta(hours=1)


def test_a_lease_is_held_by_one_until_it_is_given_back_or_runs_out(app: Application, now: datetime) -> None:
    """Alice holds it, prolongs it, gives it back; a crashed Bob loses it in time."""
    with app.db.write() as session:
        assert locks.take(session, "refresh", "alice", now, HOUR)
        assert not locks.take(session, "refresh", "bob", now, HOUR)
        assert locks.take(session, "prune", "bob", now, HOUR), "another job is another lease"
        assert locks.take(session, "refresh", "alice", now + HOUR, HOUR)
        assert not locks.take(session, "refresh", "bob", now + HOUR, HOUR)
        locks.give_back(session, "refresh", "bob")
        assert not locks.take(session, "refresh", "bob", now + HOUR, HOUR), "only one's own"
        locks.give_back(session, "refresh", "alice")
        assert locks.take(session, "refresh", "bob", now, HOUR)
        assert locks.take(session, "refresh", "alice", now + HOUR, HOUR), "it ran out"


def test_a_turn_ends_with_its_block(app: Application, now: datetime) -> None:
    """Alice works; Bob sees that, and does not give back what is hers; her failing frees it at once."""

    def work() -> None:
        with locks.turn(app.db, "learn", now, HOUR) as alices:
            for _ in range(2):
                with locks.turn(app.db, "learn", now, HOUR) as bobs:
                    assert (alices, bobs) == (True, False)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    with locks.turn(app.db, "learn", now, HOUR) as bobs:
        assert bobs


def test_a_process_that_lives_keeps_its_lease(app: Application, now: datetime) -> None:
    """Nobody gets a lease of this process, or one whose holder does not say which process it is."""
    with app.db.write() as session:
        mine = live_processes.new_holder()
        assert locks.take(session, "learn", mine, now, HOUR)
        assert locks.take(session, "prune", "host:1:abc", now, HOUR)
        assert [live_processes.is_alive(session, holder) for holder in (mine, "host:1:abc")] == [None, None]
    with app.db.write() as session:
        assert not locks.take(session, "learn", live_processes.new_holder(), now, HOUR)
        assert not locks.take(session, "prune", live_processes.new_holder(), now, HOUR)
