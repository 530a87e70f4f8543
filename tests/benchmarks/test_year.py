"""Some days of the simulated year: the invariants hold, and a violation of each is counted."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlmodel import col, update

from app import clock
from app.application import Application
from app.delivery import ledger
from app.storage.models import Delivery, DeliveryState, Subscriber, SubscriberState
from benchmarks import workload, year
from benchmarks.year_checks import DAY, Checks
from tests.support import factories

pytestmark = pytest.mark.once
HOUR = timedelta(hours=1)


@pytest.fixture
def restored_clock() -> Iterator[None]:
    """Undo the journey of the process's clock."""
    yield
    clock.travel(clock.system_time())


@pytest.mark.usefixtures("restored_clock")
def test_days_with_all_disturbances(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No invariant is violated while the relay and the sources fail, and after a restart and a restore."""
    monkeypatch.setattr(year, "MONTH", 2)
    result = year.run("sqlite", days=6, readers=8, papers=5)
    year.show(result)
    assert not result["violations"]
    assert result["refused_requests"]
    assert all(month["figures"]["sent digests"] > 0 for month in result["months"])
    assert "paper_snapshot" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("reader", "delivery", "violation"),
    [
        ({}, {}, "sent: 1 in the ledger, 0 in the runs, 0 at the relay"),
        ({"state": SubscriberState.UNSUBSCRIBED, "ended_at": -HOUR}, {}, "sent after the end"),
        ({"hour": 7}, {}, "due at 2026-11-20 08:00"),
        ({"zone": "Europe/Berlin"}, {}, "due at 2026-11-20 09:00"),
        ({}, {"sent_at": HOUR}, "sent at 2026-11-20 09:00"),
        ({}, {"sent_at": -HOUR}, "sent at 2026-11-20 07:00"),
        (
            {},
            {"state": DeliveryState.CLAIMED, "sent_at": None, "due_at": -2 * DAY},
            "1 emails are unfinished",
        ),
    ],
)
def test_violations_are_counted(
    app: Application,
    now: datetime,
    tmp_path: Path,
    reader: dict[str, Any],
    delivery: dict[str, Any],
    violation: str,
) -> None:
    """Times are relative to the time at which the digest is due."""
    due = now.replace(hour=8, minute=0)
    in_time: dict[str, Any] = {"state": DeliveryState.SENT, "sent_at": timedelta()}
    row, reader = (
        {key: due + value if isinstance(value, timedelta) else value for key, value in values.items()}
        for values in (in_time | delivery, reader)
    )
    _add_digests(app, due, [due], row)
    with app.db.write() as session:
        if reader:
            session.execute(update(Subscriber).values(**reader))
    checks = Checks(tmp_path, due - DAY)
    with app.db.read() as session:
        checks.check_day(session, now, 0, app.snapshots)
    assert violation in " ".join(checks.violations)


def test_repeated_papers_are_counted(app: Application, now: datetime, tmp_path: Path) -> None:
    """A paper counts as repeated by its title, even if the second digest follows on another day."""
    due, checks = now.replace(hour=8, minute=0), Checks(tmp_path, now)
    _add_digests(app, due, [due, due + DAY], {"state": DeliveryState.SENT, "sent_at": col(Delivery.due_at)})
    for repeated in (0, 15):
        with app.db.read() as session:
            checks.check_day(session, now, 0, app.snapshots)
        assert sum("again" in violation for violation in checks.violations) == repeated
        now += DAY


def _add_digests(app: Application, at: datetime, due: list[datetime], values: dict[str, Any]) -> None:
    """Add a reader with the same digest at each time, and set columns of the deliveries."""
    with app.db.write() as session:
        reader = factories.add_subscriber(session, "alice@example.org", ["birds"], at + 2 * DAY)
        digest = workload.digest(1)
        entries = [ledger.Entry(reader, f"{each:%Y-%m-%d}", each, digest) for each in due]
        ledger.add_entries(session, entries, at)
        session.execute(update(Delivery).values(next_attempt_at=None, **values))
