"""Test the sender: it composes, sends and records claimed emails, and stops in time."""

import os
from datetime import datetime, timedelta
from pathlib import Path
from threading import Event

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from structlog.testing import capture_logs

from app import main, pipeline
from app.application import Application
from app.delivery import journal, ledger, sender
from app.delivery.ledger import sender_ledger
from app.delivery.smtp.connection_pool import ConnectionPool
from app.errors import JournalError
from app.settings import Settings
from app.types import MailKind
from tests.delivery.ledger.test_ledger import deliveries_by_name, enqueue_mails, states_by_name
from tests.delivery.test_journal import LimitedDisk
from tests.support.mail_server import MailServer

NAMES = [f"reader{n}" for n in range(40)]
LATER = timedelta(minutes=10)


def build(settings: Settings, **changed: object) -> Application:
    return main.build(settings.model_copy(update=changed))


def test_several_batches(
    app: Application, mail_server: MailServer, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each email of every kind is sent once."""
    monkeypatch.setattr(ledger.claims, "BATCH_SIZE", 7)
    monkeypatch.setattr(sender_ledger, "FLUSH_SIZE", 5)
    enqueue_mails(app, now, *NAMES)
    enqueue_mails(app, now, "alice", "bob", kind=MailKind.CONFIRM)
    assert pipeline.send_now(app, now) == {"sent": 42}
    assert len({mail.recipient for mail in mail_server.messages}) == len(mail_server.messages) == 42
    assert set(states_by_name(app).values()) == {"sent"}


def test_cards_of_other_days_are_dropped(app: Application, mail_server: MailServer, now: datetime) -> None:
    """Each day has its own cards. After some months, those of earlier days would take over 100 megabytes."""

    def cached_cards() -> tuple[int, int, int]:
        fragments = app.composer._fragments
        encoded = fragments._caches["_card"].cache_info().currsize
        return len(app.snapshots._items), len(fragments._cards_by_item[0]), encoded

    enqueue_mails(app, now, "alice")
    for name, at in {"bob": now, "carol": now + timedelta(hours=1)}.items():
        enqueue_mails(app, at, name, kind=MailKind.CONFIRM)
        pipeline.send_now(app, at)
        assert all(cached_cards())
    tomorrow = now + timedelta(days=1)
    enqueue_mails(app, tomorrow, "dave", kind=MailKind.CONFIRM)
    assert pipeline.send_now(app, tomorrow) == {"sent": 1}
    assert cached_cards() == (0, 0, 0)


def test_emails_that_cannot_be_composed_are_logged(
    app: Application, mail_server: MailServer, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each cause is logged once as an error, with the kind of email."""
    enqueue_mails(app, now, *NAMES[:3])
    enqueue_mails(app, now, "alice", "bob", kind=MailKind.CONFIRM)
    monkeypatch.setitem(app.renderer._site, "nmae", app.renderer._site.pop("name"))
    with capture_logs() as lines:
        assert pipeline.send_now(app, now) == {"deferred": 5}
    errors = [line for line in lines if line["log_level"] == "error"]
    assert [line["kind"] for line in errors] == ["digest", "confirm"]
    assert {line["event"] for line in errors} == {"an email cannot be composed"}
    assert "templates/email/confirm/subject.txt, line 1: 'dict object' has no" in errors[1]["error"]


def test_signing_in_threads(
    settings: Settings, mail_server: MailServer, now: datetime, tmp_path: Path
) -> None:
    """Each email has its own valid signature."""
    key = rsa.generate_private_key(65537, 2048)
    pem = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (tmp_path / "key.pem").write_bytes(key.private_bytes(*pem))
    app = build(settings, dkim_keys=(f"s1:{tmp_path}/key.pem",))
    enqueue_mails(app, now, *NAMES, *[f"more{n}" for n in range(80)])
    assert pipeline.send_now(app, now) == {"sent": 120}
    signatures = {str(mail.parsed()["DKIM-Signature"]) for mail in mail_server.messages}
    assert len(signatures) == 120
    app.db.dispose()


def test_sending_with_fsync(settings: Settings, mail_server: MailServer, now: datetime) -> None:
    app = build(settings, journal_fsync=True)
    enqueue_mails(app, now, *NAMES)
    assert pipeline.send_now(app, now) == {"sent": 40}
    app.db.dispose()


def test_circuit_breaker_stops_the_run(app: Application, mail_server: MailServer, now: datetime) -> None:
    """The pause has the reason; untried emails are sent after it."""
    enqueue_mails(app, now, *NAMES)
    mail_server.reply("end", "554 5.6.0 there is something odd about this")
    with capture_logs() as lines:
        counts = pipeline.send_now(app, now)
    assert counts.total() == 40
    assert 20 <= counts["failed"] < 40
    assert [line["event"] for line in lines if line["log_level"] == "error"] == ["all sending is paused"]
    with app.db.write() as session:
        (pause,) = ledger.pauses(session)
        assert "554 5.6.0 there is something odd about this" in pause.reason
        assert "of the last" in pause.reason
        ledger.resume(session, now)
    mail_server.clear_rules()
    assert pipeline.send_now(app, now) == {"sent": counts["pending"]}


def test_stop_while_sending(
    settings: Settings, mail_server: MailServer, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Emails in flight get their replies; the others wait, and their attempts do not count."""
    app = build(settings, smtp_connections=1)
    enqueue_mails(app, now, *NAMES)
    stop, stopped = ConnectionPool.stop, Event()

    def stop_and_signal(relay: ConnectionPool, why: str = "") -> None:
        stop(relay, why)
        stopped.set()

    def request_stop() -> None:
        app.stopping.set()
        assert stopped.wait(20)

    monkeypatch.setattr(ConnectionPool, "stop", stop_and_signal)
    mail_server.reply("end", "250 queued", to="reader3@example.org", first=request_stop)
    counts = pipeline.send_now(app, now)
    assert counts.total() == 40
    assert counts["sent"] == len(mail_server.messages) + len(mail_server.swallowed) < 40
    assert {row.attempts for row in deliveries_by_name(app).values() if row.state == "pending"} == {0}
    assert pipeline.send_now(app, now)["sent"] == 0
    app.stopping.clear()
    assert pipeline.send_now(app, now) == {"sent": counts["pending"]}
    app.db.dispose()


def test_stop_while_the_relay_is_silent(
    app: Application, mail_server: MailServer, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is closed after some seconds, and the email is uncertain."""
    monkeypatch.setattr(sender, "SHUTDOWN_GRACE", 0.1)
    enqueue_mails(app, now, "alice")

    def wait() -> None:
        app.stopping.set()
        released.wait()

    released = Event()
    mail_server.reply("end", "250 queued", first=wait)
    try:
        assert pipeline.send_now(app, now) == {"uncertain": 1}
    finally:
        released.set()
    assert deliveries_by_name(app)["alice"].possibly_delivered


def test_full_disk_stops_the_run(
    app: Application, mail_server: MailServer, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run reports the reason; nothing is lost, and the rest is sent later."""
    enqueue_mails(app, now, *NAMES)
    monkeypatch.setattr(journal, "ALLOCATION", 12_000)
    whole = os.pwrite
    LimitedDisk(monkeypatch, 12_000)
    with pytest.raises(JournalError, match="No space left"):
        pipeline.send_now(app, now)
    before = list(states_by_name(app).values())
    assert before.count("sent") == len(mail_server.messages)
    assert before.count("sent") + before.count("pending") == 40
    monkeypatch.setattr(journal.os, "pwrite", whole)
    assert pipeline.send_now(app, now) == {"sent": before.count("pending")}


def test_a_stopped_run_leaves_no_journal(app: Application, settings: Settings, now: datetime) -> None:
    """This also holds if the relay is unreachable."""
    enqueue_mails(app, now, *NAMES)
    assert pipeline.send_now(app, now).total() == 40
    assert list(Path(settings.journal_dir).iterdir()) == []
