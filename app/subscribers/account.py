"""Change preferences, follow authors, mute words, pause, resume and resubscribe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta, tzinfo

from sqlmodel import Session, col, or_, select

from app.delivery import ledger, suppression
from app.errors import Conflict, InvalidPreference
from app.relevance import query_language
from app.storage.models import Delivery, Subscriber
from app.storage.models import SubscriberState as State
from app.subscribers import schedule
from app.subscribers.preferences import MAX_INTERESTS, Preferences, check
from app.subscribers.repository import (
    get_for_update,
    preferences_of,
    record_event,
    require_not_erased,
    reschedule,
    state_before_bounces,
    store_preferences,
)
from app.subscribers.signup import activate
from app.types import Interest, MailKind

LONGEST_PAUSE = timedelta(days=366)


def change(session: Session, subscriber_id: int, preferences: Preferences, now: datetime) -> Subscriber:
    """Replace a subscriber's preferences and reschedule the next digest.

    Raise InvalidPreference, which names the first field with an invalid value.
    """
    subscriber = get_for_update(session, subscriber_id)
    require_not_erased(subscriber)
    store_preferences(session, subscriber, check(preferences))
    reschedule(session, subscriber, now)
    record_event(session, "changed", subscriber, now)
    return subscriber


def follow(
    session: Session, subscriber_id: int, author: str, now: datetime, max_interests: int = MAX_INTERESTS
) -> None:
    """Add an author to a subscriber's interests. Raise InvalidPreference if there would be too many.

    A subscriber without interests still gets trending papers alongside the author's.
    """
    preferences = preferences_of(session, get_for_update(session, subscriber_id))
    text = query_language.query_for("author", author)
    if _other_interests(preferences, text) != preferences.interests:
        return
    if not preferences.interests:
        preferences = replace(preferences, max_trending=preferences.max_papers)
    preferences = replace(preferences, interests=(*preferences.interests, Interest(text)))
    change(session, subscriber_id, check(preferences, max_interests), now)


def unfollow(session: Session, subscriber_id: int, author: str, now: datetime) -> None:
    """Stop following an author. Raise InvalidPreference if nothing would be left to send."""
    preferences = preferences_of(session, get_for_update(session, subscriber_id))
    interests = _other_interests(preferences, query_language.query_for("author", author))
    change(session, subscriber_id, replace(preferences, interests=interests), now)


def _other_interests(preferences: Preferences, text: str) -> tuple[Interest, ...]:
    return tuple(item for item in preferences.interests if item.text.casefold() != text.casefold())


def mute(session: Session, subscriber_id: int, texts: Sequence[str], now: datetime) -> None:
    """Keep papers that match these texts out of the subscriber's digests.

    Raise InvalidPreference if a text cannot be muted, or there would be too many.
    """
    preferences = preferences_of(session, get_for_update(session, subscriber_id))
    already_muted = {text.casefold() for text in preferences.muted}
    new = [text for text in map(query_language.normalise, texts) if text.casefold() not in already_muted]
    change(session, subscriber_id, replace(preferences, muted=(*preferences.muted, *new)), now)


def unmute(session: Session, subscriber_id: int, texts: Sequence[str], now: datetime) -> None:
    """Stop muting these texts, however they are spelled."""
    preferences = preferences_of(session, get_for_update(session, subscriber_id))
    unmuted = {query_language.normalise(text).casefold() for text in texts}
    muted = tuple(text for text in preferences.muted if text.casefold() not in unmuted)
    change(session, subscriber_id, replace(preferences, muted=muted), now)


def request_first_digest(session: Session, subscriber_id: int, now: datetime) -> bool:
    """Make the first digest due now. Return False, and change nothing, if `first_digest` returns one.

    Its edition is today's, so the digest of the schedule is not sent on the same day. Raise Conflict if the
    subscription is not active.
    """
    subscriber = get_for_update(session, subscriber_id)
    if subscriber.state is State.PAUSED:
        raise Conflict("Digests are paused. Resume them first.")
    if subscriber.state is not State.ACTIVE:
        raise Conflict("There is no digest to send: this subscription is not active.")
    if first_digest(session, subscriber, now):
        return False
    subscriber.next_due_at = now
    # The schedule applies from the day after this digest, which is sent whether or not one was due today.
    subscriber.due_since = schedule.next_edition_due(
        subscriber.cadence, subscriber.weekday, subscriber.hour, subscriber.zone, now
    )
    record_event(session, "first_asked", subscriber, now)
    session.add(subscriber)
    return True


def first_digest(session: Session, subscriber: Subscriber, now: datetime) -> Delivery | None:
    """Return the latest digest that was sent or is scheduled, or was for today in any state."""
    digests = select(Delivery).where(
        Delivery.subscriber_id == subscriber.id,
        Delivery.kind == MailKind.DIGEST,
        or_(
            col(Delivery.state).not_in(ledger.UNDELIVERED),
            Delivery.edition == schedule.edition(subscriber.zone, now),
        ),
    )
    return session.exec(digests.order_by(col(Delivery.due_at).desc())).first()


def pause(session: Session, subscriber_id: int, until: datetime | None, now: datetime) -> Subscriber:
    """Pause digests until a date; without a date, until the subscriber resumes.

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
        raise Conflict("There is no digest to pause: this subscription is not active.")
    subscriber.state, subscriber.paused_until = State.PAUSED, until
    reschedule(session, subscriber, now)
    record_event(session, "paused", subscriber, now, f"until {until:%Y-%m-%d}" if until else "")
    session.add(subscriber)
    return subscriber


def pause_date_range(zone: tzinfo | None, now: datetime) -> tuple[date, date]:
    """Return the first and last day, in time zone `zone`, on which a pause that begins now may end."""
    tomorrow = now.astimezone(zone).date() + timedelta(days=1)
    return tomorrow, (now + LONGEST_PAUSE).astimezone(zone).date()


def _day(day: date) -> str:
    return f"{day.day} {day:%B} {day.year}"


def resume(session: Session, subscriber_id: int, now: datetime) -> Subscriber:
    """End a pause. Do nothing if the subscriber is not paused."""
    subscriber = get_for_update(session, subscriber_id)
    if subscriber.state is State.PAUSED:
        _end_pause(session, subscriber, now)
    return subscriber


def resubscribe(session: Session, subscriber_id: int, ip: str, now: datetime) -> Subscriber:
    """Reactivate a subscriber who unsubscribed, with their former preferences, and record their new consent.

    Resume a subscriber who is paused. Raise Conflict if they unsubscribed and their address is suppressed.
    """
    subscriber = get_for_update(session, subscriber_id)
    if subscriber.state is not State.UNSUBSCRIBED:
        return resume(session, subscriber_id, now)
    if suppression.is_suppressed(session, subscriber.email):
        raise Conflict("Mail to this address is blocked. Please contact us, and we’ll lift the block.")
    activate(session, subscriber, ip, now)
    record_event(session, "came_back", subscriber, now, ip)
    return subscriber


def lift_suppression(session: Session, email: str, now: datetime) -> bool:
    """Lift the suppression of an address. Return False if it was not suppressed.

    A subscriber whose mail bounced returns to the state before the bounces, which no longer count.
    """
    lifted = suppression.lift(session, email)
    bouncing = select(Subscriber).where(Subscriber.email == email, Subscriber.state == State.BOUNCING)
    bouncing_subscriber = session.exec(bouncing).one_or_none()
    if lifted and bouncing_subscriber is not None:
        subscriber = get_for_update(session, bouncing_subscriber.id or 0)
        subscriber.state, subscriber.ended_at = state_before_bounces(session, subscriber), None
        reschedule(session, subscriber, now)
        record_event(session, "trusted_again", subscriber, now)
        if subscriber.state is State.PAUSED:
            record_event(session, "paused", subscriber, now)
        session.add(subscriber)
    return lifted


def end_expired_pauses(session: Session, now: datetime) -> int:
    """End the pauses whose end date has been reached, and return their number."""
    expired = select(Subscriber).where(Subscriber.state == State.PAUSED, col(Subscriber.paused_until) <= now)
    subscribers = session.exec(expired.with_for_update(skip_locked=True)).all()
    for subscriber in subscribers:
        _end_pause(session, subscriber, now)
    return len(subscribers)


def _end_pause(session: Session, subscriber: Subscriber, now: datetime) -> None:
    subscriber.state, subscriber.paused_until = State.ACTIVE, None
    reschedule(session, subscriber, now)
    record_event(session, "resumed", subscriber, now)
    session.add(subscriber)
