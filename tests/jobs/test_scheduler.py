"""Test the schedule: every job runs at its minutes, and a failing job does not affect others."""

import itertools
import threading
import time
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.cron import CronTrigger
from fastapi.testclient import TestClient
from sqlmodel import select

from app import clock, main, maintenance, pipeline, webhooks
from app.application import Application
from app.digests import planning
from app.doctor import alerts, daily_report
from app.jobs import schedule, scheduler
from app.jobs.schedule import Job
from app.papers import poll_schedule
from app.settings import Settings
from app.storage import job_runs, live_processes, worker_registry
from app.storage.models import Lock
from tests.support import factories
from tests.support.mail_server import MailServer


def test_job_times(app: Application) -> None:
    """Each job has its cron fields, and at most one instance of it runs at a time."""
    with scheduler.running(app) as background:
        planned = {job.id: job for job in background.get_jobs()}
        after = datetime(2026, 11, 20, 9, 30, 1, tzinfo=UTC)
        nexts = {name: job.trigger.get_next_fire_time(None, after) for name, job in planned.items()}
        assert nexts == {
            "send": datetime(2026, 11, 20, 9, 31, tzinfo=UTC),
            "plan": datetime(2026, 11, 20, 9, 31, tzinfo=UTC),
            "sign_ahead": datetime(2026, 11, 20, 9, 31, tzinfo=UTC),
            "answer_requests": datetime(2026, 11, 20, 9, 31, tzinfo=UTC),
            "close_killed_runs": datetime(2026, 11, 20, 9, 31, tzinfo=UTC),
            "send_events": datetime(2026, 11, 20, 9, 31, tzinfo=UTC),
            "report_editions": datetime(2026, 11, 20, 9, 40, tzinfo=UTC),
            "refresh": datetime(2026, 11, 20, 9, 35, tzinfo=UTC),
            "read_bounces": datetime(2026, 11, 20, 9, 35, tzinfo=UTC),
            "send_alerts": datetime(2026, 11, 20, 9, 35, tzinfo=UTC),
            "send_daily_report": datetime(2026, 11, 20, 10, 10, tzinfo=UTC),
            "summarise": datetime(2026, 11, 20, 9, 45, tzinfo=UTC),
            "fetch_pictures": datetime(2026, 11, 20, 9, 37, tzinfo=UTC),
            "train": datetime(2026, 11, 20, 9, 43, tzinfo=UTC),
            "recheck": datetime(2026, 11, 20, 9, 37, tzinfo=UTC),
            "prune": datetime(2026, 11, 20, 10, 17, tzinfo=UTC),
        }
        assert all(job.coalesce and job.max_instances == 1 for job in planned.values())


def test_jobs_are_functions_of_the_pipeline() -> None:
    """Every job is a public function of the pipeline, or tells the operators or their programs."""
    verbs = [
        pipeline.send,
        pipeline.plan,
        pipeline.sign_ahead,
        pipeline.answer_requests,
        maintenance.close_killed_runs,
        pipeline.refresh,
        pipeline.read_bounces,
        webhooks.send_events,
        webhooks.report_editions,
        pipeline.summarise,
        pipeline.fetch_pictures,
        alerts.send_alerts,
        daily_report.send_daily_report,
        pipeline.train,
        pipeline.recheck,
        maintenance.prune,
    ]
    assert [job.work for job in schedule.JOBS] == verbs


def test_failing_job_is_run_again(app: Application) -> None:
    """A failure is logged, and the job runs again at its next time."""
    called = []

    def fail(_app: Application, now: datetime) -> None:
        called.append(now)
        raise ConnectionError("the database is away")

    scheduler.run(app, Job(fail, minute="*"))
    scheduler.run(app, Job(fail, minute="*"))
    assert len(called) == 2
    assert called[0].utcoffset() == timedelta()


def test_stop_waits_for_running_jobs(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """An email in flight is finished."""
    started, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def slow(_app: Application, _now: datetime) -> None:
        started.set()
        may_end.wait(timeout=30)
        ended.set()

    monkeypatch.setattr(schedule, "JOBS", (Job(slow, minute="*"),))
    with scheduler.running(app) as background:
        background.get_job("slow").modify(next_run_time=datetime.now(UTC))
        assert started.wait(timeout=30)
        threading.Timer(0.05, may_end.set).start()
    assert ended.is_set()


@pytest.mark.parametrize("polled", ["never", "long ago", "just now"])
def test_sources_that_are_due_at_the_start(
    app: Application, monkeypatch: pytest.MonkeyPatch, polled: str
) -> None:
    """They are polled at once: a new operator would not know whether it works, and a digest may be due."""
    now, ran = clock.utcnow(), threading.Event()
    with app.db.write() as session:
        source = factories.add_source(session, now)
        if polled != "never":
            ago = timedelta(days=2) if polled == "long ago" else timedelta()
            poll_schedule.record_success(source, now - ago)

    def refresh(_app: Application, _now: datetime) -> None:
        ran.set()

    jobs = (Job(refresh, minute="0", hour=str((now.hour + 12) % 24)),)
    monkeypatch.setattr(schedule, "JOBS", jobs)
    with scheduler.running(app) as background:
        if polled == "just now":
            assert background.get_job("refresh").next_run_time > now + timedelta(hours=1)
        else:
            assert ran.wait(timeout=30)


def test_jobs_after_the_clock_was_set_back(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """They run at once again, although their next runs lie hours ahead. A failed check is repeated."""
    ran, checks = threading.Event(), list[BackgroundScheduler]()
    check = scheduler.reschedule_if_set_back

    def fail_first(background: BackgroundScheduler) -> None:
        checks.append(background)
        if len(checks) == 1:
            raise ArithmeticError
        check(background)

    monkeypatch.setattr(scheduler, "reschedule_if_set_back", fail_first)
    monkeypatch.setattr(schedule, "JOBS", (Job(lambda *_: ran.set(), minute="0", hour="0"),))
    monkeypatch.setattr(scheduler, "CLOCK_CHECK_SECONDS", 0.01)
    ahead, minute = timedelta(hours=3), CronTrigger(second="*", timezone=UTC)
    with scheduler.running(app) as background:
        background.get_jobs()[0].modify(trigger=minute, next_run_time=datetime.now(UTC) + ahead)
        assert ran.wait(timeout=30)


def test_clock_that_was_not_set_back_changes_no_job(app: Application) -> None:
    """A job that is overdue, because the machine was suspended, stays due."""
    with scheduler.running(app) as background:
        background.pause()
        overdue = datetime.now(UTC) - timedelta(hours=3)
        background.modify_job("plan", next_run_time=overdue)
        before = {job.id: job.next_run_time for job in background.get_jobs()}
        scheduler.reschedule_if_set_back(background)
        assert {job.id: job.next_run_time for job in background.get_jobs()} == before


@pytest.mark.parametrize("enabled", [True, False])
def test_web_app_runs_jobs_if_enabled(
    enabled: bool, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is then registered as a worker, until it stops."""
    monkeypatch.setattr(schedule, "JOBS", ())
    built = main.build(settings.model_copy(update={"scheduler": enabled}))
    with TestClient(main.create_app(built)) as client:
        assert client.get("/healthz").status_code == 200
        names = wait_for_worker(built) if enabled else worker_names(built)
    assert names == ([live_processes.process_name()] if enabled else [])
    assert worker_names(built) == []
    built.db.dispose()


def worker_names(app: Application) -> list[str]:
    with app.db.read() as session:
        return [status.name for status in worker_registry.statuses(session)]


def wait_for_worker(app: Application) -> list[str]:
    deadline = time.monotonic() + 30
    while not (names := worker_names(app)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return names


def test_nightly_job_runs_on_one_machine(app: Application, settings: Settings) -> None:
    """On the second machine it does not run again, unless it failed."""
    other, runs = main.build(settings), []

    def nightly(machine: Application, _now: datetime) -> None:
        runs.append(machine)
        if len(runs) == 1:
            raise ConnectionError("the database is away")

    job = Job(nightly, minute="17", hour="3", once_a_day=True)
    for machine in (app, other, app, other):
        scheduler.run(machine, job)
    other.db.dispose()
    assert runs == [app, other]
    with app.db.write() as session:
        session.exec(select(Lock)).one().edition = "2026-11-01"
    scheduler.run(app, job)
    assert len(runs) == 3, "the next day it runs again"


def test_failing_nightly_job_has_three_attempts_a_day(app: Application, now: datetime) -> None:
    """It was repeated every hour, at full cost."""
    attempts: list[datetime] = []

    def prune(app: Application, at: datetime) -> None:
        attempts.append(at)
        with job_runs.record(app.db, "prune", at):
            raise ConnectionError("the database is away")

    job = Job(prune, minute="17", hour="3-23", once_a_day=True)
    midnight = now.replace(hour=0, minute=0)
    for day in range(3):
        for hour in range(3, 24):
            with suppress(ConnectionError):
                schedule.run(app, job, midnight + timedelta(days=day, hours=hour, minutes=17))
    days = Counter(at.date() for at in attempts)
    assert list(days.values()) == [3, 2, 2]
    assert {min(at.hour for at in attempts if at.date() == day) for day in days} == {3}


def test_failure_by_a_clock_that_was_ahead_delays_no_job(app: Application, now: datetime) -> None:
    attempts: list[datetime] = []

    def prune(app: Application, at: datetime) -> None:
        attempts.append(at)
        with job_runs.record(app.db, "prune", at):
            raise ConnectionError("the database is away")

    for at in (now + timedelta(days=30), now):
        with suppress(ConnectionError):
            schedule.run(app, Job(prune, minute="17", once_a_day=True), at)
    assert attempts == [now + timedelta(days=30), now]


def test_only_nightly_jobs_are_limited_to_once_a_day() -> None:
    """They begin at night, but also run on a machine that is on only from 12:00 to 13:00 UTC."""
    for job in schedule.JOBS:
        trigger = CronTrigger(hour=job.hour, minute=job.minute, second="0", timezone=UTC)
        noon, midnight = datetime(2026, 11, 20, 12, tzinfo=UTC), datetime(2026, 11, 20, tzinfo=UTC)
        assert trigger.get_next_fire_time(None, noon) < noon + timedelta(hours=1)
        first = trigger.get_next_fire_time(None, midnight)
        assert first < midnight + timedelta(hours=4 if job.once_a_day else 1)
    assert {job.name for job in schedule.JOBS if job.once_a_day} == {"train", "recheck", "prune"}


def test_sending_during_planning(
    app: Application, mail_server: MailServer, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alice's digest is sent while Bob's is still planned."""
    monkeypatch.setattr(planning, "BATCH_SIZE", 1)
    monkeypatch.setattr(clock, "_ahead", now - clock.system_time())
    with app.db.write() as session:
        source = factories.add_source(session, now)
        poll_schedule.record_success(source, now)
        factories.add_paper(session, source, "Agents that Plan", now.date(), now)
        for name in ("alice", "bob"):
            factories.add_subscriber(session, f"{name}@example.org", ["agents"], now)
    batches, match_ahead = itertools.count(), planning._match_ahead

    def wait_for_the_first(*args: Any) -> None:
        if next(batches) == 1:
            mail_server.wait_for(1)
        match_ahead(*args)

    monkeypatch.setattr(planning, "_match_ahead", wait_for_the_first)
    with scheduler.running(app) as background:
        background.modify_job("plan", next_run_time=clock.system_time())
        mails = mail_server.wait_for(2)
    assert [mail.recipient for mail in mails] == ["alice@example.org", "bob@example.org"]
