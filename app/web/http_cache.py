"""Conditional responses (RFC 9110, section 13), and a cache for responses that are the same for everybody.

Responses have an ETag but no Last-Modified, because withdrawing a paper changes a page but not its date.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from hashlib import blake2b
from threading import Condition

from cachetools import FIFOCache
from fastapi import Request, Response

from app import clock
from app.errors import TooManyRequests
from app.web.capacity import PAGES, PAGES_WAITING, WorkSlots
from app.web.security import PUBLIC_REFERRER
from app.web.site_state import capacity
from app.web.visitors import visitor

KEEP = timedelta(minutes=5)  # feeds and sitemaps
KEEP_MATCHES = timedelta(minutes=15)  # feeds of interests
STALE_MATCHES = timedelta(hours=1)  # how much longer they are served if they cannot be rebuilt at once
KEEP_PAGES = timedelta(minutes=1)
STALE_PAGES = timedelta(minutes=5)  # the same for pages
MAX_RESPONSES = 200  # most have a few tens of kilobytes
MAX_SITEMAPS = 2  # up to 5 MB each
AT_ONCE = PAGES + PAGES_WAITING  # threads that may build or wait at once; others stay free for requests

Key = tuple[str, ...]


@dataclass(frozen=True)
class CachedResponse:
    """A response that is the same for everybody."""

    body: bytes
    media_type: str

    @cached_property
    def etag(self) -> str:
        """Return a weak ETag, because compression changes the bytes of the body but not its content."""
        return f'W/"{blake2b(self.body, digest_size=16).hexdigest()}"'


class ResponseCache:
    """A cache of public responses. When it is full, it drops the oldest. Private pages are never stored.

    While one thread rebuilds a response, or if no slot is free to rebuild it, other threads get the stale
    response for up to `stale`. If there is no stale response, they wait.
    """

    def __init__(
        self,
        keep: timedelta = KEEP,
        slots: WorkSlots | None = None,
        stale: timedelta = timedelta(),
        size: int | None = None,
    ) -> None:
        self.keep, self._stale_for = keep, stale
        self._slots = slots or WorkSlots(AT_ONCE)
        self._waiting = 0
        self._changed = Condition()  # its lock guards the attributes below and `_waiting`
        self._responses: FIFOCache[Key, tuple[CachedResponse, datetime]] = FIFOCache(size or MAX_RESPONSES)
        self._building: set[Key] = set()
        self._cleared = 0  # times; a response that was being built at that time is not stored

    def get_or_build(self, key: Key, now: datetime, build: Callable[[], CachedResponse]) -> CachedResponse:
        """Return the cached response. If it is missing or stale, one thread rebuilds it.

        Raise TooManyRequests if too many threads are building or waiting, and there is no stale response.
        """
        if fresh := self._stored(key, now - self.keep):
            return fresh
        stale = self._stored(key, now - self.keep - self._stale_for)
        if stale and key in self._building:
            return stale
        try:
            with self._turn(key):
                # Another thread may have built the response while this one waited.
                if fresh := self._stored(key, now - self.keep):
                    return fresh
                cleared = self._cleared
                with self._slots.take():
                    response = build()
                with self._changed:
                    if cleared == self._cleared:
                        self._responses[key] = response, now
                return response
        except TooManyRequests:
            if stale:
                return stale
            raise

    def clear(self) -> None:
        """Drop all responses, and do not store those that are being built."""
        with self._changed:
            self._responses.clear()
            self._cleared += 1

    def _stored(self, key: Key, after: datetime) -> CachedResponse | None:
        """Return the stored response if it was built after `after`."""
        with self._changed:
            response, at = self._responses.get(key, (None, after))
        return response if at > after else None

    @contextmanager
    def _turn(self, key: Key) -> Iterator[None]:
        """Let one thread at a time build the response for a key. Raise TooManyRequests if too many wait."""
        with self._changed:
            if self._waiting >= AT_ONCE:
                raise TooManyRequests(retry_after=2)
            self._waiting += 1
            self._changed.wait_for(lambda: key not in self._building)
            self._building.add(key)
        try:
            yield
        finally:
            with self._changed:
                self._waiting -= 1
                self._building.remove(key)
                self._changed.notify_all()


def public_page(request: Request, key: Key, make: Callable[[], Response]) -> Response:
    """Return a page that is the same for everybody, built at most once a minute.

    The result of `make` must not depend on the visitor. Its exceptions are not cached. Building the page
    counts toward the visitor's rate limit. Raise TooManyRequests if the limit is exceeded.
    """
    pages: ResponseCache = request.app.state.page_cache

    def build() -> CachedResponse:
        capacity(request).visitors.pages.hit(visitor(request))
        return CachedResponse(bytes(make().body), "text/html; charset=utf-8")

    return conditional_response(request, pages.get_or_build(key, clock.utcnow(), build), PUBLIC_REFERRER)


def conditional_response(request: Request, cached: CachedResponse, headers: Mapping[str, str]) -> Response:
    """Return the response, or status 304 if the client already has this version."""
    headers = {**headers, "ETag": cached.etag}
    if matches(cached.etag, request.headers.get("if-none-match", "")):
        return Response(status_code=304, headers=headers)
    return Response(cached.body, media_type=cached.media_type, headers=headers)


def matches(etag: str, if_none_match: str) -> bool:
    """Return whether an If-None-Match header contains this ETag, ignoring whether the ETags are weak."""
    return if_none_match.strip() == "*" or etag.removeprefix("W/") in re.findall(r'"[^"]*"', if_none_match)
