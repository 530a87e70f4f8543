"""Test the processing of notices: each is applied once, and removed after it was applied."""

import imaplib
import itertools
import json
import os
import re
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import time_machine
import trustme
from fastapi.testclient import TestClient
from imap_tools import MailMessageFlags
from sqlalchemy import text
from sqlalchemy.exc import OperationalError
from sqlmodel import Session, col, select

from app import bounces, main, pipeline, subscribers
from app.application import Application
from app.bounces import processing
from app.delivery import ledger, suppression
from app.delivery.journal import AttemptResult
from app.delivery.send_result import SendOutcome, SendResult
from app.errors import MailboxError
from app.links import Purpose
from app.settings import Settings
from app.storage import job_runs, locks
from app.storage.models import Delivery, DeliveryState, Event, JobRun, Subscriber, SubscriberState
from app.types import MailKind
from tests.bounces.mails import PERSONAL_MAIL, complaint, dsn, vacation
from tests.conftest import NOW
from tests.support import factories
from tests.support.imap_server import ImapServer
from tests.support.interleaving import before_statement
from tests.support.mail_server import MailServer

ALICE = "alice@example.org"
_numbers = itertools.count(1)


@pytest.fixture
def imap_server() -> Iterator[ImapServer]:
    """Run a real IMAP server. If a test uses it, it is the bounce mailbox of the settings."""
    with ImapServer() as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Create a drop folder. If a test uses it, it is in the settings."""
    path = tmp_path / "returned"
    path.mkdir()
    return path


@pytest.fixture
def settings(settings: Settings, request: pytest.FixtureRequest) -> Settings:
    """Add the mailbox or the folder that the test uses."""
    named = {"imap_server": "bounce_mailbox", "folder": "bounce_folder"}
    changes = {
        setting: getattr(request.getfixturevalue(name), "url", str(request.getfixturevalue(name)))
        for name, setting in named.items()
        if name in request.fixturenames
    }
    return settings.model_copy(update=changes)


@pytest.fixture
def app(app: Application) -> Application:
    """Add a paper of each of two days, and Alice, who likes agents."""
    with app.db.write() as session:
        source = factories.add_source(session, NOW)
        for days, title in enumerate(("Language Agents that Plan", "Language Agents that Wait")):
            day = NOW + timedelta(days=days)
            factories.add_paper(session, source, title, day.date(), day, abstract=f"{title}, at last.")
        factories.add_subscriber(session, ALICE, ["language agents"], NOW)
    return app


def add_deliveries(app: Application, count: int = 1) -> list[str]:
    """Add deliveries to Alice, one a day up to now. Return their return paths."""
    with app.db.write() as session:
        alice = session.exec(select(Subscriber)).one()
        deliveries = []
        for n in range(count):
            at = NOW - timedelta(days=count - n)
            fields = {"state": DeliveryState.SENT, "due_at": at, "created_at": at, "sent_at": at}
            deliveries.append(Delivery(subscriber_id=alice.id or 0, edition=f"{at:%Y-%m-%d}", **fields))
        session.add_all(deliveries)
        session.flush()
        for delivery in deliveries:
            delivery.message_id = app.signer.message_id(delivery.id or 0, "paperboy.test")
        return [app.signer.return_path(delivery.id or 0, "paperboy.test") for delivery in deliveries]


def write_mail(folder: Path, name: str, mail: bytes, at: datetime = NOW - timedelta(minutes=1)) -> None:
    """Write a file as a mail server did some time ago."""
    (folder / name).write_bytes(mail)
    os.utime(folder / name, (at.timestamp(), at.timestamp()))


def apply_mail(app: Application, mail: bytes, now: datetime = NOW) -> dict[str, int]:
    return dict(processing.apply(app.bounce_context, bounces.parse_mail(mail), now)[0])


def alice(app: Application) -> Subscriber:
    with app.db.read() as session:
        return session.exec(select(Subscriber)).one()


def events(app: Application) -> list[str]:
    with app.db.read() as session:
        return list(session.exec(select(Event.kind).order_by(col(Event.id))))


def suppression_reason(app: Application) -> str:
    with app.db.read() as session:
        row = suppression.get(session, ALICE)
    return row.reason if row else ""


def test_bounce_from_end_to_end(app: Application, mail_server: MailServer, imap_server: ImapServer) -> None:
    """Sent, returned, read, suppressed, no next digest; then lifted, and the next one arrives."""
    assert pipeline.plan_and_send(app, NOW)["sent"] == 1
    (digest,) = mail_server.messages
    imap_server.deliver(dsn(digest.sender))
    assert pipeline.read_bounces(app, NOW) == {"mails": 1, "hard": 1}
    assert imap_server.subjects() == []
    assert suppression_reason(app) == "bounced: 550 5.1.1 <…>... User unknown"
    assert alice(app).state is SubscriberState.BOUNCING

    tomorrow = NOW + timedelta(days=1)
    pipeline.plan_and_send(app, tomorrow)
    assert len(mail_server.messages) == 1
    with app.db.write() as session:
        assert subscribers.lift_suppression(session, ALICE, tomorrow)
    assert alice(app).state is SubscriberState.ACTIVE
    assert pipeline.plan_and_send(app, tomorrow + timedelta(days=1))["sent"] == 1
    assert len(mail_server.messages) == 2


def test_notice_is_kept_until_it_is_applied(
    app: Application, imap_server: ImapServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the database is unreachable nothing changes; the next run applies the notice."""
    (path,) = add_deliveries(app)
    imap_server.deliver(dsn(path))

    def fail(*_: object) -> None:
        raise OperationalError("UPDATE", {}, Exception("the database is away"))

    with monkeypatch.context() as patched:
        patched.setattr(processing, "apply", fail)
        with pytest.raises(OperationalError):
            pipeline.read_bounces(app, NOW)
    assert len(imap_server.subjects(flagged=False)) == 1
    assert pipeline.read_bounces(app, NOW) == {"mails": 1, "hard": 1}


def test_other_mail_is_flagged_and_kept(app: Application, imap_server: ImapServer) -> None:
    """It is not read again."""
    imap_server.deliver(PERSONAL_MAIL, dsn("bounce@paperboy.test"), vacation("bounce@paperboy.test"))
    assert pipeline.read_bounces(app, NOW) == {
        "mails": 3,
        "unknown": 1,
        "unclaimed": 1,
        "automatic_answers": 1,
    }
    assert imap_server.subjects(flagged=True) == ["Hello", "Undelivered Mail Returned to Sender"]
    assert pipeline.read_bounces(app, NOW) == {}
    with app.db.read() as session:
        (run,) = session.exec(select(JobRun)).all()
    assert run.rejections[0]["detail"].startswith("…@example.org: 550 5.1.1")


def test_mail_that_another_client_removed_is_skipped(
    app: Application, imap_server: ImapServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was removed after the search. The run does not fail, even if no other email is waiting."""
    imap_server.deliver(PERSONAL_MAIL)
    fetch = bounces.Mailbox.fetch
    with monkeypatch.context() as patched:
        patched.setattr(bounces.Mailbox, "fetch", lambda box, uid: fetch(box, f"99{uid}"))
        assert pipeline.read_bounces(app, NOW) == {}
    with app.db.read() as session:
        assert job_runs.failed_jobs(session, NOW) == []
    assert imap_server.subjects(flagged=False) == ["Hello"]


def fail_to_fetch(
    monkeypatch: pytest.MonkeyPatch,
    is_corrupt: Callable[[str], bool],
    error: Exception | None,
    times: int = 99,
) -> None:
    """Simulate a server that has corrupt messages. It fails to return each of them this many times.

    If `error` is None, the server answers NO instead of closing the connection.
    """
    run_command, failures = imaplib.IMAP4.uid, Counter[str]()

    def uid(client: imaplib.IMAP4, command: str, *arguments: str) -> Any:
        if command != "FETCH" or not is_corrupt(arguments[0]) or failures[arguments[0]] == times:
            return run_command(client, command, *arguments)
        failures[arguments[0]] += 1
        if error is None:
            return "NO", [b"[SERVERBUG] Internal error occurred"]
        client.shutdown()
        raise error

    monkeypatch.setattr(imaplib.IMAP4, "uid", uid)


@pytest.mark.parametrize("body", ["NIL", '""'])
def test_empty_mail_is_set_aside(
    app: Application, imap_server: ImapServer, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    """Some servers return it without a literal. It does not stay among the emails to read."""
    (path,) = add_deliveries(app)
    imap_server.deliver(PERSONAL_MAIL, dsn(path))
    run_command = imaplib.IMAP4.uid

    def uid(client: imaplib.IMAP4, command: str, *arguments: str) -> Any:
        if command == "FETCH" and arguments[0] == "101":
            return "OK", [f"1 (UID 101 BODY[]<0> {body})".encode()]
        return run_command(client, command, *arguments)

    monkeypatch.setattr(imaplib.IMAP4, "uid", uid)
    assert pipeline.read_bounces(app, NOW) == {"mails": 2, "unknown": 1, "hard": 1}
    assert imap_server.subjects(flagged=True) == ["Hello"]


@pytest.mark.parametrize(
    "error", [imaplib.IMAP4.error("BAD"), imaplib.IMAP4.abort("socket error: EOF"), None]
)
def test_corrupt_mail_is_set_aside(
    app: Application, imap_server: ImapServer, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    """Some servers close the connection if a message is corrupt. The next run does not read it again."""
    paths = add_deliveries(app, 2)
    imap_server.deliver(dsn(paths[0]), PERSONAL_MAIL, dsn(paths[1]))
    fail_to_fetch(monkeypatch, lambda uid: uid == "102", error)
    assert pipeline.read_bounces(app, NOW) == {"unread": 1, "mails": 2, "hard": 2}
    assert pipeline.read_bounces(app, NOW) == {}
    assert imap_server.subjects() == imap_server.subjects(flagged=True) == ["Hello"]
    with app.db.read() as session:
        (run,) = session.exec(select(JobRun)).all()
    assert (run.error, run.rejections[0]["detail"]) == ("", "the mailbox: 102")


def test_mail_is_fetched_again_after_a_lost_connection(
    app: Application, imap_server: ImapServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server may have been restarted."""
    (path,) = add_deliveries(app)
    imap_server.deliver(dsn(path))
    fail_to_fetch(monkeypatch, lambda _: True, imaplib.IMAP4.abort("socket error: EOF"), times=1)
    assert pipeline.read_bounces(app, NOW) == {"mails": 1, "hard": 1}


def test_only_corrupt_mail_is_no_failure(
    app: Application, imap_server: ImapServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a quiet mailbox, no other email may be waiting."""
    imap_server.deliver(PERSONAL_MAIL)
    fail_to_fetch(monkeypatch, lambda _: True, imaplib.IMAP4.error("BAD"))
    assert pipeline.read_bounces(app, NOW) == {"unread": 1}
    with app.db.read() as session:
        assert job_runs.failed_jobs(session, NOW) == []


def test_mailbox_with_many_corrupt_mails_is_reported(
    app: Application, imap_server: ImapServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is left alone until the next run. Emails already processed are not processed again."""
    (path,) = add_deliveries(app)
    imap_server.deliver(dsn(path), *12 * [PERSONAL_MAIL])
    fail_to_fetch(monkeypatch, lambda uid: uid != "101", imaplib.IMAP4.error("BAD"))
    assert pipeline.read_bounces(app, NOW) == {"unread": 11, "mails": 1, "hard": 1}
    assert len(imap_server.subjects(flagged=True)) == 11
    assert pipeline.read_bounces(app, NOW) == {"unread": 1}
    assert imap_server.subjects() == imap_server.subjects(flagged=True) == 12 * ["Hello"]
    with app.db.read() as session:
        errors = session.exec(select(JobRun.error).order_by(col(JobRun.id))).all()
    error = "11 of the waiting emails could not be fetched. Last error: 127.0.0.1: BAD"
    assert errors == [f"the mailbox: {error}", ""]


def test_uids_of_another_numbering_are_not_used(
    imap_server: ImapServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would name other messages, which would be deleted."""
    with bounces.Mailbox(imap_server.url) as mailbox:
        monkeypatch.setattr(mailbox, "_uid_validity", [b"1"])
        mailbox._box.client.shutdown()  # type: ignore[union-attr]
        with pytest.raises(MailboxError, match="assigned new UIDs"):
            mailbox.fetch("101")


def test_only_processed_mails_are_expunged(app: Application, imap_server: ImapServer) -> None:
    """Emails that another client marked as deleted stay."""
    (path,) = add_deliveries(app)
    imap_server.deliver(PERSONAL_MAIL)
    with imap_server._client() as box:
        box.client.uid("STORE", box.uids()[0], "+FLAGS", MailMessageFlags.DELETED)
    imap_server.deliver(dsn(path), dsn("bounce@paperboy.test"))
    assert pipeline.read_bounces(app, NOW) == {"mails": 2, "hard": 1, "unclaimed": 1}
    assert imap_server.subjects() == ["Hello", "Undelivered Mail Returned to Sender"]


def test_password_is_not_sent_over_unverified_tls() -> None:
    """An attacker could read it and send forged notices."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        answering = threading.Thread(target=_greet, args=(context, listening))
        answering.start()
        url = f"imaps://bounces:hunter2@127.0.0.1:{listening.getsockname()[1]}/"
        with pytest.raises(MailboxError, match="CERTIFICATE_VERIFY_FAILED"), bounces.Mailbox(url, 5):
            pass
        answering.join()


def _greet(context: ssl.SSLContext, listening: socket.socket) -> None:
    connection, _ = listening.accept()
    with suppress(OSError), connection, context.wrap_socket(connection, server_side=True) as secured:
        secured.sendall(b"* BAD wolf\r\n")


def test_mail_that_crashes_the_parser_does_not_stop_others(
    app: Application, imap_server: ImapServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is kept and reported; the next one is applied."""
    (path,) = add_deliveries(app)
    imap_server.deliver(PERSONAL_MAIL, dsn(path))
    parse_mail = bounces.parse_mail
    monkeypatch.setattr(
        bounces, "parse_mail", lambda raw: 1 / 0 if b"Is anybody there" in raw else parse_mail(raw)
    )
    assert pipeline.read_bounces(app, NOW) == {"mails": 2, "broken": 1, "hard": 1}
    assert imap_server.subjects() == ["Hello"]


@pytest.mark.parametrize("password", ["p@ss/word", "pässwörd"])
def test_password_of_the_mailbox(password: str) -> None:
    """The command LOGIN takes only ASCII."""
    with ImapServer(password) as server, bounces.Mailbox(server.url, 5) as mailbox:
        assert mailbox.pending(1) == []


@pytest.mark.parametrize(
    "url",
    [
        "imap://bounces:wrong@127.0.0.1:{port}/INBOX",
        "imap://bounces:wr%C3%B6ng@127.0.0.1:{port}/INBOX",
        "imap://a:b@127.0.0.1:1/",
        "imap://bounces:wrong@" + 64 * "a" + ".example.org/INBOX",
    ],
)
def test_unreadable_mailbox_is_reported(app: Application, folder: Path, url: str) -> None:
    """The error has no password, and the folder is read nevertheless."""
    (path,) = add_deliveries(app)
    write_mail(folder, "1.eml", dsn(path))
    with ImapServer() as server:
        mailbox = url.format(port=server.port)
        new_settings = replace(app, settings=app.settings.model_copy(update={"bounce_mailbox": mailbox}))
        assert pipeline.read_bounces(new_settings, NOW) == {"mails": 1, "hard": 1}
    with app.db.read() as session:
        (run,) = session.exec(select(JobRun)).all()
    assert run.error.startswith(f"the mailbox: {urlsplit(mailbox).hostname}: ")
    assert "wrong" not in run.error
    assert "wröng" not in run.error


def test_processed_files_are_removed_from_the_folder(app: Application, folder: Path) -> None:
    """Files still being written are left, and other emails are moved aside."""
    (path,) = add_deliveries(app)
    write_mail(folder, "1.eml", dsn(path))
    write_mail(folder, "2.eml", PERSONAL_MAIL)
    write_mail(folder, "3.eml", dsn(path)[:200], at=NOW - timedelta(seconds=3))
    write_mail(folder, ".hidden", PERSONAL_MAIL)
    assert pipeline.read_bounces(app, NOW) == {"mails": 2, "hard": 1, "unknown": 1}
    assert sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()) == [
        ".hidden", "3.eml", "kept/2.eml",
    ]  # fmt: skip


def test_kept_file_is_not_overwritten(app: Application, folder: Path) -> None:
    """Some mail servers restart their numbering."""
    for _ in range(3):
        write_mail(folder, "1.eml", PERSONAL_MAIL)
        pipeline.read_bounces(app, NOW)
    assert sorted(file.name for file in (folder / "kept").iterdir()) == ["1.eml", "1.eml.2", "1.eml.3"]


def test_unreadable_files_are_skipped(
    app: Application, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One became a link and one disappeared: neither is followed, removed or moved. The link is reported."""
    (path,) = add_deliveries(app)
    write_mail(folder, "3.eml", dsn(path))
    (folder / "1.eml").symlink_to(folder / "3.eml")
    monkeypatch.setattr(bounces.Folder, "pending", lambda *_: ["1.eml", "2.eml", "3.eml"])
    assert pipeline.read_bounces(app, NOW) == {"unread": 1, "mails": 1, "hard": 1}
    assert [file.name for file in folder.iterdir()] == ["1.eml"]
    with app.db.read() as session:
        assert "symbolic links" in session.exec(select(JobRun.error)).one()


def test_file_may_disappear_while_the_folder_is_listed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mail servers rename files that they have written."""
    write_mail(folder, "1.eml", PERSONAL_MAIL)
    monkeypatch.setattr(Path, "iterdir", lambda at: iter([at / "0.tmp", at / "1.eml"]))
    assert bounces.Folder(str(folder), NOW).pending(10) == ["1.eml"]


def test_maildir(app: Application, folder: Path) -> None:
    """Files in `new` are complete at any age; kept emails are moved to `cur` and flagged."""
    (path,) = add_deliveries(app)
    for part in ("new", "cur", "tmp"):
        (folder / part).mkdir()
    write_mail(folder / "new", "1", dsn(path), at=NOW)
    write_mail(folder / "new", "2", PERSONAL_MAIL, at=NOW)
    write_mail(folder / "tmp", "3", PERSONAL_MAIL)
    assert pipeline.read_bounces(app, NOW) == {"mails": 2, "hard": 1, "unknown": 1}
    assert [file.name for file in (folder / "cur").iterdir()] == ["2:2,F"]
    assert [file.name for file in (folder / "tmp").iterdir()] == ["3"]


def test_missing_folder_is_reported(app: Application, folder: Path) -> None:
    folder.rmdir()
    assert pipeline.read_bounces(app, NOW) == {}
    with app.db.read() as session:
        assert "No such file" in session.exec(select(JobRun.error)).one()


def test_recovery_is_recorded(app: Application, folder: Path) -> None:
    """Otherwise, the failure would still be reported, and the next one would cause no alert."""
    folder.rmdir()
    pipeline.read_bounces(app, NOW)
    folder.mkdir()
    for minutes in (5, 10):
        assert pipeline.read_bounces(app, NOW + timedelta(minutes=minutes)) == {}
    with app.db.read() as session:
        assert job_runs.failed_jobs(session, NOW) == []
        assert len(session.exec(select(JobRun)).all()) == 2


def test_only_one_process_reads_at_a_time(app: Application, folder: Path) -> None:
    """The other one changes and records nothing."""
    write_mail(folder, "1.eml", PERSONAL_MAIL)
    with locks.hold(app.db, processing.JOB, NOW, processing.LEASE):
        assert pipeline.read_bounces(app, NOW) == {}
    assert (folder / "1.eml").exists()


def test_runs_without_notices_are_not_recorded(app: Application, folder: Path) -> None:
    """The job runs every five minutes."""
    assert pipeline.read_bounces(app, NOW) == {}
    with app.db.read() as session:
        assert session.exec(select(JobRun)).all() == []


def test_the_same_notice_counts_once(app: Application) -> None:
    """It may arrive several times and by several ways."""
    (path,) = add_deliveries(app)
    assert apply_mail(app, dsn(path)) == {"hard": 1}
    assert apply_mail(app, dsn(path)) == {"known": 1}
    assert events(app) == ["bounce"]


@pytest.mark.parametrize(
    "forged",
    [f"bounce+{'a' * 40}@paperboy.test", "bounce@paperboy.test", "bounce+1@paperboy.test"],
)
def test_notice_without_a_signed_return_path_is_ignored(app: Application, forged: str) -> None:
    """Naming Alice's address is not enough."""
    add_deliveries(app)
    assert apply_mail(app, dsn(forged)) == {"unclaimed": 1}
    assert suppression_reason(app) == ""


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("L'adresse d'alice@example.org n'existe pas.", True),
        ("L’adresse d’alice@example.org n’existe pas.", True),
        ("The user 'alice@example.org' is unknown.", True),
        ("The user bob'alice@example.net is unknown.", False),
    ],
)
def test_address_after_an_apostrophe_is_found(app: Application, text: str, is_found: bool) -> None:
    """An apostrophe may also belong to the address. The Message-ID alone is no proof."""
    add_deliveries(app)
    notice_text = f"From: MAILER-DAEMON@mx\r\nSubject: Undeliverable\r\n\r\nUndeliverable. {text}\r\n"
    (notice,) = bounces.parse_mail(notice_text.encode())
    with app.db.read() as session:
        message_id = session.exec(select(Delivery.message_id)).one()
        notice = replace(notice, message_id=message_id)
        assert (bounces.find_delivery(session, app.signer, notice) is not None) == is_found


def test_automatic_reply_changes_nothing(app: Application) -> None:
    """This holds for any text and a valid return path."""
    (path,) = add_deliveries(app)
    assert apply_mail(app, vacation(path)) == {"automatic_answers": 1}
    assert (suppression_reason(app), alice(app).state) == ("", SubscriberState.ACTIVE)


def test_complaint_suppresses_the_address(app: Application) -> None:
    """It is permanent: a new sign-up gets no confirmation either."""
    (path,) = add_deliveries(app)
    assert apply_mail(app, complaint("fbl@paperboy.test", returned=path)) == {"complaints": 1}
    assert suppression_reason(app) == "the subscriber marked an email as spam"
    assert alice(app).state is SubscriberState.UNSUBSCRIBED
    assert apply_mail(app, complaint("fbl@paperboy.test", returned=path)) == {"known": 1}


def test_opt_out_unsubscribes_without_suppression(app: Application) -> None:
    """The reader may sign up again."""
    (path,) = add_deliveries(app)
    assert apply_mail(app, complaint("fbl@paperboy.test", "opt-out", returned=path)) == {"opt_outs": 1}
    assert (suppression_reason(app), alice(app).state) == ("", SubscriberState.UNSUBSCRIBED)


@pytest.mark.parametrize("kind", ["abuse", "opt-out"])
def test_repeated_opt_out_does_not_unsubscribe_again(app: Application, kind: str) -> None:
    """Relays repeat notices, even weeks later."""
    (path,) = add_deliveries(app)
    report = complaint("fbl@paperboy.test", kind, returned=path)
    apply_mail(app, report)
    with app.db.write() as session:
        subscribers.lift_suppression(session, ALICE, NOW)
        subscribers.resubscribe(session, alice(app).id or 0, "192.0.2.1", NOW)
    assert apply_mail(app, report) == {"known": 1}
    assert alice(app).state is SubscriberState.ACTIVE


@pytest.mark.parametrize("kind", ["auth-failure", "not-spam", "virus"])
def test_other_feedback_reports_change_nothing(app: Application, kind: str) -> None:
    """DMARC failure reports have the same format."""
    (path,) = add_deliveries(app)
    assert apply_mail(app, complaint("fbl@paperboy.test", kind, returned=path)) == {"reports": 1}
    assert alice(app).state is SubscriberState.ACTIVE


def test_unknown_user_is_suppressed_whatever_command_was_refused(app: Application) -> None:
    """Some servers refuse an unknown user only after the message."""
    (path,) = add_deliveries(app)
    text = "smtp; 550 User unknown (in reply to end of DATA command)"
    assert apply_mail(app, dsn(path, status="5.0.0", diagnostic=text)) == {"hard": 1}
    assert alice(app).state is SubscriberState.BOUNCING


def test_sender_faults_do_not_suppress(app: Application) -> None:
    """A refusal of our host is only recorded."""
    for path in add_deliveries(app, 10):
        diagnostic = "smtp; 550 5.7.26 Unauthenticated email is not accepted due to DMARC policy"
        assert apply_mail(app, dsn(path, status="5.7.26", diagnostic=diagnostic)) == {"sender_rejections": 1}
    assert suppression_reason(app) == ""
    assert events(app) == ["refused_us"] * 10


def test_repeated_soft_bounces_suppress(app: Application) -> None:
    """More than a week of them suppresses; one bad day does not."""
    fields = {"status": "5.2.2", "diagnostic": "smtp; 552 5.2.2 mailbox full"}
    paths = add_deliveries(app, 9)
    for number, path in enumerate(paths):
        assert apply_mail(app, dsn(path, **fields)) == {"soft": 1}
        assert bool(suppression_reason(app)) == (number >= 7), number
    assert suppression_reason(app).startswith("8 emails bounced since 2026-11-11: 552 5.2.2")
    assert alice(app).state is SubscriberState.BOUNCING


def test_delivered_mail_resets_the_score(app: Application) -> None:
    """Earlier bounces no longer count."""
    fields = {"status": "5.2.2", "diagnostic": "smtp; 552 5.2.2 mailbox full"}
    paths = add_deliveries(app, 20)
    for path in paths[:7] + paths[8:]:  # the eighth arrived
        apply_mail(app, dsn(path, **fields))
    assert suppression_reason(app).startswith("8 emails bounced since 2026-11-08")


def test_mildest_of_several_notices_counts(app: Application) -> None:
    """An address may forward to two mailboxes of which one is gone."""
    (path,) = add_deliveries(app)
    full = b"Final-Recipient: rfc822; full@example.net\r\nAction: failed\r\nStatus: 5.2.2"
    mail = dsn(path, recipient="gone@example.net").replace(
        b"\r\n\r\n--=_b--", b"\r\n\r\n" + full + b"\r\n\r\n--=_b--"
    )
    assert apply_mail(app, mail) == {"soft": 1}


def test_complaint_counts_beside_other_notices(app: Application) -> None:
    """Relays report several events of one message in one request, in any order."""
    (path,) = add_deliveries(app)
    token = path.partition("+")[2].partition("@")[0]
    kinds = ("bounce", "unsubscribe", "spamreport", "spamreport")
    payload = [{"event": kind, "email": ALICE, "paperboy": token, "reason": "552 full"} for kind in kinds]
    notices = bounces.parse_webhook("sendgrid", json.dumps(payload).encode())
    counts, _ = processing.apply(app.bounce_context, notices, NOW)
    assert counts == {"soft": 1, "opt_outs": 1, "complaints": 1}
    assert suppression_reason(app) == "the subscriber marked an email as spam"


class Overlap:
    """Let two concurrent transactions meet, unless one is waiting for a lock of the other."""

    def __init__(self, app: Application) -> None:
        self._database, self._arrived, self._blocked = app.db, set[int](), threading.Event()

    def meet(self) -> None:
        """Return when the other transaction has called this, too, or cannot do so because it is blocked."""
        self._arrived.add(threading.get_ident())
        waiting = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
        while len(self._arrived) < 2 and not self._blocked.wait(0.01):
            with self._database.read() as session:
                if session.execute(waiting).scalar_one():
                    self._blocked.set()


@pytest.mark.postgres
def test_concurrent_requests_do_not_deadlock(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """They name the same subscribers in different orders."""
    add_deliveries(app, 2)
    with app.db.write() as session:
        identity = factories.add_subscriber(session, "bob@example.org", ["agents"], NOW)
        for delivery in session.exec(select(Delivery)).all():
            session.add(Delivery(**delivery.model_dump(exclude={"id"}) | {"subscriber_id": identity}))
    with app.db.read() as session:
        ids = session.exec(select(Delivery.id).order_by(col(Delivery.edition), col(Delivery.id))).all()
    notices = [bounces.parse_mail(dsn(app.signer.return_path(each or 0, "paperboy.test")))[0] for each in ids]
    overlap, apply_notice = Overlap(app), processing._apply_notice

    def apply_one(*arguments: Any) -> str:
        outcome = apply_notice(*arguments)
        overlap.meet()  # without the lock, each has changed a row that the other needs
        return outcome

    monkeypatch.setattr(processing, "_apply_notice", apply_one)
    with ThreadPoolExecutor() as pool:
        batches = (notices[:2], notices[:1:-1])
        results = pool.map(lambda batch: processing.apply(app.bounce_context, batch, NOW)[0], batches)
    assert list(results) == [{"hard": 2}, {"hard": 2}]


@pytest.mark.postgres
def test_sender_and_webhook_do_not_deadlock(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both report the same refusal. One of them records it."""
    (path,) = add_deliveries(app)
    with app.db.write() as session:
        delivery = session.exec(select(Delivery)).one()
        delivery.state, delivery.lease_owner, delivery.attempts = DeliveryState.COMMITTING, "me", 1
        delivery_id = delivery.id or 0
    overlap, apply_notice = Overlap(app), processing._apply_notice
    refusal = SendResult(SendOutcome.HARD_BOUNCE, 550, "5.1.1 no such user")
    attempt = AttemptResult(delivery_id, refusal, NOW.timestamp())

    def record_refusal(session: Session, *arguments: Any) -> None:
        session.flush()
        overlap.meet()  # without the lock, the sender has locked the delivery and the webhook the subscriber
        bounces.record_refusal(session, *arguments)

    def apply_one(*arguments: Any) -> str:
        overlap.meet()
        return apply_notice(*arguments)

    def record_result() -> dict[int, DeliveryState]:
        policy = app.settings.when_uncertain
        with app.db.write() as session:
            return ledger.record_results(
                session, [attempt], owner="me", now=NOW, policy=policy, on_failed=record_refusal
            )

    monkeypatch.setattr(processing, "_apply_notice", apply_one)
    with ThreadPoolExecutor() as pool:
        sent = pool.submit(record_result)
        reported = pool.submit(apply_mail, app, dsn(path))
    assert sent.result() == {delivery_id: DeliveryState.FAILED}
    assert reported.result() in ({"hard": 1}, {"known": 1})
    assert events(app) == ["bounce"]


def test_notice_for_an_erased_reader(app: Application) -> None:
    (path,) = add_deliveries(app)
    with app.db.write() as session:
        subscribers.erase(session, alice(app).id or 0, NOW, suppress=False)
    text = "smtp; 550 5.1.1 The mailbox of Alice Liddell (alice) does not exist"
    assert apply_mail(app, dsn(path, diagnostic=text)) == {"hard": 1}
    assert alice(app).state is SubscriberState.ERASED
    with app.db.read() as session:
        assert "alice" not in "".join(session.exec(select(Event.detail))).lower()
    assert apply_mail(app, dsn(app.signer.return_path(999, "paperboy.test"))) == {"unclaimed": 1}


def move_alice(app: Application) -> None:
    """Change Alice's address with a confirmation from both."""
    identity = alice(app).id or 0
    with app.db.write() as session:
        subscribers.request_change(session, identity, "alice@example.net", NOW)
        request_id = subscribers.confirm_change(session, identity, 0, "alice@example.net", "", NOW)
        delivery_id = subscribers.process(session, request_id or 0, NOW, factories.CONFIRMABLE) or 0
        holder = subscribers.find(session, "alice@example.net").id or 0
        subscribers.confirm_change(session, holder, delivery_id, "alice@example.net", "", NOW)


def read_alice(app: Application) -> tuple[SubscriberState, list[str]]:
    """Return Alice's state after her address changed, and the suppressed hashes."""
    with app.db.read() as session:
        state = subscribers.find(session, "alice@example.net").state
        return state, [row.address_hash for row in suppression.list_page(session)]


def test_late_notices_about_the_earlier_address(app: Application) -> None:
    """Bounces and complaints do not count for the new address. An opt-out ends the subscription."""
    bounced, reported, left = add_deliveries(app, 3)
    move_alice(app)
    for mail in (dsn(bounced), complaint("fbl@paperboy.test", returned=reported)):
        assert apply_mail(app, mail) == {"earlier_address": 1}
    assert read_alice(app) == (SubscriberState.ACTIVE, [])
    opt_out = complaint("fbl@paperboy.test", "opt-out", returned=left)
    assert apply_mail(app, opt_out) == {"opt_outs": 1}
    assert read_alice(app) == (SubscriberState.UNSUBSCRIBED, [])


@pytest.mark.postgres
@pytest.mark.parametrize("make_mail", [dsn, lambda path: complaint("fbl@paperboy.test", returned=path)])
def test_address_changes_while_notice_is_applied(app: Application, make_mail: Callable[[str], bytes]) -> None:
    """The notice does not count for the new address."""
    (path,) = add_deliveries(app)
    with before_statement(app.db.engine, "FOR UPDATE OF subscriber", lambda: move_alice(app)):
        assert apply_mail(app, make_mail(path)) == {"earlier_address": 1}
    assert read_alice(app) == (SubscriberState.ACTIVE, [])


def test_late_refusal_of_the_earlier_address(app: Application) -> None:
    """It does not count, even if it waited in a dead sender's journal. Later refusals count."""
    identity, tomorrow = alice(app).id or 0, NOW + timedelta(days=1)
    in_flight, later = (app.signer.delivery_of(path) for path in add_deliveries(app, 2))
    refusal = SendResult(SendOutcome.HARD_BOUNCE, 550, "5.1.1 no such user")
    move_alice(app)
    with app.db.write() as session:
        attempt = AttemptResult(in_flight, refusal, (NOW + timedelta(seconds=8)).timestamp())
        bounces.record_refusal(session, attempt, identity, tomorrow)
    assert read_alice(app) == (SubscriberState.ACTIVE, [])
    with app.db.write() as session:
        attempt = AttemptResult(later, refusal, (NOW + 2 * ledger.LEASE).timestamp())
        bounces.record_refusal(session, attempt, identity, tomorrow)
    assert read_alice(app)[0] is SubscriberState.BOUNCING


def test_soft_bounces_of_the_earlier_address_do_not_count(app: Application) -> None:
    """The new address starts with none."""
    fields = {"status": "5.2.2", "diagnostic": "smtp; 552 5.2.2 mailbox full"}
    *earlier, last = add_deliveries(app, 9)
    for path in earlier[:7]:
        apply_mail(app, dsn(path, **fields))
    move_alice(app)
    with app.db.write() as session:  # sent to the new address
        delivery = session.get_one(Delivery, app.signer.delivery_of(last))
        delivery.due_at = delivery.sent_at = NOW + timedelta(hours=1)
    assert apply_mail(app, dsn(last, **fields), NOW + timedelta(hours=2)) == {"soft": 1}
    assert read_alice(app) == (SubscriberState.ACTIVE, [])


def test_lifting_a_suppression_resets_the_score(app: Application) -> None:
    """It also restores the reader's earlier state."""
    (path,) = add_deliveries(app)
    apply_mail(app, dsn(path))
    with app.db.write() as session:
        assert subscribers.lift_suppression(session, ALICE, NOW)
        assert not subscribers.lift_suppression(session, ALICE, NOW)
    assert alice(app).state is SubscriberState.ACTIVE
    assert alice(app).next_due_at is not None
    assert apply_mail(app, dsn(path)) == {"known": 1}
    assert suppression_reason(app) == ""


def test_lifting_a_suppression_keeps_a_pause(app: Application) -> None:
    """This also holds the second time."""
    paths = add_deliveries(app, 2)
    with app.db.write() as session:
        subscribers.pause(session, alice(app).id or 0, None, NOW - timedelta(hours=1))
    for path in paths:
        apply_mail(app, dsn(path))
        assert alice(app).state is SubscriberState.BOUNCING
        with app.db.write() as session:
            subscribers.lift_suppression(session, ALICE, NOW)
        assert (alice(app).state, alice(app).next_due_at) == (SubscriberState.PAUSED, None)


def test_smtp_refusal_and_its_notice_count_once(app: Application) -> None:
    (path,) = add_deliveries(app)
    delivery = app.signer.delivery_of(path)
    answer = SendResult(SendOutcome.HARD_BOUNCE, 550, "5.1.1 no such user")
    with app.db.write() as session:
        attempt = AttemptResult(delivery, answer, NOW.timestamp())
        bounces.record_refusal(session, attempt, alice(app).id or 0, NOW)
    assert suppression_reason(app) == "bounced: 550 5.1.1 no such user"
    assert apply_mail(app, dsn(path)) == {"known": 1}


@pytest.mark.parametrize(
    "verdict", [SendOutcome.MAILBOX_FULL, SendOutcome.SOFT_BOUNCE, SendOutcome.UNSENDABLE]
)
def test_soft_smtp_refusal_adds_to_the_score(app: Application, verdict: SendOutcome) -> None:
    """An email that we could not compose is not a bounce."""
    (path,) = add_deliveries(app)
    with app.db.write() as session:
        answer = SendResult(verdict, 552, "5.2.2 full")
        attempt = AttemptResult(app.signer.delivery_of(path), answer, NOW.timestamp())
        bounces.record_refusal(session, attempt, alice(app).id or 0, NOW)
    assert suppression_reason(app) == ""
    assert events(app) == ([] if verdict is SendOutcome.UNSENDABLE else ["soft_bounce"])


@pytest.mark.parametrize(
    ("verdict", "text"),
    [
        (SendOutcome.CONTENT_REFUSED, "5.7.1 Spam message rejected"),
        (SendOutcome.CONTENT_REFUSED, "5.3.4 Message too big"),
    ],
)
def test_smtp_refusal_of_us_does_not_count(app: Application, verdict: SendOutcome, text: str) -> None:
    """A refusal of our email or our server is only recorded, as if a notice had reported it."""
    for path in add_deliveries(app, 10):
        attempt = AttemptResult(app.signer.delivery_of(path), SendResult(verdict, 550, text), NOW.timestamp())
        with app.db.write() as session:
            bounces.record_refusal(session, attempt, alice(app).id or 0, NOW)
    assert suppression_reason(app) == ""
    assert events(app) == ["refused_us"] * 10


def unsubscribe_mail(to: str, sender: str = ALICE) -> bytes:
    message_id = f"<{next(_numbers)}@example.org>"
    headers = f"Message-ID: {message_id}\r\nFrom: <{sender}>\r\nTo: <{to}>\r\nSubject: unsubscribe"
    return f"{headers}\r\n\r\n".encode()


def unsubscribe_address(app: Application) -> str:
    token = app.signer.token(Purpose.UNSUBSCRIBE, alice(app).id or 0, NOW, epoch=99)
    return f"unsubscribe+{token}@paperboy.test"


def test_mail_to_the_unsubscribe_address_in_the_mailbox(app: Application, imap_server: ImapServer) -> None:
    """Whoever sends it: the token proves whose subscription it is. Old tokens work, too."""
    imap_server.deliver(unsubscribe_mail(unsubscribe_address(app), "alice@elsewhere.example.org"))
    assert pipeline.read_bounces(app, NOW) == {"mails": 1, "unsubscribed": 1}
    assert alice(app).state is SubscriberState.UNSUBSCRIBED


def test_mail_to_the_unsubscribe_address_in_the_folder(app: Application, folder: Path) -> None:
    """It is not an automatic answer, even if its program says so. It is removed."""
    mail = unsubscribe_mail(unsubscribe_address(app))
    write_mail(folder, "1", mail.replace(b"\r\n\r\n", b"\r\nAuto-Submitted: auto-replied\r\n\r\n"))
    assert pipeline.read_bounces(app, NOW) == {"mails": 1, "unsubscribed": 1}
    assert alice(app).state is SubscriberState.UNSUBSCRIBED
    assert not list(folder.iterdir())


@pytest.mark.parametrize(("has_token", "outcome"), [(True, "unsubscribed"), (False, "unsubscribe_links")])
def test_request_that_cannot_be_removed_counts_once(
    app: Application,
    imap_server: ImapServer,
    monkeypatch: pytest.MonkeyPatch,
    has_token: bool,
    outcome: str,
) -> None:
    """The server does not let Paperboy delete emails. The reader has resubscribed since the first run."""
    address = unsubscribe_address(app) if has_token else "digest@paperboy.test"
    imap_server.deliver(unsubscribe_mail(address))
    run_command = imaplib.IMAP4.uid

    def uid(client: imaplib.IMAP4, command: str, *arguments: str) -> Any:
        refused = ("NO", [b"[NOPERM] Permission denied"])
        return refused if command == "STORE" else run_command(client, command, *arguments)

    monkeypatch.setattr(imaplib.IMAP4, "uid", uid)
    assert pipeline.read_bounces(app, NOW) == {"mails": 1, outcome: 1}
    with app.db.write() as session:
        subscribers.resubscribe(session, alice(app).id or 0, "192.0.2.1", NOW)
    assert pipeline.read_bounces(app, NOW + timedelta(hours=2)) == {"mails": 1, "known": 1}
    assert alice(app).state is SubscriberState.ACTIVE


def test_plain_request_from_end_to_end(app: Application, mail_server: MailServer, folder: Path) -> None:
    """A reader answers a digest with "unsubscribe", gets a link by email, and opens it."""
    write_mail(folder, "1", unsubscribe_mail("digest@paperboy.test"))
    assert pipeline.read_bounces(app, NOW) == {"mails": 1, "unsubscribe_links": 1}
    assert pipeline.send_now(app, NOW)["sent"] == 1
    (answer,) = mail_server.messages
    text = answer.parsed().get_body(("plain",)).get_content()  # type: ignore[union-attr]
    path = re.search(r"https://paperboy\.test(/unsubscribe/\S+)", text)
    assert path
    with time_machine.travel(NOW, tick=False), TestClient(main.create_app(app)) as client:
        assert "unsubscribed" in client.post(path[1]).text
    assert alice(app).state is SubscriberState.UNSUBSCRIBED


def test_request_that_cannot_be_answered_is_kept(app: Application, folder: Path) -> None:
    """Strangers can use up the limit on emails with links, so a person must see the owner's request."""
    counts, most = [], 5  # emails with links a day
    for number in range(most + 1):
        write_mail(folder, str(number), unsubscribe_mail("digest@paperboy.test"))
        counts.append(pipeline.read_bounces(app, NOW + number * timedelta(hours=2)))
    assert counts[:most] == most * [{"mails": 1, "unsubscribe_links": 1}]
    assert counts[most:] == [{"mails": 1, "unsubscribe_unanswered": 1}]
    assert [file.name for file in (folder / "kept").iterdir()] == [str(most)]


def test_request_from_a_suppressed_address_is_kept(app: Application, folder: Path) -> None:
    """If an operator lifts the suppression, the subscription would continue."""
    with app.db.write() as session:
        suppression.suppress(session, ALICE, "bounced: mailbox full", NOW)
    write_mail(folder, "1", unsubscribe_mail("digest@paperboy.test"))
    assert pipeline.read_bounces(app, NOW) == {"mails": 1, "unsubscribe_unanswered": 1}
    assert [file.name for file in (folder / "kept").iterdir()] == ["1"]


def test_request_of_someone_who_has_left_needs_no_answer(app: Application, folder: Path) -> None:
    """They may answer every email that they still have. The requests are removed."""
    with app.db.write() as session:
        subscribers.unsubscribe(session, alice(app).id or 0, NOW)
        suppression.suppress(session, ALICE, "the subscriber marked an email as spam", NOW)
    write_mail(folder, "1", unsubscribe_mail("digest@paperboy.test"))
    assert pipeline.read_bounces(app, NOW) == {"mails": 1, "not_subscribed": 1}
    assert not list(folder.iterdir())


def test_forged_token_or_sender_does_not_unsubscribe(app: Application, folder: Path) -> None:
    """The reader gets the links by email, once an hour at most. A stranger's email is set aside."""
    forged = f"unsubscribe+{'x' * 51}@paperboy.test"
    for name in "12":
        write_mail(folder, name, unsubscribe_mail(forged))
    write_mail(folder, "3", unsubscribe_mail("unsubscribe@paperboy.test", "mallory@example.org"))
    counts = pipeline.read_bounces(app, NOW)
    assert counts == {"mails": 3, "unsubscribe_links": 2, "unknown": 1}
    assert alice(app).state is SubscriberState.ACTIVE
    with app.db.read() as session:
        assert [row.kind for row in session.exec(select(Delivery))] == [MailKind.MANAGE]
    assert [file.name for file in (folder / "kept").iterdir()] == ["3"]
