"""The one polite HTTP client: the only module that knows httpx.

It says who asks, waits its turn, tries again when a fault may pass, and gives up in time. arXiv allows
one request every three seconds on one connection, over all its interfaces together; after its first 429
nothing more is asked of it for ten minutes. Requests to it go one after the other, through one lock.

What servers of strangers answer is bounded in time and in memory. An address that somebody typed in, and any
that another host redirects to, is resolved once; every address it has is checked, and one of these very
addresses is connected to.
"""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from urllib.parse import urljoin, urlsplit

import httpx
import stamina

from app import clock
from app.errors import SourceError, UnreadableAnswer
from app.papers.sources import content_decoding
from app.papers.sources.allowed_addresses import Allowed

PRODUCT = "Paperboy/0.1"
ARXIV = "arxiv.org"
TIMEOUT = httpx.Timeout(30, connect=10)  # without a single byte
ANSWER_SECONDS = 60.0  # for a whole answer: connection, headers and body
AT_ONCE = 10  # answers that are under way, each of which may fill the memory up to MOST_BYTES
MOST_BYTES = 20_000_000
MOST_ADDRESSES = 4  # of a host, that are tried
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
class HttpTransport:
    """How requests leave and waiting is done: tests bring their own."""

    transport: httpx.AsyncBaseTransport | None = None
    sleep: Sleep = asyncio.sleep
    resolve: Resolve | None = None
    answer_seconds: float = ANSWER_SECONDS


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A good answer. `changed` is False when the source said that we have it already (304)."""

    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    changed: bool = True
    etag: str | None = None
    last_modified: str | None = None


class _TransientError(Exception):
    """A fault that may be gone in a moment; `wait` is what the source asked for."""

    def __init__(self, told: str, wait: timedelta | None = None) -> None:
        super().__init__(told)
        self.wait = wait


@dataclass
class Client:
    """Made by `opened`. `now` is when the run began; the pace itself is kept by a monotonic clock.

    `http` goes to any address, through the environment's proxy if there is one. `checked` connects directly,
    and only to public addresses and to those that are `allowed`.
    """

    http: httpx.AsyncClient
    checked: httpx.AsyncClient
    now: datetime
    wire: HttpTransport
    allowed: Allowed = field(default_factory=Allowed)
    started: float = field(default_factory=time.monotonic)
    _turns: dict[str, asyncio.Lock] = field(default_factory=dict)
    _free_at: dict[str, float] = field(default_factory=dict)
    _closed_until: dict[str, datetime] = field(default_factory=dict)
    _room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))

    async def get(
        self,
        url: str,
        *,
        params: Mapping[str, str | int] | None = None,
        etag: str | None = None,
        last_modified: str | None = None,
        public_only: bool = False,
    ) -> HttpResponse:
        """GET, politely. Raises SourceError when the source cannot be read now.

        With `public_only`, only public addresses are asked; without, that holds for redirects to other hosts.
        """
        url = _address(url, params)
        host = party_of(url)
        conditions = {"If-None-Match": etag, "If-Modified-Since": last_modified}
        headers = {name: value for name, value in conditions.items() if value}
        async with self._turns.setdefault(host, asyncio.Lock()):
            if until := self._closed_until.get(host):
                raise SourceError(f"{host} asked for fewer requests.", retry_at=until)
            return await self._persist(url, headers, public_only)

    async def post(self, url: str, content: dict[str, object], token: str = "") -> HttpResponse:
        """POST JSON, once, and to this address alone: no redirect takes the token elsewhere.

        Raises SourceError when there is no good answer.
        """
        _check_scheme(url)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            response, body = await self._exchange(self.http, "POST", _address(url, None), headers, content)
        except _TransientError as fault:
            raise SourceError(_without(token, f"{party_of(url)}: {fault}")) from None
        if 200 <= response.status_code < 300:
            return HttpResponse(body, response.headers)
        told = f"{party_of(url)}: HTTP {response.status_code}. {_excerpt(body)}".strip()
        raise SourceError(_without(token, told))

    async def _persist(self, url: str, headers: dict[str, str], public_only: bool) -> HttpResponse:
        """Try a few times, as long as the fault may pass."""
        try:
            async for attempt in stamina.retry_context(
                on=_wait_of, attempts=ATTEMPTS, timeout=None, wait_initial=1, wait_max=10
            ):
                with attempt:
                    return await self._once(url, headers, public_only)
        except _TransientError as fault:
            raise SourceError(f"{party_of(url)}: {fault}", retry_at=self._retry_at(fault.wait)) from None
        raise AssertionError("stamina ends by returning or by raising")  # pragma: no cover

    def _retry_at(self, wait: timedelta | None) -> datetime | None:
        return self._after(wait) if wait else None

    def _after(self, wait: timedelta) -> datetime:
        """Return the moment when a wait ends that begins now, to the minute: a run may last for many."""
        return self.now + timedelta(minutes=(time.monotonic() - self.started) // 60) + wait

    async def _once(self, url: str, headers: dict[str, str], public_only: bool) -> HttpResponse:
        party = party_of(url)
        for _ in range(MOST_REDIRECTS):
            _check_scheme(url)
            if party != ARXIV == party_of(url):  # past its one connection
                raise SourceError(f"{party} leads to arXiv: add what is wanted as a source of arXiv.")
            await self._wait_turn(party_of(url))
            http = self._way_to(url, check=public_only or party_of(url) != party)
            response, body = await self._exchange(http, "GET", url, headers)
            if response.status_code not in REDIRECTS or "location" not in response.headers:
                return self._judge(response, body)
            url = _follow(url, response.headers["location"])
        raise SourceError(f"{party_of(url)}: too many redirects.")

    def _way_to(self, url: str, *, check: bool) -> httpx.AsyncClient:
        """Return the client that may ask an address. Hosts that the operator names need no check."""
        host = (urlsplit(url).hostname or "").lower()
        return self.checked if check and host not in self.allowed.hosts else self.http

    async def _exchange(
        self,
        http: httpx.AsyncClient,
        method: str,
        url: str,
        headers: dict[str, str],
        content: dict[str, object] | None = None,
    ) -> tuple[httpx.Response, bytes]:
        """Return a whole answer, or raise what became of it. One that takes too long is not tried again."""
        within = self.wire.answer_seconds
        try:
            async with (
                self._room,
                asyncio.timeout(within),
                http.stream(method, url, headers=headers, json=content) as response,
            ):
                return response, await _read(response)
        except TimeoutError:
            raise SourceError(f"{party_of(url)}: no whole answer within {within:g} seconds.") from None
        except httpx.TransportError as error:
            raise _TransientError(f"no answer ({type(error).__name__}: {error})".strip()) from None
        except httpx.HTTPError as error:
            raise SourceError(f"{party_of(url)}: {error}") from None
        finally:
            if party_of(url) == ARXIV:
                self._free_at[ARXIV] = time.monotonic() + ARXIV_PAUSE.total_seconds()

    def _judge(self, response: httpx.Response, body: bytes) -> HttpResponse:
        host, status, headers = party_of(str(response.url)), response.status_code, response.headers
        self._pace(host, headers)
        known = {"etag": headers.get("etag"), "last_modified": headers.get("last-modified")}
        if status == 304:
            return HttpResponse(b"", headers, changed=False, **known)
        if 200 <= status < 300:
            return HttpResponse(body, headers, **known)
        if host == ARXIV and status == TOO_MANY:
            self._closed_until[host] = until = self._after(ARXIV_STOP)
            raise SourceError("arXiv asked for fewer requests.", retry_at=until)
        wait = retry_after(headers, clock.utcnow())
        if status == TOO_MANY or (status == UNAVAILABLE and wait):
            self._hold(host, wait, status)
        if status == TOO_MANY or status >= 500:
            raise _TransientError(f"HTTP {status}", wait)
        raise SourceError(f"{host}: HTTP {status}. {_excerpt(body)}".strip())

    def _pace(self, host: str, headers: Mapping[str, str]) -> None:
        """A budget that is used up counts before the next request, not after its refusal."""
        if "r=0" in headers.get("ratelimit", "") and (wait := retry_after(headers, clock.utcnow())):
            self._free_at[host] = time.monotonic() + wait.total_seconds()

    def _hold(self, host: str, wait: timedelta | None, status: int) -> None:
        if wait and wait > LONGEST_WAIT:
            self._closed_until[host] = until = self._after(wait)
            raise SourceError(f"{host}: HTTP {status}, asked to wait.", retry_at=until)
        if wait:
            self._free_at[host] = time.monotonic() + wait.total_seconds()

    async def _wait_turn(self, host: str) -> None:
        if host == ARXIV and host not in self._free_at:
            await self.wire.sleep(ARXIV_PAUSE.total_seconds())  # the run before this one may just have asked
        elif (wait := self._free_at.get(host, 0) - time.monotonic()) > 0:
            await self.wire.sleep(wait)


class _CheckedTransport(httpx.AsyncBaseTransport):
    """Resolve the host of each request once, check every address it has, and connect to one of these.

    The name stays in the Host header, in SNI and in the verification of the certificate. Connections must not
    be kept: the pool knows them by address, and two names may share one.
    """

    def __init__(self, inner: httpx.AsyncBaseTransport, resolve: Resolve, allowed: Allowed) -> None:
        self._inner, self._resolve, self._allowed = inner, resolve, allowed

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        *others, last = await self._addresses(request.url)
        for address in others:
            with suppress(httpx.ConnectError, httpx.ConnectTimeout):
                return await self._send(request, address)
        return await self._send(request, last)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def _addresses(self, url: httpx.URL) -> list[str]:
        host = url.raw_host.decode("ascii")
        found = await self._resolve(host, url.port or (443 if url.scheme == "https" else 80))
        if not all(map(self._allowed.permits, found)):
            raise SourceError(
                f"{host} leads to a private address: PAPERBOY_ALLOW_PRIVATE_SOURCES can allow it."
            )
        if not found:
            raise _TransientError("the name has no address")
        return list(dict.fromkeys(found))[:MOST_ADDRESSES]

    async def _send(self, request: httpx.Request, address: str) -> httpx.Response:
        direct = httpx.Request(
            request.method,
            request.url.copy_with(host=address),
            headers=request.headers,
            stream=request.stream,
            extensions={**request.extensions, "sni_hostname": request.url.raw_host.decode("ascii")},
        )
        return await self._inner.handle_async_request(direct)


@asynccontextmanager
async def open_client(
    contact: str, now: datetime, wire: HttpTransport, allowed: Allowed | None = None
) -> AsyncIterator[Client]:
    """The client of one run. `contact` tells the sources whom to write to."""
    allowed = allowed or Allowed()
    headers = {"User-Agent": f"{PRODUCT} ({contact})", "Accept-Encoding": content_decoding.ACCEPTED}
    context = True if wire.transport else httpx.create_ssl_context()
    unkept = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    inner = wire.transport or httpx.AsyncHTTPTransport(verify=context, limits=unkept)
    checked = _CheckedTransport(inner, wire.resolve or _addresses, allowed)
    kept = httpx.Limits(max_connections=None, max_keepalive_connections=5)
    async with (
        httpx.AsyncClient(
            headers=headers, timeout=TIMEOUT, limits=kept, transport=wire.transport, verify=context
        ) as http,
        httpx.AsyncClient(headers=headers, timeout=TIMEOUT, transport=checked, trust_env=False) as direct,
    ):
        yield Client(http, direct, now, wire, allowed)


def retry_after(headers: Mapping[str, str], now: datetime) -> timedelta | None:
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
    return isinstance(error, _TransientError)


def _address(url: str, params: Mapping[str, str | int] | None) -> str:
    try:
        return str(httpx.URL(url, params=params) if params else httpx.URL(url))
    except httpx.InvalidURL as error:
        raise SourceError(f"This is no address that can be asked: {error}.") from None


def _follow(url: str, location: str) -> str:
    try:
        return _address(urljoin(url, location), None)
    except ValueError:
        raise SourceError(f"{party_of(url)}: it leads to no address that can be asked.") from None


def party_of(url: str) -> str:
    """Return whom a request goes to: arXiv is one party however many host names it has."""
    host = (urlsplit(url).hostname or "").lower().rstrip(".")
    return ARXIV if host == ARXIV or host.endswith(f".{ARXIV}") else host


def _check_scheme(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SourceError("A feed's address must begin with http:// or https://.")


async def _read(response: httpx.Response) -> bytes:
    """Return the body as it was meant; where it cannot be read beside an error's status, nothing."""
    assert isinstance(response.stream, httpx.AsyncByteStream)  # noqa: S101 - this client is asynchronous
    try:
        body = content_decoding.Body(response.headers.get("content-encoding", ""), MOST_BYTES)
        async for chunk in response.stream:  # what came over the wire, not decoded by httpx
            body.feed(chunk)
        return body.finish()
    except UnreadableAnswer:
        if response.is_success:
            raise
        return b""


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
        raise _TransientError(f"the name cannot be resolved ({error})") from None
    return [str(entry[4][0]) for entry in found]
