"""Test abuse of the API with leaked or guessed keys."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlmodel import select

from app import subscribers
from app.application import Application
from app.storage import api_keys
from app.storage.api_keys import Scope
from app.storage.models import ApiKey, Delivery, RateLimit, Subscriber
from app.subscribers import mailbox_limits
from app.types import MailKind
from app.web import capacity
from tests.conftest import NOW
from tests.web.api.conftest import Call, admin_api

MALLORY = {"email": "mallory@example.org", "consent": "none whatever", "interests": [{"text": "agents"}]}
READ = {"interests": [{"text": "agents"}]}


def test_write_key_cannot_add_active_subscribers(app: Application, call: Call) -> None:
    """With a source and active subscribers, a key with `write` alone could mail anything to anybody."""
    added = call("POST", "/subscribers", json=MALLORY)
    assert (added.status_code, added.json()["state"], added.json()["next_due_at"]) == (201, "pending", None)
    mails = call("GET", f"/deliveries?subscriber_id={added.json()['id']}").json()["items"]
    assert [mail["kind"] for mail in mails] == [MailKind.CONFIRM]
    assert call("POST", "/subscribers", json=MALLORY).status_code == 409
    for path in (f"/subscribers/{added.json()['id']}/resume", "/suppressions/lift"):
        assert call("POST", path, json={"email": "a@b.org", "reason": "none"}).status_code == 403
    with app.db.read() as session:
        assert session.exec(select(Subscriber.state)).all() == ["pending"]


def test_invited_subscriber_confirms_the_given_preferences(app: Application, call: Call) -> None:
    """They are in the response, can be changed while pending, and apply on confirmation."""
    added = call("POST", "/subscribers", json=MALLORY).json()
    assert [interest["text"] for interest in added["interests"]] == ["agents"]
    call("PATCH", f"/subscribers/{added['id']}", json={"interests": [{"text": "robotics"}]})
    delivery_id = call("GET", f"/deliveries?subscriber_id={added['id']}").json()["items"][0]["id"]
    with app.db.write() as session:
        reader = subscribers.confirm(session, added["id"], "", NOW, delivery_id)
        assert [wish.text for wish in subscribers.preferences_of(session, reader).interests] == ["robotics"]


def test_invitations_are_rate_limited(app: Application, call: Call) -> None:
    """A key with `write` alone cannot flood mailboxes with confirmations."""
    assert call("POST", "/subscribers", json={**MALLORY, "email": "first@example.org"}).status_code == 201
    with app.db.write() as session:
        session.exec(select(RateLimit)).one().hits = app.settings.invitations_per_hour
    refused = call("POST", "/subscribers", json=MALLORY)
    assert (refused.status_code, "Retry-After" in refused.headers) == (429, True)
    both = call("POST", "/subscribers", json=MALLORY, scope=(Scope.SEND, Scope.WRITE))
    assert both.json()["state"] == "active"


def test_changes_of_address_count_as_invitations(app: Application, call: Call, alice: int) -> None:
    """A key with `write` alone can have mail sent to each subscriber. Its number per hour is limited."""
    change = {"email": "mallory@example.com"}
    assert call("PATCH", f"/subscribers/{alice}", json=change).status_code == 200
    with app.db.write() as session:
        session.exec(select(RateLimit)).one().hits = app.settings.invitations_per_hour
    refused = call("PATCH", f"/subscribers/{alice}", json=change)
    assert (refused.status_code, "Retry-After" in refused.headers) == (429, True)
    both = call("PATCH", f"/subscribers/{alice}", json=change, scope=(Scope.SEND, Scope.WRITE))
    assert both.status_code == 200


@pytest.mark.once
def test_changes_of_address_do_not_flood_a_mailbox(
    app: Application, site: FastAPI, call: Call, alice: int
) -> None:
    """Those by a key with `write` alone count against the limits on requested emails."""
    answers = []
    for hours in range(48):
        admin_api(site).state.clock = lambda hours=hours: NOW + timedelta(hours=hours)
        change = {"email": f"mallory{hours}@example.com"}
        answers.append(call("PATCH", f"/subscribers/{alice}", json=change))
    refused = next(answer for answer in answers if answer.status_code == 409)
    assert "too many emails to the subscriber's mailbox" in refused.json()["detail"]
    with app.db.read() as session:
        mails = session.exec(select(Delivery.kind).where(Delivery.subscriber_id == alice)).all()
        assert subscribers.new_address(session, alice, NOW) == "mallory25@example.com"
    assert mails == [MailKind.ADDRESS] * dict(mailbox_limits.MAX_MAILS)[timedelta(days=7)]
    both = call("PATCH", f"/subscribers/{alice}", json=change, scope=(Scope.SEND, Scope.WRITE))
    assert both.status_code == 200, "whoever may send mail to everybody is trusted"


def test_keys_expire(app: Application, client: TestClient) -> None:
    """A key without expiry must be requested explicitly."""
    with app.db.write() as session:
        _, old = api_keys.create(session, "old", [Scope.READ], NOW - timedelta(days=31), days=30)
        _, lasting = api_keys.create(session, "lasting", [Scope.READ], NOW - timedelta(days=4000), days=None)
        row, _ = api_keys.create(session, "usual", [Scope.READ], NOW)
        assert row.expires_at == NOW + timedelta(days=365)
        assert [key.name for key in api_keys.expiring_keys(session, NOW + timedelta(days=366))] == [
            "old",
            "usual",
        ]
    for key, status in ((old, 401), (lasting, 200)):
        answer = client.get("/api/v1/runs", headers={"Authorization": f"Bearer {key}"})
        assert answer.status_code == status


def test_keys_are_rate_limited(app: Application, client: TestClient, create_key: Callable[..., str]) -> None:
    """The response has Retry-After. Other keys are not affected."""
    greedy, other = ({"Authorization": f"Bearer {create_key(scope)}"} for scope in (Scope.READ, Scope.SEND))
    statuses = [client.get("/api/v1/runs", headers=greedy).status_code for _ in range(2)]
    limits = client.app.state.capacity.keys  # type: ignore[attr-defined]
    for _ in range(app.settings.api_requests_per_minute - 2):
        limits.valid_key("x", 1)
    refused = client.get("/api/v1/runs", headers=greedy)
    assert (statuses, refused.status_code) == ([200, 200], 429)
    assert 1 <= int(refused.headers["Retry-After"]) <= 60
    assert client.get("/api/v1/runs", headers=other).status_code == 403


def test_guessing_keys_is_limited(
    app: Application, client: TestClient, create_key: Callable[..., str]
) -> None:
    """After 20 wrong keys from a network the database is not queried; a valid key still works."""
    headers = {"Authorization": f"Bearer {create_key(Scope.READ)}"}
    assert client.get("/api/v1/runs", headers=headers).status_code == 200
    guesses = [
        client.get("/api/v1/runs", headers={"Authorization": f"Bearer pb_{number:043}"})
        for number in range(25)
    ]
    assert [guess.status_code for guess in guesses] == [401] * 20 + [429] * 5
    assert "Retry-After" in guesses[-1].headers
    assert client.get("/api/v1/runs", headers=headers).status_code == 200
    with app.db.read() as session:
        assert len(session.exec(select(ApiKey)).all()) == 1


@pytest.mark.once
@pytest.mark.parametrize(
    "path", ["/api/v1/subscribers", "/api/v1/nothing", "/api/openapi.json", "/hooks/bounces/ses", "/metrics"]
)
def test_api_responses_are_not_cached(path: str, client: TestClient) -> None:
    """They have no-store, whatever the status."""
    assert client.get(path).headers["Cache-Control"] == "no-store"


def test_concurrent_backtests_are_limited(client: TestClient, call: Call) -> None:
    """A read key with 40 of them delayed the front page by 15 s; now the third is refused."""
    slots = client.app.state.capacity.analyses  # type: ignore[attr-defined]
    with slots.take(), slots.take():
        refused = call("POST", "/backtests", json=READ, scope=Scope.READ)
        others = [
            call("POST", "/previews", json=READ, scope=Scope.READ).status_code,
            call("GET", "/subscribers/1/explain/1").status_code,
            call("GET", "/subscribers/1/export").status_code,
            call("GET", "/subscribers/1/preview").status_code,
        ]
        assert call("GET", "/runs").status_code == 200
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "2")
    assert refused.headers["content-type"] == "application/problem+json"
    assert others == [429] * 4
    assert call("POST", "/backtests", json=READ, scope=Scope.READ).status_code == 200


@pytest.mark.once
def test_jobs_started_by_keys_use_two_threads(client: TestClient, call: Call) -> None:
    """Each refresh holds a thread while its source is polled; 40 of them took all."""
    slots = client.app.state.capacity.jobs  # type: ignore[attr-defined]
    with slots.take(), slots.take():
        assert call("POST", "/models").status_code == 429
        assert call("POST", "/sources/1/refresh").status_code == 429


@pytest.mark.once
def test_concurrent_api_calls_are_limited(
    client: TestClient, call: Call, create_key: Callable[..., str]
) -> None:
    """At most eight run at once over all keys, including metrics and webhooks."""
    slots = client.app.state.capacity.api  # type: ignore[attr-defined]
    places = [slots.take() for _ in range(capacity.API_REQUESTS)]
    for place in places:
        place.__enter__()
    assert call("GET", "/runs").status_code == 429
    key = {"Authorization": f"Bearer {create_key(Scope.BOUNCES, Scope.READ)}"}
    assert client.get("/metrics", headers=key).status_code == 429
    assert client.post("/hooks/bounces/ses", headers=key, json={}).status_code == 429
    assert client.get("/healthz").status_code == 200
    for place in places:
        place.__exit__(None, None, None)
    assert call("GET", "/runs").status_code == 200


@pytest.mark.once
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/previews", {**READ, "day": 0}),
        ("/previews", {**READ, "day": "0"}),
        ("/previews", {**READ, "max_trending": False}),
        ("/previews", {**READ, "max_papers": "3"}),
        ("/backtests", {**READ, "at": 0}),
        ("/backtests", {**READ, "days": True}),
        ("/backtests", {"interests": [{"text": "agents", "weight": True}]}),
        ("/previews", {**READ, "muted": ["x"] * 100_000}),
    ],
)
def test_undocumented_types_are_refused(path: str, body: object, call: Call) -> None:
    """Pydantic would accept 0 for 1970-01-01, and false for 0. At most 50 errors are listed."""
    refused = call("POST", path, json=body, scope=Scope.READ)
    assert refused.status_code in (413, 422), refused.text
    assert len(refused.text) < 10_000


@pytest.mark.once
@pytest.mark.parametrize(
    "query", ["/papers?day=0", "/merges?undone=1", "/runs?failed=yes", "/runs?limit=1_0"]
)
def test_query_parameters_are_parsed_as_documented(query: str, call: Call) -> None:
    """A day is a date, and true is a boolean."""
    assert call("GET", query).status_code == 422


@pytest.mark.once
@pytest.mark.parametrize("body", [b'{"name": "\xff"}', b"[" * 100_000, b"\xff\xfe", b"{"])
def test_invalid_json_gets_a_documented_status(
    body: bytes, client: TestClient, create_key: Callable[..., str]
) -> None:
    """It was an undocumented 400."""
    headers = {"Authorization": f"Bearer {create_key(Scope.WRITE)}", "Content-Type": "application/json"}
    refused = client.post("/api/v1/sources", content=body, headers=headers)
    assert (refused.status_code, refused.headers["content-type"]) == (422, "application/problem+json")


@pytest.mark.once
@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/subscribers", "GET, POST"),
        ("/subscribers/1", "DELETE, GET, PATCH"),
        ("/sources", "GET, POST"),
        ("/sources/1", "DELETE, GET, PATCH"),
        ("/suppressions", "GET, POST"),
        ("/models", "GET, POST"),
    ],
)
def test_allow_header_lists_all_methods(path: str, allowed: str, call: Call) -> None:
    """RFC 9110: Allow lists the methods of the resource, not those of one route."""
    refused = call("PUT", path)
    assert (refused.status_code, refused.headers["Allow"]) == (405, allowed)
