"""Test wrong and jumping clocks: no living sender is declared dead, and no email is lost or doubled."""

import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import column, func, table, text
from sqlmodel import select

from app.application import Application
from app.delivery import ledger
from app.settings import Settings, UncertainPolicy
from app.storage.models import DeliveryState
from tests.faults import checks
from tests.faults.relay_process import RelayProcess
from tests.faults.sender_process import Starter

MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
WRONG = 25 * MINUTE  # longer than a lease
ONE = {"smtp_connections": 1}
POLICIES = [UncertainPolicy.RESEND, UncertainPolicy.HOLD]


@pytest.fixture(params=POLICIES, ids=[policy.value for policy in POLICIES])
def settings(request: pytest.FixtureRequest, settings: Settings) -> Settings:
    """Return settings with each policy for uncertain emails."""
    return settings.model_copy(update={"when_uncertain": request.param})


@pytest.fixture
def other_machine(tmp_path: Path) -> dict[str, Any]:
    """Return settings of a sender on another machine, which does not have this one's journals."""
    return {"settings": {"journal_dir": str(tmp_path / "elsewhere"), **ONE}}


wrong_clocks = pytest.mark.parametrize(
    "ahead", [-DAY, -WRONG, WRONG, DAY], ids=["day-behind", "behind", "ahead", "day-ahead"]
)


def is_postgres(app: Application) -> bool:
    return app.db.url.get_backend_name() == "postgresql"


def test_leases_begin_when_mails_are_claimed(
    app: Application, relay: RelayProcess, now: datetime, start_sender: Starter, other_machine: dict[str, Any]
) -> None:
    """Planning takes 25 minutes, and another machine claims none of the emails."""
    names = checks.queue(app, now, 8)
    relay.on("end", tell=True, times=1, to="reader3@example.org")
    first = start_sender(now, verb="plan_and_send", planning_takes=WRONG, **other_machine)
    relay.reached()
    leased = [row.lease_until for row in checks.rows(app).values() if row.lease_until]
    assert min(leased) >= now + WRONG + ledger.LEASE
    assert start_sender(now + WRONG + MINUTE).counts() == {}
    assert checks.doubtful(app) == set()
    relay.go_on()
    assert first.counts()["sent"] == 8
    checks.check_everybody(app, relay, names)
    assert len(relay.accepted()) == 8


def wait_until_sent(app: Application, count: int) -> None:
    """Wait until this many emails are recorded as sent. The claim made before them has ended by then."""
    deadline = time.monotonic() + 30
    while sum(row.state is DeliveryState.SENT for row in checks.rows(app).values()) < count:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def send_from_two_machines(
    app: Application,
    relay: RelayProcess,
    now: datetime,
    start_sender: Starter,
    other_machine: dict[str, Any],
    *,
    ahead: tuple[timedelta, timedelta],
) -> dict[str, int]:
    """Send 10 emails from two machines whose clocks are ahead, and check that each email is sent once.

    Return what the second machine counted, which starts while emails of the first are in flight.
    """
    tomorrow = now + DAY / 2 if is_postgres(app) else None
    names = checks.queue(app, now, 6, give_up_at=tomorrow)
    relay.on("end", tell=True, times=1, to="reader3@example.org")
    first = start_sender(now, clock_ahead=ahead[0], **other_machine)
    relay.reached()
    wait_until_sent(app, 3)
    names += checks.queue(app, now, 4, first=6, give_up_at=tomorrow)
    second = start_sender(now, clock_ahead=ahead[1], settings=ONE).counts()
    assert checks.doubtful(app) == set()
    relay.go_on()
    assert first.counts().get("sent", 0) == 10 - second.get("sent", 0)
    checks.check_everybody(app, relay, names)
    assert len(relay.accepted()) == 10
    return second


@wrong_clocks
@pytest.mark.postgres
def test_wrong_clock_on_the_first_of_two_machines(
    app: Application,
    relay: RelayProcess,
    now: datetime,
    start_sender: Starter,
    other_machine: dict[str, Any],
    ahead: timedelta,
) -> None:
    """The second machine sends its own emails. SQLite has one machine, whose clock may jump."""
    clocks = (ahead, timedelta())
    second = send_from_two_machines(app, relay, now, start_sender, other_machine, ahead=clocks)
    assert second == {"sent": 4}


@wrong_clocks
def test_wrong_clock_on_the_second_of_two_machines(
    app: Application,
    relay: RelayProcess,
    now: datetime,
    start_sender: Starter,
    other_machine: dict[str, Any],
    ahead: timedelta,
) -> None:
    """On PostgreSQL, the second machine sends its own emails. On SQLite, they are not due by a slow clock."""
    clocks = (timedelta(), ahead)
    second = send_from_two_machines(app, relay, now, start_sender, other_machine, ahead=clocks)
    assert second == ({"sent": 4} if is_postgres(app) or ahead > timedelta() else {})


def test_database_clock_jumps_by_a_day(
    app: Application, relay: RelayProcess, now: datetime, start_sender: Starter, other_machine: dict[str, Any]
) -> None:
    """An email is in flight, and the lock of its process shows that the sender lives."""
    names = checks.queue(app, now, 6)
    relay.on("end", tell=True, times=1, to="reader3@example.org")
    first = start_sender(now, **other_machine)
    relay.reached()
    assert start_sender(now, database_clock_ahead=DAY).counts() == {}
    assert checks.doubtful(app) == set()
    relay.go_on()
    assert first.counts() == {"sent": 6}
    checks.check_everybody(app, relay, names)
    assert len(relay.accepted()) == 6


def test_lost_machine(
    app: Application,
    relay: RelayProcess,
    now: datetime,
    start_sender: Starter,
    tmp_path: Path,
    other_machine: dict[str, Any],
) -> None:
    """It has no process lock and no journal, so its emails are uncertain when the lease expires."""
    names = checks.queue(app, now, 6)
    relay.on("end", tell=True, takes=True, times=1, to="reader3@example.org")
    first = start_sender(now, **other_machine)
    relay.reached()
    first.kill()
    relay.go_on()
    for journal in (tmp_path / "elsewhere").iterdir():
        journal.unlink()
    checks.restart(app, now + ledger.LEASE - MINUTE)
    assert checks.doubtful(app) == set()
    checks.restart(app, now + ledger.LEASE + MINUTE)
    assert checks.doubtful(app) >= {"reader3", "reader4", "reader5"}
    checks.settle(app, now + WRONG)
    assert set(relay.copies()) <= set(names)
    assert len(relay.copies()["reader3"]) == (1 if app.settings.when_uncertain is UncertainPolicy.HOLD else 2)


@pytest.mark.postgres
def test_lost_database_connection_is_not_a_dead_sender(
    app: Application, relay: RelayProcess, now: datetime, start_sender: Starter, other_machine: dict[str, Any]
) -> None:
    """The process lock is lost, but the lease still protects the emails."""
    names = checks.queue(app, now, 6)
    relay.on("end", tell=True, times=1, to="reader3@example.org")
    first = start_sender(now, **other_machine)
    relay.reached()
    with app.db.read() as session:
        others = text("datname = current_database() AND pid <> pg_backend_pid()")
        session.execute(
            select(func.pg_terminate_backend(column("pid")))
            .select_from(table("pg_stat_activity"))
            .where(others)
        )
    assert start_sender(now + MINUTE).counts() == {}
    assert checks.doubtful(app) == set()
    relay.go_on()
    assert first.counts() == {"sent": 6}
    checks.check_everybody(app, relay, names)
