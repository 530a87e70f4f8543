"""The one clock: read at the edges only, and passed inwards as `now`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cached_property

_ahead = timedelta()


def system_time() -> datetime:
    """Return what this machine's clock shows, aware, in UTC. It may be wrong: see `Timeline`."""
    return datetime.now(UTC)


def utcnow() -> datetime:
    """The present moment, aware, in UTC."""
    return system_time() + _ahead


def travel(to: datetime) -> None:
    """From here on it is `to`, and time runs on from there: the demo lives in the days of its sample."""
    global _ahead
    _ahead = to - system_time()


class Timeline:
    """Tell the time during a run that began at `now`, by the database's clock.

    Leases and due times are compared between machines, so all of them must go by one clock. `skew` returns
    how far the database's clock is ahead of this machine's, and is asked anew for each moment. A simulated
    `now` (in tests and the demo) stays as far from the real time as it was at the beginning.
    """

    def __init__(self, now: datetime, skew: Callable[[], timedelta]) -> None:
        self._now, self._simulated, self._skew = now, now - system_time(), skew

    @cached_property
    def start(self) -> datetime:
        """Return the moment at which the run began."""
        return self._now + self._skew()

    def __call__(self) -> datetime:
        """Return the present moment of this run."""
        return system_time() + self._skew() + self._simulated
