"""The only clock. It is read only at the edges, which pass the time inwards as `now`."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

# A stored time that lies further ahead was stored while the clock was wrong.
MAX_AHEAD = timedelta(days=1)
_ahead = timedelta()


def system_time() -> datetime:
    """Return this machine's time as an aware UTC datetime. It may be wrong: see `Timeline`."""
    return datetime.now(UTC)


def utcnow() -> datetime:
    """Return the current time as an aware UTC datetime. `travel` can shift it."""
    return system_time() + _ahead


def travel(to: datetime) -> None:
    """Shift the clock of this process to `to`. The demo uses it to run on the dates of its sample papers."""
    global _ahead
    _ahead = to - system_time()


class Timeline:
    """The clock of a run that began at `now`, adjusted to the database's time.

    Machines compare leases and due times, so all machines must use the same clock. Each reading calls `skew`,
    which returns how far the database's clock is ahead of this machine's. A simulated `now` (in tests
    and the demo) keeps its offset from the real time.
    """

    def __init__(self, now: datetime, skew: Callable[[], timedelta]) -> None:
        self._now, self._simulated, self._skew = now, now - system_time(), skew
        self._start: datetime | None = None

    @property
    def start(self) -> datetime:
        """Return the time at which the run began."""
        # Not a cached_property: before Python 3.12, it holds one lock per class while it computes a value.
        if self._start is None:
            self._start = self._now + self._skew()
        return self._start

    def __call__(self) -> datetime:
        """Return the current time of this run."""
        return system_time() + self._skew() + self._simulated
