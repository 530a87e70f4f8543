"""The sender's hand: what it may send, what it writes down, and what it leaves when it cannot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError
from sqlmodel import Session

from app import bounces
from app.application import Application
from app.delivery import journal, ledger
from app.delivery.ledger import SenderLedger, sender_ledger
from app.errors import JournalError
from app.settings import Settings, UncertainPolicy
from app.storage.models import Delivery, DeliveryState, Subscriber, SubscriberState
from app.types import OutgoingMail, SendOutcome, SendResult
from tests.test_deliver import queue, rows, states
from tests.test_journal import Disk

ACCEPTED = SendResult(SendOutcome.ACCEPTED, 250, "queued")


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at = 1000.0
        monkeypatch.setattr(sender_ledger, "monotonic", lambda: self.at)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger looks and folds only when it is told to."""
    monkeypatch.setattr(sender_ledger, "LOOK", 3600.0)
    monkeypatch.setattr(sender_ledger, "SOON", 3600.0)


@asynccontextmanager
async def opened_ledger(
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


@pytest.mark.usefixtures("quiet")
def test_answers_are_folded_and_the_rest_is_given_back(app: Application, now: datetime) -> None:
    """Whatever was not begun costs no attempt; the journal goes when the ledger knows everything."""
    alice, bob, _carol = queue(app, now, "alice", "bob", "carol")

    async def run() -> dict[str, int]:
        async with opened_ledger(app, now) as book:
            assert len((await book.claim()).letters) == 3
            assert book.commit(mail(alice))
            book.settle(mail(alice), ACCEPTED)
            book.settle_unwritten(bob, SendResult(SendOutcome.UNSENDABLE, None, "no address"))
        return book.counts

    assert asyncio.run(run()) == {"sent": 1, "failed": 1, "pending": 1}
    assert states(app) == {"alice": "sent", "bob": "failed", "carol": "pending"}
    found = rows(app)
    assert (found["alice"].subject, found["alice"].message_id) == ("A subject", "<1@paperboy.test>")
    assert [row.attempts for row in found.values()] == [1, 1, 0]
    assert journals(app) == []


@pytest.mark.usefixtures("quiet")
def test_leaving_between_claim_and_the_body_is_in_time(app: Application, now: datetime) -> None:
    """After the next look the mail is withdrawn, and ends with the reason."""
    alice, bob = queue(app, now, "alice", "bob")

    async def run() -> None:
        async with opened_ledger(app, now) as book:
            await book.claim()
            with app.db.write() as session:
                session.get_one(Subscriber, 1).state = SubscriberState.UNSUBSCRIBED
            await book.look()
            assert not book.commit(mail(alice))
            book.settle(mail(alice), SendResult(SendOutcome.WITHDRAWN))
            assert book.commit(mail(bob))
            book.settle(mail(bob), ACCEPTED)

    asyncio.run(run())
    assert states(app) == {"alice": "skipped", "bob": "sent"}
    assert rows(app)["alice"].reason == "the reader is unsubscribed"


@pytest.mark.usefixtures("quiet")
def test_cancelled_while_it_is_in_flight(app: Application, now: datetime) -> None:
    """What was in flight was sent, and the ledger says so; the other is withdrawn."""
    alice, bob = queue(app, now, "alice", "bob")

    async def run() -> None:
        async with opened_ledger(app, now) as book:
            await book.claim()
            assert book.commit(mail(alice))
            with app.db.write() as session:
                assert ledger.cancel(session, "2026-11-20") == 2
            await book.look()
            assert not book.commit(mail(bob))
            book.settle(mail(bob), SendResult(SendOutcome.WITHDRAWN))
            book.settle(mail(alice), ACCEPTED)

    asyncio.run(run())
    assert states(app) == {"alice": "sent", "bob": "skipped"}


@pytest.mark.usefixtures("quiet")
def test_cancelled_and_of_unknown_fate(app: Application, now: datetime) -> None:
    """It stays uncertain, and is not sent once more."""
    (alice,) = queue(app, now, "alice")

    async def run() -> None:
        async with opened_ledger(app, now) as book:
            await book.claim()
            assert book.commit(mail(alice))
            with app.db.write() as session:
                ledger.cancel(session, "2026-11-20")
            book.settle(mail(alice), SendResult(SendOutcome.UNCERTAIN, None, "the connection broke"))

    asyncio.run(run())
    assert states(app) == {"alice": "uncertain"}
    assert rows(app)["alice"].next_attempt_at is None


@pytest.mark.usefixtures("quiet")
def test_cancelled_before_it_is_sent_once_more(app: Application, now: datetime) -> None:
    """What may have arrived earlier, and is taken back now, is of unknown fate as before, and is held."""
    (alice,) = queue(app, now, "alice")
    with app.db.write() as session:
        session.get_one(Delivery, alice).possibly_delivered = True

    async def run() -> None:
        async with opened_ledger(app, now) as book:
            await book.claim()
            with app.db.write() as session:
                ledger.cancel(session, "2026-11-20")
            await book.look()
            assert not book.may_leave(mail(alice))
            book.settle(mail(alice), SendResult(SendOutcome.WITHDRAWN))

    asyncio.run(run())
    assert states(app) == {"alice": "uncertain"}
    assert rows(app)["alice"].next_attempt_at is None
    with app.db.write() as session:
        ledger.resend(session, alice, now)


@pytest.mark.usefixtures("quiet")
def test_given_back_as_uncertain_as_it_was(app: Application, now: datetime) -> None:
    """A mail that may have arrived, and whose turn did not come, says so while it waits."""
    (alice,) = queue(app, now, "alice")
    with app.db.write() as session:
        session.get_one(Delivery, alice).possibly_delivered = True

    async def run() -> None:
        async with opened_ledger(app, now) as book:
            await book.claim()

    asyncio.run(run())
    assert states(app) == {"alice": "uncertain"}
    assert rows(app)["alice"].next_attempt_at == now


@pytest.mark.usefixtures("quiet")
def test_who_cannot_ask_sends_nothing(app: Application, now: datetime, clock: Clock) -> None:
    """Some seconds after the last look that worked, nothing leaves; after the next one it does again."""
    (alice,) = queue(app, now, "alice")

    def rename(old: str, new: str) -> None:
        with app.db.write() as session:
            session.connection().exec_driver_sql(f"ALTER TABLE {old} RENAME TO {new}")

    async def run() -> None:
        async with opened_ledger(app, now) as book:
            await book.claim()
            rename("suppression", "gone")
            clock.at += sender_ledger.BLIND - 1
            with pytest.raises(Exception, match="suppression"):
                await book.look()
            assert book.trouble == ""
            clock.at += 1
            assert not book.commit(mail(alice))
            rename("gone", "suppression")
            await book.look()
            assert book.commit(mail(alice))
            book.settle(mail(alice), ACCEPTED)

    asyncio.run(run())


@pytest.mark.usefixtures("quiet")
def test_a_living_sender_prolongs_its_lease(app: Application, now: datetime, clock: Clock) -> None:
    """A slow relay costs nobody their mail."""
    (alice,) = queue(app, now, "alice")

    async def run() -> None:
        later = now
        async with SenderLedger(
            app.db,
            app.settings,
            "host:1:abc",
            app.snapshots,
            clock=lambda: later,
            on_failed=bounces.record_refusal,
        ) as book:
            await book.claim()
            later = now + ledger.LEASE / 2
            clock.at += ledger.LEASE.total_seconds() / 2
            await book.look()
            assert rows(app)["alice"].lease_until == later + ledger.LEASE
            assert book.commit(mail(alice))
            book.settle(mail(alice), ACCEPTED)

    asyncio.run(run())


@pytest.mark.usefixtures("quiet")
def test_what_is_long_in_flight_is_shown(app: Application, now: datetime) -> None:
    """Two looks after its body left, the ledger says that it is committing."""
    (alice,) = queue(app, now, "alice")

    async def run() -> None:
        async with opened_ledger(app, now) as book:
            await book.claim()
            assert book.commit(mail(alice))
            await book.look()
            assert states(app) == {"alice": "claimed"}
            await book.look()
            assert states(app) == {"alice": "committing"}
            book.settle(mail(alice), ACCEPTED)

    asyncio.run(run())
    assert states(app) == {"alice": "sent"}


def away(times: int, work: Callable[..., Any]) -> Callable[..., Any]:
    """A database that is away so many times."""
    left = [times]

    def attempt(*args: Any, **named: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise OperationalError("UPDATE", {}, Exception("database is locked"))
        return work(*args, **named)

    return attempt


@pytest.mark.parametrize("work", ["claim", "record_results"])
def test_a_database_that_is_away_is_waited_for(
    app: Application, now: datetime, monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    """For claims and for answers."""
    (alice,) = queue(app, now, "alice")
    monkeypatch.setattr(sender_ledger, "LOOK", 0.01)
    monkeypatch.setattr(sender_ledger, work, away(3, getattr(sender_ledger, work)))

    async def run() -> None:
        async with opened_ledger(app, now) as book:
            await book.claim()
            assert book.commit(mail(alice))
            book.settle(mail(alice), ACCEPTED)
            await book.fold()

    asyncio.run(run())
    assert states(app) == {"alice": "sent"}


@pytest.mark.parametrize("how", ["patience", "hurry"])
def test_what_cannot_be_folded_is_left_in_the_journal(
    app: Application, now: datetime, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """For as long as the database is away, and nobody waits any more; the next start settles it."""
    alice, bob, _carol = queue(app, now, "alice", "bob", "carol")
    if how == "patience":
        monkeypatch.setattr(sender_ledger, "PATIENCE", 0.0)
    record = sender_ledger.record_results
    monkeypatch.setattr(sender_ledger, "record_results", away(99, record))

    async def run() -> None:
        async with opened_ledger(app, now) as book:
            await book.claim()
            assert book.commit(mail(alice))
            book.settle(mail(alice), ACCEPTED)
            assert book.commit(mail(bob))
            book.hurry = how == "hurry"

    with pytest.raises(OperationalError):
        asyncio.run(run())
    assert states(app) == dict.fromkeys(("alice", "bob", "carol"), "claimed")
    monkeypatch.setattr(sender_ledger, "record_results", record)
    recover(app, now)
    assert states(app) == {"alice": "sent", "bob": "uncertain", "carol": "pending"}
    assert journals(app) == []


@pytest.mark.usefixtures("quiet")
def test_a_journal_that_cannot_be_written(
    app: Application, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing leaves any more, and the run ends with the reason; what is known gets into the ledger."""
    alice, bob = queue(app, now, "alice", "bob")
    monkeypatch.setattr(journal, "ROOM", 2000)

    async def run() -> None:
        async with opened_ledger(app, now) as book:
            await book.claim()
            assert book.commit(mail(alice))
            Disk(monkeypatch, 2000)
            with pytest.raises(JournalError):
                book.commit(mail(bob))
            assert "No space left" in book.trouble
            assert not book.commit(mail(bob))
            assert not await book.claim()
            book.settle(mail(alice), ACCEPTED)

    with pytest.raises(JournalError, match="No space left"):
        asyncio.run(run())
    assert states(app) == {"alice": "sent", "bob": "pending"}


@pytest.mark.usefixtures("quiet")
def test_with_fsync_a_mail_is_announced_first(app: Application, now: datetime, settings: Settings) -> None:
    """What the disk was not waited for must not leave."""
    alice, bob = queue(app, now, "alice", "bob")

    async def run() -> None:
        async with opened_ledger(app, now, settings.model_copy(update={"journal_fsync": True})) as book:
            await book.claim()
            await book.intend([alice])
            assert not book.commit(mail(bob))
            assert book.commit(mail(alice))
            book.settle(mail(alice), ACCEPTED)

    asyncio.run(run())
    assert states(app) == {"alice": "sent", "bob": "pending"}


def refused(times: int) -> list[SendResult]:
    return [
        SendResult(SendOutcome.SOFT_BOUNCE, 554, f"5.7.1 <reader{n}@example.org>: not wanted")
        for n in range(times)
    ]


@pytest.mark.parametrize(
    ("answers", "stops"),
    [
        ([*refused(19)], False),
        ([*refused(20)], True),
        ([ACCEPTED] * 19 + [*refused(1)], False),
        ([ACCEPTED] * 69 + [*refused(29)], False),
        ([ACCEPTED] * 70 + [*refused(30)], True),
        ([SendResult(SendOutcome.DEFERRED, 451, "later")] * 100, False),
        ([SendResult(SendOutcome.UNSENDABLE, None, "no address")] * 100, False),
        ([*refused(12), *[ACCEPTED] * 100, *refused(29)], False),
    ],
)
def test_a_storm_of_refusals(answers: list[SendResult], stops: bool) -> None:
    """Thirty percent of the last hundred answers, twenty at least; what the relay puts off is none."""
    storm = sender_ledger.CircuitBreaker(30)
    assert any(storm.add(answer) for answer in answers) is stops


def test_a_storm_says_what_it_is_made_of() -> None:
    """With the count and the commonest words, whoever they were said of."""
    storm = sender_ledger.CircuitBreaker(30)
    said = [
        storm.add(answer)
        for answer in [SendResult(SendOutcome.HARD_BOUNCE, 550, "5.1.1 no such user"), *refused(19)]
    ]
    assert said[-1] == (
        "20 of the last 20 answers of the relay were refusals; 19 of them: 554 5.7.1 …: not wanted"
    )


def test_a_row_that_another_sender_has(app: Application, now: datetime) -> None:
    """It is theirs: the late answer changes nothing, and is counted apart."""
    (alice,) = queue(app, now, "alice")

    def take_over(session: Session) -> None:
        row = session.get_one(Delivery, alice)
        row.lease_owner, row.state = "another", DeliveryState.CLAIMED

    async def run() -> dict[str, int]:
        async with opened_ledger(app, now) as book:
            await book.claim()
            assert book.commit(mail(alice))
            with app.db.write() as session:
                take_over(session)
            book.settle(mail(alice), ACCEPTED)
        return book.counts

    assert asyncio.run(run()) == {"taken over": 1}
    assert states(app) == {"alice": "claimed"}
