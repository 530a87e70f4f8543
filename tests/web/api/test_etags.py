"""Test ETags: unchanged answers are not sent again, and changes of an outdated version are refused."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import event

from app import main
from app.application import Application
from app.delivery import ledger
from app.storage import webhook_endpoints, webhook_outbox
from app.storage.api_keys import Scope
from app.storage.models import WebhookEndpoint, WebhookEvent
from app.types import Skip
from tests.conftest import NOW
from tests.web.api.conftest import admin_api
from tests.web.api.test_auth import OPERATIONS

EDITION = "2026-11-20"

Send = Callable[..., httpx2.Response]


@pytest.fixture
def send(client: TestClient, create_key: Callable[..., str]) -> Send:
    """Return a function that calls a route under /api/v1 with given headers and all scopes."""
    bearer = create_key(Scope.SEND, Scope.WRITE, Scope.READ)

    def request(method: str, path: str, body: object = None, **headers: str) -> httpx2.Response:
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        headers["Authorization"] = f"Bearer {bearer}"
        return client.request(method, f"/api/v1{path}", headers=headers, json=body)

    return request


# A change of each resource that can be changed. All have the number 1.
CHANGES = {
    "/subscribers/1": {"max_papers": 4},
    "/sources/1": {"name": "another name"},
    "/papers/1": {"title": "Agents that Plan"},
    "/webhooks/1": {"events": ["delivery.bounced"]},
}


def edits() -> dict[str, list[str]]:
    """Return the methods that change or remove a resource that GET returns, by path."""
    methods: dict[str, set[str]] = {}
    for method, path, _scope in OPERATIONS:
        methods.setdefault(path.removeprefix("/v1"), set()).add(method)
    return {
        path: sorted(found - {"GET", "POST"})
        for path, found in methods.items()
        if "GET" in found and found & {"PATCH", "PUT", "DELETE"}
    }


EDITS = edits()


@pytest.fixture
def paths(app: Application, alice: int, paper_ids: dict[str, int]) -> list[str]:
    """Add one of each resource, and return the paths of those that can be changed, a subscriber's first."""
    with app.db.write() as session:
        webhook_endpoints.add(session, "https://crm.example.org/", list(WebhookEvent), False, NOW)
    return sorted(EDITS, key=lambda path: path != f"/subscribers/{alice}")


@pytest.mark.usefixtures("paths")
@pytest.mark.parametrize("path", EDITS)
def test_a_change_of_an_outdated_version_is_refused(send: Send, path: str) -> None:
    """Nothing is changed then. The answer to a change has the ETag that GET returns next."""
    body = CHANGES[path]
    old = send("GET", path).headers["etag"]
    assert old.startswith('"'), "strong"
    changed = send("PATCH", path, body, If_Match=old)
    assert changed.status_code == 200, changed.text
    current = send("GET", path)
    assert changed.headers["etag"] == current.headers["etag"] != old
    for method in EDITS[path]:
        refused = send(method, path, body if method == "PATCH" else None, If_Match=old)
        assert (refused.status_code, "read it again" in refused.json()["detail"]) == (412, True)
    assert send("GET", path).json() == current.json()
    assert send("PATCH", path, body, If_Match=f"W/{current.headers['etag']}").status_code == 412, "weak"
    tags = f'"x", {current.headers["etag"]}'
    assert send("PATCH", path, body, If_Match=tags).status_code == 200
    assert send("PATCH", path, body, If_Match="*").status_code == 200
    if "DELETE" in EDITS[path]:
        assert send("DELETE", path, If_Match=send("GET", path).headers["etag"]).status_code == 204


def test_an_unchanged_representation_is_not_sent_again(send: Send, paths: list[str]) -> None:
    """A client may send several ETags, strong or weak."""
    for path in paths:
        if path == "/webhooks/1":
            continue  # its ETag does not cover all of it
        body = CHANGES[path]
        tag = send("GET", path).headers["etag"]
        for condition in (tag, f'"x", W/{tag}', "*"):
            answer = send("GET", path, If_None_Match=condition)
            assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", tag)
        assert send("GET", path, If_None_Match='"x"').status_code == 200
        send("PATCH", path, body)
        assert send("GET", path, If_None_Match=tag).status_code == 200


def test_a_subresource_changes_the_version(send: Send, app: Application, paths: list[str]) -> None:
    """The ETag of a subscriber covers all that GET returns, with changes by the service."""
    path = paths[0]
    old = send("GET", path).headers["etag"]
    send("POST", f"{path}/pause", {})
    assert send("PATCH", path, {"max_papers": 4}, If_Match=old).status_code == 412


@pytest.mark.usefixtures("paths")
def test_events_do_not_change_the_version_of_a_webhook(send: Send, app: Application) -> None:
    """An operator edits it while events are sent. What they would miss, they get: there is no 304."""
    read = send("GET", "/webhooks/1")
    with app.db.write() as session:
        webhook_outbox.emit(session, WebhookEvent.PAUSED, {"reason": "a trial"}, NOW)
        row = session.get_one(WebhookEndpoint, 1)
        row.accepted_at, row.error = NOW, "HTTP 503"
    later = send("GET", "/webhooks/1", If_None_Match=read.headers["etag"])
    assert later.json()["messages"] != read.json()["messages"]
    assert (later.status_code, later.headers["etag"]) == (200, read.headers["etag"])
    body = CHANGES["/webhooks/1"]
    assert send("PATCH", "/webhooks/1", body, If_Match=read.headers["etag"]).status_code == 200
    with app.db.write() as session:
        webhook_endpoints.disable_all(session, "a trial", NOW)
    assert send("PATCH", "/webhooks/1", body, If_Match=later.headers["etag"]).status_code == 412


def test_only_the_edition_that_was_read_is_approved_or_settled(
    send: Send, app: Application, alice: int
) -> None:
    """An edition that does not exist has no version."""
    with app.db.write() as session:
        ledger.pause(session, "it awaits approval", NOW, EDITION)
    path = f"/editions/{EDITION}"
    old = send("GET", path).headers["etag"]
    send("POST", f"{path}/resume")
    send("POST", f"{path}/pause", {"reason": "another reason"})
    assert send("POST", f"{path}/resume", If_Match=old).status_code == 412
    for action in ("cancel", "resend-uncertain", "confirm-uncertain"):
        assert send("POST", f"{path}/{action}", If_Match=old).status_code == 412
    assert send("POST", f"{path}/resume", If_Match=send("GET", path).headers["etag"]).status_code == 204
    assert send("POST", "/editions/2026-01-01/resume", If_Match="*").status_code == 412


def test_only_the_pauses_that_were_read_are_ended(send: Send, app: Application, alice: int) -> None:
    """Counts of emails change all the time, so they do not change the version."""
    send("POST", "/sending/pause", {"reason": "the relay is moved"})
    old = send("GET", "/sending")
    with app.db.write() as session:
        ledger.add_entries(session, [ledger.Entry(alice, EDITION, NOW, Skip("no new papers"))], NOW)
    read = send("GET", "/sending", If_None_Match=old.headers["etag"])
    assert (read.status_code, read.headers["etag"]) == (200, old.headers["etag"])
    assert read.json()["deliveries"] != old.json()["deliveries"]
    with app.db.write() as session:
        ledger.pause_automatically(session, "9 complaints", NOW)
    assert send("POST", "/sending/resume", If_Match=old.headers["etag"]).status_code == 412
    new = send("GET", "/sending").headers["etag"]
    assert send("POST", "/sending/resume", If_Match=new).status_code == 204
    assert send("POST", "/sending/resume", If_Match=new).status_code == 412
    assert send("POST", "/sending/resume", If_Match="*").status_code == 404


def test_resuming_compares_only_the_pauses(send: Send, app: Application) -> None:
    """All emails would be counted while the sender waits for the pause's row."""
    send("POST", "/sending/pause", {"reason": "the relay is moved"})
    version = send("GET", "/sending").headers["etag"]
    statements: list[str] = []
    event.listen(app.db.engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
    assert send("POST", "/sending/resume", If_Match=version).status_code == 204
    assert not [statement for statement in statements if "GROUP BY" in statement]


def test_one_of_simultaneous_changes_wins(
    app: Application, alice: int, create_key: Callable[..., str]
) -> None:
    """All have the same If-Match. The comparison is in the transaction of the change."""
    headers = {"Authorization": f"Bearer {create_key(Scope.WRITE, Scope.READ)}"}
    site = main.create_app(app)
    url = f"/api/v1/subscribers/{alice}"
    tag = TestClient(site).get(url, headers=headers).headers["etag"]

    def change(number: int) -> int:
        browser = TestClient(site, raise_server_exceptions=False)
        body = {"max_papers": 20 - number}
        return browser.patch(url, headers=headers | {"If-Match": tag}, json=body).status_code

    with ThreadPoolExecutor(4) as threads:
        statuses = sorted(threads.map(change, range(4)))
    assert statuses == [200, 412, 412, 412]


@pytest.mark.once
def test_versions_are_documented(site: FastAPI) -> None:
    paths = admin_api(site).openapi()["paths"]
    versioned = {
        path for path, operations in paths.items() if "304" in operations.get("get", {}).get("responses", {})
    }
    edited = {path for path, operations in paths.items() if {"patch", "put"} & {*operations}}
    assert edited <= versioned | {"/v1/webhooks/{webhook_id}"}
    assert "ETag" in paths["/v1/sending"]["get"]["responses"]["200"]["headers"]
    assert "/v1/editions/{edition}" in versioned
    for path in versioned | edited:
        assert "ETag" in paths[path]["get"]["responses"]["200"]["headers"]
