"""Test the ledger after each fault: no email is lost, and only emails in flight are sent twice."""

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog
from sqlalchemy import event
from sqlmodel import Session, col, select
from structlog.testing import capture_logs

from app import bounces, clock, main, pipeline, subscribers
from app.application import Application
from app.delivery import ledger, suppression
from app.delivery.journal import AbandonedJournal, AttemptResult, Journal
from app.delivery.send_result import SendOutcome, SendResult
from app.digests import reconciliation
from app.settings import Settings, UncertainPolicy
from app.storage.database import Database, skew
from app.storage.models import (
    Delivery,
    DeliveryState,
    DigestContent,
    Event,
    Subscriber,
    SubscriberState,
    Suppression,
)
from app.types import MailKind, Skip
from tests.support import sample_digest
from tests.support.mail_server import MailServer

SOON = timedelta(minutes=10)
NEXT_DAY = timedelta(days=1)
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def add_readers(session: Session, names: Sequence[str], now: datetime, **fields: Any) -> list[int]:
    fields = {"state": SubscriberState.ACTIVE, **fields}
    readers = [Subscriber(email=f"{name}@example.org", created_at=now, **fields) for name in names]
    session.add_all(readers)
    session.flush()
    return [reader.id or 0 for reader in readers]


def enqueue_mails(
    app: Application,
    now: datetime,
    *names: str,
    kind: MailKind = MailKind.DIGEST,
    due_at: datetime | None = None,
    **fields: Any,
) -> list[int]:
    """Enqueue one email each for new readers, due now or at `due_at`. Return the delivery ids."""
    due_at, edition, give_up_at = due_at or now, "2026-11-20", now + NEXT_DAY
    with app.db.write() as session:
        readers = add_readers(session, names, now, **fields)
        if kind is MailKind.DIGEST:
            digest = sample_digest.digest()
            entries = [
                ledger.Entry(reader, edition, due_at, digest, give_up_at=give_up_at) for reader in readers
            ]
            ids = ledger.add_entries(session, entries, now + skew(session))
        else:
            mail = {"kind": kind, "edition": edition, "due_at": due_at, "now": now, "give_up_at": give_up_at}
            ids = [ledger.enqueue(session, subscriber_id=reader, **mail) for reader in readers]
    assert None not in ids
    return [delivery_id for delivery_id in ids if delivery_id]


def deliveries_by_name(app: Application) -> dict[str, Delivery]:
    """Check that the ledger reconciles, and return each reader's delivery by the local part."""
    with app.db.read() as session:
        assert reconciliation.reconcile(session, NOON, "2026-11-20").is_consistent
        readers = {reader.id: reader.email.partition("@")[0] for reader in session.exec(select(Subscriber))}
        return {readers[delivery.subscriber_id]: delivery for delivery in session.exec(select(Delivery))}


def states_by_name(app: Application) -> dict[str, str]:
    return {name: str(delivery.state) for name, delivery in deliveries_by_name(app).items()}


def test_mail_is_sent_once(app: Application, mail_server: MailServer, now: datetime) -> None:
    """The row has the relay's text, and a second run sends nothing."""
    enqueue_mails(app, now, "alice", "bob")
    assert pipeline.send_now(app, now) == {"sent": 2}
    assert pipeline.send_now(app, now + SOON) == {}
    alice = deliveries_by_name(app)["alice"]
    assert (alice.state, alice.smtp_code, alice.attempts) == (DeliveryState.SENT, 250, 1)
    assert alice.subject.startswith("Read or Retrieve?")
    assert alice.sent_at
    assert alice.next_attempt_at is None
    assert sorted(mail.recipient for mail in mail_server.messages) == ["alice@example.org", "bob@example.org"]


def test_an_edition_is_enqueued_once(app: Application, now: datetime) -> None:
    """A second digest or skip for the same reader and edition changes nothing."""
    enqueue_mails(app, now, "alice")
    with app.db.write() as session:
        same = {"subscriber_id": 1, "edition": "2026-11-20", "due_at": now, "now": now}
        assert ledger.enqueue(session, kind=MailKind.DIGEST, **same) is None
        assert ledger.enqueue(session, digest=Skip("a quiet day"), kind=MailKind.DIGEST, **same) is None
        same["edition"] = "2026-11-21"
        assert ledger.enqueue(session, digest=Skip("a quiet day"), kind=MailKind.DIGEST, **same)
        result = reconciliation.reconcile(session, now, "2026-11-20", "2026-11-21")
        assert result.states == {DeliveryState.PENDING: 1, DeliveryState.SKIPPED: 1}


def test_only_the_requested_mails_are_sent(app: Application, mail_server: MailServer, now: datetime) -> None:
    """After a sign-up only its confirmation is sent."""
    first, _ = enqueue_mails(app, now, "alice", "bob")
    assert pipeline.send_now(app, now, ids=[first]) == {"sent": 1}
    assert states_by_name(app) == {"alice": "sent", "bob": "pending"}


def test_mails_are_not_sent_before_they_are_due(
    app: Application, mail_server: MailServer, now: datetime
) -> None:
    enqueue_mails(app, now, "alice")
    assert pipeline.send_now(app, now - SOON) == {}


@pytest.fixture
def still_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop the clock of this machine and ignore the database's, so that a busy machine changes no result."""
    stopped = clock.system_time()
    monkeypatch.setattr(clock, "system_time", lambda: stopped)
    monkeypatch.setattr(Database, "skew", lambda _database: timedelta())


@pytest.mark.usefixtures("still_clock")
@pytest.mark.parametrize("stage", ["mail", "rcpt", "data", "end"])
def test_a_4xx_defers_with_growing_delay(
    app: Application, mail_server: MailServer, now: datetime, stage: str
) -> None:
    """Once the relay accepts, the email is sent once."""
    enqueue_mails(app, now, "alice")
    mail_server.reply(stage, "451 4.7.1 come back later")
    delays, at = [], now
    for attempt in (1, 2, 3):
        assert pipeline.send_now(app, at) == {"deferred": 1}
        alice = deliveries_by_name(app)["alice"]
        assert (alice.smtp_code, alice.attempts) == (451, attempt)
        assert alice.next_attempt_at
        delays.append(alice.next_attempt_at - at)
        assert pipeline.send_now(app, alice.next_attempt_at - timedelta(seconds=1)) == {}
        at = alice.next_attempt_at
    assert delays[0] * 1.9 < delays[1] < delays[2] / 1.9
    mail_server.clear_rules()
    assert pipeline.send_now(app, at) == {"sent": 1}
    assert len(mail_server.messages) == 1


def test_unreachable_relay_stops_the_run(app: Application, mail_server: MailServer, now: datetime) -> None:
    """The tried email is deferred; attempts of the other emails do not count."""
    enqueue_mails(app, now, *(f"reader{n}" for n in range(30)))
    mail_server.reply("connect", "421 4.3.2 closed for the night")
    counts = pipeline.send_now(app, now)
    assert counts.total() == 30
    assert set(counts) == {"deferred", "pending"}
    assert {
        row.attempts for row in deliveries_by_name(app).values() if row.state == DeliveryState.PENDING
    } == {0}
    mail_server.clear_rules()
    assert pipeline.send_now(app, now + SOON) == {"sent": 30}


def test_a_deferred_digest_fails_when_the_next_is_due(
    app: Application, mail_server: MailServer, now: datetime
) -> None:
    """It has the reason, and its papers may be sent again."""
    enqueue_mails(app, now, "alice")
    mail_server.reply("rcpt", "450 4.2.1 busy")
    pipeline.send_now(app, now)
    mail_server.clear_rules()
    with app.db.read() as session:
        assert ledger.paper_ids_promised(session, [1], now) == {1: dict.fromkeys(range(1, 9), now)}
    assert pipeline.send_now(app, now + NEXT_DAY) == {}
    alice = deliveries_by_name(app)["alice"]
    assert alice.state == DeliveryState.FAILED
    assert "given up" in alice.reason
    assert "450 4.2.1 busy" in alice.reason
    with app.db.read() as session:
        assert ledger.paper_ids_promised(session, [1], now) == {1: {}}


def test_unknown_mailbox_is_suppressed(app: Application, mail_server: MailServer, now: datetime) -> None:
    """The email fails with an event; other readers get their email."""
    enqueue_mails(app, now, "alice", "bob")
    mail_server.reply("rcpt", "550 5.1.1 no such user here", to="alice@example.org")
    assert pipeline.send_now(app, now) == {"failed": 1, "sent": 1}
    assert states_by_name(app) == {"alice": "failed", "bob": "sent"}
    with app.db.read() as session:
        assert suppression.is_suppressed(session, "Alice@example.org")
        assert not suppression.is_suppressed(session, "bob@example.org")
        assert session.exec(select(Event)).one().kind == "bounce"
        alice = session.exec(select(Subscriber).where(Subscriber.email == "alice@example.org")).one()
    assert (alice.state, alice.next_due_at) == (SubscriberState.BOUNCING, None)
    assert alice.ended_at


def test_full_mailbox_is_not_suppressed(app: Application, mail_server: MailServer, now: datetime) -> None:
    """Only this email fails."""
    enqueue_mails(app, now, "alice")
    mail_server.reply("rcpt", "552 5.2.2 mailbox full")
    assert pipeline.send_now(app, now) == {"failed": 1}
    with app.db.read() as session:
        assert not suppression.is_suppressed(session, "alice@example.org")
        assert session.get_one(Subscriber, 1).state == SubscriberState.ACTIVE


def test_refused_sender_pauses_all_mails(app: Application, mail_server: MailServer, now: datetime) -> None:
    """The pause has the reason, and is logged once; after resuming, every email is sent."""
    enqueue_mails(app, now, *(f"reader{n}" for n in range(20)))
    mail_server.reply("end", "550 5.7.26 this mail is unauthenticated")
    with capture_logs() as lines:
        counts = pipeline.send_now(app, now)
        assert pipeline.send_now(app, now + SOON) == {}
    (line,) = (line for line in lines if line["log_level"] == "error")
    assert line["event"] == "all sending is paused"
    assert "5.7.26" in line["reason"]
    assert "paperboy sending resume" in line["fix"]
    assert counts.total() == 20
    assert set(counts) <= {"deferred", "pending"}
    with app.db.write() as session:
        (pause,) = ledger.pauses(session)
        assert pause.edition == ledger.ALL_EDITIONS
        assert "5.7.26" in pause.reason
        assert ledger.last_automatic(session, pause)
        assert suppression.list_page(session) == []
    mail_server.clear_rules()
    assert pipeline.send_now(app, now + SOON) == {}
    with app.db.write() as session:
        assert ledger.resume(session, now)
        assert not ledger.resume(session, now)
    assert pipeline.send_now(app, now + SOON) == {"sent": 20}


@pytest.mark.parametrize(
    ("stage", "reply"),
    [
        ("rcpt", "554 5.7.1 Relay access denied"),
        ("end", "550 5.4.5 Daily user sending limit exceeded"),
        pytest.param(
            "rcpt",
            "554 5.7.1 Service unavailable; Client host [192.0.2.1] blocked using zen.spamhaus.org",
            marks=pytest.mark.once,
        ),
        pytest.param(
            "rcpt",
            "550-Verification failed for bounce\r\n550-550 5.1.1 User unknown\r\n550 Sender verify failed",
            marks=pytest.mark.once,
        ),
        pytest.param(
            "end",
            "550 5.7.60 Client does not have permissions to send as this sender",
            marks=pytest.mark.once,
        ),
    ],
)
def test_several_refusals_that_seem_to_be_about_us_pause(
    app: Application, mail_server: MailServer, now: datetime, stage: str, reply: str
) -> None:
    """Nobody is suppressed, and every email is sent after resuming."""
    enqueue_mails(app, now, *(f"reader{n}" for n in range(15)))
    mail_server.reply(stage, reply)
    assert set(pipeline.send_now(app, now)) <= {"deferred", "pending"}
    with app.db.write() as session:
        (pause,) = ledger.pauses(session)
        assert pause.reason.startswith("the relay refuses us: 55")
        assert suppression.list_page(session) == []
        ledger.resume(session, now)
    mail_server.clear_rules()
    assert pipeline.send_now(app, now + SOON) == {"sent": 15}


BLOCKED = "554 5.7.1 Service unavailable; Client host [192.0.2.1] blocked using zen.spamhaus.org"
BLACKLISTED = "550 5.7.1 Message rejected: sender is on the recipient's blacklist"


@pytest.mark.parametrize("stage", ["rcpt", "end"])
@pytest.mark.parametrize("every", [pytest.param(5, marks=pytest.mark.once), 10])
def test_refusal_of_some_that_seems_to_be_about_us(
    app: Application, mail_server: MailServer, now: datetime, stage: str, every: int
) -> None:
    """The other emails are sent. A second refusal ends these emails, even if a run consists of them."""
    names = [f"reader{n:03}" for n in range(100)]
    enqueue_mails(app, now, *names)
    for name in names[::every]:
        mail_server.reply(stage, BLACKLISTED, to=f"{name}@example.org")
    refused = 100 // every
    assert pipeline.send_now(app, now) == {"sent": 100 - refused, "deferred": refused}
    with app.db.write() as session:  # a pause for another reason does not begin their count again
        ledger.pause(session, "maintenance", now)
        ledger.resume(session, now)
    assert pipeline.send_now(app, now + SOON) == {"failed": refused}
    with app.db.read() as session:
        assert ledger.pauses(session) == []
        assert set(session.exec(select(Subscriber.state))) == {SubscriberState.ACTIVE}
        assert list(session.exec(select(Event.kind))) == ["refused_us"] * refused


def test_suspected_refusals_of_several_runs_pause(
    app: Application, mail_server: MailServer, now: datetime
) -> None:
    """Retries of the same emails do not count, so it takes three emails. None fails."""
    mail_server.reply("rcpt", BLOCKED)
    for hour, name in enumerate(("alice", "bob", "carol")):
        with app.db.read() as session:
            assert ledger.pauses(session) == []
        at = now + timedelta(hours=hour)
        enqueue_mails(app, at, name)
        assert set(pipeline.send_now(app, at)) == {"deferred"}
    with app.db.read() as session:
        (pause,) = ledger.pauses(session)
        assert pause.reason == f"the relay refuses us: {BLOCKED}"


@pytest.mark.parametrize("count", [15, pytest.param(60, marks=pytest.mark.once)])
def test_resuming_while_the_relay_refuses_us(
    app: Application, mail_server: MailServer, now: datetime, count: int
) -> None:
    """Sending pauses again each time, also after a temporary refusal, and no email fails."""
    enqueue_mails(app, now, *(f"reader{n}" for n in range(count)))
    mail_server.reply("rcpt", "451 4.7.1 Try again later")
    assert pipeline.send_now(app, now) == {"deferred": count}
    mail_server.clear_rules()
    mail_server.reply("rcpt", BLOCKED)
    for number in range(1, 5):
        assert set(pipeline.send_now(app, now + number * timedelta(hours=4))) <= {"deferred", "pending"}
        with app.db.write() as session:
            assert len(ledger.pauses(session)) == 1
            ledger.resume(session, now)


@pytest.mark.parametrize("reply", [BLOCKED, "550 5.7.26 this mail is unauthenticated"])
def test_refused_emails_are_due_when_sending_is_resumed(
    app: Application, mail_server: MailServer, now: datetime, reply: str
) -> None:
    """They do not wait for hours because the relay refused them several times."""
    enqueue_mails(app, now, "alice", "bob", "carol")
    mail_server.reply("rcpt", reply)
    for hours in range(0, 20, 4):
        at = now + timedelta(hours=hours)
        assert pipeline.send_now(app, at).total() == 3
        with app.db.write() as session:
            assert ledger.resume(session, now)
    enqueue_mails(app, at, "dave")
    mail_server.clear_rules()
    mail_server.reply("rcpt", "451 4.7.1 come back later", to="dave@example.org")
    assert pipeline.send_now(app, at + timedelta(seconds=1)) == {"sent": 3, "deferred": 1}
    with app.db.write() as session:
        ledger.pause_automatically(session, "the relay refuses us", at)
        ledger.resume(session, now)
    assert pipeline.send_now(app, at + timedelta(seconds=2)) == {}, "this was a temporary refusal"


@pytest.mark.once
def test_refused_email_is_due_after_every_pause(
    app: Application, mail_server: MailServer, now: datetime
) -> None:
    """Whoever paused sending to correct the cause may have given any reason."""
    enqueue_mails(app, now, "alice")
    mail_server.reply("rcpt", BLOCKED)
    assert pipeline.send_now(app, now) == {"deferred": 1}
    mail_server.clear_rules()
    with app.db.write() as session:
        ledger.pause(session, "maintenance", now)
        assert ledger.resume(session, now)
    assert pipeline.send_now(app, now + timedelta(seconds=1)) == {"sent": 1}


def test_email_refused_before_others_were_accepted_is_not_due_after_a_pause(
    app: Application, mail_server: MailServer, now: datetime
) -> None:
    """Its next refusal is its last, so it keeps its delay."""
    enqueue_mails(app, now, "alice")
    mail_server.reply("rcpt", BLACKLISTED, to="alice@example.org")
    assert pipeline.send_now(app, now) == {"deferred": 1}
    enqueue_mails(app, now, "bob")
    assert pipeline.send_now(app, now + timedelta(seconds=1)) == {"sent": 1}
    enqueue_mails(app, now, "carol", "dave", "erin")
    mail_server.reply("rcpt", BLOCKED)
    assert pipeline.send_now(app, now + timedelta(seconds=2)) == {"deferred": 3}
    with app.db.write() as session:
        assert ledger.resume(session, now)
    mail_server.clear_rules()
    assert pipeline.send_now(app, now + timedelta(seconds=3)) == {"sent": 3}
    assert pipeline.send_now(app, now + SOON) == {"sent": 1}


def test_words_of_a_subscribers_domain_do_not_pause(
    app: Application, mail_server: MailServer, now: datetime
) -> None:
    """The relay quotes the domain, and refuses only that recipient."""
    enqueue_mails(app, now, "bob", "carol")
    with app.db.write() as session:
        session.get_one(Subscriber, 1).email = "bob@spamhaus.example"
    mail_server.reply("rcpt", "550 spamhaus.example: no such domain", to="bob@spamhaus.example")
    assert pipeline.send_now(app, now) == {"failed": 1, "sent": 1}
    with app.db.read() as session:
        assert ledger.pauses(session) == []
        assert session.get_one(Subscriber, 1).state is SubscriberState.BOUNCING


def test_one_edition_can_be_paused(app: Application, mail_server: MailServer, now: datetime) -> None:
    """Emails of other editions are sent. A second pause adds its reason."""
    enqueue_mails(app, now, "alice")
    enqueue_mails(app, now, "bob", kind=MailKind.CONFIRM)
    with app.db.write() as session:
        session.get_one(Delivery, 2).edition = "confirm-1"
        ledger.pause(session, "a wrong note is in it", now, "2026-11-20")
        assert ledger.pause(session, "another reason", now + SOON, "2026-11-20")
        assert not ledger.pause(session, "another reason", now + SOON, "2026-11-20")
        (pause,) = ledger.pauses(session)
        assert (pause.reason, pause.since) == ("a wrong note is in it; also: another reason", now)
        ledger.pause(session, "a wrong note", now, pause.edition)
        assert ledger.reasons(pause) == ["a wrong note is in it", "another reason", "a wrong note"]
    assert pipeline.send_now(app, now) == {"sent": 1}
    assert states_by_name(app) == {"alice": "pending", "bob": "sent"}


def test_421_defers_and_reconnects(
    app: Application, settings: Settings, mail_server: MailServer, now: datetime
) -> None:
    """The next email is sent over a new connection."""
    app = main.build(settings.model_copy(update={"smtp_connections": 1}))
    enqueue_mails(app, now, "alice", "bob", "carol")
    mail_server.reply("rcpt", "421 4.7.0 too much for now", to="bob@example.org")
    assert pipeline.send_now(app, now) == {"sent": 2, "deferred": 1}
    assert states_by_name(app) == {"alice": "sent", "bob": "deferred", "carol": "sent"}
    assert mail_server.connections == 2
    app.db.dispose()


@pytest.mark.parametrize("stage", ["mail", "rcpt", "data"])
def test_disconnect_before_the_body_defers(
    app: Application, mail_server: MailServer, now: datetime, stage: str
) -> None:
    """The email does not count as possibly delivered."""
    enqueue_mails(app, now, "alice")
    mail_server.drop(stage)
    assert pipeline.send_now(app, now) == {"deferred": 1}
    assert not deliveries_by_name(app)["alice"].possibly_delivered


def test_failed_digests_are_retried_unless_a_later_one_may_have_their_papers(
    app: Application, mail_server: MailServer, now: datetime
) -> None:
    """Nor if the failed one may have arrived, or its subscriber has left."""
    enqueue_mails(app, now, "alice", "bob", "carol", "dave", "erin", next_due_at=now + NEXT_DAY)
    mail_server.reply("end", "554 5.6.0 no")
    assert pipeline.send_now(app, now) == {"failed": 5}
    mail_server.clear_rules()
    with app.db.write() as session:
        mail = {"kind": MailKind.DIGEST, "due_at": now + NEXT_DAY, "now": now + SOON}
        ledger.enqueue(session, subscriber_id=2, edition="2026-11-21", digest=sample_digest.digest(), **mail)
        ledger.enqueue(session, subscriber_id=5, edition="2026-11-21", digest=Skip("a quiet day"), **mail)
        session.get_one(Subscriber, 3).state = SubscriberState.UNSUBSCRIBED
        session.get_one(Delivery, 4).possibly_delivered = True
        assert ledger.retry_failed(session, "2026-11-20", now + SOON) == 2
        assert ledger.retry_failed(session, "2026-11-20", now + SOON) == 0
        assert set(ledger.paper_ids_promised(session, [1], now)[1])
    assert pipeline.send_now(app, now + SOON) == {"sent": 2}
    recipients = sorted(mail.recipient for mail in mail_server.messages)
    assert recipients == ["alice@example.org", "erin@example.org"]


@pytest.mark.parametrize(
    ("state", "may_have_arrived", "retryable"),
    [
        ("failed", False, ["2026-11-21"]),
        ("failed without content", False, ["2026-11-20"]),
        ("failed", True, []),
        ("suppressed", False, ["2026-11-20"]),
        ("skipped", False, ["2026-11-20"]),
        ("skipped", True, []),
    ],
)
def test_digest_is_retried_only_if_a_later_one_can_never_arrive(
    app: Application, now: datetime, state: str, *, may_have_arrived: bool, retryable: list[str]
) -> None:
    """If two digests with the same papers failed, only the later one is retried."""
    enqueue_mails(app, now, "alice", next_due_at=now + 2 * NEXT_DAY)
    with app.db.write() as session:
        mail = {"kind": MailKind.DIGEST, "due_at": now + NEXT_DAY, "now": now + NEXT_DAY}
        ledger.enqueue(session, subscriber_id=1, edition="2026-11-21", digest=sample_digest.digest(), **mail)
        earlier, later = session.exec(select(Delivery).order_by(col(Delivery.id))).all()
        earlier.state, earlier.next_attempt_at, later.next_attempt_at = DeliveryState.FAILED, None, None
        later.state, later.possibly_delivered = DeliveryState(state.split()[0]), may_have_arrived
        if "without content" in state:
            session.delete(session.get_one(DigestContent, later.id))
            session.flush()
        assert list(ledger.count_retryable(session, now, now + NEXT_DAY)) == retryable
        for edition in ("2026-11-20", "2026-11-21"):
            assert ledger.has_retryable(session, edition, now + NEXT_DAY) == (edition in retryable)
            assert ledger.retry_failed(session, edition, now + NEXT_DAY) == (edition in retryable)


def test_later_digest_may_have_an_earlier_edition(app: Application, now: datetime) -> None:
    """The subscriber has moved from one end of the time zones to the other."""
    enqueue_mails(app, now, "alice", next_due_at=now + 2 * NEXT_DAY)
    with app.db.write() as session:
        failed = session.exec(select(Delivery)).one()
        failed.state, failed.next_attempt_at = DeliveryState.FAILED, None
        assert ledger.count_retryable(session, now, now + NEXT_DAY) == {"2026-11-20": 1}
        mail = {"kind": MailKind.DIGEST, "due_at": now + NEXT_DAY, "now": now + NEXT_DAY}
        ledger.enqueue(session, subscriber_id=1, edition="2026-11-19", digest=sample_digest.digest(), **mail)
        assert ledger.count_retryable(session, now, now + NEXT_DAY) == {}
        assert ledger.retry_failed(session, "2026-11-20", now + NEXT_DAY) == 0


def test_disconnect_after_the_body_resends_the_same_bytes(
    app: Application, mail_server: MailServer, now: datetime
) -> None:
    """A mailbox can detect the duplicate."""
    enqueue_mails(app, now, "alice")
    mail_server.drop("end")
    assert pipeline.send_now(app, now) == {"uncertain": 1}
    assert deliveries_by_name(app)["alice"].possibly_delivered
    mail_server.clear_rules()
    assert pipeline.send_now(app, now + SOON) == {"sent": 1}
    (again,) = mail_server.messages
    assert again.parsed()["Message-ID"] == deliveries_by_name(app)["alice"].message_id
    assert all(first == again for first in mail_server.swallowed)


def test_uncertain_mails_can_be_held(
    app: Application, settings: Settings, mail_server: MailServer, now: datetime
) -> None:
    """With the policy `hold` an email waits for the operator, and its papers stay reserved."""
    app = main.build(settings.model_copy(update={"when_uncertain": UncertainPolicy.HOLD}))
    enqueue_mails(app, now, "alice")
    mail_server.drop("end")
    assert pipeline.send_now(app, now) == {"uncertain": 1}
    mail_server.clear_rules()
    assert pipeline.send_now(app, now + 2 * NEXT_DAY) == {}
    assert states_by_name(app) == {"alice": "uncertain"}
    with app.db.read() as session:
        assert ledger.paper_ids_promised(session, [1], now)[1]
    app.db.dispose()


def test_an_uncertain_mail_that_expires_stays_uncertain(
    app: Application, mail_server: MailServer, now: datetime
) -> None:
    """Its papers are not sent again."""
    enqueue_mails(app, now, "alice")
    mail_server.drop("end", times=1)
    pipeline.send_now(app, now)
    mail_server.reply("rcpt", "450 4.2.1 busy")
    assert pipeline.send_now(app, now + SOON) == {"deferred": 1}
    pipeline.send_now(app, now + NEXT_DAY)
    assert states_by_name(app) == {"alice": "uncertain"}
    with app.db.read() as session:
        assert ledger.paper_ids_promised(session, [1], now)[1]


def test_papers_of_an_uncertain_mail_stay_reserved(
    app: Application, mail_server: MailServer, now: datetime
) -> None:
    """This also holds if its second attempt was refused."""
    enqueue_mails(app, now, "alice")
    mail_server.drop("end", times=1)
    pipeline.send_now(app, now)
    mail_server.reply("rcpt", "552 5.2.2 mailbox full")
    assert pipeline.send_now(app, now + SOON) == {"failed": 1}
    with app.db.read() as session:
        assert ledger.paper_ids_promised(session, [1], now)[1]


def abandoned_journal(
    owner: str, begun: Collection[int] = (), *ended: AttemptResult, complete: bool = True
) -> AbandonedJournal:
    """Build a dead sender's journal."""
    return AbandonedJournal(
        owner,
        complete,
        {delivery_id: (f"<{delivery_id}@paperboy.test>", "A subject") for delivery_id in begun},
        ended,
    )


def test_journal_of_a_dead_sender_is_replayed(
    app: Application, mail_server: MailServer, now: datetime
) -> None:
    """Answered emails are recorded, unanswered ones are uncertain, and the rest is unsent."""
    alice, bob, _carol = enqueue_mails(app, now, "alice", "bob", "carol")
    accepted = AttemptResult(
        alice, SendResult(SendOutcome.ACCEPTED, 250, "queued"), now.timestamp(), "<1@paperboy.test>", "Hello"
    )
    with app.db.write() as session:
        ledger.claim(session, owner="a dead sender", now=now)
        dead = abandoned_journal("a dead sender", [bob], accepted)
        freed = ledger.recovery.replay_journal(
            session, dead, now, UncertainPolicy.RESEND, bounces.record_refusal
        )
    assert freed == {"sent": 1, "uncertain": 1, "pending": 1}
    deliveries = deliveries_by_name(app)
    assert (deliveries["alice"].state, deliveries["alice"].sent_at, deliveries["alice"].subject) == (
        "sent",
        now,
        "Hello",
    )
    assert [name for name, row in deliveries.items() if row.possibly_delivered] == ["bob"]
    assert deliveries["bob"].message_id == "<2@paperboy.test>"
    assert pipeline.send_now(app, now) == {"sent": 2}
    assert sorted(mail.recipient for mail in mail_server.messages) == ["bob@example.org", "carol@example.org"]


def test_replaying_a_journal_twice_changes_nothing(app: Application, now: datetime) -> None:
    """A process may die between the ledger's commit and the deletion of the journal."""
    alice, bob = enqueue_mails(app, now, "alice", "bob")
    deferred = AttemptResult(alice, SendResult(SendOutcome.DEFERRED, 451, "later"), now.timestamp())
    with app.db.write() as session:
        ledger.claim(session, owner="a dead sender", now=now)
    for _ in range(2):
        with app.db.write() as session:
            dead = abandoned_journal("a dead sender", [bob], deferred)
            ledger.recovery.replay_journal(session, dead, now, UncertainPolicy.RESEND, bounces.record_refusal)
    assert states_by_name(app) == {"alice": "deferred", "bob": "uncertain"}
    assert {row.attempts for row in deliveries_by_name(app).values()} == {1}


def test_incomplete_journal_makes_claimed_mails_uncertain(app: Application, now: datetime) -> None:
    """Without fsync lines may be lost, so no claimed email is provably unsent."""
    enqueue_mails(app, now, "alice")
    with app.db.write() as session:
        ledger.claim(session, owner="a dead sender", now=now)
        dead = abandoned_journal("a dead sender", complete=False)
        ledger.recovery.replay_journal(session, dead, now, UncertainPolicy.HOLD, bounces.record_refusal)
    alice = deliveries_by_name(app)["alice"]
    assert (alice.state, alice.possibly_delivered, alice.next_attempt_at) == ("uncertain", True, None)


@pytest.mark.parametrize("policy", UncertainPolicy)
def test_cancelled_mail_in_flight_of_a_dead_sender_is_uncertain(
    app: Application, now: datetime, policy: UncertainPolicy
) -> None:
    """It may have arrived, so its papers are not sent again. Emails that were only claimed stay cancelled."""
    alice, _, carol = enqueue_mails(app, now, "alice", "bob", "carol")
    accepted = AttemptResult(carol, SendResult(SendOutcome.ACCEPTED, 250, "queued"), now.timestamp())
    dead = abandoned_journal("a dead sender", [alice], accepted)
    with app.db.write() as session:
        ledger.claim(session, owner="a dead sender", now=now)
        assert ledger.cancel(session, "2026-11-20") == 3
    for recovered in ({"uncertain": 1, "sent": 1}, {"sent": 1}):
        with app.db.write() as session:
            assert recovered == ledger.recovery.replay_journal(
                session, dead, now, policy, bounces.record_refusal
            )
    assert states_by_name(app) == {"alice": "uncertain", "bob": "skipped", "carol": "sent"}
    row = deliveries_by_name(app)["alice"]
    assert (row.possibly_delivered, row.next_attempt_at) == (True, None)
    assert (row.message_id, row.subject) == (f"<{alice}@paperboy.test>", "A subject")
    with app.db.read() as session:
        promised = ledger.paper_ids_promised(session, [1, 2, 3], now)
    assert [bool(papers) for papers in promised.values()] == [True, False, True]
    assert not deliveries_by_name(app)["bob"].possibly_delivered


def test_expired_lease_without_a_journal(app: Application, mail_server: MailServer, now: datetime) -> None:
    """The emails of a lost machine are uncertain after their lease."""
    enqueue_mails(app, now, "alice")
    with app.db.write() as session:
        ledger.claim(session, owner="a lost machine's", now=now)
    after = now + ledger.LEASE
    assert pipeline.send_now(app, after - timedelta(seconds=1)) == {}
    assert states_by_name(app) == {"alice": "claimed"}
    assert pipeline.send_now(app, after) == {"sent": 1}
    assert deliveries_by_name(app)["alice"].possibly_delivered


def test_recovered_emails_are_logged_by_state(app: Application, settings: Settings, now: datetime) -> None:
    """The log names the states in words, not in Python's notation for enumerations."""
    enqueue_mails(app, now, "alice")
    with app.db.write() as session:
        ledger.claim(session, owner="dead:1:abc", now=now)
    Journal(folder := Path(settings.journal_dir), "dead:1:abc").close(complete=False)
    with structlog.testing.capture_logs() as logged:
        ledger.recover(app.db, folder, now, UncertainPolicy.RESEND, bounces.record_refusal)
    (warning,) = logged
    assert repr(warning["states"]) == "{'pending': 1}"


def test_a_living_sender_keeps_its_mails(app: Application, settings: Settings, now: datetime) -> None:
    """This holds even if its lease seems to have expired by a changed clock."""
    enqueue_mails(app, now, "alice")
    folder = Path(settings.journal_dir)
    with app.db.write() as session:
        ledger.claim(session, owner="alive:1:abc", now=now)
    living = Journal(folder, "alive:1:abc")
    assert (
        ledger.recover(app.db, folder, now + NEXT_DAY, UncertainPolicy.RESEND, bounces.record_refusal) == {}
    )
    assert states_by_name(app) == {"alice": "claimed"}
    living.close()
    ledger.recover(app.db, folder, now + NEXT_DAY, UncertainPolicy.RESEND, bounces.record_refusal)
    assert states_by_name(app) == {"alice": "uncertain"}


def test_concurrent_claims_are_disjoint(app: Application, now: datetime) -> None:
    """Eight threads claim all rows; each row is claimed exactly once."""
    ids = enqueue_mails(app, now, *(f"reader{n}" for n in range(120)))

    def claim_all(owner: int) -> list[int]:
        own: list[int] = []
        while True:
            with app.db.write() as session:
                batch = ledger.claim(session, owner=str(owner), now=now, limit=7)
            if not batch:
                return own
            own += batch

    with ThreadPoolExecutor(8) as pool:
        claimed = [delivery_id for own in pool.map(claim_all, range(8)) for delivery_id in own]
    assert sorted(claimed) == ids
    assert {row.attempts for row in deliveries_by_name(app).values()} == {1}


def test_concurrent_runs_send_each_mail_once(
    app: Application, mail_server: MailServer, now: datetime
) -> None:
    """Two processes may start a run in the same minute."""
    enqueue_mails(app, now, *(f"reader{n}" for n in range(40)))
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(pipeline.send_now, app, now) for _ in range(2)]
        assert sum(run.result()["sent"] for run in runs) == 40
    assert len({mail.recipient for mail in mail_server.messages}) == len(mail_server.messages) == 40


@pytest.mark.parametrize(
    ("kind", "reader", "outcome"),
    [
        (MailKind.DIGEST, SubscriberState.UNSUBSCRIBED, "skipped"),
        (MailKind.DIGEST, SubscriberState.PAUSED, "skipped"),
        (MailKind.DIGEST, SubscriberState.PENDING, "skipped"),
        (MailKind.DIGEST, SubscriberState.ERASED, "skipped"),
        (MailKind.CONFIRM, SubscriberState.PENDING, "sent"),
        (MailKind.MANAGE, SubscriberState.PENDING, "sent"),
        (MailKind.ERASE, SubscriberState.UNSUBSCRIBED, "sent"),
        (MailKind.CONFIRM, SubscriberState.ERASED, "skipped"),
    ],
)
def test_mails_allowed_by_subscriber_state(
    app: Application,
    mail_server: MailServer,
    now: datetime,
    kind: MailKind,
    reader: SubscriberState,
    outcome: str,
) -> None:
    """Digests are for active subscribers; a confirmation is for a pending one."""
    enqueue_mails(app, now, "alice", kind=kind, state=reader)
    assert pipeline.send_now(app, now) == {outcome: 1}
    assert len(mail_server.messages) == (outcome == "sent")


def test_suppressed_address_gets_no_mail(app: Application, mail_server: MailServer, now: datetime) -> None:
    """Not even a confirmation is sent, and the row has the reason."""
    enqueue_mails(app, now, "alice", kind=MailKind.CONFIRM)
    with app.db.write() as session:
        suppression.suppress(session, "alice@example.org", "she complained", now)
    assert pipeline.send_now(app, now) == {"suppressed": 1}
    assert "she complained" in deliveries_by_name(app)["alice"].reason
    assert mail_server.messages == []


@pytest.mark.parametrize("when", ["left", "suppressed", "paused", "cancelled", "taken over"])
def test_sendable_addresses(app: Application, now: datetime, when: str) -> None:
    """It excludes claimed emails that must not be sent any more."""
    alice, bob = enqueue_mails(app, now, "alice", "bob")
    with app.db.write() as session:
        assert ledger.claim(session, owner="me", now=now)
        assert ledger.sendable_addresses(session, "me", now).keys() == {alice, bob}
        if when == "left":
            session.get_one(Subscriber, 1).state = SubscriberState.UNSUBSCRIBED
        elif when == "suppressed":
            suppression.suppress(session, "alice@example.org", "she complained", now)
        elif when == "paused":
            session.get_one(Delivery, alice).edition = "2026-11-21"
            ledger.pause(session, "the wrong template", now, "2026-11-21")
        elif when == "cancelled":
            session.get_one(Delivery, alice).edition = "2026-11-21"
            session.flush()
            assert ledger.cancel(session, "2026-11-21") == 1
        else:
            session.get_one(Delivery, alice).lease_owner = "another"
        session.flush()
        assert ledger.sendable_addresses(session, "me", now).keys() == {bob}


def test_invalid_mails_do_not_stop_others(app: Application, mail_server: MailServer, now: datetime) -> None:
    """An empty digest fails, an unreadable one is deferred, and an unreadable paper is left out."""
    enqueue_mails(app, now, "alice", "bob", "carol")
    with app.db.write() as session:
        session.get_one(DigestContent, 1).digest = {"edition": "2026-11-20", "sections": []}
        session.get_one(DigestContent, 2).digest = {"edition": "2026-11-20", "sections": "no sections"}
        carol = session.get_one(DigestContent, 3)
        spoiled = deepcopy(carol.digest)
        spoiled["sections"][0]["cards"][0] = 99
        carol.digest = spoiled
    counts = pipeline.send_now(app, now)
    assert counts == {"failed": 1, "deferred": 1, "sent": 1, "cards_left_out": 1}
    assert states_by_name(app) == {"alice": "failed", "bob": "deferred", "carol": "sent"}
    assert "no paper" in deliveries_by_name(app)["alice"].reason


def record_results(
    app: Application, owner: str, answers: Mapping[int, SendResult], now: datetime
) -> dict[int, DeliveryState]:
    """Record results as a sender does."""
    endings = [AttemptResult(delivery_id, answer, now.timestamp()) for delivery_id, answer in answers.items()]
    with app.db.write() as session:
        return ledger.record_results(
            session,
            endings,
            owner=owner,
            now=now,
            policy=UncertainPolicy.RESEND,
            on_failed=bounces.record_refusal,
        )


def test_a_pause_holds_claimed_mails(app: Application, now: datetime) -> None:
    """Their attempt does not count, and they may be sent after the pause."""
    (alice,) = enqueue_mails(app, now, "alice")
    with app.db.write() as session:
        assert ledger.claim(session, owner="me", now=now)
        ledger.pause(session, "the wrong template", now)
    assert record_results(app, "me", {alice: SendResult(SendOutcome.WITHDRAWN)}, now) == {
        alice: DeliveryState.PENDING
    }
    assert deliveries_by_name(app)["alice"].attempts == 0
    with app.db.write() as session:
        assert not ledger.claim(session, owner="me", now=now)
        ledger.resume(session, now)
        assert ledger.claim(session, owner="me", now=now)


@pytest.mark.parametrize(
    "verdict", [SendOutcome.NOT_ATTEMPTED, SendOutcome.DEFERRED, SendOutcome.HARD_BOUNCE]
)
def test_a_late_result_changes_nothing(app: Application, now: datetime, verdict: SendOutcome) -> None:
    """A sender that slept through its lease must not change an email that was given up meanwhile."""
    enqueue_mails(app, now, "alice")
    later = now + NEXT_DAY
    with app.db.write() as session:
        ledger.claim(session, owner="slow", now=now)
        ledger.recovery.replay_journal(
            session, abandoned_journal("slow"), now, UncertainPolicy.RESEND, bounces.record_refusal
        )
    ledger.recover(
        app.db, Path(app.settings.journal_dir), later, UncertainPolicy.RESEND, bounces.record_refusal
    )
    late = record_results(app, "slow", {1: SendResult(verdict, 451, "much later")}, later)
    assert late == {1: DeliveryState.FAILED}
    with app.db.read() as session:
        assert not suppression.is_suppressed(session, "alice@example.org")
    assert (
        deliveries_by_name(app)["alice"].reason == "given up because the next digest is due: never attempted"
    )


@pytest.mark.parametrize(
    "verdict", [SendOutcome.ACCEPTED, SendOutcome.HARD_BOUNCE, SendOutcome.DEFERRED, SendOutcome.UNCERTAIN]
)
def test_a_late_result_contains_no_data_of_an_erased_reader(
    app: Application, now: datetime, verdict: SendOutcome
) -> None:
    """It must not restore data that was erased."""
    (delivery,) = enqueue_mails(app, now, "alice")
    with app.db.write() as session:
        ledger.claim(session, owner="me", now=now)
        subscribers.erase(session, 1, now, suppress=False)
    record_results(app, "me", {delivery: SendResult(verdict, 550, "5.1.1 <alice@example.org>: who?")}, now)
    with app.db.read() as session:
        rows = [*session.exec(select(Event)), session.get_one(Delivery, delivery)]
        assert not session.exec(select(Suppression)).all()
    assert "alice" not in str([row.model_dump() for row in rows])


@pytest.mark.parametrize("verdict", [SendOutcome.ACCEPTED, SendOutcome.DEFERRED, None])
def test_journal_replayed_long_after_an_erasure(
    app: Application, now: datetime, verdict: SendOutcome | None
) -> None:
    """It restores no data of the erased reader. Other readers' data are recorded."""
    ids = enqueue_mails(app, now, "alice", "bob")
    with app.db.write() as session:
        ledger.claim(session, owner="a dead sender", now=now)
        subscribers.erase(session, 1, now)
    replies = [
        AttemptResult(
            number,
            SendResult(verdict, 250, f"2.0.0 queued for <{name}@example.org>"),
            now.timestamp(),
            f"<{number}@paperboy.test>",
            f"Papers for {name}",
        )
        for number, name in zip(ids, ("alice", "bob"), strict=True)
        if verdict
    ]
    dead = AbandonedJournal(
        "a dead sender",
        True,
        {} if verdict else {ids[0]: ("<1@paperboy.test>", "Papers for alice")},
        tuple(replies),
    )
    with app.db.write() as session:
        ledger.recovery.replay_journal(
            session, dead, now + NEXT_DAY, UncertainPolicy.HOLD, bounces.record_refusal
        )
    with app.db.read() as session:
        alice, bob = (session.get_one(Delivery, number) for number in ids)
    assert "alice" not in str(alice.model_dump())
    assert ("bob" in str(bob.model_dump())) is (verdict is not None)


def test_reason_of_an_expired_service_mail(app: Application, now: datetime) -> None:
    """It does not mention a next digest."""
    enqueue_mails(app, now, "alice", kind=MailKind.CONFIRM)
    ledger.recover(
        app.db, Path(app.settings.journal_dir), now + NEXT_DAY, UncertainPolicy.RESEND, bounces.record_refusal
    )
    assert deliveries_by_name(app)["alice"].reason == "given up because it is out of date: never attempted"


@pytest.mark.once
def test_planned_digests_are_not_read_for_each_batch(app: Application, now: datetime) -> None:
    """Without statistics, SQLite would prefer the index of states, which finds all digests of the run.

    PostgreSQL has statistics.
    """
    plans: list[str] = []

    def explain(connection: Any, _cursor: Any, statement: str, values: Any, *_: Any) -> None:
        plans.extend(map(str, connection.connection.execute(f"EXPLAIN QUERY PLAN {statement}", values)))

    with app.db.read() as session:
        event.listen(session.connection(), "before_cursor_execute", explain)
        session.exec(ledger.with_unsettled_digest(now)).all()
    assert "ix_delivery_give_up_at" in " ".join(plans)


def test_a_pause_does_not_count_for_requested_mails(
    app: Application, mail_server: MailServer, now: datetime
) -> None:
    """They are sent after a pause of a weekend, with fresh links. A digest is given up for the next one."""
    weekend, hour = timedelta(hours=62), timedelta(hours=1)
    enqueue_mails(app, now, "alice", kind=MailKind.MANAGE)
    enqueue_mails(app, now, "bob")
    with app.db.write() as session:
        ledger.pause(session, "the relay refuses us", now + hour)
    enqueue_mails(app, now + weekend / 2, "carol", kind=MailKind.EXPORT)
    resumed_at = now + hour + weekend
    assert pipeline.send_now(app, resumed_at) == {}
    with app.db.write() as session:
        ledger.resume(session, resumed_at)
    mails = deliveries_by_name(app)
    assert {name: (mail.created_at, mail.give_up_at) for name, mail in mails.items()} == {
        "alice": (now + weekend, now + weekend + NEXT_DAY),
        "bob": (now, now + NEXT_DAY),
        "carol": (resumed_at, resumed_at + NEXT_DAY),
    }
    assert pipeline.send_now(app, resumed_at) == {"sent": 2}
    assert states_by_name(app) == {"alice": "sent", "bob": "failed", "carol": "sent"}


def test_a_mail_that_may_have_arrived_keeps_its_dates_after_a_pause(
    app: Application, mail_server: MailServer, now: datetime
) -> None:
    """It is sent again with the same bytes."""
    enqueue_mails(app, now, "alice", kind=MailKind.MANAGE)
    mail_server.drop("end")
    assert pipeline.send_now(app, now) == {"uncertain": 1}
    mail_server.clear_rules()
    with app.db.write() as session:
        ledger.pause(session, "the relay is slow", now)
        ledger.resume(session, now + SOON)
    assert pipeline.send_now(app, now + SOON) == {"sent": 1}
    (again,) = mail_server.messages
    assert all(first == again for first in mail_server.swallowed)
