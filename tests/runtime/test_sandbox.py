"""Test parsers in child processes: limits, replacement, and their end with the parent."""

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
def limit_cpu_to_one_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each call a second of CPU time and enough wall-clock time for a busy machine."""
    monkeypatch.setattr(sandbox, "SECONDS", 1)
    monkeypatch.setattr(sandbox, "WALL_SECONDS_PER_CPU_SECOND", 60)


def loop_forever() -> None:
    """Compute forever."""
    while True:
        pass


def allocate(megabytes: int) -> int:
    """Allocate memory and return its size in bytes."""
    return len(bytearray(megabytes * 1_000_000))


def current_pid() -> int:
    return os.getpid()


def test_child_process_is_reused() -> None:
    """Starting one takes longer than parsing most feeds."""
    first = sandbox.run(current_pid)
    assert first != os.getpid()
    assert sandbox.run(current_pid) == first
    assert sandbox.run(json.loads, "[1]") == [1]


def test_exceptions_are_raised() -> None:
    """The child is reused."""
    child = sandbox.run(current_pid)
    with pytest.raises(json.JSONDecodeError):
        sandbox.run(json.loads, "[")
    assert sandbox.run(current_pid) == child


@pytest.mark.usefixtures("limit_cpu_to_one_second")
def test_slow_call_is_killed() -> None:
    """Other calls are answered meanwhile, and a new child replaces it."""
    with ThreadPoolExecutor() as pool:
        stuck = pool.submit(sandbox.run, loop_forever)
        assert sandbox.run(allocate, 1) == 1_000_000
        with pytest.raises(ParsingTooExpensive):
            stuck.result()
    assert sandbox.run(allocate, 1) == 1_000_000


def test_memory_limit() -> None:
    """A child over the memory limit is replaced by a new one."""
    with pytest.raises(ParsingTooExpensive):
        sandbox.run(allocate, sandbox.MEGABYTES + 1)
    assert sandbox.run(allocate, 1) == 1_000_000


def test_child_has_no_environment_and_ends_with_its_parent() -> None:
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
