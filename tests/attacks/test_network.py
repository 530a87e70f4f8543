"""Servers of strangers that send bombs, never end, or lead inside: nothing but their own source suffers."""

from __future__ import annotations

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

from app import clock, pipeline, scheduler
from app.application import Application
from app.bounces import imap_mailbox
from app.cli import service
from app.errors import InvalidInput, SourceError, UnreadableAnswer
from app.papers import polling, source_registry
from app.papers.sources import allowed_addresses, deadlines, feed, http_client
from app.papers.sources.allowed_addresses import Allowed
from app.papers.sources.http_client import HttpResponse, HttpTransport
from app.scheduler import Job
from app.storage import locks
from app.storage.models import GeneratedSummary, JobRun, Lock, Paper, Source
from app.types import ParseResult, SourceKind
from tests import shelves
from tests.attacks.stranger import Stranger
from tests.peer import Peer
from tests.sources import answers
from tests.test_presence import DEAD

HERE = ("127.0.0.0/8",)
PUBLIC = "93.184.215.14"
MEGABYTE = 1_000_000
TODAY = date(2026, 11, 20)


@pytest.fixture(autouse=True)
def _once() -> Iterator[None]:
    """Nothing is tried again."""
    stamina.set_testing(True, attempts=1)
    yield
    stamina.set_testing(False)


@pytest.fixture
def stranger() -> Iterator[Stranger]:
    with Stranger() as server:
        yield server


def ask(
    now: datetime, wire: HttpTransport, url: str, allowed: Allowed | None = None, **options: object
) -> HttpResponse:
    """One request of a run of its own."""

    async def work() -> HttpResponse:
        async with http_client.open_client("ops@paperboy.test", now, wire, allowed) as polite:
            return await polite.get(url, **options)  # type: ignore[arg-type]

    return asyncio.run(work())


def raw(content: bytes, encoding: str, status: int = 200) -> httpx.Response:
    """An answer as it comes over the wire."""
    return httpx.Response(status, headers={"content-encoding": encoding}, stream=httpx.ByteStream(content))


# --- bombs


def bomb(blocks: int = 370) -> bytes:
    """Zeros in gzip, 6.2 GB of them by default, in 6 MB."""
    packing = zlib.compressobj(9, wbits=16 + zlib.MAX_WBITS)
    zeros = bytes(1 << 24)
    head = packing.compress(zeros) + packing.flush(zlib.Z_FULL_FLUSH)
    block = packing.compress(zeros) + packing.flush(zlib.Z_FULL_FLUSH)
    return head + block * (blocks - 1)


def packed(content: bytes) -> bytes:
    packing = zlib.compressobj(9, wbits=16 + zlib.MAX_WBITS)
    return packing.compress(content) + packing.flush()


def peak_of(work: Callable[[], object]) -> float:
    """The most megabytes that Python held during some work."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1] / MEGABYTE
    finally:
        tracemalloc.stop()


def refused(now: datetime, answer: httpx.Response, why: str) -> Callable[[], object]:
    def work() -> None:
        with pytest.raises(UnreadableAnswer, match=why):
            ask(now, HttpTransport(httpx.MockTransport(lambda _: answer)), "https://birds.test/rss")

    return work


def test_gzip_within_gzip_is_not_even_begun(now: datetime) -> None:
    """Less than ten kilobytes, which became 6.2 GB."""
    twice = packed(bomb())
    assert len(twice) < 10_000
    assert peak_of(refused(now, raw(twice, "gzip, gzip"), "'gzip, gzip'")) < 5


def test_a_bomb_is_decompressed_to_the_limit_and_no_further(now: datetime) -> None:
    """Six megabytes, of which one coding makes as much."""
    answer = raw(bomb(), "gzip")
    assert peak_of(refused(now, answer, "more than 20 MB")) < 80


def test_what_was_not_asked_for_is_refused(now: datetime) -> None:
    """One coding is understood, and it is complete."""
    for encoding in ("br", "deflate", "zstd", "gzip, identity", "identity, gzip"):
        refused(now, raw(packed(b"<rss/>"), encoding), "was asked for")()
    refused(now, raw(packed(b"<rss/>" * 900)[:-20], "gzip"), "cut off")()
    refused(now, raw(b"<rss/>", "gzip"), "cannot be decompressed")()


def test_the_status_of_an_error_counts_whatever_its_body_is(now: datetime) -> None:
    """arXiv's 429 stops everything for ten minutes, in Brotli, too."""
    wire = HttpTransport(httpx.MockTransport(lambda _: raw(b"\x0b\x02\x80", "br", 429)), sleep=_at_once)
    with pytest.raises(SourceError) as caught:
        ask(now, wire, "https://rss.arxiv.org/atom/cs.AI")
    assert caught.value.retry_at == now + timedelta(minutes=10)


async def _at_once(_seconds: float) -> None:
    """Waiting takes no time."""


# --- what takes the process down with it


class Killed(BaseException):
    """The process is gone: nothing after this is done."""


def feeds(app: Application, now: datetime, *urls: str) -> list[int]:
    """Feeds that are due, and nothing else that is polled."""
    with app.db.write() as session:
        return [
            source_registry.add(session, url[-90:], SourceKind.FEED, {"url": url}, now).id or 0
            for url in urls
        ]


def source(app: Application, number: int) -> Source:
    with app.db.read() as session:
        return source_registry.get(session, number)


def on(app: Application, handler: Callable[[httpx.Request], httpx.Response]) -> Application:
    return replace(app, http=HttpTransport(httpx.MockTransport(handler), resolve=_resolve))


async def _resolve(host: str, port: int) -> list[str]:
    return [PUBLIC]


def test_a_sources_turn_moves_on_before_it_is_asked(app: Application, now: datetime) -> None:
    """Whatever then becomes of the process."""
    [number] = feeds(app, now, "https://bomb.test/rss")
    seen = []

    def handler(_request: httpx.Request) -> httpx.Response:
        seen.append(source(app, number))
        return httpx.Response(200, text=answers.RSS)

    pipeline.refresh(on(app, handler), now)
    (during,) = seen
    assert during.next_poll_at
    assert during.next_poll_at >= now + timedelta(minutes=5)
    assert (during.failures, during.last_error) == (0, source_registry.UNFINISHED)
    after = source(app, number)
    assert (after.failures, after.last_error, after.next_poll_at) == (0, None, now + timedelta(hours=1))


def test_a_source_that_kills_the_process_is_asked_ever_less_often(app: Application, now: datetime) -> None:
    """Started again every five minutes for hours; the sources that died with it are read nevertheless."""
    bombs, *others = feeds(app, now, "https://bomb.test/rss", "https://birds.test/1", "https://birds.test/2")
    deaths = []

    def handler(request: httpx.Request) -> httpx.Response:
        if request.headers["host"] == "bomb.test":
            deaths.append(len(deaths))
            raise Killed
        return httpx.Response(200, text=answers.RSS)

    for minutes in range(0, 6 * 60, 5):
        with suppress(Killed):
            pipeline.refresh(on(app, handler), now + timedelta(minutes=minutes))
        if minutes == 15:
            assert all(source(app, number).polled_at for number in others)
    assert len(deaths) == 5
    assert source(app, bombs).failures == len(deaths) - 1
    polled = [source(app, number).polled_at for number in others]
    assert all(at and at > now + timedelta(hours=4) for at in polled)


def test_a_process_that_was_killed_delays_no_source(app: Application, now: datetime) -> None:
    """Its lease has minutes to run yet: the lock of the process is gone, so the next poll takes it."""
    [number] = feeds(app, now, "https://birds.test/rss")
    with app.db.write() as session:
        lease = source_registry.lease_of(source_registry.get(session, number))
        assert locks.acquire(session, lease, DEAD, now, timedelta(minutes=15))
    assert pipeline.refresh(on(app, lambda _: httpx.Response(200, text=answers.RSS)), now).polled
    assert source(app, number).polled_at == now


def test_sources_are_due_by_the_databases_clock(
    app: Application, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that is a day ahead does not put off what the others would ask within the hour."""
    if app.db.url.get_backend_name() == "sqlite":
        pytest.skip("SQLite has no clock of its own")
    [number] = feeds(app, now, "https://birds.test/rss")
    right = clock.system_time
    monkeypatch.setattr(clock, "system_time", lambda: right() + timedelta(days=1))
    pipeline.refresh(on(app, lambda _: httpx.Response(200, text=answers.RSS)), now + timedelta(days=1))
    polled_at = source(app, number).polled_at
    assert polled_at
    assert abs(polled_at - now) < timedelta(minutes=1)


# --- servers that never end


def local(app: Application, **wire: object) -> Application:
    """The application, to which this machine counts as public."""
    settings = app.settings.model_copy(update={"allow_private_sources": HERE})
    return replace(app, settings=settings, http=HttpTransport(**wire))  # type: ignore[arg-type]


@pytest.mark.parametrize("path", ["/head", "/body"])
def test_an_answer_has_one_deadline(now: datetime, stranger: Stranger, path: str) -> None:
    """A byte now and then was within every timeout: one in 20 seconds held everything up for 12 minutes."""
    with pytest.raises(SourceError, match=r"no whole answer within 0\.2 seconds"):
        ask(now, HttpTransport(answer_seconds=0.2), stranger.url + path)
    assert stranger.paths == [path]


def test_a_slow_source_does_not_hold_up_the_others(
    app: Application, now: datetime, stranger: Stranger
) -> None:
    """What they have is stored while it still trickles; it fails alone, by its deadline."""
    slow, good = feeds(app, now, f"{stranger.url}/body", f"{stranger.url}/rss?")
    stored = threading.Event()

    def enough() -> bool:
        if source(app, good).polled_at:
            stored.set()
        return stored.is_set()

    stranger.enough = enough
    with app.db.write() as session:  # another host
        source_registry.get(session, good).config = {"url": f"http://localhost:{stranger.port}/rss"}
    refreshed = pipeline.refresh(local(app, answer_seconds=30), now)
    assert stored.is_set()
    assert [name[-5:] for name in refreshed.failed] == ["/body"]
    assert refreshed.summary.papers_new == 2
    assert source(app, slow).failures == 1


def test_a_source_can_be_asked_while_another_one_hangs(
    app: Application, now: datetime, stranger: Stranger
) -> None:
    """An operator's refresh did nothing; each source has a lease of its own. Stopping ends what hangs."""
    app = local(app)
    slow, good = feeds(app, now, f"{stranger.url}/body", f"http://localhost:{stranger.port}/rss")
    with app.db.write() as session:
        source_registry.get(session, good).next_poll_at = now + timedelta(hours=1)
    hanging = threading.Thread(target=pipeline.refresh, args=(app, now))
    hanging.start()
    assert stranger.trickling.wait(30)
    assert pipeline.refresh(app, now, source_id=slow).busy
    assert pipeline.refresh(app, now, source_id=good).summary.papers_new == 2
    app.stopping.set()
    hanging.join()
    assert source(app, slow).next_poll_at == now
    with app.db.read() as session:
        assert session.exec(select(Lock)).all() == []


def test_a_source_has_a_deadline_in_each_run(
    app: Application, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much it has to tell: what was read is stored, and the next poll goes on there soon."""
    passed = [0.0]
    for module in (polling, deadlines):
        monkeypatch.setattr(module, "monotonic", lambda: passed[0])

    async def handler(request: httpx.Request) -> httpx.Response:
        day = request.url.params["date"]
        if day == "2026-11-19":
            passed[0] += 601
            await asyncio.Event().wait()
        row = answers.hf_row(f"2611.000{day[-2:]}", f"Of {day}", submittedOnDailyAt=f"{day}T01:00:00Z")
        return httpx.Response(200, text=answers.hf(row))

    app = replace(app, http=HttpTransport(httpx.MockTransport(handler)))
    with app.db.write() as session:
        number = source_registry.add(session, "Days", SourceKind.HUGGINGFACE, {}, now).id or 0
        source_registry.get(session, number).failures = 3
    assert pipeline.refresh(app, now).failed == {"Days": polling.UNENDED}
    left = source(app, number)
    assert (left.watermark, left.failures) == (TODAY - timedelta(days=2), 1)
    assert left.next_poll_at == now + timedelta(minutes=5)


def test_all_of_arxiv_is_one_party(app: Application, now: datetime) -> None:
    """Its terms allow one connection: whoever asks any interface of it holds the lease for all."""
    asked = Peer(httpx.Response(200, text=answers.RSS))
    app = replace(app, http=HttpTransport(httpx.MockTransport(asked), _at_once, _resolve))
    with app.db.write() as session:
        source_registry.add(session, "Query", SourceKind.ARXIV, {"query": "all:owl"}, now)
        source_registry.add(session, "Daily", SourceKind.ARXIV_FEED, {"categories": ["cs.AI"]}, now)
        source_registry.add(
            session, "By hand", SourceKind.FEED, {"url": "https://rss.arxiv.org/rss/cs.AI"}, now
        )
        locks.acquire(session, "arxiv.org", "another process", now, timedelta(minutes=15))
    assert pipeline.refresh(app, now).busy
    [other] = feeds(app, now, "https://birds.test/rss")
    assert pipeline.refresh(app, now).polled == ("https://birds.test/rss",)
    assert source(app, other).polled_at == now
    moved = httpx.Response(302, headers={"location": "https://export.arxiv.org/api/query"})
    with pytest.raises(SourceError, match="leads to arXiv"):
        ask(now, HttpTransport(httpx.MockTransport(Peer(moved))), "https://birds.test/rss")


# --- stopping


@pytest.mark.once
def test_the_schedule_stops_while_a_source_trickles(
    app: Application, now: datetime, stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM was not obeyed in 90 seconds."""
    app = local(app)
    [number] = feeds(app, now, f"{stranger.url}/body")
    monkeypatch.setattr(scheduler, "JOBS", (Job(pipeline.refresh, minute="0"),))
    background = scheduler.start(app)
    background.get_job("refresh").modify(next_run_time=datetime.now(UTC))
    assert stranger.trickling.wait(30)
    scheduler.stop(app, background)
    assert "stopped" in (source(app, number).last_error or "")
    with app.db.read() as session:
        assert session.exec(select(JobRun.error)).all() == [""]


@pytest.mark.once
@pytest.mark.parametrize(
    "answer", [httpx.Response(500), httpx.Response(429, headers={"retry-after": "299"})], ids=["500", "429"]
)
def test_stopping_interrupts_the_wait_before_another_attempt(
    app: Application, now: datetime, answer: httpx.Response
) -> None:
    """Of seconds, or of the five minutes that a source asks for."""
    stamina.set_testing(False)
    feeds(app, now, "https://birds.test/rss")
    asked = []

    def handler(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        app.stopping.set()
        return answer

    assert pipeline.refresh(on(app, handler), now).failed == {}
    assert len(asked) == 1
    assert pipeline.refresh(on(app, handler), now).polled == (), "nothing is begun"


@pytest.mark.once
def test_stopping_does_not_wait_for_a_feed_that_is_being_read(
    app: Application, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hostile one may take a child process ten seconds of CPU, and more by the clock."""
    [number] = feeds(app, now, "https://birds.test/rss")
    read, stopped = threading.Event(), threading.Event()

    def parse(*_: object) -> ParseResult:
        app.stopping.set()
        stopped.wait(20)
        read.set()
        return ParseResult(0, ())

    monkeypatch.setattr(feed, "parse", parse)
    pipeline.refresh(on(app, lambda _: httpx.Response(200, text=answers.RSS)), now)
    assert not read.is_set()
    stopped.set()
    assert "stopped" in (source(app, number).last_error or "")


@pytest.mark.once
def test_stopping_does_not_wait_for_a_name_server(
    app: Application, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operating system's resolver cannot be interrupted, and takes half a minute to give up."""
    feeds(app, now, "https://birds.test/rss")
    answered = threading.Event()

    def getaddrinfo(*_arguments: object, **_options: object) -> list[object]:
        app.stopping.set()
        answered.wait(60)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    assert pipeline.refresh(app, now).failed == {}
    answered.set()


@pytest.mark.once
def test_stopping_interrupts_a_language_model(app: Application, now: datetime) -> None:
    """The paper is asked about again as if nothing had been."""
    with app.db.write() as session:
        shelf = shelves.source(session, now)
        shelves.paper(session, shelf, "Bookmark", now=now, abstract="We keep pages.", listed_on=now.date())

    async def never(_request: httpx.Request) -> httpx.Response:
        app.stopping.set()
        await asyncio.Event().wait()
        raise AssertionError

    chosen = {"summary_url": "https://model.test/v1", "summary_model": "small-1"}
    app = replace(
        app, settings=app.settings.model_copy(update=chosen), http=HttpTransport(httpx.MockTransport(never))
    )
    assert pipeline.summarise(app, now) == {"written": 0, "rejected": 0}
    with app.db.read() as session:
        assert session.exec(select(GeneratedSummary)).all() == []
        assert session.exec(select(JobRun.error)).all() == [""]


@pytest.mark.once
@pytest.mark.parametrize("how", ["stopping", "deadline"])
def test_a_mailbox_that_never_answers_is_left(
    app: Application, now: datetime, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """A byte now and then is within the timeout of the connection."""
    ended = threading.Event()

    def trickle(listening: socket.socket) -> None:
        taken, _ = listening.accept()
        with suppress(OSError), taken:
            taken.sendall(b"* OK ready\r\n")
            taken.recv(1000)
            if how == "stopping":
                app.stopping.set()
            while not ended.wait(0.02):
                taken.sendall(b"x")

    if how == "deadline":
        monkeypatch.setattr(imap_mailbox, "LONGEST", 0.1)
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
def test_the_web_server_tells_of_its_end_at_once() -> None:
    """It waits for requests first, and a refresh that was asked for by the API is one."""
    stopping = threading.Event()
    server = service.Server(uvicorn.Config(app=lambda: None, log_config=None), stopping)  # type: ignore[arg-type]
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
def test_no_form_of_an_inner_address_passes(now: datetime, address: str) -> None:
    """Not alone, and not beside a public one; nothing is connected to."""

    async def resolve(host: str, port: int) -> list[str]:
        return [PUBLIC, address]

    asked = Peer(httpx.Response(200))
    with pytest.raises(SourceError, match="private"):
        ask(
            now,
            HttpTransport(httpx.MockTransport(asked), resolve=resolve),
            "http://a.test/",
            public_only=True,
        )
    assert asked.asked == []


def test_public_addresses_pass() -> None:
    """IPv4 through NAT64, too: a network without IPv4 knows no other."""
    assert [address for address in OUTSIDE if not Allowed().permits(address)] == []
    assert Allowed.parse(["10.0.0.0/8", "wiki.lab"]).permits("::ffff:10.0.0.7")
    assert not Allowed.parse(["10.0.0.0/8", "wiki.lab"]).permits("192.168.1.1")
    assert allowed_addresses.Allowed.parse(["Wiki.Lab"]).hosts == {"wiki.lab"}


@pytest.mark.parametrize(
    "host", ["127.1", "2130706433", "0x7f000001", "017700000001", "[::127.0.0.1]", "[::ffff:7f00:1]", "[::]"]
)
def test_no_spelling_of_this_machine_passes(now: datetime, host: str) -> None:
    """Numbers as the operating system reads them."""
    asked = Peer(httpx.Response(200))
    with pytest.raises(SourceError):
        ask(now, HttpTransport(httpx.MockTransport(asked)), f"http://{host}/", public_only=True)
    assert asked.asked == []


def test_a_name_is_resolved_once_and_connected_to_as_it_was_checked(now: datetime) -> None:
    """A name server that says something public first and 127.0.0.1 then had us read this machine."""
    said = iter([[PUBLIC], ["127.0.0.1"]])

    async def rebinding(host: str, port: int) -> list[str]:
        return next(said)

    peer = Peer(httpx.Response(200, content=b"ok"))
    wire = HttpTransport(httpx.MockTransport(peer), resolve=rebinding)
    assert ask(now, wire, "https://feeds.test/rss", public_only=True).body == b"ok"
    (request,) = peer.asked
    assert request.url == f"https://{PUBLIC}/rss"
    assert request.headers["host"] == "feeds.test"
    assert request.extensions["sni_hostname"] == "feeds.test"
    with pytest.raises(SourceError, match="private"):
        ask(now, wire, "https://feeds.test/rss", public_only=True)


def test_the_next_address_is_tried_where_one_cannot_be_reached(now: datetime) -> None:
    """As browsers do: a host with IPv6 is asked by a machine without."""

    async def two(host: str, port: int) -> list[str]:
        return ["2606:4700::1111", PUBLIC]

    peer = Peer(httpx.ConnectError("no route"), httpx.Response(200, content=b"ok"))
    wire = HttpTransport(httpx.MockTransport(peer), resolve=two)
    assert ask(now, wire, "https://feeds.test/rss", public_only=True).body == b"ok"
    assert [request.url.host for request in peer.asked] == ["2606:4700::1111", PUBLIC]


@pytest.mark.once
def test_the_certificate_must_be_of_the_name(
    now: datetime, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Though the connection is to an address."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("feeds.test").configure_cert(context)
    named: list[str | None] = []
    context.sni_callback = lambda _socket, name, _context: named.append(name)

    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    with Stranger(context) as stranger:
        wire, allowed = HttpTransport(resolve=resolve), Allowed.parse(HERE)
        good = f"https://feeds.test:{stranger.port}/rss"
        assert b"Owls" in ask(now, wire, good, allowed, public_only=True).body
        with pytest.raises(SourceError, match="CERTIFICATE_VERIFY_FAILED"):
            ask(now, wire, good.replace("feeds", "other"), allowed, public_only=True)
    assert named == ["feeds.test", "other.test"]
    assert stranger.hosts == [f"feeds.test:{stranger.port}"]


@pytest.mark.once
def test_a_proxy_of_the_environment_is_no_way_around(
    now: datetime, stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would resolve the name by itself."""
    monkeypatch.setenv("HTTP_PROXY", stranger.url)
    with pytest.raises(SourceError, match="private"):
        ask(now, HttpTransport(), "http://localhost:1/rss", public_only=True)
    assert stranger.paths == []


def test_a_redirect_to_another_host_is_checked_whoever_sends_it(now: datetime) -> None:
    """An open redirect of a known service leads anywhere."""
    moved = Peer(httpx.Response(302, headers={"location": "http://169.254.169.254/latest/meta-data"}))
    with pytest.raises(SourceError, match="private"):
        ask(now, HttpTransport(httpx.MockTransport(moved)), "https://huggingface.co/api/daily_papers")
    assert len(moved.asked) == 1
    for location in ("http://[::1", "file:///etc/passwd", "gopher://a.test"):
        nowhere = Peer(httpx.Response(302, headers={"location": location}))
        with pytest.raises(SourceError):
            ask(now, HttpTransport(httpx.MockTransport(nowhere)), "https://huggingface.co/api/daily_papers")
        assert len(nowhere.asked) == 1


@pytest.mark.parametrize("allow", [True, False])
def test_no_key_allows_private_addresses(app: Application, now: datetime, allow: bool) -> None:
    """That is the operator's to say, in the settings."""
    config = {"url": "http://wiki.lab/rss", "allow_private": allow}
    with app.db.write() as session, pytest.raises(InvalidInput, match="PAPERBOY_ALLOW_PRIVATE_SOURCES"):
        source_registry.add(session, "Wiki", SourceKind.FEED, config, now)


def test_the_operator_allows_private_addresses(app: Application, now: datetime, stranger: Stranger) -> None:
    """By network or by name; without, the feed fails and says what could be done."""
    by_name = f"http://localhost:{stranger.port}/rss"
    numbers = feeds(app, now, f"{stranger.url}/rss", by_name)
    # What was stored before it became a setting has no say.
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
