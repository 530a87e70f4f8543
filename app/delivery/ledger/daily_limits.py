"""While a sending domain warms up, count the emails to each receiver and defer digests beyond the limit.

During the warm-up, claiming an email writes its receiver to its row. An index of the rows with a receiver
makes it fast to count today's emails. Without a warm-up, the index is empty and costs nothing.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, time, timedelta

from sqlalchemy import Select, bindparam, func, literal, select, union_all, update
from sqlmodel import Session, col

from app.delivery.ledger.claims import DELIVERIES, LEASED_STATES, WAITING_STATES, SkipReason, skip_claimed
from app.delivery.receivers import receiver_of
from app.delivery.warm_up import ReceiverUse, WarmUp, WarmUpStatus
from app.settings import Settings
from app.storage.database import advisory_lock, in_array
from app.storage.models import Delivery, Subscriber
from app.storage.models import DeliveryState as State
from app.types import MailKind

LOCK = "daily limits"
REASON = "warm-up of the sending domain: "


def warm_up_of(settings: Settings) -> WarmUp | None:
    start = settings.warm_up_start
    return WarmUp(start, settings.warm_up_mails, settings.warm_up_days) if start else None


def is_limited(warm_up: WarmUp | None, now: datetime) -> bool:
    """Return whether each receiver gets a limited number of emails on this UTC day."""
    return warm_up is not None and warm_up.limit_on(now.date()) is not None


def lock(session: Session) -> None:
    """Serialize the claims of all senders until the transaction ends, so that each count is complete."""
    advisory_lock(session, LOCK)


def defer_excess(
    session: Session, warm_up: WarmUp, owner: str, claimed_ids: Sequence[int], now: datetime
) -> dict[int, SkipReason]:
    """Defer claimed digests beyond today's limits until tomorrow, and return the reasons by id.

    Emails that somebody is waiting for, such as confirmations, count toward the limits but are never
    deferred. Must be called in the same transaction as the claim, after `lock`.
    """
    limit = warm_up.limit_on(now.date())
    if limit is None or not claimed_ids:
        return {}
    columns = select(col(Delivery.id), col(Delivery.kind), col(Subscriber.email))
    recipients = columns.join(Subscriber, col(Subscriber.id) == Delivery.subscriber_id).where(
        in_array(session, col(Delivery.id), claimed_ids)
    )
    rows = {row.id: row for row in session.execute(recipients)}
    receivers = {number: receiver_of(row.email) for number, row in rows.items()}
    used = _count_used(session, receivers, now)
    tomorrow = _midnight(now) + timedelta(days=1)
    excess: dict[int, SkipReason] = {}
    for number in claimed_ids:
        receiver = receivers[number]
        if rows[number].kind is MailKind.DIGEST and used[receiver] >= limit:
            reason = f"{REASON}{receiver} gets at most {limit} emails on {now:%Y-%m-%d}"
            excess[number] = SkipReason(State.DEFERRED, reason, tomorrow)
        else:
            used[receiver] += 1
    named = update(DELIVERIES).where(DELIVERIES.c.id == bindparam("number"))
    values = [{"number": number, "name": receiver} for number, receiver in receivers.items()]
    session.connection().execute(named.values(receiver=bindparam("name")), values)
    skip_claimed(session, owner, excess)
    return excess


def count_sent_today(session: Session, receivers: Collection[str] | None, now: datetime) -> Counter[str]:
    """Count the emails sent on this UTC day to each of `receivers` (None: all). Read only an index."""
    return Counter(dict(session.execute(_sent_today(receivers, now)).all()))


def _sent_today(receivers: Collection[str] | None, now: datetime) -> Select[str | None, int]:
    receiver = col(Delivery.receiver)
    sent = select(receiver, func.count()).where(
        receiver.is_not(None), col(Delivery.sent_at) >= _midnight(now)
    )
    if receivers is not None:
        sent = sent.where(receiver.in_(receivers))
    return sent.group_by(receiver)


def _count_used(session: Session, receivers_by_id: Mapping[int, str], now: datetime) -> Counter[str]:
    """Count the emails to each receiver that were sent today or that other claims may still send.

    `receivers_by_id` are the receivers of the emails that are being claimed. One statement counts both,
    because other senders record results at the same time. With two statements, neither would count an email
    that was recorded as sent between them.
    """
    # A condition on the receiver, or `GROUP BY receiver`, would make SQLite read all of today's emails.
    leased = select(col(Delivery.receiver), literal(1)).where(
        col(Delivery.state).in_(LEASED_STATES), ~in_array(session, col(Delivery.id), receivers_by_id)
    )
    used: Counter[str] = Counter()
    counts = union_all(_sent_today(set(receivers_by_id.values()), now), leased)
    for receiver, count in session.execute(counts):
        if receiver:
            used[receiver] += count
    return used


def warm_up_status(session: Session, warm_up: WarmUp | None, now: datetime) -> WarmUpStatus | None:
    """Return the warm-up's progress and the number of emails to each receiver, or None without a warm-up."""
    if warm_up is None:
        return None
    sent, receiver = count_sent_today(session, None, now), col(Delivery.receiver)
    deferred = select(receiver, func.count()).where(
        col(Delivery.state).in_(WAITING_STATES),
        col(Delivery.next_attempt_at) > now,
        receiver.is_not(None),
        col(Delivery.reason).startswith(REASON),
    )
    waiting: Mapping[str, int] = dict(session.execute(deferred.group_by(receiver)).all())
    names = sorted({*sent, *waiting}, key=lambda name: (-sent[name] - waiting.get(name, 0), name))
    return WarmUpStatus(
        now.date(),
        warm_up.start,
        warm_up.unlimited_from,
        warm_up.limit_on(now.date()),
        tuple(ReceiverUse(name, sent[name], waiting.get(name, 0)) for name in names),
    )


def _midnight(now: datetime) -> datetime:
    return datetime.combine(now.date(), time.min, UTC)
