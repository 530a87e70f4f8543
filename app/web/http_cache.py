"""Answers that are sent again only when they have changed (RFC 9110, section 13), and made only so often.

No dates: what has been withdrawn leaves an answer without making anything in it newer.
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
STALE_PAGES = timedelta(minutes=5)  # longer, while they are rebuilt
ROOM = 200  # answers, of some tens of kilobytes mostly
AT_ONCE = PAGES + PAGES_WAITING  # threads that build or wait: others are left for everybody else

Key = tuple[str, ...]


@dataclass(frozen=True)
class CachedResponse:
    """What is answered to everybody who asks for the same."""

    body: bytes
    media_type: str

    @cached_property
    def etag(self) -> str:
        """Weak: compressed or not, the bytes differ and say the same."""
        return f'W/"{blake2b(self.body, digest_size=16).hexdigest()}"'


@dataclass(slots=True)
class _Turn:
    """Those who want the same thing, of whom one makes it."""

    lock: Lock = field(default_factory=Lock)
    here: int = 0


class ResponseCache:
    """What was made lately for everybody; what was made first gives way. Nobody's private page is in here.

    While one thread rebuilds an answer, or no place is free to do so, others get the old one for as long as
    `stale`. Without an old one they wait.
    """

    def __init__(
        self, keep: timedelta = KEEP, places: WorkSlots | None = None, stale: timedelta = timedelta()
    ) -> None:
        self._keep_for, self._stale_for = keep, stale
        self._places = places or WorkSlots(AT_ONCE)
        self._waiting = 0
        self._lock = Lock()
        self._made: dict[Key, tuple[CachedResponse, datetime]] = {}
        self._turns: dict[Key, _Turn] = {}

    def of(self, key: Key, now: datetime, make: Callable[[], CachedResponse]) -> CachedResponse:
        """What goes by this key, made where it is not there or has become old: by one, while others wait."""
        if made := self._fresh(key, now):
            return made
        old = self._stale(key, now)
        if old and key in self._turns:
            return old
        try:
            with self._turn(key):
                return self._fresh(key, now) or self._make(key, now, make)  # whoever was first has made it
        except TooManyRequests:
            if old:
                return old
            raise

    def _make(self, key: Key, now: datetime, make: Callable[[], CachedResponse]) -> CachedResponse:
        with self._places.take():
            made = make()
        self._keep(key, made, now)
        return made

    def _fresh(self, key: Key, now: datetime) -> CachedResponse | None:
        with self._lock:
            made, at = self._made.get(key, (None, now))
        return made if now - at < self._keep_for else None

    def _stale(self, key: Key, now: datetime) -> CachedResponse | None:
        """Return what is old, but not too old to serve while it is made anew."""
        with self._lock:
            made, at = self._made.get(key, (None, now))
        return made if now - at < self._keep_for + self._stale_for else None

    @contextmanager
    def _turn(self, key: Key) -> Iterator[None]:
        with self._lock:
            if self._waiting >= AT_ONCE:
                raise TooManyRequests(retry_after=2)
            turn = self._turns.setdefault(key, _Turn())
            turn.here += 1
            self._waiting += 1
        try:
            with turn.lock:
                yield
        finally:
            with self._lock:
                turn.here -= 1
                self._waiting -= 1
                if not turn.here:
                    del self._turns[key]

    def _keep(self, key: Key, made: CachedResponse, now: datetime) -> None:
        with self._lock:
            self._made.pop(key, None)
            self._made[key] = made, now
            if len(self._made) > ROOM:
                del self._made[next(iter(self._made))]


def public_page(request: Request, key: Key, make: Callable[[], Response]) -> Response:
    """Return a page that is the same for everybody, built at most once a minute.

    `make` must not look at the visitor. What it raises is not kept.
    """
    pages: ResponseCache = request.app.state.pages
    limits: Capacity = request.app.state.capacity

    def build() -> CachedResponse:
        limits.page_limit.hit(visitor(request))
        return CachedResponse(bytes(make().body), "text/html; charset=utf-8")

    return conditional_response(request, pages.of(key, clock.utcnow(), build), PUBLIC_REFERRER)


def conditional_response(request: Request, made: CachedResponse, headers: Mapping[str, str]) -> Response:
    """The body; or 304, where whoever asks has this very one."""
    headers = {**headers, "ETag": made.etag}
    if _has_it(request.headers.get("if-none-match", ""), made.etag):
        return Response(status_code=304, headers=headers)
    return Response(made.body, media_type=made.media_type, headers=headers)


def _has_it(tags: str, etag: str) -> bool:
    return tags.strip() == "*" or etag.removeprefix("W/") in re.findall(r'"[^"]*"', tags)
