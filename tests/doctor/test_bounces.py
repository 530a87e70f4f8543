"""Test the doctor's check of the bounce mailbox, which it does not change."""

import socket
from datetime import datetime
from pathlib import Path

import pytest

from app.application import Application
from app.doctor import bounces
from app.doctor.findings import Finding, Level
from app.settings import Settings
from app.storage import api_keys
from app.storage.api_keys import Scope
from app.storage.database import Database
from tests.support.imap_server import ImapServer


def run_check(settings: Settings, now: datetime, **changed: object) -> dict[str, Finding]:
    """Return the findings by check, with some settings changed."""
    database = Database(settings.database_url)
    settings = settings.model_copy(update=changed)
    findings = [*bounces.check_mailbox(settings.bounce_mailbox), *bounces.check(settings, database, now)]
    database.dispose()
    assert all(finding.fix for finding in findings if finding.level is not Level.OK)
    return {finding.check: finding for finding in findings}


def test_no_bounce_processing(app: Application, now: datetime) -> None:
    """A webhook key is sufficient unless it is revoked."""
    assert run_check(app.settings, now)["bounces"].level is Level.WARNING
    with app.db.write() as session:
        api_keys.create(session, "relay", [Scope.BOUNCES], now)
    assert run_check(app.settings, now)["bounces"].level is Level.OK
    with app.db.write() as session:
        api_keys.revoke(session, "relay", now)
    assert run_check(app.settings, now)["bounces"].level is Level.WARNING


@pytest.mark.parametrize(
    ("changed", "level", "text"),
    [
        ({}, Level.OK, "not verified"),
        ({"smtp_host": "smtp.eu.mailgun.org"}, Level.WARNING, "without Mailgun's signature"),
        ({"smtp_host": "smtp.eu.mailgun.org", "mailgun_key": "x"}, Level.OK, "Mailgun"),
        ({"smtp_host": "email-smtp.eu-west-1.amazonaws.com"}, Level.WARNING, "Amazon SNS"),
        ({"smtp_host": "smtp.SendGrid.net"}, Level.WARNING, "without SendGrid's signature"),
    ],
)
def test_webhook_signatures(
    app: Application, now: datetime, changed: dict[str, str], level: Level, text: str
) -> None:
    """They are reported only if there is a key for webhooks."""
    assert "bounce webhooks" not in run_check(app.settings, now, **changed)
    with app.db.write() as session:
        api_keys.create(session, "relay", [Scope.BOUNCES], now)
    finding = run_check(app.settings, now, **changed)["bounce webhooks"]
    assert (finding.level, text in finding.message) == (level, True)


def test_webhook_signatures_of_each_relay(app: Application, now: datetime) -> None:
    """The keys of other relays do not hide that those of the configured relay are missing."""
    with app.db.write() as session:
        api_keys.create(session, "relay", [Scope.BOUNCES], now)
    keys = {"sns_topics": ("arn:x",), "sendgrid_key": "x", "smtp_host": "smtp.eu.mailgun.org"}
    findings = bounces.check(app.settings.model_copy(update=keys), app.db, now)
    levels = [finding.level for finding in findings if finding.check == "bounce webhooks"]
    assert levels == [Level.OK, Level.OK, Level.WARNING]


def test_reachable_mailbox(settings: Settings, now: datetime) -> None:
    """Its emails are unchanged."""
    with ImapServer() as server:
        server.deliver(b"Subject: a bounce\r\n\r\nno such user\r\n")
        findings = run_check(settings, now, bounce_mailbox=server.url)
        assert (
            findings["bounce_mailbox"].level,
            "emails waiting: 1" in findings["bounce_mailbox"].message,
        ) == (
            Level.OK,
            True,
        )
        assert server.subjects(flagged=False) == ["a bounce"]


def test_mailbox_login_error(settings: Settings, now: datetime) -> None:
    """The finding has no password."""
    with ImapServer() as server:
        finding = run_check(settings, now, bounce_mailbox=f"imap://me:hunter2@127.0.0.1:{server.port}")[
            "bounce_mailbox"
        ]
    assert finding.level is Level.ERROR
    assert "hunter2" not in str(finding)


def test_unreachable_mailbox(settings: Settings, now: datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    """A silent server is not waited for."""
    assert (
        run_check(settings, now, bounce_mailbox="imap://a:b@127.0.0.1:1")["bounce_mailbox"].level
        is Level.ERROR
    )
    monkeypatch.setattr(bounces, "TIMEOUT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"imap://a:b@127.0.0.1:{silent.getsockname()[1]}"
        assert run_check(settings, now, bounce_mailbox=url)["bounce_mailbox"].level is Level.ERROR


@pytest.mark.parametrize(
    ("url", "warned"),
    [
        ("imap://a:b@mail.example.org/INBOX", True),
        ("imap://a:b@192.0.2.7", True),
        ("imaps://a:b@mail.example.org", False),
        ("imap://a:b@localhost", False),
        ("imap://a:b@[::1]:143/", False),
    ],
)
def test_unencrypted_password(url: str, warned: bool) -> None:
    """It is safe only on the same machine."""
    assert [finding.level for finding in bounces.check_encryption(url)] == [Level.WARNING] * warned


def test_bounce_folder(settings: Settings, now: datetime, tmp_path: Path) -> None:
    """Its files are unchanged; a missing folder is found."""
    (tmp_path / "bounces").mkdir()
    (tmp_path / "bounces" / "1.eml").write_bytes(b"Subject: a bounce\r\n\r\n")
    assert (
        run_check(settings, now, bounce_folder=str(tmp_path / "bounces"))["bounce_folder"].level is Level.OK
    )
    assert [each.name for each in (tmp_path / "bounces").iterdir()] == ["1.eml"]
    for wrong in (tmp_path / "none", tmp_path / "bounces" / "1.eml"):
        assert run_check(settings, now, bounce_folder=str(wrong))["bounce_folder"].level is Level.ERROR
