"""Test the header Idempotency-Key: a request that is sent again is carried out once."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlmodel import select

from app import main, maintenance, subscribers
from app.application import Application
from app.storage import idempotency_keys
from app.storage.api_keys import Scope
from app.storage.idempotency_keys import Attempt
from app.storage.models import IdempotencyKey, Suppression
from tests.conftest import NOW
from tests.support.fork_server import ForkServer
from tests.web.api.conftest import admin_api

ALICE = {"email": "alice@example.org", "consent": "agreed by phone", "interests": [{"text": "agents"}]}
KEY = "8e03978e-40d5-43dd-bc93-6894a57f9324"

Post = Callable[..., httpx2.Response]


@pytest.fixture
def api_key(create_key: Callable[..., str]) -> str:
    return create_key(Scope.SEND, Scope.WRITE, Scope.READ)


@pytest.fixture
def post(client: TestClient, api_key: str) -> Post:
    """Return a function that posts to a route under /api/v1 with an idempotency key."""

    def send(path: str, body: Any = None, key: str = KEY, bearer: str = api_key) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {bearer}", "Idempotency-Key": key}
        return client.post(f"/api/v1{path}", headers=headers, json=body)

    return send


def rows(app: Application) -> list[IdempotencyKey]:
    with app.db.read() as session:
        return list(session.exec(select(IdempotencyKey).order_by(IdempotencyKey.name)))


def claim_elsewhere(processes: ForkServer, app: Application, api_key_id: int, fingerprint: str) -> None:
    """Claim KEY in another process, which then dies without a goodbye."""
    code = """
        import os
        from app.storage.database import Database
        from app.storage import idempotency_keys as keys
        with Database(url).write() as session:
            keys.claim(session, keys.Attempt(key, fingerprint), api_key, now)
        os._exit(9)
    """
    url = app.db.url.render_as_string(hide_password=False)
    assert processes.run(code, url=url, key=KEY, fingerprint=fingerprint, api_key=api_key_id, now=NOW) == 9


def test_a_repeated_request_gets_the_stored_response(
    post: Post, client: TestClient, audit_log: Callable[[], list[Any]]
) -> None:
    """It says so in a header. Quotes, as of a structured string, are not part of the key."""
    first, again = post("/subscribers", ALICE), post("/subscribers", ALICE, key=f'"{KEY}"')
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json() == again.json()
    assert ("idempotency-replayed" in first.headers, again.headers["idempotency-replayed"]) == (False, "true")
    assert len(audit_log()) == 1
    assert post("/subscribers", ALICE, key="another").status_code == 409


def test_a_response_without_a_body_is_repeated(post: Post) -> None:
    pause = {"reason": "the relay is being moved"}
    assert [post("/sending/pause", pause).status_code for _ in range(2)] == [204, 204]
    assert [post("/sending/resume", key="resume").status_code for _ in range(2)] == [204, 204]


def test_another_request_with_the_same_key_is_refused(
    post: Post, create_key: Callable[..., str], app: Application
) -> None:
    """Body, path or query differ. Another API key may use the same text."""
    post("/subscribers", ALICE)
    for path, body in (
        ("/subscribers", ALICE | {"hour": 7}),
        ("/subscribers/1/pause", {}),
        ("/sources", ALICE),
    ):
        refused = post(path, body)
        assert (refused.status_code, "used for another request" in refused.text) == (422, True), path
    assert post("/subscribers/1/pause", {}, bearer=create_key(Scope.WRITE)).status_code == 200
    assert KEY not in str([row.model_dump() for row in rows(app)])


@pytest.mark.once
@pytest.mark.parametrize("malformed", ["", " ", "x" * 201, "a b", 'a"b', "ä".encode().decode("latin-1")])
def test_a_malformed_key_is_refused(post: Post, malformed: str) -> None:
    refused = post("/subscribers", ALICE, key=malformed.encode("latin-1"))  # type: ignore[arg-type]
    assert (refused.status_code, "1 to 200 printable" in refused.json()["detail"]) == (422, True)


def test_a_failed_request_may_be_corrected(post: Post, app: Application) -> None:
    """It changed nothing, so its key is free again."""
    assert post("/subscribers", ALICE | {"email": "nobody"}).status_code == 422
    assert post("/subscribers", {}).status_code == 422
    assert post("/subscribers/99/pause", {}).status_code == 404
    assert rows(app) == []
    assert post("/subscribers", ALICE).status_code == 201


def test_a_request_under_way_is_refused_until_its_lease_ends(
    post: Post, app: Application, site: FastAPI
) -> None:
    """Its holder is alive in this process. It cannot commit after another attempt has taken over."""
    post("/subscribers", ALICE)
    (row,) = rows(app)
    with app.db.write() as session:
        row.status, row.answer, row.changed = None, None, False
        session.add(row)
        session.add(Suppression(address_hash="x", reason="y", since=NOW))
    refused = post("/subscribers", ALICE)
    assert (refused.status_code, "still running" in refused.json()["detail"]) == (409, True)
    late = Attempt(KEY, row.fingerprint, row.holder, row.name)
    admin_api(site).state.clock = lambda: NOW + idempotency_keys.LEASE
    assert "already registered" in post("/subscribers", ALICE).json()["detail"], "it was attempted again"
    token = idempotency_keys.current.set(late)
    try:
        with app.db.write() as session, pytest.raises(idempotency_keys.Conflict):
            idempotency_keys.note_change(session, "1")
    finally:
        idempotency_keys.current.reset(token)


def test_the_key_of_a_killed_process_is_free(
    post: Post, app: Application, audit_log: Callable[[], list[Any]], processes: ForkServer
) -> None:
    """If it was killed after its change was committed, the request is not carried out again."""
    post("/subscribers", ALICE)
    (row,) = rows(app)
    with app.db.write() as session:
        subscribers.erase(session, 1, NOW, suppress=False)
        session.delete(row)
    claim_elsewhere(processes, app, 1, row.fingerprint)
    assert [each.status for each in rows(app)] == [None]
    assert post("/subscribers", ALICE).status_code == 201
    with app.db.write() as session:
        (row,) = rows(app)
        row.status, row.answer = None, None
        session.add(row)
    refused = post("/subscribers", ALICE)
    assert refused.status_code == 409
    with app.db.write() as session:
        row.until = NOW
        session.add(row)
    refused = post("/subscribers", ALICE)
    assert (refused.status_code, "was carried out before" in refused.json()["detail"]) == (409, True)
    assert len(audit_log()) == 2


def test_simultaneous_requests_are_carried_out_once(
    app: Application, api_key: str, audit_log: Callable[[], list[Any]]
) -> None:
    """Two web processes share the table."""
    sites = [main.create_app(app), main.create_app(app)]
    headers = {"Authorization": f"Bearer {api_key}", "Idempotency-Key": KEY}

    def send(number: int) -> int:
        browser = TestClient(sites[number % 2], raise_server_exceptions=False)
        return browser.post("/api/v1/subscribers", headers=headers, json=ALICE).status_code

    with ThreadPoolExecutor(6) as threads:
        statuses = set(threads.map(send, range(6)))
    assert statuses <= {201, 409}
    assert 201 in statuses
    assert len(audit_log()) == 1


def test_responses_with_a_key_are_not_stored(post: Post, app: Application) -> None:
    """Repeating the request creates no second key, and says where to look."""
    created = post("/keys", {"name": "grafana", "scopes": ["read"]}).json()
    refused = post("/keys", {"name": "grafana", "scopes": ["read"]})
    assert (refused.status_code, "a secret, which is shown once" in refused.json()["detail"]) == (409, True)
    rotate = f"/keys/{created['id']}/rotate"
    assert [post(rotate, key="again").status_code for _ in range(2)] == [201, 409]
    assert "pb_" not in str([row.model_dump() for row in rows(app)])


@pytest.mark.parametrize("query", ["", "?preview=true"])
def test_an_import_takes_no_key(query: str, client: TestClient, api_key: str, app: Application) -> None:
    """Its response has addresses, which an erasure would not find. Without a key, it can be repeated."""
    headers = {"Authorization": f"Bearer {api_key}", "Content-Type": "text/csv"}
    path, file = f"/api/v1/subscribers/import{query}", b"email,interests\nalice@example.org,robotics\n"
    refused = client.post(path, content=file, headers={**headers, "Idempotency-Key": KEY})
    assert (refused.status_code, "does not accept Idempotency-Key" in refused.json()["detail"]) == (422, True)
    assert rows(app) == []
    assert [client.post(path, content=file, headers=headers).status_code for _ in range(2)] == [200, 200]


def test_an_unexpected_error_releases_the_key(
    post: Post, app: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request may be sent again at once."""
    with monkeypatch.context() as patch:
        patch.setattr(subscribers, "add", None)
        assert post("/subscribers", ALICE).status_code == 500
    assert rows(app) == []
    assert post("/subscribers", ALICE).status_code == 201


def test_an_erasure_deletes_stored_responses(post: Post, app: Application) -> None:
    assert post("/subscribers", ALICE).status_code == 201
    with app.db.write() as session:
        subscribers.erase(session, 1, NOW)
    assert "alice" not in str([row.model_dump() for row in rows(app)])
    refused = post("/subscribers", ALICE)
    assert (refused.status_code, "lost or erased" in refused.json()["detail"]) == (409, True)


def test_keys_expire_after_a_day(post: Post, app: Application, site: FastAPI) -> None:
    """Then the request is carried out again. The nightly run deletes expired keys."""
    post("/sending/pause", {"reason": "first"})
    later = NOW + idempotency_keys.LIFETIME
    admin_api(site).state.clock = lambda: later
    assert "idempotency-replayed" not in post("/sending/pause", {"reason": "first"}).headers
    maintenance.prune(app, later + timedelta(hours=1))
    assert len(rows(app)) == 1
    maintenance.prune(app, later + idempotency_keys.LIFETIME)
    assert rows(app) == []


@pytest.mark.once
def test_every_post_operation_documents_the_header(site: FastAPI) -> None:
    """Documenting it twice, for a second request, does not repeat it."""
    api = admin_api(site)
    api.openapi()
    for path, operations in api.openapi()["paths"].items():
        for method, operation in operations.items():
            names = [parameter["name"] for parameter in operation.get("parameters", [])]
            takes_key = method == "post" and not path.endswith("/subscribers/import")
            assert names.count("Idempotency-Key") == takes_key, path
            assert "409" in operation["responses"] or not takes_key
