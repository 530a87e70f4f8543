"""Run asynchronous work that ends at a deadline or when the service stops."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from functools import partial
from threading import Event, Thread
from time import monotonic
from typing import Any, TypeVar

from app.errors import Stopping

TICK = 0.2  # how often to check whether the service is stopping, in seconds

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on its own event loop, like `asyncio.run`."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(work)


async def wait_for(work: Awaitable[T], seconds: float, stopping: Event) -> T:
    """Return the result of `work`. Raise TimeoutError after `seconds`, or Stopping when the service stops.

    In both cases, `work` is cancelled.
    """
    task = asyncio.ensure_future(work)
    deadline = monotonic() + seconds
    try:
        while not task.done():
            if stopping.is_set():
                raise Stopping
            if (left := deadline - monotonic()) <= 0:
                raise TimeoutError
            await asyncio.wait({task}, timeout=min(left, TICK))
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def in_thread(work: Callable[[], T]) -> T:
    """Run `work` in a thread and return its result. The thread is abandoned if the caller is cancelled.

    Use `in_thread` for long work that cannot be interrupted and has no side effects. A thread started by
    `asyncio.to_thread` is not abandoned: `asyncio.run` waits for it to end.
    """
    future: Future[T] = Future()

    def run_work() -> None:
        with suppress(InvalidStateError):  # the caller has been cancelled
            try:
                future.set_result(work())
            except Exception as error:
                future.set_exception(error)

    Thread(target=run_work, name="abandonable", daemon=True).start()
    return await asyncio.wrap_future(future)


class _Loop(asyncio.SelectorEventLoop):
    """An event loop that closes without waiting for pending name resolution.

    The resolver of the operating system can take half a minute to give up.
    """

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        return await in_thread(partial(socket.getaddrinfo, host, port, **options))
