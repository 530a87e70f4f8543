"""Settle a restored database: hold emails that may have been sent since the backup, and disable webhooks."""

from collections import Counter
from collections.abc import Collection, Sequence
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
# The history of pauses, from which the state before bounces is derived; the history of links; and the changes
# of address, by which late bounces recognize an old address.
_COPIED_EVENTS = ("paused", "resumed", event_log.LINKS_REPLACED, event_log.ADDRESS_CHANGED)
PAUSE_REASON = "restored from a backup: see `paperboy deliveries --state uncertain`, then resume"


@dataclass(slots=True)
class RestoreReport:
    """The emails that may have been sent since the backup, and what the operator has to decide.

    The emails are recorded but not sent again.
    """

    recovered: int = 0  # emails that may have been sent, as recorded by the previous database
    waiting: int = 0  # emails that were in flight when the backup was made, or waiting then and due by now
    due_since: Counter[str] = field(default_factory=Counter)  # digests by edition
    uncertain: int = 0  # emails that are uncertain now
    webhooks: list[str] = field(default_factory=list)  # labels of the disabled ones, some removed since
    old_addresses: list[str] = field(default_factory=list)  # of subscribers whose new one another has


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
    uncertain and no paper is sent twice. Changes that ended mail or access since the backup are repeated (see
    `_repeat_changes`).
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
                report.old_addresses = _repeat_changes(session, source, now)
        ledger.skip_ids(session)  # must run before any row is added
        report.waiting = ledger.hold_waiting(session, now, sent_are_copied=previous is not None)
        while subscribers.end_expired_pauses(session, now):  # digests due since the end may have been sent
            pass
        report.due_since = _hold_due(session, now)
        report.uncertain = ledger.totals(session)[DeliveryState.UNCERTAIN]
        everything = col(SendingPause.edition) == ledger.ALL_EDITIONS
        session.execute(update(SendingPause).where(everything).values(reason=PAUSE_REASON))
    return report


def _repeat_changes(session: Session, previous: Session, now: datetime) -> list[str]:
    """Repeat the changes that ended mail or access, and return the addresses that could not be replaced.

    These are unsubscriptions, erasures, bounces, pauses, suppressions, new links, changed addresses, and
    revoked or replaced keys.
    """
    old_addresses = _repeat_changes_of_subscribers(session, previous, now)
    for entry in previous.exec(select(Suppression)).all():
        values = entry.model_dump(exclude={"id"})
        insert_or_ignore(session, Suppression, ["address_hash"], **values)
    for key in previous.exec(select(ApiKey)).all():
        own = session.exec(select(ApiKey).where(ApiKey.key_hash == key.key_hash)).first()
        if own:
            own.revoked_at = own.revoked_at or key.revoked_at
            ends = [at for at in (own.expires_at, key.expires_at) if at]
            own.expires_at = min(ends, default=None)  # a key that was rotated expires earlier
    return old_addresses


def _repeat_changes_of_subscribers(session: Session, previous: Session, now: datetime) -> list[str]:
    """Repeat the changes of subscribers, and return the addresses that could not be replaced.

    Skip subscribers who were created at another time: an earlier restore may have reused the id.
    """
    changed, moved = list[int | None](), list[tuple[Subscriber, Subscriber]]()
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
        if before.link_epoch > subscriber.link_epoch:
            subscriber.link_epoch = before.link_epoch
            if subscriber.email != before.email:
                moved.append((subscriber, before))
        changed.append(subscriber.id)
    not_moved = _copy_addresses(session, moved)
    _copy_events(session, previous, changed, {subscriber.id for subscriber in not_moved})
    return [subscriber.email for subscriber in not_moved]


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


def _copy_addresses(session: Session, moved: list[tuple[Subscriber, Subscriber]]) -> list[Subscriber]:
    """Copy new addresses, unless another subscriber has them. Return the subscribers who keep their old ones.

    The owner of such an address was skipped because their id had been reused.
    """
    ids, new = [subscriber.id for subscriber, _ in moved], [before.email for _, before in moved]
    taken = set(
        session.exec(
            select(Subscriber.email).where(
                in_array(session, col(Subscriber.email), new), ~in_array(session, col(Subscriber.id), ids)
            )
        )
    )
    not_moved = list[Subscriber]()
    while blocked := [subscriber for subscriber, before in moved if before.email in taken]:
        moved = [(subscriber, before) for subscriber, before in moved if before.email not in taken]
        taken = {subscriber.email for subscriber in blocked}
        not_moved += blocked
    for subscriber, _ in moved:  # because addresses are unique, and two subscribers may have swapped theirs
        subscriber.email = f"moved-{subscriber.id}@moved.invalid"
    session.flush()
    for subscriber, before in moved:
        subscriber.email = before.email
    session.flush()
    return not_moved


def _copy_events(
    session: Session, previous: Session, ids: Sequence[int | None], not_moved: Collection[int | None]
) -> None:
    """Copy the events of _COPIED_EVENTS that the backup lacks.

    Leave out the changes of address of the subscribers in `not_moved`, who keep their old ones.
    """
    stored, copied = (
        select(Event).where(
            in_array(each, col(Event.subscriber_id), ids), col(Event.kind).in_(_COPIED_EVENTS)
        )
        for each in (session, previous)
    )
    present = {(event.subscriber_id, event.kind, event.at) for event in session.exec(stored)}
    for event in previous.exec(copied.order_by(col(Event.id))):
        is_undone = event.kind == event_log.ADDRESS_CHANGED and event.subscriber_id in not_moved
        if not is_undone and (event.subscriber_id, event.kind, event.at) not in present:
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
