"""Limit the load from requests: slots for expensive responses, and rate limits for keys and visitors.

The web server responds from a pool of 40 threads. All slots together take at most 36 of them, so that the
front page, unsubscribing and health checks always get a thread. The limits apply to one process. Limits that
protect mailboxes are counted in the database: see `app.storage.hit_counters`.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import BoundedSemaphore, Lock

from app.errors import TooManyRequests
from app.settings import Settings

API_REQUESTS = 8  # at once, for all keys together
ANALYSES = 2  # at once: a backtest takes a second of CPU time and some 40 MB
JOBS = 2  # at once: refreshes and training requested through the API
MAILS = 4  # at once: background tasks that send mail
PASTES = 3  # at once: parsing pasted papers or building the feed of an interest may take seconds
PREVIEWS = 3  # at once: one is built at a time, the others wait
SEARCHES, SEARCHES_WAITING = 2, 2
PAGES, PAGES_WAITING = 2, 3  # at once: more would only share the same CPU
PATIENCE = 5.0  # seconds that a search or a page waits for a slot
RETRY_AFTER = 2  # seconds

MINUTE, HOUR = 60, 3600  # seconds
WRONG_KEYS_A_MINUTE = 20  # per visitor
SIGN_IN_LINKS_AN_HOUR = 10  # per visitor; the limit per operator is counted in the database


class WorkSlots:
    """Slots for one kind of work, `places` in number.

    Up to `waiting` more requests wait for a slot, each for at most `patience` seconds.
    """

    def __init__(self, places: int, waiting: int = 0, patience: float = 0) -> None:
        self._room = BoundedSemaphore(places + waiting)
        self._places = BoundedSemaphore(places)
        self._patience = patience

    @contextmanager
    def take(self) -> Iterator[None]:
        """Hold a slot during the block. Raise TooManyRequests if none is free."""
        with _slot(self._room, 0), _slot(self._places, self._patience):
            yield

    def check(self) -> None:
        """Raise TooManyRequests if no slot is free now."""
        with _slot(self._places, 0):
            pass


@contextmanager
def _slot(places: BoundedSemaphore, patience: float) -> Iterator[None]:
    if not (places.acquire(timeout=patience) if patience else places.acquire(blocking=False)):
        raise TooManyRequests(retry_after=RETRY_AFTER)
    try:
        yield
    finally:
        places.release()


class RateLimiter:
    """A limit of `most` hits for each name within a window of `seconds`.

    A window begins with its first hit. Expired windows are dropped, so memory is bounded by the hits within
    one window.
    """

    def __init__(self, most: int, seconds: int) -> None:
        self._most = most
        self._seconds = seconds
        self._lock = Lock()
        self._windows: dict[str, tuple[float, int]] = {}  # end and hits, in the order of their ends

    def hit(self, name: str) -> None:
        """Count one hit, or raise TooManyRequests."""
        with self._lock:
            ends_at, hits = self._window(name)
            self._windows[name] = ends_at, hits + 1

    def check(self, name: str) -> None:
        """Raise TooManyRequests if the next hit would be refused."""
        with self._lock:
            self._window(name)

    def _window(self, name: str) -> tuple[float, int]:
        now = time.monotonic()
        while self._windows:
            oldest = next(iter(self._windows))
            if self._windows[oldest][0] > now:
                break
            del self._windows[oldest]
        ends_at, hits = self._windows.get(name, (now + self._seconds, 0))
        if hits >= self._most:
            raise TooManyRequests(retry_after=math.ceil(ends_at - now))
        return ends_at, hits


class KeyLimits:
    """Limits for requests with each key, and for wrong keys from each visitor."""

    def __init__(self, requests_per_minute: int) -> None:
        self._requests = RateLimiter(requests_per_minute, MINUTE)
        self._wrong = RateLimiter(WRONG_KEYS_A_MINUTE, MINUTE)
        self._valid: set[bytes] = set()  # digests of keys that were valid; at most as many as there are keys

    def before_lookup(self, key: str, visitor: str) -> None:
        """Raise TooManyRequests if the visitor sent too many wrong keys.

        Keys that have been valid are exempt, so that a stranger behind the same proxy cannot lock the
        operator out.
        """
        if _digest(key) not in self._valid:
            self._wrong.check(visitor)

    def wrong_key(self, key: str, visitor: str) -> None:
        """Count a key that is unknown, revoked or expired, or raise TooManyRequests."""
        self._valid.discard(_digest(key))
        self._wrong.hit(visitor)

    def valid_key(self, key: str, key_id: int) -> None:
        """Count a request with a valid key, or raise TooManyRequests."""
        self._valid.add(_digest(key))
        self._requests.hit(str(key_id))


class Capacity:
    """The slots and rate limits of a web application. Cached pages and feeds are not counted."""

    def __init__(self, settings: Settings) -> None:
        self.api = WorkSlots(API_REQUESTS)
        self.analyses = WorkSlots(ANALYSES)
        self.jobs = WorkSlots(JOBS)
        self.mails = WorkSlots(MAILS)
        self.pastes = WorkSlots(PASTES)
        self.previews = WorkSlots(PREVIEWS)
        self.searches = WorkSlots(SEARCHES, SEARCHES_WAITING, PATIENCE)
        self.pages = WorkSlots(PAGES, PAGES_WAITING, PATIENCE)
        self.keys = KeyLimits(settings.api_requests_per_minute)
        self.page_limit = RateLimiter(settings.pages_per_minute, MINUTE)
        self.preview_limit = RateLimiter(settings.previews_per_minute, MINUTE)
        self.search_limit = RateLimiter(settings.searches_per_minute, MINUTE)
        self.feed_limit = RateLimiter(settings.feeds_per_minute, MINUTE)
        self.first_digest_limit = RateLimiter(settings.first_digests_per_hour, HOUR)
        self.sign_in_link_limit = RateLimiter(SIGN_IN_LINKS_AN_HOUR, HOUR)
        self.paste_limit = RateLimiter(settings.pastes_per_hour, HOUR)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
