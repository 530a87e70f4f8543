"""Test overload by visitors and API clients: pages, sign-up and sending continue."""

import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
from fastapi.testclient import TestClient

from app import main, pipeline
from app.application import Application
from app.errors import TooManyRequests
from app.papers import archive_lists, paper_views
from app.settings import Settings
from app.web import capacity, connection_limits, http_cache
from app.web.capacity import WorkSlots
from app.web.http_cache import KEEP_PAGES, STALE_PAGES, CachedResponse, ResponseCache
from tests.conftest import NOW, SECRET
from tests.support import factories, running_app
from tests.support.mail_server import MailServer

ROOT = Path(__file__).resolve().parents[2]
DESCRIPTORS = 256
LIMIT = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({DESCRIPTORS}, {DESCRIPTORS}));"
SERVE = LIMIT + "from app.cli import main; main()"


@contextmanager
def serve_limited(settings: Settings, folder: Path) -> Iterator[str]:
    """Serve the application in a process with few file descriptors. Yields its URL."""
    environment = {
        "PYTHONPATH": str(ROOT),
        "PATH": os.environ["PATH"],
        "PAPERBOY_DATABASE_URL": settings.database_url,
        "PAPERBOY_SECRET_KEYS": SECRET,
        "PAPERBOY_FROM_ADDRESS": settings.from_address,
        "PAPERBOY_SMTP_PORT": str(settings.smtp_port),
        "PAPERBOY_SMTP_SECURITY": "none",
        "PAPERBOY_SCHEDULER": "false",
    }
    command = [sys.executable, "-c", SERVE, "serve", "--port", "0"]
    with subprocess.Popen(  # noqa: S603 - it is our own command
        command, env=environment, cwd=folder, text=True, stderr=subprocess.PIPE
    ) as process:
        assert process.stderr
        line = next(line for line in process.stderr if "running on" in line)
        url = re.search(r"http://[\d.:]+", line)
        assert url, line
        reader = threading.Thread(target=process.stderr.read)  # otherwise its pipe fills up
        reader.start()
        try:
            yield url[0]
        finally:
            process.kill()
            reader.join()


@pytest.mark.once
def test_unfinished_connections_do_not_block_others(
    settings: Settings, mail_server: MailServer, tmp_path: Path
) -> None:
    """1,005 unfinished requests used to take all descriptors for a minute, and sending failed."""
    with serve_limited(settings, tmp_path) as url, ExitStack() as stack:
        address = httpx.URL(url)
        for _ in range(DESCRIPTORS + 50):
            unfinished = stack.enter_context(socket.create_connection((address.host, address.port or 0), 20))
            unfinished.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n")
        for _ in range(3):
            assert httpx.get(url, timeout=20).status_code == 200
        form = {"email": "alice@example.org", "interest": "language agents", "cadence": "daily", "hour": "8"}
        joined = httpx.post(f"{url}/subscribe", data=form | {"zone": "UTC"}, timeout=20)
        assert joined.status_code == 200
        assert mail_server.wait_for(1)


@pytest.mark.once
@pytest.mark.parametrize(
    "request_bytes",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost: x\r\n",
        b"POST /manage HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nemail",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /healthz HTTP/1.1\r\n",
    ],
)
def test_slow_requests_are_closed_at_their_deadline(
    request_bytes: bytes, app: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Test an endless head, a slow body, and a second request on the connection."""
    ended = threading.Event()
    guarded = connection_limits.protocol(10)
    monkeypatch.setattr(guarded, "deadlines", dict.fromkeys(connection_limits.ConnectionPhase, 0.05))
    lost = guarded.connection_lost
    monkeypatch.setattr(guarded, "connection_lost", lambda *values: (lost(*values), ended.set()))
    bound = running_app.bind_free_port()
    with (
        running_app.serve(main.create_app(app), bound, http=guarded),
        socket.create_connection(bound.getsockname()) as slow,
    ):
        slow.sendall(request_bytes)
        assert ended.wait(20)
        assert not guarded.waiting


@pytest.mark.parametrize(
    ("descriptors", "smtp_connections", "most"),
    [(65_536, 10, 1000), (1024, 10, 747), (256, 10, 132), (64, 10, 16)],
)
def test_descriptors_are_reserved_for_the_sender(descriptors: int, smtp_connections: int, most: int) -> None:
    """Visitors must leave enough for the sender, the database and files."""
    connections, backlog = connection_limits.limit_and_backlog(descriptors, smtp_connections)
    assert connections == most
    if descriptors > 128:
        assert connections + backlog + smtp_connections + connection_limits.RESERVED <= descriptors


@pytest.mark.once
def test_public_pages_are_built_once_a_minute(
    app: Application, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each took 23 to 43 ms for every request. A client with the current page gets 304."""
    with app.db.write() as session:
        source = factories.add_source(session, NOW)
        number = factories.add_paper(session, source, "Language Agents", NOW.date(), NOW, abstract="At last.")
    read = (paper_views, "candidates"), (archive_lists, "rank_by_votes"), (paper_views, "by_ids")
    calls: list[str] = []
    for module, name in read:
        of = getattr(module, name)
        monkeypatch.setattr(
            module, name, lambda *v, _of=of, **k: (calls.append(_of.__name__), _of(*v, **k))[1]
        )
    day = NOW.date()
    paths = ["/", f"/day/{day}", f"/week/{day:%G-W%V}", f"/paper/{number}", f"/day/{day}/feed.atom"]
    first = [client.get(path) for path in paths]
    built = len(calls)
    again = [client.get(path, headers={"If-None-Match": first[0].headers["ETag"]}) for path in paths * 5]
    assert [answer.status_code for answer in first] == [200] * len(paths)
    assert {answer.status_code for answer in again} == {200, 304}
    assert built
    assert len(calls) == built
    assert first[0].headers["Referrer-Policy"] == "same-origin"


@pytest.mark.once
def test_invalid_forms_are_not_cached(app: Application, client: TestClient) -> None:
    """One visitor's input must not be shown to another."""
    assert "mallory" not in client.get("/").text
    wrong = {"email": "mallory(at)example.org", "interest": "mallory's own"}
    assert "mallory" in client.post("/subscribe", data=wrong).text
    assert "mallory" in client.post("/preview", data=wrong).text
    assert "mallory" not in client.get("/").text


@pytest.mark.once
def test_uncached_pages_are_rate_limited(app: Application, client: TestClient) -> None:
    """Cached pages do not count, so the front page still works."""
    with app.db.write() as session:
        source = factories.add_source(session, NOW)
        factories.add_paper(session, source, "Language Agents", NOW.date(), NOW)
    assert client.get("/").status_code == 200
    limit = client.app.state.capacity.visitors.pages  # type: ignore[attr-defined]
    for _ in range(app.settings.pages_per_minute - 1):
        limit.hit("testclient")
    assert client.get(f"/day/{NOW.date()}").status_code == 429
    assert client.get("/").status_code == 200


@pytest.mark.once
def test_stale_page_is_served_under_load() -> None:
    """Crawlers must not make a recent page unavailable."""
    places = WorkSlots(1)
    pages = ResponseCache(KEEP_PAGES, places, STALE_PAGES)
    old, new = CachedResponse(b"old", "text/html"), CachedResponse(b"new", "text/html")
    assert pages.get_or_build(("/",), NOW, lambda: old) is old
    with places.take():
        assert pages.get_or_build(("/",), NOW + KEEP_PAGES, lambda: new) is old
        with pytest.raises(TooManyRequests):
            pages.get_or_build(("/",), NOW + KEEP_PAGES + STALE_PAGES, lambda: new)
        with pytest.raises(TooManyRequests):
            pages.get_or_build(("/other",), NOW, lambda: new)
    assert pages.get_or_build(("/",), NOW + KEEP_PAGES, lambda: new) is new


@pytest.mark.once
def test_concurrency_limits_leave_free_threads() -> None:
    """The web server has 40 threads, and waiting requests hold one too."""
    searches, previews = capacity.SEARCHES + capacity.SEARCHES_WAITING, capacity.PREVIEWS
    pages_and_feeds, pastes, exports = 2 * http_cache.AT_ONCE, capacity.PASTES, capacity.ANALYSES
    keys = capacity.API_REQUESTS + capacity.JOBS
    assert searches + previews + pages_and_feeds + pastes + exports + keys + capacity.MAILS <= 40 - 4


@pytest.mark.once
def test_concurrent_searches_wait_briefly(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a few wait, for a few seconds. The health check needs no thread."""
    state = client.app.state  # type: ignore[attr-defined]
    state.capacity.searches = WorkSlots(1, 1, 0.01)
    with state.capacity.searches.take():
        busy = client.get("/search", params={"q": "agents"})
        assert (busy.status_code, busy.headers["Retry-After"]) == (429, "2")
        assert "Too many requests. Please wait 2 seconds, then search again." in busy.text
        assert 'name="q" type="search" value="agents"' in busy.text
        assert client.get("/healthz").status_code == 200


@pytest.mark.once
def test_slow_relay_occupies_at_most_four_threads(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, mail_server: MailServer
) -> None:
    """Further confirmation emails wait in the ledger."""
    calls: list[object] = []
    monkeypatch.setattr(pipeline, "send_now", lambda *_, **named: calls.append(named))
    form = {
        "email": "alice@example.org",
        "interest": "agents",
        "cadence": "daily",
        "hour": "8",
        "zone": "UTC",
    }
    with ExitStack() as busy:
        for _ in range(capacity.MAILS):
            busy.enter_context(client.app.state.capacity.mails.take())  # type: ignore[attr-defined]
        assert client.post("/subscribe", data=form).status_code == 200
        assert calls == []
    assert client.post("/subscribe", data=form | {"email": "bob@example.org"}).status_code == 200
    assert len(calls) == 1
