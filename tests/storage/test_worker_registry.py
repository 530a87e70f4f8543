"""Test the registry of workers: heartbeats, lost workers, and where operators see them."""

import json
import threading
import time
from collections import Counter
from datetime import datetime, timedelta

import pytest
import structlog
from fastapi.testclient import TestClient
from sqlalchemy import text
from sqlmodel import Session
from typer.testing import CliRunner

from app import clock, main
from app.application import Application
from app.cli.commands import cli
from app.doctor import Level, service_state
from app.relevance import model_store
from app.settings import Settings
from app.storage import api_keys, live_processes, worker_registry
from app.storage.api_keys import Scope
from app.storage.models import WorkerRow
from tests.faults.sender_process import _environment

MINUTE = timedelta(minutes=1)
FAIL = """
    INSERT INTO procrastinate_jobs (queue_name, task_name, status) VALUES ('upkeep', 'prune', 'todo');
    UPDATE procrastinate_jobs SET status = 'doing';
    UPDATE procrastinate_jobs SET status = 'failed';
    INSERT INTO procrastinate_jobs (queue_name, task_name) VALUES ('plan', 'plan');
    UPDATE procrastinate_events SET at = now() - interval '10 minutes'
"""


def add_worker(app: Application, name: str, seen_at: datetime) -> None:
    with app.db.write() as session:
        session.add(WorkerRow(name=name, started_at=seen_at - 60 * MINUTE, seen_at=seen_at))


def statuses_of(app: Application) -> dict[str, bool]:
    """Return whether each worker is lost."""
    with app.db.read() as session:
        return {status.name: status.lost for status in worker_registry.statuses(session)}


def test_heartbeat(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker is registered while it runs, and forgets those lost for a day when it starts."""
    monkeypatch.setattr(worker_registry, "HEARTBEAT_SECONDS", 0.05)
    own, now = live_processes.process_name(), clock.utcnow()
    add_worker(app, "mail1:1:a", now - 10 * MINUTE)
    add_worker(app, "mail2:1:a", now - 2 * worker_registry.FORGET_AFTER)
    assert statuses_of(app) == {"mail1:1:a": True}
    with worker_registry.registered(app.db):
        wait_until_registered(app, own, now)
        with app.db.write() as session:
            session.get_one(WorkerRow, own).seen_at = now - 10 * MINUTE
        wait_until_registered(app, own, now)
        assert statuses_of(app) == {"mail1:1:a": True, own: False}
    with app.db.read() as session:
        assert session.get(WorkerRow, own) is None
        assert session.get(WorkerRow, "mail2:1:a") is None


def wait_until_registered(app: Application, name: str, since: datetime) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with app.db.read() as session:
            row = session.get(WorkerRow, name)
            if row and row.seen_at >= since - MINUTE:
                return
        time.sleep(0.02)
    raise AssertionError("there was no heartbeat")


def test_worker_continues_without_its_registry(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs do not depend on it. The log has one warning for an outage, not one for each heartbeat."""
    monkeypatch.setattr(worker_registry, "HEARTBEAT_SECONDS", 0.05)
    beats, beat, several = Counter[str](), worker_registry._beat, threading.Event()

    def count_and_beat(session: Session, name: str) -> None:
        beats.update([name])
        if beats[name] > 3:
            several.set()
        beat(session, name)

    monkeypatch.setattr(worker_registry, "_beat", count_and_beat)
    with app.db.write() as session:
        session.execute(text("ALTER TABLE worker RENAME TO others"))
    with structlog.testing.capture_logs() as logged, worker_registry.registered(app.db):
        try:
            assert several.wait(30)
        finally:
            with app.db.write() as session:  # tests share this database
                session.execute(text("ALTER TABLE others RENAME TO worker"))
        wait_until_registered(app, live_processes.process_name(), clock.utcnow())
    assert [each["event"] for each in logged] == [
        "could not write a heartbeat; trying again",
        "heartbeats are written again",
    ]


def test_operators_see_workers_and_jobs(
    app: Application, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The doctor, the metrics, the admin pages, the API and the command line."""
    now = clock.utcnow()
    add_worker(app, "mail1:1:a", now)
    add_worker(app, "mail2:2:b", now - 10 * MINUTE)
    on_postgresql = app.db.locks_rows
    if on_postgresql:
        with app.db.write() as session:
            session.execute(text(FAIL))
    findings = {each.check: each for each in service_state.check(app.db, model_store.ModelStore(), now)}
    assert findings["workers"].message == "1 process is running jobs"
    assert findings["worker mail2:2:b"].level is Level.WARNING
    assert ("failed prune" in findings, "waiting plan" in findings) == (on_postgresql, on_postgresql)

    with app.db.write() as session:
        key = api_keys.create(session, "operator", list(Scope), now)[1]
    headers = {"Authorization": f"Bearer {key}"}
    with TestClient(main.create_app(app), base_url="https://paperboy.test") as client:
        fleet = client.get("/api/v1/workers", headers=headers).json()
        metrics = client.get("/metrics", headers=headers).text
        client.post("/admin/sign-in", data={"key": key}, headers={"Origin": "https://paperboy.test"})
        page = client.get("/admin").text
    assert [(each["name"], each["lost"]) for each in fleet["workers"]] == [
        ("mail2:2:b", True),
        ("mail1:1:a", False),
    ]
    jobs = [("plan", "waiting"), ("prune", "failed")] if on_postgresql else []
    assert [(each["job"], each["state"]) for each in fleet["jobs"]] == jobs
    assert 'paperboy_workers{state="lost"} 1.0' in metrics
    assert 'paperboy_worker_seen_timestamp_seconds{worker="mail1:1:a"} ' in metrics
    assert ('paperboy_jobs{name="prune",state="failed"} 1.0' in metrics) == on_postgresql
    assert "mail2:2:b" in page

    for name, value in _environment(settings).items():
        monkeypatch.setenv(name, value)
    shown = CliRunner().invoke(cli, ["workers", "--json"], catch_exceptions=False)
    listed = json.loads(shown.stdout)
    assert [each["name"] for each in listed["workers"]] == ["mail2:2:b", "mail1:1:a"]
    table = CliRunner().invoke(cli, ["workers"], catch_exceptions=False).stdout
    assert ("mail1:1:a" in table, "prune" in table) == (True, on_postgresql)
    shell = CliRunner().invoke(cli, ["jobs", "list_jobs", "status=failed"], catch_exceptions=False)
    if on_postgresql:
        assert (shell.exit_code, "prune" in shell.stdout) == (0, True)
    else:
        assert (shell.exit_code, "SQLite" in shell.output) == (1, True)


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("list_jobs bogus=1", "“list_jobs bogus=1” failed: there is no such filter. For help, run"),
        ("list_jobs status=faild", 'invalid input value for enum procrastinate_job_status: "faild". For'),
        ("retry 99999", "Job was not found or has an invalid status to retry (job id: 99999). For"),
        (
            "retry abc",
            "“retry abc” failed: there is no job with this number. For help, run “help retry”.",
        ),
        ("cancel 99999", "“cancel 99999” failed: there is no job with this number."),
        ("nosuch", "There is no command “nosuch”: run “help” to list all commands."),
    ],
)
def test_failed_command_of_the_job_shell(
    command: str, message: str, app: Application, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is one line, without a traceback. On a terminal, the shell goes on."""
    for name, value in _environment(settings).items():
        monkeypatch.setenv(name, value)
    failed = CliRunner().invoke(cli, ["jobs", *command.split()], catch_exceptions=False)
    assert (failed.exit_code, failed.stderr.count("\n")) == (1, 1)
    assert message in failed.stderr
    typed = CliRunner().invoke(cli, ["jobs"], input=f"{command}\nlist_queues\nexit\n", catch_exceptions=False)
    assert (typed.exit_code, typed.stdout.count("Welcome")) == (0, 1)
    assert message in typed.stdout


def test_no_worker_is_left(app: Application) -> None:
    now = clock.utcnow()
    add_worker(app, "mail2:2:b", now - 10 * MINUTE)
    findings = {each.check: each for each in service_state.check(app.db, model_store.ModelStore(), now)}
    assert findings["workers"].level is Level.ERROR
