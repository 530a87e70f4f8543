"""Limit how often each host is queried: pauses between requests to arXiv, and waits that hosts request.

arXiv allows one request every three seconds on one connection, for all its interfaces together. A lock makes
requests to arXiv sequential. After arXiv's first 429 response, no requests are sent to it for ten minutes.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from app import clock
from app.errors import SourceError

ARXIV = "arxiv.org"
ARXIV_PAUSE = timedelta(seconds=3)
ARXIV_STOP = timedelta(minutes=10)
LONGEST_WAIT = timedelta(minutes=5, seconds=10)  # Hugging Face's rate limit has windows of five minutes
LONGEST_STATED_WAIT = timedelta(days=1)  # longer requested waits are reduced to this
TOO_MANY, UNAVAILABLE = 429, 503

Sleep = Callable[[float], Awaitable[None]]


@dataclass
class Pacing:
    """The pace of one run, which began at `now`. A service is a host, or all of arXiv's hosts together."""

    now: datetime
    sleep: Sleep
    started: float = field(default_factory=time.monotonic)
    _locks: dict[str, asyncio.Lock] = field(default_factory=dict)
    _next_request_at: dict[str, float] = field(default_factory=dict)
    _closed_until: dict[str, datetime] = field(default_factory=dict)

    def lock(self, service: str) -> asyncio.Lock:
        """Return the lock that makes the requests to a service sequential."""
        return self._locks.setdefault(service, asyncio.Lock())

    def check_open(self, service: str) -> None:
        """Raise SourceError if no more requests may be sent to a service in this run."""
        if until := self._closed_until.get(service):
            raise SourceError(f"{service} asked for fewer requests.", retry_at=until)

    async def wait_for_turn(self, service: str) -> None:
        """Wait until the next request to a service is due."""
        # The previous run may have sent a request just before.
        if service == ARXIV and service not in self._next_request_at:
            await self.sleep(ARXIV_PAUSE.total_seconds())
        elif (wait := self._next_request_at.get(service, 0) - time.monotonic()) > 0:
            await self.sleep(wait)

    def note_request(self, service: str) -> None:
        """Begin the pause that must follow a request."""
        if service == ARXIV:
            self._next_request_at[ARXIV] = time.monotonic() + ARXIV_PAUSE.total_seconds()

    def note_response(self, service: str, status: int, headers: Mapping[str, str]) -> timedelta | None:
        """Return the wait that an error response asks for, or None.

        Postpone later requests to the service after 429 or 503, or if its rate limit is used up. If the wait
        is too long, or if arXiv responds with 429, allow no more requests in this run, and raise SourceError.
        """
        if pause := _quota_reset(headers):
            self._next_request_at[service] = time.monotonic() + pause.total_seconds()
        if status not in (TOO_MANY, UNAVAILABLE):
            return retry_after(headers, clock.utcnow()) if status >= 500 else None
        if service == ARXIV and status == TOO_MANY:
            raise self._close(service, ARXIV_STOP, "arXiv asked for fewer requests.")
        if wait := retry_after(headers, clock.utcnow()):
            if wait > LONGEST_WAIT:
                raise self._close(service, wait, f"{service}: HTTP {status}; it asked for fewer requests.")
            self._next_request_at[service] = time.monotonic() + wait.total_seconds()
        return wait

    def end_of(self, wait: timedelta) -> datetime:
        """Return the end of a wait that begins now.

        Add the whole minutes since the start of the run to `now`, because a run may last for many minutes.
        """
        return self.now + timedelta(minutes=(time.monotonic() - self.started) // 60) + wait

    def _close(self, service: str, wait: timedelta, reason: str) -> SourceError:
        until = self._closed_until[service] = self.end_of(wait)
        return SourceError(reason, retry_at=until)


def service_of(url: str) -> str:
    """Return the host of a URL, or ARXIV for any of arXiv's hosts, which share one rate limit."""
    host = (urlsplit(url).hostname or "").lower().rstrip(".")
    return ARXIV if host == ARXIV or host.endswith(f".{ARXIV}") else host


def retry_after(headers: Mapping[str, str], now: datetime) -> timedelta | None:
    """Return the requested wait, from Retry-After (seconds or date) or RateLimit (see `_quota_reset`)."""
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        return min(timedelta(seconds=int(value[:9])), LONGEST_STATED_WAIT)
    if value:
        try:
            moment = parsedate_to_datetime(value)
        except (ValueError, OverflowError):
            return None
        wait = moment.replace(tzinfo=moment.tzinfo or UTC) - now
        return min(max(wait, timedelta()), LONGEST_STATED_WAIT)
    return _quota_reset(headers)


def _quota_reset(headers: Mapping[str, str]) -> timedelta | None:
    """Return the wait until all quotas have requests left, from `RateLimit: "hour";r=9;t=50, "day";r=0;t=55`.

    Return None if each quota has requests left (r).
    """
    resets = [
        int(reset[1])
        for quota in headers.get("ratelimit", "").split(",")
        if re.search(r";\s*r=0+\s*(;|$)", quota) and (reset := re.search(r";\s*t=(\d{1,6})", quota))
    ]
    return min(timedelta(seconds=max(resets) + 1), LONGEST_STATED_WAIT) if resets else None
