"""Recover the emails of dead senders, and expire leases."""

from collections import Counter
from collections.abc import Collection
from datetime import datetime
from pathlib import Path

import structlog
from sqlalchemy import ColumnElement, or_
from sqlmodel import Session, col, select

from app.delivery import journal
from app.delivery.journal import AbandonedJournal
from app.delivery.ledger import transitions
from app.delivery.ledger.claims import LEASED_STATES, WAITING_STATES, is_sendable
from app.delivery.ledger.expiry import expire_overdue, is_overdue
from app.delivery.ledger.outcomes import OnFailed, clear_erased, record_results
from app.settings import UncertainPolicy
from app.storage import live_processes
from app.storage.database import Database, advisory_lock, in_array
from app.storage.models import Delivery
from app.storage.models import DeliveryState as State

MAX_LOGGED = 50  # ids in a log line

log = structlog.get_logger(__name__)


def has_work(session: Session, now: datetime, folder: Path) -> bool:
    """Return whether an email may be sent now or `recover` has work to do."""
    # One query per condition, because conditions joined by OR make databases read every waiting email.
    sendable = ((col(Delivery.state) == state) & is_sendable(now) for state in WAITING_STATES)
    conditions = (*sendable, is_overdue(now), _lease_has_expired(now, ()))
    ids = (session.exec(select(Delivery.id).where(condition).limit(1)).first() for condition in conditions)
    return any(delivery_id is not None for delivery_id in ids) or journal.any_abandoned(folder)


def recover(
    database: Database, folder: Path, now: datetime, policy: UncertainPolicy, on_failed: OnFailed
) -> Counter[str]:
    """Recover the emails of dead senders and expire overdue emails. Return the number of emails by new state.

    A dead sender's journal states which emails were sent. If the sender has no journal on this machine and
    its lease has expired, its emails become uncertain. Emails of running senders do not change.
    """
    recovered: Counter[str] = Counter()
    for abandoned in journal.abandoned(folder):
        with database.write() as session:
            states = replay_journal(session, abandoned, now, policy, on_failed)
        log.warning(
            "recovered the emails of a crashed sender",
            sender=abandoned.owner,
            states={str(state): count for state, count in states.items()},
            deliveries=sorted(abandoned.unanswered)[:MAX_LOGGED],
        )
        recovered += states
    alive = journal.live_owners(folder)
    with database.write() as session:
        # A sender whose lease has expired may still be running elsewhere, if a clock jumped.
        expired = session.exec(select(Delivery.lease_owner).where(_lease_has_expired(now, ())).distinct())
        alive.update(owner for owner in expired if live_processes.is_alive(session, owner))
        return recovered + expire_leases(session, now, alive, policy) + expire_overdue(session, now)


def replay_journal(
    session: Session, abandoned: AbandonedJournal, now: datetime, policy: UncertainPolicy, on_failed: OnFailed
) -> Counter[str]:
    """Record each email of a dead sender as answered, uncertain or unsent, according to the journal.

    The journal may be old. So the personal data of subscribers who have been erased are cleared again.
    """
    advisory_lock(session, abandoned.owner)  # its last claim's transaction may still be running
    answered = record_results(
        session, abandoned.results, owner=abandoned.owner, now=now, policy=policy, on_failed=on_failed
    )
    # A claimed email may have been cancelled after its body was sent.
    is_skipped = in_array(session, col(Delivery.id), abandoned.unanswered) & (
        col(Delivery.state) == State.SKIPPED
    )
    owned = select(Delivery).where(
        Delivery.lease_owner == abandoned.owner, or_(col(Delivery.state).in_(LEASED_STATES), is_skipped)
    )
    rows = session.exec(owned.with_for_update()).all()
    for delivery in rows:
        sent_as = abandoned.unanswered.get(delivery.id or 0)
        if sent_as or not abandoned.complete:
            delivery.message_id, delivery.subject = sent_as or (delivery.message_id, delivery.subject)
            reason = "the sender crashed while this email was in flight"
            if delivery.state is State.SKIPPED:
                transitions.mark_uncertain(delivery, reason, None)
            else:
                _mark_uncertain(delivery, reason, now, policy)
        else:
            transitions.requeue(delivery, now)
    session.flush()
    clear_erased(session, [*answered, *(delivery.id or 0 for delivery in rows)])
    return Counter(answered.values()) + Counter(delivery.state for delivery in rows)


def expire_leases(
    session: Session, now: datetime, alive: Collection[str], policy: UncertainPolicy
) -> Counter[str]:
    """Mark emails as uncertain if their lease has expired and their sender is not in `alive`.

    Neither condition alone is proof: a clock that jumps ends the lease of a running sender, and a lost
    connection releases its process lock.
    """
    expired = select(Delivery).where(_lease_has_expired(now, alive))
    rows = session.exec(expired.with_for_update(skip_locked=True)).all()
    for delivery in rows:
        _mark_uncertain(delivery, "the sender stopped running, and its journal was lost", now, policy)
    return Counter(delivery.state for delivery in rows)


def _lease_has_expired(now: datetime, alive: Collection[str]) -> ColumnElement[bool]:
    return (
        col(Delivery.state).in_(LEASED_STATES)
        & (col(Delivery.lease_until) <= now)
        & col(Delivery.lease_owner).not_in(alive)
    )


def _mark_uncertain(delivery: Delivery, reason: str, now: datetime, policy: UncertainPolicy) -> None:
    transitions.mark_uncertain(delivery, reason, now if policy is UncertainPolicy.RESEND else None)
