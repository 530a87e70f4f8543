"""Test hostile requests: forms, headers and bodies that could break or block the service."""

import asyncio
import io
import logging
import os
import sqlite3
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlencode

import pytest
import structlog
from fastapi import HTTPException
from fastapi.testclient import TestClient
from sqlalchemy.exc import OperationalError

from app import logs
from app.delivery import journal
from app.doctor import configuration
from app.settings import Settings
from app.storage import schema
from app.storage.database import Database
from app.web import link_access, request_bodies, security
from app.web.request_bodies import FormRequest

MEGABYTE = 1_040_000
FORM = "application/x-www-form-urlencoded"


@pytest.mark.once
@pytest.mark.parametrize("path", ["/subscribe", "/preview", "/manage"])
@pytest.mark.parametrize("origin", ["http://[", "http://[::1", "null", "//", "http://]"])
def test_malformed_origin_is_refused(path: str, origin: str, client: TestClient) -> None:
    """`Origin: http://[` caused a 500 on three forms."""
    assert client.post(path, headers={"Origin": origin}).status_code == 403


@pytest.mark.once
@pytest.mark.parametrize("host", ["[", "http://[", "evil.test", "a b", "x:99999"])
@pytest.mark.parametrize("path", ["/search/", "/day/", "/manage/", "/api/v1/runs/", "/hooks/bounces/ses/"])
def test_responses_do_not_use_the_host_header(path: str, host: str, client: TestClient) -> None:
    """A path with a double slash redirected to the host of the Host header."""
    answer = client.get(path, headers={"Host": host}, follow_redirects=False)
    assert answer.status_code in (401, 404)
    assert "Location" not in answer.headers
    assert "evil" not in answer.text


@pytest.mark.once
@pytest.mark.parametrize(
    ("path", "status"),
    [("/day/0", 404), ("/day/0/feed.atom", 422), ("/day/1e3", 404), ("/day/20261120", 404)],
)
def test_number_is_not_accepted_as_a_day(path: str, status: int, client: TestClient) -> None:
    """0 was read as 1970-01-01."""
    assert client.get(path).status_code == status


@pytest.mark.once
@pytest.mark.parametrize(
    "body",
    [
        b"&" * MEGABYTE,
        b"liked=" + b"%" * MEGABYTE,
        b"liked=" + b"%41" * (MEGABYTE // 3),
        b"liked=" + b"a%" * (MEGABYTE // 2),
        b"liked=" + b"%41\xe9" * (MEGABYTE // 4),
        b"interest=a&" * (MEGABYTE // 11),
        (b"interest=" + b"%41" * 340 + b"&") * 999,
        b"=" * MEGABYTE,
        b"+" * MEGABYTE,
    ],
)
def test_large_form_is_parsed_quickly(body: bytes) -> None:
    """It took up to 0.7 s of CPU in the event loop, and delayed other requests by 1.6 s."""
    began = time.process_time()
    with suppress(HTTPException):  # with too many fields
        request_bodies.parse(body)
    assert time.process_time() - began < 0.5


@pytest.mark.once
def test_large_form_is_parsed_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other requests are answered while a form of 1 MB is parsed; a small one needs no thread."""
    loops: list[bool] = []
    parse = request_bodies.parse

    def noted(body: bytes) -> object:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            loops.append(False)
        else:
            loops.append(True)
        return parse(body)

    monkeypatch.setattr(request_bodies, "parse", noted)

    async def read(body: bytes) -> int:
        messages = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def receive() -> dict[str, object]:
            return next(messages)

        scope = {"type": "http", "method": "POST", "headers": [(b"content-type", FORM.encode())]}
        return len(await FormRequest(scope, receive).form())  # type: ignore[arg-type]

    assert asyncio.run(read(b"email=alice%40example.org&hour=8")) == 2
    assert asyncio.run(read(b"liked=" + b"%41" * 100_000)) == 1
    assert loops == [True, False]


@pytest.mark.once
@pytest.mark.parametrize(
    "fields",
    [
        {"q": "a b&c=d", "é": "ü+%"},
        {"liked": "Attention Is All You Need\r\n“quoted” 100 %"},
        {"empty": "", "plus": "1+1"},
    ],
)
def test_form_decoding(fields: dict[str, str]) -> None:
    """Forms are decoded as browsers encode them."""
    assert dict(request_bodies.parse(urlencode(fields).encode())) == fields


@pytest.mark.once
def test_concurrent_slow_bodies_are_limited(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Excess requests are refused; later ones are accepted again."""
    form = {"email": "alice@example.org", "interest": "x" * 1000}
    monkeypatch.setattr(security, "MAX_HELD_BYTES", 500)
    refused = client.post("/preview", data=form)
    assert (refused.status_code, refused.headers["Retry-After"]) == (503, "5")
    assert "We can’t do this right now" in refused.text
    assert "receiving too much data at once. Please try again in a few seconds." in refused.text
    monkeypatch.setattr(security, "MAX_HELD_BYTES", 2000)
    assert [client.post("/preview", data=form).status_code for _ in range(3)] == [200] * 3


@pytest.mark.once
def test_addresses_and_searches_are_not_logged(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The web server logs paths with their query."""
    access = logging.getLogger("uvicorn.access")
    monkeypatch.setattr(access, "propagate", True)  # web servers started by other tests have disabled it
    # A handler that formats a record stores the text in it.
    monkeypatch.setattr(access, "handlers", [logging.StreamHandler(io.StringIO())])
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    try:
        logs.configure(settings)
        (handler,) = root.handlers
        assert isinstance(handler, logging.StreamHandler)
        handler.setStream(stream := io.StringIO())
        path = "/api/v1/subscribers?email=alice%40example.org&limit=5&q=my+illness&state=active"
        line = '%s - "%s %s HTTP/%s" %d'
        access.info(line, "127.0.0.1", "GET", path, "1.1", 200)
    finally:
        root.handlers, root.level = before, level
        structlog.reset_defaults()
    log = stream.getvalue()
    assert "alice" not in log
    assert "illness" not in log
    assert "?email=…&limit=5&q=…&state=active HTTP/1.1" in log


@pytest.mark.once
def test_stored_files_are_private(tmp_path: Path, settings: Settings) -> None:
    """With umask 022 every local user could read all addresses; the doctor reports older files."""
    before = os.umask(0o022)
    try:
        file = tmp_path / "var" / "paperboy.db"
        schema.migrate(f"sqlite:///{file}")
        opened = Database(f"sqlite:///{file}")
        with opened.write() as session:
            session.connection()
            modes = {path.name: path.stat().st_mode & 0o777 for path in file.parent.iterdir()}
        assert modes == dict.fromkeys(("paperboy.db", "paperboy.db-wal", "paperboy.db-shm"), 0o600)
        journal.Journal(tmp_path / "journal", "host:1:a").close()
        assert [path.stat().st_mode & 0o777 for path in (file.parent, tmp_path / "journal")] == [0o700, 0o700]
        opened.dispose()
    finally:
        os.umask(before)
    new_settings = settings.model_copy(update={"database_url": f"sqlite:///{file}"})
    assert "database file" not in {finding.check for finding in configuration.check(new_settings)}
    file.chmod(0o644)
    file.parent.chmod(0o755)
    (found,) = [finding for finding in configuration.check(new_settings) if finding.check == "database file"]
    assert f"chmod 600 {file}" in found.fix


@pytest.mark.once
@pytest.mark.parametrize(
    ("path", "files", "is_kept"),
    [("/confirm/{}", None, True), ("/preferences/{}/papers", {"file": ("a.bib", b"@a{b}")}, False)],
)
def test_form_refused_by_a_busy_database_can_be_resent(
    path: str, files: dict[str, tuple[str, bytes]] | None, is_kept: bool, client: TestClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """This includes a button without fields. A file cannot be kept, and the page says so."""

    def locked(*_: object) -> None:
        raise OperationalError("SELECT", {}, sqlite3.OperationalError("database is locked"))

    monkeypatch.setattr(link_access, "granted", locked)
    answer = client.post(path.format("x"), files=files)
    assert answer.status_code == 503
    assert ("Send again" in answer.text, "choose your file again" in answer.text) == (is_kept, not is_kept)
