"""Simulate a distant relay: delay the traffic in each direction by half a round trip."""

import asyncio
import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.postfix_tools import await_port, free_port


@contextmanager
def relay(port: int, round_trip: float) -> Iterator[int]:
    """Yield a port that forwards to `port` with a round trip of `round_trip` seconds."""
    near = free_port()
    run = multiprocessing.get_context("fork").Process(
        target=_run, args=(near, port, round_trip / 2), daemon=True
    )
    run.start()
    try:
        await_port(near, run.is_alive)
        yield near
    finally:
        run.kill()
        run.join()


def _run(near: int, far: int, delay: float) -> None:
    async def serve() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _NearEnd(far, delay), "127.0.0.1", near, backlog=100)
        await server.serve_forever()

    asyncio.run(serve())


class _End(asyncio.Protocol):
    """One end of a connection. It forwards data after a delay, once the other end is connected."""

    def __init__(self, delay: float) -> None:
        self._delay = delay
        self._loop = asyncio.get_running_loop()
        self.other: asyncio.Future[asyncio.WriteTransport] = self._loop.create_future()

    def data_received(self, data: bytes) -> None:
        self._loop.call_later(self._delay, self._forward, data)

    def eof_received(self) -> bool:
        self._loop.call_later(self._delay, self._forward, b"")
        return True

    def connection_lost(self, _: Exception | None) -> None:
        self._loop.call_later(self._delay, self._forward, b"")

    def _forward(self, data: bytes) -> None:
        if not self.other.done():
            self.other.add_done_callback(lambda _: self._forward(data))
        elif data:
            self.other.result().write(data)
        else:
            self.other.result().close()


class _NearEnd(_End):
    def __init__(self, far: int, delay: float) -> None:
        super().__init__(delay)
        self._far = far

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._opening = self._loop.create_task(self._open(transport))

    async def _open(self, transport: asyncio.BaseTransport) -> None:
        back = _End(self._delay)
        back.other.set_result(transport)  # type: ignore[arg-type]
        onward, _ = await self._loop.create_connection(lambda: back, "127.0.0.1", self._far)
        self.other.set_result(onward)
