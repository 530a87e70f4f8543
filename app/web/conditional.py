"""Answers that are sent again only when they have changed (RFC 9110, section 13), and made only so often.

No dates: what has been withdrawn leaves an answer without making anything in it newer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from hashlib import blake2b
from threading import Lock

from fastapi import Request, Response

KEEP = timedelta(minutes=5)
ROOM = 200  # answers, of some tens of kilobytes mostly


@dataclass(frozen=True)
class Made:
    """What is answered to everybody who asks for the same."""

    body: bytes
    media_type: str

    @cached_property
    def etag(self) -> str:
        """Weak: compressed or not, the bytes differ and say the same."""
        return f'W/"{blake2b(self.body, digest_size=16).hexdigest()}"'


class Kept:
    """What was made lately for everybody; what was made first gives way. Nobody's private page is in here."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._made: dict[tuple[str, ...], tuple[Made, datetime]] = {}

    def of(self, key: tuple[str, ...], now: datetime, make: Callable[[], Made]) -> Made:
        """What goes by this key, made where it is not there or has become old."""
        with self._lock:
            made, at = self._made.get(key, (None, now))
        if made is None or now - at >= KEEP:
            made = make()
            self._keep(key, made, now)
        return made

    def _keep(self, key: tuple[str, ...], made: Made, now: datetime) -> None:
        with self._lock:
            self._made.pop(key, None)
            self._made[key] = made, now
            if len(self._made) > ROOM:
                del self._made[next(iter(self._made))]


def answer(request: Request, made: Made, headers: Mapping[str, str]) -> Response:
    """The body; or 304, where whoever asks has this very one."""
    headers = {**headers, "ETag": made.etag}
    if _has_it(request.headers.get("if-none-match", ""), made.etag):
        return Response(status_code=304, headers=headers)
    return Response(made.body, media_type=made.media_type, headers=headers)


def _has_it(tags: str, etag: str) -> bool:
    return tags.strip() == "*" or etag.removeprefix("W/") in re.findall(r'"[^"]*"', tags)
