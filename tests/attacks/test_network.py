"""Test hostile servers: compression bombs, endless responses, private addresses. Only their own source
fails.
"""

import asyncio
import signal
import socket
import ssl
import threading
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import httpx
import pytest
import stamina
import trustme
import uvicorn
from sqlmodel import select

from app import clock, pipeline
from app.application import Application
from app.bounces import imap_mailbox
from app.cli import serve
from app.errors import InvalidInput, SourceError, UnreadableResponse
from app.jobs import schedule, scheduler
from app.jobs.schedule import Job
from app.papers import poll_schedule, polling, source_registry
from app.papers.sources import allowed_addresses, deadlines, feed, http_client
from app.papers.sources.allowed_addresses import Allowed
from app.papers.sources.http_client import HttpResponse, HttpTransport
from app.storage import locks
from app.storage.models import GeneratedSummary, JobRun, Lock, Paper, Source
from app.types import ParseResult, SourceKind
from tests.delivery.test_presence import DEAD
from tests.papers.sources import responses
from tests.support import factories
from tests.support.hostile_server import HostileServer
from tests.support.http_server import FakeHttpServer

HERE = ("127.0.0.0/8",)
PUBLIC = "93.184.215.14"
MEGABYTE = 1_000_000
TODAY = date(2026, 11, 20)

pytestmark = pytest.mark.usefixtures("no_retries")


@pytest.fixture
def stranger() -> Iterator[HostileServer]:
    with HostileServer() as server:
        yield server


def fetch(
    now: datetime, wire: HttpTransport, url: str, allowed: Allowed | None = None, **options: object
) -> HttpResponse:
    """Send one request with a new client."""

    async def work() -> HttpResponse:
        async with http_client.open_client("ops@paperboy.test", now, wire, allowed) as polite:
            return await polite.get(url, **options)  # type: ignore[arg-type]

    return asyncio.run(work())


def raw(content: bytes, encoding: str, status: int = 200) -> httpx.Response:
    """Return a response with raw, undecoded bytes."""
    return httpx.Response(status, headers={"content-encoding": encoding}, stream=httpx.ByteStream(content))


# --- bombs


def gzip_bomb(blocks: int = 370) -> bytes:
    """Return gzip data that expands to zeros: 6.2 GB from 6 MB by default."""
    packing = zlib.compressobj(9, wbits=16 + zlib.MAX_WBITS)
    zeros = bytes(1 << 24)
    head = packing.compress(zeros) + packing.flush(zlib.Z_FULL_FLUSH)
    block = packing.compress(zeros) + packing.flush(zlib.Z_FULL_FLUSH)
    return head + block * (blocks - 1)


def gzipped(content: bytes) -> bytes:
    packing = zlib.compressobj(9, wbits=16 + zlib.MAX_WBITS)
    return packing.compress(content) + packing.flush()


def peak_memory_mb(work: Callable[[], object]) -> float:
    """Return the peak of Python's memory in megabytes during a call."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1] / MEGABYTE
    finally:
        tracemalloc.stop()


def fetch_error(now: datetime, answer: httpx.Response, why: str) -> Callable[[], object]:
    def work() -> None:
        with pytest.raises(UnreadableResponse, match=why):
            fetch(now, HttpTransport(httpx.MockTransport(lambda _: answer)), "https://birds.test/rss")

    return work


def test_nested_gzip_is_refused(now: datetime) -> None:
    """Less than ten kilobytes would expand to 6.2 GB."""
    twice = gzipped(gzip_bomb())
    assert len(twice) < 10_000
    assert peak_memory_mb(fetch_error(now, raw(twice, "gzip, gzip"), "'gzip, gzip'")) < 5


def test_gzip_bomb_is_decompressed_only_to_the_limit(now: datetime) -> None:
    """Six megabytes with a single coding would expand to as much."""
    answer = raw(gzip_bomb(), "gzip")
    assert peak_memory_mb(fetch_error(now, answer, "larger than 20 MB")) < 80


def test_other_codings_and_truncated_data_are_refused(now: datetime) -> None:
    for encoding in ("br", "deflate", "zstd", "gzip, identity", "identity, gzip"):
        fetch_error(now, raw(gzipped(b"<rss/>"), encoding), "was requested")()
    fetch_error(now, raw(gzipped(b"<rss/>" * 900)[:-20], "gzip"), "cut off")()
    fetch_error(now, raw(b"<rss/>", "gzip"), "cannot be decompressed")()


def test_error_status_counts_with_any_body(now: datetime) -> None:
    """arXiv's 429 stops all requests for ten minutes, even if its body is in Brotli."""
    wire = HttpTransport(httpx.MockTransport(lambda _: raw(b"\x0b\x02\x80", "br", 429)), sleep=_no_sleep)
    with pytest.raises(SourceError) as caught:
        fetch(now, wire, "https://rss.arxiv.org/atom/cs.AI")
    assert caught.value.retry_at == now + timedelta(minutes=10)


async def _no_sleep(_seconds: float) -> None:
    """Return immediately instead of sleeping."""


# --- what takes the process down with it


class ProcessKilled(BaseException):
    """The process was killed: no code after this runs."""


def add_feeds(app: Application, now: datetime, *urls: str) -> list[int]:
    """Add feeds that are due, as the only polled sources. Return their ids."""
    with app.db.write() as session:
        return [
            source_registry.add(session, url[-90:], SourceKind.FEED, {"url": url}, now).id or 0
            for url in urls
        ]


def get_source(app: Application, number: int) -> Source:
    with app.db.read() as session:
        return source_registry.get(session, number)


def with_handler(app: Application, handler: Callable[[httpx.Request], httpx.Response]) -> Application:
    return replace(app, http=HttpTransport(httpx.MockTransport(handler), resolve=_resolve))


async def _resolve(host: str, port: int) -> list[str]:
    return [PUBLIC]


def test_the_next_poll_is_postponed_before_a_poll(app: Application, now: datetime) -> None:
    """It stays postponed even if the process is killed during this poll."""
    [number] = add_feeds(app, now, "https://bomb.test/rss")
    during_poll = []

    def handler(_request: httpx.Request) -> httpx.Response:
        during_poll.append(get_source(app, number))
        return httpx.Response(200, text=responses.RSS)

    pipeline.refresh(with_handler(app, handler), now)
    (during,) = during_poll
    assert during.next_poll_at
    assert during.next_poll_at >= now + timedelta(minutes=5)
    assert (during.failures, during.last_error) == (0, source_registry.UNFINISHED)
    after = get_source(app, number)
    assert (after.failures, after.last_error, after.next_poll_at) == (0, None, now + timedelta(hours=1))


def test_a_source_that_kills_the_process_is_polled_less_and_less(app: Application, now: datetime) -> None:
    """The process restarts every five minutes for hours, and all other sources are polled."""
    bombs, *others = add_feeds(
        app, now, "https://bomb.test/rss", "https://birds.test/1", "https://birds.test/2"
    )
    deaths = []

    def handler(request: httpx.Request) -> httpx.Response:
        if request.headers["host"] == "bomb.test":
            deaths.append(len(deaths))
            raise ProcessKilled
        return httpx.Response(200, text=responses.RSS)

    for minutes in range(0, 6 * 60, 5):
        with suppress(ProcessKilled):
            pipeline.refresh(with_handler(app, handler), now + timedelta(minutes=minutes))
        if minutes == 15:
            assert all(get_source(app, number).polled_at for number in others)
    assert len(deaths) == 5
    assert get_source(app, bombs).failures == len(deaths) - 1
    polled = [get_source(app, number).polled_at for number in others]
    assert all(at and at > now + timedelta(hours=4) for at in polled)


def test_lease_of_a_killed_process_is_taken_over(app: Application, now: datetime) -> None:
    """The lease is still valid, but the process lock is gone."""
    [number] = add_feeds(app, now, "https://birds.test/rss")
    with app.db.write() as session:
        lease = poll_schedule.lease_of(source_registry.get(session, number))
        assert locks.acquire(session, lease, DEAD, now, timedelta(minutes=15))
    assert pipeline.refresh(with_handler(app, lambda _: httpx.Response(200, text=responses.RSS)), now).polled
    assert get_source(app, number).polled_at == now


@pytest.mark.postgres
def test_sources_are_due_by_the_databases_clock(
    app: Application, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine whose clock is a day ahead does not delay the polls of other machines."""
    [number] = add_feeds(app, now - timedelta(minutes=5), "https://birds.test/rss")
    right = clock.system_time
    monkeypatch.setattr(clock, "system_time", lambda: right() + timedelta(days=1))
    pipeline.refresh(
        with_handler(app, lambda _: httpx.Response(200, text=responses.RSS)), now + timedelta(days=1)
    )
    polled_at = get_source(app, number).polled_at
    assert polled_at
    assert abs(polled_at - now) < timedelta(minutes=1)


# --- servers that never end


def allow_localhost(app: Application, **wire: object) -> Application:
    """Return the application with this machine as an allowed address."""
    settings = app.settings.model_copy(update={"allow_private_sources": HERE})
    return replace(app, settings=settings, http=HttpTransport(**wire))  # type: ignore[arg-type]


@pytest.mark.parametrize(("path", "attempts"), [("/head", 2), ("/body", 1)])
def test_response_has_one_deadline(now: datetime, stranger: HostileServer, path: str, attempts: int) -> None:
    """A server that sent one byte in 20 seconds met all timeouts and blocked a run for 12 minutes."""
    with pytest.raises(SourceError, match=r"within 0\.2 seconds: be patient\.$"):
        fetch(now, HttpTransport(response_seconds=0.2, timeout_fix="be patient"), stranger.url + path)
    assert stranger.paths == [path] * attempts


def test_slow_source_does_not_delay_others(app: Application, now: datetime, stranger: HostileServer) -> None:
    """The others are stored meanwhile; it fails alone at its deadline."""
    slow, good = add_feeds(app, now, f"{stranger.url}/body", f"{stranger.url}/rss?")
    stored = threading.Event()

    def enough() -> bool:
        if get_source(app, good).polled_at:
            stored.set()
        return stored.is_set()

    stranger.enough = enough
    with app.db.write() as session:  # another host
        source_registry.get(session, good).config = {"url": f"http://localhost:{stranger.port}/rss"}
    refreshed = pipeline.refresh(allow_localhost(app, response_seconds=30), now)
    assert stored.is_set()
    assert [name[-5:] for name in refreshed.failed] == ["/body"]
    assert refreshed.summary.papers_new == 2
    assert get_source(app, slow).failures == 1


def test_source_can_be_refreshed_while_another_hangs(
    app: Application, now: datetime, stranger: HostileServer
) -> None:
    """Each source has its own lease. Stopping ends the hanging poll."""
    app = allow_localhost(app)
    slow, good = add_feeds(app, now, f"{stranger.url}/body", f"http://localhost:{stranger.port}/rss")
    with app.db.write() as session:
        source_registry.get(session, good).next_poll_at = now + timedelta(hours=1)
    hanging = threading.Thread(target=pipeline.refresh, args=(app, now))
    hanging.start()
    assert stranger.trickling.wait(30)
    assert pipeline.refresh(app, now, source_id=slow).busy
    assert pipeline.refresh(app, now, source_id=good).summary.papers_new == 2
    app.stopping.set()
    hanging.join()
    assert get_source(app, slow).next_poll_at == now
    with app.db.read() as session:
        assert session.exec(select(Lock)).all() == []


def test_a_source_has_a_deadline_in_each_run(
    app: Application, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pages read by then are stored, and the next poll continues there soon."""
    passed = [0.0]
    for module in (polling, deadlines):
        monkeypatch.setattr(module, "monotonic", lambda: passed[0])

    async def handler(request: httpx.Request) -> httpx.Response:
        day = request.url.params["date"]
        if day == "2026-11-19":
            passed[0] += 601
            await asyncio.Event().wait()
        row = responses.hf_row(f"2611.000{day[-2:]}", f"Of {day}", submittedOnDailyAt=f"{day}T01:00:00Z")
        return httpx.Response(200, text=responses.hf(row))

    app = replace(app, http=HttpTransport(httpx.MockTransport(handler)))
    with app.db.write() as session:
        number = source_registry.add(session, "Days", SourceKind.HUGGINGFACE, {}, now).id or 0
        source_registry.get(session, number).failures = 3
    assert pipeline.refresh(app, now).failed == {"Days": poll_schedule.TIMED_OUT}
    left = get_source(app, number)
    assert (left.watermark, left.failures) == (TODAY - timedelta(days=2), 1)
    assert left.next_poll_at == now + timedelta(minutes=5)


def test_arxiv_interfaces_share_one_lease(app: Application, now: datetime) -> None:
    """Its terms allow one connection."""
    peer = FakeHttpServer(httpx.Response(200, text=responses.RSS))
    app = replace(app, http=HttpTransport(httpx.MockTransport(peer), _no_sleep, _resolve))
    with app.db.write() as session:
        source_registry.add(session, "Query", SourceKind.ARXIV, {"query": "all:owl"}, now)
        source_registry.add(session, "Daily", SourceKind.ARXIV_FEED, {"categories": ["cs.AI"]}, now)
        source_registry.add(
            session, "By hand", SourceKind.FEED, {"url": "https://rss.arxiv.org/rss/cs.AI"}, now
        )
        locks.acquire(session, "arxiv.org", "another process", now, timedelta(minutes=15))
    assert pipeline.refresh(app, now).busy
    [other] = add_feeds(app, now, "https://birds.test/rss")
    assert pipeline.refresh(app, now).polled == ("https://birds.test/rss",)
    assert get_source(app, other).polled_at == now
    moved = httpx.Response(302, headers={"location": "https://export.arxiv.org/api/query"})
    with pytest.raises(SourceError, match="redirects to arXiv"):
        fetch(now, HttpTransport(httpx.MockTransport(FakeHttpServer(moved))), "https://birds.test/rss")


# --- stopping


@pytest.mark.once
def test_sigterm_during_a_slow_response(
    app: Application, now: datetime, stranger: HostileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM once had no effect for 90 seconds."""
    app = allow_localhost(app)
    [number] = add_feeds(app, now, f"{stranger.url}/body")
    monkeypatch.setattr(schedule, "JOBS", (Job(pipeline.refresh, minute="0"),))
    with scheduler.running(app) as background:
        background.get_job("refresh").modify(next_run_time=datetime.now(UTC))
        assert stranger.trickling.wait(30)
    assert "stopped" in (get_source(app, number).last_error or "")
    with app.db.read() as session:
        assert session.exec(select(JobRun.error)).all() == [""]


@pytest.mark.once
@pytest.mark.parametrize(
    "answer", [httpx.Response(500), httpx.Response(429, headers={"retry-after": "299"})], ids=["500", "429"]
)
def test_stop_interrupts_the_wait_before_a_retry(
    app: Application, now: datetime, answer: httpx.Response
) -> None:
    """The wait may be seconds, or five minutes if the source requests it."""
    stamina.set_testing(False)
    add_feeds(app, now, "https://birds.test/rss")
    requests = []

    def handler(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        app.stopping.set()
        return answer

    assert pipeline.refresh(with_handler(app, handler), now).failed == {}
    assert len(requests) == 1
    assert pipeline.refresh(with_handler(app, handler), now).polled == (), "nothing is begun"


@pytest.mark.once
def test_stop_does_not_wait_for_a_feed_parser(
    app: Application, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parsing a hostile feed may take a child process ten seconds of CPU time."""
    [number] = add_feeds(app, now, "https://birds.test/rss")
    read, stopped = threading.Event(), threading.Event()

    def parse(*_: object) -> ParseResult:
        app.stopping.set()
        stopped.wait(20)
        read.set()
        return ParseResult(0, ())

    monkeypatch.setattr(feed, "parse", parse)
    pipeline.refresh(with_handler(app, lambda _: httpx.Response(200, text=responses.RSS)), now)
    assert not read.is_set()
    stopped.set()
    assert "stopped" in (get_source(app, number).last_error or "")


@pytest.mark.once
def test_stop_does_not_wait_for_dns(app: Application, now: datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's resolver cannot be interrupted and takes half a minute to give up."""
    add_feeds(app, now, "https://birds.test/rss")
    resolved = threading.Event()

    def getaddrinfo(*_arguments: object, **_options: object) -> list[object]:
        app.stopping.set()
        resolved.wait(60)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    assert pipeline.refresh(app, now).failed == {}
    resolved.set()


@pytest.mark.once
def test_stop_interrupts_a_language_model_request(app: Application, now: datetime) -> None:
    """The next run requests the summary again."""
    with app.db.write() as session:
        paper_ids = factories.add_source(session, now)
        factories.add_paper(
            session, paper_ids, "Bookmark", now=now, abstract="We keep pages.", listed_on=now.date()
        )

    async def never(_request: httpx.Request) -> httpx.Response:
        app.stopping.set()
        await asyncio.Event().wait()
        raise AssertionError

    fields = {"summary_url": "https://model.test/v1", "summary_model": "small-1"}
    app = replace(
        app, settings=app.settings.model_copy(update=fields), http=HttpTransport(httpx.MockTransport(never))
    )
    assert pipeline.summarise(app, now) == {"written": 0, "rejected": 0}
    with app.db.read() as session:
        assert session.exec(select(GeneratedSummary)).all() == []
        assert session.exec(select(JobRun.error)).all() == [""]


@pytest.mark.once
@pytest.mark.parametrize("how", ["stopping", "deadline"])
def test_slow_imap_server_is_abandoned(
    app: Application, now: datetime, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """A server that sends single bytes never exceeds the timeout of the connection."""
    ended = threading.Event()

    def trickle(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with suppress(OSError), connection:
            connection.sendall(b"* OK ready\r\n")
            connection.recv(1000)
            if how == "stopping":
                app.stopping.set()
            while not ended.wait(0.02):
                connection.sendall(b"x")

    if how == "deadline":
        monkeypatch.setattr(imap_mailbox, "MAX_SESSION", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        answering = threading.Thread(target=trickle, args=(listening,))
        answering.start()
        url = f"imap://bounces:hunter2@127.0.0.1:{listening.getsockname()[1]}/"
        app = replace(app, settings=app.settings.model_copy(update={"bounce_mailbox": url}))
        pipeline.read_bounces(app, now)
        ended.set()
        answering.join()
    with app.db.read() as session:
        assert len(session.exec(select(JobRun)).all()) == (how == "deadline")


@pytest.mark.once
def test_web_server_signals_shutdown_immediately() -> None:
    """Otherwise it first waits for requests, such as a refresh through the API."""
    stopping = threading.Event()
    server = serve.Server(uvicorn.Config(app=lambda: None, log_config=None), stopping)  # type: ignore[arg-type]
    server.handle_exit(signal.SIGTERM, None)
    assert stopping.is_set()
    assert server.should_exit


# --- addresses


INSIDE = [
    "127.0.0.1", "10.0.0.7", "172.16.3.4", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.1",
    "198.18.0.1", "192.0.0.8", "192.0.2.1", "192.88.99.1", "224.0.0.1", "239.255.255.250", "240.0.0.1",
    "255.255.255.255", "::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:10.0.0.7",
    "::ffff:0:127.0.0.1", "64:ff9b::127.0.0.1", "64:ff9b::10.0.0.7", "64:ff9b:1::127.0.0.1",
    "2002:7f00:1::", "2002:a00:7::1", "2001:0:7f00:1::1", "2001:db8::1", "3fff::1", "100::1", "5f00::1",
    "fc00::1", "fd12::1", "fe80::1%eth0", "fec0::1", "ff02::1", "ff0e::1",
]  # fmt: skip
OUTSIDE = [PUBLIC, "1.1.1.1", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::1.1.1.1", "2001:4860:4860::8888"]


@pytest.mark.parametrize("address", INSIDE)
def test_private_addresses_are_refused_in_any_form(now: datetime, address: str) -> None:
    """They are refused alone and beside a public one, without any connection."""

    async def resolve(host: str, port: int) -> list[str]:
        return [PUBLIC, address]

    peer = FakeHttpServer(httpx.Response(200))
    with pytest.raises(SourceError, match="private"):
        fetch(
            now,
            HttpTransport(httpx.MockTransport(peer), resolve=resolve),
            "http://a.test/",
            public_only=True,
        )
    assert peer.requests == []


def test_public_addresses_are_allowed() -> None:
    """This includes IPv4 addresses in NAT64, which networks without IPv4 need."""
    assert [address for address in OUTSIDE if not Allowed().permits(address)] == []
    assert Allowed.parse(["10.0.0.0/8", "wiki.lab"]).permits("::ffff:10.0.0.7")
    assert not Allowed.parse(["10.0.0.0/8", "wiki.lab"]).permits("192.168.1.1")
    assert allowed_addresses.Allowed.parse(["Wiki.Lab"]).hosts == {"wiki.lab"}


@pytest.mark.parametrize(
    "host", ["127.1", "2130706433", "0x7f000001", "017700000001", "[::127.0.0.1]", "[::ffff:7f00:1]", "[::]"]
)
def test_spellings_of_localhost_are_refused(now: datetime, host: str) -> None:
    """The operating system accepts numbers in several notations."""
    peer = FakeHttpServer(httpx.Response(200))
    with pytest.raises(SourceError):
        fetch(now, HttpTransport(httpx.MockTransport(peer)), f"http://{host}/", public_only=True)
    assert peer.requests == []


def test_dns_rebinding_is_prevented(now: datetime) -> None:
    """The name is resolved once, and the connection goes to the checked address."""
    addresses = iter([[PUBLIC], ["127.0.0.1"]])

    async def rebinding(host: str, port: int) -> list[str]:
        return next(addresses)

    peer = FakeHttpServer(httpx.Response(200, content=b"ok"))
    wire = HttpTransport(httpx.MockTransport(peer), resolve=rebinding)
    assert fetch(now, wire, "https://feeds.test/rss", public_only=True).body == b"ok"
    (request,) = peer.requests
    assert request.url == f"https://{PUBLIC}/rss"
    assert request.headers["host"] == "feeds.test"
    assert request.extensions["sni_hostname"] == "feeds.test"
    with pytest.raises(SourceError, match="private"):
        fetch(now, wire, "https://feeds.test/rss", public_only=True)


def test_unreachable_address_falls_back_to_the_next(now: datetime) -> None:
    """A machine without IPv6 reaches a host that has IPv6 and IPv4."""

    async def two(host: str, port: int) -> list[str]:
        return ["2606:4700::1111", PUBLIC]

    peer = FakeHttpServer(httpx.ConnectError("no route"), httpx.Response(200, content=b"ok"))
    wire = HttpTransport(httpx.MockTransport(peer), resolve=two)
    assert fetch(now, wire, "https://feeds.test/rss", public_only=True).body == b"ok"
    assert [request.url.host for request in peer.requests] == ["2606:4700::1111", PUBLIC]


@pytest.mark.once
def test_certificate_is_checked_against_the_name(
    now: datetime, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The connection is to an address."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("feeds.test").configure_cert(context)
    named: list[str | None] = []
    context.sni_callback = lambda _socket, name, _context: named.append(name)

    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    with HostileServer(context) as stranger:
        wire, allowed = HttpTransport(resolve=resolve), Allowed.parse(HERE)
        good = f"https://feeds.test:{stranger.port}/rss"
        assert b"Owls" in fetch(now, wire, good, allowed, public_only=True).body
        with pytest.raises(SourceError, match="CERTIFICATE_VERIFY_FAILED"):
            fetch(now, wire, good.replace("feeds", "other"), allowed, public_only=True)
    assert named == ["feeds.test", "other.test"]
    assert stranger.hosts == [f"feeds.test:{stranger.port}"]


@pytest.mark.once
def test_proxy_settings_of_the_environment_are_ignored(
    now: datetime, stranger: HostileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy would resolve the name by itself."""
    monkeypatch.setenv("HTTP_PROXY", stranger.url)
    with pytest.raises(SourceError, match="private"):
        fetch(now, HttpTransport(), "http://localhost:1/rss", public_only=True)
    assert stranger.paths == []


def test_redirects_to_other_hosts_are_checked(now: datetime) -> None:
    """An open redirect of a known service may lead anywhere."""
    moved = FakeHttpServer(
        httpx.Response(302, headers={"location": "http://169.254.169.254/latest/meta-data"})
    )
    with pytest.raises(SourceError, match="private"):
        fetch(now, HttpTransport(httpx.MockTransport(moved)), "https://huggingface.co/api/daily_papers")
    assert len(moved.requests) == 1
    for location in ("http://[::1", "file:///etc/passwd", "gopher://a.test"):
        nowhere = FakeHttpServer(httpx.Response(302, headers={"location": location}))
        with pytest.raises(SourceError):
            fetch(now, HttpTransport(httpx.MockTransport(nowhere)), "https://huggingface.co/api/daily_papers")
        assert len(nowhere.requests) == 1


@pytest.mark.parametrize("allow", [True, False])
def test_api_keys_cannot_allow_private_addresses(app: Application, now: datetime, allow: bool) -> None:
    """Only the operator can, in the settings."""
    config = {"url": "http://wiki.lab/rss", "allow_private": allow}
    with app.db.write() as session, pytest.raises(InvalidInput, match="PAPERBOY_ALLOW_PRIVATE_SOURCES"):
        source_registry.add(session, "Wiki", SourceKind.FEED, config, now)


def test_operator_can_allow_private_addresses(
    app: Application, now: datetime, stranger: HostileServer
) -> None:
    """The setting accepts networks and names; the error of a refused feed names the setting."""
    by_name = f"http://localhost:{stranger.port}/rss"
    numbers = add_feeds(app, now, f"{stranger.url}/rss", by_name)
    # A value stored before it became a setting has no effect.
    with app.db.write() as session:
        source_registry.get(session, numbers[0]).config = {
            "url": f"{stranger.url}/rss",
            "allow_private": True,
        }
    failed = pipeline.refresh(app, now).failed
    assert len(failed) == 2
    assert all("PAPERBOY_ALLOW_PRIVATE_SOURCES" in why for why in failed.values())
    assert stranger.paths == []
    later = now + timedelta(hours=1)
    settings = app.settings.model_copy(update={"allow_private_sources": ("127.0.0.1", "localhost")})
    assert pipeline.refresh(replace(app, settings=settings), later).failed == {}
    with app.db.write() as session:
        assert len(session.exec(select(Paper)).all()) == 2
        source_registry.resume(session, source_registry.get(session, numbers[0]), later)
