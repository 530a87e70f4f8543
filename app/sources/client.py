"""The one polite HTTP client: the only module that knows httpx.

It says who asks, waits its turn, tries again when a fault may pass, and gives up in time. arXiv allows
one request every three seconds on one connection, over all its interfaces together; after its first 429
nothing more is asked of it for ten minutes. Requests to it go one after the other, through one lock.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from urllib.parse import urljoin, urlsplit

import httpx
import stamina

from app import clock
from app.errors import SourceError, UnreadableAnswer

PRODUCT = "Paperboy/0.1"
TIMEOUT = httpx.Timeout(30, connect=10)
MOST_BYTES = 20_000_000
MOST_REDIRECTS = 5
ATTEMPTS = 3
LONGEST_WAIT = timedelta(minutes=5, seconds=10)  # Hugging Face counts in windows of five minutes
ARXIV_PAUSE = timedelta(seconds=3)
ARXIV_STOP = timedelta(minutes=10)
REDIRECTS = (301, 302, 303, 307, 308)
TOO_MANY, UNAVAILABLE = 429, 503

Sleep = Callable[[float], Awaitable[None]]
Resolve = Callable[[str, int], Awaitable[list[str]]]


@dataclass(frozen=True, slots=True)
class Wire:
    """How requests leave and waiting is done: tests bring their own."""

    transport: httpx.AsyncBaseTransport | None = None
    sleep: Sleep = asyncio.sleep
    resolve: Resolve | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """A good answer. `changed` is False when the source said that we have it already (304)."""

    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    changed: bool = True
    etag: str | None = None
    last_modified: str | None = None


class _Passing(Exception):
    """A fault that may be gone in a moment; `wait` is what the source asked for."""

    def __init__(self, told: str, wait: timedelta | None = None) -> None:
        super().__init__(told)
        self.wait = wait


@dataclass
class Client:
    """Made by `opened`. `now` is when the run began; the pace itself is kept by a monotonic clock."""

    http: httpx.AsyncClient
    now: datetime
    wire: Wire
    _turns: dict[str, asyncio.Lock] = field(default_factory=dict)
    _free_at: dict[str, float] = field(default_factory=dict)
    _closed_until: dict[str, datetime] = field(default_factory=dict)

    async def get(
        self,
        url: str,
        *,
        params: Mapping[str, str | int] | None = None,
        etag: str | None = None,
        last_modified: str | None = None,
        public_only: bool = False,
    ) -> Reply:
        """GET, politely. Raises SourceError when the source cannot be read now."""
        url = _address(url, params)
        host = _party(url)
        conditions = {"If-None-Match": etag, "If-Modified-Since": last_modified}
        headers = {name: value for name, value in conditions.items() if value}
        async with self._turns.setdefault(host, asyncio.Lock()):
            if until := self._closed_until.get(host):
                raise SourceError(f"{host} asked for fewer requests.", retry_at=until)
            return await self._persist(url, headers, public_only)

    async def post(self, url: str, content: dict[str, object], token: str = "") -> Reply:
        """POST JSON, once, and to this address alone: no redirect takes the token elsewhere.

        Raises SourceError when there is no good answer.
        """
        await self._check(url, public_only=False)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            response, body = await self._exchange("POST", _address(url, None), headers, content)
        except _Passing as fault:
            raise SourceError(_without(token, f"{_party(url)}: {fault}")) from None
        if 200 <= response.status_code < 300:
            return Reply(body, response.headers)
        told = f"{_party(url)}: HTTP {response.status_code}. {_excerpt(body)}".strip()
        raise SourceError(_without(token, told))

    async def _persist(self, url: str, headers: dict[str, str], public_only: bool) -> Reply:
        """Try a few times, as long as the fault may pass."""
        try:
            async for attempt in stamina.retry_context(
                on=_wait_of, attempts=ATTEMPTS, timeout=None, wait_initial=1, wait_max=10
            ):
                with attempt:
                    return await self._once(url, headers, public_only)
        except _Passing as fault:
            raise SourceError(f"{_party(url)}: {fault}", retry_at=self._retry_at(fault.wait)) from None
        raise AssertionError("stamina ends by returning or by raising")  # pragma: no cover

    def _retry_at(self, wait: timedelta | None) -> datetime | None:
        return self.now + wait if wait else None

    async def _once(self, url: str, headers: dict[str, str], public_only: bool) -> Reply:
        for _ in range(MOST_REDIRECTS):
            await self._check(url, public_only)
            await self._wait_turn(_party(url))
            response, body = await self._exchange("GET", url, headers)
            if response.status_code not in REDIRECTS or "location" not in response.headers:
                return self._judge(response, body)
            url = urljoin(url, response.headers["location"])
        raise SourceError(f"{_party(url)}: too many redirects.")

    async def _exchange(
        self, method: str, url: str, headers: dict[str, str], content: dict[str, object] | None = None
    ) -> tuple[httpx.Response, bytes]:
        try:
            async with self.http.stream(method, url, headers=headers, json=content) as response:
                chunks, size = [], 0
                async for chunk in response.aiter_bytes():
                    size += len(chunk)
                    if size > MOST_BYTES:
                        raise UnreadableAnswer(f"The answer has more than {MOST_BYTES // 1_000_000} MB.")
                    chunks.append(chunk)
                return response, b"".join(chunks)
        except httpx.TransportError as error:
            raise _Passing(f"no answer ({type(error).__name__}: {error})".strip()) from None
        except httpx.HTTPError as error:
            raise SourceError(f"{_party(url)}: {error}") from None
        finally:
            if _party(url) == "arxiv.org":
                self._free_at["arxiv.org"] = time.monotonic() + ARXIV_PAUSE.total_seconds()

    def _judge(self, response: httpx.Response, body: bytes) -> Reply:
        host, status, headers = _party(str(response.url)), response.status_code, response.headers
        self._pace(host, headers)
        known = {"etag": headers.get("etag"), "last_modified": headers.get("last-modified")}
        if status == 304:
            return Reply(b"", headers, changed=False, **known)
        if 200 <= status < 300:
            return Reply(body, headers, **known)
        if host == "arxiv.org" and status == TOO_MANY:
            self._closed_until[host] = self.now + ARXIV_STOP
            raise SourceError("arXiv asked for fewer requests.", retry_at=self.now + ARXIV_STOP)
        wait = wait_asked(headers, clock.utcnow())
        if status == TOO_MANY or (status == UNAVAILABLE and wait):
            self._hold(host, wait, status)
        if status == TOO_MANY or status >= 500:
            raise _Passing(f"HTTP {status}", wait)
        raise SourceError(f"{host}: HTTP {status}. {_excerpt(body)}".strip())

    def _pace(self, host: str, headers: Mapping[str, str]) -> None:
        """A budget that is used up counts before the next request, not after its refusal."""
        if "r=0" in headers.get("ratelimit", "") and (wait := wait_asked(headers, clock.utcnow())):
            self._free_at[host] = time.monotonic() + wait.total_seconds()

    def _hold(self, host: str, wait: timedelta | None, status: int) -> None:
        if wait and wait > LONGEST_WAIT:
            self._closed_until[host] = self.now + wait
            raise SourceError(f"{host}: HTTP {status}, asked to wait.", retry_at=self.now + wait)
        if wait:
            self._free_at[host] = time.monotonic() + wait.total_seconds()

    async def _wait_turn(self, host: str) -> None:
        if host == "arxiv.org" and host not in self._free_at:
            await self.wire.sleep(ARXIV_PAUSE.total_seconds())  # the run before this one may just have asked
        elif (wait := self._free_at.get(host, 0) - time.monotonic()) > 0:
            await self.wire.sleep(wait)

    async def _check(self, url: str, public_only: bool) -> None:
        """An address that an operator gave leads to the public Internet, and so do its redirects."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SourceError("A feed's address must begin with http:// or https://.")
        if public_only:
            resolve = self.wire.resolve or _addresses
            for address in await resolve(parts.hostname, parts.port or 443):
                if not ipaddress.ip_address(address.partition("%")[0]).is_global:
                    raise SourceError(f"{parts.hostname} leads to a private address ({address}).")


@asynccontextmanager
async def opened(contact: str, now: datetime, wire: Wire) -> AsyncIterator[Client]:
    """The client of one run. `contact` tells the sources whom to write to."""
    limits = httpx.Limits(max_connections=10, max_keepalive_connections=5)
    async with httpx.AsyncClient(
        headers={"User-Agent": f"{PRODUCT} ({contact})"},
        timeout=TIMEOUT,
        limits=limits,
        transport=wire.transport,
    ) as http:
        yield Client(http, now, wire)


def wait_asked(headers: Mapping[str, str], now: datetime) -> timedelta | None:
    """What the source asks for: Retry-After, in seconds or as a date, or `RateLimit: "api";r=0;t=55`."""
    asked = headers.get("retry-after", "").strip()
    if asked.isascii() and asked.isdigit():
        return timedelta(seconds=min(int(asked), 86_400))
    if asked:
        try:
            moment = parsedate_to_datetime(asked)
        except ValueError:
            return None
        return max(moment.replace(tzinfo=moment.tzinfo or UTC) - now, timedelta())
    reset = re.search(r"\bt=(\d{1,6})", headers.get("ratelimit", ""))
    return timedelta(seconds=int(reset.group(1)) + 1) if reset else None


def _wait_of(error: Exception) -> bool:
    return isinstance(error, _Passing)


def _address(url: str, params: Mapping[str, str | int] | None) -> str:
    try:
        return str(httpx.URL(url, params=params) if params else httpx.URL(url))
    except httpx.InvalidURL as error:
        raise SourceError(f"This is no address that can be asked: {error}.") from None


def _party(url: str) -> str:
    """Whom a request goes to: arXiv is one party however many host names it has."""
    host = (urlsplit(url).hostname or "").lower()
    return "arxiv.org" if host == "arxiv.org" or host.endswith(".arxiv.org") else host


def _without(token: str, text: str) -> str:
    """What may be logged: some servers, and h11, repeat what they were sent."""
    return text.replace(token.strip(), "…") if token.strip() else text


def _excerpt(body: bytes) -> str:
    return " ".join(body[:200].decode("utf-8", "replace").split())


async def _addresses(host: str, port: int) -> list[str]:
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise _Passing(f"the name cannot be resolved ({error})") from None
    return [str(entry[4][0]) for entry in found]
