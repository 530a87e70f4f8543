"""Test faults around the sender: a locked database, a full disk, jumping clocks, a second sender, a
shutdown.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import column, func, select, table, text

from app.application import Application
from app.storage.database import Database
from tests.faults import checks
from tests.faults.relay_process import RelayProcess
from tests.faults.sender_process import PATIENCE, Starter

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
ONE = {"smtp_connections": 1}


@contextmanager
def lock_database(app: Application) -> Iterator[None]:
    """Lock the database for the block: no writes, and on PostgreSQL no reads of the ledger."""
    other = Database(app.db.url.render_as_string(hide_password=False))
    with other.write() as session:
        session.connection()  # on SQLite, the transaction takes the lock
        if other.url.get_backend_name() == "postgresql":
            session.execute(text("LOCK TABLE delivery IN ACCESS EXCLUSIVE MODE"))
        yield
    other.dispose()


def test_locked_database(app: Application, relay: RelayProcess, now: datetime, start_sender: Starter) -> None:
    """It is locked for longer than the timeout with emails in flight; no result is lost."""
    names = checks.queue(app, now, 8)
    relay.on("end", tell=True, times=1, to="reader4@example.org")
    sender = start_sender(now, constants={"app.storage.database:BUSY_TIMEOUT_MS": 300})
    relay.reached()
    with lock_database(app):
        relay.go_on()
        sender.process.join(3)
    sender.process.join(PATIENCE)
    checks.settle(app, now + MINUTE)
    checks.check_everybody(app, relay, names)
    assert len(relay.accepted()) == 8


@pytest.mark.postgres
def test_database_closes_all_connections(
    app: Application, relay: RelayProcess, now: datetime, start_sender: Starter
) -> None:
    """Results of emails in flight are written over new connections."""
    names = checks.queue(app, now, 8)
    relay.on("end", tell=True, times=1, to="reader4@example.org")
    sender = start_sender(now)
    relay.reached()
    with app.db.read() as session:
        other_connections = text("datname = current_database() AND pid <> pg_backend_pid()")
        session.execute(
            select(func.pg_terminate_backend(column("pid")))
            .select_from(table("pg_stat_activity"))
            .where(other_connections)
        )
    relay.go_on()
    assert sender.counts() == {"sent": 8}
    checks.settle(app, now + MINUTE)
    checks.check_everybody(app, relay, names)
    assert len(relay.accepted()) == 8


@pytest.mark.timeout(180)
def test_slow_relay_and_locked_database(
    app: Application, relay: RelayProcess, now: datetime, start_sender: Starter
) -> None:
    """A reply takes 61 s, and the database is locked for 30 s of them; the sender waits for both."""
    names = checks.queue(app, now, 8)
    relay.on("end", late=61, times=1, to="reader2@example.org")
    relay.on("end", tell=True, times=1, after=2)
    sender = start_sender(now)
    relay.reached()
    with lock_database(app):
        relay.go_on()
        sender.process.join(30)
    assert sender.counts(patience=90) == {"sent": 8}
    checks.check_everybody(app, relay, names)
    assert len(relay.accepted()) == 8


@pytest.mark.parametrize("jump", [-HOUR, HOUR], ids=["back", "ahead"])
def test_clock_jump_between_two_runs(
    app: Application, relay: RelayProcess, now: datetime, start_sender: Starter, jump: timedelta
) -> None:
    """A sender dies, the clock jumps an hour, and the next sender recovers."""
    names = checks.queue(app, now - 2 * HOUR, 8)
    relay.on("end", tell=True, takes=True, times=1, to="reader4@example.org")
    sender = start_sender(now, settings=ONE)
    relay.reached()
    sender.kill()
    relay.go_on()
    checks.restart(app, now + jump)
    assert checks.doubtful(app) == {"reader4"}
    checks.settle(app, now + jump)
    checks.check_everybody(app, relay, names)


@pytest.mark.parametrize("jump", [-HOUR, HOUR], ids=["back", "ahead"])
def test_clock_jump_during_a_run(
    app: Application, relay: RelayProcess, now: datetime, start_sender: Starter, jump: timedelta
) -> None:
    """A sender with a clock an hour off takes no email of a living one, however old its lease."""
    names = checks.queue(app, now - 2 * HOUR, 8)
    relay.on("end", tell=True, times=1)
    first = start_sender(now, settings=ONE)
    relay.reached()
    assert start_sender(now + jump).counts() == {}
    relay.go_on()
    assert first.counts() == {"sent": 8}
    checks.check_everybody(app, relay, names)
    assert len(relay.accepted()) == 8


def test_two_senders(app: Application, relay: RelayProcess, now: datetime, start_sender: Starter) -> None:
    """Together they send each email once, even if one finds no email."""
    names = checks.queue(app, now, 900)
    relay.talk(pace=0.002)
    both = [start_sender(now), start_sender(now)]
    assert sum(sender.counts().get("sent", 0) for sender in both) == len(relay.accepted()) == 900
    checks.check_everybody(app, relay, names)


def test_one_of_two_senders_dies(
    app: Application, relay: RelayProcess, now: datetime, start_sender: Starter
) -> None:
    """The other one continues, and a third one recovers the emails of the dead one."""
    names = checks.queue(app, now, 400)
    relay.talk(pace=0.002)
    first, second = start_sender(now), start_sender(now)
    first.is_killed_within(0.2)
    third = start_sender(now + MINUTE)
    second.counts()
    third.counts()
    checks.settle(app, now + 2 * MINUTE)
    checks.check_everybody(app, relay, names)


# --- no room


def test_file_size_limit(app: Application, relay: RelayProcess, now: datetime, start_sender: Starter) -> None:
    """Sending stops before a body is sent, with a reason."""
    names = checks.queue(app, now, 60)
    small = {
        "app.delivery.journal:ALLOCATION": 2000,
        "app.delivery.ledger.sender_ledger:DATABASE_TIMEOUT": 1.0,
    }
    error = start_sender(now, constants=small, largest_file=6000).error()
    assert "cannot write to" in error or "disk" in error
    _check_stopped_in_time(app, relay, now, names)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 64 kB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mounted, capture_output=True).returncode:  # noqa: S603
        pytest.skip("only root, where it may mount, can make a small disk")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)  # noqa: S603, S607


def test_full_disk(
    app: Application, relay: RelayProcess, now: datetime, start_sender: Starter, small_disk: Path
) -> None:
    """The disk of the journal is full: sending stops before a body with a reason, and nothing is lost."""
    names = checks.queue(app, now, 60)
    (small_disk / "other").write_bytes(bytes(56 * 1024))
    there = {"journal_dir": str(small_disk)}
    error = start_sender(now, settings=there, constants={"app.delivery.journal:ALLOCATION": 2000}).error()
    assert "No space left" in error
    (small_disk / "other").unlink()
    _check_stopped_in_time(app, relay, now, names)


def _check_stopped_in_time(app: Application, relay: RelayProcess, now: datetime, names: list[str]) -> None:
    assert len(relay.accepted()) < 60
    checks.restart(app, now + MINUTE)
    assert checks.doubtful(app) == set()
    checks.settle(app, now + MINUTE)
    checks.check_everybody(app, relay, names)
    assert len(relay.accepted()) == 60


# --- the service is asked to end


def test_sigterm(app: Application, relay: RelayProcess, now: datetime, start_sender: Starter) -> None:
    """Emails in flight get their replies, no email is started, and the rest is pending again."""
    names = checks.queue(app, now, 60)
    relay.on("end", tell=True, times=1, to="reader7@example.org")
    relay.talk(pace=0.05)
    worker = start_sender(now, works=True, settings=ONE)
    relay.reached()
    worker.ask_to_end()
    relay.go_on()
    assert worker.counts(patience=10) == {}
    assert 7 < len(relay.accepted()) < 60
    checks.check_conservation(app)
    states = checks.states(app)
    assert set(states.values()) == {"sent", "pending"}
    assert {name for name, state in states.items() if state == "sent"} == set(relay.copies())
    checks.settle(app, now + MINUTE)
    checks.check_everybody(app, relay, names)
    assert len(relay.accepted()) == 60


@pytest.mark.parametrize("stage", ["connect", "end"])
def test_sigterm_while_the_database_is_locked(
    app: Application, relay: RelayProcess, now: datetime, start_sender: Starter, stage: str
) -> None:
    """Results cannot be flushed, but the journal has them."""
    names = checks.queue(app, now, 20)
    relay.on(stage, tell=True, late=0.5, times=1, after=5 if stage == "end" else 0)
    worker = start_sender(
        now, works=True, settings=ONE, constants={"app.storage.database:BUSY_TIMEOUT_MS": 300}
    )
    relay.reached()
    with lock_database(app):
        worker.ask_to_end()
        relay.go_on()
        worker.process.join(3)
    assert worker.counts() == {}
    checks.restart(app, now + MINUTE)
    checks.check_conservation(app)
    assert checks.doubtful(app) == set()
    checks.settle(app, now + MINUTE)
    checks.check_everybody(app, relay, names)
    assert len(relay.accepted()) == 20


def test_sigterm_while_the_relay_hangs(
    app: Application, relay: RelayProcess, now: datetime, start_sender: Starter
) -> None:
    """A reply is awaited for ten seconds, and then the email is uncertain."""
    names = checks.queue(app, now, 20)
    relay.on("end", tell=True, takes=True, mute=True, then="hang", times=1, to="reader7@example.org")
    worker = start_sender(now, works=True, settings=ONE)
    relay.reached()
    worker.ask_to_end()
    relay.go_on()
    assert worker.counts(patience=15) == {}
    checks.restart(app, now + MINUTE)
    checks.check_conservation(app)
    assert checks.doubtful(app) == {"reader7"}
    checks.settle(app, now + HOUR)
    checks.check_everybody(app, relay, names)
    assert len(relay.accepted()) == 21
