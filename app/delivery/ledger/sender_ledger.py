"""The ledger for one running sender: claim, journal the intent, commit, record.

This module commits its own transactions.

claim            claim emails that are due, with a lease           database
journal_intent   optional: journal that emails may be sent soon    journal, synced to disk
commit           journal that the body is about to be sent        journal
record           journal the relay's reply, or why there is none  journal
flush            write the recorded results, in batches           database
refresh          find claimed emails that must no longer be sent   database
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Self, TypeVar

import structlog
from sqlalchemy.exc import InterfaceError, OperationalError

from app.delivery import result_log
from app.delivery.journal import AttemptResult, Journal
from app.delivery.ledger import circuit_breaker, daily_limits, sending_pauses, suspected_refusals
from app.delivery.ledger.claims import (
    LEASE,
    ClaimedBatch,
    claim,
    load_claimed,
    mark_committing,
    renew_lease,
    sendable_addresses,
    skip_claimed,
)
from app.delivery.ledger.outcomes import OnFailed, record_results
from app.delivery.ledger.receiver_backoffs import FIRST_BACKOFF
from app.delivery.ledger.removal import leave_out_of_claimed
from app.delivery.ledger.snapshots import SnapshotStore
from app.delivery.receivers import receiver_of
from app.delivery.result_log import TAKEN_OVER
from app.delivery.send_result import SendOutcome, SendResult
from app.errors import JournalError
from app.mail.message import OutgoingMail
from app.settings import Settings
from app.storage.database import Database, advisory_lock
from app.storage.models import DeliveryState as State

FLUSH_SIZE = 300  # the number of results that are flushed at once
FLUSH_INTERVAL = 0.3  # seconds after which fewer results are flushed
REFRESH_INTERVAL = 1.0  # seconds
MAX_REFRESH_AGE = 10.0  # seconds since the last refresh after which sending stops
DATABASE_TIMEOUT = 120.0  # seconds for which the database may be unreachable
DATABASE_AWAY = (OperationalError, InterfaceError)

T = TypeVar("T")

log = structlog.get_logger(__name__)


class SenderLedger:
    """The emails that one sender has claimed, and their results. Use it as `async with SenderLedger(...)`.

    This class is the connection pool's `DeliveryTracker`. `commit` and `record` never wait: they write to the
    journal at once, and a thread flushes the results to the database in batches. While the database is
    unreachable, no email is claimed and results stay in the journal. Sending stops after `MAX_REFRESH_AGE`.
    Results that still cannot be flushed on exit stay in the journal for `recover`.
    """

    def __init__(
        self,
        database: Database,
        settings: Settings,
        owner: str,
        snapshots: SnapshotStore,
        clock: Callable[[], datetime],
        on_failed: OnFailed,
    ) -> None:
        self._database, self._owner, self._snapshots, self._clock = database, owner, snapshots, clock
        self._on_failed = on_failed
        self._started_at, self._started_monotonic = clock().timestamp(), monotonic()
        self._policy, self._warm_up = settings.when_uncertain, daily_limits.warm_up_of(settings)
        self._journal = Journal(Path(settings.journal_dir), owner, durable=settings.journal_fsync)
        self._breaker = circuit_breaker.CircuitBreaker(settings.pause_at_failures)
        self._claims: set[asyncio.Task[ClaimedBatch]] = set()  # claims that are still running
        self._writes_unconfirmed = False  # the connection failed, but the database may have committed
        self._claimed_ids: set[int] = set()  # claimed emails whose results have not been flushed yet
        self._retried_ids: set[int] = set()  # claimed emails that were attempted before
        self._intended_ids: set[int] = set()  # synced to disk by `journal_intent`
        self._started_ids: set[int] = set()  # emails that may be sent and have no result yet
        self._withdrawn_ids: set[int] = set()  # claimed emails that must no longer be sent
        self._backed_off: dict[str, float] = {}  # receiver → end of a back-off not yet in the database
        self._in_flight_ids: frozenset[int] = frozenset()  # as of the last refresh
        self._committing_ids: frozenset[int] = frozenset()  # marked as `committing` in the database
        self._editions: dict[int, str] = {}  # of claimed emails, for the log
        self._addresses: dict[int, str] = {}  # of claimed emails; subscribers may change them
        self._results: list[AttemptResult] = []  # not flushed yet
        self._flush_due, self._flush_lock = asyncio.Event(), asyncio.Lock()
        self._refreshed_at = self._renewed_at = monotonic()
        self._database_was_away = False  # if True, the lock that shows that this sender runs may be lost
        self._pause_reason, self._pause_recorded = "", False
        self._is_suspecting = False  # a refusal may be about us: see suspected_refusals
        self._awaited_ids: frozenset[int] = frozenset()  # started before, because the relay may accept them
        self._error: Exception | None = None
        self._closing = False
        self.shutting_down = False  # set at shutdown: do not wait for the database
        self.counts: Counter[str] = Counter()  # of emails by new state

    @property
    def stop_reason(self) -> str:
        """The reason why nothing more may be sent, or an empty string."""
        return str(self._error) if self._error else self._pause_reason

    async def __aenter__(self) -> Self:
        self._refreshing = asyncio.create_task(self._refresh_periodically())
        self._flushing = asyncio.create_task(self._flush_periodically())
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _where: TracebackType | None
    ) -> None:
        self._refreshing.cancel()
        self._closing = True
        self._flush_due.set()
        try:
            await asyncio.wait((self._refreshing, self._flushing, *self._claims))
            # Record emails that were never started as NOT_ATTEMPTED, so that the next sender can claim them.
            recorded = {attempt.delivery_id for attempt in self._results}
            for delivery_id in self._claimed_ids - recorded - self._journal.in_flight:
                self.record_unwritten(delivery_id, SendResult(SendOutcome.NOT_ATTEMPTED))
            await self.flush()
        finally:
            complete = not (self._claimed_ids or self._claims or self._writes_unconfirmed)
            self._journal.close(complete=complete)
        if self._error and error is None:
            raise self._error

    # --- claim

    async def claim(self, ids: Collection[int] | None = None, limit: int | None = None) -> ClaimedBatch:
        """Claim the next emails, or return an empty batch if none can be sent.

        Wait up to DATABASE_TIMEOUT while the database is unreachable.
        """
        if self.stop_reason:
            return ClaimedBatch()
        # In a separate task, because the caller may be cancelled after the database has claimed the rows.
        claiming = asyncio.create_task(self._claim_and_load(ids, limit))
        self._claims.add(claiming)
        claiming.add_done_callback(self._claims.discard)
        return await asyncio.shield(claiming)

    async def _claim_and_load(self, ids: Collection[int] | None, limit: int | None) -> ClaimedBatch:
        claimed_ids, unsent, claimed_at = await self._retry_while_away(partial(self._claim, ids, limit))
        if not self._claimed_ids:
            self._refreshed_at = self._renewed_at = claimed_at
        self._claimed_ids.update(claimed_ids)  # if anything fails from here on, they are released
        batch = await self._retry_while_away(partial(self._load_claimed, claimed_ids))
        batch = replace(batch, skipped={**batch.skipped, **unsent})
        self._claimed_ids.difference_update(batch.skipped)
        self._editions.update((request.delivery_id, request.edition) for request in batch.requests)
        self._addresses.update((request.delivery_id, request.email) for request in batch.requests)
        self.counts.update(batch.skipped.values())
        return batch

    def _claim(
        self, ids: Collection[int] | None, limit: int | None
    ) -> tuple[list[int], Mapping[int, State], float]:
        """Claim emails. Return the ids to load, the states of the others, and the monotonic time.

        The others are deferred by the limits of a warm-up, or skipped because no paper is left in them (see
        `leave_out_of_claimed`).
        """
        self._database.presence.announce()
        now, unsent = self._clock(), dict[int, State]()
        with self._database.write() as session:
            advisory_lock(session, self._owner)  # see recovery.replay_journal
            if self._warm_up:
                daily_limits.lock(session)
            claimed_ids = claim(
                session, owner=self._owner, now=now, limit=limit, ids=ids,
                longest_waiting_first=daily_limits.is_limited(self._warm_up, now),
            )  # fmt: skip
            if self._warm_up:
                deferred = daily_limits.defer_excess(session, self._warm_up, self._owner, claimed_ids, now)
                unsent |= dict.fromkeys(deferred, State.DEFERRED)
            unsent |= dict.fromkeys(leave_out_of_claimed(session, claimed_ids), State.SKIPPED)
        return [number for number in claimed_ids if number not in unsent], unsent, monotonic()

    def _load_claimed(self, claimed_ids: Collection[int]) -> ClaimedBatch:
        """Load the claimed emails outside the claim's transaction, so that other writers do not wait."""
        with self._database.read() as session:
            requests, skips, retried_ids = load_claimed(session, claimed_ids, self._snapshots, self._clock())
        self._retried_ids.update(retried_ids)
        if skips:
            with self._database.write() as session:
                skip_claimed(session, self._owner, skips)
        return ClaimedBatch(requests, {delivery_id: skip.state for delivery_id, skip in skips.items()})

    # --- journal the intent, commit, record: see connection_pool.DeliveryTracker

    async def journal_intent(self, ids: Collection[int]) -> None:
        """Durably record the intent to send these emails. Do nothing if the journal is not durable."""
        if self._journal.durable:
            self._journal.intend(ids)
            await asyncio.to_thread(self._journal.sync)
            self._intended_ids.update(ids)

    def may_send(self, mail: OutgoingMail) -> bool:
        """Return whether an email may be sent now. Emails to a receiver that has just throttled us wait."""
        if self._backed_off and self._backed_off.get(receiver_of(mail.recipient), 0) > monotonic():
            return False
        if not self._may_commit(mail):
            return False
        self._started_ids.add(mail.delivery_id)
        return True

    def _may_commit(self, mail: OutgoingMail) -> bool:
        if self._error or self._pause_reason or mail.delivery_id in self._withdrawn_ids:
            return False
        if self._journal.durable and mail.delivery_id not in self._intended_ids:
            return False
        now = monotonic()
        return (
            now - self._refreshed_at < MAX_REFRESH_AGE and now - self._renewed_at < LEASE.total_seconds() / 2
        )

    def commit(self, mail: OutgoingMail) -> bool:
        """Return whether the body may be sent. If True, the journal now says that it is about to be sent.

        Raise JournalError if the journal cannot be written. In that case, nothing more is sent.
        """
        if not self._may_commit(mail):
            return False
        try:
            self._journal.begin(mail.delivery_id, self._now(), mail.message_id, mail.subject)
        except JournalError as error:
            self._error = error
            raise
        return True

    def record(self, mail: OutgoingMail, result: SendResult) -> None:
        """Record an email's result in the journal now (if it was attempted) and in the database soon."""
        if result.outcome is SendOutcome.THROTTLED:
            self._backed_off[receiver_of(mail.recipient)] = monotonic() + FIRST_BACKOFF.total_seconds()
        committed = mail.delivery_id in self._journal.in_flight
        names = (mail.message_id, mail.subject) if committed else ("", "")
        self._record(AttemptResult(mail.delivery_id, result, self._now(), *names))

    def record_unwritten(self, delivery_id: int, result: SendResult) -> None:
        """Record the result of an email that was never submitted to the relay."""
        self._record(AttemptResult(delivery_id, result, self._now()))

    def _record(self, attempt: AttemptResult) -> None:
        self._started_ids.discard(attempt.delivery_id)
        if attempt.result.outcome not in (SendOutcome.NOT_ATTEMPTED, SendOutcome.WITHDRAWN):
            try:
                self._journal.end(attempt)
            except JournalError as error:
                self._error = self._error or error  # the result is still flushed to the database
            is_suspected = attempt.result.outcome is SendOutcome.SENDER_REJECTION_SUSPECTED
            # A run may consist of retries that are refused individually.
            if not (self._pause_reason or (is_suspected and attempt.delivery_id in self._retried_ids)):
                self._pause_reason = self._breaker.add(attempt.result, len(self._journal.in_flight))
            if is_suspected and not self._is_suspecting:
                self._is_suspecting, self._awaited_ids = True, frozenset(self._started_ids)
        self._results.append(attempt)
        if len(self._results) >= FLUSH_SIZE or (self._is_suspecting and not self._awaits_replies):
            self._flush_due.set()

    @property
    def _awaits_replies(self) -> bool:
        """True if emails that had been started at the first suspected refusal have no result yet."""
        return not self._awaited_ids.isdisjoint(self._started_ids)

    def _now(self) -> float:
        return self._started_at + monotonic() - self._started_monotonic

    # --- flush: from the journal to the database

    async def _flush_periodically(self) -> None:
        while not (self._closing or self._error):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._flush_due.wait(), FLUSH_INTERVAL)
            try:
                await self.flush(one_batch=True)
            except Exception as error:
                self._error = self._error or error

    async def flush(self, *, one_batch: bool = False) -> None:
        """Write the recorded results to the database: all of them, or only one batch."""
        async with self._flush_lock:
            while self._results:
                batch = self._results[: 2 * FLUSH_SIZE]
                is_complete = len(batch) == len(self._results) and not self._awaits_replies
                deciding = self._is_suspecting and is_complete
                self._is_suspecting &= not deciding
                states = await self._retry_while_away(partial(self._write_results, batch, deciding))
                del self._results[: len(batch)]
                ids = [attempt.delivery_id for attempt in batch]
                self._journal.acknowledge(ids)
                self._claimed_ids.difference_update(ids)
                self._withdrawn_ids.difference_update(ids)
                self._intended_ids.difference_update(ids)
                self._retried_ids.difference_update(ids)
                self.counts.update(states.get(delivery_id, TAKEN_OVER) for delivery_id in ids)
                editions = {delivery_id: self._editions.pop(delivery_id, "") for delivery_id in ids}
                for delivery_id in ids:
                    self._addresses.pop(delivery_id, None)
                result_log.log_results(batch, states, editions)
                if one_batch:
                    break
            if len(self._results) < FLUSH_SIZE:
                self._flush_due.clear()

    def _write_results(self, batch: Sequence[AttemptResult], deciding: bool) -> dict[int, str]:
        now = self._clock()
        pause_reason = "" if self._pause_recorded else self._pause_reason
        with self._database.write() as session:
            if pause_reason:
                sending_pauses.pause_automatically(session, pause_reason, now)
            states = record_results(
                session, batch, owner=self._owner, now=now, policy=self._policy, on_failed=self._on_failed
            )
            if deciding and not self._pause_reason and (reason := suspected_refusals.pause_reason(session)):
                sending_pauses.pause_automatically(session, reason, now)
                self._pause_reason = pause_reason = reason
        self._pause_recorded |= bool(pause_reason)  # an operator may resume before the last reply is flushed
        if self._journal.durable:
            self._database.fsync()
        return {delivery_id: state.value for delivery_id, state in states.items()}

    # --- refresh: withdrawn emails and the lease

    async def _refresh_periodically(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_INTERVAL)
            try:
                await self.refresh()
            except DATABASE_AWAY as error:
                self._database_was_away = True
                log.warning(
                    "could not check with the database which emails may still be sent", error=str(error.orig)
                )
            except Exception as error:
                self._error = self._error or error

    async def refresh(self) -> None:
        """Withdraw emails that must no longer be sent, mark slow emails as `committing`, renew the lease."""
        claimed_ids, now = frozenset(self._claimed_ids), monotonic()
        if not claimed_ids:
            return
        current = await asyncio.to_thread(self._query_sendable)
        sendable = {
            number for number, email in current.items() if self._addresses.get(number, email) == email
        }
        self._withdrawn_ids |= (claimed_ids - sendable) & self._claimed_ids
        self._refreshed_at = now

        in_flight = frozenset(self._journal.in_flight)
        long_in_flight = in_flight & self._in_flight_ids - self._committing_ids
        self._in_flight_ids = in_flight
        renewing = self._database_was_away or now - self._renewed_at > LEASE.total_seconds() / 4
        if long_in_flight or renewing:
            await asyncio.to_thread(self._mark_and_renew, long_in_flight, renewing)
            self._committing_ids = self._committing_ids & in_flight | long_in_flight
            self._renewed_at = now if renewing else self._renewed_at
            self._database_was_away = False

    def _query_sendable(self) -> dict[int, str]:
        with self._database.read() as session:
            return sendable_addresses(session, self._owner, self._clock())

    def _mark_and_renew(self, long_in_flight: Collection[int], renewing: bool) -> None:
        if renewing:
            self._database.presence.announce()
        now = self._clock()
        with self._database.write() as session:
            mark_committing(session, self._owner, long_in_flight)
            if renewing:
                renew_lease(session, self._owner, now)

    # --- while the database is unreachable

    async def _retry_while_away(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread. Repeat it while the database is unreachable, for up to DATABASE_TIMEOUT."""
        began = monotonic()
        while True:
            try:
                return await asyncio.to_thread(work)
            except DATABASE_AWAY as error:
                self._writes_unconfirmed = True
                if self.shutting_down or monotonic() - began > DATABASE_TIMEOUT:
                    raise
                log.warning("the database is unavailable", error=str(error.orig))
                await asyncio.sleep(REFRESH_INTERVAL)
