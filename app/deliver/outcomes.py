"""What became of an attempt, and what follows from it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlmodel import Session, col, select

from app import suppression
from app.deliver import marking, operating
from app.models import Delivery, Event, Subscriber, SubscriberState
from app.models import DeliveryState as State
from app.records import Answer, Verdict
from app.settings import UncertainPolicy

FIRST_DELAY, LONGEST_DELAY = timedelta(minutes=5), timedelta(hours=4)
# What an attempt of its owner may still settle; all else has been freed, sent by another, or ended.
IN_HAND = (State.CLAIMED, State.COMMITTING, State.UNCERTAIN)


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
    for delivery, reader in marking.with_readers(session, session.exec(rows.with_for_update()).all()):
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
        operating.pause(session, f"the relay refuses us: {delivery.reason}", now)


def _settle(delivery: Delivery, answer: Answer, now: datetime, policy: UncertainPolicy) -> None:
    if answer.verdict in (Verdict.WITHDRAWN, Verdict.HELD):  # nothing was tried
        delivery.attempts -= 1
        marking.leave_open(delivery, State.PENDING, "", delivery.next_attempt_at)
        return
    delivery.smtp_code, delivery.smtp_text = answer.code, answer.text
    words = f"{answer.code or ''} {answer.text}".strip()
    match answer.verdict:
        case Verdict.ACCEPTED:
            marking.end(delivery, State.SENT, "")
            delivery.sent_at = now
        case Verdict.DEFERRED | Verdict.UNREACHABLE | Verdict.OUR_FAULT:
            marking.leave_open(delivery, State.DEFERRED, words, now + _delay_of(delivery))
        case Verdict.UNCERTAIN:
            resend_at = now + _delay_of(delivery) if policy is UncertainPolicy.RESEND else None
            marking.doubt(delivery, words, resend_at)
        case _:
            marking.end(delivery, State.FAILED, words)


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
