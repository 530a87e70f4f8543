"""Change preferences, follow authors, mute words, and resubscribe."""

from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from sqlmodel import Session, select

from app.delivery import suppression
from app.errors import InvalidPreference
from app.relevance import query_language, query_rewriting
from app.storage.models import Subscriber
from app.storage.models import SubscriberState as State
from app.subscribers.event_log import record_event, state_before_bounces
from app.subscribers.pausing import resume
from app.subscribers.preferences import (
    ABSOLUTE_MAX_INTERESTS,
    ADD_INTEREST,
    Preferences,
    check,
    lacks_interests,
)
from app.subscribers.repository import (
    get_for_update,
    preferences_of,
    require_not_erased,
    require_not_suppressed,
    reschedule,
    store_preferences,
)
from app.subscribers.signup import activate
from app.types import Interest


def change(session: Session, subscriber_id: int, preferences: Preferences, now: datetime) -> Subscriber:
    """Replace a subscriber's preferences and reschedule the next digest.

    If the time zone changes, a pause ends at the same local time as before, in the new zone.
    If anything changed, record an event with the names of the changed preferences, without their values.
    Raise InvalidPreference, which names the first field with an invalid value, or Conflict if the subscriber
    was erased.
    """
    subscriber = get_for_update(session, subscriber_id)
    require_not_erased(subscriber)
    before = preferences_of(session, subscriber)
    checked = check(preferences, before=before)
    if preferences.zone == before.zone:
        checked = replace(checked, zone=before.zone)  # it may be a former name
    if subscriber.paused_until and checked.zone != before.zone:
        local_end = subscriber.paused_until.astimezone(ZoneInfo(before.zone))
        subscriber.paused_until = local_end.replace(tzinfo=ZoneInfo(checked.zone)).astimezone(UTC)
    store_preferences(session, subscriber, checked)
    reschedule(session, subscriber, now)
    if names := changed_fields(before, checked):
        record_event(session, "changed", subscriber, now, ", ".join(names))
    return subscriber


def changed_fields(before: Preferences, after: Preferences) -> list[str]:
    return [each.name for each in fields(after) if getattr(after, each.name) != getattr(before, each.name)]


def follow(
    session: Session,
    subscriber_id: int,
    author: str,
    now: datetime,
    max_interests: int = ABSOLUTE_MAX_INTERESTS,
) -> None:
    """Add an author to a subscriber's interests.

    A subscriber without interests still gets trending papers alongside the author's papers. Raise
    InvalidPreference if there would be more than `max_interests`, or if the name cannot be searched for.
    """
    preferences = preferences_of(session, get_for_update(session, subscriber_id))
    text = query_rewriting.query_for("author", author)
    if _other_interests(preferences, text) != preferences.interests:
        return
    if not preferences.interests:
        preferences = replace(preferences, max_trending=preferences.max_papers)
    extended = replace(preferences, interests=(*preferences.interests, Interest(text)))
    change(session, subscriber_id, check(extended, max_interests, preferences), now)


def unfollow(session: Session, subscriber_id: int, author: str, now: datetime) -> None:
    """Stop following an author. Raise InvalidPreference if nothing would be left to send."""
    preferences = preferences_of(session, get_for_update(session, subscriber_id))
    interests = _other_interests(preferences, query_rewriting.query_for("author", author))
    change(session, subscriber_id, replace(preferences, interests=interests), now)


def _other_interests(preferences: Preferences, text: str) -> tuple[Interest, ...]:
    return tuple(item for item in preferences.interests if item.text.casefold() != text.casefold())


def mute(session: Session, subscriber_id: int, texts: Sequence[str], now: datetime) -> None:
    """Keep papers that match these texts out of the subscriber's digests.

    Raise InvalidPreference if a text cannot be muted, or if there would be too many muted texts.
    """
    preferences = preferences_of(session, get_for_update(session, subscriber_id))
    already_muted = {*map(query_language.comparison_key, preferences.muted)}
    new = [
        query_language.normalize(text)
        for text in texts
        if query_language.comparison_key(text) not in already_muted
    ]
    change(session, subscriber_id, replace(preferences, muted=(*preferences.muted, *new)), now)


def unmute(session: Session, subscriber_id: int, texts: Sequence[str], now: datetime) -> None:
    """Stop muting these texts, or texts that differ from them only in letter case and notation.

    If "CLIP" and "clip" are both muted, only the one that is given is unmuted.
    """
    preferences = preferences_of(session, get_for_update(session, subscriber_id))
    already_muted = {*map(query_language.comparison_key, preferences.muted)}
    unmuted = {*map(query_language.comparison_key, texts)}
    in_other_case = {text for text, _ in unmuted - already_muted}
    muted = tuple(
        text
        for text in preferences.muted
        if query_language.comparison_key(text) not in unmuted and text.casefold() not in in_other_case
    )
    change(session, subscriber_id, replace(preferences, muted=muted), now)


def resubscribe(session: Session, subscriber_id: int, ip: str, now: datetime) -> Subscriber:
    """Reactivate a subscriber who unsubscribed, with their former preferences, and record their new consent.

    Resume a subscriber who is paused, and do nothing if they are active. If they unsubscribed, raise
    AddressSuppressed if their address is suppressed, and InvalidPreference if their interests were deleted.
    Raise Conflict in any other state.
    """
    subscriber = get_for_update(session, subscriber_id)
    if subscriber.state is not State.UNSUBSCRIBED:
        return resume(session, subscriber_id, now)
    require_not_suppressed(session, subscriber)
    if lacks_interests(preferences_of(session, subscriber)):
        raise InvalidPreference(ADD_INTEREST, "interests")
    activate(session, subscriber, ip, now)
    record_event(session, "came_back", subscriber, now, ip)
    return subscriber


def lift_suppression(session: Session, email: str, now: datetime) -> bool:
    """Lift the suppression of an address. Return False if it was not suppressed.

    A subscriber whose email bounced returns to the state before the bounces, which no longer count.
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
