"""Measure each part of the sending path by itself: joining, signing, the relay, the ledger."""

from __future__ import annotations

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
from app.delivery.smtp.connection_pool import ConnectionPool
from app.runtime import interpreter
from app.storage.models import Delivery, DeliveryState
from app.types import MailRequest, OutgoingMail, SendOutcome, SendResult
from benchmarks import forks, workload
from benchmarks.postfix_tools import Sink

ACCEPTED = SendResult(SendOutcome.ACCEPTED, 250, "2.0.0 Ok")


def written(app: Application, mails: int, sections: int = 3) -> list[OutgoingMail]:
    """So many mails, ready to leave."""
    composer = app.composer
    return [
        composer.sign_and_serialize(composer.draft(workload.letter(number, sections)))
        for number in range(mails)
    ]


# --- the relay


class Tally:
    """A book that lets everything leave, and counts what arrived."""

    def __init__(self) -> None:
        self.accepted = 0

    def may_send(self, mail: OutgoingMail) -> bool:
        return True

    def commit(self, mail: OutgoingMail) -> bool:
        return True

    def record(self, mail: OutgoingMail, result: SendResult) -> None:
        self.accepted += result.outcome is SendOutcome.ACCEPTED


def carry(port: int, mails: Sequence[OutgoingMail]) -> forks.Sender:
    """A sender that hands ready-made mails to the product's relay, and has no ledger."""

    async def carried() -> int:
        book = Tally()
        async with ConnectionPool(workload.settings(Path(), smtp_port=port), book) as relay:
            for mail in mails:
                await relay.submit(mail)
            await relay.drain()
        return book.accepted

    def send(ready: Callable[[], None]) -> int:
        ready()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(carried())

    return send


# --- the ledger


def book(folder: Path, ready: Callable[[], None]) -> int:
    """A sender that sends nothing: claims everything, and writes down that it was sent."""
    app = workload.build(folder)
    asyncio.run(_booked(app, workload.EARLIER))
    ready()
    with interpreter.tuned_for_throughput():
        return asyncio.run(_booked(app, workload.NOW))


async def _booked(app: Application, now: datetime) -> int:
    sender_ledger = ledger.SenderLedger(
        app.db, app.settings, "bench", app.snapshots, lambda: now, bounces.record_refusal
    )
    async with sender_ledger:
        while batch := await sender_ledger.claim():
            for letter in batch.requests:
                mail = OutgoingMail(letter.delivery_id, "<id@paperboy.example>", "", "", letter.email, b"")
                sender_ledger.commit(mail)
                sender_ledger.record(mail, ACCEPTED)
    return sender_ledger.counts["sent"]


def row_by_row(folder: Path, mails: int, ready: Callable[[], None]) -> int:
    """What most ledgers do: get a row, say that it was sent, commit."""
    app = workload.build(folder)
    with app.db.read() as session:
        ids = session.exec(select(Delivery.id).limit(mails)).all()
    ready()
    for delivery_id in ids:
        with app.db.write() as session:
            row = session.get_one(Delivery, delivery_id)
            row.state, row.sent_at = DeliveryState.SENT, workload.NOW
    return len(ids)


# --- writing and signing


def draft(app: Application, letters: Sequence[MailRequest], ready: Callable[[], None]) -> int:
    for letter in letters:  # the first time, its cards are encoded
        app.composer.draft(letter)
    ready()
    for letter in letters:
        app.composer.sign_and_serialize(app.composer.draft(letter))
    return len(letters)


def encode(app: Application, letters: Sequence[MailRequest], ready: Callable[[], None]) -> int:
    """The fragments of an edition."""
    ready()
    for letter in letters:
        app.composer.draft(letter)
    return 1


def sign_ahead(folder: Path, keys: tuple[str, ...]) -> None:
    """Have everything that waits signed before its time, as the product does it."""
    app = workload.build(folder, dkim_keys=keys)
    while presigning.sign_ahead(app.sender, workload.EARLIER - timedelta(hours=1)):
        pass
    app.db.dispose()


# --- all of them


def costs(folder: Path, keys: tuple[str, ...], sink: Sink, mails: int, repetitions: int) -> dict[str, float]:
    """Microseconds of processor a mail: the median of some repetitions."""
    plain, signing = workload.build(folder), workload.build(folder, dkim_keys=keys)
    letters = [workload.letter(number) for number in range(300)]
    many = [letters[number % 300] for number in range(mails)]
    ready_made = written(plain, 50)
    bodies = [ready_made[number % 50] for number in range(mails)]

    def each(sender: forks.Sender) -> float:
        return statistics.median(forks.race([sender], sink.busy).each for _ in range(repetitions))

    def on_copy(work: Callable[..., int], *more: object) -> forks.Sender:
        def send(ready: Callable[[], None]) -> int:
            with tempfile.TemporaryDirectory(dir=folder.parent) as copy:
                shutil.copytree(folder, copy, dirs_exist_ok=True)
                return work(Path(copy), *more, ready)

        return send

    unsigned = each(partial(draft, plain, many))
    return {
        "the fragments of an edition, once a process": each(partial(encode, plain, letters)),
        "writing": unsigned,
        "signing with RSA-2048": each(partial(draft, signing, letters)) - unsigned,
        "the relay": each(carry(sink.port, bodies)),
        "the ledger, from claim to folding": each(on_copy(book)),
        "a ledger by rows: get and commit": each(on_copy(row_by_row, 300)),
    }
