"""The posting of mails: what the ledger gives out is written, handed to the relay, and its end recorded."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from threading import Event

from app.clock import Timeline
from app.delivery import ledger
from app.delivery.smtp import connection_pool
from app.delivery.smtp.connection_pool import ConnectionPool
from app.errors import DeliveryError
from app.mail.composer import Composer, Draft
from app.runtime import interpreter
from app.settings import Settings
from app.storage import live_processes
from app.storage.database import Database
from app.types import Digest, MailKind, MailRequest, OutgoingMail, SendOutcome, SendResult

GROUP = 16  # letters that are written, and then sealed by one thread, before others get a word in
AHEAD = 4  # groups that are being sealed while the relay takes earlier ones
GRACE = 10.0  # seconds for which a mail in flight may wait for its answer when the service is to end
FIRST = 32  # letters of the first shard: so that connections open while the next one is taken
OFTEN = 0.1  # seconds
MANY = 100  # mails from which the interpreter is tuned for sending them


@dataclass(frozen=True)
class Sender:
    """Send mails by these settings. `on_failed` is called for each delivery that fails for good."""

    db: Database
    settings: Settings
    composer: Composer
    snapshots: ledger.SnapshotStore
    stopping: Event  # set when the process is to end: nothing new is begun
    on_failed: ledger.OnFailed

    def send(self, time: Timeline, ids: Collection[int] | None) -> Counter[str]:
        """Send whatever may leave and return how many mails ended in which state.

        Not within a running event loop.
        """
        # A single mail, as after a sign-up, gains nothing from settings that the whole process shares.
        tuned = interpreter.tuned_for_throughput() if ids is None or len(ids) >= MANY else nullcontext()
        with tuned, asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(self._send_all(time, ids))

    async def _send_all(self, time: Timeline, ids: Collection[int] | None) -> Counter[str]:
        """Take shards from the ledger until nothing may leave, or the service is to end."""
        sender_ledger = ledger.SenderLedger(
            self.db,
            self.settings,
            owner=live_processes.new_holder(),
            snapshots=self.snapshots,
            clock=time,
            on_failed=self.on_failed,
        )
        relay = ConnectionPool(self.settings, sender_ledger)
        try:
            async with asyncio.timeout(None) as patience:
                stopping = asyncio.create_task(_stop_in_time(self.stopping, sender_ledger, relay, patience))
                try:
                    async with sender_ledger, relay:
                        with ThreadPoolExecutor() as sealers:
                            await _SendRun(self.composer, sender_ledger, relay, ids, sealers).send()
                finally:
                    stopping.cancel()
        except TimeoutError:
            if not patience.expired():
                raise
        return +sender_ledger.counts

    async def send_test(self, digest: Digest, to: str, now: datetime) -> SendResult:
        """Send a digest outside of the ledger and return what the relay answered."""
        try:
            draft = self.composer.draft(preview_request(digest, to, self.settings.mail_domain, now))
        except Exception as error:
            return _why_not(error)
        return await connection_pool.send_one(self.settings, self.composer.seal(draft))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _stop_in_time(
    end: Event, sender_ledger: ledger.SenderLedger, relay: ConnectionPool, patience: asyncio.Timeout
) -> None:
    """Begin nothing new where the service is to end, or the ledger says so."""
    while True:
        if sender_ledger.trouble:
            relay.stop(sender_ledger.trouble)
        if end.is_set():
            relay.stop("the service is to end")
            sender_ledger.hurry = True
            patience.reschedule(asyncio.get_running_loop().time() + GRACE)
            return
        await asyncio.sleep(OFTEN)


@dataclass
class _SendRun:
    """Claims, writes and hands over: the next shard while the last one is on its way."""

    composer: Composer
    ledger: ledger.SenderLedger
    relay: ConnectionPool
    ids: Collection[int] | None
    sealers: ThreadPoolExecutor
    sealing: deque[asyncio.Future[list[OutgoingMail]]] = field(default_factory=deque)

    async def send(self) -> None:
        """Until nothing may leave any more: what the ledger took back may by now."""
        while await self._send_what_waits() and not self.relay.stopped:
            await self.ledger.fold()

    async def _send_what_waits(self) -> bool:
        anything = False
        coming = asyncio.create_task(self.ledger.claim(self.ids, FIRST))
        while (shard := await coming) and not self.relay.stopped:
            anything = True
            coming = asyncio.create_task(self.ledger.claim(self.ids))
            await self._hand_over(shard.letters)
        await self._hand_over_sealed(0)
        await self.relay.drain()
        return anything

    async def _hand_over(self, letters: Sequence[MailRequest]) -> None:
        for start in range(0, len(letters), GROUP):
            if self.relay.stopped:
                break
            group = letters[start : start + GROUP]
            await self.ledger.intend([letter.delivery_id for letter in group])
            await self._seal([draft for letter in group if (draft := self._draft(letter))])
            await self._hand_over_sealed(AHEAD)
            # The relay has room for a hundred more, and must not starve until all of them are written.
            await asyncio.sleep(0)

    def _draft(self, letter: MailRequest) -> Draft | None:
        """One broken mail must not stop the others: it waits for its fault to be mended, if there is time."""
        try:
            draft = self.composer.draft(letter)
        except Exception as error:
            self.ledger.settle_unwritten(letter.delivery_id, _why_not(error))
            return None
        self.ledger.counts["cards_left_out"] += draft.left_out
        return draft

    async def _seal(self, drafts: Sequence[Draft]) -> None:
        """In a thread where that takes long: signing leaves Python to others meanwhile."""
        composer, loop = self.composer, asyncio.get_running_loop()
        if composer.signs and not all(draft.signed for draft in drafts):
            self.sealing.append(loop.run_in_executor(self.sealers, _sealed, composer, drafts))
        else:
            await self._submit(_sealed(composer, drafts))

    async def _hand_over_sealed(self, still_sealing: int) -> None:
        while len(self.sealing) > still_sealing:
            await self._submit(await self.sealing.popleft())

    async def _submit(self, mails: Sequence[OutgoingMail]) -> None:
        for mail in mails:
            await self.relay.submit(mail)


def _sealed(composer: Composer, drafts: Sequence[Draft]) -> list[OutgoingMail]:
    return [composer.seal(draft) for draft in drafts]


def _why_not(error: Exception) -> SendResult:
    lasting = isinstance(error, DeliveryError) and error.permanent
    verdict = SendOutcome.UNSENDABLE if lasting else SendOutcome.DEFERRED
    return SendResult(verdict, None, f"this mail cannot be made: {error!s:.300}")


def preview_request(digest: Digest, to: str, domain: str, now: datetime) -> MailRequest:
    """A mail outside of the ledger. Its links grant nothing, for nobody is reader 0."""
    return MailRequest(
        delivery_id=0,
        kind=MailKind.DIGEST,
        edition=digest.edition,
        subscriber_id=0,
        email=to,
        link_epoch=0,
        issued_at=now,
        digest=digest,
        message_id=f"<test-{uuid.uuid4().hex}@{domain}>",
    )
