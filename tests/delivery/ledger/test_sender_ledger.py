"""Test SenderLedger: what it allows to send, what it records, and what it leaves for recovery."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError
from sqlmodel import Session, select

from app import bounces, subscribers
from app.application import Application
from app.bounces import recording
from app.delivery import journal, ledger, suppression
from app.delivery.ledger import SenderLedger, circuit_breaker, sender_ledger, transitions
from app.delivery.send_result import SendOutcome, SendResult
from app.errors import Conflict, JournalError
from app.mail.message import OutgoingMail
from app.settings import Settings, UncertainPolicy
from app.storage.models import Delivery, DeliveryState, Event, SendingPause, Subscriber, SubscriberState
from tests.delivery.ledger.test_ledger import deliveries_by_name, enqueue_mails, states_by_name
from tests.delivery.test_journal import LimitedDisk

ACCEPTED = SendResult(SendOutcome.ACCEPTED, 250, "queued")


class FakeClock:
    """A monotonic clock that a test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at = 1000.0
        monkeypatch.setattr(sender_ledger, "monotonic", lambda: self.at)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    return FakeClock(monkeypatch)


@pytest.fixture
def no_background_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refresh and flush the ledger only on calls."""
    monkeypatch.setattr(sender_ledger, "REFRESH_INTERVAL", 3600.0)
    monkeypatch.setattr(sender_ledger, "FLUSH_INTERVAL", 3600.0)


@asynccontextmanager
async def open_ledger(
    app: Application, now: datetime, settings: Settings | None = None
) -> AsyncIterator[SenderLedger]:
    async with SenderLedger(
        app.db, settings or app.settings, "host:1:abc", app.snapshots, lambda: now, bounces.record_refusal
    ) as opened:
        yield opened


def mail(delivery_id: int) -> OutgoingMail:
    return OutgoingMail(delivery_id, f"<{delivery_id}@paperboy.test>", "A subject", "", "", b"")


def recover(app: Application, now: datetime) -> None:
    ledger.recover(
        app.db, Path(app.settings.journal_dir), now, UncertainPolicy.RESEND, bounces.record_refusal
    )


def journals(app: Application) -> list[Path]:
    return list(Path(app.settings.journal_dir).iterdir())


@pytest.mark.usefixtures("no_background_work")
def test_results_are_flushed_and_unsent_mails_released(app: Application, now: datetime) -> None:
    """Attempts of unsent emails do not count, and the journal is deleted."""
    alice, bob, _carol = enqueue_mails(app, now, "alice", "bob", "carol")

    async def run() -> dict[str, int]:
        async with open_ledger(app, now) as sender:
            assert len((await sender.claim()).requests) == 3
            assert sender.commit(mail(alice))
            sender.record(mail(alice), ACCEPTED)
            sender.record_unwritten(bob, SendResult(SendOutcome.UNSENDABLE, None, "no address"))
        return sender.counts

    assert asyncio.run(run()) == {"sent": 1, "failed": 1, "pending": 1}
    assert states_by_name(app) == {"alice": "sent", "bob": "failed", "carol": "pending"}
    deliveries = deliveries_by_name(app)
    assert (deliveries["alice"].subject, deliveries["alice"].message_id) == ("A subject", "<1@paperboy.test>")
    attempts = {name: row.attempts for name, row in deliveries.items()}
    assert attempts == {"alice": 1, "bob": 1, "carol": 0}
    assert journals(app) == []


@pytest.mark.usefixtures("no_background_work")
def test_suspected_refusals_wait_for_started_emails(app: Application, now: datetime) -> None:
    """Refusals of envelopes come before the reply to an email that was started earlier."""
    ids = enqueue_mails(app, now, "alice", "bob", "carol", "dave")
    refused = SendResult(SendOutcome.SENDER_REJECTION_SUSPECTED, 550, "5.7.1 Sender is on a blacklist")

    async def run() -> None:
        async with open_ledger(app, now) as sender:
            await sender.claim()
            assert all(sender.may_send(mail(delivery_id)) for delivery_id in ids)
            for delivery_id in ids[1:]:
                sender.record(mail(delivery_id), refused)
            await sender.flush()
            assert sender.stop_reason == ""
            assert sender.commit(mail(ids[0]))
            sender.record(mail(ids[0]), ACCEPTED)
            await sender.flush()
            assert sender.stop_reason == ""

    asyncio.run(run())
    others = dict.fromkeys(("bob", "carol", "dave"), "deferred")
    assert states_by_name(app) == {"alice": "sent", **others}


@pytest.mark.usefixtures("no_background_work")
def test_mail_is_withdrawn_when_the_reader_unsubscribes(app: Application, now: datetime) -> None:
    """The next refresh withdraws it with the reason."""
    alice, bob = enqueue_mails(app, now, "alice", "bob")

    async def run() -> None:
        async with open_ledger(app, now) as sender:
            await sender.claim()
            with app.db.write() as session:
                session.get_one(Subscriber, 1).state = SubscriberState.UNSUBSCRIBED
            await sender.refresh()
            assert not sender.commit(mail(alice))
            sender.record(mail(alice), SendResult(SendOutcome.WITHDRAWN))
            assert sender.commit(mail(bob))
            sender.record(mail(bob), ACCEPTED)

    asyncio.run(run())
    assert states_by_name(app) == {"alice": "skipped", "bob": "sent"}
    assert deliveries_by_name(app)["alice"].reason == "the subscriber is unsubscribed"


@pytest.mark.usefixtures("no_background_work")
def test_mail_is_withdrawn_when_the_reader_changes_the_address(app: Application, now: datetime) -> None:
    """The next claim has the new address."""
    (alice,) = enqueue_mails(app, now, "alice")

    async def run() -> None:
        async with open_ledger(app, now) as sender:
            await sender.claim()
            with app.db.write() as session:
                subscribers.replace_address(session, 1, "alice@example.net", now)
            await sender.refresh()
            assert not sender.commit(mail(alice))
            sender.record(mail(alice), SendResult(SendOutcome.WITHDRAWN))
            await sender.flush()
            (request,) = (await sender.claim()).requests
            assert request.email == "alice@example.net"
            await sender.refresh()
            assert sender.commit(mail(alice))
            sender.record(mail(alice), ACCEPTED)

    asyncio.run(run())
    assert states_by_name(app) == {"alice": "sent"}


@pytest.mark.usefixtures("no_background_work")
def test_cancel_while_in_flight(app: Application, now: datetime) -> None:
    """The email in flight is recorded as sent; the other one is withdrawn."""
    alice, bob = enqueue_mails(app, now, "alice", "bob")

    async def run() -> None:
        async with open_ledger(app, now) as sender:
            await sender.claim()
            assert sender.commit(mail(alice))
            with app.db.write() as session:
                assert ledger.cancel(session, "2026-11-20") == 2
            await sender.refresh()
            assert not sender.commit(mail(bob))
            sender.record(mail(bob), SendResult(SendOutcome.WITHDRAWN))
            sender.record(mail(alice), ACCEPTED)

    asyncio.run(run())
    assert states_by_name(app) == {"alice": "sent", "bob": "skipped"}


@pytest.mark.usefixtures("no_background_work")
def test_cancelled_mail_may_become_uncertain(app: Application, now: datetime) -> None:
    """It stays uncertain and is not sent again."""
    (alice,) = enqueue_mails(app, now, "alice")

    async def run() -> None:
        async with open_ledger(app, now) as sender:
            await sender.claim()
            assert sender.commit(mail(alice))
            with app.db.write() as session:
                ledger.cancel(session, "2026-11-20")
            sender.record(mail(alice), SendResult(SendOutcome.UNCERTAIN, None, "the connection broke"))

    asyncio.run(run())
    assert states_by_name(app) == {"alice": "uncertain"}
    assert deliveries_by_name(app)["alice"].next_attempt_at is None


@pytest.mark.usefixtures("no_background_work")
@pytest.mark.parametrize("may_have_arrived", [False, True])
@pytest.mark.parametrize("is_long_in_flight", [False, True])
@pytest.mark.parametrize(
    ("result", "state", "state_if_it_may_have_arrived"),
    [
        (ACCEPTED, "sent", "sent"),
        (SendResult(SendOutcome.DEFERRED, 451, "try again later"), "skipped", "uncertain"),
        (SendResult(SendOutcome.THROTTLED, 421, "too many emails"), "skipped", "uncertain"),
        (SendResult(SendOutcome.UNREACHABLE, None, "no route"), "skipped", "uncertain"),
        (SendResult(SendOutcome.SENDER_REJECTED, 550, "5.7.26 not signed"), "skipped", "uncertain"),
        (SendResult(SendOutcome.SENDER_REJECTION_SUSPECTED, 550, "listed"), "skipped", "uncertain"),
        (SendResult(SendOutcome.UNCERTAIN, None, "the connection broke"), "uncertain", "uncertain"),
        (SendResult(SendOutcome.HARD_BOUNCE, 550, "5.1.1 no such user"), "skipped", "uncertain"),
        (SendResult(SendOutcome.SOFT_BOUNCE, 550, "5.7.1 refused"), "skipped", "uncertain"),
        (SendResult(SendOutcome.CONTENT_REFUSED, 554, "5.6.0 content refused"), "skipped", "uncertain"),
    ],
)
def test_cancel_in_flight(
    app: Application, now: datetime, result: SendResult, state: str, state_if_it_may_have_arrived: str,
    is_long_in_flight: bool, may_have_arrived: bool,
) -> None:  # fmt: skip
    """A cancelled email is not tried again or shown, whatever the reply is. A refusal still counts."""
    (alice,) = enqueue_mails(app, now, "alice")
    with app.db.write() as session:
        session.get_one(Delivery, alice).possibly_delivered = may_have_arrived
        session.get_one(Subscriber, 1).next_due_at = now + timedelta(days=1)

    async def run() -> None:
        async with open_ledger(app, now) as sender:
            await sender.claim()
            assert sender.commit(mail(alice))
            for _ in range(2 if is_long_in_flight else 0):
                await sender.refresh()
            assert states_by_name(app) == {"alice": "committing" if is_long_in_flight else "claimed"}
            with app.db.write() as session:
                assert ledger.cancel(session, "2026-11-20") == 1
            sender.record(mail(alice), result)

    asyncio.run(run())
    recorded = deliveries_by_name(app)["alice"]
    assert recorded.state == (state_if_it_may_have_arrived if may_have_arrived else state)
    assert (recorded.next_attempt_at, recorded.smtp_code) == (None, result.code)
    assert recorded.message_id
    with app.db.write() as session:
        assert ledger.count_retryable(session, now - timedelta(days=1), now) == {}
        assert ledger.retry_failed(session, "2026-11-20", now) == 0
        is_suppressed = suppression.is_suppressed(session, "alice@example.org")
        is_paused = session.exec(select(SendingPause)).first() is not None
        events = set(session.exec(select(Event.kind).where(Event.subscriber_id == 1)))
    bounce = {SendOutcome.HARD_BOUNCE: recording.HARD, SendOutcome.SOFT_BOUNCE: recording.SOFT}.get(
        result.outcome
    )
    assert {recording.HARD, recording.SOFT} & events == ({bounce} if bounce else set())
    assert is_suppressed == (result.outcome is SendOutcome.HARD_BOUNCE)
    assert is_paused == (result.outcome is SendOutcome.SENDER_REJECTED)
    assert ledger.is_released([], recorded, now) == (recorded.state != "skipped")


@pytest.mark.usefixtures("no_background_work")
def test_reply_to_a_cancelled_mail_is_recorded_once(app: Application, now: datetime) -> None:
    """The operator's resume is not undone if the transaction that recorded the reply is repeated."""
    (alice,) = enqueue_mails(app, now, "alice")
    refused = SendResult(SendOutcome.SENDER_REJECTED, 550, "5.7.26 not signed")

    async def run() -> None:
        async with open_ledger(app, now) as sender:
            await sender.claim()
            assert sender.commit(mail(alice))
            owner = deliveries_by_name(app)["alice"].lease_owner
            with app.db.write() as session:
                ledger.cancel(session, "2026-11-20")
            attempts = [journal.AttemptResult(alice, refused, now.timestamp(), "<1@paperboy.test>", "Papers")]
            for is_paused in (True, False):
                with app.db.write() as session:
                    ledger.record_results(
                        session, attempts, owner=owner, now=now, policy=UncertainPolicy.HOLD,
                        on_failed=bounces.record_refusal,
                    )  # fmt: skip
                    assert ledger.resume(session, now) == is_paused

    asyncio.run(run())
    assert states_by_name(app) == {"alice": "skipped"}


@pytest.mark.usefixtures("no_background_work")
@pytest.mark.parametrize("whole_edition", [True, False])
def test_resent_mail_is_no_longer_cancelled(app: Application, now: datetime, whole_edition: bool) -> None:
    """If the relay postpones it, it is tried again."""
    (alice,) = enqueue_mails(app, now, "alice")
    with app.db.write() as session:
        session.get_one(Delivery, alice).possibly_delivered = True
        ledger.cancel(session, "2026-11-20")
        if whole_edition:
            assert ledger.resend_uncertain(session, "2026-11-20", now) == 1
        else:
            ledger.resend(session, alice, now)

    async def run() -> None:
        async with open_ledger(app, now) as sender:
            await sender.claim()
            assert sender.commit(mail(alice))
            sender.record(mail(alice), SendResult(SendOutcome.DEFERRED, 451, "greylisted"))

    asyncio.run(run())
    recorded = deliveries_by_name(app)["alice"]
    assert (recorded.state, recorded.reason) == ("deferred", "451 greylisted")
    assert recorded.next_attempt_at


@pytest.mark.usefixtures("no_background_work")
def test_cancel_before_a_second_attempt(app: Application, now: datetime) -> None:
    """An email that may have arrived stays uncertain and is held."""
    (alice,) = enqueue_mails(app, now, "alice")
    with app.db.write() as session:
        session.get_one(Delivery, alice).possibly_delivered = True

    async def run() -> None:
        async with open_ledger(app, now) as sender:
            await sender.claim()
            with app.db.write() as session:
                ledger.cancel(session, "2026-11-20")
            await sender.refresh()
            assert not sender.may_send(mail(alice))
            sender.record(mail(alice), SendResult(SendOutcome.WITHDRAWN))

    asyncio.run(run())
    assert states_by_name(app) == {"alice": "uncertain"}
    assert deliveries_by_name(app)["alice"].next_attempt_at is None
    with app.db.write() as session:
        ledger.resend(session, alice, now)


@pytest.mark.usefixtures("no_background_work")
def test_late_reply_does_not_undo_a_resume(app: Application, now: datetime) -> None:
    """The operator resumes while a reply is outstanding in the run that paused sending."""
    ids = enqueue_mails(app, now, *(f"reader{number}" for number in range(circuit_breaker.MINIMUM + 1)))
    refused = SendResult(SendOutcome.SOFT_BOUNCE, 554, "no spam")

    async def run() -> None:
        async with open_ledger(app, now) as sender:
            await sender.claim()
            for delivery_id in ids:
                assert sender.commit(mail(delivery_id))
            for delivery_id in ids[:-1]:
                sender.record(mail(delivery_id), refused)
            await sender.flush()
            with app.db.write() as session:
                assert ledger.resume(session, now)
            sender.record(mail(ids[-1]), refused)

    asyncio.run(run())
    with app.db.read() as session:
        assert ledger.pauses(session) == []


@pytest.mark.parametrize("state", list(DeliveryState))
@pytest.mark.parametrize("may_have_arrived", [True, False])
@pytest.mark.parametrize("is_due", [True, False])
def test_cancellable_mails_are_counted(
    app: Application, now: datetime, state: DeliveryState, may_have_arrived: bool, is_due: bool
) -> None:
    """The question to the operator names the number of emails that the answer cancels."""
    alice, _ = enqueue_mails(app, now, "alice", "bob")
    with app.db.write() as session:
        delivery = session.get_one(Delivery, alice)
        delivery.state, delivery.possibly_delivered = state, may_have_arrived
        delivery.next_attempt_at = now if is_due else None
    with app.db.write() as session:
        expected = ledger.count_cancellable(session, "2026-11-20")
        assert ledger.cancel(session, "2026-11-20") == expected
        assert ledger.count_cancellable(session, "2026-11-20") == 0


@pytest.mark.usefixtures("no_background_work")
def test_confirmed_mail_is_not_claimed_again(app: Application, now: datetime) -> None:
    """An email that is being sent cannot be confirmed. A late refusal leaves a confirmed email sent."""
    (alice,) = enqueue_mails(app, now, "alice")

    async def run() -> None:
        async with open_ledger(app, now) as sender:
            await sender.claim()
            with app.db.write() as session, pytest.raises(Conflict, match="claimed"):
                ledger.confirm_arrival(session, alice, now)
            with app.db.write() as session:
                transitions.mark_uncertain(session.get_one(Delivery, alice), "lost", now)
                ledger.confirm_arrival(session, alice, now)
                assert ledger.claim(session, owner="another", now=now) == []
            sender.record(mail(alice), SendResult(SendOutcome.SOFT_BOUNCE, 550, "no"))

    asyncio.run(run())
    assert states_by_name(app) == {"alice": "sent"}


@pytest.mark.usefixtures("no_background_work")
def test_an_uncertain_mail_is_released_as_uncertain(app: Application, now: datetime) -> None:
    """It may have arrived and was not tried again."""
    (alice,) = enqueue_mails(app, now, "alice")
    with app.db.write() as session:
        session.get_one(Delivery, alice).possibly_delivered = True

    async def run() -> None:
        async with open_ledger(app, now) as sender:
            await sender.claim()

    asyncio.run(run())
    assert states_by_name(app) == {"alice": "uncertain"}
    assert deliveries_by_name(app)["alice"].next_attempt_at == now


@pytest.mark.usefixtures("no_background_work")
def test_nothing_is_sent_without_a_recent_refresh(app: Application, now: datetime, clock: FakeClock) -> None:
    """Sending stops some seconds after the last successful refresh, until the next one succeeds."""
    (alice,) = enqueue_mails(app, now, "alice")

    def rename(old: str, new: str) -> None:
        with app.db.write() as session:
            session.connection().exec_driver_sql(f"ALTER TABLE {old} RENAME TO {new}")

    async def run() -> None:
        async with open_ledger(app, now) as sender:
            await sender.claim()
            rename("suppression", "gone")
            clock.at += sender_ledger.MAX_REFRESH_AGE - 1
            with pytest.raises(Exception, match="suppression"):
                await sender.refresh()
            assert sender.stop_reason == ""
            clock.at += 1
            assert not sender.commit(mail(alice))
            rename("gone", "suppression")
            await sender.refresh()
            assert sender.commit(mail(alice))
            sender.record(mail(alice), ACCEPTED)

    asyncio.run(run())


@pytest.mark.usefixtures("no_background_work")
def test_a_living_sender_renews_its_lease(app: Application, now: datetime, clock: FakeClock) -> None:
    """Its emails are not taken over while the relay is slow."""
    (alice,) = enqueue_mails(app, now, "alice")

    async def run() -> None:
        later = now
        async with SenderLedger(
            app.db,
            app.settings,
            "host:1:abc",
            app.snapshots,
            clock=lambda: later,
            on_failed=bounces.record_refusal,
        ) as sender:
            await sender.claim()
            later = now + ledger.LEASE / 2
            clock.at += ledger.LEASE.total_seconds() / 2
            await sender.refresh()
            assert deliveries_by_name(app)["alice"].lease_until == later + ledger.LEASE
            assert sender.commit(mail(alice))
            sender.record(mail(alice), ACCEPTED)

    asyncio.run(run())


@pytest.mark.usefixtures("no_background_work")
def test_long_transmission_is_shown_as_committing(app: Application, now: datetime) -> None:
    """The row is committing two refreshes after its body was sent."""
    (alice,) = enqueue_mails(app, now, "alice")

    async def run() -> None:
        async with open_ledger(app, now) as sender:
            await sender.claim()
            assert sender.commit(mail(alice))
            await sender.refresh()
            assert states_by_name(app) == {"alice": "claimed"}
            await sender.refresh()
            assert states_by_name(app) == {"alice": "committing"}
            sender.record(mail(alice), ACCEPTED)

    asyncio.run(run())
    assert states_by_name(app) == {"alice": "sent"}


def fail_times(times: int, work: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that raises a database error a number of times, and then calls `work`."""
    failures_left = [times]

    def attempt(*args: Any, **kwargs: Any) -> Any:
        if failures_left[0]:
            failures_left[0] -= 1
            raise OperationalError("UPDATE", {}, Exception("database is locked"))
        return work(*args, **kwargs)

    return attempt


@pytest.mark.parametrize("work", ["claim", "record_results"])
def test_database_errors_are_retried(
    app: Application, now: datetime, monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    """Test claims and results."""
    (alice,) = enqueue_mails(app, now, "alice")
    monkeypatch.setattr(sender_ledger, "REFRESH_INTERVAL", 0.01)
    monkeypatch.setattr(sender_ledger, work, fail_times(3, getattr(sender_ledger, work)))

    async def run() -> None:
        async with open_ledger(app, now) as sender:
            await sender.claim()
            assert sender.commit(mail(alice))
            sender.record(mail(alice), ACCEPTED)
            await sender.flush()

    asyncio.run(run())
    assert states_by_name(app) == {"alice": "sent"}


@pytest.mark.parametrize("how", ["timeout", "shutdown"])
def test_results_that_cannot_be_flushed_stay_in_the_journal(
    app: Application, now: datetime, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The next sender recovers them."""
    alice, bob, _carol = enqueue_mails(app, now, "alice", "bob", "carol")
    if how == "timeout":
        monkeypatch.setattr(sender_ledger, "DATABASE_TIMEOUT", 0.0)
    record = sender_ledger.record_results
    monkeypatch.setattr(sender_ledger, "record_results", fail_times(99, record))

    async def run() -> None:
        async with open_ledger(app, now) as sender:
            await sender.claim()
            assert sender.commit(mail(alice))
            sender.record(mail(alice), ACCEPTED)
            assert sender.commit(mail(bob))
            sender.shutting_down = how == "shutdown"

    with pytest.raises(OperationalError):
        asyncio.run(run())
    assert states_by_name(app) == dict.fromkeys(("alice", "bob", "carol"), "claimed")
    monkeypatch.setattr(sender_ledger, "record_results", record)
    recover(app, now)
    assert states_by_name(app) == {"alice": "sent", "bob": "uncertain", "carol": "pending"}
    assert journals(app) == []


@pytest.mark.usefixtures("no_background_work")
def test_unwritable_journal_stops_the_run(
    app: Application, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run reports the reason, and known results are in the ledger."""
    alice, bob = enqueue_mails(app, now, "alice", "bob")
    monkeypatch.setattr(journal, "ALLOCATION", 2000)

    async def run() -> None:
        async with open_ledger(app, now) as sender:
            await sender.claim()
            assert sender.commit(mail(alice))
            LimitedDisk(monkeypatch, 2000)
            with pytest.raises(JournalError):
                sender.commit(mail(bob))
            assert "No space left" in sender.stop_reason
            assert not sender.commit(mail(bob))
            assert not await sender.claim()
            sender.record(mail(alice), ACCEPTED)

    with pytest.raises(JournalError, match="No space left"):
        asyncio.run(run())
    assert states_by_name(app) == {"alice": "sent", "bob": "pending"}


@pytest.mark.usefixtures("no_background_work")
def test_with_fsync_the_intent_is_synced_first(app: Application, now: datetime, settings: Settings) -> None:
    """An email must not be sent before its intent is on disk."""
    alice, bob = enqueue_mails(app, now, "alice", "bob")

    async def run() -> None:
        async with open_ledger(app, now, settings.model_copy(update={"journal_fsync": True})) as sender:
            await sender.claim()
            await sender.journal_intent([alice])
            assert not sender.commit(mail(bob))
            assert sender.commit(mail(alice))
            sender.record(mail(alice), ACCEPTED)

    asyncio.run(run())
    assert states_by_name(app) == {"alice": "sent", "bob": "pending"}


def refusals(times: int) -> list[SendResult]:
    return [
        SendResult(SendOutcome.SOFT_BOUNCE, 554, f"5.7.1 <reader{n}@example.org>: not wanted")
        for n in range(times)
    ]


@pytest.mark.parametrize(
    ("answers", "stops"),
    [
        ([*refusals(19)], False),
        ([*refusals(20)], True),
        ([ACCEPTED] * 19 + [*refusals(1)], False),
        ([ACCEPTED] * 69 + [*refusals(29)], False),
        ([ACCEPTED] * 70 + [*refusals(30)], True),
        ([SendResult(SendOutcome.DEFERRED, 451, "later")] * 100, False),
        ([SendResult(SendOutcome.UNSENDABLE, None, "no address")] * 100, False),
        ([*refusals(12), *[ACCEPTED] * 100, *refusals(29)], False),
    ],
)
def test_circuit_breaker_threshold(answers: list[SendResult], stops: bool) -> None:
    """It opens at 30 percent refusals of the last 100 replies, at least 20; deferrals do not count."""
    breaker = circuit_breaker.CircuitBreaker(30)
    assert any(breaker.add(answer) for answer in answers) is stops


def test_circuit_breaker_reason() -> None:
    """It has the count and the most common text, without addresses."""
    breaker = circuit_breaker.CircuitBreaker(30)
    reasons = [
        breaker.add(answer)
        for answer in [SendResult(SendOutcome.HARD_BOUNCE, 550, "5.1.1 no such user"), *refusals(19)]
    ]
    assert reasons[-1] == ("the relay refused 20 of the last 20 emails; 19 of them: 554 5.7.1 …: not wanted")


def test_circuit_breaker_counts_emails_in_flight() -> None:
    """Refusals come sooner than the replies to bodies, which may be accepted."""
    breaker = circuit_breaker.CircuitBreaker(30)
    answers = [ACCEPTED] * 16 + [*refusals(7)]
    assert not any(breaker.add(answer, in_flight=8) for answer in answers)
    assert breaker.add(*refusals(1))


def test_result_after_a_takeover_is_ignored(app: Application, now: datetime) -> None:
    """It is counted separately."""
    (alice,) = enqueue_mails(app, now, "alice")

    def take_over(session: Session) -> None:
        row = session.get_one(Delivery, alice)
        row.lease_owner, row.state = "another", DeliveryState.CLAIMED

    async def run() -> dict[str, int]:
        async with open_ledger(app, now) as sender:
            await sender.claim()
            assert sender.commit(mail(alice))
            with app.db.write() as session:
                take_over(session)
            sender.record(mail(alice), ACCEPTED)
        return sender.counts

    assert asyncio.run(run()) == {"taken over": 1}
    assert states_by_name(app) == {"alice": "claimed"}
