"""Settle a restored database: hold emails that may have been sent since the backup, and disable webhooks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from sqlalchemy import update
from sqlmodel import Session, col, select

from app import subscribers
from app.delivery import ledger
from app.papers import previous_archive
from app.settings import UncertainPolicy
from app.storage import webhook_endpoints
from app.storage.database import Database
from app.storage.inserts import insert_or_ignore
from app.storage.models import (
    ApiKey,
    Delivery,
    DeliveryState,
    SendingPause,
    Subscriber,
    SubscriberState,
    Suppression,
)
from app.subscribers import schedule
from app.types import MailKind

DUE_SINCE = "it was due between the backup and the restore, so it may have been sent"
_ENDED = (SubscriberState.UNSUBSCRIBED, SubscriberState.BOUNCING, SubscriberState.ERASED)
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
    uncertain and no paper is sent twice. Its unsubscriptions and key revocations since the backup are
    repeated.
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
                _repeat_departures(session, source, now)
        ledger.skip_ids(session)  # must run before any row is added
        report.waiting = ledger.hold_waiting(session, now)
        report.due_since = _hold_due(session, now)
        everything = col(SendingPause.edition) == ledger.ALL_EDITIONS
        session.execute(update(SendingPause).where(everything).values(reason=PAUSE_REASON))
    return report


def _repeat_departures(session: Session, previous: Session, now: datetime) -> None:
    """Repeat unsubscriptions, erasures, bounces and suppressions from `previous`, and the ends of keys."""
    for before in previous.exec(select(Subscriber).where(col(Subscriber.state).in_(_ENDED))).all():
        subscriber = session.get(Subscriber, before.id)
        if subscriber is None or subscriber.state is before.state:
            continue
        if before.state is SubscriberState.ERASED and before.confirmed_at is None:
            subscribers.end_sign_up(session, subscriber, now)
        elif before.state is SubscriberState.ERASED:
            subscribers.erase(session, before.id or 0, now, suppress=False)  # suppressions are copied below
        else:
            subscriber.state, subscriber.ended_at, subscriber.next_due_at = (
                before.state,
                before.ended_at,
                None,
            )
            session.add(subscriber)
    for entry in previous.exec(select(Suppression)).all():
        values = entry.model_dump(exclude={"id"})
        insert_or_ignore(session, Suppression, ["address_hash"], **values)
    for key in previous.exec(select(ApiKey)).all():
        own = session.exec(select(ApiKey).where(ApiKey.key_hash == key.key_hash)).first()
        if own:
            own.revoked_at = own.revoked_at or key.revoked_at
            ends = [at for at in (own.expires_at, key.expires_at) if at]
            own.expires_at = min(ends, default=None)  # a key that was rotated expires earlier


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
