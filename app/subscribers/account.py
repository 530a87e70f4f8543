"""Changing preferences, following authors, muting words, pausing, and coming back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta, tzinfo

from sqlmodel import Session, col, select

from app.delivery import suppression
from app.errors import Conflict, InvalidPreference
from app.relevance import query_language
from app.storage.models import Subscriber
from app.storage.models import SubscriberState as State
from app.subscribers.preferences import Preferences, check
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
from app.types import Interest

LONGEST_PAUSE = timedelta(days=366)


def change(session: Session, subscriber_id: int, wanted: Preferences, now: datetime) -> Subscriber:
    """Put these preferences in the place of those that were, and the next digest where they say."""
    subscriber = get_for_update(session, subscriber_id)
    require_not_erased(subscriber)
    store_preferences(session, subscriber, check(wanted))
    reschedule(session, subscriber, now)
    record_event(session, "changed", subscriber, now)
    return subscriber


def follow(session: Session, subscriber_id: int, author: str, now: datetime) -> None:
    """Make an author one of the reader's interests. InvalidPreference where there is no room for it.

    A reader of what trends alone goes on to get that, beside what the author writes.
    """
    wanted = preferences_of(session, get_for_update(session, subscriber_id))
    text = query_language.query_for("author", author)
    if _others(wanted, text) != wanted.interests:
        return
    if not wanted.interests:
        wanted = replace(wanted, beyond=wanted.max_papers)
    change(session, subscriber_id, replace(wanted, interests=(*wanted.interests, Interest(text))), now)


def unfollow(session: Session, subscriber_id: int, author: str, now: datetime) -> None:
    """Take that back; InvalidPreference where nothing would be left to send."""
    wanted = preferences_of(session, get_for_update(session, subscriber_id))
    interests = _others(wanted, query_language.query_for("author", author))
    change(session, subscriber_id, replace(wanted, interests=interests), now)


def _others(wanted: Preferences, text: str) -> tuple[Interest, ...]:
    return tuple(wish for wish in wanted.interests if wish.text.casefold() != text.casefold())


def mute(session: Session, subscriber_id: int, texts: Sequence[str], now: datetime) -> None:
    """Keep what says any of these out of the reader's digests. InvalidPreference where it cannot be done."""
    wanted = preferences_of(session, get_for_update(session, subscriber_id))
    known = {text.casefold() for text in wanted.muted}
    fresh = [text for text in map(query_language.normalise, texts) if text.casefold() not in known]
    change(session, subscriber_id, replace(wanted, muted=(*wanted.muted, *fresh)), now)


def unmute(session: Session, subscriber_id: int, texts: Sequence[str], now: datetime) -> None:
    """Take that back."""
    wanted = preferences_of(session, get_for_update(session, subscriber_id))
    heard = {query_language.normalise(text).casefold() for text in texts}
    muted = tuple(text for text in wanted.muted if text.casefold() not in heard)
    change(session, subscriber_id, replace(wanted, muted=muted), now)


def pause(session: Session, subscriber_id: int, until: datetime | None, now: datetime) -> Subscriber:
    """No digest until then; without a date, until the reader comes back."""
    if until is not None:
        _check_end(until, now)
    subscriber = get_for_update(session, subscriber_id)
    if subscriber.state not in (State.ACTIVE, State.PAUSED):
        raise Conflict("There is no digest to pause: this subscription is not active.")
    subscriber.state, subscriber.paused_until = State.PAUSED, until
    reschedule(session, subscriber, now)
    record_event(session, "paused", subscriber, now, f"until {until:%Y-%m-%d}" if until else "")
    session.add(subscriber)
    return subscriber


def pause_date_range(zone: tzinfo | None, now: datetime) -> tuple[date, date]:
    """The first and the last day on which a pause that begins now may end, by the calendar of a zone."""
    tomorrow = now.astimezone(zone).date() + timedelta(days=1)
    return tomorrow, (now + LONGEST_PAUSE).astimezone(zone).date()


def _check_end(until: datetime, now: datetime) -> None:
    first, last = pause_date_range(until.tzinfo, now)
    if until <= now:
        when = "today" if until.date() == first - timedelta(days=1) else "over"
        raise InvalidPreference(f"{_day(until)} is {when}: choose {_day(first)} or a later day.", "until")
    if until > now + LONGEST_PAUSE:
        raise InvalidPreference(
            f"{_day(until)} is more than a year away: choose a day up to {_day(last)}, or none at all.",
            "until",
        )


def _day(day: date) -> str:
    return f"{day.day} {day:%B} {day.year}"


def resume(session: Session, subscriber_id: int, now: datetime) -> Subscriber:
    """End a pause. Whoever is not paused stays as they are."""
    subscriber = get_for_update(session, subscriber_id)
    if subscriber.state is State.PAUSED:
        _wake_one(session, subscriber, now)
    return subscriber


def resubscribe(session: Session, subscriber_id: int, ip: str, now: datetime) -> Subscriber:
    """A reader who left wants their digest again: a new consent, with the preferences they had."""
    subscriber = get_for_update(session, subscriber_id)
    if subscriber.state is not State.UNSUBSCRIBED:
        return resume(session, subscriber_id, now)
    if suppression.is_suppressed(session, subscriber.email):
        raise Conflict("Mail to this address is blocked. Please write to us, and we lift the block.")
    activate(session, subscriber, ip, now)
    record_event(session, "came_back", subscriber, now, ip)
    return subscriber


def trust_again(session: Session, email: str, now: datetime) -> bool:
    """Let an address get mail again; False where it was not suppressed.

    A reader whose mail came back is where they were before that; what came back so far does not count again.
    """
    lifted = suppression.lift(session, email)
    bouncing = select(Subscriber).where(Subscriber.email == email, Subscriber.state == State.BOUNCING)
    found = session.exec(bouncing).one_or_none()
    if lifted and found is not None:
        subscriber = get_for_update(session, found.id or 0)
        subscriber.state, subscriber.ended_at = state_before_bounces(session, subscriber), None
        reschedule(session, subscriber, now)
        record_event(session, "trusted_again", subscriber, now)
        if subscriber.state is State.PAUSED:
            record_event(session, "paused", subscriber, now)
        session.add(subscriber)
    return lifted


def end_expired_pauses(session: Session, now: datetime) -> int:
    """End the pauses that were to last until now; how many."""
    rested = select(Subscriber).where(Subscriber.state == State.PAUSED, col(Subscriber.paused_until) <= now)
    sleepers = session.exec(rested.with_for_update(skip_locked=True)).all()
    for subscriber in sleepers:
        _wake_one(session, subscriber, now)
    return len(sleepers)


def _wake_one(session: Session, subscriber: Subscriber, now: datetime) -> None:
    subscriber.state, subscriber.paused_until = State.ACTIVE, None
    reschedule(session, subscriber, now)
    record_event(session, "resumed", subscriber, now)
    session.add(subscriber)
