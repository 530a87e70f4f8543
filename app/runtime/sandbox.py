"""Run a parser in a child process, with a limit of CPU time and of memory.

For what strangers write and a library reads whose work cannot be proven to be linear. Who exceeds a limit is
ended, and costs nobody else anything. It guards resources, not secrets: what runs there is our own code, and
gets no environment.

Children are started when they are first needed, and kept. Each ends with its parent, whose pipe it reads.
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

CHILDREN = 2  # at once: a file that takes all its time holds up half of the others
SECONDS = 10  # of CPU; an honest feed of 2,000 entries takes 3
MEGABYTES = 600
PATIENCE = 4  # wall-clock seconds a second of CPU: the machine may be busy
START = 30  # seconds, for a child's first word on a busy machine
_SIZE = 8  # bytes that say how long a message is

Given = ParamSpec("Given")
Result = TypeVar("Result")


def run(function: Callable[Given, Result], /, *args: Given.args, **options: Given.kwargs) -> Result:
    """Return what a function of a module returns, or raise what it raises.

    Raise ParsingTooExpensive when it exceeds SECONDS or MEGABYTES, or no child is free for as long.
    """
    return _pool.run(function, args, options)  # type: ignore[no-any-return]


class _Pool:
    """At most CHILDREN children, each of which does one thing at a time."""

    def __init__(self) -> None:
        self._free, self._lock = BoundedSemaphore(CHILDREN), Lock()
        self._idle: list[_Child] = []
        self._closing = False  # whether `close` is registered

    def run(self, function: Callable[..., Any], args: Any, options: Any) -> Any:
        if not self._free.acquire(timeout=SECONDS * PATIENCE):
            raise ParsingTooExpensive("Too much is being read at the moment: please try again later.")
        try:
            return self._ask(self._take(), pickle.dumps((SECONDS, function, args, options)))
        finally:
            self._free.release()

    def _ask(self, child: _Child, message: bytes) -> Any:
        try:
            good, result = child.ask(message)
            if isinstance(result, ParsingTooExpensive):
                raise result
        except BaseException:
            child.end()
            raise
        with self._lock:
            self._idle.append(child)
        if not good:
            raise result
        return result

    def _take(self) -> _Child:
        with self._lock:
            if not self._closing:
                atexit.register(self.close)
                self._closing = True
            while self._idle:
                child = self._idle.pop()
                if child.lives():
                    return child
                child.end()
        return _Child()

    def close(self) -> None:
        """End the children that have nothing to do."""
        with self._lock:
            while self._idle:
                self._idle.pop().end()


class _Child:
    """A process that runs what it is asked to, one thing after the other."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "app.runtime.sandbox"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"PYTHONPATH": os.pathsep.join(path or "." for path in sys.path), "PYTHONUTF8": "1"},
            start_new_session=True,  # it ends with its parent, not with a key that is pressed in a terminal
        )
        self._calls = cast("IO[bytes]", self._process.stdin)
        self._answers = cast("IO[bytes]", self._process.stdout)
        try:
            self._receive(START)  # it is there
        except BaseException:
            self.end()
            raise

    def lives(self) -> bool:
        return self._process.poll() is None

    def ask(self, message: bytes) -> Any:
        """Send a pickled call; return what came of it. Raise ParsingTooExpensive when nothing comes."""
        with suppress(BrokenPipeError):
            _write(self._calls, message)
        return pickle.loads(self._receive(SECONDS * PATIENCE))  # noqa: S301  # our own code wrote it

    def end(self) -> None:
        """Kill the process and wait for it."""
        self._process.kill()
        for pipe in (self._calls, self._answers):
            with suppress(OSError):  # what was to be written cannot be
                pipe.close()
        self._process.wait()

    def _receive(self, seconds: float) -> bytes:
        deadline = time.monotonic() + seconds
        size = int.from_bytes(self._read(_SIZE, deadline), "big")
        return self._read(size, deadline)

    def _read(self, size: int, deadline: float) -> bytes:
        pipe, ready, found = self._answers.fileno(), select.poll(), bytearray()
        ready.register(pipe, select.POLLIN)
        while len(found) < size:
            left = max(0, deadline - time.monotonic())
            part = os.read(pipe, min(size - len(found), 1 << 20)) if ready.poll(left * 1000) else b""
            if not part:
                raise ParsingTooExpensive
            found += part
        return bytes(found)


def _write(pipe: IO[bytes], message: bytes) -> None:
    pipe.write(len(message).to_bytes(_SIZE, "big") + message)
    pipe.flush()


_pool = _Pool()


# --- in the child


def main() -> None:
    """Answer calls from standard input until it ends."""
    calls, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    _limit_memory()
    _write(answers, b"")
    while size := calls.read(_SIZE):
        good, result = _outcome(calls.read(int.from_bytes(size, "big")))
        try:
            answer = pickle.dumps((good, result))
        except Exception as error:
            answer = pickle.dumps((False, ParsingTooExpensive(f"It cannot be read: {type(error).__name__}")))
        _write(answers, answer)


def _outcome(message: bytes) -> tuple[bool, Any]:
    try:
        seconds, function, args, options = pickle.loads(message)  # noqa: S301  # the parent wrote it
        _limit_time(seconds)
        return True, function(*args, **options)
    except MemoryError:
        return False, ParsingTooExpensive()
    except Exception as error:
        return False, error


def _limit_memory() -> None:
    import resource  # there is none on Windows, where nobody calls this

    with suppress(ValueError, OSError):  # some systems do not know this limit
        resource.setrlimit(resource.RLIMIT_AS, (MEGABYTES * 1_000_000, resource.RLIM_INFINITY))


def _limit_time(seconds: int) -> None:
    """Let the system end this process so many seconds of CPU time from now."""
    import resource

    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(time.process_time()) + seconds, hard))


if __name__ == "__main__":
    main()
