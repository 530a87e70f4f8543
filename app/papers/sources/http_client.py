"""The polite HTTP client for all sources. No other module in this package uses httpx.

It identifies itself, observes rate limits (see `host_rate_limits`), retries after transient faults, and gives
up after a time limit.

Responses are limited in time and in size. If a user entered the URL, or another host redirected to it, the
host name is resolved once, all its addresses are checked, and the connection is made to one of them.
"""

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from importlib.metadata import version
from urllib.parse import urljoin, urlsplit

import httpx
import stamina

from app import clock
from app.errors import SourceError, UnreadableResponse
from app.papers.sources import content_decoding
from app.papers.sources.allowed_addresses import Allowed
from app.papers.sources.host_rate_limits import ARXIV, TOO_MANY, Pacing, Sleep, retry_after, service_of
from app.text import characters

TIMEOUT = httpx.Timeout(None, connect=10)  # seconds; `asyncio.timeout` limits the whole response
RESPONSE_SECONDS = 60.0  # for a whole response, including connection, headers and body
CONCURRENT_REQUESTS = 10  # each may use up to MAX_RESPONSE_BYTES of memory
MAX_RESPONSE_BYTES = 20_000_000
MAX_EXCERPT_BYTES = 2000  # of an error's body
EXCERPT_SECONDS = 2.0  # for the excerpt after the headers
EXCERPT_LENGTH = 200  # of an error's body in a message
MAX_ADDRESSES = 4  # tried per host
MAX_REDIRECTS = 5
_UNKNOWN_NAME = (socket.EAI_NONAME, socket.EAI_NODATA)
ATTEMPTS = 3
_ARXIV_ERROR = re.compile(rb"<feed\b.*?<summary[^<>]*>([^<]{1,200})", re.DOTALL)
_VALIDATOR = re.compile(r"[ -~]{1,500}")  # other values cannot be sent in a header, or are too long
REDIRECTS = (301, 302, 303, 307, 308)
_RETRY = stamina.AsyncRetryingCaller(ATTEMPTS, timeout=None, wait_initial=1, wait_max=10)

Resolve = Callable[[str, int], Awaitable[list[str]]]


@dataclass(frozen=True, slots=True)
class HttpTransport:
    """The functions that send requests, resolve names and sleep. Tests pass their own."""

    transport: httpx.AsyncBaseTransport | None = None
    sleep: Sleep = asyncio.sleep
    resolve: Resolve | None = None
    response_seconds: float = RESPONSE_SECONDS
    timeout_fix: str = ""  # ends the error after a timeout: how to raise `response_seconds`


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A successful response. `changed` is False after 304 Not Modified."""

    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    changed: bool = True
    etag: str | None = None
    last_modified: str | None = None
    base_url: str = ""  # of relative links in the body: the last URL, without credentials and query


@dataclass(frozen=True, slots=True)
class PostReply:
    """A response to `deliver`, whatever its status."""

    status: int
    excerpt: str  # the beginning of an error's body, up to MAX_EXCERPT_BYTES
    wait: timedelta | None  # the wait that the host asked for


class _StalledError(SourceError):
    """A timeout before the response headers. Perhaps only this connection was lost."""


class _TransientError(Exception):
    """A fault after which a retry may succeed. `wait` is the pause that the host requested."""

    def __init__(
        self, host: str, problem: str, wait: timedelta | None = None, status: int | None = None
    ) -> None:
        super().__init__(f"{host}: {problem}")
        self.wait, self.status = wait, status


@dataclass
class Client:
    """A client for one run, created by `open_client`.

    `http` connects to any address, through the environment's proxy if there is one. `checked` connects
    directly, and only to addresses that are public or `allowed`.
    """

    http: httpx.AsyncClient
    checked: httpx.AsyncClient
    pacing: Pacing
    response_seconds: float
    timeout_fix: str = ""
    allowed: Allowed = field(default_factory=Allowed)
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

        Each attempt may take `response_seconds`. After a timeout before the response headers, there is one
        more attempt, on a new connection.

        If `public_only`, the addresses of the host must be public or allowed. After a redirect to another
        host, always check the addresses of that host.
        """
        url = _normalized_url(url, params)
        service = service_of(url)
        conditions = {"If-None-Match": etag, "If-Modified-Since": last_modified}
        headers = {name: value for name, value in conditions.items() if value and _VALIDATOR.fullmatch(value)}
        async with self.pacing.lock(service):
            self.pacing.check_open(service)
            try:
                return await _RETRY(
                    _TransientError, self._get_once, url, headers, public_only, follow_redirects
                )
            except _TransientError as fault:
                retry_at = self.pacing.end_of(fault.wait) if fault.wait else None
                raise SourceError(str(fault), retry_at=retry_at, status=fault.status) from None

    async def post(self, url: str, content: dict[str, object], token: str = "") -> HttpResponse:
        """Send a POST request with JSON. Do not retry it or follow redirects, which could leak the token.

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
        """Send a POST request once to a host that is public or allowed. Do not follow redirects.

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
            response.status_code,
            _excerpt(answer, MAX_EXCERPT_BYTES),
            retry_after(response.headers, clock.utcnow()),
        )

    async def _get_once(
        self, url: str, headers: dict[str, str], public_only: bool, follow_redirects: bool
    ) -> HttpResponse:
        service = service_of(url)
        for _ in range(MAX_REDIRECTS):
            _check_scheme(url)
            host = service_of(url)
            if service != ARXIV == host:  # the request would bypass arXiv's lock
                raise SourceError(f"{service} redirects to arXiv: add a source of the kind “arxiv” instead.")
            await self.pacing.wait_for_turn(host)
            check = public_only or host != service
            allowed = (urlsplit(url).hostname or "").lower() in self.allowed.hosts
            http = self.checked if check and not allowed else self.http
            try:
                response, body = await self._exchange(http, "GET", url, headers)
            except _StalledError:
                await self.pacing.wait_for_turn(host)
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
        """Return a response and the result of `read` (by default, the decoded body of the response).

        Raise _TransientError after a transport error, SourceError after a timeout or another HTTP error.
        """
        has_headers = False
        try:
            async with (
                self._slots,
                asyncio.timeout(self.response_seconds),
                http.stream(method, url, headers=headers, content=content) as response,
            ):
                has_headers = True
                return response, await (read or _read_body)(response)
        except TimeoutError:
            problem = f"no complete response within {self.response_seconds:g} seconds"
            fix = f": {self.timeout_fix}" if self.timeout_fix else ""
            kind = SourceError if has_headers else _StalledError
            raise kind(f"{service_of(url)}: {problem}{fix}.") from None
        except httpx.TransportError as error:
            reason = re.sub(r"\[Errno -?\d+\] ", "", str(error))
            problem = f"no response ({type(error).__name__}: {reason})"
            raise _TransientError(service_of(url), problem) from None
        except httpx.HTTPError as error:
            raise SourceError(f"{service_of(url)}: {error}") from None
        finally:
            self.pacing.note_request(service_of(url))

    def _interpret(self, response: httpx.Response, body: bytes) -> HttpResponse:
        host, status, headers = service_of(str(response.url)), response.status_code, response.headers
        wait = self.pacing.note_response(host, status, headers)
        validators = {"etag": headers.get("etag"), "last_modified": headers.get("last-modified")}
        if status == 304:
            return HttpResponse(b"", headers, changed=False, **validators)
        if 200 <= status < 300:
            base_url = str(response.url.copy_with(userinfo=b"", query=None))
            return HttpResponse(body, headers, **validators, base_url=base_url)
        if status == TOO_MANY or status >= 500:
            raise _TransientError(host, f"HTTP {status}", wait, status)
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
                f"{host} has a private address: to allow it, add the host to PAPERBOY_ALLOW_PRIVATE_SOURCES "
                "and restart the service."
            )
        if not addresses:
            raise _TransientError(host, "the host name has no address")
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
    product = f"Paperboy/{version('paperboy')}"
    headers = {"User-Agent": f"{product} ({contact})", "Accept-Encoding": content_decoding.ACCEPTED}
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
        pacing = Pacing(now, transport.sleep)
        yield Client(http, direct, pacing, transport.response_seconds, transport.timeout_fix, allowed)


def _normalized_url(url: str, params: Mapping[str, str | int] | None) -> str:
    try:
        return str(httpx.URL(url, params=params) if params else httpx.URL(url))
    except httpx.InvalidURL as error:
        raise SourceError(f"This is not a valid URL: {error}.") from None


def _check_scheme(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SourceError("The URL must begin with http:// or https://, and contain a host.")


async def _read_body(response: httpx.Response) -> bytes:
    """Return the decoded body, or b"" if the body of an error response cannot be decoded."""
    assert isinstance(response.stream, httpx.AsyncByteStream)  # noqa: S101 - this client is asynchronous
    try:
        body = content_decoding.Body(response.headers.get("content-encoding", ""), MAX_RESPONSE_BYTES)
        async for chunk in response.stream:  # raw bytes, not decoded by httpx
            body.feed(chunk)
        return body.finish()
    except UnreadableResponse:
        if response.is_success:
            raise
        return b""


async def _read_beginning(response: httpx.Response) -> bytes:
    """Return the beginning of an error's body without reading the rest, or b"" after a success.

    If the body is slow or incomplete, return what has arrived: the status and the headers matter more.
    """
    beginning = b""
    if not response.is_success:
        with suppress(TimeoutError, httpx.TransportError):
            async with asyncio.timeout(EXCERPT_SECONDS):
                async for chunk in response.aiter_raw():
                    beginning += chunk
                    if len(beginning) >= MAX_EXCERPT_BYTES:
                        break
    return beginning


def _without_token(token: str, text: str) -> str:
    """Remove the token from a message, because h11 and some servers quote the request headers."""
    return text.replace(token.strip(), "…") if token.strip() else text


def _excerpt(body: bytes, length: int = EXCERPT_LENGTH) -> str:
    """Return the beginning of an error in plain text or JSON, or the summary of arXiv's error feed.

    Return "" for HTML, which begins with markup.
    """
    text = characters.safe_line(body[:length].decode("utf-8", "replace"))
    if not text.startswith("<"):
        return text
    summary = _ARXIV_ERROR.search(body[:MAX_EXCERPT_BYTES])
    text = summary[1].decode("utf-8", "replace") if summary else ""
    return characters.safe_line(characters.unescape_html(text))


async def _resolve(host: str, port: int) -> list[str]:
    loop = asyncio.get_running_loop()
    try:
        entries = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        problem = f"the name could not be resolved ({reason})"
        if getattr(error, "errno", None) in _UNKNOWN_NAME:
            problem = f"DNS does not find this name ({reason}): check its spelling"
        raise _TransientError(host, problem) from None
    return [str(entry[4][0]) for entry in entries]
