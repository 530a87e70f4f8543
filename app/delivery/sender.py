"""Send emails: claim → compose → sign → send → record.

Three stages overlap: while the relay receives the emails from one batch, threads sign the next emails, and
the next batch is claimed.
"""

import asyncio
import uuid
from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from threading import Event

import structlog

from app.clock import Timeline
from app.delivery import ledger
from app.delivery.send_result import SendOutcome, SendResult
from app.delivery.smtp import connection_pool
from app.delivery.smtp.connection_pool import ConnectionPool
from app.errors import DeliveryError
from app.mail import render
from app.mail.composer import Composer, Draft
from app.mail.message import OutgoingMail
from app.runtime import interpreter
from app.settings import Settings
from app.storage import live_processes
from app.storage.database import Database
from app.types import Digest, MailKind, MailRequest

SIGNING_GROUP = 16  # emails that are composed without a pause and then signed by one thread
MAX_GROUPS_SIGNING = 4  # groups that are being signed while the relay receives earlier ones
SHUTDOWN_GRACE = 10.0  # seconds to wait at shutdown for the replies to emails in flight
FIRST_BATCH = 32  # emails; small, so that connections open while the next batch is claimed
POLL_INTERVAL = 0.1  # seconds
TEST_NOTE = "This is a test email. Its links have no effect, because it does not belong to a subscriber."
# After midnight UTC, because digests that are due at midnight use the cards with which they were signed.
DAY_BEGINS = timedelta(minutes=20)
TUNE_FROM = 100  # emails; for fewer, tuning the interpreter is not worthwhile

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Sender:
    """A sender with its dependencies. `on_failed` is called for each delivery that fails permanently."""

    db: Database
    settings: Settings
    composer: Composer
    snapshots: ledger.SnapshotStore
    stopping: Event  # set at shutdown; no email is started afterwards
    on_failed: ledger.OnFailed

    def send(self, time: Timeline, ids: Collection[int] | None) -> Counter[str]:
        """Send all emails that are due, or only those in `ids`. Return the number of emails by new state.

        The counts also include "cards_left_out", the number of cards that could not be shown. Raise
        JournalError if the journal cannot be written. Must not be called within a running event loop.
        """
        loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
        with suppress(ImportError):
            import uvloop

            loop_factory = uvloop.new_event_loop
        # Tuning affects the whole process, and a single email, such as a confirmation, does not benefit.
        tuned = ids is None or len(ids) >= TUNE_FROM
        with (
            interpreter.tuned_for_throughput() if tuned else nullcontext(),
            asyncio.Runner(loop_factory=loop_factory) as runner,
        ):
            return runner.run(self._send_all(time, ids))

    def drop_old_cards(self, now: datetime) -> None:
        """Drop the cards that were cached on an earlier day. Call this before signing and before sending."""
        day = (now - DAY_BEGINS).date()
        self.composer.start_day(day)
        self.snapshots.start_day(day)

    async def _send_all(self, time: Timeline, ids: Collection[int] | None) -> Counter[str]:
        self.drop_old_cards(time())
        sender_ledger = ledger.SenderLedger(
            self.db,
            self.settings,
            owner=live_processes.new_holder(),
            snapshots=self.snapshots,
            clock=time,
            on_failed=self.on_failed,
        )
        pool = ConnectionPool(self.settings, sender_ledger)
        try:
            async with asyncio.timeout(None) as deadline:
                stopping = asyncio.create_task(_stop_when_asked(self.stopping, sender_ledger, pool, deadline))
                try:
                    async with sender_ledger, pool:
                        with ThreadPoolExecutor() as signers:
                            await _SendRun(self.composer, sender_ledger, pool, ids, signers).send()
                finally:
                    stopping.cancel()
        except TimeoutError:
            if not deadline.expired():
                raise
        return +sender_ledger.counts

    async def send_test(self, digest: Digest, to: str, now: datetime) -> SendResult:
        """Send a digest marked as a test, without adding it to the ledger, and return the result."""
        digest = replace(digest, note=f"{TEST_NOTE}\n{digest.note}".strip())
        try:
            draft = self.composer.draft(preview_request(digest, to, self.settings.mail_domain, now))
            head = draft.head.replace(b"\r\nSubject: ", b"\r\nSubject: Test: ", 1)
            draft = draft._replace(head=head, subject=f"Test: {draft.subject}")
        except Exception as error:
            return _compose_failure(error)
        return await connection_pool.send_one(self.settings, self.composer.sign_and_serialize(draft))


async def _stop_when_asked(
    stopping: Event, sender_ledger: ledger.SenderLedger, pool: ConnectionPool, deadline: asyncio.Timeout
) -> None:
    """Stop the pool when the ledger has a reason to stop or when the process is shutting down."""
    while True:
        if sender_ledger.stop_reason:
            pool.stop(sender_ledger.stop_reason)
        if stopping.is_set():
            pool.stop("the service is stopping")
            sender_ledger.shutting_down = True
            deadline.reschedule(asyncio.get_running_loop().time() + SHUTDOWN_GRACE)
            return
        await asyncio.sleep(POLL_INTERVAL)


@dataclass
class _SendRun:
    """One run of the sender. It claims the next batch while the previous one is being sent."""

    composer: Composer
    ledger: ledger.SenderLedger
    pool: ConnectionPool
    ids: Collection[int] | None
    signers: ThreadPoolExecutor
    signing: deque[asyncio.Future[list[OutgoingMail]]] = field(default_factory=deque)
    failures: set[tuple[MailKind, str]] = field(default_factory=set)  # the logged ones, by kind and cause

    async def send(self) -> None:
        """Send until no more emails are due."""
        while True:
            any_claimed = False
            next_batch = asyncio.create_task(self.ledger.claim(self.ids, FIRST_BATCH))
            while (batch := await next_batch) and not self.pool.stopped:
                any_claimed = True
                next_batch = asyncio.create_task(self.ledger.claim(self.ids))
                await self._compose_and_submit(batch.requests)
            await self._submit_signed(max_signing=0)
            await self.pool.drain()
            if not any_claimed or self.pool.stopped:
                return
            await self.ledger.flush()  # emails that were put back unsent may be due again

    async def _compose_and_submit(self, requests: Sequence[MailRequest]) -> None:
        for start in range(0, len(requests), SIGNING_GROUP):
            if self.pool.stopped:
                break
            group = requests[start : start + SIGNING_GROUP]
            await self.ledger.journal_intent([request.delivery_id for request in group])
            drafts = []
            for request in group:
                try:
                    draft = self.composer.draft(request)
                except Exception as error:  # the other emails are still sent
                    self._record_failure(request, error)
                else:
                    self.ledger.counts["cards_left_out"] += draft.left_out
                    drafts.append(draft)
            if self.composer.signs and not all(draft.is_signed for draft in drafts):
                # In a thread, because signing releases the interpreter's lock.
                loop = asyncio.get_running_loop()
                self.signing.append(loop.run_in_executor(self.signers, _sign_all, self.composer, drafts))
            else:
                await self._submit(_sign_all(self.composer, drafts))
            await self._submit_signed(max_signing=MAX_GROUPS_SIGNING)
            # Yield to the connections, so that they need not wait until the whole batch is composed.
            await asyncio.sleep(0)

    def _record_failure(self, request: MailRequest, error: Exception) -> None:
        """Record that an email cannot be composed. Log each cause once, because all digests may share it."""
        result = _compose_failure(error)
        self.ledger.record_unwritten(request.delivery_id, result)
        if (request.kind, result.text) not in self.failures:
            self.failures.add((request.kind, result.text))
            kind, delivery = request.kind.value, request.delivery_id
            log.error("an email cannot be composed", kind=kind, delivery=delivery, error=result.text)

    async def _submit_signed(self, *, max_signing: int) -> None:
        """Submit signed groups, oldest first, until at most `max_signing` are still being signed."""
        while len(self.signing) > max_signing:
            await self._submit(await self.signing.popleft())

    async def _submit(self, mails: Sequence[OutgoingMail]) -> None:
        for mail in mails:
            await self.pool.submit(mail)


def _sign_all(composer: Composer, drafts: Sequence[Draft]) -> list[OutgoingMail]:
    return [composer.sign_and_serialize(draft) for draft in drafts]


def _compose_failure(error: Exception) -> SendResult:
    is_permanent = isinstance(error, DeliveryError) and error.permanent
    verdict = SendOutcome.UNSENDABLE if is_permanent else SendOutcome.DEFERRED
    return SendResult(verdict, None, f"this email cannot be composed: {render.describe_error(error):.300}")


def preview_request(digest: Digest, to: str, domain: str, now: datetime) -> MailRequest:
    """Return a request for an email without a ledger entry.

    Its links do nothing, because there is no subscriber 0.
    """
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
