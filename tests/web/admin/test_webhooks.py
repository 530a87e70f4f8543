"""Test the pages of webhooks."""

import re
from collections.abc import Callable, Iterator

import pytest
from sqlmodel import col, select

from app import clock
from app.application import Application
from app.settings import Settings
from app.storage import webhook_endpoints, webhook_outbox
from app.storage.api_keys import Scope
from app.storage.models import AuditEntry, WebhookEvent
from tests.support.webhook_receiver import WebhookReceiver
from tests.web.admin.conftest import Desk


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Return settings that allow a receiver on this machine."""
    return settings.model_copy(update={"allow_private_sources": ("127.0.0.1",)})


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with WebhookReceiver() as server:
        yield server


def test_operator_adds_and_tests_a_webhook(
    app: Application, sign_in: Callable[..., Desk], receiver: WebhookReceiver
) -> None:
    """The secret is on the page after the form, and on no other."""
    desk = sign_in()
    added = desk.post("/admin/webhooks", url=receiver.url, event="sending.paused", addresses="yes").text
    (secret,) = re.findall(r"whsec_[\w+/=]+", added)
    at = "/admin/webhooks/1"
    assert desk.post(f"{at}/test").headers["location"] == f"{at}?done=accepted"
    assert receiver.received[0].is_signed_by(secret)
    receiver.status, receiver.answer = 500, b"<b>broken</b> <i>pipes</i>"
    assert "not accepted: HTTP 500" in desk.post(f"{at}/test").text
    shown = desk.get(at).text
    assert "whsec_" not in shown
    assert "webhook.test" in shown
    assert "<b>broken" not in shown
    assert desk.post(f"{at}/rotate").text.count("whsec_") == 1
    assert desk.post(at, url=receiver.url, event="edition.sent").headers["location"] == f"{at}?done=changed"
    with app.db.read() as session:
        row = webhook_endpoints.get(session, 1)
    assert (row.events, row.include_addresses) == (["edition.sent"], False)
    for action in ("disable", "enable", "resend", "remove"):
        assert desk.post(f"{at}/{action}").status_code == 303
    assert "None yet." in desk.get("/admin/webhooks").text


def test_enabling_mentions_failed_events_only_if_there_are_any(
    app: Application, sign_in: Callable[..., Desk]
) -> None:
    """Events that wait when a webhook is disabled fail."""
    with app.db.write() as session:
        webhook_endpoints.add(session, "https://a.test/", ["sending.paused"], False, clock.utcnow())
    desk, at, advice = sign_in(), "/admin/webhooks/1", "To send the failed events, press “Send failed events"
    desk.post(f"{at}/disable")
    enabled = desk.get(desk.post(f"{at}/enable").headers["location"]).text
    assert ("Enabled." in enabled, advice in enabled) == (True, False)
    with app.db.write() as session:
        webhook_outbox.emit(session, WebhookEvent.PAUSED, {}, clock.utcnow())
    desk.post(f"{at}/disable")
    enabled = desk.get(desk.post(f"{at}/enable").headers["location"]).text
    assert (advice in enabled, "Send failed events again</button>" in enabled) == (True, True)


@pytest.mark.parametrize("path", ["/admin/webhooks", "/admin/webhooks/1"])
def test_form_with_an_error_keeps_the_choices(
    app: Application, sign_in: Callable[..., Desk], path: str
) -> None:
    """Otherwise, correcting the URL would add all events, or restore the old ones."""
    with app.db.write() as session:
        webhook_endpoints.add(session, "https://a.test/", ["sending.paused"], False, clock.utcnow())
    form = {"url": "http://b.test/", "event": "source.failed", "addresses": "yes"}
    page = sign_in().post(path, **form).text
    assert re.findall(r'type="checkbox" name="\w+" value="([\w.]+)" checked', page) == [
        "source.failed",
        "yes",
    ]
    assert 'value="http://b.test/"' in page


def test_who_disabled_a_webhook_is_recorded(app: Application, sign_in: Callable[..., Desk]) -> None:
    with app.db.write() as session:
        webhook_endpoints.add(session, "https://a.test/", ["sending.paused"], False, clock.utcnow())
    desk = sign_in()
    for action in ("disable", "enable"):
        desk.post(f"/admin/webhooks/1/{action}")
    with app.db.read() as session:
        entries = session.exec(select(AuditEntry).order_by(col(AuditEntry.id))).all()
    assert [entry.action for entry in entries] == ["webhook.disable", "webhook.enable"]


def test_secrets_in_urls_are_hidden(app: Application, sign_in: Callable[..., Desk]) -> None:
    """The whole URL is only in the form that changes it, for those who may."""
    url = "https://chat.test/hooks/SECRET"
    with app.db.write() as session:
        webhook_endpoints.add(session, url, ["sending.paused"], False, clock.utcnow())
    for path in ("/admin/webhooks", "/admin/webhooks/1"):
        shown = sign_in(Scope.READ).get(path).text
        assert "https://chat.test" in shown
        assert "SECRET" not in shown
    assert "SECRET" not in sign_in().get("/admin/webhooks").text
    assert sign_in().get("/admin/webhooks/1").text.count(url) == 1


def test_problems_are_shown_on_the_form(sign_in: Callable[..., Desk]) -> None:
    """What was typed stays."""
    refused = sign_in().post("/admin/webhooks", url="http://a.test/", event="sending.paused")
    assert refused.status_code == 422
    assert (
        "must begin with https://; to allow http:// for one of your own hosts, add the host" in refused.text
    )
    assert 'value="http://a.test/"' in refused.text
    assert "Choose at least one event." in sign_in().post("/admin/webhooks", url="https://a.test/").text
    long = sign_in().post("/admin/webhooks", url=f"https://a.test/{'x' * 2000}", event="sending.paused")
    assert long.status_code == 422
    assert "The URL must have at most 2,000 characters." in long.text
    assert "Choose at least one event." not in long.text
