"""Test the cached totals of past editions."""

from datetime import datetime, timedelta

import pytest
from sqlmodel import select

from app.application import Application
from app.delivery import ledger
from app.delivery.ledger.edition_totals import LIFETIME, PAST_AFTER
from app.storage.models import Delivery
from app.storage.models import DeliveryState as State
from app.types import MailKind, Skip
from tests.support import factories

OLD, RECENT = "2026-11-10", "2026-11-19"


@pytest.fixture
def app(app: Application, now: datetime) -> Application:
    """Return the application with a skipped digest in an old and in a recent edition."""
    with app.db.write() as session:
        reader = factories.add_subscriber(session, "alice@example.org", [], now)
        entries = [ledger.Entry(reader, edition, now, Skip("no papers")) for edition in (OLD, RECENT)]
        ledger.add_entries(session, entries, now)
    return app


def count(app: Application, edition: str, state: State, now: datetime) -> int:
    with app.db.read() as session:
        return app.edition_totals.count(session, [OLD, RECENT, "2026-11-01"], now)[edition][state]


def change(app: Application, edition: str, state: State) -> None:
    with app.db.write() as session:
        session.exec(select(Delivery).where(Delivery.edition == edition)).one().state = state


def test_past_editions_are_counted_once_an_hour(app: Application, now: datetime) -> None:
    """Recent editions are counted each time."""
    assert now - PAST_AFTER < datetime.fromisoformat(f"{RECENT}T00:00+00:00")
    for edition, expected in ((OLD, [1, 1, 0]), (RECENT, [1, 0, 0])):
        counts = [count(app, edition, State.SKIPPED, now)]
        change(app, edition, State.SENT)
        counts += [count(app, edition, State.SKIPPED, now + wait) for wait in (timedelta(), LIFETIME)]
        assert counts == expected


def test_all_emails_are_counted_with_the_editions(app: Application, now: datetime) -> None:
    """The totals are those of the whole ledger, with emails that are not digests and waiting ones."""
    with app.db.write() as session:
        reader = factories.add_subscriber(session, "bob@example.org", [], now)
        ledger.enqueue(
            session, subscriber_id=reader, edition="confirm-1", kind=MailKind.CONFIRM, due_at=now, now=now
        )
    with app.db.read() as session:
        counted = app.edition_totals.count_all(session, now)
        assert counted == ledger.totals(session)
    assert (counted[State.SKIPPED], counted[State.PENDING], sum(counted.values())) == (2, 1, 3)


def test_editions_stay_in_the_order_of_the_names(app: Application, now: datetime) -> None:
    """The chart on the overview draws them in this order, whether or not some are cached."""
    names = ["2026-11-01", OLD, RECENT]
    with app.db.read() as session:
        for order in (names, names, names[::-1]):
            assert list(app.edition_totals.count(session, order, now)) == order


def test_editions_that_may_change_are_not_cached(app: Application, now: datetime) -> None:
    """An uncertain digest may be resent or recorded as sent at any time."""
    change(app, OLD, State.UNCERTAIN)
    assert count(app, OLD, State.UNCERTAIN, now) == 1
    change(app, OLD, State.SENT)
    assert count(app, OLD, State.SENT, now) == 1


def test_retried_digests_are_counted_at_once(app: Application, now: datetime) -> None:
    """An operator who retries the failed digests of an old edition sees the change, and then the outcome."""
    change(app, OLD, State.FAILED)
    assert count(app, OLD, State.FAILED, now) == 1
    change(app, OLD, State.PENDING)
    assert count(app, OLD, State.PENDING, now) == 1
    change(app, OLD, State.SENT)
    assert count(app, OLD, State.SENT, now) == 1
