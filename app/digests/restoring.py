"""After a restore: hold every mail that may have left since the backup was made, and count it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from sqlalchemy import update
from sqlmodel import Session, col, select

from app.delivery import ledger
from app.settings import UncertainPolicy
from app.storage.database import Database, insert_or_ignore
from app.storage.models import Delivery, DeliveryState, SendingPause, Subscriber, SubscriberState
from app.subscribers import schedule
from app.types import MailKind

DUE_SINCE = "it was due between the backup and the restore, so it may have been sent"
PAUSE_REASON = "restored from a backup: see `paperboy deliveries --state uncertain`, then resume"


@dataclass(slots=True)
class RestoreReport:
    """The mails that may have left since the backup. They are recorded, and not sent again."""

    recovered: int = 0  # mails that the previous database recorded
    waiting: int = 0  # mails that were waiting or in flight when the backup was made
    due_since: Counter[str] = field(default_factory=Counter)  # digests by edition


def settle(
    db: Database,
    journals: Path,
    backup_at: datetime,
    now: datetime,
    on_failed: ledger.OnFailed,
    previous: Database | None = None,
) -> RestoreReport:
    """Record the mails that may have left since the backup as uncertain, so that they are not sent again.

    `previous` is the database that the restored one replaces, if it can still be read. The mails that it sent
    since the backup are copied, so that no digest is uncertain that it recorded, and no paper is sent twice.
    """
    report = RestoreReport()
    ledger.recover(db, journals, now, UncertainPolicy.HOLD, on_failed)
    with db.write() as session:
        if previous:
            report.recovered = ledger.copy_since(session, previous, backup_at)
        report.waiting = ledger.hold_waiting(session, now)
        report.due_since = _hold_due(session, now)
        ledger.skip_ids(session)
        everything = col(SendingPause.edition) == ledger.ALL_EDITIONS
        session.execute(update(SendingPause).where(everything).values(reason=PAUSE_REASON))
    return report


def _hold_due(session: Session, now: datetime) -> Counter[str]:
    """Record an uncertain digest for each time at which a subscriber was due. Return them by edition."""
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
