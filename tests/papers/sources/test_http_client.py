"""Test the polite HTTP client: identification, rate limits, timeouts and retries."""

import asyncio
import gzip
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import datetime, timedelta
from importlib.metadata import version

import httpx
import pytest
import stamina

from app.errors import SourceError, UnreadableResponse
from app.papers.sources import http_client
from app.papers.sources.host_rate_limits import retry_after
from app.papers.sources.http_client import Client, HttpTransport, PostReply
from tests.support.http_server import FakeHttpServer

Answer = Callable[[httpx.Request], httpx.Response]
URL = "https://huggingface.co/api/daily_papers"


@pytest.fixture(autouse=True)
def _no_waiting() -> Iterator[None]:
    """Retry without pauses."""
    stamina.set_testing(True, attempts=3)
    yield
    stamina.set_testing(False)


class Upstream(FakeHttpServer):
    """A fake server that also records the pauses of the client."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        super().__init__(*answers)
        self.waits: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)

    def call(self, now: datetime, work: Callable[[Client], Awaitable[object]]) -> object:
        """Call a function with a client whose requests go to this server."""

        async def run() -> object:
            wire = HttpTransport(httpx.MockTransport(self), self.sleep, _resolve)
            async with http_client.open_client("ops@paperboy.test", now, wire) as polite:
                return await work(polite)

        return asyncio.run(run())

    def get(self, now: datetime, url: str = URL, **options: object) -> http_client.HttpResponse:
        return self.call(now, lambda polite: polite.get(url, **options))  # type: ignore[arg-type,return-value]


async def _no_sleep(_seconds: float) -> None:
    """Return immediately instead of sleeping."""


async def _resolve(host: str, port: int) -> list[str]:
    return {"inside.test": ["10.0.0.7"], "both.test": ["93.184.215.14", "::1"]}.get(host, ["93.184.215.14"])


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (socket.gaierror(socket.EAI_NONAME, "unknown"), "DNS does not find .*: check its spelling"),
        (socket.gaierror(socket.EAI_NODATA, "no data"), "DNS does not find .*: check its spelling"),
        (socket.gaierror(socket.EAI_AGAIN, "try later"), r"could not be resolved \(try later\)\.?$"),
    ],
)
def test_name_is_not_resolved(
    monkeypatch: pytest.MonkeyPatch, now: datetime, error: OSError, problem: str
) -> None:
    """A fault of the resolver, or of the network, is no spelling mistake."""

    def fail(*_args: object, **_options: object) -> None:
        raise error

    monkeypatch.setattr(socket, "getaddrinfo", fail)

    async def fetch() -> None:
        wire = HttpTransport(httpx.MockTransport(lambda _: httpx.Response(200)), _no_sleep)
        async with http_client.open_client("ops@paperboy.test", now, wire) as polite:
            await polite.get("https://birds.test/", public_only=True)

    with pytest.raises(SourceError, match=problem):
        asyncio.run(fetch())


def test_user_agent_has_a_contact_address(now: datetime) -> None:
    upstream = Upstream(httpx.Response(200, content=b"[]"))
    assert upstream.get(now, params={"p": 1}).body == b"[]"
    assert upstream.requests[0].headers["user-agent"] == f"Paperboy/{version('paperboy')} (ops@paperboy.test)"
    assert upstream.requests[0].url.params["p"] == "1"


@pytest.mark.parametrize("public_only", [False, True])
def test_first_byte_may_take_as_long_as_the_response(now: datetime, public_only: bool) -> None:
    """Silence had a limit of its own, so PAPERBOY_SOURCE_TIMEOUT_SECONDS did not help with a slow host."""
    upstream = Upstream(httpx.Response(200))
    upstream.get(now, public_only=public_only)
    [request] = upstream.requests
    assert request.extensions["timeout"] == {"connect": 10, "read": None, "write": None, "pool": None}


@pytest.mark.parametrize("stalled", [1, 2])
def test_stalled_connection_is_replaced_once(now: datetime, stalled: int) -> None:
    """A single lost connection does not fail a poll, and a silent host takes only two timeouts."""
    requests = []

    async def respond(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        await asyncio.sleep(10 if len(requests) <= stalled else 0)
        return httpx.Response(200, content=b"[]")

    async def fetch() -> http_client.HttpResponse:
        transport = HttpTransport(httpx.MockTransport(respond), _no_sleep, _resolve, response_seconds=0.1)
        async with http_client.open_client("ops@paperboy.test", now, transport) as polite:
            return await polite.get(URL)

    if stalled == 1:
        assert asyncio.run(fetch()).body == b"[]"
    else:
        with pytest.raises(SourceError, match=r"no complete response within 0\.1 seconds\.$"):
            asyncio.run(fetch())
    assert len(requests) == 2


def test_conditional_requests(now: datetime) -> None:
    """ETag and Last-Modified are sent back to the source."""
    upstream = Upstream(httpx.Response(304, headers={"etag": '"b"'}))
    reply = upstream.get(now, etag='"a"', last_modified="Fri, 20 Nov 2026 00:00:00 GMT")
    assert not reply.changed
    assert upstream.requests[0].headers["if-none-match"] == '"a"'
    assert upstream.requests[0].headers["if-modified-since"] == "Fri, 20 Nov 2026 00:00:00 GMT"
    fresh = Upstream(httpx.Response(200, headers={"etag": '"c"'}))
    assert fresh.get(now).etag == '"c"'


def test_base_url(now: datetime) -> None:
    """Relative links belong to the last URL. Its credentials and its query stay secret."""
    upstream = Upstream(
        httpx.Response(302, headers={"location": "https://alice:pass@b.test/feeds/new?token=secret"}),
        httpx.Response(200, text="[]"),
    )
    assert upstream.get(now, "https://a.test/").base_url == "https://b.test/feeds/new"


@pytest.mark.parametrize("validator", ['"März"', "Fr, 05 Mär 2026", '"' + 9_000 * "a" + '"', "a\tb"])
def test_validators_that_cannot_be_sent_back(now: datetime, validator: str) -> None:
    """The request is sent without them. A source that uses them could never be read again."""
    upstream = Upstream(httpx.Response(200, text="[]"))
    assert upstream.get(now, etag=validator, last_modified=validator).changed
    assert not {"if-none-match", "if-modified-since"} & {*upstream.requests[0].headers}


@pytest.mark.parametrize(
    "fault",
    [httpx.ConnectError("refused"), httpx.ReadTimeout("slow"), httpx.Response(502), httpx.Response(503)],
)
def test_temporary_error_is_retried(now: datetime, fault: httpx.Response | Exception) -> None:
    """The caller does not notice it."""
    upstream = Upstream(fault, fault, httpx.Response(200, content=b"[]"))
    assert upstream.get(now).body == b"[]"
    assert len(upstream.requests) == 3


@pytest.mark.parametrize("fault", [httpx.ConnectError("refused"), httpx.Response(500)])
def test_permanent_error_is_raised(now: datetime, fault: httpx.Response | Exception) -> None:
    """The error is raised after three attempts."""
    upstream = Upstream(fault)
    with pytest.raises(SourceError, match=r"huggingface\.co"):
        upstream.get(now)
    assert len(upstream.requests) == 3


def test_client_error_is_not_retried(now: datetime) -> None:
    upstream = Upstream(httpx.Response(400, content=b'{"error":"Invalid date"}'))
    with pytest.raises(SourceError, match=r"HTTP 400.*Invalid date"):
        upstream.get(now)
    assert len(upstream.requests) == 1


def test_error_has_no_html(now: datetime) -> None:
    upstream = Upstream(httpx.Response(404, content=b"<!DOCTYPE HTML>\n<html><title>Not Found</title>"))
    with pytest.raises(SourceError, match=r"HTTP 404\.$"):
        upstream.get(now)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [({"RateLimit": '"api";r=0;t=55'}, 56), ({"Retry-After": "7"}, 7)],
)
def test_retry_after_is_respected(now: datetime, headers: dict[str, str], seconds: int) -> None:
    """Hugging Face sends the end of its rate limit's window."""
    upstream = Upstream(httpx.Response(429, headers=headers), httpx.Response(200))
    upstream.get(now)
    [wait] = upstream.waits
    assert seconds - 1 < wait <= seconds


@pytest.mark.parametrize(
    ("ratelimit", "seconds"),
    [
        ('"api";r=0;t=55', 56),
        ('"day"; t=90; r=0', 91),
        ('"hour";r=0;t=50, "day";r=0;t=90', 91),
        ('"hour";r=0;t=50, "day";r=4990;t=86000', 51),
        ('"month";r=0;t=999999', 86400),
        ('"day";r=4990;t=86000', None),
        ('"day";r=05;t=55', None),
        ('"day";r=0', None),
        ("limit=100, remaining=0, reset=50", None),
    ],
)
def test_only_exhausted_rate_limits_ask_for_a_wait(
    now: datetime, ratelimit: str, seconds: int | None
) -> None:
    """Many servers send the header with each response, with the end of a long window."""
    wait = retry_after({"ratelimit": ratelimit}, now)
    assert wait == (timedelta(seconds=seconds) if seconds else None)


def test_exhausted_rate_limit_delays_the_next_request(now: datetime) -> None:
    """The last successful response says so."""

    async def twice(polite: Client) -> None:
        await polite.get(URL)
        await polite.get(URL)

    upstream = Upstream(httpx.Response(200, headers={"RateLimit": '"api";r=0;t=9'}))
    upstream.call(now, twice)
    assert len(upstream.waits) == 1


def test_long_retry_after_is_raised(now: datetime) -> None:
    """The run does not sleep for an hour; the error has the time of the next attempt."""
    upstream = Upstream(httpx.Response(503, headers={"Retry-After": "3600"}))
    with pytest.raises(SourceError) as caught:
        upstream.get(now)
    assert caught.value.retry_at == now + timedelta(hours=1)
    assert upstream.waits == []


def test_arxiv_rate_limit(now: datetime) -> None:
    """This holds for concurrent requests to both interfaces together."""

    async def many(polite: Client) -> None:
        urls = ["https://export.arxiv.org/api/query", "https://rss.arxiv.org/atom/cs.AI"] * 3
        await asyncio.gather(*(polite.get(url) for url in urls))

    upstream = Upstream(httpx.Response(200))
    upstream.call(now, many)
    assert upstream.most_active == 1
    assert len(upstream.waits) == 6
    assert all(2.5 < wait <= 3 for wait in upstream.waits)


def test_arxiv_429_blocks_for_ten_minutes(now: datetime) -> None:
    """This holds for both interfaces; no more requests are sent."""

    async def both(polite: Client) -> list[object]:
        urls = ["https://export.arxiv.org/api/query", "https://rss.arxiv.org/atom/cs.AI"]
        return await asyncio.gather(*(polite.get(url) for url in urls), return_exceptions=True)

    upstream = Upstream(httpx.Response(429))
    faults = upstream.call(now, both)
    assert [fault.retry_at for fault in faults] == [now + timedelta(minutes=10)] * 2  # type: ignore[attr-defined]
    assert len(upstream.requests) == 1


def test_block_starts_at_the_429(now: datetime) -> None:
    """Nine minutes into a run, a stop counted from the run's start would last one minute instead of ten."""

    async def late(polite: Client) -> None:
        polite.pacing.started -= 9 * 60
        await polite.get("https://export.arxiv.org/api/query")

    with pytest.raises(SourceError) as caught:
        Upstream(httpx.Response(429)).call(now, late)
    assert caught.value.retry_at == now + timedelta(minutes=19)


def test_response_size_limit(now: datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Responses have a maximum size."""
    monkeypatch.setattr(http_client, "MAX_RESPONSE_BYTES", 1000)
    with pytest.raises(UnreadableResponse):
        Upstream(httpx.Response(200, content=b"x" * 2000)).get(now)


@pytest.mark.parametrize("encoding", ["gzip", "x-gzip", "GZIP", "identity", ""])
def test_gzip_with_trailing_bytes(now: datetime, encoding: str) -> None:
    """Bytes after the end of the gzip data are ignored."""
    body = gzip.compress(b"<rss/>" * 9999) + b"\0\0" if "zip" in encoding.lower() else b"<rss/>" * 9999
    headers = {"content-encoding": encoding} if encoding else {}
    upstream = Upstream(httpx.Response(200, headers=headers, stream=httpx.ByteStream(body)))
    assert upstream.get(now).body == b"<rss/>" * 9999
    assert upstream.requests[0].headers["accept-encoding"] == "gzip"


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "gopher://a.test", "https://", "nonsense", "http://[::1"]
)
def test_only_http_urls_are_allowed(now: datetime, url: str) -> None:
    """An operator may enter any URL."""
    upstream = Upstream(httpx.Response(200))
    with pytest.raises(SourceError):
        upstream.get(now, url)
    assert upstream.requests == []


@pytest.mark.parametrize("host", ["inside.test", "both.test"])
def test_private_addresses_are_refused(now: datetime, host: str) -> None:
    """One private address among several is enough, unless the operator allows it."""
    moved = Upstream(httpx.Response(302, headers={"location": f"http://{host}/secrets"}))
    with pytest.raises(SourceError, match="private"):
        moved.get(now, "https://feeds.test/rss", public_only=True)
    assert len(moved.requests) == 1
    allowed = Upstream(httpx.Response(200, content=b"ok"))
    assert allowed.get(now, f"http://{host}/rss").body == b"ok"


def test_redirects(now: datetime) -> None:
    """Redirect loops end with an error."""
    moved = Upstream(httpx.Response(301, headers={"location": "/new"}), httpx.Response(200, content=b"ok"))
    assert moved.get(now, "https://feeds.test/old").body == b"ok"
    with pytest.raises(SourceError, match="redirects"):
        Upstream(httpx.Response(302, headers={"location": "/again"})).get(now)


def test_post_is_not_redirected_or_retried(now: datetime) -> None:
    """A redirect could leak the token, and a retry could cost money."""
    for answer in (
        httpx.Response(307, headers={"location": "https://elsewhere.test/"}),
        httpx.Response(503, headers={"retry-after": "1"}, text="your token s3cr3t was fine"),
        httpx.ReadTimeout("too slow"),
    ):
        upstream = Upstream(answer)
        with pytest.raises(SourceError) as error:
            upstream.call(now, lambda polite: polite.post("https://model.test/v1", {"n": 1}, "s3cr3t"))
        assert "s3cr3t" not in str(error.value)
        [request] = upstream.requests
        assert request.headers["authorization"] == "Bearer s3cr3t"
        assert request.content == b'{"n":1}'
    failing = Upstream(httpx.LocalProtocolError("Illegal header value b'Bearer s3cr3t\\n'"))
    with pytest.raises(SourceError, match="Bearer …"):
        failing.call(now, lambda polite: polite.post("https://model.test/v1", {}, "s3cr3t\n"))
    plain = Upstream(httpx.Response(200, content=b"{}"))
    assert plain.call(now, lambda polite: polite.post("https://model.test/v1", {})).body == b"{}"
    assert "authorization" not in plain.requests[0].headers


async def _stalled_body() -> AsyncIterator[bytes]:
    yield b"this hook "
    yield b"is gone"
    await asyncio.Event().wait()


async def _body_cut_off() -> AsyncIterator[bytes]:
    yield b"this hook is gone"
    raise httpx.RemoteProtocolError("peer closed connection without sending complete message body")


async def _endless_body() -> AsyncIterator[bytes]:
    while True:
        yield b"this hook is gone"


@pytest.mark.parametrize("body", [_stalled_body, _body_cut_off, _endless_body])
def test_delivery_needs_only_the_beginning_of_a_body(
    now: datetime, body: Callable[[], AsyncIterator[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The status and the requested wait are known as soon as the headers have arrived."""
    monkeypatch.setattr(http_client, "EXCERPT_SECONDS", 0.01)
    upstream = Upstream(httpx.Response(410, headers={"retry-after": "60"}, content=body()))
    reply = upstream.call(now, lambda polite: polite.deliver("https://hooks.test/", b"{}", {}))
    assert isinstance(reply, PostReply)
    assert (reply.status, reply.wait) == (410, timedelta(minutes=1))
    assert reply.excerpt.startswith("this hook is gone")
    assert len(reply.excerpt) <= http_client.MAX_EXCERPT_BYTES
