"""Hold the emails that may have been sent between the backup and the restore, and skip their ids."""

from datetime import datetime
from typing import cast

from sqlalchemy import Table, delete, func, insert, inspect, or_, select, update
from sqlmodel import Session

from app.delivery.ledger.claims import FINAL_STATES, LEASED_STATES, NOT_SENT, WAITING_STATES
from app.storage.database import execute_and_count, in_array
from app.storage.inserts import insert_many, last_id, set_last_id
from app.storage.models import Delivery, DigestContent, Paper, PaperSnapshot, Subscriber
from app.storage.models import DeliveryState as State

ID_GAP = 1_000_000  # must exceed the number of emails added since the backup
# The same for papers. It is not larger, because each sitemap covers 50,000 ids, and would be empty.
PAPER_ID_GAP = 50_000
BATCH = 1000  # rows
WAITING = "it was waiting when the backup was made, so it may have been sent since"

_DELIVERIES, _CONTENTS, _PAPERS, _SNAPSHOTS, _SUBSCRIBERS = (
    cast("Table", inspect(model).local_table)
    for model in (Delivery, DigestContent, Paper, PaperSnapshot, Subscriber)
)


def hold_waiting(session: Session, now: datetime, *, sent_are_copied: bool = False) -> int:
    """Hold emails that were in flight, or waiting and due by now. Return their number.

    Emails that are due later cannot have been sent. Those that were deferred or held can: an operator may
    have resumed sending since the backup. If `copy_since` has copied the emails that were sent, only those
    whose next attempt has become due are held.
    """
    is_due = _DELIVERIES.c.next_attempt_at <= now
    if not sent_are_copied:
        is_on_hold = (_DELIVERIES.c.state == State.UNCERTAIN) & _DELIVERIES.c.next_attempt_at.is_(None)
        is_due = (_DELIVERIES.c.due_at <= now) & ~is_on_hold
    was_waiting = _DELIVERIES.c.state.in_(WAITING_STATES) & is_due
    return execute_and_count(
        session,
        update(_DELIVERIES)
        .where(or_(was_waiting, _DELIVERIES.c.state.in_(LEASED_STATES)))
        .values(
            state=State.UNCERTAIN,
            reason=WAITING,
            possibly_delivered=True,
            next_attempt_at=None,
            lease_until=None,
        ),
    )


def skip_ids(session: Session) -> None:
    """Skip the ids assigned since the backup, because links, bounces and journals may refer to them."""
    connection = session.connection()
    for table, gap in ((_DELIVERIES, ID_GAP), (_SNAPSHOTS, ID_GAP), (_PAPERS, PAPER_ID_GAP)):
        newest = session.scalar(select(func.max(table.c.id))) or 0
        set_last_id(connection, table.name, max(newest, last_id(connection, table.name)) + gap)


def copy_since(session: Session, previous: Session, backup_at: datetime) -> int:
    """Copy emails from the previous database: those in flight, and those that became final since the backup.

    The latter include emails that were waiting in the backup and were then suppressed, skipped or given up.
    The papers that they contain must have been copied. Return the number of copied emails that may have been
    sent.
    """
    copied = 0
    newest = session.scalar(select(func.max(_SNAPSHOTS.c.id))) or 0
    snapshots = previous.execute(select(_SNAPSHOTS).where(_SNAPSHOTS.c.id > newest))
    for rows in snapshots.partitions(BATCH):
        insert_many(session, PaperSnapshot, [row._asdict() for row in rows])
    ids = set(session.scalars(select(_SUBSCRIBERS.c.id)))
    waiting = session.scalars(select(_DELIVERIES.c.id).where(_DELIVERIES.c.state.in_(WAITING_STATES)))
    since = or_(
        _DELIVERIES.c.created_at >= backup_at,
        _DELIVERIES.c.sent_at >= backup_at,
        in_array(previous, _DELIVERIES.c.id, waiting),
    )
    has_ended = _DELIVERIES.c.state.in_(FINAL_STATES) & since
    is_leased = _DELIVERIES.c.state.in_(LEASED_STATES)
    for row in previous.execute(select(_DELIVERIES).where(or_(has_ended, is_leased))).all():
        if row.subscriber_id not in ids:
            continue  # the subscriber signed up after the backup
        values = row._asdict()
        if not execute_and_count(
            session, update(_DELIVERIES).where(_DELIVERIES.c.id == row.id).values(values)
        ):
            # A planned digest may have been withdrawn and composed again since the backup.
            same = (_DELIVERIES.c.subscriber_id == row.subscriber_id, _DELIVERIES.c.edition == row.edition)
            session.execute(delete(_DELIVERIES).where(*same))
            session.execute(insert(_DELIVERIES), [values])
            contents = previous.execute(select(_CONTENTS).where(_CONTENTS.c.delivery_id == row.id))
            insert_many(session, DigestContent, [content._asdict() for content in contents])
        copied += row.state not in NOT_SENT
    return copied
