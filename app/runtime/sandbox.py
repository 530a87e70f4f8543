"""Run a parser in a child process with limits on CPU time and memory.

The sandbox is for untrusted input and for libraries that may take more than linear time. A child that exceeds
a limit is killed, which does not affect other processes. The sandbox protects resources, not secrets: the
child runs our own code, although without our environment variables.

Children are started on demand and reused. A child exits when its parent does, because that closes its pipe.
"""

from __future__ import annotations

import atexit
import math
import os
import pickle
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from threading import BoundedSemaphore, Lock
from typing import IO, Any, ParamSpec, TypeVar, cast

from app.errors import ParsingTooExpensive

CHILDREN = 2  # at most; a file that takes all of its time occupies one of them
SECONDS = 10  # of CPU time; a real feed of 2,000 entries takes 3
MEGABYTES = 600
WALL_SECONDS_PER_CPU_SECOND = 4  # the machine may be busy
START_SECONDS = 30  # to wait until a child is ready, on a busy machine
_SIZE = 8  # bytes in the length prefix of each message

Params = ParamSpec("Params")
Result = TypeVar("Result")


def run(function: Callable[Params, Result], /, *args: Params.args, **options: Params.kwargs) -> Result:
    """Call a module-level function in a child process. Return its result, or raise its exception.

    Raise ParsingTooExpensive if the call exceeds SECONDS or MEGABYTES, if its result cannot be pickled, or if
    no child is ready in time.
    """
    return _pool.run(function, args, options)  # type: ignore[no-any-return]


class _Pool:
    """A pool of at most CHILDREN children. Each runs one call at a time."""

    def __init__(self) -> None:
        self._free, self._lock = BoundedSemaphore(CHILDREN), Lock()
        self._idle: list[_Child] = []
        self._closing = False  # True once `close` is registered

    def run(self, function: Callable[..., Any], args: Any, options: Any) -> Any:
        if not self._free.acquire(timeout=SECONDS * WALL_SECONDS_PER_CPU_SECOND):
            raise ParsingTooExpensive("Too many files are being read at the moment: please try again later.")
        try:
            message = pickle.dumps((SECONDS, function, args, options))
            child = self._take()
            try:
                succeeded, result = child.ask(message)
                if isinstance(result, ParsingTooExpensive):
                    raise result
            except BaseException:
                child.end()
                raise
            with self._lock:
                self._idle.append(child)
        finally:
            self._free.release()
        if not succeeded:
            raise result
        return result

    def _take(self) -> _Child:
        with self._lock:
            if not self._closing:
                atexit.register(self.close)
                self._closing = True
            while self._idle:
                child = self._idle.pop()
                if child.is_alive():
                    return child
                child.end()
        return _Child()

    def close(self) -> None:
        """Kill the idle children."""
        with self._lock:
            while self._idle:
                self._idle.pop().end()


class _Child:
    """A child process that runs one call after the other."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "app.runtime.sandbox"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"PYTHONPATH": os.pathsep.join(path or "." for path in sys.path), "PYTHONUTF8": "1"},
            start_new_session=True,  # so that Ctrl-C in a terminal does not reach the child
        )
        self._calls = cast("IO[bytes]", self._process.stdin)
        self._results = cast("IO[bytes]", self._process.stdout)
        try:
            self._receive(START_SECONDS)  # the message that the child is ready
        except BaseException:
            self.end()
            raise

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, message: bytes) -> Any:
        """Send a pickled call. Return (succeeded, result). Raise ParsingTooExpensive if no result arrives."""
        with suppress(BrokenPipeError):
            _write(self._calls, message)
        return pickle.loads(self._receive(SECONDS * WALL_SECONDS_PER_CPU_SECOND))  # noqa: S301  # our own code wrote it

    def end(self) -> None:
        """Kill the process and wait for it."""
        self._process.kill()
        for pipe in (self._calls, self._results):
            with suppress(OSError):  # buffered data can no longer be written
                pipe.close()
        self._process.wait()

    def _receive(self, seconds: float) -> bytes:
        deadline = time.monotonic() + seconds
        size = int.from_bytes(self._read(_SIZE, deadline), "big")
        return self._read(size, deadline)

    def _read(self, size: int, deadline: float) -> bytes:
        pipe, poll, data = self._results.fileno(), select.poll(), bytearray()
        poll.register(pipe, select.POLLIN)
        while len(data) < size:
            left = max(0, deadline - time.monotonic())
            part = os.read(pipe, min(size - len(data), 1 << 20)) if poll.poll(left * 1000) else b""
            if not part:
                raise ParsingTooExpensive
            data += part
        return bytes(data)


def _write(pipe: IO[bytes], message: bytes) -> None:
    pipe.write(len(message).to_bytes(_SIZE, "big") + message)
    pipe.flush()


_pool = _Pool()


# --- in the child


def main() -> None:
    """Run the calls from standard input until it ends, and write their results to standard output."""
    import resource  # not available on Windows, where `main` is not called

    calls, results = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # so that output from a library is not mistaken for a result
    with suppress(ValueError, OSError):  # some systems do not support this limit
        resource.setrlimit(resource.RLIMIT_AS, (MEGABYTES * 1_000_000, resource.RLIM_INFINITY))
    _write(results, b"")
    while size := calls.read(_SIZE):
        succeeded, result = _run_call(calls.read(int.from_bytes(size, "big")))
        try:
            message = pickle.dumps((succeeded, result))
        except Exception as error:
            message = pickle.dumps(
                (False, ParsingTooExpensive(f"The input cannot be read: {type(error).__name__}"))
            )
        _write(results, message)


def _run_call(message: bytes) -> tuple[bool, Any]:
    """Run a pickled call. Return (True, its result) or (False, its exception)."""
    import resource

    try:
        seconds, function, args, options = pickle.loads(message)  # noqa: S301  # the parent wrote it
        # Have the system kill this process once it has used `seconds` more seconds of CPU time.
        signal.signal(signal.SIGXCPU, signal.SIG_DFL)
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(time.process_time()) + seconds, hard))
        return True, function(*args, **options)
    except MemoryError:
        return False, ParsingTooExpensive()
    except Exception as error:
        return False, error


if __name__ == "__main__":
    main()
