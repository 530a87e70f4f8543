"""Measure the stages of sending separately: composing, signing, SMTP and the ledger."""

import asyncio
import shutil
import statistics
import tempfile
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import uvloop
from sqlmodel import select

from app import bounces
from app.application import Application
from app.delivery import ledger, presigning
from app.delivery.send_result import SendOutcome, SendResult
from app.delivery.smtp.connection_pool import ConnectionPool
from app.mail.message import OutgoingMail
from app.runtime import interpreter
from app.storage.models import Delivery, DeliveryState
from app.types import MailRequest
from benchmarks import forks, workload
from benchmarks.postfix_tools import Sink

ACCEPTED = SendResult(SendOutcome.ACCEPTED, 250, "2.0.0 Ok")


def compose_mails(app: Application, mails: int, sections: int = 3) -> list[OutgoingMail]:
    """Return composed and signed emails."""
    composer = app.composer
    return [
        composer.sign_and_serialize(composer.draft(workload.mail_request(number, sections)))
        for number in range(mails)
    ]


# --- SMTP


class AcceptedMails:
    """A DeliveryTracker that allows every email and counts the accepted ones."""

    def __init__(self) -> None:
        self.accepted = 0

    def may_send(self, mail: OutgoingMail) -> bool:
        return True

    def commit(self, mail: OutgoingMail) -> bool:
        return True

    def record(self, mail: OutgoingMail, result: SendResult) -> None:
        self.accepted += result.outcome is SendOutcome.ACCEPTED


def pool_sender(port: int, mails: Sequence[OutgoingMail]) -> forks.Sender:
    """Return a sender that sends composed emails through Paperboy's connection pool, without a ledger."""

    async def send_all() -> int:
        tracker = AcceptedMails()
        async with ConnectionPool(workload.settings(Path(), smtp_port=port), tracker) as pool:
            for mail in mails:
                await pool.submit(mail)
            await pool.drain()
        return tracker.accepted

    def send(ready: Callable[[], None]) -> int:
        ready()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(send_all())

    return send


# --- the ledger


def claim_and_record(folder: Path, ready: Callable[[], None]) -> int:
    """Claim every email and record it as sent, without sending it."""
    app = workload.build(folder)
    asyncio.run(_claim_and_record(app, workload.EARLIER))
    ready()
    with interpreter.tuned_for_throughput():
        return asyncio.run(_claim_and_record(app, workload.NOW))


async def _claim_and_record(app: Application, now: datetime) -> int:
    sender_ledger = ledger.SenderLedger(
        app.db, app.settings, "bench", app.snapshots, lambda: now, bounces.record_refusal
    )
    async with sender_ledger:
        while batch := await sender_ledger.claim():
            for request in batch.requests:
                mail = OutgoingMail(request.delivery_id, "<id@paperboy.example>", "", "", request.email, b"")
                sender_ledger.commit(mail)
                sender_ledger.record(mail, ACCEPTED)
    return sender_ledger.counts["sent"]


def update_row_by_row(folder: Path, mails: int, ready: Callable[[], None]) -> int:
    """Do what most ledgers do for each email: get its row, change its state and commit."""
    app = workload.build(folder)
    with app.db.read() as session:
        ids = session.exec(select(Delivery.id).limit(mails)).all()
    ready()
    for delivery_id in ids:
        with app.db.write() as session:
            row = session.get_one(Delivery, delivery_id)
            row.state, row.sent_at = DeliveryState.SENT, workload.NOW
    return len(ids)


# --- composing and signing


def compose(app: Application, requests: Sequence[MailRequest], ready: Callable[[], None]) -> int:
    """Compose and sign emails. The fragments of their cards are encoded before the measurement."""
    for request in requests:
        app.composer.draft(request)
    ready()
    for request in requests:
        app.composer.sign_and_serialize(app.composer.draft(request))
    return len(requests)


def encode_fragments(app: Application, requests: Sequence[MailRequest], ready: Callable[[], None]) -> int:
    """Encode the fragments of an edition's cards."""
    ready()
    for request in requests:
        app.composer.draft(request)
    return 1


def sign_ahead(folder: Path, keys: tuple[str, ...]) -> None:
    """Sign all waiting emails before they are due."""
    app = workload.build(folder, dkim_keys=keys)
    while presigning.sign_ahead(app.sender, workload.EARLIER - timedelta(hours=1)):
        pass
    app.db.dispose()


# --- all stages


def measure(
    folder: Path, keys: tuple[str, ...], sink: Sink, mails: int, repetitions: int
) -> dict[str, float]:
    """Return the CPU time of each stage in µs per email, as the median of the repetitions."""
    plain, signing = workload.build(folder), workload.build(folder, dkim_keys=keys)
    requests = [workload.mail_request(number) for number in range(300)]
    many_requests = [requests[number % 300] for number in range(mails)]
    composed = compose_mails(plain, 50)
    many_composed = [composed[number % 50] for number in range(mails)]

    def cost(sender: forks.Sender) -> float:
        runs = (forks.run_together([sender], sink.cpu_seconds) for _ in range(repetitions))
        return statistics.median(run.cpu_us for run in runs)

    def on_copy(work: Callable[..., int], *arguments: object) -> forks.Sender:
        def send(ready: Callable[[], None]) -> int:
            with tempfile.TemporaryDirectory(dir=folder.parent) as copy:
                shutil.copytree(folder, copy, dirs_exist_ok=True)
                return work(Path(copy), *arguments, ready)

        return send

    unsigned = cost(partial(compose, plain, many_requests))
    return {
        "the fragments of an edition, once a process": cost(partial(encode_fragments, plain, requests)),
        "writing": unsigned,
        "signing with RSA-2048": cost(partial(compose, signing, requests)) - unsigned,
        "the relay": cost(pool_sender(sink.port, many_composed)),
        "the ledger, from claim to folding": cost(on_copy(claim_and_record)),
        "a ledger by rows: get and commit": cost(on_copy(update_row_by_row, 300)),
    }
