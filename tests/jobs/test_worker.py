"""Test the workers of a fleet on PostgreSQL: each job runs once, and those of dead processes are rescued."""

import asyncio
import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
import structlog
from procrastinate import PsycopgConnector, periodic
from procrastinate.exceptions import ConnectorException
from procrastinate.jobs import Job as StoredJob
from procrastinate.manager import JobManager
from psycopg_pool import AsyncConnectionPool
from sqlalchemy import text

from app import main
from app.application import Application
from app.jobs import schedule, worker
from app.jobs.schedule import Job, Lane
from app.settings import Settings
from app.storage import worker_registry
from app.storage.models import WorkerRow
from tests.support.fork_server import ForkServer
from tests.support.postgres_server import PostgresServer
from tests.support.postgres_settings import set_for_database

pytestmark = pytest.mark.postgres

PATIENCE = 60.0  # seconds
FAR_HOUR = str((datetime.now(UTC).hour + 12) % 24)  # of jobs that run only when a test defers them
CLOSE_CONNECTIONS = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


def wait_until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


@pytest.fixture
def settings(settings: Settings, postgres: PostgresServer) -> Settings:
    """Return settings with a PostgreSQL database of its own."""
    return settings.model_copy(update={"database_url": postgres.create_database()})


@pytest.fixture
def build(settings: Settings) -> Iterator[Callable[[], Application]]:
    """Return a function that builds one more application, as another process would."""
    with ExitStack() as stack:

        def build() -> Application:
            built = main.build(settings)
            stack.callback(built.db.dispose)
            return built

        yield build


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Notice dead processes and lost connections within seconds."""
    monkeypatch.setattr(worker, "HEARTBEAT_SECONDS", 0.2)
    monkeypatch.setattr(worker, "STALLED_SECONDS", 1.0)
    monkeypatch.setattr(worker, "FALLBACK_SECONDS", 0.5)
    monkeypatch.setattr(worker, "RESTART_SECONDS", 0.1)
    monkeypatch.setattr(worker, "LOST_SECONDS", 1.0)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Replace all jobs by one, `<lambda>`, which adds a number to this list."""
    counted: list[int] = []
    monkeypatch.setattr(schedule, "JOBS", (Job(lambda *_: counted.append(1), "0", FAR_HOUR),))
    return counted


def statuses_of(app: Application) -> list[tuple[str, str, int]]:
    """Return the name, the status and the attempts of each job that has not succeeded."""
    with app.db.read() as session:
        rows = session.execute(text("SELECT task_name, status::text, attempts FROM procrastinate_jobs"))
        return [tuple(row) for row in rows]


def test_periodic_job_runs_once_for_the_fleet(
    build: Callable[[], Application], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three processes defer it, and one runs it, once for each minute that has begun."""
    calls: list[datetime] = []

    def tick(_app: Application, _now: datetime) -> None:
        calls.append(datetime.now(UTC))

    monkeypatch.setattr(schedule, "JOBS", (Job(tick, "*"),))
    apps = [build() for _ in range(3)]
    began = datetime.now(UTC)
    with ExitStack() as stack:
        for app in apps:
            stack.enter_context(worker.running(app))
        wait_until(lambda: count_deferred(apps[0]) == 3 or calls)
        time.sleep(2)  # enough for each to have deferred it
    assert len(calls) == 1 + (datetime.now(UTC).minute != began.minute and calls[-1].minute != began.minute)


def count_deferred(app: Application) -> int:
    with app.db.read() as session:
        return session.execute(text("SELECT count(*) FROM procrastinate_periodic_defers")).scalar_one()


@pytest.mark.parametrize(
    "jump", [-120, -3 * 3600, 21 * 86400], ids=["set back by minutes", "set back by hours", "suspended"]
)
def test_jobs_after_a_jump_of_the_clock(
    build: Callable[[], Application], monkeypatch: pytest.MonkeyPatch, jump: int
) -> None:
    """Jobs run on, and those of the minutes in between are not repeated one by one."""
    calls, readings = list[bool](), list[float]()  # for each call, whether the clock had jumped

    def has_jumped() -> bool:
        return len(readings) > 4

    def tick(_app: Application, _now: datetime) -> None:
        calls.append(has_jumped())

    def read_clock() -> float:  # a moment before the end of a minute, at which the jobs are due
        readings.append(1_795_000_079.9 + 60 * len(readings) + jump * (len(readings) > 3))
        return readings[-1]

    monkeypatch.setattr(periodic, "time", SimpleNamespace(time=read_clock))
    monkeypatch.setattr(schedule, "JOBS", (Job(tick, "*"),))
    with worker.running(build()):
        wait_until(lambda: calls.count(True) > 2 and calls.count(False))
    assert len(calls) <= len(readings)


def register(app: Application, count: int) -> None:
    """Register workers, as if each application were a process of its own."""
    with app.db.write() as session:
        now = datetime.now(UTC)
        session.add_all(
            WorkerRow(name=f"mail{number}:1:a", started_at=now, seen_at=now) for number in range(count)
        )


def test_failing_job_does_not_recruit_without_end(
    build: Callable[[], Application], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It always has more work, and fails at once: each registered process runs it once."""
    calls: list[int] = []

    def fail(_app: Application, _now: datetime) -> None:
        calls.append(1)
        raise ConnectionError("the relay is away")

    job = Job(fail, "0", FAR_HOUR, lane=Lane.SEND, is_shared=True, has_more=lambda *_: True)
    monkeypatch.setattr(schedule, "JOBS", (job,))
    apps = [build() for _ in range(2)]
    register(apps[0], 4)
    with ExitStack() as stack:
        started = [stack.enter_context(worker.running(app)) for app in apps]
        started[0].defer("fail")
        wait_until(lambda: len(calls) == 4)
        time.sleep(1)  # enough for hundreds
    assert len(calls) == 4


def test_job_with_more_work_recruits_other_processes(
    build: Callable[[], Application], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All three processes work at once."""
    meeting = threading.Barrier(3, timeout=PATIENCE)
    busy: list[Application] = []

    def share(app: Application, _now: datetime) -> None:
        if len(busy) < 3:
            busy.append(app)
            meeting.wait()

    def has_more(_app: Application, _now: datetime) -> bool:
        return len(busy) < 3

    job = Job(share, "0", FAR_HOUR, lane=Lane.SEND, is_shared=True, has_more=has_more)
    monkeypatch.setattr(schedule, "JOBS", (job,))
    apps = [build() for _ in range(3)]
    register(apps[0], 3)
    with ExitStack() as stack:
        started = [stack.enter_context(worker.running(app)) for app in apps]
        started[0].defer("share")
        wait_until(lambda: len(busy) == 3 and meeting.n_waiting == 0)
    assert {id(app) for app in busy} == {id(app) for app in apps}


def test_exclusive_job_runs_in_one_process_at_a_time(
    build: Callable[[], Application], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it runs, at most one more of it waits."""
    running, most, ended = [0], [0], threading.Event()

    def exclusive(_app: Application, _now: datetime) -> None:
        running[0] += 1
        most[0] = max(most[0], running[0])
        ended.wait(PATIENCE)
        running[0] -= 1

    monkeypatch.setattr(schedule, "JOBS", (Job(exclusive, "0", FAR_HOUR),))
    apps = [build() for _ in range(2)]
    with ExitStack() as stack:
        started = [stack.enter_context(worker.running(app)) for app in apps]
        started[0].defer("exclusive")
        wait_until(lambda: running[0])
        for each in (*started, *started):
            each.defer("exclusive")
        expected = [("exclusive", "doing", 0), ("exclusive", "todo", 0)]
        wait_until(lambda: sorted(statuses_of(apps[0])) == expected)
        ended.set()
        wait_until(lambda: statuses_of(apps[0]) == [])
    assert most == [1]


def test_failed_job_is_listed_for_the_operator(
    build: Callable[[], Application], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one runs all the same."""
    calls = []

    def fail_once(_app: Application, _now: datetime) -> None:
        calls.append(1)
        if len(calls) == 1:
            raise ConnectionError("the relay is away")

    monkeypatch.setattr(schedule, "JOBS", (Job(fail_once, "0", FAR_HOUR),))
    app = build()
    with worker.running(app) as started:
        started.defer("fail_once")
        wait_until(lambda: statuses_of(app) == [("fail_once", "failed", 1)])
        started.defer("fail_once")
        wait_until(lambda: len(calls) == 2)
    with app.db.read() as session:
        (count,) = worker_registry.job_counts(session)
    assert (count.job, count.state, count.count) == ("fail_once", "failed", 1)


HANGING = """
    import time
    from app import main
    from app.jobs import schedule, worker
    from app.jobs.schedule import Job

    def hang(_app, _now):
        time.sleep(seconds)

    schedule.JOBS = (Job(hang, "0", hour),)
    with worker.running(main.build(settings)) as running:
        running.defer("hang")
        time.sleep(seconds)
"""


def test_job_of_a_killed_process_is_rescued(
    build: Callable[[], Application],
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    processes: ForkServer,
) -> None:
    """Another process runs it, although nothing released its lock."""
    app, rescued = build(), threading.Event()
    process = processes.start(HANGING, settings=settings, hour=FAR_HOUR, seconds=PATIENCE)
    wait_until(lambda: statuses_of(app) == [("hang", "doing", 0)])
    process.kill()
    process.join()

    def hang(_app: Application, _now: datetime) -> None:
        rescued.set()

    monkeypatch.setattr(schedule, "JOBS", (Job(hang, "0", FAR_HOUR),))
    with worker.running(app) as started:
        while not rescued.wait(0.5):
            started.defer("rescue")
        wait_until(lambda: "hang" not in [name for name, *_ in statuses_of(app)])


def test_job_that_kills_processes_is_given_up(
    build: Callable[[], Application], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After two retries it has failed, so that it cannot kill all workers one after another."""

    def hang(_app: Application, _now: datetime) -> None:
        time.sleep(PATIENCE)

    monkeypatch.setattr(schedule, "JOBS", (Job(hang, "0", FAR_HOUR),))
    app = build()
    with app.db.write() as session:
        insert = """
            INSERT INTO procrastinate_jobs (queue_name, task_name, lock, queueing_lock, status, attempts)
            VALUES ('upkeep', 'hang', 'hang', 'hang', 'doing', 2)
        """
        session.execute(text(insert))
    with worker.running(app) as started:
        started.defer("rescue")
        wait_until(lambda: ("hang", "failed", 3) in statuses_of(app))


def test_job_of_a_killed_process_that_waits_already(
    build: Callable[[], Application], calls: list[int]
) -> None:
    """The stalled job is removed, because the waiting one does its work."""
    app = build()
    with app.db.write() as session:
        for status in ("doing", "todo"):
            insert = """
                INSERT INTO procrastinate_jobs (queue_name, task_name, lock, queueing_lock, status)
                VALUES ('upkeep', '<lambda>', 'lock', '<lambda>', CAST(:status AS procrastinate_job_status))
            """
            session.execute(text(insert), {"status": status})
    with worker.running(app) as started:
        started.defer("rescue")
        wait_until(lambda: calls)
        wait_until(lambda: statuses_of(app) == [])
    assert calls == [1]


@pytest.mark.parametrize("waits", [True, False], ids=["another waits", "none waits"])
def test_job_that_was_lost_is_run_once_more(
    build: Callable[[], Application], calls: list[int], waits: bool
) -> None:
    """A job that a living process took, but whose answer it never got, does not block the later ones."""
    app = build()
    with worker.running(app) as started:
        started.defer("<lambda>")
        wait_until(lambda: calls)
        wait_until(lambda: statuses_of(app) == [])
        calls.clear()
        with app.db.write() as session:
            insert = """
                INSERT INTO procrastinate_jobs (queue_name, task_name, lock, queueing_lock, status, worker_id)
                SELECT 'upkeep', '<lambda>', '<lambda>', '<lambda>', 'doing', max(id)
                FROM procrastinate_workers
            """
            session.execute(text(insert))
        if waits:
            started.defer("<lambda>")
        wait_until(lambda: calls)
        wait_until(lambda: statuses_of(app) == [])
    assert calls == [1]


def test_connection_lost_while_an_end_is_recorded(
    build: Callable[[], Application],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    calls: list[int],
) -> None:
    """The job is retried with one warning. asyncio does not log a traceback of procrastinate's task."""
    real, lost = JobManager.finish_job, list[str]()

    async def lose_once(manager: JobManager, job: StoredJob, *arguments: Any, **options: Any) -> None:
        if not lost and job.task_name == "<lambda>":  # not a periodic job that ends at this moment
            lost.append(job.task_name)
            raise ConnectorException from psycopg.OperationalError("the connection is closed")
        await real(manager, job, *arguments, **options)

    monkeypatch.setattr(JobManager, "finish_job", lose_once)
    app = build()
    with structlog.testing.capture_logs() as logged, worker.running(app) as started:
        started.defer("<lambda>")
        wait_until(lambda: len(calls) == 2)
        wait_until(lambda: statuses_of(app) == [])
    del started
    gc.collect()
    assert [each["event"] for each in logged if each["log_level"] == "warning"] == [
        "a job was lost with its connection; retrying it"
    ]
    assert [each.getMessage() for each in caplog.records if each.levelname == "ERROR"] == []


def test_job_that_takes_long_is_not_lost(
    build: Callable[[], Application], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs once, although it is recorded as running at each look for lost jobs."""
    calls: list[int] = []
    looks = 5

    def take_long(_app: Application, _now: datetime) -> None:
        calls.append(1)
        time.sleep(looks * worker.LOST_SECONDS)

    monkeypatch.setattr(worker, "LOST_SECONDS", 0.4)
    monkeypatch.setattr(schedule, "JOBS", (Job(take_long, "0", FAR_HOUR),))
    app = build()
    with worker.running(app) as started:
        started.defer("take_long")
        wait_until(lambda: calls)
        wait_until(lambda: statuses_of(app) == [])
    assert calls == [1]


def test_database_closes_all_connections(build: Callable[[], Application], calls: list[int]) -> None:
    """The worker connects again, and takes jobs again."""
    app = build()
    with worker.running(app) as started:
        started.defer("<lambda>")
        wait_until(lambda: calls)
        for _ in range(2):
            with app.db.read() as session:
                session.execute(text(CLOSE_CONNECTIONS))
            calls.clear()
            deadline = time.monotonic() + PATIENCE
            while not calls:
                assert time.monotonic() < deadline
                started.defer("<lambda>")
                time.sleep(0.1)


def test_outage_is_logged_once(
    build: Callable[[], Application],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    calls: list[int],
) -> None:
    """One line says that the database is unavailable, and one that it is back. There is no traceback."""
    away, failed = threading.Event(), list[str]()
    away.set()

    def fail_while_away(owner: type, name: str) -> None:
        real = getattr(owner, name)

        async def call(*arguments: Any, **options: Any) -> Any:
            if away.is_set():
                failed.append(name)
                raise ConnectorException from psycopg.OperationalError("connection refused")
            return await real(*arguments, **options)

        monkeypatch.setattr(owner, name, call)

    fail_while_away(PsycopgConnector, "listen_notify")
    fail_while_away(JobManager, "list_jobs_async")
    with structlog.testing.capture_logs() as logged, worker.running(build()) as started:
        wait_until(lambda: failed.count("listen_notify") > 3 and "list_jobs_async" in failed)
        away.clear()
        wait_until(lambda: logged[-1]["event"] == "the database is available again")
        started.defer("<lambda>")
        wait_until(lambda: calls)
    outage = [each for each in logged if "available" in each["event"]]
    assert [each["log_level"] for each in outage] == ["warning", "info"]
    assert outage[0]["error"] == "connection refused"
    assert [each.getMessage() for each in caplog.records if each.levelname == "ERROR"] == []


def test_stop_cancels_unfinished_defers(
    build: Callable[[], Application],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    calls: list[int],
) -> None:
    """A process that stops while it defers a job leaves no task behind. asyncio would log an error."""
    deferring = threading.Event()

    async def hang(*_: Any, **__: Any) -> None:
        deferring.set()
        await asyncio.sleep(PATIENCE)

    with worker.running(build()) as started:
        started.defer("<lambda>")
        wait_until(lambda: calls)
        monkeypatch.setattr(JobManager, "list_jobs_async", hang)
        started.defer("<lambda>")
        assert deferring.wait(PATIENCE)
    del started
    gc.collect()
    assert [each.getMessage() for each in caplog.records if each.levelname == "ERROR"] == []


@pytest.mark.parametrize(
    ("cause", "is_outage"),
    [
        (psycopg.OperationalError("connection refused"), True),
        (psycopg.errors.AdminShutdown("terminating connection"), True),
        (psycopg.InterfaceError("the connection is closed"), True),
        (psycopg.errors.ReadOnlySqlTransaction("cannot execute UPDATE in a read-only transaction"), True),
        (psycopg.errors.IdleInTransactionSessionTimeout("terminating connection"), True),
        (psycopg.errors.UndefinedFunction("procrastinate_fetch_job_v2"), False),
        (psycopg.errors.InsufficientPrivilege("procrastinate_jobs"), False),
    ],
)
def test_not_every_error_of_the_database_is_an_outage(cause: psycopg.Error, is_outage: bool) -> None:
    """procrastinate wraps all of them. Those that do not pass must be logged each time."""
    wrapped = ConnectorException()
    wrapped.__cause__ = cause
    assert worker._is_outage(wrapped) is is_outage
    assert worker._is_outage(cause) is is_outage


def test_read_only_database(
    build: Callable[[], Application],
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    calls: list[int],
) -> None:
    """The worker waits as in any outage, and replaces its connections, which would remain read-only."""
    drain, pools = AsyncConnectionPool.drain, list[AsyncConnectionPool]()

    async def count_and_drain(pool: AsyncConnectionPool) -> None:
        pools.append(pool)
        await drain(pool)

    monkeypatch.setattr(AsyncConnectionPool, "drain", count_and_drain)
    set_for_database(settings.database_url, "default_transaction_read_only", "on")
    with structlog.testing.capture_logs() as logged, worker.running(build()) as started:
        wait_until(lambda: len(pools) > 2)
        assert [each["event"] for each in logged] == ["the database is unavailable; trying again"]
        set_for_database(settings.database_url, "default_transaction_read_only", "off")
        wait_until(lambda: logged[-1]["event"] == "the database is available again")
        started.defer("<lambda>")
        wait_until(lambda: calls)


def test_database_unreachable_while_the_pool_opens(
    build: Callable[[], Application], monkeypatch: pytest.MonkeyPatch, calls: list[int]
) -> None:
    """The worker opens a new pool: psycopg closes the first one after its time-out."""
    real, pools = AsyncConnectionPool.open, list[AsyncConnectionPool]()

    async def open_late(pool: AsyncConnectionPool, wait: bool = False) -> None:
        pools.append(pool)
        if len(pools) == 1:
            pool.conninfo, pool.kwargs = "host=127.0.0.1 port=1", {}
        await real(pool, wait=wait, timeout=1.0 if len(pools) == 1 else PATIENCE)

    monkeypatch.setattr(AsyncConnectionPool, "open", open_late)
    with worker.running(build()) as started:
        wait_until(lambda: len(pools) > 1)
        started.defer("<lambda>")
        wait_until(lambda: calls)


def test_lost_cancellation(build: Callable[[], Application], monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker stops, although a lane that it cancelled goes on."""
    register, registering = JobManager.register_worker, threading.Event()

    async def register_late(manager: JobManager) -> int:
        if not registering.is_set():
            registering.set()
            with suppress(asyncio.CancelledError):  # as a wait does that ends in the same step
                await asyncio.sleep(PATIENCE)
        return await register(manager)

    monkeypatch.setattr(JobManager, "register_worker", register_late)
    with worker.running(build()):
        assert registering.wait(PATIENCE)


def test_database_away_at_start(settings: Settings, tmp_path: Path) -> None:
    """The worker can be stopped while it tries to connect."""
    away = settings.model_copy(update={"database_url": "postgresql+psycopg://nobody@127.0.0.1:1/none"})
    app = main.build(away)
    with worker.running(app):
        pass
    app.db.dispose()


def test_stop_after_the_lanes_have_ended(build: Callable[[], Application]) -> None:
    """A signal sets `stopping` before `stop` is called. The event loop may be closed by then."""
    app = build()
    app.stopping.set()
    with worker.running(app) as started:
        wait_until(started._loop.is_closed)
