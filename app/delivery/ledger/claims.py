"""Claim emails for a sender under a lease, and decide which of them may still be sent."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple, cast

from sqlalchemy import ColumnElement, Table, case, exists, func, inspect, or_, select, update
from sqlmodel import Session, col

from app.delivery import suppression
from app.delivery.ledger import receiver_backoffs
from app.delivery.ledger.snapshots import SnapshotStore
from app.storage.database import in_array
from app.storage.models import Delivery, DigestContent, SendingPause, Subscriber, SubscriberState
from app.storage.models import DeliveryState as State
from app.types import MailKind, MailRequest

ALL_EDITIONS = "*"
# Longer than the ten minutes that a relay may take to reply to the final dot.
LEASE = timedelta(minutes=20)
BATCH_SIZE = 300
# Emails are claimed in this order, so that emails that were never tried are sent first.
WAITING_STATES = (State.PENDING, State.DEFERRED, State.UNCERTAIN)
LEASED_STATES = (State.CLAIMED, State.COMMITTING)
NOT_SENT = (State.SKIPPED, State.FAILED, State.SUPPRESSED)
FINAL_STATES = (State.SENT, State.UNCERTAIN, *NOT_SENT)

DELIVERIES = cast("Table", inspect(Delivery).local_table)
# The order during a warm-up: first the emails that somebody is waiting for, such as confirmations, then the
# digests of the subscribers who have been waiting longest.
LONGEST_WAITING_FIRST = (
    DELIVERIES.c.kind == MailKind.DIGEST,
    func.coalesce(DELIVERIES.c.waiting_since, DELIVERIES.c.due_at),
    DELIVERIES.c.id,
)
_SUBSCRIBERS = cast("Table", inspect(Subscriber).local_table)
_CONTENTS = cast("Table", inspect(DigestContent).local_table)
_MAILS = (
    select(
        *DELIVERIES.c["id", "kind", "edition", "created_at", "message_id", "subscriber_id", "attempts"],
        *_SUBSCRIBERS.c["email", "link_epoch", "state"],
        *_CONTENTS.c["digest", "signature", "signature_fingerprint"],
    )
    .join(_SUBSCRIBERS, _SUBSCRIBERS.c.id == DELIVERIES.c.subscriber_id)
    .outerjoin(_CONTENTS, _CONTENTS.c.delivery_id == DELIVERIES.c.id)
)


class SkipReason(NamedTuple):
    """The state of an email that is not sent, and the reason. The state is final unless `until` is set."""

    state: State
    reason: str
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class ClaimedBatch:
    """The emails from one claim: requests to send, and the states of the emails to skip, by id."""

    requests: tuple[MailRequest, ...] = ()
    skipped: Mapping[int, State] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.requests or self.skipped)


def claim(
    session: Session,
    *,
    owner: str,
    now: datetime,
    limit: int | None = None,
    ids: Collection[int] | None = None,
    longest_waiting_first: bool = False,
) -> list[int]:
    """Claim emails that are due and return their ids. No two senders claim a row at the same time.

    `limit` is the maximum number of emails (default: BATCH_SIZE). If `ids` is given, claim only these emails.
    With `longest_waiting_first`, which takes longer, claim in the order of LONGEST_WAITING_FIRST.
    """
    limit = BATCH_SIZE if limit is None else limit
    claimed_ids: list[int] = []
    sendable = select(DELIVERIES.c.id).where(is_sendable(now))
    if ids is not None:
        sendable = sendable.where(DELIVERIES.c.id.in_(ids))
    # One query per state: the index returns a state's emails in order. Sorting all of them takes longer.
    queries = [
        sendable.where(DELIVERIES.c.state == state).order_by(DELIVERIES.c.next_attempt_at)
        for state in WAITING_STATES
    ]
    if longest_waiting_first:
        waiting = sendable.where(DELIVERIES.c.state.in_(WAITING_STATES))
        queries = [waiting.order_by(*LONGEST_WAITING_FIRST)]
    for query in queries:
        due = query.limit(limit - len(claimed_ids))
        claimed_ids += session.connection().execute(due.with_for_update(skip_locked=True)).scalars().all()
        if len(claimed_ids) == limit:
            break
    leased = {"state": State.CLAIMED, "lease_owner": owner, "lease_until": now + LEASE}
    session.connection().execute(
        update(DELIVERIES)
        .where(in_array(session, DELIVERIES.c.id, claimed_ids))
        .values(**leased, attempts=DELIVERIES.c.attempts + 1)
    )
    return claimed_ids


def exceeds_a_batch(session: Session, now: datetime) -> bool:
    """Return whether more emails are due than a sender claims at once."""
    count = 0
    for state in WAITING_STATES:
        due = select(DELIVERIES.c.id).where(DELIVERIES.c.state == state, is_sendable(now))
        due = due.order_by(DELIVERIES.c.next_attempt_at).limit(BATCH_SIZE + 1 - count)
        count += len(session.connection().execute(due).all())
    return count > BATCH_SIZE


def is_sendable(now: datetime) -> ColumnElement[bool]:
    """Return the condition that an email is due, not overdue and not paused.

    An uncertain email that must not be sent again has no `next_attempt_at`, so it is never due.
    """
    return (
        (col(Delivery.next_attempt_at) <= now)
        & or_(col(Delivery.give_up_at).is_(None), col(Delivery.give_up_at) > now)
        & _not_paused()
    )


def _not_paused() -> ColumnElement[bool]:
    paused = select(col(SendingPause.edition))
    return col(Delivery.edition).not_in(paused) & ~is_all_paused()


def is_all_paused() -> ColumnElement[bool]:
    """Return the condition that all sending is paused."""
    return exists().where(col(SendingPause.edition) == ALL_EDITIONS)


# --- load claimed emails


def load_claimed(
    session: Session, claimed_ids: Collection[int], snapshots: SnapshotStore, now: datetime
) -> tuple[tuple[MailRequest, ...], dict[int, SkipReason], set[int]]:
    """Load claimed emails.

    Return the requests to send, the reasons to skip or defer emails by id, and the ids of retried emails.
    """
    rows = _load_rows(session, claimed_ids)
    skips = _skip_reasons(session, rows, now)
    sendable = [row for row in rows if row.id not in skips]
    retried_ids = {row.id for row in sendable if row.attempts > 1}
    return _mail_requests(session, sendable, snapshots), skips, retried_ids


def mail_requests(
    session: Session, ids: Collection[int], snapshots: SnapshotStore
) -> tuple[MailRequest, ...]:
    """Return a request for each delivery, with its digest as it was composed, ordered by delivery id."""
    return _mail_requests(session, _load_rows(session, ids), snapshots)


def _load_rows(session: Session, ids: Collection[int]) -> Sequence[Any]:
    """Load deliveries and their subscribers as rows, because ORM objects would take three times as long."""
    selected = in_array(session, DELIVERIES.c.id, ids)
    return session.connection().execute(_MAILS.where(selected).order_by(DELIVERIES.c.id)).all()


def _mail_requests(
    session: Session, rows: Sequence[Any], snapshots: SnapshotStore
) -> tuple[MailRequest, ...]:
    restored = snapshots.restore(session, [row.digest or {} for row in rows])
    requests = []
    for row, content in zip(rows, restored, strict=True):
        # Unpacking is faster than looking up each value by name.
        (
            delivery_id, kind, edition, created_at, message_id, subscriber_id, _, email, link_epoch, _, _,
            signature, fingerprint,
        ) = row  # fmt: skip
        digest = content.digest if kind is MailKind.DIGEST else None
        request = MailRequest(
            delivery_id, kind, edition, subscriber_id, email, link_epoch, created_at,
            digest, message_id, content.unreadable, signature or "", fingerprint or "",
        )  # fmt: skip
        requests.append(request)
    return tuple(requests)


# --- skip emails that must not be sent


def skip_reason(kind: MailKind, subscriber: SubscriberState, suppressed: str | None) -> SkipReason | None:
    """Return the reason to skip an email, or None to send it.

    `suppressed` is the reason why the address is suppressed, or None if it is not.
    """
    if suppressed is not None:
        return SkipReason(State.SUPPRESSED, f"the address is suppressed: {suppressed}")
    if subscriber is SubscriberState.ERASED:
        return SkipReason(State.SKIPPED, "the subscriber was erased")
    if kind is MailKind.DIGEST and subscriber is not SubscriberState.ACTIVE:
        return SkipReason(State.SKIPPED, f"the subscriber is {subscriber}")
    return None


def _skip_reasons(session: Session, rows: Iterable[Any], now: datetime) -> dict[int, SkipReason]:
    suppressed = suppression.reasons_for(session, [row.email for row in rows])
    reasons = ((row.id, skip_reason(row.kind, row.state, suppressed.get(row.email))) for row in rows)
    skips = {delivery_id: reason for delivery_id, reason in reasons if reason}
    if backoffs := receiver_backoffs.active(session, now):
        for row in rows:
            if backoff := receiver_backoffs.find(backoffs, row.email):
                skips.setdefault(row.id, SkipReason(State.DEFERRED, backoff.reason, backoff.until))
    return skips


def skip_claimed(session: Session, owner: str, skips: Mapping[int, SkipReason]) -> None:
    """Set the state of emails that `owner` has claimed but must not send, or must send later."""
    ids_by_reason = defaultdict(list)
    for delivery_id, skip in skips.items():
        ids_by_reason[skip].append(delivery_id)
    for (state, reason, until), ids in ids_by_reason.items():
        values: dict[str, Any] = {"state": state, "reason": reason, "next_attempt_at": until}
        if until:  # no attempt was made now, but an earlier one may have delivered the email
            values["attempts"] = col(Delivery.attempts) - 1
            values["state"] = case((col(Delivery.possibly_delivered), State.UNCERTAIN), else_=state)
        claimed = update(Delivery).where(col(Delivery.id).in_(ids), _leased_by(owner))
        session.execute(claimed.values(lease_until=None, **values))


# --- while a sender has the lease


def sendable_addresses(session: Session, owner: str, now: datetime) -> dict[int, str]:
    """Return the subscribers' current addresses for the claimed emails that a sender may still send, by id.

    Leave out emails that were paused or cancelled, emails that `skip_reason` rejects, and emails to receivers
    that asked us to send less.
    """
    claimed = (
        select(DELIVERIES.c.id, DELIVERIES.c.kind, _SUBSCRIBERS.c.email, _SUBSCRIBERS.c.state)
        .join(_SUBSCRIBERS, _SUBSCRIBERS.c.id == DELIVERIES.c.subscriber_id)
        .where(_leased_by(owner), _not_paused())
    )
    rows = session.connection().execute(claimed).all()
    skips = _skip_reasons(session, rows, now)
    return {row.id: row.email for row in rows if row.id not in skips}


def renew_lease(session: Session, owner: str, now: datetime) -> None:
    """Extend the lease of a running sender, so that no other sender takes over its emails."""
    session.execute(update(Delivery).where(_leased_by(owner)).values(lease_until=now + LEASE))


def mark_committing(session: Session, owner: str, ids: Collection[int]) -> None:
    """Mark emails as `committing`: their bodies were sent, but the relay has not replied yet."""
    claimed = update(Delivery).where(
        col(Delivery.id).in_(ids), col(Delivery.lease_owner) == owner, col(Delivery.state) == State.CLAIMED
    )
    session.execute(claimed.values(state=State.COMMITTING))


def _leased_by(owner: str) -> ColumnElement[bool]:
    return col(Delivery.state).in_(LEASED_STATES) & (col(Delivery.lease_owner) == owner)
