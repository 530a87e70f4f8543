"""Notices are read once, applied once, and removed after that; and one story from end to end."""

from __future__ import annotations

import os
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import trustme
from imap_tools import MailMessageFlags
from sqlalchemy.exc import OperationalError
from sqlmodel import col, select

from app import bounces, pipeline, subscribers
from app.application import Application
from app.bounces import processing
from app.delivery import suppression
from app.errors import MailboxError
from app.settings import Settings
from app.storage import locks
from app.storage.models import Delivery, DeliveryState, Event, JobRun, Subscriber, SubscriberState
from app.types import SendOutcome, SendResult
from tests.bounces.mails import PERSONAL_MAIL, complaint, dsn, vacation
from tests.conftest import NOW
from tests.support import factories
from tests.support.imap_server import ImapServer
from tests.support.mail_server import MailServer

ALICE = "alice@example.org"


@pytest.fixture
def imap_server() -> Iterator[ImapServer]:
    """A real IMAP server. A test that asks for it has it as the mailbox of its settings."""
    with ImapServer() as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A drop folder. A test that asks for it has it in its settings."""
    path = tmp_path / "returned"
    path.mkdir()
    return path


@pytest.fixture
def settings(settings: Settings, request: pytest.FixtureRequest) -> Settings:
    """With the mailbox or the folder that a test asks for."""
    named = {"imap_server": "bounce_mailbox", "folder": "bounce_folder"}
    changes = {
        setting: getattr(request.getfixturevalue(name), "url", str(request.getfixturevalue(name)))
        for name, setting in named.items()
        if name in request.fixturenames
    }
    return settings.model_copy(update=changes)


@pytest.fixture
def app(app: Application) -> Application:
    """An archive with a paper of each of two days, and Alice, who likes agents."""
    with app.db.write() as session:
        source = factories.source(session, NOW)
        for days, title in enumerate(("Language Agents that Plan", "Language Agents that Wait")):
            day = NOW + timedelta(days=days)
            factories.paper(session, source, title, day.date(), day, abstract=f"{title}, at last.")
        factories.reader(session, ALICE, ["language agents"], NOW)
    return app


def send(app: Application, count: int = 1) -> list[str]:
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


def drop(folder: Path, name: str, mail: bytes, at: datetime = NOW - timedelta(minutes=1)) -> None:
    """Write a file as a mail server did a while ago."""
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


def test_the_way_of_a_bounce(app: Application, mail_server: MailServer, imap_server: ImapServer) -> None:
    """Sent, returned to its own path, read, suppressed; no next digest; lifted; the next one arrives."""
    assert pipeline.send_due(app, NOW)["sent"] == 1
    (digest,) = mail_server.messages
    imap_server.put(dsn(digest.sender))
    assert pipeline.read_bounces(app, NOW) == {"mails": 1, "hard": 1}
    assert imap_server.found() == []
    assert suppression_reason(app) == "bounced: 550 5.1.1 <…>... User unknown"
    assert alice(app).state is SubscriberState.BOUNCING

    tomorrow = NOW + timedelta(days=1)
    pipeline.send_due(app, tomorrow)
    assert len(mail_server.messages) == 1
    with app.db.write() as session:
        assert subscribers.lift_suppression(session, ALICE, tomorrow)
    assert alice(app).state is SubscriberState.ACTIVE
    assert pipeline.send_due(app, tomorrow + timedelta(days=1))["sent"] == 1
    assert len(mail_server.messages) == 2


def test_a_mail_is_removed_only_when_it_is_settled(
    app: Application, imap_server: ImapServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database is away: everything stays as it was, and the next run reads it."""
    (path,) = send(app)
    imap_server.put(dsn(path))

    def away(*_: object) -> None:
        raise OperationalError("UPDATE", {}, Exception("the database is away"))

    with monkeypatch.context() as patched:
        patched.setattr(processing, "apply", away)
        with pytest.raises(OperationalError):
            pipeline.read_bounces(app, NOW)
    assert len(imap_server.found(flagged=False)) == 1
    assert pipeline.read_bounces(app, NOW) == {"mails": 1, "hard": 1}


def test_what_is_no_notice_is_kept(app: Application, imap_server: ImapServer) -> None:
    """It is flagged for a person, and not read again."""
    imap_server.put(PERSONAL_MAIL, dsn("bounce@paperboy.test"), vacation("bounce@paperboy.test"))
    assert pipeline.read_bounces(app, NOW) == {
        "mails": 3,
        "unknown": 1,
        "unclaimed": 1,
        "automatic_answers": 1,
    }
    assert imap_server.found(flagged=True) == ["Hello", "Undelivered Mail Returned to Sender"]
    assert pipeline.read_bounces(app, NOW) == {}
    with app.db.read() as session:
        (run,) = session.exec(select(JobRun)).all()
    assert run.rejections[0]["detail"].startswith("…@example.org: 550 5.1.1")


def test_a_mail_that_is_not_handed_over_stays(
    app: Application, imap_server: ImapServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not flagged for having been read, keeps no other waiting, and is read the next time."""
    (path,) = send(app)
    imap_server.put(PERSONAL_MAIL, dsn(path))
    fetch = bounces.Mailbox.fetch
    with monkeypatch.context() as patched:
        patched.setattr(
            bounces.Mailbox, "fetch", lambda box, uid: fetch(box, f"99{uid}" if uid < "102" else uid)
        )
        assert pipeline.read_bounces(app, NOW) == {"unread": 1, "mails": 1, "hard": 1}
    assert imap_server.found(flagged=False) == ["Hello"]
    assert pipeline.read_bounces(app, NOW) == {"mails": 1, "unknown": 1}


def test_only_what_was_processed_is_removed(app: Application, imap_server: ImapServer) -> None:
    """A mail that somebody marked as deleted elsewhere is theirs to remove, or to take back."""
    (path,) = send(app)
    imap_server.put(PERSONAL_MAIL)
    with imap_server._client() as box:
        box.client.uid("STORE", box.uids()[0], "+FLAGS", MailMessageFlags.DELETED)
    imap_server.put(dsn(path), dsn("bounce@paperboy.test"))
    assert pipeline.read_bounces(app, NOW) == {"mails": 2, "hard": 1, "unclaimed": 1}
    assert imap_server.found() == ["Hello", "Undelivered Mail Returned to Sender"]


def test_a_mailbox_that_cannot_prove_its_name_gets_no_password() -> None:
    """Whoever is on the way could read it, and feed us what they like."""
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
    taken, _ = listening.accept()
    with suppress(OSError), taken, context.wrap_socket(taken, server_side=True) as secured:
        secured.sendall(b"* BAD wolf\r\n")


def test_a_mail_that_breaks_its_reader_stops_no_other(
    app: Application, imap_server: ImapServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is kept and told of; the one behind it is settled."""
    (path,) = send(app)
    imap_server.put(PERSONAL_MAIL, dsn(path))
    parse_mail = bounces.parse_mail
    monkeypatch.setattr(
        bounces, "parse_mail", lambda raw: 1 / 0 if b"Is anybody there" in raw else parse_mail(raw)
    )
    assert pipeline.read_bounces(app, NOW) == {"mails": 2, "broken": 1, "hard": 1}
    assert imap_server.found() == ["Hello"]


@pytest.mark.parametrize("url", ["imap://bounces:wrong@127.0.0.1:{port}/INBOX", "imap://a:b@127.0.0.1:1/"])
def test_a_mailbox_that_cannot_be_read_is_told(app: Application, folder: Path, url: str) -> None:
    """The run says so, without the password, and the folder is read nevertheless."""
    (path,) = send(app)
    drop(folder, "1.eml", dsn(path))
    with ImapServer() as server:
        mailbox = url.format(port=server.port)
        broken = replace(app, settings=app.settings.model_copy(update={"bounce_mailbox": mailbox}))
        assert pipeline.read_bounces(broken, NOW) == {"mails": 1, "hard": 1}
    with app.db.read() as session:
        (run,) = session.exec(select(JobRun)).all()
    assert run.error.startswith("the mailbox: 127.0.0.1: ")
    assert "wrong" not in run.error


def test_a_folder_is_emptied_of_what_is_settled(app: Application, folder: Path) -> None:
    """A file that is still being written is left; what is no notice is put aside."""
    (path,) = send(app)
    drop(folder, "1.eml", dsn(path))
    drop(folder, "2.eml", PERSONAL_MAIL)
    drop(folder, "3.eml", dsn(path)[:200], at=NOW - timedelta(seconds=3))
    drop(folder, ".hidden", PERSONAL_MAIL)
    assert pipeline.read_bounces(app, NOW) == {"mails": 2, "hard": 1, "unknown": 1}
    assert sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()) == [
        ".hidden", "3.eml", "kept/2.eml",
    ]  # fmt: skip


def test_what_is_kept_stays_whatever_comes_by_its_name(app: Application, folder: Path) -> None:
    """Some mail servers count from the beginning again."""
    for _ in range(3):
        drop(folder, "1.eml", PERSONAL_MAIL)
        pipeline.read_bounces(app, NOW)
    assert sorted(file.name for file in (folder / "kept").iterdir()) == ["1.eml", "1.eml.2", "1.eml.3"]


def test_a_file_that_cannot_be_read_stops_no_other(
    app: Application, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One became a link after it was seen, and one is gone: neither is followed, removed or put aside."""
    (path,) = send(app)
    drop(folder, "3.eml", dsn(path))
    (folder / "1.eml").symlink_to(folder / "3.eml")
    monkeypatch.setattr(bounces.Folder, "pending", lambda *_: ["1.eml", "2.eml", "3.eml"])
    assert pipeline.read_bounces(app, NOW) == {"unread": 2, "mails": 1, "hard": 1}
    assert [file.name for file in folder.iterdir()] == ["1.eml"]


def test_a_file_may_go_while_the_folder_is_listed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mail server renames what it has written."""
    drop(folder, "1.eml", PERSONAL_MAIL)
    monkeypatch.setattr(Path, "iterdir", lambda at: iter([at / "0.tmp", at / "1.eml"]))
    assert bounces.Folder(str(folder), NOW).pending(10) == ["1.eml"]


def test_a_maildir_is_read(app: Application, folder: Path) -> None:
    """What is in `new` is whole, however young; what is kept goes to `cur`, flagged."""
    (path,) = send(app)
    for part in ("new", "cur", "tmp"):
        (folder / part).mkdir()
    drop(folder / "new", "1", dsn(path), at=NOW)
    drop(folder / "new", "2", PERSONAL_MAIL, at=NOW)
    drop(folder / "tmp", "3", PERSONAL_MAIL)
    assert pipeline.read_bounces(app, NOW) == {"mails": 2, "hard": 1, "unknown": 1}
    assert [file.name for file in (folder / "cur").iterdir()] == ["2:2,F"]
    assert [file.name for file in (folder / "tmp").iterdir()] == ["3"]


def test_a_folder_that_is_not_there_is_told(app: Application, folder: Path) -> None:
    """An operator sees that nothing is read."""
    folder.rmdir()
    assert pipeline.read_bounces(app, NOW) == {}
    with app.db.read() as session:
        assert "No such file" in session.exec(select(JobRun.error)).one()


def test_one_process_reads_at_a_time(app: Application, folder: Path) -> None:
    """The other leaves everything where it is, and records nothing."""
    drop(folder, "1.eml", PERSONAL_MAIL)
    with locks.hold(app.db, processing.JOB, NOW, processing.LEASE):
        assert pipeline.read_bounces(app, NOW) == {}
    assert (folder / "1.eml").exists()


def test_nothing_is_recorded_where_nothing_waits(app: Application, folder: Path) -> None:
    """Every five minutes, for years."""
    assert pipeline.read_bounces(app, NOW) == {}
    with app.db.read() as session:
        assert session.exec(select(JobRun)).all() == []


def test_the_same_notice_counts_once(app: Application) -> None:
    """However often and by whatever way it comes."""
    (path,) = send(app)
    assert apply_mail(app, dsn(path)) == {"hard": 1}
    assert apply_mail(app, dsn(path)) == {"known": 1}
    assert events(app) == ["bounce"]


@pytest.mark.parametrize(
    "forged",
    [f"bounce+{'a' * 40}@paperboy.test", "bounce@paperboy.test", "bounce+1@paperboy.test"],
)
def test_whose_mail_it_was_is_believed_only_of_our_own_path(app: Application, forged: str) -> None:
    """A notice that names Alice, at a path that we did not sign, changes nothing."""
    send(app)
    assert apply_mail(app, dsn(forged)) == {"unclaimed": 1}
    assert suppression_reason(app) == ""


def test_an_absence_is_no_bounce(app: Application) -> None:
    """Whatever it says, and however good its path is."""
    (path,) = send(app)
    assert apply_mail(app, vacation(path)) == {"automatic_answers": 1}
    assert (suppression_reason(app), alice(app).state) == ("", SubscriberState.ACTIVE)


def test_a_complaint_ends_all_mail(app: Application) -> None:
    """At once, and for good: she does not get a confirmation either if somebody signs her up again."""
    (path,) = send(app)
    assert apply_mail(app, complaint("fbl@paperboy.test", returned=path)) == {"complaints": 1}
    assert suppression_reason(app) == "the subscriber marked a mail as spam"
    assert alice(app).state is SubscriberState.UNSUBSCRIBED
    assert apply_mail(app, complaint("fbl@paperboy.test", returned=path)) == {"known": 1}


def test_an_opt_out_unsubscribes(app: Application) -> None:
    """Her wish is met; she may come back."""
    (path,) = send(app)
    assert apply_mail(app, complaint("fbl@paperboy.test", "opt-out", returned=path)) == {"opt_outs": 1}
    assert (suppression_reason(app), alice(app).state) == ("", SubscriberState.UNSUBSCRIBED)


@pytest.mark.parametrize("kind", ["abuse", "opt-out"])
def test_who_came_back_is_not_unsubscribed_by_the_same_words(app: Application, kind: str) -> None:
    """Relays tell things twice, and weeks later."""
    (path,) = send(app)
    report = complaint("fbl@paperboy.test", kind, returned=path)
    apply_mail(app, report)
    with app.db.write() as session:
        subscribers.lift_suppression(session, ALICE, NOW)
        subscribers.resubscribe(session, alice(app).id or 0, "192.0.2.1", NOW)
    assert apply_mail(app, report) == {"known": 1}
    assert alice(app).state is SubscriberState.ACTIVE


@pytest.mark.parametrize("kind", ["auth-failure", "not-spam", "virus"])
def test_a_report_on_something_else_changes_nothing(app: Application, kind: str) -> None:
    """Forensic reports of DMARC come in the same shape."""
    (path,) = send(app)
    assert apply_mail(app, complaint("fbl@paperboy.test", kind, returned=path)) == {"reports": 1}
    assert alice(app).state is SubscriberState.ACTIVE


def test_our_own_fault_suppresses_nobody(app: Application) -> None:
    """A refusal of our host is written down, as often as it comes, and that is all."""
    for path in send(app, 10):
        diagnostic = "smtp; 550 5.7.26 Unauthenticated email is not accepted due to DMARC policy"
        assert apply_mail(app, dsn(path, status="5.7.26", diagnostic=diagnostic)) == {"not_the_readers": 1}
    assert suppression_reason(app) == ""
    assert events(app) == ["refused_us"] * 10


def test_soft_bounces_add_up(app: Application) -> None:
    """A mailbox that is full for more than a week is given up; one bad day is forgiven."""
    fields = {"status": "5.2.2", "diagnostic": "smtp; 552 5.2.2 mailbox full"}
    paths = send(app, 9)
    for number, path in enumerate(paths):
        assert apply_mail(app, dsn(path, **fields)) == {"soft": 1}
        assert bool(suppression_reason(app)) == (number >= 7), number
    assert suppression_reason(app).startswith("8 mails bounced since 2026-11-11: 552 5.2.2")
    assert alice(app).state is SubscriberState.BOUNCING


def test_a_mail_that_arrived_clears_the_score(app: Application) -> None:
    """What came back before it does not count any more."""
    fields = {"status": "5.2.2", "diagnostic": "smtp; 552 5.2.2 mailbox full"}
    paths = send(app, 20)
    for path in paths[:7] + paths[8:]:  # the eighth arrived
        apply_mail(app, dsn(path, **fields))
    assert suppression_reason(app).startswith("8 mails bounced since 2026-11-08")


def test_only_the_mildest_of_several_notices_counts(app: Application) -> None:
    """Her address forwards to two, of whom one is gone: she still gets her mail."""
    (path,) = send(app)
    full = b"Final-Recipient: rfc822; full@example.net\r\nAction: failed\r\nStatus: 5.2.2"
    mail = dsn(path, recipient="gone@example.net").replace(
        b"\r\n\r\n--=_b--", b"\r\n\r\n" + full + b"\r\n\r\n--=_b--"
    )
    assert apply_mail(app, mail) == {"soft": 1}


def test_who_is_gone_already_is_no_trouble(app: Application) -> None:
    """A notice may come long after the reader was erased."""
    (path,) = send(app)
    with app.db.write() as session:
        subscribers.erase(session, alice(app).id or 0, NOW, suppress=False)
    assert apply_mail(app, dsn(path)) == {"hard": 1}
    assert alice(app).state is SubscriberState.ERASED
    with app.db.read() as session:
        assert ALICE not in "".join(session.exec(select(Event.detail)))
    assert apply_mail(app, dsn(app.signer.return_path(999, "paperboy.test"))) == {"unclaimed": 1}


def test_lifting_forgets_what_came_back(app: Application) -> None:
    """The score begins anew, and so does the reader, whatever they were before."""
    (path,) = send(app)
    apply_mail(app, dsn(path))
    with app.db.write() as session:
        assert subscribers.lift_suppression(session, ALICE, NOW)
        assert not subscribers.lift_suppression(session, ALICE, NOW)
    assert alice(app).state is SubscriberState.ACTIVE
    assert alice(app).next_due_at is not None
    assert apply_mail(app, dsn(path)) == {"known": 1}
    assert suppression_reason(app) == ""


def test_lifting_ends_no_pause(app: Application) -> None:
    """Who wanted no mail for a while gets none because their mailbox is back, nor the second time."""
    paths = send(app, 2)
    with app.db.write() as session:
        subscribers.pause(session, alice(app).id or 0, None, NOW - timedelta(hours=1))
    for path in paths:
        apply_mail(app, dsn(path))
        assert alice(app).state is SubscriberState.BOUNCING
        with app.db.write() as session:
            subscribers.lift_suppression(session, ALICE, NOW)
        assert (alice(app).state, alice(app).next_due_at) == (SubscriberState.PAUSED, None)


def test_the_relays_last_word_goes_the_same_way(app: Application) -> None:
    """A refusal at RCPT and the notice of it count once."""
    (path,) = send(app)
    delivery = app.signer.delivery_of(path)
    answer = SendResult(SendOutcome.HARD_BOUNCE, 550, "5.1.1 no such user")
    with app.db.write() as session:
        bounces.record_refusal(session, delivery, alice(app).id or 0, answer, NOW)
    assert suppression_reason(app) == "bounced: 550 5.1.1 no such user"
    assert apply_mail(app, dsn(path)) == {"known": 1}


@pytest.mark.parametrize(
    "verdict", [SendOutcome.MAILBOX_FULL, SendOutcome.SOFT_BOUNCE, SendOutcome.UNSENDABLE]
)
def test_a_soft_last_word_only_counts(app: Application, verdict: SendOutcome) -> None:
    """And what we could not write is no bounce at all."""
    (path,) = send(app)
    with app.db.write() as session:
        answer = SendResult(verdict, 552, "5.2.2 full")
        bounces.record_refusal(session, app.signer.delivery_of(path), alice(app).id or 0, answer, NOW)
    assert suppression_reason(app) == ""
    assert events(app) == ([] if verdict is SendOutcome.UNSENDABLE else ["soft_bounce"])
