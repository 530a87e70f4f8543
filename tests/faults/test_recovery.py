"""Test recovery of what a sender leaves when it ends within a step."""

import asyncio
import threading
from collections.abc import Collection
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from app import bounces, pipeline
from app.application import Application
from app.delivery import ledger
from app.delivery.journal import AttemptResult, Journal
from app.delivery.ledger import ClaimedBatch
from app.delivery.send_result import SendOutcome, SendResult
from app.digests.operator_changes import Editor
from app.storage import database
from app.types import Digest, MailKind, Section
from tests.faults import checks
from tests.faults.relay_process import RelayProcess
from tests.faults.sender_process import Death, Starter
from tests.support import factories, sample_digest

MINUTE = timedelta(minutes=1)


def open_ledger(app: Application, now: datetime, owner: str) -> ledger.SenderLedger:
    return ledger.SenderLedger(
        app.db,
        app.settings,
        owner=owner,
        snapshots=app.snapshots,
        clock=lambda: now,
        on_failed=bounces.record_refusal,
    )


def test_killed_during_a_second_attempt(app: Application, now: datetime) -> None:
    """The email is uncertain, whatever the first result was."""
    checks.queue(app, now, 1)
    dead = Journal(Path(app.settings.journal_dir), "host:1:dead")
    dead.begin(1, 1.0, "<1@paperboy.test>", "A subject")
    dead.end(AttemptResult(1, SendResult(SendOutcome.DEFERRED, 451, "later"), 2.0))
    dead.acknowledge([1])
    with app.db.write() as session:
        ledger.claim(session, owner="host:1:dead", now=now)
    dead.begin(1, 400.0, "<1@paperboy.test>", "A subject")
    dead.close()
    checks.restart(app, now)
    assert checks.doubtful(app) == {"reader0"}


def test_claim_completed_after_its_task_was_cancelled(app: Application, now: datetime) -> None:
    """No mail stays claimed."""
    checks.queue(app, now, 3)
    slow, claiming = threading.Event(), threading.Event()

    async def claim_and_cancel() -> None:
        async with open_ledger(app, now, "host:1:hasty") as ledger:
            claim = ledger._claim

            def slowly(*_: object) -> object:
                claiming.set()
                slow.wait(10)
                return claim(None, None)

            ledger._claim = slowly  # type: ignore[assignment, method-assign]
            asking = asyncio.create_task(ledger.claim())
            await asyncio.to_thread(claiming.wait, 10)
            asking.cancel()
            asyncio.get_running_loop().call_later(0.1, slow.set)

    asyncio.run(claim_and_cancel())
    assert set(checks.states(app).values()) == {"pending"}


def test_claim_without_a_reply(app: Application, now: datetime) -> None:
    """The database disconnects after writing the claim, and the next sender releases the rows."""
    checks.queue(app, now, 3)

    async def claim_twice() -> None:
        async with open_ledger(app, now, "host:1:cut") as ledger:
            claim, calls = ledger._claim, iter([True, False])

            def cut_off(*_: object) -> object:
                claimed = claim(None, None)
                if next(calls):
                    raise OperationalError("COMMIT", {}, Exception("the connection was cut"))
                return claimed

            ledger._claim = cut_off  # type: ignore[assignment, method-assign]
            assert not await ledger.claim()

    asyncio.run(claim_twice())
    assert set(checks.states(app).values()) == {"claimed"}
    checks.restart(app, now + MINUTE)
    assert set(checks.states(app).values()) == {"pending"}


def test_claimed_mails_that_fail_to_load_are_released(app: Application, now: datetime) -> None:
    """They are not uncertain."""
    checks.queue(app, now, 3)

    async def claim_once() -> None:
        async with open_ledger(app, now, "host:1:puzzled") as ledger:

            def puzzled(_: Collection[int]) -> ClaimedBatch:
                raise TypeError("no digest")

            ledger._load_claimed = puzzled  # type: ignore[method-assign]
            await ledger.claim()

    with pytest.raises(TypeError):
        asyncio.run(claim_once())
    assert set(checks.states(app).values()) == {"pending"}
    assert list(Path(app.settings.journal_dir).iterdir()) == []


def test_database_error_after_a_claim(app: Application, now: datetime) -> None:
    """The same emails are loaded again, and no others are claimed."""
    checks.queue(app, now, 3)
    disconnected = OperationalError("SELECT", {}, Exception("the connection was cut"))

    async def claim_once() -> int:
        async with open_ledger(app, now, "host:1:patient") as ledger:
            load_claimed, answers = ledger._load_claimed, iter([disconnected, None])

            def at_the_second_try(claimed_ids: Collection[int]) -> ClaimedBatch:
                if error := next(answers):
                    raise error
                return load_claimed(claimed_ids)

            ledger._load_claimed = at_the_second_try  # type: ignore[method-assign]
            return len((await ledger.claim([1, 2, 3])).requests)

    assert asyncio.run(claim_once()) == 3
    assert set(checks.states(app).values()) == {"pending"}
    checks.restart(app, now + MINUTE)


@pytest.mark.postgres
def test_commit_completed_after_a_kill(app: Application, now: datetime) -> None:
    """PostgreSQL finishes the COMMIT of a killed process, and recovery waits for it."""
    checks.queue(app, now, 3)
    Journal(Path(app.settings.journal_dir), "host:1:dead").close(complete=False)
    recovering = threading.Thread(target=checks.restart, args=(app, now))
    with app.db.write() as session:
        database.advisory_lock(session, "host:1:dead")
        ledger.claim(session, owner="host:1:dead", now=now)
        recovering.start()
        recovering.join(0.5)
    recovering.join()
    assert set(checks.states(app).values()) == {"pending"}


@pytest.mark.usefixtures("relay")
def test_killed_job_does_not_block_the_next_one(
    app: Application, now: datetime, start_sender: Starter
) -> None:
    """The next training starts immediately, not half an hour later."""
    start_sender(now, verb="train", dies=Death("app.relevance.model_store:ModelStore.train")).dies()
    assert "too few papers" in pipeline.train(app, now + MINUTE).why_not


@pytest.mark.usefixtures("relay")
def test_killed_job_that_cannot_be_seen(
    app: Application, now: datetime, start_sender: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If no lock shows that its process is dead, the next training starts two minutes later."""
    monkeypatch.setattr("app.storage.live_processes.is_alive", lambda _session, _holder: None)
    start_sender(now, verb="train", dies=Death("app.relevance.model_store:ModelStore.train")).dies()
    assert "another process" in pipeline.train(app, now + MINUTE).why_not
    assert "too few papers" in pipeline.train(app, now + 2 * MINUTE).why_not


def test_paper_merged_while_a_killed_sender_had_its_digest_is_sent_once(
    app: Application, now: datetime, relay: RelayProcess, start_sender: Starter
) -> None:
    """The digest contains both rows of the paper. The next sender leaves one out."""
    relay.talk(keeps=True)
    picks = (sample_digest.pick(1, "Read or Retrieve?"), sample_digest.pick(2, "To Read or to Retrieve"))
    with app.db.write() as session:
        source = factories.add_source(session, now)
        for item in picks:
            factories.add_paper(session, source, item.title, now.date(), now)
        reader = factories.add_subscriber(session, "reader0@example.org", ["retrieval"], now)
        digest = Digest(checks.EDITION, (Section("retrieval", picks),))
        mail = {"kind": MailKind.DIGEST, "edition": checks.EDITION, "due_at": now, "now": now}
        ledger.enqueue(session, subscriber_id=reader, digest=digest, **mail)  # type: ignore[arg-type]
    claim = "app.delivery.ledger.sender_ledger:SenderLedger._claim"
    start_sender(now, dies=Death(claim, "after")).dies()
    assert checks.states(app) == {"reader0": "claimed"}
    with app.db.write() as session:
        Editor(session, "desk", now).merge(1, 2)
    assert start_sender(now + MINUTE).counts() == {"sent": 1}
    [accepted] = relay.copies()["reader0"]
    text = relay.mail(accepted).decode()
    assert picks[0].title in text
    assert picks[1].title not in text
