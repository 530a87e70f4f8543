"""Clocks that are wrong or jump: no living sender is declared dead, and no mail is lost or doubled."""

from __future__ import annotations

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
from tests.faults.relay_process import Sink
from tests.faults.sender_process import Starter

MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
WRONG = 25 * MINUTE  # more than a lease lasts
ONE = {"smtp_connections": 1}
POLICIES = [UncertainPolicy.RESEND, UncertainPolicy.HOLD]


@pytest.fixture(params=POLICIES, ids=[policy.value for policy in POLICIES])
def settings(request: pytest.FixtureRequest, settings: Settings) -> Settings:
    """Settings with each policy for mails of unknown fate."""
    return settings.model_copy(update={"uncertain": request.param})


@pytest.fixture
def elsewhere(tmp_path: Path) -> dict[str, Any]:
    """Settings of a sender on another machine, which does not have this one's journals."""
    return {"settings": {"journal_dir": str(tmp_path / "elsewhere"), **ONE}}


def is_postgres(app: Application) -> bool:
    return app.db.url.get_backend_name() == "postgresql"


def only_on_postgres(app: Application) -> None:
    if not is_postgres(app):
        pytest.skip("SQLite has no clock of its own")


def test_leases_after_a_long_planning(
    app: Application, relay: Sink, now: datetime, start: Starter, elsewhere: dict[str, Any]
) -> None:
    """Planning took 25 minutes: leases begin when mails are claimed, and another machine takes none."""
    names = checks.queue(app, now, 8)
    relay.on("end", tell=True, times=1, to="reader3@example.org")
    first = start(now, verb="send_due", planning_takes=WRONG, **elsewhere)
    relay.reached()
    leased = [row.lease_until for row in checks.rows(app).values() if row.lease_until]
    assert min(leased) >= now + WRONG + ledger.LEASE
    assert start(now + WRONG + MINUTE).counts() == {}
    assert checks.doubtful(app) == set()
    relay.go_on()
    assert first.counts()["sent"] == 8
    checks.check_everybody(app, relay, names)
    assert len(relay.taken()) == 8


def wait_until_sent(app: Application, count: int) -> None:
    """Wait until so many mails are recorded as sent. The claim made before them has ended by then."""
    deadline = time.monotonic() + 30
    while sum(row.state is DeliveryState.SENT for row in checks.rows(app).values()) < count:
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("wrong", ["first", "second"])
@pytest.mark.parametrize(
    "ahead", [-DAY, -WRONG, WRONG, DAY], ids=["day-behind", "behind", "ahead", "day-ahead"]
)
def test_one_of_two_machines_has_a_wrong_clock(
    app: Application,
    relay: Sink,
    now: datetime,
    start: Starter,
    elsewhere: dict[str, Any],
    wrong: str,
    ahead: timedelta,
) -> None:
    """The first sender's, or the second one's: each mail is sent once."""
    if not is_postgres(app) and wrong == "first":
        pytest.skip("SQLite has one machine: its clock may jump between one sender and the next")
    tomorrow = now + DAY / 2 if is_postgres(app) else None
    names = checks.queue(app, now, 6, give_up_at=tomorrow)
    relay.on("end", tell=True, times=1, to="reader3@example.org")
    clocks = [ahead, timedelta()] if wrong == "first" else [timedelta(), ahead]
    first = start(now, clock_ahead=clocks[0], **elsewhere)
    relay.reached()
    wait_until_sent(app, 3)
    names += checks.queue(app, now, 4, first=6, give_up_at=tomorrow)
    second = start(now, clock_ahead=clocks[1], settings=ONE).counts()
    assert second == ({"sent": 4} if is_postgres(app) or ahead > timedelta() else {})
    assert checks.doubtful(app) == set()
    relay.go_on()
    assert first.counts().get("sent", 0) == 10 - second.get("sent", 0)
    checks.check_everybody(app, relay, names)
    assert len(relay.taken()) == 10


def test_the_clock_of_the_database_jumps(
    app: Application, relay: Sink, now: datetime, start: Starter, elsewhere: dict[str, Any]
) -> None:
    """By a day, while a mail is in flight: the lock of its process says that the sender lives."""
    names = checks.queue(app, now, 6)
    relay.on("end", tell=True, times=1, to="reader3@example.org")
    first = start(now, **elsewhere)
    relay.reached()
    assert start(now, database_clock_ahead=DAY).counts() == {}
    assert checks.doubtful(app) == set()
    relay.go_on()
    assert first.counts() == {"sent": 6}
    checks.check_everybody(app, relay, names)
    assert len(relay.taken()) == 6


def test_a_machine_that_is_gone(
    app: Application, relay: Sink, now: datetime, start: Starter, tmp_path: Path, elsewhere: dict[str, Any]
) -> None:
    """No process lock, and no journal: its mails are uncertain when the lease expires."""
    names = checks.queue(app, now, 6)
    relay.on("end", tell=True, takes=True, times=1, to="reader3@example.org")
    first = start(now, **elsewhere)
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


def test_a_lost_connection_is_no_death(
    app: Application, relay: Sink, now: datetime, start: Starter, elsewhere: dict[str, Any]
) -> None:
    """The database drops a sender's connections and its lock: the lease still protects its mails."""
    only_on_postgres(app)
    names = checks.queue(app, now, 6)
    relay.on("end", tell=True, times=1, to="reader3@example.org")
    first = start(now, **elsewhere)
    relay.reached()
    with app.db.read() as session:
        others = text("datname = current_database() AND pid <> pg_backend_pid()")
        session.execute(
            select(func.pg_terminate_backend(column("pid")))
            .select_from(table("pg_stat_activity"))
            .where(others)
        )
    assert start(now + MINUTE).counts() == {}
    assert checks.doubtful(app) == set()
    relay.go_on()
    assert first.counts() == {"sent": 6}
    checks.check_everybody(app, relay, names)
