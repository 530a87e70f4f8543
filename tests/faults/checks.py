"""Checks after a fault: who got which email, how often, and what the ledger says."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlmodel import col, func, select

from app import bounces, pipeline
from app.application import Application
from app.delivery import ledger
from app.digests import reconciliation
from app.settings import UncertainPolicy
from app.storage.database import skew
from app.storage.models import Delivery, DeliveryState, Subscriber, SubscriberState
from app.types import Digest, Section
from tests.faults.relay_process import RelayProcess
from tests.support import sample_digest

State = DeliveryState
IN_HAND = (State.CLAIMED, State.COMMITTING)
OPEN = (State.PENDING, State.DEFERRED, State.UNCERTAIN)
EDITION = "2026-11-20"
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
DIGEST = Digest(EDITION, (Section("retrieval", sample_digest.digest().picks[:1]),))


def queue(
    app: Application, now: datetime, count: int, first: int = 0, give_up_at: datetime | None = None
) -> list[str]:
    """Add a digest for each of `count` new readers; return their names."""
    names = [f"reader{n}" for n in range(first, first + count)]
    with app.db.write() as session:
        readers = [
            Subscriber(
                email=f"{name}@example.org", state=SubscriberState.ACTIVE, created_at=now - timedelta(days=1)
            )
            for name in names
        ]
        session.add_all(readers)
        session.flush()
        mails = [ledger.Entry(each.id or 0, EDITION, now, DIGEST, give_up_at=give_up_at) for each in readers]
        ledger.add_entries(session, mails, now + skew(session))
    return names


def rows(app: Application) -> dict[str, Delivery]:
    """Return each reader's delivery, by the name before the @."""
    with app.db.read() as session:
        joined = select(Delivery, Subscriber.email).join(
            Subscriber, col(Subscriber.id) == Delivery.subscriber_id
        )
        return {email.partition("@")[0]: delivery for delivery, email in session.exec(joined)}


def states(app: Application) -> dict[str, str]:
    return {name: str(row.state) for name, row in rows(app).items()}


def restart(app: Application, now: datetime) -> None:
    """Recover what dead senders left, as a sender does before its first email."""
    ledger.recover(
        app.db, Path(app.settings.journal_dir), now, app.settings.when_uncertain, bounces.record_refusal
    )


def doubtful(app: Application) -> set[str]:
    """Return the readers whose email is uncertain."""
    return _in(app, State.UNCERTAIN)


def waiting(app: Application) -> set[str]:
    """Return the readers whose email is still to be sent or sent again."""
    return _in(app, *OPEN)


def _in(app: Application, *states: State) -> set[str]:
    with app.db.read() as session:
        joined = select(Subscriber.email).join(Delivery, col(Subscriber.id) == Delivery.subscriber_id)
        emails = session.exec(joined.where(col(Delivery.state).in_(states)))
        return {email.partition("@")[0] for email in emails}


def settle(app: Application, now: datetime) -> None:
    """Send until nothing is left that may be sent, each email at its time."""
    for _ in range(20):
        pipeline.send_now(app, now)
        with app.db.read() as session:
            again = session.exec(
                select(func.min(Delivery.next_attempt_at)).where(col(Delivery.state).in_(OPEN))
            ).one()
        if again is None:
            return
        now = max(now, again) + timedelta(seconds=1)
    raise AssertionError("there is no end to it")


def check_everybody(app: Application, relay: RelayProcess, names: Iterable[str]) -> None:
    """Check: at least one email with `resend`, at most one with `hold`; only uncertain emails doubled."""
    copies, ledger = relay.copies(), rows(app)
    assert set(ledger) == set(names) >= set(copies)
    holds = app.settings.when_uncertain is UncertainPolicy.HOLD
    for name, row in ledger.items():
        received = copies.get(name, [])
        assert len({(mail.name, mail.hash) for mail in received}) <= 1, f"{name} got different emails"
        assert len(received) <= 1 or (row.possibly_delivered and not holds), (
            f"{name} got {len(received)} for no reason"
        )
        assert received or (holds and row.state is State.UNCERTAIN), f"{name} got none"
        assert row.state is State.SENT or (holds and row.possibly_delivered), f"{name}: {row.state}"
        assert all(mail.name == row.message_id for mail in received)


def check_manners(relay: RelayProcess) -> None:
    """Check that the client followed the protocol."""
    complaints = relay.state()["complaints"]
    assert complaints == []


def check_conservation(app: Application) -> None:
    """Check: each digest is in exactly one state, none is leased by a dead sender, no journal is left."""
    with app.db.read() as session:
        result = reconciliation.reconcile(session, NOON, EDITION)
        assert result.is_consistent, result
        assert result.due == sum(result.states.values()) == len(session.exec(select(Delivery.id)).all())
        claimed = session.exec(select(Delivery.state).where(col(Delivery.state).in_(IN_HAND))).all()
    assert claimed == []
    folder = Path(app.settings.journal_dir)
    assert not folder.exists() or list(folder.glob("*.journal*")) == []
