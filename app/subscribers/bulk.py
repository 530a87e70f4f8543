"""Add many subscribers in one transaction, with the same result as adding each of them separately."""

from collections.abc import Mapping, MutableMapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from sqlmodel import Session, col, insert, select

from app.delivery import suppression
from app.errors import PaperboyError
from app.storage.database import in_array
from app.storage.inserts import insert_many_or_ignore
from app.storage.models import Event, Subscriber, SubscriberState
from app.subscribers import declines, form_submissions, pausing, schedule, stored_interests
from app.subscribers.csv_format import ImportedSubscriber
from app.subscribers.repository import preference_columns
from app.subscribers.signup import CONSENT_GIVEN_ELSEWHERE, add, registered_error, suppressed_error

Outcome = PaperboyError | None  # why a subscriber was not added, or None


def add_one(session: Session, new: ImportedSubscriber, now: datetime) -> None:
    """Add a subscriber who gave their consent elsewhere.

    Raise Conflict if the address is suppressed or belongs to a subscriber who is not pending.
    """
    subscriber_id = add(session, new.email, new.preferences, now)
    subscriber = session.get_one(Subscriber, subscriber_id)
    subscriber.consent_at = new.consent_at or now
    subscriber.consent_version = new.consent_version or CONSENT_GIVEN_ELSEWHERE
    session.add(subscriber)
    if new.state is SubscriberState.PAUSED:
        pausing.pause(session, subscriber_id, new.paused_until, now)


def add_many(session: Session, batch: Sequence[ImportedSubscriber], now: datetime) -> list[Outcome]:
    """Add subscribers. Return None for each added subscriber, and an error for each rejected one."""
    states = states_by_address(session, batch)
    outcomes = find_conflicts(session, batch, states)
    unregistered = [
        new for new, conflict in zip(batch, outcomes, strict=True) if not (conflict or new.email in states)
    ]
    added = _insert(session, unregistered, now)
    for place, new in enumerate(batch):
        # Add pending sign-ups one by one, including those stored in the meantime.
        if outcomes[place] is None and new.email not in added:
            try:
                add_one(session, new, now)
            except PaperboyError as error:
                outcomes[place] = error
    return outcomes


def states_by_address(session: Session, batch: Sequence[ImportedSubscriber]) -> dict[str, SubscriberState]:
    """Return the states of the subscribers who have these addresses."""
    emails = {new.email for new in batch}
    rows = select(Subscriber.email, Subscriber.state).where(in_array(session, col(Subscriber.email), emails))
    return {email: SubscriberState(state) for email, state in session.exec(rows)}


def find_conflicts(
    session: Session,
    batch: Sequence[ImportedSubscriber],
    states: Mapping[str, SubscriberState],
    earlier: MutableMapping[str, SubscriberState] | None = None,
) -> list[Outcome]:
    """Return, for each subscriber, an error if the address is suppressed, registered or repeated, else None.

    `states` is the result of `states_by_address`. `earlier` contains the states of the addresses that occur
    earlier in the file. This batch is added to it.
    """
    suppressed = suppression.reasons_for(session, {new.email for new in batch})
    earlier = {} if earlier is None else earlier
    conflicts: list[Outcome] = []
    for new in batch:
        state = earlier.get(new.email, states.get(new.email, SubscriberState.PENDING))
        if new.email in suppressed:
            conflicts.append(suppressed_error(new.email))
        elif state is not SubscriberState.PENDING:
            conflicts.append(registered_error(new.email, state))
        else:
            earlier[new.email] = new.state
            conflicts.append(None)
    return conflicts


def _insert(session: Session, batch: Sequence[ImportedSubscriber], now: datetime) -> set[str]:
    """Insert subscribers, and return their addresses. Leave out addresses registered in the meantime."""
    ids = insert_many_or_ignore(session, Subscriber, ["email"], [_values(new, now) for new in batch])
    inserted = {number: new for number, new in zip(ids, batch, strict=True) if number is not None}
    if not inserted:
        return set()
    stored_interests.store_new(
        session, {number: new.preferences.interests for number, new in inserted.items()}
    )
    events = [{"at": now, "kind": "added", "subscriber_id": number, "detail": ""} for number in inserted]
    events += [
        {
            "at": now,
            "kind": "paused",
            "subscriber_id": number,
            "detail": pausing.event_detail(new.paused_until),
        }
        for number, new in inserted.items()
        if new.state is SubscriberState.PAUSED
    ]
    session.execute(insert(Event), events)
    mailboxes = [form_submissions.mailbox_hash(new.email) for new in inserted.values()]
    declines.forget_declines(session, mailboxes)
    return {new.email for new in inserted.values()}


def _values(new: ImportedSubscriber, now: datetime) -> dict[str, Any]:
    """Return the columns that `add_one` stores for an unregistered address."""
    chosen, is_active = new.preferences, new.state is SubscriberState.ACTIVE
    due = _next_due(chosen.cadence, chosen.weekday, chosen.hour, chosen.zone, now) if is_active else None
    return {
        "email": new.email,
        "state": new.state,
        **preference_columns(chosen),
        "next_due_at": due,
        "due_since": due or now,
        "paused_until": new.paused_until,
        "consent_at": new.consent_at or now,
        "consent_version": new.consent_version or CONSENT_GIVEN_ELSEWHERE,
        "created_at": now,
        "confirmed_at": now,
    }


_next_due = lru_cache(maxsize=1000)(schedule.next_due)
