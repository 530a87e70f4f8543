"""Senders as processes of their own. A test kills them, or they kill themselves at a named place."""

import functools
import importlib
import inspect
import itertools
import os
import resource
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any

from apscheduler.schedulers.background import BackgroundScheduler

from app import main, pipeline
from app.application import Application
from app.cli import serve, worker
from app.settings import Settings
from tests.support import fork_server

POLLING = ("refresh", "recheck")
PATIENCE = 30.0  # seconds that a test waits for something that should happen at once

_SENDING_PATH = tuple(
    str(Path(main.__file__).parent / name)
    for name in (
        "delivery/ledger",
        "delivery/journal.py",
        "delivery/sender.py",
        "delivery/smtp/connection.py",
        "delivery/smtp/connection_pool.py",
        "delivery/smtp/handshake.py",
        "pipeline.py",
    )
)

Starter = Callable[..., "Sender"]


@dataclass(frozen=True)
class Death:
    """`kill -9` of the own process, right before or after the n-th call of a function."""

    at: str  # "app.module:Class.function"
    when: str = "before"  # or "after"
    call: int = 1


@dataclass(frozen=True)
class Order:
    """The task of a sender. `constants` are set before it begins: "app.module:NAME"."""

    settings: Settings
    now: datetime
    dies: Death | None = None
    dies_at_line: int | None = None  # after this many lines of the code that sends
    constants: dict[str, Any] = field(default_factory=dict)
    largest_file: int | None = None  # bytes
    verb: str = "send_now"  # of the pipeline
    clock_ahead: timedelta = timedelta()  # the error of the sender's clock
    planning_takes: timedelta = timedelta()  # by how much its clock and the database's have jumped then
    database_clock_ahead: timedelta | None = None  # as seen by the sender
    works: bool = False  # like `paperboy worker`, with a job right now, until it is told to stop
    serves: bool = False  # the same for `paperboy serve`, with the scheduler on


class Sender:
    """One sender process. It ends at the end of the test."""

    def __init__(self, order: Order) -> None:
        self._results, child_end = fork_server.context.Pipe(duplex=False)
        self.process = fork_server.context.Process(target=_run, args=(order, child_end), daemon=True)
        self.process.start()
        child_end.close()

    def kill(self) -> None:
        """`kill -9` and wait for the end; do nothing if the process has ended."""
        self.process.kill()
        self.process.join(PATIENCE)
        assert self.process.exitcode is not None

    def is_ended_by_sigterm(self) -> bool:
        """Send SIGTERM and wait for the end. Return False if the process failed. uvicorn sends it again."""
        self.ask_to_end()
        self.process.join(PATIENCE)
        return self.process.exitcode in (0, -signal.SIGTERM)

    def ask_to_end(self) -> None:
        """Send SIGTERM."""
        self.process.terminate()

    def is_killed_within(self, seconds: float) -> bool:
        """Kill it after some seconds; return False if it ended before."""
        self.process.join(seconds)
        self.kill()
        return self.process.exitcode == -signal.SIGKILL

    def dies(self) -> None:
        """Wait until it has killed itself."""
        self.process.join(PATIENCE)
        assert self.process.exitcode == -signal.SIGKILL

    def counts(self, patience: float = PATIENCE) -> dict[str, int]:
        """Wait for its successful end; return what it counted."""
        result = self._wait_for_result(patience)
        assert isinstance(result, dict), result
        return result

    def error(self, patience: float = PATIENCE) -> str:
        """Wait for its end with an error; return the error."""
        result = self._wait_for_result(patience)
        assert isinstance(result, str), result
        return result

    def _wait_for_result(self, patience: float) -> dict[str, int] | str:
        assert self._results.poll(patience), "the sender did not end"
        try:
            result: dict[str, int] | str = self._results.recv()
        finally:
            self.process.join(PATIENCE)
        return result


@contextmanager
def starter(settings: Settings) -> Iterator[Starter]:
    """Yield a function that starts a sender; end all senders at the end of the block."""
    senders: list[Sender] = []

    def start(now: datetime, **how: Any) -> Sender:
        own = how.pop("settings", {})
        order = Order(settings.model_copy(update=own), now, **how)
        senders.append(Sender(order))
        return senders[-1]

    yield start
    for sender in senders:
        sender.kill()


# --- in the process


def _run(order: Order, connection: Connection) -> None:
    if order.largest_file:
        resource.setrlimit(resource.RLIMIT_FSIZE, (order.largest_file, order.largest_file))
    _set_clocks(order)
    for place, value in order.constants.items():
        _replace(place, lambda _, value=value: value)
    if order.dies:
        _replace(order.dies.at, functools.partial(_deadly, order.dies))
    if order.dies_at_line is not None:
        _die_at_line(order.dies_at_line)
    try:
        connection.send(_work(order) if order.works or order.serves else _send(order))
    except Exception as error:
        connection.send(f"{type(error).__name__}: {error}")


def _send(order: Order) -> dict[str, int]:
    app = main.build(order.settings)
    try:
        result = getattr(pipeline, order.verb)(app, order.now + order.clock_ahead)
        return dict(result) if isinstance(result, Counter) else {}
    finally:
        app.db.dispose()


def _set_clocks(order: Order) -> None:
    ahead = [order.clock_ahead]

    def take_long(plan: Callable[..., Any]) -> Callable[..., Any]:
        def planning(*args: Any) -> Any:
            ahead.append(order.planning_takes)
            return plan(*args)

        return planning

    _replace("app.clock:system_time", lambda right: lambda: right() + sum(ahead, timedelta()))
    if order.planning_takes:
        _replace("app.digests.planning:plan", take_long)
        _replace("app.storage.database:Database.skew", lambda _: lambda _self: timedelta())
    if (seen := order.database_clock_ahead) is not None:
        _replace("app.storage.database:Database.skew", lambda _: lambda _self: seen)


def _work(order: Order) -> dict[str, int]:
    """Run the command, with the scheduled job at once instead of at the next full minute.

    Jobs that poll sources are left out.
    """
    _replace(
        "app.jobs.schedule:JOBS", lambda all_jobs: tuple(job for job in all_jobs if job.name not in POLLING)
    )
    _replace("app.clock:utcnow", lambda _: _Clock(order.now))
    _replace("app.jobs.scheduler:running", _hurry)
    _replace("app.jobs.worker:running", _hurry)
    os.environ.update(_environment(order.settings))
    if order.works:
        worker.worker()
    else:
        os.environ["PAPERBOY_SCHEDULER"] = "true"
        serve.serve(host="127.0.0.1", port=0)
    return {}


class _Clock:
    """A clock that starts at a given time."""

    def __init__(self, at: datetime) -> None:
        self._ahead = at - datetime.now(UTC)

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self._ahead


def _hurry(running: Callable[..., Any]) -> Callable[..., Any]:
    @contextmanager
    def hurried(app: Application) -> Iterator[Any]:
        with running(app) as engine:
            if isinstance(engine, BackgroundScheduler):
                engine.modify_job("send", next_run_time=datetime.now(UTC))
            else:
                engine.defer("send")
            yield engine

    return hurried


def _environment(settings: Settings) -> dict[str, str]:
    def written(value: object) -> str:
        return ",".join(value) if isinstance(value, tuple) else "" if value is None else str(value)

    return {f"PAPERBOY_{name.upper()}": written(value) for name, value in settings.model_dump().items()}


def _replace(place: str, change: Callable[[Any], Any]) -> None:
    module, _, path = place.partition(":")
    *owners, name = path.split(".")
    owner = functools.reduce(getattr, owners, importlib.import_module(module))
    setattr(owner, name, change(getattr(owner, name)))


def _deadly(death: Death, function: Callable[..., Any]) -> Callable[..., Any]:
    calls = itertools.count(1)

    def pass_by(when: str, call: int) -> None:
        if (when, call) == (death.when, death.call):
            os.kill(os.getpid(), signal.SIGKILL)

    if inspect.iscoroutinefunction(function):

        async def deadly_later(*args: Any, **kwargs: Any) -> Any:
            pass_by("before", call := next(calls))
            result = await function(*args, **kwargs)
            pass_by("after", call)
            return result

        return deadly_later

    def deadly(*args: Any, **kwargs: Any) -> Any:
        pass_by("before", call := next(calls))
        result = function(*args, **kwargs)
        pass_by("after", call)
        return result

    return deadly


def _die_at_line(number: int) -> None:
    """Count the executed lines of the sending path, in all threads, and die at line `number`."""
    lines = itertools.count(1)

    def at_line(_frame: FrameType, event: str, _arg: object) -> Any:
        if event == "line" and next(lines) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return at_line

    def at_call(frame: FrameType, _event: str, _arg: object) -> Any:
        return at_line if frame.f_code.co_filename.startswith(_SENDING_PATH) else None

    threading.settrace(at_call)
    sys.settrace(at_call)
