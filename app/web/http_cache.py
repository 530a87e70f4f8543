"""Conditional responses (RFC 9110, section 13), and a cache for responses that are the same for everybody.

Responses have an ETag and no Last-Modified: a withdrawn paper changes a page without a newer date.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from hashlib import blake2b
from threading import Lock

from fastapi import Request, Response

from app import clock
from app.errors import TooManyRequests
from app.web.security import PUBLIC_REFERRER, visitor
from app.web.work_limits import PAGES, PAGES_WAITING, Capacity, WorkSlots

KEEP = timedelta(minutes=5)  # feeds and the sitemap
KEEP_PAGES = timedelta(minutes=1)
STALE_PAGES = timedelta(minutes=5)  # after that, while they are rebuilt
MAX_RESPONSES = 200  # most have some tens of kilobytes
AT_ONCE = PAGES + PAGES_WAITING  # threads that build or wait; the other threads are for other requests

Key = tuple[str, ...]


@dataclass(frozen=True)
class CachedResponse:
    """A response that is the same for everybody."""

    body: bytes
    media_type: str

    @cached_property
    def etag(self) -> str:
        """Return a weak ETag, since the compressed body has the same content in other bytes."""
        return f'W/"{blake2b(self.body, digest_size=16).hexdigest()}"'


@dataclass(slots=True)
class _Build:
    """The build of one response: the threads that want it, one of which holds the lock and builds."""

    lock: Lock = field(default_factory=Lock)
    threads: int = 0


class ResponseCache:
    """A cache of public responses. The oldest is dropped when it is full. Private pages are never stored.

    While one thread rebuilds a response, or no slot is free for that, others get the stale one for up to
    `stale`. Without a stale one they wait.
    """

    def __init__(
        self, keep: timedelta = KEEP, places: WorkSlots | None = None, stale: timedelta = timedelta()
    ) -> None:
        self._keep_for, self._stale_for = keep, stale
        self._places = places or WorkSlots(AT_ONCE)
        self._waiting = 0
        self._lock = Lock()
        self._responses: dict[Key, tuple[CachedResponse, datetime]] = {}
        self._builds: dict[Key, _Build] = {}

    def get_or_build(self, key: Key, now: datetime, build: Callable[[], CachedResponse]) -> CachedResponse:
        """Return the cached response. If it is missing or stale, one thread rebuilds it while others wait.

        Raise TooManyRequests if too many threads build or wait.
        """
        if fresh := self._fresh(key, now):
            return fresh
        stale = self._stale(key, now)
        if stale and key in self._builds:
            return stale
        try:
            with self._building(key):
                # Another thread may have built it while this one waited.
                return self._fresh(key, now) or self._build(key, now, build)
        except TooManyRequests:
            if stale:
                return stale
            raise

    def _build(self, key: Key, now: datetime, build: Callable[[], CachedResponse]) -> CachedResponse:
        with self._places.take():
            response = build()
        self._store(key, response, now)
        return response

    def _fresh(self, key: Key, now: datetime) -> CachedResponse | None:
        with self._lock:
            response, at = self._responses.get(key, (None, now))
        return response if now - at < self._keep_for else None

    def _stale(self, key: Key, now: datetime) -> CachedResponse | None:
        """Return a response that may be served while it is rebuilt."""
        with self._lock:
            response, at = self._responses.get(key, (None, now))
        return response if now - at < self._keep_for + self._stale_for else None

    @contextmanager
    def _building(self, key: Key) -> Iterator[None]:
        with self._lock:
            if self._waiting >= AT_ONCE:
                raise TooManyRequests(retry_after=2)
            building = self._builds.setdefault(key, _Build())
            building.threads += 1
            self._waiting += 1
        try:
            with building.lock:
                yield
        finally:
            with self._lock:
                building.threads -= 1
                self._waiting -= 1
                if not building.threads:
                    del self._builds[key]

    def _store(self, key: Key, response: CachedResponse, now: datetime) -> None:
        with self._lock:
            self._responses.pop(key, None)
            self._responses[key] = response, now
            if len(self._responses) > MAX_RESPONSES:
                del self._responses[next(iter(self._responses))]


def public_page(request: Request, key: Key, make: Callable[[], Response]) -> Response:
    """Return a page that is the same for everybody, built at most once a minute.

    `make` must not depend on the visitor. Its exceptions are not cached.
    """
    pages: ResponseCache = request.app.state.page_cache
    limits: Capacity = request.app.state.capacity

    def build() -> CachedResponse:
        limits.page_limit.hit(visitor(request))
        return CachedResponse(bytes(make().body), "text/html; charset=utf-8")

    return conditional_response(request, pages.get_or_build(key, clock.utcnow(), build), PUBLIC_REFERRER)


def conditional_response(request: Request, cached: CachedResponse, headers: Mapping[str, str]) -> Response:
    """Return the response, or 304 if the client has the same version."""
    headers = {**headers, "ETag": cached.etag}
    if _matches(request.headers.get("if-none-match", ""), cached.etag):
        return Response(status_code=304, headers=headers)
    return Response(cached.body, media_type=cached.media_type, headers=headers)


def _matches(tags: str, etag: str) -> bool:
    return tags.strip() == "*" or etag.removeprefix("W/") in re.findall(r'"[^"]*"', tags)
