"""The doctor checks that bounces can be read, without reading them."""

from __future__ import annotations

import socket
from datetime import datetime
from pathlib import Path

import pytest

from app.application import Application
from app.doctor import bounces
from app.doctor.findings import Finding, Level
from app.settings import Settings
from app.storage import api_keys
from app.storage.database import Database
from app.storage.models import Scope
from tests.support.imap_server import ImapServer


def run_check(settings: Settings, now: datetime, **changed: object) -> dict[str, Finding]:
    """Return the findings by check, with some settings changed."""
    database = Database(settings.database_url)
    findings = list(bounces.check(settings.model_copy(update=changed), database, now))
    database.dispose()
    assert all(finding.fix for finding in findings if finding.level is not Level.OK)
    return {finding.check: finding for finding in findings}


def test_a_service_that_nobody_tells_of_bounces_is_warned(app: Application, now: datetime) -> None:
    """Until there is a key for a webhook; one that was revoked is none."""
    assert run_check(app.settings, now)["bounces"].level is Level.WARNING
    with app.db.write() as session:
        api_keys.create(session, "relay", [Scope.BOUNCES], now)
    assert run_check(app.settings, now)["bounces"].level is Level.OK
    with app.db.write() as session:
        api_keys.revoke(session, "relay", now)
    assert run_check(app.settings, now)["bounces"].level is Level.WARNING


def test_a_mailbox_is_opened(settings: Settings, now: datetime) -> None:
    """What is in it stays as it was."""
    with ImapServer() as server:
        server.put(b"Subject: a bounce\r\n\r\nno such user\r\n")
        findings = run_check(settings, now, bounce_mailbox=server.url)
        assert (
            findings["bounce_mailbox"].level,
            "mails waiting: 1" in findings["bounce_mailbox"].message,
        ) == (
            Level.OK,
            True,
        )
        assert server.found(flagged=False) == ["a bounce"]


def test_a_mailbox_that_refuses_us_is_found(settings: Settings, now: datetime) -> None:
    """And the password is not shown."""
    with ImapServer() as server:
        finding = run_check(settings, now, bounce_mailbox=f"imap://me:hunter2@127.0.0.1:{server.port}")[
            "bounce_mailbox"
        ]
    assert finding.level is Level.ERROR
    assert "hunter2" not in str(finding)


def test_a_mailbox_that_is_not_there_is_found(
    settings: Settings, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or that does not answer: that is not waited for."""
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
def test_a_password_that_goes_in_clear_is_found(url: str, warned: bool) -> None:
    """Unless it never leaves this machine."""
    assert [finding.level for finding in bounces.check_encryption(url)] == [Level.WARNING] * warned


def test_a_folder_is_looked_into(settings: Settings, now: datetime, tmp_path: Path) -> None:
    """What is in it stays; a folder that is none is found."""
    (tmp_path / "bounces").mkdir()
    (tmp_path / "bounces" / "1.eml").write_bytes(b"Subject: a bounce\r\n\r\n")
    assert (
        run_check(settings, now, bounce_folder=str(tmp_path / "bounces"))["bounce_folder"].level is Level.OK
    )
    assert [each.name for each in (tmp_path / "bounces").iterdir()] == ["1.eml"]
    for wrong in (tmp_path / "none", tmp_path / "bounces" / "1.eml"):
        assert run_check(settings, now, bounce_folder=str(wrong))["bounce_folder"].level is Level.ERROR
