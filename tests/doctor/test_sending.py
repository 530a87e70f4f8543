"""Test the checks of late digests and pauses.

The other checks are tested next to the features that they check.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from sqlmodel import Session, select

from app.application import Application
from app.delivery import ledger
from app.digests import planning
from app.doctor import Finding, Level, sending
from app.papers import poll_schedule
from app.storage import job_runs
from app.storage.models import Source, Subscriber, WorkerRow
from tests.support import factories


def check_schedule(app: Application, now: datetime) -> Finding:
    with app.db.read() as session:
        (finding,) = sending.check_lateness(session, now)
    return finding


@pytest.mark.parametrize(
    ("late", "span"),
    [
        (timedelta(minutes=20), "20 minutes"),
        (timedelta(minutes=119), "119 minutes"),
        (timedelta(hours=3, minutes=10), "3 hours"),
        (timedelta(minutes=333315), "231 days"),
    ],
)
def test_late_digest(app: Application, now: datetime, late: timedelta, span: str) -> None:
    """The delay is given in words, and the scheduler is probably not running."""
    with app.db.write() as session:
        factories.add_subscriber(session, "alice@example.org", [], now - late)
    finding = check_schedule(app, now)
    assert finding.level is Level.ERROR
    assert f"due for {span}," in finding.message


@pytest.mark.parametrize("days_since_start", [None, 5], ids=["no worker", "a worker that was suspended"])
def test_late_digest_after_a_downtime(app: Application, now: datetime, days_since_start: int | None) -> None:
    """It is an error unless a process has just started, or is polling the sources first."""
    with app.db.write() as session:
        if days_since_start:
            seen_at = datetime.now(UTC)
            started_at = seen_at - timedelta(days=days_since_start)
            session.add(WorkerRow(name="serve:1", started_at=started_at, seen_at=seen_at))
        source = factories.add_source(session, now)
        source.polled_at = source.next_poll_at = now - timedelta(days=3)
        reader = factories.add_subscriber(session, "alice@example.org", ["agents"], now)
        session.get_one(Subscriber, reader).next_due_at = now - timedelta(days=3)

    def schedule_level() -> tuple[Level, bool]:
        finding = check_schedule(app, now)
        return finding.level, finding.urgent

    assert schedule_level() == (Level.ERROR, True), "the source is not polled yet"
    with app.db.write() as session:
        poll_schedule.begin(session.exec(select(Source)).one(), now)
    assert schedule_level() == (Level.WARNING, False), "the source is being polled"
    with app.db.write() as session:
        poll_schedule.record_success(session.exec(select(Source)).one(), now)
    assert schedule_level() == (Level.ERROR, True), "the source was polled"


@pytest.mark.parametrize(
    ("minutes_since_start", "minutes_since_heartbeat", "level"),
    [(10, 0, Level.WARNING), (40, 0, Level.ERROR), (10, 5, Level.ERROR)],
    ids=["just started", "started long ago", "lost"],
)
def test_late_digest_after_a_start(
    app: Application, now: datetime, minutes_since_start: int, minutes_since_heartbeat: int, level: Level
) -> None:
    seen_at = datetime.now(UTC) - timedelta(minutes=minutes_since_heartbeat)
    started_at = seen_at - timedelta(minutes=minutes_since_start)
    with app.db.write() as session:
        reader = factories.add_subscriber(session, "alice@example.org", ["agents"], now)
        session.get_one(Subscriber, reader).next_due_at = now - timedelta(hours=1)
        session.add(WorkerRow(name="serve:1", started_at=started_at, seen_at=seen_at))
    assert check_schedule(app, now).level is level


@pytest.mark.parametrize(
    ("due_hours_ago", "level"), [(3, Level.ERROR), (1, Level.WARNING)], ids=["crashed after", "before"]
)
def test_late_digest_after_a_crash(app: Application, now: datetime, due_hours_ago: int, level: Level) -> None:
    """A process that was killed while the digest was late will probably be killed again."""
    time = datetime.now(UTC)
    with app.db.write() as session:
        reader = factories.add_subscriber(session, "alice@example.org", ["agents"], now)
        session.get_one(Subscriber, reader).next_due_at = now - timedelta(hours=due_hours_ago)
        for name, started, seen in [("killed", 150, 120), ("started", 5, 0)]:
            started_at, seen_at = time - timedelta(minutes=started), time - timedelta(minutes=seen)
            session.add(WorkerRow(name=name, started_at=started_at, seen_at=seen_at))
    finding = check_schedule(app, now)
    assert finding.level is level
    assert ("although a process is running jobs" in finding.message) == (level is Level.ERROR)


@pytest.mark.parametrize(
    ("minutes_since_run", "level"), [(180, Level.WARNING), (60, Level.ERROR), (10, Level.WARNING)]
)
def test_late_digest_after_an_earlier_run(
    app: Application, now: datetime, minutes_since_run: int, level: Level
) -> None:
    """A stopped process leaves the registry, but its run shows that there was time to plan the digest."""
    time = datetime.now(UTC)
    with app.db.write() as session:
        reader = factories.add_subscriber(session, "alice@example.org", ["agents"], now)
        session.get_one(Subscriber, reader).next_due_at = now - timedelta(hours=2)
        session.add(WorkerRow(name="serve:1", started_at=time - timedelta(minutes=5), seen_at=time))
    job_runs.begin(app.db, planning.JOB, now - timedelta(minutes=minutes_since_run))
    assert check_schedule(app, now).level is level


@pytest.mark.parametrize(
    ("pause", "level"), [(ledger.pause, Level.WARNING), (ledger.pause_automatically, Level.ERROR)]
)
def test_pause_is_reported_with_its_reason(
    app: Application, now: datetime, pause: Callable[[Session, str, datetime], object], level: Level
) -> None:
    """Only an automatic pause is an error, because an operator knows of their own."""
    with app.db.write() as session:
        pause(session, "the relay refuses us", now)
        ledger.pause(session, "an operator pauses again", now + timedelta(hours=1))
    with app.db.read() as session:
        (finding,) = sending.check_pauses(session, now)
    assert finding.level is level
    assert "the relay refuses us" in finding.message
