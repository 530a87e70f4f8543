"""Run the jobs on PostgreSQL, shared among all processes. No other file uses procrastinate.

Every process defers each job at its scheduled times. The database keeps only the first copy and notifies the
processes, and one process runs the job. A process that finds more work than it can do alone defers the same
job again. This happens at most once per other process, so that a job that fails at once is not repeated
endlessly.

A job does not refer to particular emails: the ledger and the other tables determine what is left to do. So a
job may be lost or run twice. If a process dies and its heartbeats stop, another process retries its jobs.
If a connection breaks while a job is being fetched or its end is being recorded, the process itself retries
the job.
"""

from __future__ import annotations

import asyncio
import logging
from cmd import Cmd
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from threading import Thread
from typing import Any

import procrastinate
import structlog
from procrastinate import utils
from procrastinate.exceptions import AlreadyEnqueued, ConnectorException, UniqueViolation
from procrastinate.job_context import JobContext
from procrastinate.jobs import DeleteJobCondition, Status
from procrastinate.jobs import Job as StoredJob
from procrastinate.manager import JobManager
from procrastinate.periodic import PeriodicDeferrer, TaskAtTime
from procrastinate.shell import ProcrastinateShell
from procrastinate.worker import Worker as ProcrastinateWorker
from psycopg import AsyncConnection, InterfaceError, OperationalError
from psycopg import Error as PostgresError
from sqlalchemy.engine import URL

from app import clock
from app.application import Application
from app.errors import InvalidInput
from app.jobs import schedule
from app.jobs.schedule import Job, Lane
from app.storage import worker_registry
from app.storage.database import SESSION_SETTINGS
from app.storage.database_errors import is_read_only, is_temporary
from app.text.in_words import sentence

UPKEEP_JOBS = 4  # jobs of the upkeep lane that a process runs in parallel
# The interval of a lane's heartbeats, and the time without a heartbeat after which a lane counts as stalled.
HEARTBEAT_SECONDS, STALLED_SECONDS = 10.0, 30.0
MAX_RETRIES = 2  # of a job whose process died
KEEP_FAILED_HOURS = 24
FALLBACK_SECONDS = 5.0  # between queries for jobs, because a notification can be missed and retries send none
RESTART_SECONDS = 5.0  # after a lane has lost the database
STOP_AGAIN_SECONDS = 1.0  # between requests to a lane to stop
LOST_SECONDS = 15.0  # a job that is wrongly recorded as running here is retried after one or two periods
CONNECTIONS = 4  # besides one for the notifications of each lane

log = structlog.get_logger(__name__)
_LOGGERS = [
    logging.getLogger(f"procrastinate.{name}")
    for name in ("utils", "worker", *(f"worker.{lane.value}" for lane in Lane))
]


@contextmanager
def running(app: Application) -> Iterator[Worker]:
    """Take part in running the jobs during the block. At its end, wait for the running jobs."""
    worker = Worker(app)
    worker.start()
    try:
        yield worker
    finally:
        worker.stop()


class Deferrer(PeriodicDeferrer):
    """procrastinate's deferrer of jobs at their scheduled times, made independent of jumps of the clock.

    procrastinate defers a job once for each of its times since the last one. If the clock were set back, it
    would defer none until the clock has caught up. After a jump ahead, for example because the machine was
    suspended, it would defer one job after another for every minute in between.
    """

    def get_previous_tasks(self, at: float) -> Iterable[TaskAtTime]:
        """Forget last times in the future or more than `max_delay` ago: only the latest time counts then."""
        earliest = at - self.max_delay
        self.last_defers = {key: last for key, last in self.last_defers.items() if earliest <= last <= at}
        return super().get_previous_tasks(at)


class LaneWorker(ProcrastinateWorker):
    """procrastinate's worker, with our `Deferrer`, which tolerates jumps of the clock."""

    async def _periodic_deferrer(self) -> None:
        await Deferrer(self.app.periodic_registry, **self.app.periodic_defaults).worker()


class Worker:
    """The lanes of one process. They share a thread with an event loop, and the jobs run in other threads."""

    def __init__(self, app: Application) -> None:
        self._app, self._loop = app, asyncio.new_event_loop()
        self._loop.set_exception_handler(self._log_unless_outage)
        self._loop.set_default_executor(ThreadPoolExecutor(len(Lane) + UPKEEP_JOBS, "job"))
        self._connector = _connector(app.db.url)
        self._engines = {lane: procrastinate.App(connector=self._connector) for lane in Lane}
        self._lanes: dict[Lane, LaneWorker] = {}
        self._running_jobs: set[int | None] = set()
        self._is_available = True  # whether the last query of the database succeeded
        self._tasks = {job.name: self._add(job) for job in schedule.JOBS}
        # Without a lock: if the process that holds the lock died, no other process could rescue the jobs.
        self._tasks["rescue"] = self._add_periodic(self._rescue, "rescue", "* * * * *", Lane.UPKEEP)
        self._tasks["forget"] = self._add_periodic(self._forget, "forget", "7 * * * *", Lane.UPKEEP)
        self._running = self._loop.create_task(self._work())
        self._thread = Thread(target=self._run, name="worker", daemon=True)

    def start(self) -> None:
        """Start taking jobs as soon as the database is reachable."""
        self._app.on_batch_planned.append(self._send_soon)
        self._thread.start()

    def stop(self) -> None:
        """Take no more jobs, and wait for the running jobs."""
        self._app.stopping.set()
        self._call_soon(self._running.cancel)
        self._thread.join(STOP_AGAIN_SECONDS)
        while self._thread.is_alive():
            # A cancellation is lost if the awaited operation ends in the same step of the event loop.
            self._call_soon(self._stop_lanes)
            self._thread.join(STOP_AGAIN_SECONDS)
        self._app.on_batch_planned.clear()

    def _call_soon(self, function: Callable[[], object]) -> None:
        """Call a function in the event loop, unless the loop is closed because all lanes have ended."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function)

    def _stop_lanes(self) -> None:
        for lane in self._lanes.values():
            lane.stop()  # type: ignore[no-untyped-call]

    def defer(self, name: str, recruits: int = 0) -> None:
        """Have a process run a job now, unless the job is already waiting. May be called from any thread.

        `recruits` is the number of processes recruited for the job so far, including this one.
        """
        asyncio.run_coroutine_threadsafe(self._defer(name, recruits), self._loop)

    def _send_soon(self) -> None:
        self.defer("send")

    # --- tasks

    def _add(self, job: Job) -> Any:
        def work(timestamp: int = 0, recruits: int = 0) -> None:
            now = clock.utcnow()
            if job.has_more and self._has_spare_process(recruits) and job.has_more(self._app, now):
                self.defer(job.name, recruits + 1)
            schedule.run(self._app, job, now)

        lock = None if job.is_shared else job.name
        cron = f"{job.minute} {job.hour} * * *"
        return self._add_periodic(work, job.name, cron, job.lane, lock)

    def _has_spare_process(self, recruits: int) -> bool:
        """Return whether any registered process has not been recruited for a job yet."""
        with self._app.db.read() as session:
            alive = [status for status in worker_registry.statuses(session) if not status.lost]
        return recruits + 1 < len(alive)

    def _add_periodic(
        self, work: Callable[..., Any], name: str, cron: str, lane: Lane, lock: str | None = None
    ) -> Any:
        """Add a task that runs at its scheduled times. At most one run is waiting at any time."""
        engine = self._engines[lane]
        task = engine.task(name=name, queue=lane.value, lock=lock, queueing_lock=name)(work)
        return engine.periodic(cron=cron)(task)

    async def _defer(self, name: str, recruits: int) -> None:
        """Defer a job. If this fails, the job still runs at its next time."""
        task = self._tasks[name]
        try:
            # Check first, because PostgreSQL would log an error for each duplicate.
            if not await task.blueprint.job_manager.list_jobs_async(queueing_lock=name, status="todo"):
                await task.defer_async(**({"recruits": recruits} if recruits else {}))
        except AlreadyEnqueued:
            pass
        except (ConnectorException, PostgresError) as error:
            log.warning("could not defer a job; it runs at its next time", job=name, error=str(error))

    async def _rescue(self, timestamp: int = 0) -> None:
        """Retry the jobs of processes that died. Give up on a job that may have killed its processes."""
        manager = self._engines[Lane.UPKEEP].job_manager
        for job in await manager.get_stalled_jobs(seconds_since_heartbeat=STALLED_SECONDS):
            log.warning("a process died while it ran a job", job=job.task_name, attempts=job.attempts)
            with _suppress_rescued(job.task_name):
                if job.attempts >= MAX_RETRIES:
                    await manager.finish_job(job, Status.FAILED, delete_job=False)
                else:
                    await _retry(manager, job)

    async def _forget(self, timestamp: int = 0) -> None:
        """Delete failed jobs after a day. `job_runs` keeps a record of them."""
        manager = self._engines[Lane.UPKEEP].job_manager
        await manager.delete_old_jobs(
            KEEP_FAILED_HOURS, include_failed=True, include_cancelled=True, include_aborted=True
        )

    # --- the thread

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        for logger in _LOGGERS:
            logger.addFilter(self._replace_tracebacks)
        try:
            with suppress(asyncio.CancelledError):
                self._loop.run_until_complete(self._running)
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            # Jobs that ended while the process stopped may still be deferring others.
            unfinished = asyncio.all_tasks(self._loop)
            for task in unfinished:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*unfinished, return_exceptions=True))
        finally:
            self._loop.close()
            for logger in _LOGGERS:
                logger.removeFilter(self._replace_tracebacks)

    def _replace_tracebacks(self, record: logging.LogRecord) -> bool:
        """Log one warning instead of procrastinate's tracebacks about a lost connection. A logging filter."""
        error = record.exc_info[1] if record.exc_info else None
        if not (isinstance(error, ConnectorException) and _is_outage(error)):
            return True
        self._note_error(error)
        return False

    def _log_unless_outage(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log an error of a task that nothing awaits, such as procrastinate's tasks that run the jobs.

        If the connection was lost while the end of a job was being recorded, `_retry_lost_jobs` logs that.
        """
        error = context.get("exception")
        if not (isinstance(error, (ConnectorException, PostgresError)) and _is_outage(error)):
            loop.default_exception_handler(context)

    def _note_error(self, error: Exception) -> None:
        """Log once that the database is unavailable. Log every other database error."""
        if not _is_outage(error):
            log.error("the database reports an error", error=str(error.__cause__ or error))
        elif self._is_available:
            self._is_available = False
            log.warning("the database is unavailable; trying again", error=str(error.__cause__ or error))

    def _note_success(self) -> None:
        """Log once that the database is available again."""
        if not self._is_available:
            self._is_available = True
            log.info("the database is available again")

    async def _work(self) -> None:
        try:
            await self._connect()
            async with asyncio.TaskGroup() as group:
                for lane in Lane:
                    group.create_task(self._run_lane(lane))
                group.create_task(self._retry_lost_jobs())
        finally:
            await self._connector.close_async()

    async def _connect(self) -> None:
        """Open the pool of connections. Try again until the database is reachable."""
        while not self._app.stopping.is_set():
            try:
                await self._connector.open_async()
            except (ConnectorException, PostgresError) as error:
                self._note_error(error)
                await self._connector.close_async()  # psycopg closed the pool for good
                await asyncio.sleep(RESTART_SECONDS)
            else:
                self._note_success()
                return

    async def _run_lane(self, lane: Lane) -> None:
        """Run the jobs of a lane until the process stops. Restart a lane that lost the database."""
        while not self._app.stopping.is_set():
            try:
                self._lanes[lane] = LaneWorker(
                    self._engines[lane],
                    queues=[lane.value],
                    concurrency=UPKEEP_JOBS if lane is Lane.UPKEEP else 1,
                    name=lane.value,
                    fetch_job_polling_interval=FALLBACK_SECONDS,
                    delete_jobs=DeleteJobCondition.SUCCESSFUL,
                    update_heartbeat_interval=HEARTBEAT_SECONDS,
                    abort_job_polling_interval=FALLBACK_SECONDS,
                    stalled_worker_timeout=STALLED_SECONDS,
                    install_signal_handlers=False,
                    worker_middleware=[self._note_running],
                )
                await self._lanes[lane].run()  # type: ignore[no-untyped-call]  # procrastinate's `run` has no types
            except (ConnectorException, PostgresError) as error:
                self._note_error(error)
            except Exception:
                log.exception("a lane failed; restarting it", lane=lane.value)
            if not self._app.stopping.is_set():
                await asyncio.sleep(RESTART_SECONDS)

    async def _note_running(
        self, work: Callable[[], Awaitable[Any]], context: JobContext, _lane: ProcrastinateWorker
    ) -> Any:
        """Run a job, and record its id while it runs, because procrastinate does not list running jobs."""
        self._running_jobs.add(context.job.id)
        try:
            return await work()
        finally:
            self._running_jobs.discard(context.job.id)

    async def _retry_lost_jobs(self) -> None:
        """Retry jobs that the database records as running in this process although they are not running.

        If the connection breaks while a job is being fetched or its end is being recorded, the database's
        reply is lost. Without this retry, the job would block all later jobs of its name, because its process
        still sends heartbeats.
        """
        missing: set[int | None] = set()
        while not self._app.stopping.is_set():
            await asyncio.sleep(LOST_SECONDS)
            manager = self._engines[Lane.UPKEEP].job_manager
            try:
                # Unlike the query below, this fails in a read-only database.
                await self._connector.execute_query_async("DELETE FROM procrastinate_jobs WHERE false")
                lanes = {lane.worker_id for lane in self._lanes.values()} - {None}  # None: restarting
                recorded = await manager.list_jobs_async(status=Status.DOING.value)
                self._note_success()
                lost = [
                    job for job in recorded if job.worker_id in lanes and job.id not in self._running_jobs
                ]
                for job in lost:
                    if job.id in missing:
                        log.warning("a job was lost with its connection; retrying it", job=job.task_name)
                        with _suppress_rescued(job.task_name):
                            await _retry(manager, job)
                missing = {job.id for job in lost}
            except (ConnectorException, PostgresError) as error:
                self._note_error(error)
                if is_read_only(error.__cause__ or error):  # these connections may remain so
                    await self._connector.pool.drain()
            except Exception:
                log.exception("could not look for lost jobs; trying again")  # the lanes continue


def _is_outage(error: Exception) -> bool:
    """Return whether the database is unavailable. procrastinate wraps all errors of the database."""
    cause = error.__cause__ or error
    return isinstance(cause, (OperationalError, InterfaceError)) or is_temporary(cause)


async def _retry(manager: JobManager, job: StoredJob) -> None:
    """Let a job run once more, unless the same job is already waiting."""
    try:
        await manager.retry_job(job)
    except UniqueViolation:
        await manager.finish_job(job, Status.FAILED, delete_job=True)


@contextmanager
def _suppress_rescued(job: str) -> Iterator[None]:
    """Suppress the error raised if another process has rescued a job, or if the job has ended after all."""
    try:
        yield
    except ConnectorException as error:
        log.info("a job needs no rescue", job=job, error=str(error))


class JobShell(ProcrastinateShell):
    """procrastinate's shell, with errors of one line instead of tracebacks."""

    def read_commands(self) -> None:
        """Run commands from the terminal until `exit`. Print errors and continue."""
        while True:
            try:
                return self.cmdloop()
            except InvalidInput as error:
                print(sentence(str(error)), file=self.stdout)
                self.intro = ""  # print the introduction only once

    def onecmd(self, line: str) -> bool:
        """Run a command, and return whether it ends the shell. Raise InvalidInput if the command fails."""
        try:
            return bool(Cmd.onecmd(self, line))  # procrastinate's method prints a traceback
        except ConnectorException as error:
            reason = str(error.__cause__ or error).partition("\n")[0]
        except TypeError:
            reason = "there is no such filter"
        except ValueError:  # the argument is not a number, or no job has this number
            reason = "there is no job with this number"
        raise InvalidInput(f"“{line}” failed: {reason}. For help, run “help {line.split()[0]}”")

    def default(self, line: str) -> None:
        """Raise InvalidInput, because the command is unknown."""
        raise InvalidInput(f"there is no command “{line}”: run “help” to list all commands")


def open_shell(app: Application, command: str) -> None:
    """Run one command in procrastinate's shell. If `command` is empty, read commands from the terminal.

    Raise InvalidInput if the one command fails.
    """

    async def run() -> None:
        engine = procrastinate.App(connector=_connector(app.db.url))
        async with engine.open_async():
            shell = JobShell(engine.job_manager)
            await (
                utils.sync_to_async(shell.onecmd, command)
                if command
                else utils.sync_to_async(shell.read_commands)
            )

    asyncio.run(run())


def _connector(url: URL) -> procrastinate.PsycopgConnector:
    conninfo = url.set(drivername="postgresql").render_as_string(hide_password=False)
    return procrastinate.PsycopgConnector(
        conninfo=conninfo, min_size=1, max_size=CONNECTIONS, configure=_configure
    )


async def _configure(connection: AsyncConnection) -> None:
    await connection.execute(SESSION_SETTINGS)
    await connection.commit()
