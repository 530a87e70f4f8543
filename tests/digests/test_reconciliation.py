"""Test the reconciliation of the ledger with the due digests: it detects each lost or additional digest."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from sqlmodel import Session, col, delete, select, update

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
    """Add three daily readers who were due at eight, and a weekly one who is due on Mondays."""
    with app.db.write() as session:
        for name in READERS:
            factories.add_subscriber(session, f"{name}@example.org", ["agents"], HOUR)
        monday = {"cadence": Cadence.WEEKLY, "weekday": 0}
        factories.add_subscriber(session, "dave@example.org", ["agents"], HOUR + 3 * DAY, **monday)
    return app


def reconcile_at(app: Application, now: datetime = NOW, edition: str = TODAY) -> Reconciliation:
    with app.db.read() as session:
        return reconciliation.reconcile(session, now, edition)


def insert_delivery(
    session: Session, subscriber_id: int, edition: str, due_at: datetime, now: datetime
) -> None:
    assert ledger.add_entries(session, [ledger.Entry(subscriber_id, edition, due_at, Skip("quiet"))], now)[0]


def test_due_readers_are_counted_without_the_ledger(app: Application) -> None:
    """Before planning all are unplanned, then each has one state. Readers due later do not count."""
    assert reconcile_at(app, HOUR - timedelta(seconds=1)) == Reconciliation(0, {})
    before = reconcile_at(app)
    assert (before.due, before.unplanned, before.missing, before.is_consistent) == (3, 3, 0, True)
    planning.plan(app.digest_context, NOW)
    after = reconcile_at(app)
    assert after == Reconciliation(3, {DeliveryState.SKIPPED: 3})
    assert after.is_consistent
    assert reconcile_at(app, NOW, "2026-11-19") == Reconciliation(0, {})


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "UTC", "Pacific/Pago_Pago"])
def test_signing_up_at_the_first_hour_of_a_day(app: Application, zone: str) -> None:
    """A digest is due for those who signed up by its due time, and not a microsecond later."""
    midnight = datetime(2026, 11, 20, tzinfo=ZoneInfo(zone)).astimezone(UTC)
    late = timedelta(microseconds=1)
    with app.db.write() as session:
        session.execute(delete(Subscriber))
        for number, since in enumerate((midnight - 90 * DAY, midnight - late, midnight, midnight + late)):
            reader = factories.add_subscriber(
                session, f"r{number}@example.org", ["agents"], midnight, hour=0, zone=zone
            )
            session.get_one(Subscriber, reader).due_since = since
    assert reconcile_at(app, midnight) == Reconciliation(3, {}, unplanned=3)


def delete_delivery(session: Session) -> None:
    session.execute(delete(DigestContent).where(col(DigestContent.delivery_id) == 1))
    session.execute(delete(Delivery).where(col(Delivery.id) == 1))


def delete_delivery_and_due_time(session: Session) -> None:
    """Delete the row, and the next due time of its active reader."""
    delete_delivery(session)
    session.execute(update(Subscriber).where(col(Subscriber.id) == 1).values(next_due_at=None))


@pytest.mark.parametrize("lose", [delete_delivery, delete_delivery_and_due_time])
def test_deleted_delivery_is_missing(app: Application, lose: Callable[[Session], None]) -> None:
    """It was due, planning is past it, and the ledger has no row."""
    planning.plan(app.digest_context, NOW)
    with app.db.write() as session:
        lose(session)
    result = reconcile_at(app)
    assert (result.due, sum(result.states.values()), result.missing, result.is_consistent) == (
        3,
        2,
        1,
        False,
    )
    assert result.describe_faults() == "1 digest due but missing from the ledger"


def test_unplanned_batch_is_missing(app: Application) -> None:
    """Readers are rescheduled, but no rows are written."""
    with app.db.write() as session:
        batch = update(Subscriber).where(col(Subscriber.next_due_at) <= NOW)
        session.execute(batch.values(next_due_at=HOUR + DAY))
    result = reconcile_at(app)
    assert (result.due, result.unplanned, result.missing, result.is_consistent) == (3, 0, 3, False)
    planning.plan(app.digest_context, HOUR + DAY)
    assert reconcile_at(app, HOUR + DAY).missing == 3
    assert reconcile_at(app, HOUR + DAY, TOMORROW) == Reconciliation(3, {DeliveryState.SKIPPED: 3})


def test_a_second_digest_on_a_day_is_surplus(app: Application) -> None:
    """Its edition has another name, because the ledger rejects a duplicate; the due time reveals it."""
    planning.plan(app.digest_context, NOW)
    with app.db.write() as session:
        insert_delivery(session, 1, TOMORROW, HOUR, NOW)
        insert_delivery(session, 2, f"{TODAY}-again", HOUR, NOW)
    assert (reconcile_at(app).surplus, reconcile_at(app, NOW, TOMORROW).surplus) == (1, 1)
    with app.db.read() as session:
        assert (
            reconciliation.reconcile_recent(session, NOW).surplus,
            reconciliation.reconcile_recent(session, NOW).due,
        ) == (
            2,
            3,
        )


@pytest.mark.parametrize(
    "leave", [subscribers.unsubscribe, lambda *arguments: subscribers.pause(*arguments[:2], None, NOW)]
)
def test_digest_planned_after_unsubscribing_is_surplus(
    app: Application, leave: Callable[..., object]
) -> None:
    """One that was planned before is not."""
    planning.plan(app.digest_context, NOW)
    with app.db.write() as session:
        leave(session, 1, NOW)
    assert reconcile_at(app) == Reconciliation(3, {DeliveryState.SKIPPED: 3})
    with app.db.write() as session:
        insert_delivery(session, 1, TOMORROW, HOUR + DAY, HOUR + DAY)
    result = reconcile_at(app, HOUR + DAY, TOMORROW)
    assert (result.surplus, result.unplanned, result.is_consistent) == (1, 2, False)


def test_digest_on_a_day_off_is_surplus(app: Application) -> None:
    """The weekly reader is due on Mondays only."""
    with app.db.write() as session:
        session.execute(update(Subscriber).where(col(Subscriber.id) == 4).values(created_at=HOUR - 9 * DAY))
        insert_delivery(session, 4, TODAY, HOUR, NOW)
    assert reconcile_at(app).surplus == 1


def test_hour_that_a_clock_change_skips_at_the_end_of_a_day(app: Application) -> None:
    """In Nuuk, 23:00 of a Saturday in March does not exist. That digest is due at 22:00."""
    ten_pm = datetime(2027, 3, 28, tzinfo=NOW.tzinfo)
    saturdays = {"cadence": Cadence.WEEKLY, "weekday": 5, "hour": 23, "zone": "America/Nuuk"}
    with app.db.write() as session:
        session.execute(delete(Subscriber))
        erin = factories.add_subscriber(session, "erin@example.org", ["agents"], ten_pm, **saturdays)
        session.get_one(Subscriber, erin).created_at = ten_pm - 30 * DAY
    assert planning.plan(app.digest_context, ten_pm) == {"skipped": 1}
    assert reconcile_at(app, ten_pm, "2027-03-27") == Reconciliation(1, {DeliveryState.SKIPPED: 1})
    assert reconcile_at(app, ten_pm, "2027-03-28") == Reconciliation(0, {})


def test_changes_by_readers_are_consistent(app: Application) -> None:
    """Changes of zone, hour and cadence, pauses and resubscriptions leave nothing missing or surplus."""
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
            rows = reconciliation.reconcile(session, now + timedelta(hours=1), "2026-11-19", "2026-11-27")
        assert rows.is_consistent, (number, rows)
        assert rows.unplanned == 0
        assert rows.due == sum(rows.states.values())


def test_a_change_while_due_leaves_the_digest_unplanned(app: Application) -> None:
    """Mute a word after the due time and before planning."""
    with app.db.write() as session:
        subscribers.mute(session, 1, ["blockchain"], HOUR + timedelta(minutes=5))
    before = reconcile_at(app)
    assert (before.due, before.unplanned, before.is_consistent) == (3, 3, True)
    planning.plan(app.digest_context, NOW)
    assert reconcile_at(app) == Reconciliation(3, {DeliveryState.SKIPPED: 3})


def _change(session: Session, reader: int, choice: dict[str, object], number: int, now: datetime) -> None:
    if number % 5 == 3:
        subscribers.pause(session, reader, None, now)
    elif number % 7 == 4:
        subscribers.unsubscribe(session, reader, now)
    else:
        preferences = subscribers.Preferences(interests=(Interest("agents"),), **choice)  # type: ignore[arg-type]
        subscribers.change(session, reader, preferences, now)
        subscribers.resubscribe(session, reader, "", now)


def test_subscriber_with_an_unknown_time_zone(app: Application) -> None:
    """It is reported, and the digests of the others are compared as usual."""
    planning.plan(app.digest_context, NOW)
    with app.db.write() as session:
        session.get_one(Subscriber, 1).zone = "Mars/Base"  # such as one that this machine's database lacks
        session.delete(session.exec(select(Delivery).where(Delivery.subscriber_id == 2)).one())
    today, tomorrow = reconcile_at(app), reconcile_at(app, HOUR + DAY, TOMORROW)
    assert today == Reconciliation(3, {DeliveryState.SKIPPED: 2}, missing=1)
    assert tomorrow == Reconciliation(2, {}, unplanned=2, unknown_zone=1)
    assert not tomorrow.is_consistent
    with app.db.read() as session:
        recent = reconciliation.reconcile_recent(session, HOUR + DAY)
    missing, unknown = recent.describe_faults().split(", ")
    assert missing == "1 digest due but missing from the ledger"
    assert unknown == "1 subscriber with a time zone that this machine does not know"


def test_doctor_reports_missing_digests_as_an_error(app: Application) -> None:
    planning.plan(app.digest_context, NOW)
    with app.db.write() as session:
        delete_delivery(session)
    findings = {each.check: each for each in service_state.check(app.db, ModelStore(), NOW)}
    assert findings["ledger"].level is doctor.Level.ERROR
    assert "1 digest due but missing" in findings["ledger"].message
