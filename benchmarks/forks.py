"""Start senders in separate processes together, and measure from the moment when all are ready."""

from __future__ import annotations

import multiprocessing
import os
import resource
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

PATIENCE = 120.0  # seconds for a sender to get ready

# A sender gets ready, calls what it is given to wait for the others, and says how many mails it sent.
Sender = Callable[[Callable[[], None]], int]


@dataclass(frozen=True)
class Took:
    """What a number of mails took: by the clock, and of processor time."""

    mails: int
    seconds: float
    cpu: float  # user and system, of all processes that sent
    sink: float = 0.0  # of the one that received

    @property
    def rate(self) -> float:
        """Mails a second."""
        return self.mails / self.seconds

    @property
    def each(self) -> float:
        """Microseconds of processor a mail."""
        return self.cpu / self.mails * 1e6

    @property
    def sink_each(self) -> float:
        return self.sink / self.mails * 1e6

    def with_sink(self, seconds: float) -> Took:
        return replace(self, sink=seconds)


def race(senders: Sequence[Sender], sink: Callable[[], float]) -> Took:
    """Run each in a process of its own; from when all are ready to when the last is done.

    They are forks: whatever this process has imported and made, they have too. `sink` tells the seconds of
    processor that the receiving side has had so far.
    """
    context = multiprocessing.get_context("fork")
    go = context.Event()
    pipes = [context.Pipe(duplex=False) for _ in senders]
    started = [
        context.Process(target=_run, args=(sender, go, told), daemon=True)
        for sender, (_, told) in zip(senders, pipes, strict=True)
    ]
    ears = [ear for ear, _ in pipes]
    try:
        for process in started:
            process.start()
        for _, told in pipes:
            told.close()
        for ear in ears:
            _hear(ear, PATIENCE)
        began, sunk = time.monotonic(), sink()
        go.set()
        results = [_hear(ear, None) for ear in ears]
        sunk = sink() - sunk
    finally:
        for process in started:
            if process.pid:
                process.kill()
                process.join()
    mails, ended, busy = zip(*results, strict=True)
    return Took(sum(mails), max(ended) - began, sum(busy), sunk)


def _run(sender: Sender, go: Any, told: Connection) -> None:
    busy: list[float] = []

    def ready() -> None:
        told.send(None)
        go.wait()
        busy.append(own_cpu())

    mails = sender(ready)
    told.send((mails, time.monotonic(), own_cpu() - busy[0]))


def _hear(ear: Connection, patience: float | None) -> Any:
    try:
        if ear.poll(patience):
            return ear.recv()
    except EOFError:
        pass
    raise RuntimeError("a sender gave up: what it said stands above")


def own_cpu() -> float:
    """Seconds of processor that this process has had."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def spent(process: subprocess.Popen[bytes], mails: int, began: float) -> Took:
    """Wait for a program to end; its whole life counts."""
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{process.args!r:.200} ended with status {process.returncode}")
    return Took(mails, time.monotonic() - began, used.ru_utime + used.ru_stime)
