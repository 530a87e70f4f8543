"""Pause digests until a day or until the subscriber resumes them."""

from datetime import date, datetime, timedelta, tzinfo

from sqlmodel import Session, col, select

from app.errors import Conflict, InvalidPreference
from app.storage.models import Subscriber
from app.storage.models import SubscriberState as State
from app.subscribers.event_log import record_event
from app.subscribers.repository import get_for_update, reschedule

LONGEST_PAUSE = timedelta(days=366)
BATCH_SIZE = 100  # pauses that one transaction ends
_NOT_RESUMABLE = {  # shown to subscribers
    State.UNSUBSCRIBED: "This subscription has ended. To get digests again, subscribe again.",
    State.BOUNCING: "We stopped sending because emails to your address bounced. Please contact us.",
}


def pause(session: Session, subscriber_id: int, until: datetime | None, now: datetime) -> Subscriber:
    """Pause digests until a date or, without a date, until the subscriber resumes them.

    Raise InvalidPreference if the date is in the past or more than a year away, and Conflict if the
    subscription is neither active nor paused.
    """
    if until is not None:
        first, last = pause_date_range(until.tzinfo, now)
        if until <= now:
            when = "today" if until.date() == first - timedelta(days=1) else "in the past"
            raise InvalidPreference(f"{_day(until)} is {when}: choose {_day(first)} or a later day.", "until")
        if until > now + LONGEST_PAUSE:
            problem = f"{_day(until)} is more than a year away: choose a day up to {_day(last)},"
            raise InvalidPreference(f"{problem} or leave the date empty.", "until")
    subscriber = get_for_update(session, subscriber_id)
    if subscriber.state not in (State.ACTIVE, State.PAUSED):
        raise Conflict("Only an active subscription can be paused.")
    subscriber.state, subscriber.paused_until = State.PAUSED, until
    reschedule(session, subscriber, now)
    record_event(session, "paused", subscriber, now, event_detail(until))
    session.add(subscriber)
    return subscriber


def event_detail(until: datetime | None) -> str:
    """Return the detail of the event "paused": the day on which the pause ends, if any."""
    return f"until {until:%Y-%m-%d}" if until else ""


def pause_date_range(zone: tzinfo | None, now: datetime) -> tuple[date, date]:
    """Return the first and last day, in time zone `zone`, on which a pause that begins now may end."""
    tomorrow = now.astimezone(zone).date() + timedelta(days=1)
    return tomorrow, (now + LONGEST_PAUSE).astimezone(zone).date()


def _day(day: date) -> str:
    return f"{day.day} {day:%B} {day.year}"


def resume(session: Session, subscriber_id: int, now: datetime) -> Subscriber:
    """End a pause. Do nothing if the subscriber is active. Raise Conflict if they are neither."""
    subscriber = get_for_update(session, subscriber_id)
    if subscriber.state not in (State.ACTIVE, State.PAUSED):
        raise Conflict(_NOT_RESUMABLE.get(subscriber.state, "Only a paused subscription can be resumed."))
    if subscriber.state is State.PAUSED:
        _end_pause(session, subscriber, now)
    return subscriber


def end_expired_pauses(session: Session, now: datetime) -> int:
    """End a batch of the pauses whose end date has been reached.

    Skip rows that another transaction has locked. Return the number of ended pauses; call this again until it
    is 0.
    """
    expired = select(Subscriber).where(Subscriber.state == State.PAUSED, col(Subscriber.paused_until) <= now)
    subscribers = session.exec(expired.limit(BATCH_SIZE).with_for_update(skip_locked=True)).all()
    for subscriber in subscribers:
        _end_pause(session, subscriber, now)
    return len(subscribers)


def _end_pause(session: Session, subscriber: Subscriber, now: datetime) -> None:
    # A digest due from the end date on is still due if the pause ends later, for example after an outage.
    end = subscriber.paused_until - timedelta.resolution if subscriber.paused_until else now
    subscriber.state, subscriber.paused_until = State.ACTIVE, None
    reschedule(session, subscriber, min(end, now))
    record_event(session, "resumed", subscriber, now)
    session.add(subscriber)
