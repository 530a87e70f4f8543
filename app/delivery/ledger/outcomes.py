"""Record the results of attempts: set each email's state and retry time, and report permanent failures."""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import cast

import orjson
from sqlalchemy import Table, inspect, text, update
from sqlmodel import Session, col, select

from app.delivery import suppression
from app.delivery.journal import AttemptResult
from app.delivery.ledger import (
    receiver_backoffs,
    retry_delays,
    sending_pauses,
    suspected_refusals,
    transitions,
)
from app.delivery.ledger.claims import LEASE, LEASED_STATES, skip_reason
from app.delivery.ledger.entries import CANCELLED
from app.delivery.send_result import SendOutcome, SendResult
from app.settings import UncertainPolicy
from app.storage.column_types import sqlite_timestamp
from app.storage.database import in_array
from app.storage.models import Delivery, Event, ReceiverBackoff, Subscriber, SubscriberState
from app.storage.models import DeliveryState as State
from app.text import sanitize

# Called in the transaction that records a permanent failure, with the attempt and the id of the subscriber.
OnFailed = Callable[[Session, AttemptResult, int, datetime], None]
# States in which the owner's result counts. In all other states, the email was released, sent or given up.
OPEN_STATES = (State.CLAIMED, State.COMMITTING, State.UNCERTAIN)
# Outcomes that are recorded as events of the subscriber.
BOUNCED = (
    SendOutcome.HARD_BOUNCE,
    SendOutcome.SOFT_BOUNCE,
    SendOutcome.MAILBOX_FULL,
    SendOutcome.CONTENT_REFUSED,
    SendOutcome.SENDER_REJECTION_SUSPECTED,
)
UNATTEMPTED = (SendOutcome.WITHDRAWN, SendOutcome.NOT_ATTEMPTED)
# Outcomes after which an email is tried again.
TEMPORARY = (
    SendOutcome.DEFERRED,
    SendOutcome.THROTTLED,
    SendOutcome.UNREACHABLE,
    SendOutcome.SENDER_REJECTED,
)
# The events after which no personal data is kept.
ERASING = ("erased", "declined", "signup_replaced", "change_ended")
_DELIVERIES = cast("Table", inspect(Delivery).local_table)


def record_results(
    session: Session,
    attempts: Sequence[AttemptResult],
    *,
    owner: str,
    now: datetime,
    policy: UncertainPolicy,
    on_failed: OnFailed,
) -> dict[int, State]:
    """Record the results of attempts and return the state of each delivery. Safe to repeat.

    Deliveries that another sender has taken over are left out. `on_failed` is called for each delivery that
    failed permanently, even if it was cancelled.
    """
    lock_subscribers(session, [item.delivery_id for item in attempts if item.result.outcome in BOUNCED])
    accepted = [attempt for attempt in attempts if attempt.result.outcome is SendOutcome.ACCEPTED]
    others = [attempt for attempt in attempts if attempt.result.outcome is not SendOutcome.ACCEPTED]
    states = _record_accepted(session, accepted, owner)
    # Clear the personal data of emails that were in flight when their subscriber was erased.
    recent = (col(Event.kind).in_(ERASING), col(Event.at) > now - 2 * LEASE)
    if session.exec(select(Event.id).where(*recent).limit(1)).first() is not None:
        clear_erased(session, states)
    return states | _record_others(session, others, owner, now, policy, on_failed) if others else states


def lock_subscribers(session: Session, delivery_ids: Collection[int]) -> None:
    """Lock the subscribers of deliveries in the order of their ids, before a bounce may suppress them.

    Bounce webhooks and senders call this before they lock anything else, so that they cannot deadlock.
    """
    if delivery_ids:
        rows = select(Subscriber.id).join(Delivery, col(Delivery.subscriber_id) == Subscriber.id)
        rows = rows.where(in_array(session, col(Delivery.id), delivery_ids)).order_by(col(Subscriber.id))
        session.exec(rows.with_for_update(of=Subscriber))


def clear_erased(session: Session, ids: Collection[int]) -> None:
    """Clear the personal data of those emails whose subscribers have been erased."""
    subscriber = select(col(Subscriber.state)).where(col(Subscriber.id) == Delivery.subscriber_id)
    erased = subscriber.scalar_subquery() == SubscriberState.ERASED
    of_erased = in_array(session, col(Delivery.id), ids) & erased
    session.connection().execute(update(_DELIVERIES).where(of_erased).values(smtp_text="", subject=""))


_ACCEPTED_BY_SQLITE = """
    UPDATE delivery SET state = 'sent', reason = '', next_attempt_at = NULL, lease_until = NULL,
        sent_at = reply.value ->> 1, smtp_code = reply.value ->> 2, smtp_text = reply.value ->> 3,
        message_id = reply.value ->> 4, subject = reply.value ->> 5
    FROM json_each(?) AS reply WHERE delivery.id = reply.value ->> 0 AND delivery.lease_owner = ?
"""
# The ids occur twice on purpose. PostgreSQL plans a plain join by the table's statistics. If the statistics
# date from when the table was small, PostgreSQL compares each reply with every row.
_ACCEPTED_BY_POSTGRES = text("""
    UPDATE delivery SET state = 'sent', reason = '', next_attempt_at = NULL, lease_until = NULL,
        sent_at = reply.at, smtp_code = reply.code, smtp_text = reply.text,
        message_id = reply.message_id, subject = reply.subject
    FROM unnest(CAST(:ids AS bigint[]), CAST(:ats AS timestamptz[]), CAST(:codes AS int[]),
        CAST(:texts AS text[]), CAST(:message_ids AS text[]), CAST(:subjects AS text[])
    ) AS reply(id, at, code, text, message_id, subject)
    WHERE delivery.id = reply.id AND delivery.id = ANY(CAST(:ids AS bigint[]))
        AND delivery.lease_owner = :owner
""")


def _record_accepted(session: Session, attempts: Sequence[AttemptResult], owner: str) -> dict[int, State]:
    """Record accepted emails in one statement. Their rows become `sent`, whatever their state was."""
    if not attempts:
        return {}
    ids = [attempt.delivery_id for attempt in attempts]
    if session.get_bind().dialect.name == "postgresql":
        columns = {
            "ids": ids,
            "ats": [datetime.fromtimestamp(attempt.at, UTC) for attempt in attempts],
            "codes": [attempt.result.code for attempt in attempts],
            "texts": [attempt.result.text for attempt in attempts],
            "message_ids": [attempt.message_id for attempt in attempts],
            "subjects": [attempt.subject for attempt in attempts],
        }
        recorded = session.connection().execute(_ACCEPTED_BY_POSTGRES, columns | {"owner": owner}).rowcount
    else:  # also in one statement, because the driver releases and reacquires the GIL for each
        rows = [
            (delivery_id, sqlite_timestamp(datetime.fromtimestamp(at, UTC)), code, text, message_id, subject)
            for delivery_id, (_, code, text), at, message_id, subject in attempts
        ]
        values = (orjson.dumps(rows).decode(), owner)
        recorded = session.connection().exec_driver_sql(_ACCEPTED_BY_SQLITE, values).rowcount
    if recorded < len(ids):
        owned = select(col(Delivery.id)).where(col(Delivery.id).in_(ids), Delivery.lease_owner == owner)
        ids = list(session.exec(owned))  # type: ignore[arg-type]
    return dict.fromkeys(ids, State.SENT)


def _record_others(
    session: Session,
    attempts: Sequence[AttemptResult],
    owner: str,
    now: datetime,
    policy: UncertainPolicy,
    on_failed: OnFailed,
) -> dict[int, State]:
    by_id = {attempt.delivery_id: attempt for attempt in attempts}
    owned = select(col(Delivery.id)).where(col(Delivery.id).in_(by_id), col(Delivery.lease_owner) == owner)
    locked = session.exec(owned.with_for_update()).all()
    joined = select(Delivery, Subscriber).join(Subscriber, col(Subscriber.id) == Delivery.subscriber_id)
    selected = joined.where(col(Delivery.id).in_(locked)).execution_options(populate_existing=True)
    rows = sorted(session.exec(selected), key=lambda row: row[0].id or 0)
    backoffs = _back_off(session, rows, by_id, now)
    states = {}
    for delivery, subscriber in rows:
        delivery_id = delivery.id or 0
        attempt = by_id[delivery_id]
        if subscriber.state is SubscriberState.ERASED:  # the relay's text may name the subscriber
            attempt = attempt._replace(result=attempt.result._replace(text=""), subject="")
        if attempt.result.outcome in UNATTEMPTED:
            if delivery.state in LEASED_STATES:  # otherwise, it was cancelled or held in the meantime
                _unclaim(session, delivery, subscriber)
        elif delivery.state in OPEN_STATES or delivery.reason == CANCELLED:
            result = _settle_suspected(session, delivery, attempt)
            _apply(delivery, result, now, policy)
            if attempt.message_id:  # its body was sent: a retry must have the same Message-ID
                delivery.message_id, delivery.subject = attempt.message_id, attempt.subject
            if attempt.result.outcome is SendOutcome.SENDER_REJECTED:
                reason = sanitize.redact_addresses(_text(attempt.result))
                sending_pauses.pause_automatically(session, f"the relay refuses us: {reason}", now)
            elif result.outcome not in (*TEMPORARY, SendOutcome.UNCERTAIN):
                on_failed(session, attempt, delivery.subscriber_id, now)
        elif attempt.result.outcome is SendOutcome.UNCERTAIN and delivery.state is not State.SENT:
            # The email was given up while it was in flight.
            transitions.mark_uncertain(delivery, _text(attempt.result), None)
        _postpone(delivery, receiver_backoffs.find(backoffs, subscriber.email))
        states[delivery_id] = delivery.state
    return states


def _settle_suspected(session: Session, delivery: Delivery, attempt: AttemptResult) -> SendResult:
    """Record a refusal that may be about us. Return DEFERRED unless it is about this recipient or email."""
    result = attempt.result
    if result.outcome is not SendOutcome.SENDER_REJECTION_SUSPECTED:
        return result
    replied_at = datetime.fromtimestamp(attempt.at, UTC)
    is_final = suspected_refusals.record(session, delivery, _text(result), replied_at)
    return result if is_final else result._replace(outcome=SendOutcome.DEFERRED)


def _back_off(
    session: Session,
    rows: Sequence[tuple[Delivery, Subscriber]],
    attempts: Mapping[int, AttemptResult],
    now: datetime,
) -> Mapping[str, ReceiverBackoff]:
    """Record a back-off for each receiver that asked us to send less. Return all current back-offs."""
    for delivery, subscriber in rows:
        result = attempts[delivery.id or 0].result
        if result.outcome is SendOutcome.THROTTLED and subscriber.state is not SubscriberState.ERASED:
            receiver_backoffs.begin(session, subscriber.email, _text(result), now)
    return receiver_backoffs.active(session, now)


def _unclaim(session: Session, delivery: Delivery, subscriber: Subscriber) -> None:
    """Put an email that was not attempted back in the queue, or skip it if it must no longer be sent."""
    suppressed = suppression.reasons_for(session, [subscriber.email]).get(subscriber.email)
    skip = skip_reason(delivery.kind, subscriber.state, suppressed)
    delivery.attempts -= 1
    if skip:
        transitions.set_state(delivery, skip.state, skip.reason)
    else:
        transitions.requeue(delivery, delivery.next_attempt_at)


def _postpone(delivery: Delivery, backoff: ReceiverBackoff | None) -> None:
    """Postpone an email's next attempt until the end of the back-off."""
    if backoff and delivery.next_attempt_at:
        delivery.next_attempt_at = max(delivery.next_attempt_at, backoff.until)
        if delivery.state is State.PENDING:
            delivery.state, delivery.reason = State.DEFERRED, backoff.reason


def _apply(delivery: Delivery, result: SendResult, now: datetime, policy: UncertainPolicy) -> None:
    delivery.smtp_code, delivery.smtp_text = result.code, result.text
    reason, retry_at = _text(result), now + retry_delays.EMAILS.after(delivery.attempts, delivery.id or 0)
    if delivery.reason == CANCELLED:  # it must not be sent again, whatever the reply is
        delivery.possibly_delivered |= result.outcome is SendOutcome.UNCERTAIN
        state = State.UNCERTAIN if delivery.possibly_delivered else State.SKIPPED
        transitions.set_state(delivery, state, CANCELLED)
        delivery.lease_owner = ""  # so that this reply is not recorded again
    elif result.outcome in TEMPORARY:
        transitions.set_state(delivery, State.DEFERRED, reason, retry_at)
    elif result.outcome is SendOutcome.UNCERTAIN:
        resend_at = retry_at if policy is UncertainPolicy.RESEND else None
        transitions.mark_uncertain(delivery, reason, resend_at)
    else:
        transitions.set_state(delivery, State.FAILED, reason)


def _text(result: SendResult) -> str:
    return f"{result.code or ''} {result.text}".strip()
