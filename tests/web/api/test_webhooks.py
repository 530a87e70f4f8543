"""Test the webhooks in the API: secrets are shown once, and events need the scope `read`."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from app import webhooks
from app.application import Application
from app.doctor import service_state
from app.errors import InvalidInput
from app.storage import webhook_endpoints
from app.storage.api_keys import Scope
from app.storage.models import WebhookEvent
from tests.conftest import NOW
from tests.support.webhook_receiver import WebhookReceiver
from tests.web.api.conftest import Call

BOTH = (Scope.WRITE, Scope.READ)


@pytest.fixture
def app(app: Application) -> Application:
    """Return the application, which may reach a server on this machine."""
    return replace(app, settings=app.settings.model_copy(update={"allow_private_sources": ("127.0.0.1",)}))


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with WebhookReceiver() as server:
        yield server


def test_session(app: Application, call: Call, receiver: WebhookReceiver) -> None:
    """Add a webhook, test it, see its events, rotate its secret, disable, enable and remove it."""
    new = {"url": receiver.url, "events": ["sending.paused", "edition.sent"]}
    added = call("POST", "/webhooks", json=new, scope=BOTH)
    assert added.status_code == 201, added.text
    at, secret = f"/webhooks/{added.json()['id']}", added.json()["secret"]
    assert secret.startswith("whsec_")
    assert "secret" not in call("GET", at).json()
    assert call("POST", "/webhooks", json=new, scope=BOTH).status_code == 409

    tested = call("POST", f"{at}/test", scope=BOTH).json()
    assert (tested["event"], tested["state"], tested["status"]) == ("webhook.test", "accepted", 204)
    assert receiver.received[-1].is_signed_by(secret)
    receiver.status = 500
    call("POST", "/sending/pause", json={"reason": "the relay moves"}, scope=Scope.SEND)
    webhooks.send_events(app, NOW)
    waiting = call("GET", f"{at}/messages?state=pending").json()["items"]
    assert [(each["event"], each["status"], each["attempts"]) for each in waiting] == [
        ("sending.paused", 500, 1)
    ]
    listed = call("GET", "/webhooks").json()["items"]
    assert listed[0]["messages"] == {"pending": 1, "accepted": 1, "failed": 0}
    assert listed[0]["error"] == "HTTP 500."

    rotated = call("POST", f"{at}/rotate", scope=BOTH).json()["secret"]
    assert rotated != secret
    changed = call("PATCH", at, json={"enabled": False, "events": ["source.failed"]}, scope=BOTH)
    assert (changed.json()["events"], changed.json()["messages"]["failed"]) == (["source.failed"], 1)
    assert call("POST", f"{at}/resend", scope=BOTH).status_code == 409
    assert call("PATCH", at, json={"enabled": True}, scope=BOTH).json()["disabled_at"] is None
    assert call("POST", f"{at}/resend", scope=BOTH).json() == {"messages": 1}
    assert call("DELETE", at, scope=BOTH).status_code == 204
    assert call("GET", f"{at}/messages").status_code == 404
    audit = [entry["action"] for entry in call("GET", "/audit-log").json()["items"]]
    assert audit[0] == "webhook.remove"


def test_writing_alone_does_not_read(app: Application, call: Call) -> None:
    """A key that may not read subscribers cannot have events, or their addresses, sent to its own URL."""
    body = {"url": "https://a.test/", "events": ["subscriber.confirmed"], "include_addresses": True}
    assert call("POST", "/webhooks", json=body, scope=Scope.WRITE).status_code == 409
    with app.db.write() as session:
        number = webhook_endpoints.add(session, "https://b.test/", list(WebhookEvent), False, NOW).id
    for path in (f"/webhooks/{number}", f"/webhooks/{number}/rotate"):
        method = "POST" if path.endswith("rotate") else "PATCH"
        assert call(method, path, json={"include_addresses": True}, scope=Scope.WRITE).status_code == 409
    with app.db.read() as session:
        assert not webhook_endpoints.get(session, number or 0).include_addresses


def test_secrets_in_urls_are_hidden(app: Application, call: Call) -> None:
    """Only a key that may change the URL sees all of it. It is not in the audit log."""
    url = "https://chat.test:8443/hooks/T0-SECRET?token=SECRET"
    added = call("POST", "/webhooks", json={"url": url, "events": ["sending.paused"]}, scope=BOTH).json()
    at = f"/webhooks/{added['id']}"
    assert added["url"] == url
    call("PATCH", at, json={"enabled": False}, scope=BOTH)
    assert call("GET", at, scope=BOTH).json()["url"] == url
    for path in (at, "/webhooks", f"{at}/messages", "/audit-log"):
        answer = call("GET", path, scope=Scope.READ)
        assert answer.status_code == 200
        assert "SECRET" not in answer.text, path
    assert call("GET", at, scope=Scope.READ).json()["url"] == "https://chat.test:8443"
    with app.db.write() as session:
        webhook_endpoints.get(session, added["id"]).error = "HTTP 404."
    assert "SECRET" not in str(list(service_state.check(app.db, app.models, NOW)))


@pytest.mark.parametrize(
    "change",
    [{"url": "http://a.test/"}, {"url": "https://10.0.0.7/"}, {"events": []}, {"events": ["paper.found"]}],
)
def test_invalid_webhooks_are_refused(change: dict[str, object], call: Call) -> None:
    body = {"url": "https://a.test/", "events": ["sending.paused"], **change}
    assert call("POST", "/webhooks", json=body, scope=BOTH).status_code == 422


def test_long_url_is_refused(call: Call, app: Application) -> None:
    """URLs are indexed, and PostgreSQL limits the bytes."""
    with app.db.write() as session, pytest.raises(InvalidInput, match="at most 2,000"):
        webhook_endpoints.add(session, f"https://{'é' * 1000}.test/", ["sending.paused"], False, NOW)
    body = {"url": f"https://a.test/{'x' * 2000}", "events": ["sending.paused"]}
    answer = call("POST", "/webhooks", json=body, scope=BOTH)
    assert answer.status_code == 422
    assert "The URL must have at most 2,000 characters." in answer.json()["detail"]
