"""After a crash, and past the time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from datetime import datetime
from pathlib import Path

import structlog
from sqlalchemy import ColumnElement
from sqlmodel import Session, col, select

from app.delivery import journal
from app.delivery.journal import AbandonedJournal
from app.delivery.ledger import transitions
from app.delivery.ledger.claims import HELD_BY_A_SENDER, WAITING, may_leave
from app.delivery.ledger.outcomes import OnFailed, record_results
from app.settings import UncertainPolicy
from app.storage import live_processes
from app.storage.database import Database, advisory_lock
from app.storage.models import Delivery
from app.storage.models import DeliveryState as State
from app.types import MailKind

log = structlog.get_logger(__name__)


def has_work(session: Session, now: datetime, folder: Path) -> bool:
    """Whether a mail may leave now, or a dead sender's rows wait to be freed."""
    # One question each: for all in one, joined by OR, databases read every mail that waits.
    leaving = ((col(Delivery.state) == state) & may_leave(now) for state in WAITING)
    questions = (*leaving, _given_up(now), _forsaken(now, ()))
    found = (session.exec(select(Delivery.id).where(which).limit(1)).first() for which in questions)
    return any(number is not None for number in found) or journal.any_left_behind(folder)


def recover(
    database: Database, folder: Path, now: datetime, policy: UncertainPolicy, on_failed: OnFailed
) -> Counter[str]:
    """Settle what dead senders had in hand, and give up what a reader's next digest takes over.

    A dead sender's journal tells exactly. Rows whose lease ran out, and whose journal is not here, were in
    the hands of a machine that is lost: their fate is unknown. Nothing of a living sender is touched.
    """
    freed: Counter[str] = Counter()
    for remains in journal.abandoned(folder):
        with database.write() as session:
            settled = replay_journal(session, remains, now, policy, on_failed)
        log.warning(
            "a sender died; what it had in hand is settled", sender=remains.owner, states=dict(settled)
        )
        freed += settled
    alive = journal.live_owners(folder)
    with database.write() as session:
        alive |= _alive_elsewhere(session, now)
        return freed + expire_leases(session, now, alive, policy) + expire_overdue(session, now)


def replay_journal(
    session: Session, remains: AbandonedJournal, now: datetime, policy: UncertainPolicy, on_failed: OnFailed
) -> Counter[str]:
    """What one dead sender had in hand: answered, in flight, or provably unsent."""
    advisory_lock(session, remains.owner)  # its last claim may be on the way to its end yet
    answered = record_results(
        session, remains.ended, owner=remains.owner, now=now, policy=policy, on_failed=on_failed
    )
    theirs = col(Delivery.lease_owner) == remains.owner
    rows = session.exec(
        select(Delivery).where(theirs, col(Delivery.state).in_(HELD_BY_A_SENDER)).with_for_update()
    ).all()
    for delivery in rows:
        begun = remains.begun.get(delivery.id or 0)
        if begun or not remains.complete:
            delivery.message_id, delivery.subject = begun or (delivery.message_id, delivery.subject)
            _doubt(delivery, "the sender died while this mail was in flight", now, policy)
        else:
            transitions.requeue(delivery, now)
    return Counter(answered.values()) + Counter(delivery.state for delivery in rows)


def _alive_elsewhere(session: Session, now: datetime) -> set[str]:
    """Return the senders whose leases ran out and whose processes live all the same: a clock has jumped."""
    late = session.exec(select(Delivery.lease_owner).where(_forsaken(now, ())).distinct())
    return {owner for owner in late if live_processes.is_alive(session, owner)}


def expire_leases(
    session: Session, now: datetime, alive: Collection[str], policy: UncertainPolicy
) -> Counter[str]:
    """What was in the hands of a machine that has not been heard of for as long as a lease lasts.

    Both must be gone, the lease and the lock of its process. A lost connection drops the lock at once, and a
    clock that jumps ends the lease, while the sender lives.
    """
    rows = _locked(session, _forsaken(now, alive))
    for delivery in rows:
        _doubt(delivery, "the sender is gone, and its journal with it", now, policy)
    return Counter(delivery.state for delivery in rows)


def expire_overdue(session: Session, now: datetime) -> Counter[str]:
    """What has waited until the reader's next digest is due, which has its papers."""
    rows = _locked(session, _given_up(now))
    for delivery in rows:
        why = "the next digest is due" if delivery.kind is MailKind.DIGEST else "it is out of date"
        reason = f"given up, {why}: {delivery.reason or 'it was never attempted'}"
        transitions.end(delivery, State.UNCERTAIN if delivery.possibly_delivered else State.FAILED, reason)
    return Counter(delivery.state for delivery in rows)


def _locked(session: Session, which: ColumnElement[bool]) -> list[Delivery]:
    return list(session.exec(select(Delivery).where(which).with_for_update(skip_locked=True)))


def _forsaken(now: datetime, alive: Collection[str]) -> ColumnElement[bool]:
    return (
        col(Delivery.state).in_(HELD_BY_A_SENDER)
        & (col(Delivery.lease_until) <= now)
        & col(Delivery.lease_owner).not_in(alive)
    )


def _given_up(now: datetime) -> ColumnElement[bool]:
    return (
        col(Delivery.state).in_(WAITING)
        & col(Delivery.next_attempt_at).is_not(None)
        & (col(Delivery.give_up_at) <= now)
    )


def _doubt(delivery: Delivery, reason: str, now: datetime, policy: UncertainPolicy) -> None:
    transitions.mark_uncertain(delivery, reason, now if policy is UncertainPolicy.RESEND else None)
