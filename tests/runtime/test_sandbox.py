"""Parsers in child processes: their limits, their replacement, and their end with the parent."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from app.errors import ParsingTooExpensive
from app.runtime import sandbox

pytestmark = pytest.mark.once


@pytest.fixture
def one_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each call a second of CPU time, and as much of the clock as a busy machine may need."""
    monkeypatch.setattr(sandbox, "SECONDS", 1)
    monkeypatch.setattr(sandbox, "WALL_SECONDS_PER_CPU_SECOND", 60)


def endless() -> None:
    """Compute forever."""
    while True:
        pass


def large(megabytes: int) -> int:
    """Allocate memory and return its size in bytes."""
    return len(bytearray(megabytes * 1_000_000))


def process() -> int:
    return os.getpid()


def test_a_call_is_answered_by_another_process_that_is_kept() -> None:
    """A child is reused, because starting one takes longer than parsing most feeds."""
    first = sandbox.run(process)
    assert first != os.getpid()
    assert sandbox.run(process) == first
    assert sandbox.run(json.loads, "[1]") == [1]


def test_what_a_function_raises_is_raised() -> None:
    """An exception of the function is raised, and the child is reused."""
    child = sandbox.run(process)
    with pytest.raises(json.JSONDecodeError):
        sandbox.run(json.loads, "[")
    assert sandbox.run(process) == child


@pytest.mark.usefixtures("one_second")
def test_what_takes_too_long_is_ended_and_holds_up_nobody() -> None:
    """A call over the limit is killed. Other calls are answered meanwhile, and a new child replaces it."""
    with ThreadPoolExecutor() as pool:
        stuck = pool.submit(sandbox.run, endless)
        assert sandbox.run(large, 1) == 1_000_000
        with pytest.raises(ParsingTooExpensive):
            stuck.result()
    assert sandbox.run(large, 1) == 1_000_000


def test_what_takes_too_much_memory_is_ended() -> None:
    """A child over the memory limit is replaced by a new one."""
    with pytest.raises(ParsingTooExpensive):
        sandbox.run(large, sandbox.MEGABYTES + 1)
    assert sandbox.run(large, 1) == 1_000_000


def test_a_child_has_no_secrets_and_ends_with_its_parent() -> None:
    """A child gets no environment variables, and ends even if its parent is killed."""
    code = (
        "import os, sys; from app.runtime import sandbox; "
        "print(sandbox.run(os.getpid), sandbox.run(os.getenv, 'PAPERBOY_SECRET_KEYS'), flush=True); "
        "sys.stdin.read()"
    )
    environment = {**os.environ, "PAPERBOY_SECRET_KEYS": "hidden", "PYTHONPATH": os.pathsep.join(sys.path)}
    parent = subprocess.Popen(  # noqa: S603  # our own code
        [sys.executable, "-c", code],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with parent:
        assert parent.stdout
        child, secret = parent.stdout.readline().split()
        assert secret == "None"
        watched = os.pidfd_open(int(child))
        parent.kill()
    ended = select.poll()
    ended.register(watched, select.POLLIN)
    assert ended.poll(30_000)
    os.close(watched)
