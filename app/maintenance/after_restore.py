"""Settle a restored database: hold emails that may have been sent since the backup, and disable webhooks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from sqlalchemy import or_, update
from sqlmodel import Session, col, select

from app import subscribers
from app.delivery import ledger
from app.papers import previous_archive
from app.settings import UncertainPolicy
from app.storage import webhook_endpoints
from app.storage.database import Database, in_array
from app.storage.inserts import insert_or_ignore
from app.storage.models import (
    ApiKey,
    Delivery,
    DeliveryState,
    Event,
    SendingPause,
    Subscriber,
    SubscriberState,
    Suppression,
)
from app.subscribers import event_log, schedule
from app.types import MailKind

DUE_SINCE = "it was due between the backup and the restore, so it may have been sent"
_ENDED = (SubscriberState.UNSUBSCRIBED, SubscriberState.BOUNCING, SubscriberState.ERASED)
_SUBSCRIBED = (SubscriberState.ACTIVE, SubscriberState.PAUSED)
WEBHOOKS_DISABLED = "restored from a backup: its events may have been sent already"
PAUSE_REASON = "restored from a backup: see `paperboy deliveries --state uncertain`, then resume"


@dataclass(slots=True)
class RestoreReport:
    """The emails that may have been sent since the backup, and the disabled webhooks.

    The emails are recorded but not sent again.
    """

    recovered: int = 0  # emails that may have been sent, as recorded by the previous database
    waiting: int = 0  # emails that were in flight when the backup was made, or waiting then and due by now
    due_since: Counter[str] = field(default_factory=Counter)  # digests by edition
    webhooks: list[str] = field(default_factory=list)  # labels; includes any removed since the backup


def settle(
    db: Database,
    journals: Path,
    backup_at: datetime,
    now: datetime,
    on_failed: ledger.OnFailed,
    previous: Database | None = None,
) -> RestoreReport:
    """Record the emails that may have been sent since the backup as uncertain, and do not send them again.

    All webhooks are disabled. `previous` is the database that the restored one replaces, if it can still be
    read. Its papers and the states of its emails since the backup are copied, so that fewer emails are
    uncertain and no paper is sent twice. What ended mail or access since the backup is repeated (see
    `_repeat_revocations`).
    """
    report = RestoreReport()
    ledger.recover(db, journals, now, UncertainPolicy.HOLD, on_failed)
    with db.write() as session:
        disabled = webhook_endpoints.disable_all(session, WEBHOOKS_DISABLED, now)
        report.webhooks = [webhook_endpoints.label(row) for row in disabled]
        if previous:
            with previous.read() as source:
                previous_archive.copy_since(session, source)
                report.recovered = ledger.copy_since(session, source, backup_at)
                _repeat_revocations(session, source, now)
        ledger.skip_ids(session)  # must run before any row is added
        report.waiting = ledger.hold_waiting(session, now)
        while subscribers.end_expired_pauses(session, now):  # digests due since may have been sent, too
            pass
        report.due_since = _hold_due(session, now)
        everything = col(SendingPause.edition) == ledger.ALL_EDITIONS
        session.execute(update(SendingPause).where(everything).values(reason=PAUSE_REASON))
    return report


def _repeat_revocations(session: Session, previous: Session, now: datetime) -> None:
    """Repeat what ended mail or access: departures, pauses, replaced links, suppressions, ends of keys.

    Skip subscribers who were created at another time: an earlier restore may have reused the id.
    """
    paused, relinked = list[Subscriber](), list[tuple[Subscriber, Subscriber]]()
    states = (*_ENDED, SubscriberState.PAUSED)
    is_changed = or_(col(Subscriber.state).in_(states), col(Subscriber.link_epoch) > 0)
    for before in previous.exec(select(Subscriber).where(is_changed)).all():
        subscriber = session.get(Subscriber, before.id)
        if subscriber is None or subscriber.state is SubscriberState.ERASED:
            continue
        if subscriber.created_at != before.created_at:
            continue
        if before.state in _ENDED:
            _repeat_end(session, subscriber, before, now)
        elif before.state is SubscriberState.PAUSED and subscriber.state in _SUBSCRIBED:
            _copy_state(subscriber, before)
            paused.append(subscriber)
        if before.link_epoch > subscriber.link_epoch:
            relinked.append((subscriber, before))
    _copy_links(session, relinked)
    _copy_events(session, previous, [each.id for each in paused], ("paused", "resumed"))
    replaced = (event_log.LINKS_REPLACED, event_log.ADDRESS_CHANGED)
    _copy_events(session, previous, [each.id for each, _ in relinked], replaced)
    for entry in previous.exec(select(Suppression)).all():
        values = entry.model_dump(exclude={"id"})
        insert_or_ignore(session, Suppression, ["address_hash"], **values)
    for key in previous.exec(select(ApiKey)).all():
        own = session.exec(select(ApiKey).where(ApiKey.key_hash == key.key_hash)).first()
        if own:
            own.revoked_at = own.revoked_at or key.revoked_at
            ends = [at for at in (own.expires_at, key.expires_at) if at]
            own.expires_at = min(ends, default=None)  # a key that was rotated expires earlier


def _repeat_end(session: Session, subscriber: Subscriber, before: Subscriber, now: datetime) -> None:
    if before.state is not SubscriberState.ERASED:
        _copy_state(subscriber, before)
    elif before.confirmed_at is None:
        subscribers.end_sign_up(session, subscriber, now)
    else:
        subscribers.erase(session, before.id or 0, now, suppress=False)  # suppressions are copied later


def _copy_state(subscriber: Subscriber, before: Subscriber) -> None:
    for name in ("state", "ended_at", "paused_until", "next_due_at", "due_since"):
        setattr(subscriber, name, getattr(before, name))


def _copy_links(session: Session, pairs: Sequence[tuple[Subscriber, Subscriber]]) -> None:
    """Revoke the links that were revoked since the backup, and copy the addresses that were replaced."""
    moved = [(subscriber, before) for subscriber, before in pairs if subscriber.email != before.email]
    for subscriber, before in pairs:
        subscriber.link_epoch = before.link_epoch
    for subscriber, _ in moved:  # because addresses are unique, and two subscribers may have swapped theirs
        subscriber.email = f"moved-{subscriber.id}@moved.invalid"
    session.flush()
    for subscriber, before in moved:
        subscriber.email = before.email
    session.flush()


def _copy_events(
    session: Session, previous: Session, ids: Sequence[int | None], kinds: Sequence[str]
) -> None:
    """Copy the events that the backup lacks, so that bounces of mail to an old address are not counted."""
    stored, copied = (
        select(Event).where(in_array(each, col(Event.subscriber_id), ids), col(Event.kind).in_(kinds))
        for each in (session, previous)
    )
    present = {(event.subscriber_id, event.kind, event.at) for event in session.exec(stored)}
    for event in previous.exec(copied.order_by(col(Event.id))):
        if (event.subscriber_id, event.kind, event.at) not in present:
            session.add(Event(**event.model_dump(exclude={"id"})))


def _hold_due(session: Session, now: datetime) -> Counter[str]:
    """Record an uncertain digest for each time at which a subscriber was due. Return the count by edition."""
    due_since: Counter[str] = Counter()
    due = select(Subscriber).where(
        Subscriber.state == SubscriberState.ACTIVE, col(Subscriber.next_due_at) <= now
    )
    for subscriber in session.exec(due.order_by(col(Subscriber.id))).all():
        while subscriber.next_due_at and subscriber.next_due_at <= now:
            row = {
                "subscriber_id": subscriber.id, "kind": MailKind.DIGEST,
                "edition": schedule.edition(subscriber.zone, subscriber.next_due_at),
                "state": DeliveryState.UNCERTAIN, "reason": DUE_SINCE, "possibly_delivered": True,
                "due_at": subscriber.next_due_at, "created_at": now,
            }  # fmt: skip
            added = insert_or_ignore(session, Delivery, ["subscriber_id", "edition"], **row)
            due_since[str(row["edition"])] += added is not None
            subscriber.next_due_at = schedule.next_due(
                subscriber.cadence,
                subscriber.weekday,
                subscriber.hour,
                subscriber.zone,
                subscriber.next_due_at,
            )
        session.add(subscriber)
    return +due_since
