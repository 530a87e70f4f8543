"""Test planning with a wrong clock: nothing is planned until the clock is right."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlmodel import Session, col, select

from app import clock, pipeline, subscribers
from app.application import Application
from app.delivery import ledger
from app.storage import job_runs
from app.storage.models import Delivery, DeliveryState, JobRun, Subscriber
from app.subscribers import Preferences
from app.types import Cadence, Interest, MailKind
from tests.faults import checks
from tests.faults.sender_process import Starter

MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
WRONG = 25 * MINUTE
DUE = datetime(2026, 11, 21, 8, tzinfo=UTC)  # the first due time after the fixture `now`


@pytest.fixture
def check_conservation() -> None:
    """Disable the check, because the clocks here move digests to days other than the one it compares."""


def add_due_readers(session: Session, at: datetime, *names: str) -> None:
    """Add readers whose digests are due at a time."""
    preferences = Preferences(interests=(Interest("agents"),))
    for name in names:
        reader = subscribers.add(session, f"{name}@example.org", preferences, at - 2 * DAY)
        session.get_one(Subscriber, reader).next_due_at = at


def editions(app: Application) -> list[tuple[int, str]]:
    with app.db.read() as session:
        rows = session.exec(select(Delivery.subscriber_id, Delivery.edition).order_by(Delivery.id))  # type: ignore[arg-type]
        return list(rows)


@pytest.mark.postgres
@pytest.mark.usefixtures("relay")
@pytest.mark.parametrize("ahead", [-DAY, -WRONG, WRONG, DAY])
def test_wrong_clock_plans_nothing(app: Application, start_sender: Starter, ahead: timedelta) -> None:
    """The run gives the reason; a machine with a right clock plans only today's edition."""
    now = clock.utcnow()
    with app.db.write() as session:
        add_due_readers(session, now - MINUTE, "alice", "bob")
    assert start_sender(now, verb="plan", clock_ahead=ahead).counts() == {}
    assert editions(app) == []
    with app.db.read() as session:
        (run,) = session.exec(select(JobRun)).all()
    assert "clock and the database's differ" in run.error
    assert start_sender(now, verb="plan", clock_ahead=timedelta(seconds=40)).counts() == {"skipped": 2}
    today = f"{now - MINUTE:%Y-%m-%d}"
    assert editions(app) == [(1, today), (2, today)]


def test_clock_set_back(app: Application, now: datetime) -> None:
    """The ledger has emails of a future day, so nothing is planned until the clock passes them."""
    with app.db.write() as session:
        add_due_readers(session, now - DAY, "alice")
    checks.queue(app, now + 30 * DAY, 1)
    with app.db.write() as session:
        session.get_one(Delivery, 1).state = ledger.UNDELIVERED[0]
    assert pipeline.plan(app, now) == {}
    with app.db.read() as session:
        assert "Nothing is planned until it is right" in session.exec(select(JobRun.error)).one()
    assert pipeline.plan(app, now + 30 * DAY) == {"skipped": 1}


def stored_rows(app: Application) -> list[object]:
    """Return the ledger, and when each reader is due."""
    with app.db.read() as session:
        ledger_rows = session.exec(select(Delivery).order_by(col(Delivery.id))).all()
        readers = session.exec(select(Subscriber).order_by(col(Subscriber.id))).all()
        due_times = [(reader.id, reader.next_due_at, reader.due_since) for reader in readers]
        return [[row.model_dump() for row in ledger_rows], due_times]


@pytest.mark.parametrize("back", [20 * DAY, 8 * DAY])
def test_clock_back_for_a_minute(app: Application, now: datetime, back: timedelta) -> None:
    """Nothing changes, although digests are then due later than any schedule allows."""
    weekly = Preferences(interests=(Interest("agents"),), cadence=Cadence.WEEKLY, weekday=0)
    with app.db.write() as session:
        add_due_readers(session, now, "alice", "bob")
        subscribers.add(session, "carol@example.org", weekly, now - DAY)
    assert pipeline.plan(app, now) == {"skipped": 2}
    with app.db.write() as session:
        held = session.get_one(Delivery, 1)
        held.state, held.possibly_delivered = DeliveryState.UNCERTAIN, True  # as after a restore
    rows = stored_rows(app)
    assert pipeline.plan(app, now - back) == {}
    with app.db.read() as session:
        errors = session.exec(select(JobRun.error).order_by(col(JobRun.id))).all()
        assert "correct the clock" in errors[-1]
    assert stored_rows(app) == rows
    assert pipeline.plan(app, now + MINUTE) == {}
    assert stored_rows(app) == rows


@pytest.mark.parametrize("state", DeliveryState)
def test_change_by_a_clock_that_is_behind(app: Application, now: datetime, state: DeliveryState) -> None:
    """A changed hour withdraws no digest that may have been delivered, so no edition is sent twice."""
    with app.db.write() as session:
        add_due_readers(session, now, "alice")
    assert pipeline.plan(app, now) == {"skipped": 1}
    with app.db.write() as session:  # it may have been delivered without an attempt that counts
        digest = session.get_one(Delivery, 1)
        digest.state = state
        digest.possibly_delivered = state in (DeliveryState.PENDING, DeliveryState.SKIPPED)
    with app.db.write() as session:
        subscribers.change(session, 1, Preferences(interests=(Interest("agents"),), hour=9), now - 20 * DAY)
    today = f"{now:%Y-%m-%d}"
    assert editions(app) == [(1, today)]
    pipeline.plan(app, now + 2 * MINUTE)
    assert [edition for _, edition in editions(app)].count(today) == 1


def test_clock_that_was_ahead(app: Application, now: datetime) -> None:
    """When the clock has run for a day, digests are due at their usual time again, and are planned."""
    with app.db.write() as session:
        add_due_readers(session, now, "alice", "bob")
    assert pipeline.plan(app, now + 30 * DAY) == {"skipped": 2}
    with app.db.write() as session:
        session.get_one(Delivery, 1).attempts = 1  # sent: bob's is not, and is withdrawn
    with job_runs.record(app.db, "refresh", now):
        pass
    assert pipeline.plan(app, now) == {}
    with app.db.read() as session:
        errors = [run.error for run in session.exec(select(JobRun)) if run.error]
    assert ["planning continues when the jobs have run for a day" in error for error in errors] == [True]
    assert pipeline.plan(app, now + DAY - MINUTE) == {}
    assert pipeline.plan(app, now + DAY) == {}
    with app.db.read() as session:
        assert {*session.exec(select(Subscriber.next_due_at))} == {DUE + DAY}
    assert pipeline.plan(app, DUE + DAY) == {"skipped": 2}
    day = f"{DUE + DAY:%Y-%m-%d}"
    assert editions(app) == [(1, f"{now + 30 * DAY:%Y-%m-%d}"), (1, day), (2, day)]


@pytest.mark.postgres
def test_immediate_mail_from_a_fast_clock(
    app: Application, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A confirmation requested by a web server whose clock is ahead does not wait for that time."""
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
