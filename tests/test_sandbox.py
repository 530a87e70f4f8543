"""Parsers in a child process: limited, replaced, and gone with their parent."""

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
    monkeypatch.setattr(sandbox, "PATIENCE", 60)


def endless() -> None:
    """Compute for ever."""
    while True:
        pass


def large(megabytes: int) -> int:
    """Take memory."""
    return len(bytearray(megabytes * 1_000_000))


def process() -> int:
    return os.getpid()


def test_a_call_is_answered_by_another_process_that_is_kept() -> None:
    """To start one takes longer than most feeds do."""
    first = sandbox.run(process)
    assert first != os.getpid()
    assert sandbox.run(process) == first
    assert sandbox.run(json.loads, "[1]") == [1]


def test_what_a_function_raises_is_raised() -> None:
    """And the process goes on."""
    child = sandbox.run(process)
    with pytest.raises(json.JSONDecodeError):
        sandbox.run(json.loads, "[")
    assert sandbox.run(process) == child


@pytest.mark.usefixtures("one_second")
def test_what_takes_too_long_is_ended_and_holds_up_nobody() -> None:
    """Others are answered meanwhile, and by a new process afterwards."""
    with ThreadPoolExecutor() as pool:
        stuck = pool.submit(sandbox.run, endless)
        assert sandbox.run(large, 1) == 1_000_000
        with pytest.raises(ParsingTooExpensive):
            stuck.result()
    assert sandbox.run(large, 1) == 1_000_000


def test_what_takes_too_much_memory_is_ended() -> None:
    """What it had is free again: the process is another one."""
    with pytest.raises(ParsingTooExpensive):
        sandbox.run(large, sandbox.MEGABYTES + 1)
    assert sandbox.run(large, 1) == 1_000_000


def test_a_child_has_no_secrets_and_ends_with_its_parent() -> None:
    """Also where the parent is killed and cannot say goodbye."""
    code = (
        "import os, sys; from app import sandbox; "
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
