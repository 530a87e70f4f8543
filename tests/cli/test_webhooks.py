"""Test the commands for webhooks."""

import pytest
from sqlmodel import col, select

from app.application import Application
from app.storage import webhook_endpoints
from app.storage.models import AuditEntry
from tests.cli.test_commands import Run, environment, parse_output, run
from tests.support.webhook_receiver import WebhookReceiver

__all__ = ["environment", "run"]  # fixtures


def test_webhooks(app: Application, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The secret is printed alone, once. A test event that is refused is an error."""
    monkeypatch.setenv("PAPERBOY_ALLOW_PRIVATE_SOURCES", "127.0.0.1")
    with WebhookReceiver() as receiver:
        secret = run("webhooks", "add", receiver.url, "--event", "sending.paused").stdout.strip()
        assert "Accepted: HTTP 204" in run("webhooks", "test", "1").stdout
        assert receiver.received[0].is_signed_by(secret)
        receiver.status = 403
        assert "The event was not accepted: HTTP 403." in run("webhooks", "test", "1", code=1).stderr
    listed = run("webhooks", "list", "--json").stdout
    assert "whsec_" not in listed
    assert parse_output(run("webhooks", "list", "--json"))[0]["error"] == "HTTP 403."
    sent = parse_output(run("webhooks", "messages", "1", "--json"))
    assert [(each["event"], each["state"]) for each in sent] == [
        ("webhook.test", "failed"),
        ("webhook.test", "accepted"),
    ]
    assert "webhook.test" in run("webhooks", "messages", "1").stdout
    assert run("webhooks", "rotate", "1").stdout.startswith("whsec_")
    for command in ("disable", "enable", "resend", "remove"):
        run("webhooks", command, "1")
    assert "no webhook 1" in run("webhooks", "remove", "1", code=1).stderr
    with app.db.read() as session:
        entries = session.exec(select(AuditEntry).order_by(col(AuditEntry.id))).all()
    assert {each.detail["url"] for each in entries} == {webhook_endpoints.origin(receiver.url)}
    assert [each.action for each in entries] == [
        f"webhook.{each}" for each in ("add", "rotate", "disable", "enable", "resend", "remove")
    ]
