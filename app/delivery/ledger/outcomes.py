"""What became of attempts, and what follows from it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import cast

import orjson
from sqlalchemy import Table, inspect, text, update
from sqlmodel import Session, col, select

from app.delivery import suppression
from app.delivery.journal import AttemptResult
from app.delivery.ledger import controls, transitions
from app.delivery.ledger.claims import HELD_BY_A_SENDER, LEASE, skip_reason
from app.settings import UncertainPolicy
from app.storage.database import in_array, sqlite_timestamp
from app.storage.models import Delivery, Event, Subscriber, SubscriberState
from app.storage.models import DeliveryState as State
from app.text import sanitize
from app.types import SendOutcome, SendResult

# Called in the transaction that records a permanent failure, with the ids of the delivery and the subscriber.
OnFailed = Callable[[Session, int, int, SendResult, datetime], None]
FIRST_DELAY, LONGEST_DELAY = timedelta(minutes=5), timedelta(hours=4)
# What an attempt of its owner may still settle; all else has been freed, sent by another, or ended.
IN_HAND = (State.CLAIMED, State.COMMITTING, State.UNCERTAIN)
NOT_TRIED = (SendOutcome.WITHDRAWN, SendOutcome.NOT_ATTEMPTED)
ERASING = ("erased", "declined")  # events after which nothing personal is kept
_ROWS = cast("Table", inspect(Delivery).local_table)


def record_results(
    session: Session,
    endings: Sequence[AttemptResult],
    *,
    owner: str,
    now: datetime,
    policy: UncertainPolicy,
    on_failed: OnFailed,
) -> dict[int, State]:
    """Record the results of attempts and return the state of each delivery. Safe to repeat.

    Deliveries that another sender has taken over are missing. `on_failed` is called for each that failed
    for good.
    """
    accepted = [each for each in endings if each.answer.outcome is SendOutcome.ACCEPTED]
    others = [each for each in endings if each.answer.outcome is not SendOutcome.ACCEPTED]
    states = _record_accepted(session, accepted, owner)
    _forget_erased(session, states.keys(), now)
    return states | _record_others(session, others, owner, now, policy, on_failed) if others else states


def _record_accepted(session: Session, endings: Sequence[AttemptResult], owner: str) -> dict[int, State]:
    """All in one statement. What was accepted was sent, whatever the row has been taken for meanwhile."""
    if not endings:
        return {}
    on_postgres = session.get_bind().dialect.name == "postgresql"
    recorded = (_accepted_by_postgres if on_postgres else _accepted_by_sqlite)(session, endings, owner)
    ids = [each.delivery_id for each in endings]
    if recorded < len(ids):
        mine = select(col(Delivery.id)).where(col(Delivery.id).in_(ids), Delivery.lease_owner == owner)
        ids = list(session.exec(mine))  # type: ignore[arg-type]
    return dict.fromkeys(ids, State.SENT)


def _forget_erased(session: Session, ids: Collection[int], now: datetime) -> None:
    """What was in flight when its reader was erased must not bring back what was cleared then."""
    lately = (col(Event.kind).in_(ERASING), col(Event.at) > now - 2 * LEASE)
    if session.exec(select(Event.id).where(*lately).limit(1)).first() is None:
        return
    reader = select(col(Subscriber.state)).where(col(Subscriber.id) == Delivery.subscriber_id)
    erased = reader.scalar_subquery() == SubscriberState.ERASED
    theirs = in_array(session, col(Delivery.id), ids) & erased
    session.connection().execute(update(_ROWS).where(theirs).values(smtp_text="", subject=""))


_ACCEPTED = """
    UPDATE delivery SET state = 'sent', reason = '', next_attempt_at = NULL, lease_until = NULL,
        sent_at = answer.value ->> 1, smtp_code = answer.value ->> 2, smtp_text = answer.value ->> 3,
        message_id = answer.value ->> 4, subject = answer.value ->> 5
    FROM json_each(?) AS answer WHERE delivery.id = answer.value ->> 0 AND delivery.lease_owner = ?
"""
# The ids stand there twice: a join alone is planned by the statistics of the table, and where these are of
# when it was small, each answer would be compared with every row.
_ACCEPTED_BY_POSTGRES = text("""
    UPDATE delivery SET state = 'sent', reason = '', next_attempt_at = NULL, lease_until = NULL,
        sent_at = answer.at, smtp_code = answer.code, smtp_text = answer.text,
        message_id = answer.message_id, subject = answer.subject
    FROM unnest(CAST(:ids AS bigint[]), CAST(:ats AS timestamptz[]), CAST(:codes AS int[]),
        CAST(:texts AS text[]), CAST(:message_ids AS text[]), CAST(:subjects AS text[])
    ) AS answer(id, at, code, text, message_id, subject)
    WHERE delivery.id = answer.id AND delivery.id = ANY(CAST(:ids AS bigint[]))
        AND delivery.lease_owner = :owner
""")


def _accepted_by_sqlite(session: Session, endings: Sequence[AttemptResult], owner: str) -> int:
    """Row by row would be less work, but the driver lets go of Python at each, and waits to get it back."""
    rows = [
        (number, sqlite_timestamp(datetime.fromtimestamp(at, UTC)), code, words, message_id, subject)
        for number, (_, code, words), at, message_id, subject in endings
    ]
    return session.connection().exec_driver_sql(_ACCEPTED, (orjson.dumps(rows).decode(), owner)).rowcount


def _accepted_by_postgres(session: Session, endings: Sequence[AttemptResult], owner: str) -> int:
    columns = {
        "ids": [each.delivery_id for each in endings],
        "ats": [datetime.fromtimestamp(each.at, UTC) for each in endings],
        "codes": [each.answer.code for each in endings],
        "texts": [each.answer.text for each in endings],
        "message_ids": [each.message_id for each in endings],
        "subjects": [each.subject for each in endings],
    }
    return session.connection().execute(_ACCEPTED_BY_POSTGRES, columns | {"owner": owner}).rowcount


def _record_others(
    session: Session,
    endings: Sequence[AttemptResult],
    owner: str,
    now: datetime,
    policy: UncertainPolicy,
    on_failed: OnFailed,
) -> dict[int, State]:
    by_id = {each.delivery_id: each for each in endings}
    mine = select(col(Delivery.id)).where(col(Delivery.id).in_(by_id), col(Delivery.lease_owner) == owner)
    states = {}
    for delivery, reader in transitions.with_readers(session, session.exec(mine.with_for_update()).all()):
        ending = by_id[delivery.id or 0]
        if reader.state is SubscriberState.ERASED:
            ending = _without_words(ending)
        if ending.answer.outcome in NOT_TRIED:
            if delivery.state in HELD_BY_A_SENDER:  # otherwise it was ended or held meanwhile
                _unclaim(session, delivery, reader)
        elif delivery.state in IN_HAND:
            _settle(delivery, ending.answer, now, policy)
            if ending.message_id:  # it was begun: should it come again, it comes under the same name
                delivery.message_id, delivery.subject = ending.message_id, ending.subject
            if ending.answer.outcome is SendOutcome.SENDER_REJECTED:
                # The pause outlives the reader's erasure: no address may stand in the relay's words.
                refused = sanitize.redact_addresses(delivery.reason)
                controls.pause(session, f"the relay refuses us: {refused}", now)
            elif delivery.state is State.FAILED:
                on_failed(session, delivery.id or 0, delivery.subscriber_id, ending.answer, now)
        elif ending.answer.outcome is SendOutcome.UNCERTAIN and delivery.state is not State.SENT:
            transitions.mark_uncertain(
                delivery, _words(ending.answer), None
            )  # it was ended while it was in flight
        states[delivery.id or 0] = delivery.state
    return states


def _without_words(ending: AttemptResult) -> AttemptResult:
    """What came of a mail whose reader was erased while it was in flight: a relay's words may name them."""
    return ending._replace(answer=ending.answer._replace(text=""), subject="")


def _unclaim(session: Session, delivery: Delivery, reader: Subscriber) -> None:
    """It waits as before, or ends here where its reader left."""
    suppressed = suppression.among(session, [reader.email]).get(reader.email)
    refusal = skip_reason(delivery.kind, reader.state, suppressed)
    delivery.attempts -= 1
    if refusal:
        transitions.end(delivery, *refusal)
    else:
        transitions.requeue(delivery, delivery.next_attempt_at)


def _settle(delivery: Delivery, answer: SendResult, now: datetime, policy: UncertainPolicy) -> None:
    delivery.smtp_code, delivery.smtp_text = answer.code, answer.text
    words = _words(answer)
    match answer.outcome:
        case SendOutcome.DEFERRED | SendOutcome.UNREACHABLE | SendOutcome.SENDER_REJECTED:
            transitions.set_state(delivery, State.DEFERRED, words, now + _delay_of(delivery))
        case SendOutcome.UNCERTAIN:
            resend_at = now + _delay_of(delivery) if policy is UncertainPolicy.RESEND else None
            transitions.mark_uncertain(delivery, words, resend_at)
        case _:
            transitions.end(delivery, State.FAILED, words)


def _words(answer: SendResult) -> str:
    return f"{answer.code or ''} {answer.text}".strip()


def _delay_of(delivery: Delivery) -> timedelta:
    return retry_delay(delivery.attempts, delivery.id or 0)


def retry_delay(attempts: int, delivery_id: int) -> timedelta:
    """How long to wait after the n-th attempt: doubling, and spread by the id so that no two herds meet."""
    spread: float = 0.75 + 0.5 * (delivery_id * 2654435761 % 2**32) / 2**32
    return min(FIRST_DELAY * (1 << min(attempts - 1, 16)), LONGEST_DELAY) * spread
