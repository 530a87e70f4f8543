"""Test that concurrent senders restore interpreter settings, and that single emails leak nothing."""

import gc
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from threading import Event

import pytest

from app import main, pipeline
from app.application import Application
from app.delivery.sender import TUNE_FROM
from app.runtime import interpreter
from app.settings import Settings
from app.types import MailKind
from tests.delivery.ledger.test_ledger import enqueue_mails
from tests.support.mail_server import MailServer

pytestmark = pytest.mark.once

LATER = "451 4.3.0 later"
NOBODYS = range(10**6, 10**6 + TUNE_FROM)  # ids without an email
AT_MOST = 100  # seconds, shorter than the test's own timeout
WARMING, SINGLE = 20, 60  # emails
GROWTH = 300  # objects: a leak of five objects per email would exceed it


@pytest.fixture(autouse=True)
def all_objects() -> Iterator[None]:
    """Let these tests count all objects, including those that `conftest.py` excludes from collections."""
    gc.unfreeze()
    yield
    gc.collect()  # frozen garbage would stay
    gc.freeze()


def interpreter_settings() -> tuple[object, ...]:
    return gc.get_threshold(), sys.getswitchinterval(), gc.get_freeze_count()


def test_overlapping_senders_restore_the_garbage_collector(
    app: Application, settings: Settings, mail_server: MailServer, now: datetime
) -> None:
    """Alice's sender starts and ends first; Bob's must not restore Alice's change."""
    usual = interpreter_settings()
    bob_is_sending, alice_is_sent = Event(), Event()
    # Each sender gets only its own email, but enough ids to tune the interpreter.
    alice, bob = ([*enqueue_mails(app, now, name), *NOBODYS] for name in ("alice", "bob"))
    with MailServer() as second, ThreadPoolExecutor() as threads:
        other = main.build(settings.model_copy(update={"smtp_port": second.port}))

        def let_bob_begin() -> None:
            threads.submit(pipeline.send_now, other, now, bob)
            assert bob_is_sending.wait(AT_MOST)

        def wait_for_alice() -> None:
            bob_is_sending.set()
            alice_is_sent.wait(AT_MOST)

        mail_server.reply("end", LATER, times=1, first=let_bob_begin)
        second.reply("end", LATER, times=1, first=wait_for_alice)
        assert pipeline.send_now(app, now, alice) == {"deferred": 1}
        alice_is_sent.set()
    other.db.dispose()
    assert interpreter_settings() == usual


def test_single_mails_leak_nothing(app: Application, mail_server: MailServer, now: datetime) -> None:
    """No setting changes, and no objects, journals or threads stay."""
    usual, observed = interpreter_settings(), set[tuple[object, ...]]()
    ids = enqueue_mails(app, now, *[f"reader{n}" for n in range(WARMING + SINGLE)], kind=MailKind.CONFIRM)
    mail_server.reply("end", LATER, times=1, first=lambda: observed.add(interpreter_settings()))
    for delivery_id in ids[:WARMING]:
        pipeline.send_now(app, now, ids=[delivery_id])
    before = count_objects()
    for delivery_id in ids[WARMING:]:
        pipeline.send_now(app, now, ids=[delivery_id])
    assert count_objects() - before < GROWTH
    assert observed == {usual}
    assert not list(Path(app.settings.journal_dir).glob("*.journal"))


COUNT_ARENAS = """
import ctypes, os, threading
from app.runtime import interpreter
interpreter.limit_malloc_arenas()
all_at_once = threading.Barrier(12)
def work():
    ctypes.create_string_buffer(100_000)
    all_at_once.wait(60)
threads = [threading.Thread(target=work) for _ in range(12)]
for thread in threads: thread.start()
for thread in threads: thread.join()
libc = ctypes.CDLL(None)
libc.fdopen.restype = ctypes.c_void_p
reading, writing = os.pipe()
file = ctypes.c_void_p(libc.fdopen(writing, b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
print(os.read(reading, 1 << 16).count(b"<heap nr="))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no arenas")
def test_threads_share_few_memory_arenas() -> None:
    """Twelve threads run at once. Each arena would keep megabytes."""
    environment = {name: value for name, value in os.environ.items() if name != "MALLOC_ARENA_MAX"}
    ran = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-c", COUNT_ARENAS], env=environment, capture_output=True, text=True, check=True
    )
    assert int(ran.stdout) <= interpreter.ARENAS


def count_objects() -> int:
    gc.collect()
    return len(gc.get_objects())
