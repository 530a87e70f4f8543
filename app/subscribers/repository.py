"""Find, list and lock subscriber rows, set the next due date, and enqueue service emails."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from datetime import date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from sqlmodel import Session, case, col, func, or_, select
from sqlmodel.sql.expression import SelectOfScalar

from app import clock
from app.delivery import ledger, suppression
from app.errors import AddressSuppressed, Conflict, NotFound
from app.storage.database import contains, in_array, utc_day
from app.storage.models import Delivery, DeliveryState, Event, Subscriber, SubscriberState
from app.subscribers import mailbox_limits, schedule
from app.subscribers.address import ascii_domain, normalize_address
from app.subscribers.event_log import record_event
from app.subscribers.preferences import Preferences
from app.subscribers.stored_interests import interests_of, store
from app.types import MailKind

# Only digests due since this time before the next one can fall on its local day, even in another time zone.
LOOK_BACK = timedelta(days=3)
# No digest is due later than this: a week after one that is due a day ahead, plus two days for changes of
# time zone.
MAX_DUE_AHEAD = timedelta(days=10)
BATCH_SIZE = 100  # subscribers that one transaction reschedules
# Sign-ups that ended before they were confirmed are not listed or counted. Their rows are kept for the emails
# that were sent to them, so that the links in these emails never open the pages of another subscriber.
_IS_LISTED = or_(col(Subscriber.state) != SubscriberState.ERASED, col(Subscriber.confirmed_at).is_not(None))


def get(session: Session, subscriber_id: int) -> Subscriber:
    """Return a subscriber without locking the row. Raise NotFound if there is none."""
    subscriber = session.get(Subscriber, subscriber_id)
    if subscriber is None:
        raise NotFound("There is no such subscriber.")
    return subscriber


def find(session: Session, name: str) -> Subscriber:
    """Return the subscriber with this address or id.

    Raise NotFound if there is no such subscriber, InvalidAddress if `name` is neither an address nor an id.
    """
    if name.isascii() and name.isdigit() and len(name) < 10:
        return get(session, int(name))
    if row := _with_address(session, name.strip().lower()):
        return row  # even an erased subscriber, whose placeholder address is not valid
    email = normalize_address(name)
    if row := _with_address(session, email):
        return row
    raise NotFound(f"There is no subscriber with the address {email}.")


def _with_address(session: Session, email: str) -> Subscriber | None:
    return session.exec(select(Subscriber).where(Subscriber.email == email)).one_or_none()


def get_for_update(session: Session, subscriber_id: int) -> Subscriber:
    """Return a subscriber and lock the row until the transaction ends. Raise NotFound if there is none."""
    row = select(Subscriber).where(col(Subscriber.id) == subscriber_id).with_for_update()
    locked = session.exec(row.execution_options(populate_existing=True)).one_or_none()
    return locked or get(session, subscriber_id)


def require_not_erased(subscriber: Subscriber) -> None:
    """Raise Conflict if the subscriber was erased."""
    if subscriber.state is SubscriberState.ERASED:
        raise Conflict("This subscriber has been erased.")


def require_not_suppressed(session: Session, subscriber: Subscriber) -> None:
    """Raise AddressSuppressed if the subscriber's address is suppressed."""
    if suppression.is_suppressed(session, subscriber.email):
        raise AddressSuppressed


def preferences_of(session: Session, subscriber: Subscriber) -> Preferences:
    values = {name: getattr(subscriber, name) for name in _COLUMNS}
    interests = interests_of(session, [subscriber.id or 0]).get(subscriber.id or 0, ())
    return Preferences(**values, muted=tuple(subscriber.muted), interests=interests)


def store_preferences(session: Session, subscriber: Subscriber, preferences: Preferences) -> None:
    """Store a subscriber's preferences, which must have passed `check`."""
    for name, value in preference_columns(preferences).items():
        setattr(subscriber, name, value)
    session.add(subscriber)
    session.flush()
    store(session, subscriber.id or 0, preferences.interests)


def preference_columns(preferences: Preferences) -> dict[str, Any]:
    """Return the columns of `Subscriber` that store preferences."""
    values = {name: getattr(preferences, name) for name in _COLUMNS}
    return {**values, "muted": list(preferences.muted)}


_COLUMNS = tuple(field.name for field in fields(Preferences) if field.name not in ("interests", "muted"))


def reschedule(session: Session, subscriber: Subscriber, now: datetime) -> None:
    """Set the time at which the next digest is due, or None if the subscriber is not active.

    A digest that is due but not planned yet stays due, because planning uses the current preferences anyway.
    A digest composed ahead of its due time is withdrawn and will be composed again when it is next planned.
    An earlier digest that has not been sent yet is given up when the next one is composed.
    """
    for edition in ledger.withdraw(session, subscriber.id or 0, now):
        record_event(session, "digest_withdrawn", subscriber, now, edition)
    subscriber.plan_after = None  # the preferences may have been why planning failed
    if subscriber.state is not SubscriberState.ACTIVE:
        subscriber.next_due_at, subscriber.due_since = None, now
        return
    cadence = (subscriber.cadence, subscriber.weekday, subscriber.hour, subscriber.zone)
    due = subscriber.next_due_at
    if due is None or due > now:
        due = schedule.next_due(*cadence, after=now)
    digests = select(Delivery).where(
        Delivery.subscriber_id == subscriber.id,
        Delivery.kind == MailKind.DIGEST,
        or_(col(Delivery.due_at) > due - LOOK_BACK, col(Delivery.give_up_at) > now),
    )
    recent = session.exec(digests).all()
    dated_right = [row for row in recent if row.due_at <= now + clock.MAX_AHEAD]
    while _has_digest_on_day(subscriber, dated_right, due):
        due = schedule.next_due(*cadence, after=due)
    subscriber.next_due_at = due
    # A digest that stays due may be due at an hour or on a day to which the cadence no longer applies.
    subscriber.due_since = schedule.next_due(*cadence, after=due - timedelta.resolution)
    unsent = (row for row in recent if row.state not in (DeliveryState.SENT, *ledger.UNDELIVERED))
    for row in unsent:
        if row.give_up_at and row.give_up_at > now:
            row.give_up_at = due


def is_anyone_due_far_ahead(session: Session, now: datetime) -> bool:
    """Return whether a subscriber's digest is due later than any schedule allows.

    Either the clock was ahead when it was scheduled, or the clock is behind now.
    """
    return session.exec(_due_far_ahead(now).limit(1)).first() is not None


def reschedule_far_ahead(session: Session, now: datetime) -> int:
    """Reschedule the digests of a batch of subscribers that are due later than any schedule allows.

    Call this only after `check_clock`, because by a clock that is behind, all digests are due far ahead. Skip
    rows that another transaction has locked. Return the number of subscribers; call this again until it is 0.
    """
    far_ahead = _due_far_ahead(now).limit(BATCH_SIZE).with_for_update(skip_locked=True)
    subscribers = session.exec(far_ahead).all()
    for subscriber in subscribers:
        reschedule(session, subscriber, now)
        session.add(subscriber)
    return len(subscribers)


def _due_far_ahead(now: datetime) -> SelectOfScalar[Subscriber]:
    return select(Subscriber).where(
        Subscriber.state == SubscriberState.ACTIVE, col(Subscriber.next_due_at) > now + MAX_DUE_AHEAD
    )


def _has_digest_on_day(subscriber: Subscriber, recent: Sequence[Delivery], due: datetime) -> bool:
    """Return whether a digest was due on the local day of `due` or later, in the current time zone.

    The ledger rejects a second row for an edition, but after a change of time zone, digests for two editions
    may be due on one local day.
    """
    zone = ZoneInfo(subscriber.zone)
    edition = schedule.edition(subscriber.zone, due)
    day = due.astimezone(zone).date()
    return any(row.edition == edition or row.due_at.astimezone(zone).date() >= day for row in recent)


def enqueue_requested_mail(
    session: Session,
    subscriber: Subscriber,
    kind: MailKind,
    now: datetime,
    *,
    lifetime: timedelta = timedelta(days=1),
) -> int | None:
    """Enqueue a requested email, which is given up after `lifetime`, and return its id.

    Return None if an email of this kind was enqueued less than an hour ago or waits in a pause.
    """
    if mailbox_limits.was_mailed_recently(session, subscriber, kind, now):
        return None
    # The suffix distinguishes this email from one enqueued in the same second whose links have been replaced.
    return enqueue_mail(session, subscriber, kind, now, lifetime, f"-{subscriber.link_epoch}")


def enqueue_mail(
    session: Session,
    subscriber: Subscriber,
    kind: MailKind,
    now: datetime,
    lifetime: timedelta,
    suffix: str = "",
) -> int | None:
    """Enqueue an email in the ledger and return its id, or None if the ledger already has it.

    The email is given up after `lifetime`. `suffix` distinguishes emails enqueued in the same second.
    """
    return ledger.enqueue(
        session,
        subscriber_id=subscriber.id or 0,
        kind=kind,
        edition=f"{kind}-{now:%Y%m%dT%H%M%SZ}{suffix}",
        due_at=now,
        now=now,
        give_up_at=now + lifetime,
    )


def count_by_state(session: Session) -> dict[SubscriberState, int]:
    """Return the number of subscribers in each state. Leave out erased sign-ups that were not confirmed."""
    state = col(Subscriber.state)
    counted = session.exec(select(state, func.count()).where(_IS_LISTED).group_by(state))
    return dict.fromkeys(SubscriberState, 0) | {SubscriberState(value): number for value, number in counted}


def query_by_address(part: str = "") -> SelectOfScalar[Subscriber]:
    """Return a query for the subscribers whose address contains `part`, ignoring case.

    Domains may be in Unicode. Leave out erased sign-ups that were not confirmed.
    """
    statement, part = select(Subscriber).where(_IS_LISTED), part.strip()
    if part:
        spellings = {part, ascii_domain(part)}  # a word may also come before the @
        email = col(Subscriber.email)
        statement = statement.where(or_(*(contains(email, each) for each in spellings)))
    return statement


def addresses_of(session: Session, subscriber_ids: Collection[int]) -> dict[int, str]:
    """Return the addresses of these subscribers, keyed by id. Leave out erased subscribers."""
    named = select(Subscriber.id, Subscriber.email).where(
        in_array(session, col(Subscriber.id), subscriber_ids), Subscriber.state != SubscriberState.ERASED
    )
    return {number: email for number, email in session.exec(named) if number}


def count_by_day(
    session: Session, groups: Mapping[str, Collection[str]], since: datetime
) -> dict[date, dict[str, int]]:
    """Return the number of subscribers with an event in each group, for each UTC day with any such event.

    `groups` maps a name to kinds of events. A subscriber counts once per day and group.
    """
    at = col(Event.at)
    day = utc_day(session, at)
    group = case(*((col(Event.kind).in_(kinds), name) for name, kinds in groups.items()))
    kinds = [kind for kinds in groups.values() for kind in kinds]
    events = select(day, group, func.count(func.distinct(Event.subscriber_id)))
    events = events.where(col(Event.kind).in_(kinds), at >= since).group_by(day, group)
    by_day = defaultdict[date, dict[str, int]](lambda: dict.fromkeys(groups, 0))
    for name, in_group, number in session.exec(events):
        by_day[date.fromisoformat(str(name))][in_group] = number
    return by_day


def mails(session: Session, subscriber_id: int, limit: int) -> Sequence[Delivery]:
    """Return a subscriber's latest emails and skipped digests, newest first."""
    own = select(Delivery).where(Delivery.subscriber_id == subscriber_id)
    return session.exec(own.order_by(col(Delivery.id).desc()).limit(limit)).all()


def history(session: Session, subscriber_id: int, limit: int) -> list[Delivery]:
    """Return a subscriber's latest digests, including skipped ones, newest first."""
    digests = select(Delivery).where(
        Delivery.subscriber_id == subscriber_id, Delivery.kind == MailKind.DIGEST
    )
    return list(session.exec(digests.order_by(col(Delivery.due_at).desc()).limit(limit)))
