"""How much work requests may cause: places for expensive answers, and how often keys and visitors may ask.

The web server answers from a pool of 40 threads. The places below take at most 36 of them together, so that
the front page, unsubscribing and health checks always find a thread. Limits hold in this process.
"""

from __future__ import annotations

import hashlib
import ipaddress
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import BoundedSemaphore

from limits import RateLimitItem, RateLimitItemPerHour, RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import FixedWindowRateLimiter

from app.errors import TooManyRequests

API_REQUESTS = 12  # at once, of all keys
ANALYSES = 2  # at once: a backtest takes a second of CPU time and some 40 MB
JOBS = 2  # refreshes and learning that keys asked for
MAILS = 4  # single mails that are handed to the relay at once
SEARCHES = 2
PAGES = 2  # built at once: more would only share the same CPU
WAITING, PATIENCE = 6, 5.0  # who waits for a search or a page, and for how many seconds
RETRY_AFTER = 2  # seconds

REQUESTS_A_MINUTE = 600  # a key
WRONG_KEYS_A_MINUTE = 20  # a visitor
INVITATIONS_AN_HOUR = 100  # a key without the scope `send`
PAGES_A_MINUTE = 240  # a visitor; a page that is in the cache is not counted


class WorkSlots:
    """Places for one kind of work. `waiting` more may wait for a place, for `patience` seconds each."""

    def __init__(self, places: int, waiting: int = 0, patience: float = 0) -> None:
        self._room = BoundedSemaphore(places + waiting)
        self._places = BoundedSemaphore(places)
        self._patience = patience

    @contextmanager
    def take(self) -> Iterator[None]:
        """Hold a place during the block. Raise TooManyRequests if there is none."""
        with _held(self._room, 0), _held(self._places, self._patience):
            yield

    def check(self) -> None:
        """Raise TooManyRequests if no place is free now."""
        with _held(self._places, 0):
            pass


@contextmanager
def _held(places: BoundedSemaphore, patience: float) -> Iterator[None]:
    if not (places.acquire(timeout=patience) if patience else places.acquire(blocking=False)):
        raise TooManyRequests(retry_after=RETRY_AFTER)
    try:
        yield
    finally:
        places.release()


class RequestLimits:
    """Count requests by key, wrong keys by visitor, invitations by key and built pages by visitor."""

    def __init__(self) -> None:
        self._window = FixedWindowRateLimiter(MemoryStorage())
        self._requests = RateLimitItemPerMinute(REQUESTS_A_MINUTE)
        self._wrong_keys = RateLimitItemPerMinute(WRONG_KEYS_A_MINUTE)
        self._invitations = RateLimitItemPerHour(INVITATIONS_AN_HOUR)
        self._pages = RateLimitItemPerMinute(PAGES_A_MINUTE)
        self._valid: set[bytes] = set()  # digests of keys that were valid, as many as there are keys

    def before_lookup(self, key: str, ip: str) -> None:
        """Raise TooManyRequests if too many wrong keys came from this network.

        A key that was valid before is looked up all the same: a stranger behind the same proxy must not
        lock the operator out.
        """
        network = network_of(ip)
        if _digest(key) not in self._valid and not self._window.test(self._wrong_keys, "wrong", network):
            self._refuse(self._wrong_keys, "wrong", network)

    def wrong_key(self, key: str, ip: str) -> None:
        """Count a key that is unknown, revoked or expired."""
        self._valid.discard(_digest(key))
        self._window.hit(self._wrong_keys, "wrong", network_of(ip))

    def valid_key(self, key: str, key_id: int) -> None:
        """Count a request with a valid key, or raise TooManyRequests."""
        self._valid.add(_digest(key))
        self._count(self._requests, "key", str(key_id))

    def invitation(self, key_id: int) -> None:
        """Count a confirmation mail that a key asked for, or raise TooManyRequests."""
        self._count(self._invitations, "invitation", str(key_id))

    def page(self, ip: str) -> None:
        """Count a public page that has to be built, or raise TooManyRequests."""
        self._count(self._pages, "page", network_of(ip))

    def _count(self, limit: RateLimitItem, kind: str, name: str) -> None:
        if not self._window.hit(limit, kind, name):
            self._refuse(limit, kind, name)

    def _refuse(self, limit: RateLimitItem, kind: str, name: str) -> None:
        reset = self._window.get_window_stats(limit, kind, name).reset_time
        raise TooManyRequests(retry_after=max(1, round(reset - time.time())))  # the library's clock


class Capacity:
    """The places and limits of one web application."""

    def __init__(self) -> None:
        self.api = WorkSlots(API_REQUESTS)
        self.analyses = WorkSlots(ANALYSES)
        self.jobs = WorkSlots(JOBS)
        self.mails = WorkSlots(MAILS)
        self.searches = WorkSlots(SEARCHES, WAITING, PATIENCE)
        self.pages = WorkSlots(PAGES, WAITING, PATIENCE)
        self.requests = RequestLimits()


def network_of(ip: str) -> str:
    """Return the network that one visitor may have to themselves: an IPv4 address, or an IPv6 /56."""
    try:
        address = ipaddress.ip_address(ip)
    except ValueError:
        return ip
    if isinstance(address, ipaddress.IPv6Address):
        mapped = address.ipv4_mapped
        return str(mapped or ipaddress.ip_network((int(address), 56), strict=False))
    return ip


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
