"""The ledger: one row for each mail to a reader, always in exactly one state.

    pending ─▶ claimed ─▶ committing ─▶ sent
       ▲          │            ├──▶ deferred (next_attempt_at) ─▶ claimed …
       └──────────┘            ├──▶ failed
     lease ran out             └──▶ uncertain: the connection or the process died after DATA

`committing` is durable before DATA is sent, so a crash leaves at most the mails in flight uncertain;
whatever was only claimed is provably unsent. Functions take a session and never commit, except for
`Ledger`, the sender's own hand, because a mail that was sent cannot be rolled back.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, func, or_, update
from sqlmodel import Session, col, delete, exists, select

from app import suppression
from app.db import Database, insert_new
from app.errors import Conflict, NotFound
from app.models import Delivery, Event, MailKind, SendingPause, Subscriber, SubscriberState
from app.models import DeliveryState as State
from app.records import Answer, Digest, Outgoing, Verdict
from app.settings import UncertainPolicy

EVERYTHING = "*"
# Longer than the ten minutes that a relay may take over the final dot.
LEASE = timedelta(minutes=20)
FIRST_DELAY, LONGEST_DELAY = timedelta(minutes=5), timedelta(hours=4)
# What an attempt of its owner may still settle; all else has been freed, sent by another, or ended.
IN_HAND = (State.CLAIMED, State.COMMITTING, State.UNCERTAIN)
UNDELIVERED = (State.FAILED, State.SUPPRESSED, State.SKIPPED)


# --- into the ledger


def enqueue(
    session: Session,
    *,
    subscriber_id: int,
    kind: MailKind,
    edition: str,
    due_at: datetime,
    now: datetime,
    digest: Digest | None = None,
    give_up_at: datetime | None = None,
) -> int | None:
    """A mail to be sent from `due_at` on. None: this reader has this edition already."""
    return insert_new(
        session,
        Delivery,
        ("subscriber_id", "edition"),
        subscriber_id=subscriber_id,
        kind=kind,
        edition=edition,
        state=State.PENDING,
        digest=asdict(digest) if digest else {},
        due_at=due_at,
        created_at=now,
        next_attempt_at=due_at,
        give_up_at=give_up_at,
    )


def skip(
    session: Session, *, subscriber_id: int, edition: str, reason: str, due_at: datetime, now: datetime
) -> int | None:
    """Write down that a digest was due and why there is none."""
    return insert_new(
        session,
        Delivery,
        ("subscriber_id", "edition"),
        subscriber_id=subscriber_id,
        kind=MailKind.DIGEST,
        edition=edition,
        state=State.SKIPPED,
        reason=reason,
        due_at=due_at,
        created_at=now,
    )


# --- out of the ledger, to be sent


@dataclass(frozen=True, slots=True)
class Shard:
    """What one claim took: letters to send, and a count of those that were ended instead."""

    letters: tuple[tuple[Delivery, Subscriber], ...] = ()
    ended: Counter[str] | None = None

    def __bool__(self) -> bool:
        return bool(self.letters or self.ended)


def claim(
    session: Session, *, owner: str, now: datetime, limit: int = 100, ids: Collection[int] | None = None
) -> Shard:
    """Take what may leave now. No two claimers ever get the same row, in any number of processes."""
    due = select(col(Delivery.id)).where(_may_leave(now)).order_by(col(Delivery.next_attempt_at))
    if ids is not None:
        due = due.where(col(Delivery.id).in_(ids))
    taken = session.exec(due.limit(limit).with_for_update(skip_locked=True)).all()
    session.execute(
        update(Delivery)
        .where(col(Delivery.id).in_(taken))
        .values(
            state=State.CLAIMED, lease_owner=owner, lease_until=now + LEASE, attempts=Delivery.attempts + 1
        )
    )
    return _sort_out(session, taken)


def _may_leave(now: datetime) -> ColumnElement[bool]:
    """Due, not given up, not paused. A mail of unknown fate that is held has no next attempt."""
    return (
        col(Delivery.state).in_((State.PENDING, State.DEFERRED, State.UNCERTAIN))
        & (col(Delivery.next_attempt_at) <= now)
        & or_(col(Delivery.give_up_at).is_(None), col(Delivery.give_up_at) > now)
        & _not_paused()
    )


def _not_paused() -> ColumnElement[bool]:
    paused = select(col(SendingPause.edition))
    everything = exists().where(col(SendingPause.edition) == EVERYTHING)
    return col(Delivery.edition).not_in(paused) & ~everything


def _sort_out(session: Session, ids: Sequence[int | None]) -> Shard:
    """Readers who left since the mail was composed get none: those rows end here, with the reason."""
    letters, ended = [], Counter[str]()
    rows = _with_readers(session, ids)
    suppressed = suppression.among(session, [subscriber.email for _, subscriber in rows])
    for delivery, subscriber in rows:
        refusal = refusal_of(delivery.kind, subscriber, suppressed.get(subscriber.email))
        if refusal:
            _end(delivery, *refusal)
            ended[refusal[0]] += 1
        else:
            letters.append((delivery, subscriber))
    return Shard(tuple(letters), ended)


def _with_readers(session: Session, ids: Sequence[int | None]) -> list[tuple[Delivery, Subscriber]]:
    joined = select(Delivery, Subscriber).join(Subscriber, col(Subscriber.id) == Delivery.subscriber_id)
    found = session.exec(joined.where(col(Delivery.id).in_(ids)).execution_options(populate_existing=True))
    return sorted(found, key=lambda row: row[0].id or 0)


def refusal_of(kind: MailKind, reader: Subscriber, suppressed: str | None) -> tuple[State, str] | None:
    """The state and reason in which a mail ends unsent, or None when it may go."""
    if suppressed is not None:
        return State.SUPPRESSED, f"the address is suppressed: {suppressed}"
    if reader.state is SubscriberState.ERASED:
        return State.SKIPPED, "the reader was erased"
    if kind is MailKind.DIGEST and reader.state is not SubscriberState.ACTIVE:
        return State.SKIPPED, f"the reader is {reader.state}"
    return None


# --- the two writes around DATA


def commit(session: Session, mails: Sequence[Outgoing], *, owner: str, now: datetime) -> set[int]:
    """Write down that these are about to be sent; the ids that may be: no reader left, nothing paused."""
    by_id = {mail.delivery_id: mail for mail in mails}
    held = select(col(Delivery.id)).where(
        col(Delivery.id).in_(by_id),
        col(Delivery.lease_owner) == owner,
        col(Delivery.state) == State.CLAIMED,
        _not_paused(),
    )
    shard = _sort_out(session, session.exec(held.with_for_update()).all())
    for delivery, _ in shard.letters:
        mail = by_id[delivery.id or 0]
        delivery.state, delivery.lease_until = State.COMMITTING, now + LEASE
        delivery.message_id, delivery.subject = mail.message_id, mail.subject
    return {delivery.id or 0 for delivery, _ in shard.letters}


def record(
    session: Session,
    answers: Sequence[tuple[int, Answer]],
    *,
    owner: str,
    now: datetime,
    policy: UncertainPolicy,
) -> dict[int, State]:
    """Write down what became of attempts, and draw the consequences; the state of each delivery."""
    by_id = dict(answers)
    rows = select(col(Delivery.id)).where(col(Delivery.id).in_(by_id), col(Delivery.lease_owner) == owner)
    states = {}
    for delivery, reader in _with_readers(session, session.exec(rows.with_for_update()).all()):
        answer = by_id[delivery.id or 0]
        if delivery.state in IN_HAND:
            _settle(delivery, answer, now, policy)
            _draw_consequences(session, delivery, reader, answer.verdict, now)
        states[delivery.id or 0] = delivery.state
    return states


def _draw_consequences(
    session: Session, delivery: Delivery, reader: Subscriber, verdict: Verdict, now: datetime
) -> None:
    if verdict is Verdict.HARD:
        _bounced(session, delivery, reader, now)
    elif verdict is Verdict.OUR_FAULT:
        pause(session, f"the relay refuses us: {delivery.reason}", now)


def _settle(delivery: Delivery, answer: Answer, now: datetime, policy: UncertainPolicy) -> None:
    if answer.verdict in (Verdict.WITHDRAWN, Verdict.HELD):  # nothing was tried
        delivery.attempts -= 1
        _leave_open(delivery, State.PENDING, "", delivery.next_attempt_at)
        return
    delivery.smtp_code, delivery.smtp_text = answer.code, answer.text
    words = f"{answer.code or ''} {answer.text}".strip()
    match answer.verdict:
        case Verdict.ACCEPTED:
            _end(delivery, State.SENT, "")
            delivery.sent_at = now
        case Verdict.DEFERRED | Verdict.UNREACHABLE | Verdict.OUR_FAULT:
            _leave_open(delivery, State.DEFERRED, words, now + _delay_of(delivery))
        case Verdict.UNCERTAIN:
            resend_at = now + _delay_of(delivery) if policy is UncertainPolicy.RESEND else None
            _doubt(delivery, words, resend_at)
        case _:
            _end(delivery, State.FAILED, words)


def _end(delivery: Delivery, state: State, reason: str) -> None:
    _leave_open(delivery, state, reason, None)


def _leave_open(delivery: Delivery, state: State, reason: str, next_attempt_at: datetime | None) -> None:
    delivery.state, delivery.reason, delivery.next_attempt_at = state, reason, next_attempt_at
    delivery.lease_until = None  # its owner stays: an answer that comes late is still true


def _doubt(delivery: Delivery, reason: str, next_attempt_at: datetime | None) -> None:
    _leave_open(delivery, State.UNCERTAIN, reason, next_attempt_at)
    delivery.maybe_delivered = True


def _bounced(session: Session, delivery: Delivery, reader: Subscriber, now: datetime) -> None:
    suppression.suppress(session, reader.email, f"bounced: {delivery.reason}", now)
    session.add(
        Event(at=now, kind="bounce", subscriber_id=reader.id, delivery_id=delivery.id, detail=delivery.reason)
    )
    if reader.state in (SubscriberState.PENDING, SubscriberState.ACTIVE, SubscriberState.PAUSED):
        reader.state, reader.ended_at, reader.next_due_at = SubscriberState.BOUNCING, now, None


def _delay_of(delivery: Delivery) -> timedelta:
    return retry_delay(delivery.attempts, delivery.id or 0)


def retry_delay(attempts: int, delivery_id: int) -> timedelta:
    """How long to wait after the n-th attempt: doubling, and spread by the id so that no two herds meet."""
    spread: float = 0.75 + 0.5 * (delivery_id * 2654435761 % 2**32) / 2**32
    return min(FIRST_DELAY * (1 << min(attempts - 1, 16)), LONGEST_DELAY) * spread


# --- after a crash, and past the time


def anything_to_do(session: Session, now: datetime) -> bool:
    """Whether a mail may leave now, or a dead sender's row waits to be freed."""
    return (
        session.exec(select(Delivery.id).where(_may_leave(now) | _abandoned(now)).limit(1)).first()
        is not None
    )


def recover(session: Session, now: datetime, policy: UncertainPolicy) -> Counter[str]:
    """Free what a dead sender held, and give up what the reader's next digest takes over."""
    rows = session.exec(select(Delivery).where(_abandoned(now)).with_for_update(skip_locked=True)).all()
    for delivery in rows:
        _recover_one(delivery, now, policy)
    return Counter(delivery.state for delivery in rows)


def _abandoned(now: datetime) -> ColumnElement[bool]:
    return (
        col(Delivery.state).in_((State.CLAIMED, State.COMMITTING)) & (col(Delivery.lease_until) <= now)
    ) | (
        col(Delivery.state).in_((State.PENDING, State.DEFERRED, State.UNCERTAIN))
        & col(Delivery.next_attempt_at).is_not(None)
        & (col(Delivery.give_up_at) <= now)
    )


def _recover_one(delivery: Delivery, now: datetime, policy: UncertainPolicy) -> None:
    if delivery.state is State.COMMITTING:
        resend_at = now if policy is UncertainPolicy.RESEND else None
        _doubt(delivery, "the sender died while this mail was in flight", resend_at)
    elif delivery.state is State.CLAIMED:
        _leave_open(delivery, State.PENDING, "", now)
    if delivery.next_attempt_at and delivery.give_up_at and delivery.give_up_at <= now:
        why = "the next digest is due" if delivery.kind is MailKind.DIGEST else "it is out of date"
        reason = f"given up, {why}: {delivery.reason or 'it was never attempted'}"
        _end(delivery, State.UNCERTAIN if delivery.maybe_delivered else State.FAILED, reason)


# --- the operator's hand


def pause(session: Session, reason: str, now: datetime, edition: str = EVERYTHING) -> None:
    """No mail of this edition, or of any, leaves from now on. A pause that stands keeps its reason."""
    insert_new(session, SendingPause, ["edition"], edition=edition, reason=reason, since=now)


def resume(session: Session, edition: str = EVERYTHING) -> bool:
    """Lift a pause; False when there was none."""
    lifted = session.execute(delete(SendingPause).where(col(SendingPause.edition) == edition))
    return bool(lifted.rowcount)  # type: ignore[attr-defined]


def release(session: Session, delivery_id: int, now: datetime) -> None:
    """Let a mail of unknown fate that is held leave once more, with the same name and the same bytes."""
    delivery = session.get(Delivery, delivery_id)
    if delivery is None:
        raise NotFound(f"there is no delivery {delivery_id}")
    if delivery.state is not State.UNCERTAIN:
        raise Conflict(f"this delivery is {delivery.state}: only one of unknown fate can be sent once more")
    delivery.next_attempt_at, delivery.give_up_at = now, None
    session.add(delivery)


def pauses(session: Session) -> list[SendingPause]:
    return list(session.exec(select(SendingPause).order_by(col(SendingPause.since))))


# --- what the ledger knows


def balance(session: Session, edition: str | None = None) -> dict[str, int | bool]:
    """The conservation law: every digest that was due is in exactly one state, and is counted once."""
    digests = select(Delivery).where(Delivery.kind == MailKind.DIGEST)
    if edition is not None:
        digests = digests.where(Delivery.edition == edition)
    rows = digests.subquery()
    readers = select(func.count()).select_from(
        select(rows.c.subscriber_id, rows.c.edition).distinct().subquery()
    )
    by_state = select(rows.c.state, func.count(), readers.scalar_subquery()).group_by(rows.c.state)
    counted = session.exec(by_state).all()
    states = {state.value: 0 for state in State} | {State(state).value: n for state, n, _ in counted}
    due = counted[0][2] if counted else 0
    return {"due": due, **states, "holds": due == sum(states.values())}


def papers_promised(
    session: Session, subscriber_ids: Collection[int], since: datetime, until: datetime | None = None
) -> dict[int, set[int]]:
    """The papers that each reader has got, will get, or may have got, in digests made since a moment."""
    theirs = select(Delivery.subscriber_id, Delivery.digest).where(
        col(Delivery.subscriber_id).in_(subscriber_ids),
        Delivery.kind == MailKind.DIGEST,
        Delivery.created_at >= since,
        or_(col(Delivery.state).not_in(UNDELIVERED), col(Delivery.maybe_delivered)),
    )
    rows = session.exec(theirs if until is None else theirs.where(Delivery.created_at <= until))
    promised: dict[int, set[int]] = {subscriber_id: set() for subscriber_id in subscriber_ids}
    for subscriber_id, digest in rows:
        promised[subscriber_id].update(_paper_ids(digest))
    return promised


def _paper_ids(digest: Mapping[str, Any]) -> Iterable[int]:
    return (pick["paper_id"] for section in digest.get("sections", ()) for pick in section["picks"])


# --- the sender's hand


class Ledger:
    """What a sender's many connections write at the same time goes into one transaction, and is durable
    when the call returns."""

    def __init__(
        self, database: Database, owner: str, policy: UncertainPolicy, clock: Callable[[], datetime]
    ) -> None:
        self._database, self._owner, self._policy, self._clock = database, owner, policy, clock
        self._waiting: list[tuple[Outgoing | tuple[int, Answer], asyncio.Future[Any]]] = []
        self._writer: asyncio.Task[None] | None = None

    async def claim(self, ids: Collection[int] | None) -> Shard:
        """Take the next shard."""
        return await asyncio.to_thread(self._claim, ids)

    async def commit(self, mail: Outgoing) -> bool:
        """May this mail be sent? When True, the ledger knows that it is in flight."""
        return bool(await self._write_soon(mail))

    async def record(self, delivery_id: int, answer: Answer) -> State | None:
        """The state that follows from an answer; None when another sender has taken the row over."""
        state: State | None = await self._write_soon((delivery_id, answer))
        return state

    def _claim(self, ids: Collection[int] | None) -> Shard:
        with self._database.write() as session:
            return claim(session, owner=self._owner, now=self._clock(), ids=ids)

    async def _write_soon(self, entry: Outgoing | tuple[int, Answer]) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((entry, future))
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write_all())
        return await future

    async def _write_all(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            try:
                results = await asyncio.to_thread(self._write, [entry for entry, _ in batch])
            except Exception as error:
                for _, future in batch:
                    future.set_exception(error)
            else:
                for (_, future), result in zip(batch, results, strict=True):
                    future.set_result(result)

    def _write(self, entries: Sequence[Outgoing | tuple[int, Answer]]) -> list[bool | State | None]:
        mails = [entry for entry in entries if isinstance(entry, Outgoing)]
        answers = [entry for entry in entries if not isinstance(entry, Outgoing)]
        now = self._clock()
        with self._database.write() as session:
            allowed = commit(session, mails, owner=self._owner, now=now) if mails else set()
            states = (
                record(session, answers, owner=self._owner, now=now, policy=self._policy) if answers else {}
            )
        return [
            entry.delivery_id in allowed if isinstance(entry, Outgoing) else states.get(entry[0])
            for entry in entries
        ]
