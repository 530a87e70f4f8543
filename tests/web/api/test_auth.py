"""Check that every API route requires exactly one scope and that every error is a problem document."""

import json
import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlmodel import select

from app import main
from app.application import Application
from app.settings import Settings
from app.storage import api_keys
from app.storage.api_keys import Scope
from app.storage.models import ApiKey
from app.web import security
from app.web.api import RESOURCES, create, docs
from tests.conftest import NOW, SECRET
from tests.web.api.conftest import Call, admin_api

MEDIA_TYPE = "application/problem+json"


def operations() -> list[tuple[str, str, str]]:
    """Return method, path and scope of every operation in the OpenAPI document."""
    settings = Settings(_env_file=None, secret_keys=(SECRET,)).model_copy(
        update={"database_url": "sqlite://"}
    )
    paths = create(main.build(settings)).openapi()["paths"]
    return [
        (
            method.upper(),
            re.sub(r"\{edition\}", "2026-11-20", re.sub(r"\{\w+_id\}", "1", path)),
            scope(operation),
        )
        for path, methods in paths.items()
        for method, operation in methods.items()
    ]


def scope(operation: dict[str, list[dict[str, list[str]]]]) -> str:
    """Return the scope of an operation, or an empty string if it does not have exactly one."""
    scopes = [
        each
        for need in operation.get("security", [])
        for requirement in need.values()
        for each in requirement
    ]
    return scopes[0] if len(scopes) == 1 else ""


OPERATIONS = operations()


@pytest.mark.once
def test_every_route_is_documented(site: FastAPI) -> None:
    """An undocumented route would be skipped by the scope tests."""
    api = admin_api(site)
    routes = {f"/v1{route.path_format}" for resource in RESOURCES for route in resource.router.routes}
    assert routes == set(api.openapi()["paths"])
    assert {route.path for route in docs.router.routes} == {"/docs"}


@pytest.mark.once
@pytest.mark.parametrize(("method", "path", "scope"), OPERATIONS)
def test_route_requires_its_scope(
    method: str, path: str, scope: str, client: TestClient, create_key: Callable[[Scope], str]
) -> None:
    """Without a key the status is 401, with a key of another scope 403, with the right scope neither."""
    refused = client.request(method, f"/api{path}")
    assert refused.status_code == 401
    assert refused.headers["WWW-Authenticate"].startswith("Bearer")
    for other in Scope:
        answer = client.request(
            method, f"/api{path}", headers={"Authorization": f"Bearer {create_key(other)}"}, json={"x": 1}
        )
        assert (answer.status_code == 403) == (other != scope), (method, path, other)
        assert answer.status_code != 401


@pytest.mark.once
@pytest.mark.parametrize(("method", "path", "scope"), OPERATIONS)
def test_unknown_parameters_are_errors(
    method: str, path: str, scope: str, client: TestClient, create_key: Callable[[Scope], str]
) -> None:
    """A misspelt filter must not return all rows, nor a misspelt option change more than was meant."""
    headers = {"Authorization": f"Bearer {create_key(Scope(scope))}"}
    refused = client.request(method, f"/api{path}?sate=active", headers=headers, json={})
    assert refused.status_code == 422
    assert "“sate”" in refused.json()["detail"]
    assert [error["pointer"] for error in refused.json()["errors"]] == ["/query/sate"]


@pytest.mark.once
def test_repeated_parameters_are_errors(call: Call) -> None:
    """Otherwise, only the last value of a filter would count. A list may have several values."""
    refused = call("GET", "/subscribers?state=active&limit=1&state=paused")
    assert refused.status_code == 422
    assert refused.json()["detail"] == "Give the parameter “state” only once."
    assert [error["pointer"] for error in refused.json()["errors"]] == ["/query/state"]
    assert call("GET", "/findings?level=warning&level=error").status_code == 200


@pytest.mark.once
def test_parameter_named_like_a_part_of_the_path_is_in_the_query(call: Call) -> None:
    refused = call("GET", "/subscribers/1?subscriber_id=2")
    assert [error["pointer"] for error in refused.json()["errors"]] == ["/query/subscriber_id"]


@pytest.mark.once
def test_unknown_fields_are_errors(site: FastAPI) -> None:
    """An ignored field, such as the edition of a pause, would make a request change more than was meant."""
    document = admin_api(site).openapi()
    operations = [operation for methods in document["paths"].values() for operation in methods.values()]
    names = _names_of_schemas([operation.get("requestBody") for operation in operations])
    schemas = {name: document["components"]["schemas"][name] for name in names}
    while further := _names_of_schemas(list(schemas.values())) - schemas.keys():
        schemas |= {name: document["components"]["schemas"][name] for name in further}
    objects = {name for name, schema in schemas.items() if schema["type"] == "object"}
    assert {"PauseRequest", "NewSuppression", "InterestIn"} <= objects
    assert {name for name in objects if schemas[name].get("additionalProperties") is not False} == set()


def _names_of_schemas(part: object) -> set[str]:
    """Return the names of the schemas that a part of an OpenAPI document refers to."""
    return set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(part)))


@pytest.mark.parametrize("header", ["Basic YTpi", "Bearer", "Bearer pb_", "Bearer x y", "pb_x", "Bearer é"])
def test_malformed_keys_are_refused(header: str, client: TestClient) -> None:
    """The response is a problem document."""
    answer = client.get("/api/v1/runs", headers={"Authorization": header.encode()})
    assert answer.status_code == 401
    assert answer.headers["content-type"] == MEDIA_TYPE
    assert answer.json()["status"] == 401


def test_wrong_key_and_missing_key_have_different_errors(client: TestClient) -> None:
    none = client.get("/api/v1/runs").json()["detail"]
    wrong = client.get("/api/v1/runs", headers={"Authorization": "Bearer pb_x"}).json()["detail"]
    assert none.startswith("A key is needed")
    assert wrong.startswith("Unknown key")


@pytest.mark.parametrize(
    "path", ["/v1/subscribers/%0A/export", "/v1/x%0Ay", "/v1/subscribers/%C3%28%0A/export"]
)
def test_odd_bytes_in_paths(path: str, site: FastAPI, create_key: Callable[[Scope], str]) -> None:
    """A newline in a path gets the API's error, not a page."""
    key = {"Authorization": f"Bearer {create_key(Scope.READ)}"}
    with TestClient(site) as client:
        answer = client.get(f"/api{path}", headers=key)
    assert answer.status_code in (404, 422)
    assert answer.headers["Content-Type"] == "application/problem+json"


def test_unknown_paths_and_methods(call: Call) -> None:
    """An unknown path gets 404 and an unsupported method 405."""
    assert call("GET", "/nothing").json()["detail"].startswith("There is no such path: ")
    refused = call("DELETE", "/runs")
    assert (refused.status_code, refused.headers["Allow"]) == (405, "GET")
    assert "Allow header" in refused.json()["detail"]


def test_revoked_key_is_refused_immediately(
    app: Application, client: TestClient, create_key: Callable[[Scope], str]
) -> None:
    headers = {"Authorization": f"Bearer {create_key(Scope.READ)}"}
    assert client.get("/api/v1/runs", headers=headers).status_code == 200
    with app.db.write() as session:
        api_keys.revoke(session, "read key", NOW)
    refused = client.get("/api/v1/runs", headers=headers)
    assert refused.status_code == 401
    assert 'error="invalid_token"' in refused.headers["WWW-Authenticate"]


def test_403_names_the_missing_scope(client: TestClient, create_key: Callable[[Scope], str]) -> None:
    headers = {"Authorization": f"Bearer {create_key(Scope.READ)}"}
    refused = client.post("/api/v1/sending/resume", headers=headers)
    assert refused.status_code == 403
    assert 'scope="send"' in refused.headers["WWW-Authenticate"]
    assert "send" in refused.json()["detail"]


def test_last_use_of_a_key_is_recorded(app: Application, call: Call) -> None:
    call("GET", "/runs")
    with app.db.read() as session:
        assert session.exec(select(ApiKey.last_used_at)).one() == NOW
    assert api_keys.ApiKeyIdentity(1, "x", frozenset(), NOW).is_stale(NOW + timedelta(minutes=1))


JSON = {"Content-Type": "application/json"}


@pytest.mark.once
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
        ("POST", "/sources", {"content": b"{", "headers": JSON}, 422),
        ("POST", "/sources", {"content": b"\xff\xfe", "headers": JSON}, 422),
        ("POST", "/sources", {"content": b'{"name": "x"}'}, 415),
        ("POST", "/sources", {"content": b'{"name": "x"}', "headers": {"Content-Type": "text/plain"}}, 415),
        ("POST", "/sources", {"json": {"name": "x" * 300_000}}, 413),
    ],
)
def test_errors_are_rfc_9457_problem_documents(
    method: str, path: str, content: dict[str, object], status: int, call: Call
) -> None:
    """Check type, title, status, detail and instance."""
    answer = call(method, path, **content)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == MEDIA_TYPE
    problem = answer.json()
    assert problem["status"] == status
    assert problem["title"]
    assert problem["detail"]
    assert problem["instance"] == f"/api/v1{path.partition('?')[0]}"


def test_edition_that_is_not_a_day_has_an_example(call: Call) -> None:
    refused = call("GET", "/editions/tomorrow").json()
    assert refused["errors"][0]["detail"] == "An edition is a day such as 2026-11-20."


def test_internal_errors_do_not_expose_the_traceback(site: FastAPI, call: Call) -> None:
    admin_api(site).state.clock = lambda: 1 / 0
    answer = call("GET", "/runs")
    assert answer.status_code == 500
    assert answer.headers["content-type"] == MEDIA_TYPE
    assert "division" not in answer.text


@pytest.mark.once
def test_the_documentation_has_examples(client: TestClient) -> None:
    """The documentation page and the OpenAPI document need no key and load no external script."""
    document = client.get("/api/openapi.json").json()
    assert document["servers"] == [{"url": "/api"}]
    assert document["components"]["schemas"]["NewSubscriber"]["properties"]["email"]["examples"]
    page = client.get("/api/docs")
    assert page.status_code == 200
    assert "<script" not in page.text
    assert "POST /api/v1/subscribers/{subscriber_id}/test-send" in page.text
    assert "alice@example.org" in page.text


@pytest.mark.once
@pytest.mark.parametrize("title", ["Problem", "SubscriberOut", "DeliveryDetail"])
def test_openapi_document_has_all_schemas(client: TestClient, title: str) -> None:
    """Clients can be generated from it."""
    assert title in client.get("/api/openapi.json").json()["components"]["schemas"]


def test_an_oversized_body_is_refused(client: TestClient) -> None:
    """Refuse it before it is read into memory, because the body is read before the key is checked."""
    flood = b'{"name": "' + b"x" * security.MAX_API_BYTES + b'"}'
    refused = client.post(
        "/api/v1/sources", content=iter([flood]), headers={"content-type": "application/json"}
    )
    assert refused.status_code == 413
    assert refused.headers["content-type"] == MEDIA_TYPE
