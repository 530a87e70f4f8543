"""The one clock: read at the edges only, and passed inwards as `now`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cached_property

_ahead = timedelta()


def system_time() -> datetime:
    """Return the time of this machine's clock, aware, in UTC. It may be wrong: see `Timeline`."""
    return datetime.now(UTC)


def utcnow() -> datetime:
    """Return the current time, aware, in UTC. `travel` can shift it."""
    return system_time() + _ahead


def travel(to: datetime) -> None:
    """Shift the clock of this process to `to`. The demo uses it to run in the days of its sample."""
    global _ahead
    _ahead = to - system_time()


class Timeline:
    """The clock of a run that began at `now`, set to the database's time.

    Leases and due times are compared between machines, so all of them must use one clock. `skew` returns how
    far the database's clock is ahead of this machine's. It is called for each reading. A simulated `now` (in
    tests and the demo) keeps its distance from the real time.
    """

    def __init__(self, now: datetime, skew: Callable[[], timedelta]) -> None:
        self._now, self._simulated, self._skew = now, now - system_time(), skew

    @cached_property
    def start(self) -> datetime:
        """Return the time at which the run began."""
        return self._now + self._skew()

    def __call__(self) -> datetime:
        """Return the current time of this run."""
        return system_time() + self._skew() + self._simulated
