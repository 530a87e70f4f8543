"""Start senders in separate processes at once, and measure from the time when all of them are ready."""

import multiprocessing
import os
import resource
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any, Self

READY_SECONDS = 120.0  # the time that a sender has to get ready

# A sender prepares, calls its argument to wait for the others, sends, and returns how many emails it sent.
Sender = Callable[[Callable[[], None]], int]


@dataclass(frozen=True)
class Measurement:
    """The wall-clock time and the CPU time that a number of emails took, in seconds."""

    mails: int
    seconds: float
    cpu: float  # user and system time of all sending processes
    sink: float = 0.0  # CPU time of the receiving process

    @property
    def rate(self) -> float:
        """Return the rate in emails per second."""
        return self.mails / self.seconds

    @property
    def cpu_us(self) -> float:
        """Return the CPU time per email in µs."""
        return self.cpu / self.mails * 1e6

    @property
    def sink_cpu_us(self) -> float:
        return self.sink / self.mails * 1e6

    def with_sink(self, seconds: float) -> Self:
        return replace(self, sink=seconds)


def run_together(senders: Sequence[Sender], sink: Callable[[], float]) -> Measurement:
    """Run each sender in a forked process. Measure from when all are ready until the last one finishes.

    `sink` returns the CPU time in seconds that the receiving process has used so far.
    """
    context = multiprocessing.get_context("fork")
    go = context.Event()
    pipes = [context.Pipe(duplex=False) for _ in senders]
    processes = [
        context.Process(target=_run, args=(sender, go, results_pipe), daemon=True)
        for sender, (_, results_pipe) in zip(senders, pipes, strict=True)
    ]
    receivers = [receiver for receiver, _ in pipes]
    try:
        for process in processes:
            process.start()
        for _, results_pipe in pipes:
            results_pipe.close()
        for receiver in receivers:
            _receive(receiver, READY_SECONDS)
        began, sink_cpu = time.monotonic(), sink()
        go.set()
        results = [_receive(receiver, None) for receiver in receivers]
        sink_cpu = sink() - sink_cpu
    finally:
        for process in processes:
            if process.pid:
                process.kill()
                process.join()
    mails, ended, cpu = zip(*results, strict=True)
    return Measurement(sum(mails), max(ended) - began, sum(cpu), sink_cpu)


def _run(sender: Sender, go: Any, results_pipe: Connection) -> None:
    cpu: list[float] = []

    def ready() -> None:
        results_pipe.send(None)
        go.wait()
        cpu.append(own_cpu())

    mails = sender(ready)
    results_pipe.send((mails, time.monotonic(), own_cpu() - cpu[0]))


def _receive(receiver: Connection, timeout: float | None) -> Any:
    try:
        if receiver.poll(timeout):
            return receiver.recv()
    except EOFError:
        pass
    raise RuntimeError("a sender failed: see its output above")


def own_cpu() -> float:
    """Return the CPU time in seconds that this process has used."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def wait_and_measure(process: subprocess.Popen[bytes], mails: int, began: float) -> Measurement:
    """Wait for a program to exit. Return the measurement of its whole run, which started at `began`."""
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{process.args!r:.200} ended with status {process.returncode}")
    return Measurement(mails, time.monotonic() - began, used.ru_utime + used.ru_stime)
