"""The ledger is compared with who was due by cadence, and each way of losing or adding a digest shows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from sqlmodel import Session, col, delete, update

from app import doctor, subscribers
from app.application import Application
from app.delivery import ledger
from app.digests import planning, reconciliation
from app.digests.reconciliation import Reconciliation
from app.doctor import service_state
from app.relevance.model_store import ModelStore
from app.storage.models import Delivery, DeliveryState, DigestContent, Subscriber
from app.types import Cadence, Interest, Skip
from tests.conftest import NOW
from tests.support import factories

HOUR = NOW.replace(hour=8, minute=0)
DAY = timedelta(days=1)
READERS = ("alice", "bob", "carol")
TODAY, TOMORROW = "2026-11-20", "2026-11-21"


@pytest.fixture
def app(app: Application) -> Application:
    """Three daily readers who were due at eight, and a weekly one who is due on Mondays."""
    with app.db.write() as session:
        for name in READERS:
            factories.reader(session, f"{name}@example.org", ["agents"], HOUR)
        monday = {"cadence": Cadence.WEEKLY, "weekday": 0}
        factories.reader(session, "dave@example.org", ["agents"], HOUR + 3 * DAY, **monday)
    return app


def balance(app: Application, now: datetime = NOW, edition: str = TODAY) -> Reconciliation:
    with app.db.read() as session:
        return reconciliation.reconcile(session, now, edition)


def enter(session: Session, subscriber_id: int, edition: str, due_at: datetime, now: datetime) -> None:
    assert ledger.add_entries(session, [ledger.Entry(subscriber_id, edition, due_at, Skip("quiet"))], now)[0]


def test_who_is_due_is_counted_without_the_ledger(app: Application) -> None:
    """Before planning all are unplanned; then each is in one state; nobody who is due later counts."""
    assert balance(app, HOUR - timedelta(seconds=1)) == Reconciliation(0, {})
    before = balance(app)
    assert (before.due, before.unplanned, before.missing, before.is_consistent) == (3, 3, 0, True)
    planning.plan(app.digest_context, NOW)
    after = balance(app)
    assert after == Reconciliation(3, {DeliveryState.SKIPPED: 3})
    assert after.is_consistent
    assert balance(app, NOW, "2026-11-19") == Reconciliation(0, {})


def lose_a_row(session: Session) -> None:
    session.execute(delete(DigestContent).where(col(DigestContent.delivery_id) == 1))
    session.execute(delete(Delivery).where(col(Delivery.id) == 1))


def lose_a_reader(session: Session) -> None:
    """Delete the row, and the next due time of its active reader."""
    lose_a_row(session)
    session.execute(update(Subscriber).where(col(Subscriber.id) == 1).values(next_due_at=None))


@pytest.mark.parametrize("lose", [lose_a_row, lose_a_reader])
def test_a_lost_digest_is_missing(app: Application, lose: Callable[[Session], None]) -> None:
    """It was due, planning has passed it, and the ledger has no row."""
    planning.plan(app.digest_context, NOW)
    with app.db.write() as session:
        lose(session)
    found = balance(app)
    assert (found.due, sum(found.states.values()), found.missing, found.is_consistent) == (3, 2, 1, False)
    assert found.describe_faults() == "1 digest due and missing in the ledger"


def test_a_shard_that_planning_lost_is_missing(app: Application) -> None:
    """Readers are rescheduled, but no rows are written."""
    with app.db.write() as session:
        shard = update(Subscriber).where(col(Subscriber.next_due_at) <= NOW)
        session.execute(shard.values(next_due_at=HOUR + DAY))
    found = balance(app)
    assert (found.due, found.unplanned, found.missing, found.is_consistent) == (3, 0, 3, False)
    planning.plan(app.digest_context, HOUR + DAY)
    assert balance(app, HOUR + DAY).missing == 3
    assert balance(app, HOUR + DAY, TOMORROW) == Reconciliation(3, {DeliveryState.SKIPPED: 3})


def test_a_second_digest_on_a_day_is_surplus(app: Application) -> None:
    """Its edition has another name, as the ledger rejects a second row; its due time gives it away."""
    planning.plan(app.digest_context, NOW)
    with app.db.write() as session:
        enter(session, 1, TOMORROW, HOUR, NOW)
        enter(session, 2, f"{TODAY}-again", HOUR, NOW)
    assert (balance(app).surplus, balance(app, NOW, TOMORROW).surplus) == (1, 1)
    with app.db.read() as session:
        assert (
            reconciliation.reconcile_recent(session, NOW).surplus,
            reconciliation.reconcile_recent(session, NOW).due,
        ) == (
            2,
            3,
        )


@pytest.mark.parametrize(
    "leave", [subscribers.unsubscribe, lambda *who: subscribers.pause(*who[:2], None, NOW)]
)
def test_a_digest_for_a_reader_who_had_left_is_surplus(
    app: Application, leave: Callable[..., object]
) -> None:
    """A row planned before they left is not."""
    planning.plan(app.digest_context, NOW)
    with app.db.write() as session:
        leave(session, 1, NOW)
    assert balance(app) == Reconciliation(3, {DeliveryState.SKIPPED: 3})
    with app.db.write() as session:
        enter(session, 1, TOMORROW, HOUR + DAY, HOUR + DAY)
    found = balance(app, HOUR + DAY, TOMORROW)
    assert (found.surplus, found.unplanned, found.is_consistent) == (1, 2, False)


def test_a_digest_on_a_day_without_one_is_surplus(app: Application) -> None:
    """The weekly reader is due on Mondays: on Friday they are not."""
    with app.db.write() as session:
        session.execute(update(Subscriber).where(col(Subscriber.id) == 4).values(created_at=HOUR - 9 * DAY))
        enter(session, 4, TODAY, HOUR, NOW)
    assert balance(app).surplus == 1


def test_what_readers_change_is_no_fault(app: Application) -> None:
    """Changes of zone, hour and cadence, pauses and resubscriptions: nothing is missing or surplus."""
    moments = [HOUR + timedelta(hours=5) * number for number in range(24)]
    choices = [
        {"zone": "Pacific/Kiritimati", "hour": 23},
        {"zone": "Pacific/Honolulu", "hour": 0},
        {"zone": "America/New_York", "hour": 6, "cadence": Cadence.WEEKDAYS},
        {"zone": "Asia/Kathmandu", "hour": 12, "cadence": Cadence.WEEKLY, "weekday": 6},
    ]
    for number, now in enumerate(moments):
        with app.db.write() as session:
            _change(session, 1 + number % 3, choices[number % 4], number, now)
        planning.plan(app.digest_context, now + timedelta(hours=1))
        with app.db.read() as session:
            found = reconciliation.reconcile(session, now + timedelta(hours=1), "2026-11-19", "2026-11-27")
        assert found.is_consistent, (number, found)
        assert found.unplanned == 0
        assert found.due == sum(found.states.values())


def _change(session: Session, reader: int, choice: dict[str, object], number: int, now: datetime) -> None:
    if number % 5 == 3:
        subscribers.pause(session, reader, None, now)
    elif number % 7 == 4:
        subscribers.unsubscribe(session, reader, now)
    else:
        wanted = subscribers.Preferences(interests=(Interest("agents"),), **choice)  # type: ignore[arg-type]
        subscribers.change(session, reader, wanted, now)
        subscribers.resubscribe(session, reader, "", now)


def test_the_doctor_reports_a_missing_digest(app: Application) -> None:
    """As an error."""
    planning.plan(app.digest_context, NOW)
    with app.db.write() as session:
        lose_a_row(session)
    found = {each.check: each for each in service_state.check(app.db, ModelStore(), NOW)}
    assert found["ledger"].level is doctor.Level.ERROR
    assert "1 digest due and missing" in found["ledger"].message
