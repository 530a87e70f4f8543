"""The sender's hand: the one part of the ledger that commits."""

from __future__ import annotations

import asyncio
import re
from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Self, TypeVar

import structlog
from sqlalchemy.exc import InterfaceError, OperationalError

from app.delivery.journal import AttemptResult, Journal
from app.delivery.ledger import controls
from app.delivery.ledger.claims import (
    LEASE,
    ClaimedBatch,
    claim,
    end,
    load_claimed,
    mark_begun,
    renew_lease,
    still_sendable,
)
from app.delivery.ledger.outcomes import OnFailed, record_results
from app.delivery.ledger.snapshots import SnapshotStore
from app.errors import JournalError
from app.settings import Settings
from app.storage.database import Database, advisory_lock
from app.types import OutgoingMail, SendOutcome, SendResult

BATCH = 300  # answers that are written down at once
SOON = 0.3  # seconds after which fewer are
LOOK = 1.0  # seconds between two looks at what must not leave any more
BLIND = 10.0  # seconds without such a look after which nothing more leaves
PATIENCE = 120.0  # seconds for which the database may be away
WINDOW, ENOUGH = 100, 20  # the last answers that make a storm, and how many there must be
REFUSALS = (
    SendOutcome.HARD_BOUNCE,
    SendOutcome.SOFT_BOUNCE,
    SendOutcome.MAILBOX_FULL,
    SendOutcome.SENDER_REJECTED,
)
ANSWERS = (*REFUSALS, SendOutcome.ACCEPTED, SendOutcome.DEFERRED)
_PERSONAL = re.compile(r"<[^>]*>|\S*@\S*")
AWAY = (OperationalError, InterfaceError)

T = TypeVar("T")

log = structlog.get_logger(__name__)


class CircuitBreaker:
    """Sees when too many of the last answers are refusals."""

    def __init__(self, percent: int) -> None:
        self._percent = percent
        self._last: deque[str] = deque(maxlen=WINDOW)  # the words of a refusal; empty: none

    def add(self, answer: SendResult) -> str:
        """Why to stop, with the count and the commonest words; empty while there is no reason to."""
        if answer.outcome not in ANSWERS:
            return ""
        refused = answer.outcome in REFUSALS
        self._last.append(_PERSONAL.sub("…", f"{answer.code} {answer.text:.200}") if refused else "")
        if not refused or len(self._last) < ENOUGH:
            return ""
        words = Counter(filter(None, self._last))
        if words.total() * 100 < self._percent * len(self._last):
            return ""
        commonest, times = words.most_common(1)[0]
        said = f"{words.total()} of the last {len(self._last)} answers of the relay were refusals"
        return f"{said}; {times} of them: {commonest}"


class SenderLedger:
    """What one sender may send, and what came of it. Used as `async with Ledger(...) as ledger`.

    It is the relay's book. `commit` and `settle` never wait: the journal is written at once, and what it
    says is folded into the database in batches, by a thread. While the database is away nothing new is
    claimed, answers wait in the journal, and after some seconds nothing more leaves. What cannot be folded
    in the end is left for `recover`.
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
        self._started, self._starts = clock().timestamp(), monotonic()
        self._policy = settings.uncertain
        self._journal = Journal(Path(settings.journal_dir), owner, durable=settings.journal_fsync)
        self._storm = CircuitBreaker(settings.pause_at_failures)
        self._claiming: set[asyncio.Task[ClaimedBatch]] = set()
        self._unsure = False  # the database was away: it may have written what it did not answer
        self._in_hand: set[int] = set()  # claimed, and not yet folded
        self._intended: set[int] = set()
        self._withdrawn: set[int] = set()
        self._in_flight: frozenset[int] = frozenset()  # at the last look
        self._shown: frozenset[int] = frozenset()
        self._ended: list[AttemptResult] = []
        self._many, self._one_folds = asyncio.Event(), asyncio.Lock()
        self._seen = self._prolonged = monotonic()
        self._was_away = False  # the database: whatever showed that this sender lives may be gone
        self._pause = ""
        self._fault: Exception | None = None
        self._closing = False
        self.hurry = False  # to be set where the process is asked to end: then a database is not waited for
        self.counts: Counter[str] = Counter()  # what ended, by state

    @property
    def trouble(self) -> str:
        """Why nothing more may leave; empty when all is well."""
        return str(self._fault) if self._fault else self._pause

    async def __aenter__(self) -> Self:
        self._looking = asyncio.create_task(self._keep_looking())
        self._folding = asyncio.create_task(self._keep_folding())
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _where: TracebackType | None
    ) -> None:
        self._looking.cancel()
        self._closing = True
        self._many.set()
        try:
            await asyncio.wait((self._looking, self._folding, *self._claiming))
            self._give_back()
            await self.fold()
        finally:
            self._journal.close(settled=not (self._in_hand or self._claiming or self._unsure))
        if self._fault and error is None:
            raise self._fault

    # --- for the one who sends

    async def claim(self, ids: Collection[int] | None = None, limit: int | None = None) -> ClaimedBatch:
        """Take the next shard; empty when nothing may leave. Waits for a database that is away."""
        if self.trouble:
            return ClaimedBatch()
        # A task of its own: whoever asked may be gone when the database has given the rows out.
        claiming = asyncio.create_task(self._take(ids, limit))
        self._claiming.add(claiming)
        claiming.add_done_callback(self._claiming.discard)
        return await asyncio.shield(claiming)

    async def _take(self, ids: Collection[int] | None, limit: int | None) -> ClaimedBatch:
        taken, at = await self._persistently(partial(self._claim, ids, limit))
        if not self._in_hand:
            self._seen = self._prolonged = at
        self._in_hand.update(taken)  # whatever fails from here on gives them back
        shard = await self._persistently(partial(self._sort_out, taken))
        self._in_hand.difference_update(shard.ended)
        self.counts.update(shard.ended.values())
        return shard

    def _claim(self, ids: Collection[int] | None, limit: int | None) -> tuple[list[int], float]:
        self._database.presence.announce()
        now = self._clock()
        with self._database.write() as session:
            advisory_lock(session, self._owner)  # see recovery.settle
            taken = claim(session, owner=self._owner, now=now, limit=limit, ids=ids)
        return taken, monotonic()

    def _sort_out(self, taken: Collection[int]) -> ClaimedBatch:
        """Not within the transaction that took them: others who want to write need not wait for this."""
        with self._database.read() as session:
            letters, refusals = load_claimed(session, taken, self._snapshots)
        if refusals:
            with self._database.write() as session:
                end(session, self._owner, refusals)
        return ClaimedBatch(letters, {number: state for number, (state, _) in refusals.items()})

    async def intend(self, ids: Collection[int]) -> None:
        """To be awaited before these are handed to the relay, so that `commit` need not wait for the disk."""
        if self._journal.durable:
            self._journal.intend(ids)
            await asyncio.to_thread(self._journal.sync)
            self._intended.update(ids)

    # --- for the relay: see smtp.Book

    def may_leave(self, mail: OutgoingMail) -> bool:
        """As far as is known: no reader left, nothing was paused or cancelled."""
        return self._may_leave(mail.delivery_id)

    def commit(self, mail: OutgoingMail) -> bool:
        """May this body leave? When True, the journal says that it does.

        JournalError: it cannot be written, and nothing leaves any more.
        """
        delivery_id = mail.delivery_id
        if not self._may_leave(delivery_id):
            return False
        try:
            self._journal.begin(delivery_id, self._now(), mail.message_id, mail.subject)
        except JournalError as error:
            self._fault = error
            raise
        return True

    def _may_leave(self, delivery_id: int) -> bool:
        if self._fault or self._pause or delivery_id in self._withdrawn:
            return False
        if self._journal.durable and delivery_id not in self._intended:
            return False
        now = monotonic()
        return now - self._seen < BLIND and now - self._prolonged < LEASE.total_seconds() / 2

    def settle(self, mail: OutgoingMail, answer: SendResult) -> None:
        """What became of a mail. It is in the journal when this returns, and in the ledger soon."""
        begun = self._journal.is_open(mail.delivery_id)
        names = (mail.message_id, mail.subject) if begun else ("", "")
        self._settle(AttemptResult(mail.delivery_id, answer, self._now(), *names))

    def settle_unwritten(self, delivery_id: int, answer: SendResult) -> None:
        """What becomes of a letter that could not be written."""
        self._settle(AttemptResult(delivery_id, answer, self._now()))

    def _settle(self, ending: AttemptResult) -> None:
        if ending.answer.outcome not in (SendOutcome.NOT_ATTEMPTED, SendOutcome.WITHDRAWN):
            try:
                self._journal.end(ending)
            except JournalError as error:
                self._fault = self._fault or error  # the ledger gets to know it all the same
            if not self._pause:
                self._pause = self._storm.add(ending.answer)
        self._ended.append(ending)
        if len(self._ended) >= BATCH:
            self._many.set()

    def _now(self) -> float:
        return self._started + monotonic() - self._starts

    # --- from the journal into the ledger

    async def _keep_folding(self) -> None:
        while not (self._closing or self._fault):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._many.wait(), SOON)
            try:
                await self.fold(some=True)
            except Exception as error:
                self._fault = self._fault or error

    async def fold(self, *, some: bool = False) -> None:
        """Write down in the ledger what has ended so far; only `some`: a batch, which is as dear if small."""
        async with self._one_folds:
            while self._ended:
                batch = self._ended[: 2 * BATCH]
                states = await self._persistently(partial(self._fold, batch))
                del self._ended[: len(batch)]
                self._folded(batch, states)
                if some:
                    break
            if len(self._ended) < BATCH:
                self._many.clear()

    def _fold(self, batch: Sequence[AttemptResult]) -> dict[int, str]:
        now = self._clock()
        with self._database.write() as session:
            if self._pause:
                controls.pause(session, self._pause, now)
            states = record_results(
                session, batch, owner=self._owner, now=now, policy=self._policy, on_failed=self._on_failed
            )
        if self._journal.durable:
            self._database.fsync()
        return {delivery_id: state.value for delivery_id, state in states.items()}

    def _folded(self, batch: Sequence[AttemptResult], states: dict[int, str]) -> None:
        ids = [ending.delivery_id for ending in batch]
        self._journal.folded(ids)
        self._in_hand.difference_update(ids)
        self._withdrawn.difference_update(ids)
        self._intended.difference_update(ids)
        self.counts.update(states.get(delivery_id, "taken over") for delivery_id in ids)

    def _give_back(self) -> None:
        """What was claimed and never begun waits for the next sender."""
        settled = {ending.delivery_id for ending in self._ended}
        for delivery_id in self._in_hand - settled - self._journal.open:
            self._settle(AttemptResult(delivery_id, SendResult(SendOutcome.NOT_ATTEMPTED), self._now()))

    # --- what must not leave any more

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(LOOK)
            try:
                await self.look()
            except AWAY as error:
                self._was_away = True
                log.warning("the ledger cannot be asked whether mails may still leave", error=str(error.orig))
            except Exception as error:
                self._fault = self._fault or error

    async def look(self) -> None:
        """Ask which mails in hand must not leave any more."""
        in_hand, at = frozenset(self._in_hand), monotonic()
        if in_hand:
            fine = await asyncio.to_thread(self._ask)
            self._withdrawn |= (in_hand - fine) & self._in_hand
            self._seen = at
            await self._tell(at)

    def _ask(self) -> set[int]:
        with self._database.read() as session:
            return still_sendable(session, self._owner)

    async def _tell(self, at: float) -> None:
        """Show which mails are long in flight, and from time to time that the sender lives."""
        begun = self._journal.open
        long_in_flight, self._in_flight = begun & self._in_flight - self._shown, begun
        prolonging = self._was_away or at - self._prolonged > LEASE.total_seconds() / 4
        if long_in_flight or prolonging:
            await asyncio.to_thread(self._show, long_in_flight, prolonging)
            self._shown = self._shown & begun | long_in_flight
            self._prolonged = at if prolonging else self._prolonged
            self._was_away = False

    def _show(self, long_in_flight: Collection[int], prolonging: bool) -> None:
        if prolonging:
            self._database.presence.announce()
        now = self._clock()
        with self._database.write() as session:
            mark_begun(session, self._owner, long_in_flight)
            if prolonging:
                renew_lease(session, self._owner, now)

    # --- while the database is away

    async def _persistently(self, work: Callable[[], T]) -> T:
        """Do it in a thread, once more while the database is away."""
        began = monotonic()
        while True:
            try:
                return await asyncio.to_thread(work)
            except AWAY as error:
                self._unsure = True
                if self.hurry or monotonic() - began > PATIENCE:
                    raise
                log.warning("the database is away", error=str(error.orig))
                await asyncio.sleep(LOOK)
