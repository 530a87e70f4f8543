"""Test the import and export of subscribers by the API."""

import asyncio
import csv
import io
import threading
import time
from collections.abc import Callable

import httpx
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlmodel import select
from starlette.types import Message

from app import clock, main, subscribers
from app.application import Application
from app.delivery import ledger
from app.settings import Settings
from app.storage import api_keys
from app.storage.api_keys import Scope
from app.storage.models import JobRun, Subscriber
from app.subscribers import Preferences
from app.types import Interest
from app.web.site import UPLOADS
from tests.support.running_app import Live
from tests.web.api.conftest import Call

BOTH = (Scope.WRITE, Scope.SEND)
CSV = {"Content-Type": "text/csv; charset=utf-8"}
LINES = (
    "email,interests,weights,hour,colour",
    "Bob@Example.org,“language agents”; robotics,2; 0.5,7,red",
    "bob@example.org,again,,,",
    "nobody,robotics,,,",
    "carol@example.org,robotics,,seven,",
    "alice@example.org,robotics,,,",
    "dave@example.org,robotics,,,",
)
FILE = "\n".join((*LINES, "")).encode()


def send(call: Call, query: str = "", content: bytes = FILE, **options: object) -> httpx.Response:
    options = {"scope": BOTH, "headers": CSV, **options}
    return call("POST", f"/subscribers/import{query}", content=content, **options)  # type: ignore[return-value]


@pytest.mark.usefixtures("alice")
def test_import_reports_each_skipped_row(
    call: Call, app: Application, audit_log: Callable[[], list[tuple[str, str, str]]]
) -> None:
    """No digest was ever sent, so all sending is paused."""
    report = send(call).json()
    assert (report["added"], report["rejected"], report["registered"]) == (2, 4, 1)
    assert report["complete"] is True
    assert [(row["row"], row["email"]) for row in report["rejections"]] == [
        (3, "bob@example.org"), (4, "nobody"), (5, "carol@example.org"), (6, "alice@example.org"),
    ]  # fmt: skip
    assert report["rejections"][0]["reason"] == "this row has the same address as row 2"
    assert "hour must be a full hour" in report["rejections"][2]["reason"]
    assert "already registered" in report["rejections"][3]["reason"]
    assert (report["ignored_columns"], report["held"], report["first_rows"]) == (["colour"], True, [])
    assert audit_log() == [
        ("write key", "subscriber.import", "6 rows"),
        ("write key", "sending.pause", "*"),
        ("write key", "subscriber.import", "2 subscribers"),
    ]
    with app.db.read() as session:
        bob = subscribers.find(session, "bob@example.org")
        assert (bob.state, bob.hour) == ("active", 7)
        assert subscribers.preferences_of(session, bob).interests == (
            Interest('"language agents"', 2.0),
            Interest("robotics", 0.5),
        )
        assert ledger.is_paused(session)
        assert session.get_one(JobRun, report["run_id"]).counts["added"] == 2
    again = send(call).json()
    assert (again["added"], again["registered"], again["held"]) == (0, 4, False)


def test_hold_can_be_chosen(call: Call, app: Application) -> None:
    assert send(call, "?hold=false").json()["held"] is False
    with app.db.read() as session:
        assert not ledger.is_paused(session)
    assert send(call, "?hold=maybe").status_code == 422


@pytest.mark.usefixtures("alice")
def test_preview_stores_nothing(call: Call, app: Application) -> None:
    """It has the same counts and reasons as the import."""
    preview = send(call, "?preview=true", scope=(Scope.READ, Scope.WRITE)).json()
    first = preview.pop("first_rows")
    assert [(row["email"], row["hour"]) for row in first] == [("bob@example.org", 7), ("dave@example.org", 8)]
    assert first[0]["interests"][0] == {"text": '"language agents"', "weight": 2.0, "quota": None}
    with app.db.read() as session:
        assert session.exec(select(Subscriber.email)).all() == ["alice@example.org"]
        assert session.exec(select(JobRun)).all() == []
    report = send(call).json()
    for name in ("added", "rejected", "registered", "rejections", "ignored_columns"):
        assert preview[name] == report[name]


def test_preview_shows_every_preference(call: Call) -> None:
    file = b"email,interests,paper_updates\nalice@example.org,robotics,no\n"
    (row,) = send(call, "?preview=true", content=file).json()["first_rows"]
    assert row["paper_updates"] is False
    assert set(Preferences.__dataclass_fields__) <= set(row)


def test_import_needs_the_scope_to_send(call: Call, app: Application) -> None:
    """With `write` alone, a subscriber would have to confirm."""
    refused = send(call, scope=(Scope.READ, Scope.WRITE))
    assert (refused.status_code, "“send”" in refused.json()["detail"]) == (403, True)
    assert send(call, scope=Scope.SEND).status_code == 403
    with app.db.read() as session:
        assert session.exec(select(Subscriber)).all() == []


@pytest.mark.parametrize(
    ("content", "headers", "status"),
    [
        (b"", CSV, 422),
        (b"name,age\nalice,7\n", CSV, 422),
        (b"email,interests\n\xff,robotics\n", CSV, 422),
        (b'{"email": 1}', {"Content-Type": "application/json"}, 415),
    ],
)
def test_unreadable_files_are_refused(
    content: bytes, headers: dict[str, str], status: int, call: Call
) -> None:
    refused = send(call, content=content, headers=headers)
    assert (refused.status_code, refused.headers["content-type"]) == (status, "application/problem+json")


def test_export_can_be_imported(call: Call, app: Application) -> None:
    send(call, "?hold=false")
    answer = call("GET", "/subscribers/export")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert [row["email"] for row in csv.DictReader(io.StringIO(answer.text))] == [
        "bob@example.org",
        "alice@example.org",
        "dave@example.org",
    ]
    assert send(call, content=answer.content).json()["registered"] == 3
    assert call("GET", "/subscribers/export", scope=Scope.SEND).status_code == 403


@pytest.mark.once
def test_bodies_without_a_valid_key_are_not_read(site: FastAPI) -> None:
    """Strangers cannot fill the disk. The admin page asks for a session first, in the same way."""
    statuses = []

    async def receive() -> Message:
        raise AssertionError("the body was read")

    async def send(message: Message) -> None:
        statuses.append(message.get("status"))

    for path in UPLOADS:
        scope = {
            "type": "http", "method": "POST", "path": path, "query_string": b"", "http_version": "1.1",
            "headers": [(b"content-type", b"text/csv"), (b"content-length", b"100000000")], "scheme": "http",
            "server": ("127.0.0.1", 80), "client": ("127.0.0.1", 1), "root_path": "",
        }  # fmt: skip
        asyncio.run(site(scope, receive, send))
    assert [status for status in statuses if status] == [401, 303]


@pytest.mark.once
def test_files_above_the_limit_are_refused(settings: Settings) -> None:
    app = main.build(settings.model_copy(update={"max_import_bytes": 1_000_000}))
    with app.db.write() as session:
        key = api_keys.create(session, "script", [Scope.WRITE, Scope.SEND], clock.utcnow())[1]
    headers = {"Authorization": f"Bearer {key}", **CSV}
    with TestClient(main.create_app(app)) as client:
        for size in (1_000_001, 3_000_000):
            refused = client.post("/api/v1/subscribers/import", content=b"x" * size, headers=headers)
            assert refused.status_code == 413
    app.db.dispose()


@pytest.mark.once
def test_pages_respond_during_an_import(live_server: Live) -> None:
    """Other requests are answered, also those that write."""
    app = live_server.app
    with app.db.write() as session:
        key = api_keys.create(session, "script", list(Scope), clock.utcnow())[1]
    rows = "".join(f"reader{number}@example.org,robotics number{number}\n" for number in range(4000))
    headers = {"Authorization": f"Bearer {key}"}
    results: list[int] = []

    def work() -> None:
        with httpx.Client(base_url=live_server.url, headers=headers, timeout=60) as client:
            content = f"email,interests\n{rows}".encode()
            answer = client.post("/api/v1/subscribers/import", content=content, headers=CSV)
            results.append(answer.json()["added"])

    thread = threading.Thread(target=work)
    thread.start()
    waits = []
    with httpx.Client(base_url=f"{live_server.url}/api/v1", headers=headers, timeout=60) as client:
        while thread.is_alive():
            began = time.monotonic()
            assert client.get("/subscribers", params={"limit": 1}).status_code == 200
            assert client.post("/sending/pause", json={"reason": "a test"}).status_code == 204
            waits.append(time.monotonic() - began)
    thread.join()
    assert results == [4000]
    assert waits
    assert max(waits) < 5  # seconds, the time after which a request gives up waiting for the database
