"""Out of the ledger, to be sent: who takes which mails, and which may really leave."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, or_, update
from sqlmodel import Session, col, exists, select

from app import suppression
from app.deliver import marking
from app.models import Delivery, MailKind, SendingPause, Subscriber, SubscriberState
from app.models import DeliveryState as State
from app.records import Outgoing

EVERYTHING = "*"
# Longer than the ten minutes that a relay may take over the final dot.
LEASE = timedelta(minutes=20)


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
    due = select(col(Delivery.id)).where(may_leave(now)).order_by(col(Delivery.next_attempt_at))
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


def may_leave(now: datetime) -> ColumnElement[bool]:
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
    rows = marking.with_readers(session, ids)
    suppressed = suppression.among(session, [subscriber.email for _, subscriber in rows])
    for delivery, subscriber in rows:
        refusal = refusal_of(delivery.kind, subscriber, suppressed.get(subscriber.email))
        if refusal:
            marking.end(delivery, *refusal)
            ended[refusal[0]] += 1
        else:
            letters.append((delivery, subscriber))
    return Shard(tuple(letters), ended)


def refusal_of(kind: MailKind, reader: Subscriber, suppressed: str | None) -> tuple[State, str] | None:
    """The state and reason in which a mail ends unsent, or None when it may go."""
    if suppressed is not None:
        return State.SUPPRESSED, f"the address is suppressed: {suppressed}"
    if reader.state is SubscriberState.ERASED:
        return State.SKIPPED, "the reader was erased"
    if kind is MailKind.DIGEST and reader.state is not SubscriberState.ACTIVE:
        return State.SKIPPED, f"the reader is {reader.state}"
    return None


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
