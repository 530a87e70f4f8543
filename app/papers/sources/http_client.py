"""The polite HTTP client for all sources. No other module in this package uses httpx.

It identifies itself, observes rate limits, retries after transient faults, and gives up after a time limit.
arXiv allows one request every three seconds on one connection, for all its interfaces together. A lock makes
requests to arXiv sequential, and after its first 429 no requests are sent to it for ten minutes.

Responses are limited in time and in size. If a user entered the URL, or another host redirected to it, its
host is resolved once. All its addresses are checked, and the connection is made to one of them.
"""

from __future__ import annotations

import asyncio
import json
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
TIMEOUT = httpx.Timeout(30, connect=10)  # seconds without receiving a byte
ANSWER_SECONDS = 60.0  # for a whole response, including connection, headers and body
CONCURRENT_REQUESTS = 10  # each may use up to MAX_RESPONSE_BYTES of memory
MAX_RESPONSE_BYTES = 20_000_000
MAX_EXCERPT_BYTES = 1000
MAX_ADDRESSES = 4  # tried per host
MAX_REDIRECTS = 5
ATTEMPTS = 3
LONGEST_WAIT = timedelta(minutes=5, seconds=10)  # Hugging Face's rate limit has windows of five minutes
ARXIV_PAUSE = timedelta(seconds=3)
ARXIV_STOP = timedelta(minutes=10)
LONGEST_STATED_WAIT = timedelta(days=1)  # a host that asks for more is asked again after this
REDIRECTS = (301, 302, 303, 307, 308)
TOO_MANY, UNAVAILABLE = 429, 503
_RETRY = stamina.AsyncRetryingCaller(ATTEMPTS, timeout=None, wait_initial=1, wait_max=10)

Sleep = Callable[[float], Awaitable[None]]
Resolve = Callable[[str, int], Awaitable[list[str]]]


@dataclass(frozen=True, slots=True)
class HttpTransport:
    """The functions that send requests, resolve names and sleep. Tests pass their own."""

    transport: httpx.AsyncBaseTransport | None = None
    sleep: Sleep = asyncio.sleep
    resolve: Resolve | None = None
    answer_seconds: float = ANSWER_SECONDS


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A successful response. `changed` is False after 304 Not Modified."""

    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    changed: bool = True
    etag: str | None = None
    last_modified: str | None = None


@dataclass(frozen=True, slots=True)
class PostReply:
    """A response to `deliver`, whatever its status."""

    status: int
    excerpt: str  # of the text of an error
    wait: timedelta | None  # that the host asked for


class _TransientError(Exception):
    """A fault after which a retry may succeed. `wait` is the pause that the host requested."""

    def __init__(self, host: str, problem: str, wait: timedelta | None = None) -> None:
        super().__init__(f"{host}: {problem}")
        self.wait = wait


@dataclass
class Client:
    """A client for one run, created by `open_client`. `now` is the time at which the run began.

    `http` connects to any address, through the environment's proxy if there is one. `checked` connects
    directly, and only to addresses that are public or `allowed`.
    """

    http: httpx.AsyncClient
    checked: httpx.AsyncClient
    now: datetime
    transport: HttpTransport
    allowed: Allowed = field(default_factory=Allowed)
    started: float = field(default_factory=time.monotonic)
    _locks: dict[str, asyncio.Lock] = field(default_factory=dict)
    _next_request_at: dict[str, float] = field(default_factory=dict)
    _closed_until: dict[str, datetime] = field(default_factory=dict)
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CONCURRENT_REQUESTS))

    async def get(
        self,
        url: str,
        *,
        params: Mapping[str, str | int] | None = None,
        etag: str | None = None,
        last_modified: str | None = None,
        public_only: bool = False,
        follow_redirects: bool = True,
    ) -> HttpResponse:
        """Send a GET request within the rate limits. Raise SourceError if there is no successful response.

        With `public_only`, the addresses of the host must be public or allowed. After a redirect to another
        host, this always applies.
        """
        url = _normalized_url(url, params)
        service = service_of(url)
        conditions = {"If-None-Match": etag, "If-Modified-Since": last_modified}
        headers = {name: value for name, value in conditions.items() if value}
        async with self._locks.setdefault(service, asyncio.Lock()):
            if until := self._closed_until.get(service):
                raise SourceError(f"{service} asked for fewer requests.", retry_at=until)
            try:
                return await _RETRY(
                    _TransientError, self._get_once, url, headers, public_only, follow_redirects
                )
            except _TransientError as fault:
                retry_at = self._after(fault.wait) if fault.wait else None
                raise SourceError(str(fault), retry_at=retry_at) from None

    async def post(self, url: str, content: dict[str, object], token: str = "") -> HttpResponse:
        """Send a POST request with JSON. It is not retried or redirected, because that could leak the token.

        Raise SourceError unless the response is successful.
        """
        _check_scheme(url)
        headers = {"Content-Type": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        try:
            response, body = await self._exchange(
                self.http,
                "POST",
                _normalized_url(url, None),
                headers,
                json.dumps(content, separators=(",", ":")).encode(),
            )
        except _TransientError as fault:
            raise SourceError(_without_token(token, str(fault))) from None
        if 200 <= response.status_code < 300:
            return HttpResponse(body, response.headers)
        message = f"{service_of(url)}: HTTP {response.status_code}. {_excerpt(body)}".strip()
        raise SourceError(_without_token(token, message))

    async def deliver(self, url: str, body: bytes, headers: Mapping[str, str]) -> PostReply:
        """Send a POST request to a host that must be public or allowed, once, without following redirects.

        Raise SourceError if there is no response in time.
        """
        _check_scheme(url := _normalized_url(url, None))
        allowed = (urlsplit(url).hostname or "").lower() in self.allowed.hosts
        sent = {**headers, "Accept-Encoding": "identity"}
        try:
            response, answer = await self._exchange(
                self.http if allowed else self.checked, "POST", url, sent, body, _read_beginning
            )
        except _TransientError as fault:
            raise SourceError(str(fault)) from None
        return PostReply(
            response.status_code, _excerpt(answer), retry_after(response.headers, clock.utcnow())
        )

    def _after(self, wait: timedelta) -> datetime:
        """Return the end of a wait that begins now.

        A run may last for many minutes, so the whole minutes since its start are added to `now`.
        """
        return self.now + timedelta(minutes=(time.monotonic() - self.started) // 60) + wait

    async def _get_once(
        self, url: str, headers: dict[str, str], public_only: bool, follow_redirects: bool
    ) -> HttpResponse:
        service = service_of(url)
        for _ in range(MAX_REDIRECTS):
            _check_scheme(url)
            host = service_of(url)
            if service != ARXIV == host:  # the request would bypass arXiv's lock
                raise SourceError(f"{service} redirects to arXiv: add a source of the kind “arxiv” instead.")
            if host == ARXIV and host not in self._next_request_at:  # the previous run may have just sent one
                await self.transport.sleep(ARXIV_PAUSE.total_seconds())
            elif (wait := self._next_request_at.get(host, 0) - time.monotonic()) > 0:
                await self.transport.sleep(wait)
            check = public_only or host != service
            allowed = (urlsplit(url).hostname or "").lower() in self.allowed.hosts
            http = self.checked if check and not allowed else self.http
            response, body = await self._exchange(http, "GET", url, headers)
            is_redirect = response.status_code in REDIRECTS and "location" in response.headers
            if not (is_redirect and follow_redirects):
                return self._interpret(response, body)
            try:
                url = _normalized_url(urljoin(url, response.headers["location"]), None)
            except ValueError:
                raise SourceError(f"{host} redirects to an invalid URL.") from None
        raise SourceError(f"{service_of(url)}: too many redirects.")

    async def _exchange(
        self,
        http: httpx.AsyncClient,
        method: str,
        url: str,
        headers: Mapping[str, str],
        content: bytes | None = None,
        read: Callable[[httpx.Response], Awaitable[bytes]] | None = None,
    ) -> tuple[httpx.Response, bytes]:
        """Return a response and its body, or what `read` returns of it.

        Raise _TransientError after a transport error, SourceError after a timeout or another HTTP error.
        """
        timeout = self.transport.answer_seconds
        try:
            async with (
                self._slots,
                asyncio.timeout(timeout),
                http.stream(method, url, headers=headers, content=content) as response,
            ):
                return response, await (read or _read_body)(response)
        except TimeoutError:
            raise SourceError(
                f"{service_of(url)}: no complete response within {timeout:g} seconds."
            ) from None
        except httpx.TransportError as error:
            problem = f"no response ({type(error).__name__}: {error})"
            raise _TransientError(service_of(url), problem) from None
        except httpx.HTTPError as error:
            raise SourceError(f"{service_of(url)}: {error}") from None
        finally:
            if service_of(url) == ARXIV:
                self._next_request_at[ARXIV] = time.monotonic() + ARXIV_PAUSE.total_seconds()

    def _interpret(self, response: httpx.Response, body: bytes) -> HttpResponse:
        host, status, headers = service_of(str(response.url)), response.status_code, response.headers
        if "r=0" in headers.get("ratelimit", "") and (pause := retry_after(headers, clock.utcnow())):
            self._next_request_at[host] = time.monotonic() + pause.total_seconds()
        validators = {"etag": headers.get("etag"), "last_modified": headers.get("last-modified")}
        if status == 304:
            return HttpResponse(b"", headers, changed=False, **validators)
        if 200 <= status < 300:
            return HttpResponse(body, headers, **validators)
        if host == ARXIV and status == TOO_MANY:
            self._closed_until[host] = until = self._after(ARXIV_STOP)
            raise SourceError("arXiv asked for fewer requests.", retry_at=until)
        wait = retry_after(headers, clock.utcnow())
        if wait and status in (TOO_MANY, UNAVAILABLE):
            if wait > LONGEST_WAIT:
                self._closed_until[host] = until = self._after(wait)
                raise SourceError(f"{host}: HTTP {status}; it asked for fewer requests.", retry_at=until)
            self._next_request_at[host] = time.monotonic() + wait.total_seconds()
        if status == TOO_MANY or status >= 500:
            raise _TransientError(host, f"HTTP {status}", wait)
        raise SourceError(f"{host}: HTTP {status}. {_excerpt(body)}".strip(), status=status)


class _CheckedTransport(httpx.AsyncBaseTransport):
    """A transport that resolves the host of each request once and connects to one of its checked addresses.

    The host name is still used in the Host header, in SNI and to verify the certificate. Connections must not
    be kept alive, because the pool finds them by address, and two names may share an address.
    """

    def __init__(self, inner: httpx.AsyncBaseTransport, resolve: Resolve, allowed: Allowed) -> None:
        self._inner, self._resolve, self._allowed = inner, resolve, allowed

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        url, host = request.url, request.url.raw_host.decode("ascii")
        addresses = await self._resolve(host, url.port or (443 if url.scheme == "https" else 80))
        if not all(map(self._allowed.permits, addresses)):
            raise SourceError(
                f"{host} has a private address: to allow it, add it to PAPERBOY_ALLOW_PRIVATE_SOURCES."
            )
        if not addresses:
            raise _TransientError(host, "the name has no address")
        *others, last = list(dict.fromkeys(addresses))[:MAX_ADDRESSES]
        for address in others:
            with suppress(httpx.ConnectError, httpx.ConnectTimeout):
                return await self._send(request, address)
        return await self._send(request, last)

    async def aclose(self) -> None:
        await self._inner.aclose()

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
    contact: str, now: datetime, transport: HttpTransport, allowed: Allowed | None = None
) -> AsyncIterator[Client]:
    """Open the client for one run. The User-Agent header gives operators of sources the `contact` address."""
    allowed = allowed or Allowed()
    headers = {"User-Agent": f"{PRODUCT} ({contact})", "Accept-Encoding": content_decoding.ACCEPTED}
    context = True if transport.transport else httpx.create_ssl_context()
    no_keepalive = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    inner = transport.transport or httpx.AsyncHTTPTransport(verify=context, limits=no_keepalive)
    checked = _CheckedTransport(inner, transport.resolve or _resolve, allowed)
    keepalive = httpx.Limits(max_connections=None, max_keepalive_connections=5)
    async with (
        httpx.AsyncClient(
            headers=headers, timeout=TIMEOUT, limits=keepalive, transport=transport.transport, verify=context
        ) as http,
        httpx.AsyncClient(headers=headers, timeout=TIMEOUT, transport=checked, trust_env=False) as direct,
    ):
        yield Client(http, direct, now, transport, allowed)


def retry_after(headers: Mapping[str, str], now: datetime) -> timedelta | None:
    """Return the requested wait, from Retry-After (seconds or date) or `RateLimit: "api";r=0;t=55`."""
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
    reset = re.search(r"\bt=(\d{1,6})", headers.get("ratelimit", ""))
    return timedelta(seconds=int(reset.group(1)) + 1) if reset else None


def _normalized_url(url: str, params: Mapping[str, str | int] | None) -> str:
    try:
        return str(httpx.URL(url, params=params) if params else httpx.URL(url))
    except httpx.InvalidURL as error:
        raise SourceError(f"This is not a valid URL: {error}.") from None


def service_of(url: str) -> str:
    """Return the host of a URL, or ARXIV for any of arXiv's hosts, which share one rate limit."""
    host = (urlsplit(url).hostname or "").lower().rstrip(".")
    return ARXIV if host == ARXIV or host.endswith(f".{ARXIV}") else host


def _check_scheme(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SourceError("A feed's address must begin with http:// or https://.")


async def _read_body(response: httpx.Response) -> bytes:
    """Return the decoded body, or b"" if the body of an error response cannot be decoded."""
    assert isinstance(response.stream, httpx.AsyncByteStream)  # noqa: S101 - this client is asynchronous
    try:
        body = content_decoding.Body(response.headers.get("content-encoding", ""), MAX_RESPONSE_BYTES)
        async for chunk in response.stream:  # raw bytes, not decoded by httpx
            body.feed(chunk)
        return body.finish()
    except UnreadableAnswer:
        if response.is_success:
            raise
        return b""


async def _read_beginning(response: httpx.Response) -> bytes:
    """Return the first bytes of the body of an error. The rest, and the body of a success, is not read."""
    if response.is_success:
        return b""
    async for chunk in response.aiter_raw(MAX_EXCERPT_BYTES):
        return chunk
    return b""


def _without_token(token: str, text: str) -> str:
    """Remove the token from a message, because some servers, and h11, repeat what they received."""
    return text.replace(token.strip(), "…") if token.strip() else text


def _excerpt(body: bytes) -> str:
    """Return the beginning of an error in plain text or JSON. A page in HTML begins with nothing of use."""
    text = " ".join(body[:200].decode("utf-8", "replace").split())
    return "" if text.startswith("<") else text


async def _resolve(host: str, port: int) -> list[str]:
    loop = asyncio.get_running_loop()
    try:
        entries = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise _TransientError(host, f"the name cannot be resolved ({error})") from None
    return [str(entry[4][0]) for entry in entries]
