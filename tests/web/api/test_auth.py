"""Every route asks for exactly one scope, and every error is a problem document."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlmodel import select

from app import clock, main
from app.application import Application
from app.settings import Settings
from app.storage import api_keys
from app.storage.models import ApiKey, Scope
from app.web import security
from app.web.api import RESOURCES, create, docs
from tests.conftest import NOW, SECRET
from tests.web.api.conftest import Call, api_of

MEDIA_TYPE = "application/problem+json"


def operations() -> list[tuple[str, str, str]]:
    """Method, path and scope of everything that the API can do, as its own documentation has it."""
    settings = Settings(_env_file=None, database_url="sqlite://", secret_keys=(SECRET,))
    paths = create(main.build(settings)).openapi()["paths"]
    return [
        (method.upper(), re.sub(r"\{edition\}", "2026-11-20", re.sub(r"\{\w+_id\}", "1", path)), scope(told))
        for path, methods in paths.items()
        for method, told in methods.items()
    ]


def scope(operation: dict[str, list[dict[str, list[str]]]]) -> str:
    """The one scope of an operation; empty where there is none, so that the tests below fail."""
    scopes = [each for need in operation.get("security", []) for given in need.values() for each in given]
    return scopes[0] if len(scopes) == 1 else ""


OPERATIONS = operations()


def test_every_route_is_documented(site: FastAPI) -> None:
    """A route that hides from the documentation would hide from the tests of its scope."""
    api = api_of(site)
    written = {f"/v1{route.path_format}" for resource in RESOURCES for route in resource.router.routes}
    assert written == set(api.openapi()["paths"])
    assert {route.path for route in docs.router.routes} == {"/docs"}


@pytest.mark.parametrize(("method", "path", "scope"), OPERATIONS)
def test_a_route_wants_a_key_of_its_scope(
    method: str, path: str, scope: str, client: TestClient, key_of: Callable[[Scope], str]
) -> None:
    """Without a key 401, with the other scopes' keys 403, with its own neither."""
    refused = client.request(method, f"/api{path}")
    assert refused.status_code == 401
    assert refused.headers["WWW-Authenticate"].startswith("Bearer")
    for other in Scope:
        answer = client.request(
            method, f"/api{path}", headers={"Authorization": f"Bearer {key_of(other)}"}, json={"x": 1}
        )
        assert (answer.status_code == 403) == (other != scope), (method, path, other)
        assert answer.status_code != 401


@pytest.mark.parametrize("header", ["Basic YTpi", "Bearer", "Bearer pb_", "Bearer x y", "pb_x", "Bearer é"])
def test_what_is_no_key_opens_nothing(header: str, client: TestClient) -> None:
    """Whatever is sent, the answer says how to send a key."""
    answer = client.get("/api/v1/runs", headers={"Authorization": header.encode()})
    assert answer.status_code == 401
    assert answer.headers["content-type"] == MEDIA_TYPE
    assert answer.json()["status"] == 401


def test_a_wrong_key_is_told_from_none(client: TestClient) -> None:
    """Whoever did send one looks for what is wrong with it."""
    none = client.get("/api/v1/runs").json()["detail"]
    wrong = client.get("/api/v1/runs", headers={"Authorization": "Bearer pb_x"}).json()["detail"]
    assert none.startswith("a key is needed")
    assert wrong.startswith("unknown key")


def test_what_has_no_route_says_so(call: Call) -> None:
    """A path that is none, and a method that a path does not take."""
    assert call("GET", "/nothing").json()["detail"].startswith("there is no such path: ")
    refused = call("DELETE", "/runs")
    assert (refused.status_code, refused.headers["Allow"]) == (405, "GET")
    assert "Allow header" in refused.json()["detail"]


def test_a_revoked_key_opens_nothing(
    app: Application, client: TestClient, key_of: Callable[[Scope], str]
) -> None:
    """At once, not when some cache expires."""
    headers = {"Authorization": f"Bearer {key_of(Scope.READ)}"}
    assert client.get("/api/v1/runs", headers=headers).status_code == 200
    with app.db.write() as session:
        api_keys.revoke(session, "read key", NOW)
    refused = client.get("/api/v1/runs", headers=headers)
    assert refused.status_code == 401
    assert 'error="invalid_token"' in refused.headers["WWW-Authenticate"]


def test_the_missing_scope_is_named(client: TestClient, key_of: Callable[[Scope], str]) -> None:
    """Whoever gets a 403 knows which key to ask for."""
    headers = {"Authorization": f"Bearer {key_of(Scope.READ)}"}
    refused = client.post("/api/v1/sending/resume", headers=headers)
    assert refused.status_code == 403
    assert 'scope="send"' in refused.headers["WWW-Authenticate"]
    assert "send" in refused.json()["detail"]


def test_the_last_use_of_a_key_is_kept(app: Application, call: Call) -> None:
    """An operator sees which keys are in use."""
    call("GET", "/runs")
    with app.db.read() as session:
        assert session.exec(select(ApiKey.last_used_at)).one() == NOW
    assert api_keys.ApiKeyIdentity(1, "x", frozenset(), NOW).is_stale(NOW + timedelta(minutes=1))


@pytest.mark.parametrize(
    ("method", "path", "content", "status"),
    [
        ("GET", "/nothing", {}, 404),
        ("GET", "/runs/99", {}, 404),
        ("GET", "/runs/x", {}, 422),
        ("GET", f"/runs/{10**30}", {}, 422),
        ("GET", "/runs?cursor=OTk5OTk5OTk5OTk5OTk5OTk5OTk5", {}, 422),
        ("DELETE", "/runs", {}, 405),
        ("GET", "/runs?limit=0", {}, 422),
        ("GET", "/runs?limit=201", {}, 422),
        ("GET", "/runs?cursor=é", {}, 422),
        ("GET", "/runs?cursor=AAAA", {}, 422),
        ("GET", "/editions/tomorrow", {}, 422),
        ("POST", "/sources", {"json": {"name": "x"}}, 422),
        ("POST", "/sources", {"content": b"{"}, 422),
        ("POST", "/sources", {"content": b"\xff\xfe"}, 422),
    ],
)
def test_every_error_is_a_problem(
    method: str, path: str, content: dict[str, object], status: int, call: Call
) -> None:
    """RFC 9457: type, title, status, detail and instance, whatever went wrong."""
    answer = call(method, path, **content)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == MEDIA_TYPE
    problem = answer.json()
    assert problem["status"] == status
    assert problem["title"]
    assert problem["detail"]
    assert problem["instance"] == f"/api/v1{path.partition('?')[0]}"


def test_a_fault_of_ours_is_a_problem_without_its_inside(site: FastAPI, call: Call) -> None:
    """A traceback is for the log, not for the caller."""
    api_of(site).dependency_overrides[clock.utcnow] = lambda: 1 / 0
    answer = call("GET", "/runs")
    assert answer.status_code == 500
    assert answer.headers["content-type"] == MEDIA_TYPE
    assert "division" not in answer.text


def test_the_documentation_has_examples(client: TestClient) -> None:
    """The page for people and the document for programs need no key, and no foreign script."""
    document = client.get("/api/openapi.json").json()
    assert document["servers"] == [{"url": "/api"}]
    assert document["components"]["schemas"]["NewSubscriber"]["properties"]["email"]["examples"]
    page = client.get("/api/docs")
    assert page.status_code == 200
    assert "<script" not in page.text
    assert "POST /api/v1/subscribers/{subscriber_id}/test-send" in page.text
    assert "alice@example.org" in page.text


@pytest.mark.parametrize("title", ["Problem", "SubscriberOut", "DeliveryDetail"])
def test_the_shapes_are_in_the_document(client: TestClient, title: str) -> None:
    """A client can be generated from it."""
    assert title in client.get("/api/openapi.json").json()["components"]["schemas"]


def test_an_oversized_body_is_refused(client: TestClient) -> None:
    """Before it is held in memory, for it is read before the key is looked at."""
    flood = b'{"name": "' + b"x" * security.MAX_API_BYTES + b'"}'
    refused = client.post(
        "/api/v1/sources", content=iter([flood]), headers={"content-type": "application/json"}
    )
    assert refused.status_code == 413
    assert refused.headers["content-type"] == MEDIA_TYPE
