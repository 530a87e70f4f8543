"""Limit how often a visitor or a key may send requests, in this process.

Limits that protect mailboxes are counted in the database: see `app.storage.hit_counters`.
"""

import hashlib
import math
import time
from threading import Lock

from app.errors import TooManyRequests
from app.settings import Settings

MINUTE, HOUR = 60, 3600  # seconds
WRONG_KEYS_A_MINUTE = 20  # per visitor
PICTURES_A_MINUTE = 3000  # per visitor: 60 pages with 50 pictures each
SIGN_IN_LINKS_AN_HOUR = 10  # per visitor; `sign_in_links.create` limits those to one operator


class RateLimiter:
    """A limit of `most` hits for each name within a window of `seconds`.

    A window begins with its first hit. Expired windows are dropped, so memory is bounded by the hits within
    one window.
    """

    def __init__(self, most: int, seconds: int) -> None:
        self._most = most
        self._seconds = seconds
        self._lock = Lock()
        self._windows: dict[str, tuple[float, int]] = {}  # end and number of hits, earliest end first

    def hit(self, name: str) -> None:
        """Count one hit. Raise TooManyRequests if the limit is exceeded."""
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


class VisitorLimits:
    """Rate limits by kind of request. `pastes` is counted per subscriber, the others per visitor."""

    def __init__(self, settings: Settings) -> None:
        self.pages = RateLimiter(settings.pages_per_minute, MINUTE)
        self.pictures = RateLimiter(PICTURES_A_MINUTE, MINUTE)
        self.previews = RateLimiter(settings.previews_per_minute, MINUTE)
        self.searches = RateLimiter(settings.searches_per_minute, MINUTE)
        self.feeds = RateLimiter(settings.feeds_per_minute, MINUTE)
        self.first_digests = RateLimiter(settings.first_digests_per_hour, HOUR)
        self.sign_in_links = RateLimiter(SIGN_IN_LINKS_AN_HOUR, HOUR)
        self.pastes = RateLimiter(settings.pastes_per_hour, HOUR)


class KeyLimits:
    """Limits for requests with each key, and for wrong keys from each visitor."""

    def __init__(self, requests_per_minute: int) -> None:
        self._requests = RateLimiter(requests_per_minute, MINUTE)
        self._wrong = RateLimiter(WRONG_KEYS_A_MINUTE, MINUTE)
        self._valid: set[bytes] = set()  # digests of keys that have been valid; at most one for each key

    def before_lookup(self, key: str, visitor: str) -> None:
        """Raise TooManyRequests if the visitor sent too many wrong keys.

        Keys that have been valid are exempt, so that a stranger behind the same proxy cannot lock the
        operator out.
        """
        if _digest(key) not in self._valid:
            self._wrong.check(visitor)

    def wrong_key(self, key: str, visitor: str) -> None:
        """Count an unknown, revoked or expired key. Raise TooManyRequests if the limit is exceeded."""
        self._valid.discard(_digest(key))
        self._wrong.hit(visitor)

    def valid_key(self, key: str, key_id: int) -> None:
        """Count a request with a valid key. Raise TooManyRequests if the limit is exceeded."""
        self._valid.add(_digest(key))
        self._requests.hit(str(key_id))


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
