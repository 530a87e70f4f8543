"""Run asynchronous work that ends in time: at its deadline, and when the service stops."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from threading import Event, Thread
from time import monotonic
from typing import Any, TypeVar, cast

from app.errors import Stopping

TICK = 0.2  # seconds until it is noticed that the service stops

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on an event loop of its own, as `asyncio.run` does."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(work)


async def wait_for(work: Awaitable[T], seconds: float, stopping: Event) -> T:
    """Return what `work` returns. Raise TimeoutError after `seconds`, Stopping when the service stops."""
    task = asyncio.ensure_future(work)
    ends = monotonic() + seconds
    try:
        while not task.done():
            if stopping.is_set():
                raise Stopping
            if (left := ends - monotonic()) <= 0:
                raise TimeoutError
            await asyncio.wait({task}, timeout=min(left, TICK))
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def in_thread(work: Callable[[], T]) -> T:
    """Return what `work` returns. Its thread is left behind when the caller is cancelled.

    `asyncio.run` waits at its end for the threads of `asyncio.to_thread`. Use this one for work that takes
    long, cannot be interrupted and changes nothing.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: Exception | None) -> None:
        if answer.cancelled():
            return
        if error:
            answer.set_exception(error)
        else:
            answer.set_result(cast("T", result))

    def run_work() -> None:
        result, fault = None, None
        try:
            result = work()
        except Exception as error:
            fault = error
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(settle, result, fault)

    Thread(target=run_work, name="abandonable", daemon=True).start()
    return await answer


class _Loop(asyncio.SelectorEventLoop):
    """An event loop that does not wait at its end for names that are still being resolved.

    The resolver of the operating system takes half a minute to give up.
    """

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        return await in_thread(partial(socket.getaddrinfo, host, port, **options))
