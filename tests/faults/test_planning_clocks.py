"""What is planned by a wrong clock: nothing, until the clock is right."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from sqlmodel import Session, select

from app import clock, pipeline, subscribers
from app.application import Application
from app.delivery import ledger
from app.storage.models import Delivery, JobRun, Subscriber
from app.subscribers import Preferences
from app.types import Interest, MailKind
from tests.faults import checks
from tests.faults.sender_process import Starter

MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
WRONG = 25 * MINUTE


@pytest.fixture
def conservation() -> None:
    """Leave out the balance: the clocks here put digests on other days than the one that it compares."""


def due(session: Session, at: datetime, *names: str) -> None:
    """Readers whose digests are due at a moment."""
    wanted = Preferences(interests=(Interest("agents"),))
    for name in names:
        reader = subscribers.add(session, f"{name}@example.org", wanted, at - 2 * DAY)
        session.get_one(Subscriber, reader).next_due_at = at


def editions(app: Application) -> list[tuple[int, str]]:
    with app.db.read() as session:
        found = session.exec(select(Delivery.subscriber_id, Delivery.edition).order_by(Delivery.id))  # type: ignore[arg-type]
        return list(found)


@pytest.mark.usefixtures("relay")
@pytest.mark.parametrize("ahead", [-DAY, -WRONG, WRONG, DAY])
def test_nothing_is_planned_by_a_wrong_clock(app: Application, start: Starter, ahead: timedelta) -> None:
    """The run says why; a machine whose clock is right plans today's edition, and no other."""
    if app.db.url.get_backend_name() == "sqlite":
        pytest.skip("SQLite has no clock of its own")
    now = clock.utcnow()
    with app.db.write() as session:
        due(session, now - MINUTE, "alice", "bob")
    assert start(now, verb="plan", clock_ahead=ahead).counts() == {}
    assert editions(app) == []
    with app.db.read() as session:
        (run,) = session.exec(select(JobRun)).all()
    assert "clock and the database's differ" in run.error
    assert start(now, verb="plan", clock_ahead=timedelta(seconds=40)).counts() == {"skipped": 2}
    today = f"{now - MINUTE:%Y-%m-%d}"
    assert editions(app) == [(1, today), (2, today)]


def test_a_clock_that_went_back(app: Application, now: datetime) -> None:
    """The ledger has mails of a day that is to come: nothing is planned until the clock has caught up."""
    with app.db.write() as session:
        due(session, now - DAY, "alice")
    checks.queue(app, now + 30 * DAY, 1)
    with app.db.write() as session:
        session.get_one(Delivery, 1).state = ledger.UNDELIVERED[0]
    assert pipeline.plan(app, now) == {}
    with app.db.read() as session:
        assert "until the clock is right" in session.exec(select(JobRun.error)).one()
    assert pipeline.plan(app, now + 30 * DAY) == {"skipped": 1}


def test_a_mail_that_is_due_at_once(app: Application, now: datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page server whose clock is ahead asks for a confirmation: it need not wait for that time to come."""
    if app.db.url.get_backend_name() == "sqlite":
        pytest.skip("SQLite has no clock of its own")
    checks.queue(app, now, 1)
    with monkeypatch.context() as wrong, app.db.write() as session:
        right = clock.system_time
        wrong.setattr(clock, "system_time", lambda: right() + WRONG)
        mail = {"kind": MailKind.CONFIRM, "edition": "confirm-1", "due_at": clock.utcnow()}
        ledger.enqueue(session, subscriber_id=1, now=mail["due_at"], **mail)  # type: ignore[arg-type]
    with app.db.write() as session:
        digest, confirmation = session.exec(select(Delivery).order_by(Delivery.id)).all()  # type: ignore[arg-type]
        assert confirmation.next_attempt_at
        assert max(confirmation.created_at, confirmation.next_attempt_at) <= clock.utcnow() + MINUTE
        digest.state = confirmation.state = ledger.UNDELIVERED[0]
