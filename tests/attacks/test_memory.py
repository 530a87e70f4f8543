"""Mails that overlap leave the interpreter as they found it, and a single mail leaves nothing behind."""

from __future__ import annotations

import gc
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from threading import Event

import pytest

from app import main, pipeline
from app.models import MailKind
from app.pipeline import App
from app.settings import Settings
from tests.mailserver import MailServer
from tests.test_deliver import queue

pytestmark = pytest.mark.once

LATER = "451 4.3.0 later"
WARMING, SINGLE = 20, 60  # mails
GROWTH = 300  # objects: a leak of five objects a mail would exceed it


def interpreter_settings() -> tuple[object, ...]:
    return gc.get_threshold(), sys.getswitchinterval(), gc.get_freeze_count()


def test_senders_that_overlap_restore_the_collector(
    app: App, settings: Settings, mail_server: MailServer, now: datetime
) -> None:
    """Alice's sender begins first and ends first; Bob's must not restore what Alice's had changed."""
    usual = interpreter_settings()
    bob_is_sending, alice_is_sent = Event(), Event()
    with MailServer() as second, ThreadPoolExecutor() as threads:
        other = main.build(settings.model_copy(update={"smtp_port": second.port}))

        def let_bob_begin() -> None:
            queue(app, now, "bob")
            threads.submit(pipeline.send_pending, other, now)
            assert bob_is_sending.wait(30)

        def wait_for_alice() -> None:
            bob_is_sending.set()
            alice_is_sent.wait(30)

        mail_server.reply("end", LATER, times=1, first=let_bob_begin)
        second.reply("end", LATER, times=1, first=wait_for_alice)
        queue(app, now, "alice")
        assert pipeline.send_pending(app, now) == {"deferred": 1}
        alice_is_sent.set()
    other.db.dispose()
    assert interpreter_settings() == usual


def test_a_single_mail_changes_no_setting_and_leaves_nothing(
    app: App, mail_server: MailServer, now: datetime
) -> None:
    """As confirmations leave, one at a time: no settings, no objects, no journals, no threads stay."""
    usual, seen = interpreter_settings(), set[tuple[object, ...]]()
    ids = queue(app, now, *[f"reader{n}" for n in range(WARMING + SINGLE)], kind=MailKind.CONFIRM)
    mail_server.reply("end", LATER, times=1, first=lambda: seen.add(interpreter_settings()))
    for one in ids[:WARMING]:
        pipeline.send_pending(app, now, ids=[one])
    before = objects()
    for one in ids[WARMING:]:
        pipeline.send_pending(app, now, ids=[one])
    assert objects() - before < GROWTH
    assert seen == {usual}
    assert not list(Path(app.settings.journal_dir).glob("*.journal"))


def objects() -> int:
    gc.collect()
    return len(gc.get_objects())
