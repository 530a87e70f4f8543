"""Out of the ledger, to be sent: who takes which mails, and which may really leave."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, cast

from sqlalchemy import ColumnElement, Table, exists, inspect, or_, select, update
from sqlmodel import Session, col

from app.delivery import suppression
from app.delivery.ledger.snapshots import SnapshotStore
from app.storage.database import in_array
from app.storage.models import Delivery, DigestContent, SendingPause, Subscriber, SubscriberState
from app.storage.models import DeliveryState as State
from app.types import MailKind, MailRequest

EVERYTHING = "*"
# Longer than the ten minutes that a relay may take over the final dot.
LEASE = timedelta(minutes=20)
SHARD = 300
# In this order: what was never tried leaves before what was.
WAITING = (State.PENDING, State.DEFERRED, State.UNCERTAIN)
HELD_BY_A_SENDER = (State.CLAIMED, State.COMMITTING)

_ROWS = cast("Table", inspect(Delivery).local_table)
_READERS = cast("Table", inspect(Subscriber).local_table)
_CONTENTS = cast("Table", inspect(DigestContent).local_table)
_WRITTEN = (
    select(
        *(_ROWS.c[name] for name in ("id", "kind", "edition", "created_at", "message_id", "subscriber_id")),
        *(_READERS.c[name] for name in ("email", "link_epoch", "state")),
        *(_CONTENTS.c[name] for name in ("digest", "signature", "signature_fingerprint")),
    )
    .join(_READERS, _READERS.c.id == _ROWS.c.subscriber_id)
    .outerjoin(_CONTENTS, _CONTENTS.c.delivery_id == _ROWS.c.id)
)


Refusal = tuple[State, str]  # in which state a mail ends unsent, and why


@dataclass(frozen=True, slots=True)
class ClaimedBatch:
    """What one claim took: letters to send, and those that were ended instead, each with its state."""

    letters: tuple[MailRequest, ...] = ()
    ended: Mapping[int, State] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.letters or self.ended)


def claim(
    session: Session,
    *,
    owner: str,
    now: datetime,
    limit: int | None = None,
    ids: Collection[int] | None = None,
) -> list[int]:
    """Take what may leave now. No two claimers ever get the same row, in any number of processes."""
    taken = _due(session, now, limit or SHARD, ids)
    session.connection().execute(
        update(_ROWS)
        .where(in_array(session, _ROWS.c.id, taken))
        .values(
            state=State.CLAIMED, lease_owner=owner, lease_until=now + LEASE, attempts=_ROWS.c.attempts + 1
        )
    )
    return taken


def _due(session: Session, now: datetime, limit: int, ids: Collection[int] | None) -> list[int]:
    """State by state, so that the index gives them in order: to sort all that wait would take longer."""
    taken: list[int] = []
    for state in WAITING:
        due = select(_ROWS.c.id).where(_ROWS.c.state == state, may_leave(now))
        if ids is not None:
            due = due.where(_ROWS.c.id.in_(ids))
        due = due.order_by(_ROWS.c.next_attempt_at).limit(limit - len(taken))
        taken += session.connection().execute(due.with_for_update(skip_locked=True)).scalars().all()
        if len(taken) == limit:
            break
    return taken


def may_leave(now: datetime) -> ColumnElement[bool]:
    """Due, not given up, not paused. A mail of unknown fate that is held has no next attempt."""
    return (
        (col(Delivery.next_attempt_at) <= now)
        & or_(col(Delivery.give_up_at).is_(None), col(Delivery.give_up_at) > now)
        & _not_paused()
    )


def _not_paused() -> ColumnElement[bool]:
    paused = select(col(SendingPause.edition))
    everything = exists().where(col(SendingPause.edition) == EVERYTHING)
    return col(Delivery.edition).not_in(paused) & ~everything


def load_claimed(
    session: Session, taken: Collection[int], cards: SnapshotStore
) -> tuple[tuple[MailRequest, ...], dict[int, Refusal]]:
    """The letters of what was claimed; and why some must not leave: their readers left meanwhile."""
    rows = _read(session, taken)
    refusals = _refusals(session, rows)
    return _letters(session, [row for row in rows if row.id not in refusals], cards), refusals


def _read(session: Session, ids: Collection[int]) -> Sequence[Any]:
    """The rows of deliveries with their readers. By tables: to go by classes takes three times as long."""
    named = in_array(session, _ROWS.c.id, ids)
    return session.connection().execute(_WRITTEN.where(named).order_by(_ROWS.c.id)).all()


def _refusals(session: Session, rows: Iterable[Any]) -> dict[int, Refusal]:
    suppressed = suppression.among(session, [row.email for row in rows])
    found = ((row.id, skip_reason(row.kind, row.state, suppressed.get(row.email))) for row in rows)
    return {delivery_id: refusal for delivery_id, refusal in found if refusal}


def skip_reason(kind: MailKind, reader: SubscriberState, suppressed: str | None) -> Refusal | None:
    """The state and reason in which a mail ends unsent, or None when it may go."""
    if suppressed is not None:
        return State.SUPPRESSED, f"the address is suppressed: {suppressed}"
    if reader is SubscriberState.ERASED:
        return State.SKIPPED, "the reader was erased"
    if kind is MailKind.DIGEST and reader is not SubscriberState.ACTIVE:
        return State.SKIPPED, f"the reader is {reader}"
    return None


def end(session: Session, owner: str, refusals: Mapping[int, Refusal]) -> None:
    """End what its sender has claimed and must not send."""
    alike = defaultdict(list)
    for delivery_id, refusal in refusals.items():
        alike[refusal].append(delivery_id)
    for (state, reason), ids in alike.items():
        ended = {"state": state, "reason": reason, "next_attempt_at": None, "lease_until": None}
        theirs = update(Delivery).where(col(Delivery.id).in_(ids), _in_hand_of(owner))
        session.execute(theirs.values(**ended))


def _letters(session: Session, rows: Sequence[Any], cards: SnapshotStore) -> tuple[MailRequest, ...]:
    restored = cards.restore(session, [row.digest or {} for row in rows], scored=False)
    made = []
    for row, read in zip(rows, restored, strict=True):
        (
            number,
            kind,
            edition,
            at,
            message_id,
            reader,
            email,
            epoch,
            _,
            _,
            signature,
            signature_fingerprint,
        ) = row
        digest = read.digest if kind is MailKind.DIGEST else None
        written = (message_id, read.unreadable, signature or "", signature_fingerprint or "")
        made.append(MailRequest(number, kind, edition, reader, email, epoch, at, digest, *written))
    return tuple(made)


def letters(session: Session, ids: Collection[int], cards: SnapshotStore) -> tuple[MailRequest, ...]:
    """What deliveries say, as they were composed; in the order of their ids."""
    return _letters(session, _read(session, ids), cards)


# --- while they are in hand


def still_sendable(session: Session, owner: str) -> set[int]:
    """What a sender has claimed and may still send: no reader left, nothing was paused or cancelled."""
    mine = (
        select(_ROWS.c.id, _ROWS.c.kind, _READERS.c.email, _READERS.c.state)
        .join(_READERS, _READERS.c.id == _ROWS.c.subscriber_id)
        .where(_in_hand_of(owner), _not_paused())
    )
    rows = session.connection().execute(mine).all()
    return {row.id for row in rows} - _refusals(session, rows).keys()


def renew_lease(session: Session, owner: str, now: datetime) -> None:
    """The sender lives: nobody is to take what it has in hand."""
    session.execute(update(Delivery).where(_in_hand_of(owner)).values(lease_until=now + LEASE))


def mark_begun(session: Session, owner: str, ids: Collection[int]) -> None:
    """Show in the ledger what the sender's journal says: these are between their body and its answer."""
    begun = update(Delivery).where(
        col(Delivery.id).in_(ids), col(Delivery.lease_owner) == owner, col(Delivery.state) == State.CLAIMED
    )
    session.execute(begun.values(state=State.COMMITTING))


def _in_hand_of(owner: str) -> ColumnElement[bool]:
    return col(Delivery.state).in_(HELD_BY_A_SENDER) & (col(Delivery.lease_owner) == owner)
