"""Limit the number of concurrent expensive responses, so that a busy server stays responsive.

The web server responds from a pool of 40 threads. All slots together take at most 36 of them, so that the
front page, unsubscribing and health checks always get a thread. Each process has its own slots.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import BoundedSemaphore

from app.errors import TooManyRequests
from app.settings import Settings
from app.web.rate_limits import KeyLimits, VisitorLimits

API_REQUESTS = 8  # at once, for all keys together
ANALYSES = 2  # at once: a backtest takes a second of CPU time and about 40 MB
FEEDS, FEEDS_WAITING = 1, 2  # of interests, at once: with 20,000 recent papers, one takes 2 to 5 seconds
JOBS = 2  # at once: polls, trials, training and imports that operators request
MAILS = 4  # at once: background tasks that send email
PASTES = 3  # at once: parsing pasted papers may take seconds
PREVIEWS = 3  # at once: one preview is built at a time, and the others wait
SEARCHES, SEARCHES_WAITING = 2, 2
PAGES, PAGES_WAITING = 2, 3  # at once: more pages would only share the same CPU
PATIENCE = 5.0  # seconds that a search, a feed or a page waits for a slot
RETRY_AFTER = 2  # seconds


class WorkSlots:
    """A fixed number of slots for one kind of work.

    Up to `waiting` more requests wait for a slot, each for at most `patience` seconds.
    """

    def __init__(self, slots: int, waiting: int = 0, patience: float = 0) -> None:
        self._admitted = BoundedSemaphore(slots + waiting)
        self._slots = BoundedSemaphore(slots)
        self._patience = patience

    @contextmanager
    def take(self) -> Iterator[None]:
        """Hold a slot during the block. Raise TooManyRequests if no slot becomes free in time."""
        with _acquire(self._admitted, 0), _acquire(self._slots, self._patience):
            yield

    def check(self) -> None:
        """Raise TooManyRequests if no slot is free now."""
        with _acquire(self._slots, 0):
            pass


@contextmanager
def _acquire(semaphore: BoundedSemaphore, patience: float) -> Iterator[None]:
    if not (semaphore.acquire(timeout=patience) if patience else semaphore.acquire(blocking=False)):
        raise TooManyRequests(retry_after=RETRY_AFTER)
    try:
        yield
    finally:
        semaphore.release()


class Capacity:
    """The slots and rate limits of a web application. They do not apply to cached pages and feeds."""

    def __init__(self, settings: Settings) -> None:
        self.api = WorkSlots(API_REQUESTS)
        self.analyses = WorkSlots(ANALYSES)
        self.feeds = WorkSlots(FEEDS, FEEDS_WAITING, PATIENCE)
        self.jobs = WorkSlots(JOBS)
        self.mails = WorkSlots(MAILS)
        self.pastes = WorkSlots(PASTES)
        self.previews = WorkSlots(PREVIEWS)
        self.searches = WorkSlots(SEARCHES, SEARCHES_WAITING, PATIENCE)
        self.pages = WorkSlots(PAGES, PAGES_WAITING, PATIENCE)
        self.keys = KeyLimits(settings.api_requests_per_minute)
        self.visitors = VisitorLimits(settings)
