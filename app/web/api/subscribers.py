"""Subscribers: find, add, change, pause, resume, unsubscribe, export and erase."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query
from pydantic import BaseModel, ConfigDict, Field
from sqlmodel import Session, col, select

from app import subscribers
from app.doctor import relay
from app.links import Purpose
from app.relevance.query_language import FILTER_EXAMPLES, filter_names
from app.storage import hit_counters
from app.storage.api_keys import Scope
from app.storage.models import Event, Subscriber, SubscriberState
from app.subscribers import Preferences
from app.types import Cadence, EmptyDigestPolicy, Interest
from app.web.api import problems
from app.web.api.auth import Analysis, Caller, CanRead, CanSend, CanWrite, Id
from app.web.api.etags import IfMatch, Versioned, require_match
from app.web.api.pagination import Page, Paging, newest_first
from app.web.api.values import Integer, Moment, Number, Representation, RequestBody

router = APIRouter(prefix="/subscribers", tags=["subscribers"])

HOUR = timedelta(hours=1)
MUTED = f"Words, {filter_names('or')} that exclude a paper."

Text = Annotated[
    str,
    Field(
        max_length=1000,
        examples=['"language agents" -game'],
        description="Words, “phrases” in quotation marks, -exclusions, "
        f"{', '.join(FILTER_EXAMPLES.values())}. The words of a phrase must occur together and in this "
        "order; plurals and other forms of them count.",
    ),
]


class InterestIn(RequestBody):
    """An interest, with its weight and quota."""

    model_config = ConfigDict(from_attributes=True)
    text: Text
    weight: Number = Field(default=1.0, description="Weight relative to the other interests, up to 3.")
    quota: Integer | None = Field(default=None, description="Maximum number of its papers in a digest.")

    def to_interest(self) -> Interest:
        return Interest(self.text, self.weight, self.quota)


class PreferencesPatch(RequestBody):
    """Preferences to change. Omitted fields stay unchanged."""

    cadence: Cadence | None = None
    weekday: Integer | None = Field(
        default=None, examples=[0], description="Day of a weekly digest. Monday is 0."
    )
    hour: Integer | None = Field(
        default=None, examples=[8], description="Hour of the subscriber's local day."
    )
    zone: str | None = Field(default=None, max_length=64, examples=["Europe/Berlin"])
    min_papers: Integer | None = Field(
        default=None,
        examples=[1],
        description="With fewer papers, the digest is skipped, and the papers are kept for the next one.",
    )
    max_papers: Integer | None = Field(default=None, examples=[10])
    when_empty: EmptyDigestPolicy | None = None
    max_trending: Integer | None = Field(
        default=None, examples=[3], description="Maximum number of trending papers beyond the interests."
    )
    paper_updates: bool | None = Field(
        default=None, description="Whether digests say that earlier papers were withdrawn or have code now."
    )
    muted: list[Text] | None = Field(
        default=None, max_length=subscribers.MAX_MUTED, examples=[["blockchain"]], description=MUTED
    )
    interests: list[InterestIn] | None = Field(default=None, max_length=subscribers.ABSOLUTE_MAX_INTERESTS)

    def applied_to(self, before: Preferences) -> Preferences:
        lists = {"interests", "muted"}
        chosen = self.model_dump(exclude_none=True, include=set(PreferencesPatch.model_fields) - lists)
        if self.muted is not None:
            chosen["muted"] = tuple(self.muted)
        if self.interests is not None:
            chosen["interests"] = tuple(item.to_interest() for item in self.interests)
        return replace(before, **chosen)


class SubscriberPatch(PreferencesPatch):
    """Changes to a subscriber: preferences, and the address."""

    email: str | None = Field(
        default=None,
        max_length=320,
        examples=["alice@new.example.org"],
        description="The new address. It takes effect when the owners of the old and the new address have "
        "confirmed it with links that are sent to them.",
    )
    email_confirmed: bool = Field(
        default=False,
        description="The owner has confirmed the new address elsewhere: change it at once. This also needs "
        "the `send` scope.",
    )


class NewSubscriber(PreferencesPatch):
    """A subscriber to add, with a record of their consent."""

    email: str = Field(max_length=320, examples=["alice@example.org"])
    consent: str = Field(
        min_length=3,
        max_length=500,
        examples=["signed the list at the workshop on 20 November 2026"],
        description="How and when they gave consent. Stored in the audit log.",
    )


class SubscriberOut(BaseModel):
    """A subscriber."""

    id: int
    email: str = Field(examples=["alice@example.org"])
    state: SubscriberState
    cadence: Cadence
    weekday: int
    hour: int
    zone: str
    min_papers: int
    max_papers: int
    when_empty: EmptyDigestPolicy
    max_trending: int
    paper_updates: bool
    muted: list[str]
    interests: list[InterestIn]
    next_due_at: datetime | None
    paused_until: datetime | None
    consent_at: datetime | None
    consent_version: str = Field(description="The version of the consent text.")
    created_at: datetime
    confirmed_at: datetime | None
    ended_at: datetime | None


class FeedbackOut(Representation):
    """A subscriber's feedback on a paper."""

    title: str
    liked: bool
    at: datetime
    paper_id: int | None = Field(description="Null if the paper was pasted and is not in the archive.")


class SubscriberDetail(SubscriberOut, Versioned):
    """A subscriber with their feedback on papers, newest feedback first."""

    new_address: str | None = Field(description="An address that replaces the current one once confirmed.")
    ignored_authors: list[str] = Field(description="Authors of liked papers who are not treated as liked.")
    feedback: list[FeedbackOut]


class EventOut(Representation):
    """An event in the history of a subscriber."""

    id: int
    at: datetime
    kind: str = Field(examples=["confirmed"])
    delivery_id: int | None = Field(description="The email that a bounce or complaint is about.")
    detail: str = Field(
        examples=["interests, max_papers"],
        description="Depends on `kind`: the changed preferences, a relay's reply or an IP address.",
    )


class Pausing(RequestBody):
    """The end of a pause. If none is given, the pause lasts until the subscriber resumes."""

    until: Moment | None = Field(default=None, examples=["2026-12-24T00:00:00Z"])


class NewLinks(BaseModel):
    """The email with a subscriber's new links. It is sent within a minute."""

    delivery_id: int = Field(description="The ID of the email in the ledger: see /deliveries.")


@router.get("")
def list_subscribers(
    caller: CanRead,
    window: Paging,
    state: SubscriberState | None = None,
    email: Annotated[str | None, Query(max_length=320, description="Only this address.")] = None,
    search: Annotated[str | None, Query(max_length=320, description="Part of the address.")] = None,
) -> Page[SubscriberOut]:
    """List the subscribers, newest first. Erased sign-ups that were not confirmed are left out."""
    address = None if email is None else subscribers.normalize_address(email)
    with caller.db.read() as session:
        listed = subscribers.query_by_address(search or "")
        rows, cursor = newest_first(session, listed, col(Subscriber.id), window, state=state, email=address)
        return Page(items=_to_out(session, rows), next_cursor=cursor)


@router.post("", status_code=201, responses=problems.responses(409))
def add_subscriber(caller: CanWrite, body: NewSubscriber) -> SubscriberOut:
    """Add a subscriber who gave consent elsewhere. The address must be new and not suppressed.

    If the key also has the `send` scope, the subscriber is active at once. Otherwise they are pending: they
    get a confirmation email, and no digests until they confirm.
    """
    is_trusted = Scope.SEND in caller.key.scopes
    with caller.db.write() as session:
        _limit_invitations(caller, session)
        chosen = body.applied_to(subscribers.default_preferences(caller.settings))
        preferences = subscribers.check(chosen, caller.settings.max_interests)
        if is_trusted:
            number = subscribers.add(session, body.email, preferences, caller.now)
        else:
            confirmable = caller.app.signer.lifetimes[Purpose.CONFIRM]
            number = subscribers.invite(session, body.email, preferences, caller.now, confirmable)
        caller.record(session, "subscriber.add", number, consent=body.consent)
        return _to_out(session, [subscribers.get(session, number)])[0]


def _limit_invitations(caller: Caller, session: Session) -> None:
    """Count an email that asks for a confirmation, unless the key has the `send` scope.

    Raise TooManyRequests if the key has caused too many of them in an hour.
    """
    if Scope.SEND not in caller.key.scopes:
        most = caller.settings.invitations_per_hour
        hit_counters.limit(session, f"invitations of key {caller.key.id}", most, caller.now, HOUR)


@router.get("/{subscriber_id:int}", responses=problems.responses(404))
def get_subscriber(caller: CanRead, subscriber_id: Id) -> SubscriberDetail:
    """Return a subscriber with their feedback on papers."""
    with caller.db.read() as session:
        return _to_detail(session, subscriber_id, caller.now)


@router.patch("/{subscriber_id:int}", responses=problems.responses(404, 409, 412))
def change_subscriber(
    caller: CanWrite, subscriber_id: Id, body: SubscriberPatch, if_match: IfMatch = None
) -> SubscriberDetail:
    """Change a subscriber's preferences or address. `interests` and `muted` replace the whole lists.

    A new address takes effect when it is confirmed. Until then, it is in `new_address`. If the key lacks the
    `send` scope, such changes of address count as invitations, whose number per hour is limited.
    """
    with caller.db.write() as session:
        subscriber = subscribers.get_for_update(session, subscriber_id)
        require_match(if_match, _to_detail(session, subscriber_id, caller.now))
        before = subscribers.preferences_of(session, subscriber)
        after = body.applied_to(before)
        if body.email is None or after != before:
            most = max(caller.settings.max_interests, len(before.interests))
            subscribers.change(session, subscriber_id, subscribers.check(after, most, before), caller.now)
        if changed := subscribers.changed_fields(before, subscribers.preferences_of(session, subscriber)):
            caller.record(session, "subscriber.change", subscriber_id, changed=changed)
        if body.email is not None:
            if not body.email_confirmed:
                _limit_invitations(caller, session)
            change_address(session, caller, subscriber_id, body.email, confirmed=body.email_confirmed)
        session.flush()
        return _to_detail(session, subscriber_id, caller.now)


def change_address(
    session: Session, caller: Caller, subscriber_id: int, email: str, *, confirmed: bool
) -> None:
    """Change an address at once if it is `confirmed`. Otherwise, ask both addresses for confirmation.

    Raise HTTPException (403) if it is `confirmed` but the key lacks the `send` scope.
    """
    is_trusted, now = Scope.SEND in caller.key.scopes, caller.now
    if not confirmed:
        subscribers.request_change_by_operator(session, subscriber_id, email, now, limited=not is_trusted)
        caller.record(session, "subscriber.request_address", subscriber_id)
        return
    if not is_trusted:
        raise HTTPException(
            403,
            "this key lacks the “send” scope, which is needed to set an address as confirmed: use a key that "
            "has it",
        )
    subscribers.replace_address(session, subscriber_id, email, now)
    caller.record(session, "subscriber.replace_address", subscriber_id)


@router.post("/{subscriber_id}/pause", responses=problems.responses(404, 409))
def pause_subscriber(caller: CanWrite, subscriber_id: Id, body: Pausing) -> SubscriberOut:
    """Pause a subscriber's digests until a given time, or until the subscriber resumes."""
    with caller.db.write() as session:
        subscriber = subscribers.pause(session, subscriber_id, body.until, caller.now)
        caller.record(session, "subscriber.pause", subscriber_id)
        return _to_out(session, [subscriber])[0]


@router.post("/{subscriber_id}/resume", responses=problems.responses(404, 409))
def resume_subscriber(caller: CanSend, subscriber_id: Id) -> SubscriberOut:
    """End a subscriber's pause."""
    with caller.db.write() as session:
        subscriber = subscribers.resume(session, subscriber_id, caller.now)
        caller.record(session, "subscriber.resume", subscriber_id)
        return _to_out(session, [subscriber])[0]


@router.post("/{subscriber_id}/unsubscribe", responses=problems.responses(404, 409))
def unsubscribe_subscriber(caller: CanWrite, subscriber_id: Id) -> SubscriberOut:
    """Unsubscribe a subscriber. The subscriber can sign up again."""
    with caller.db.write() as session:
        subscriber = subscribers.unsubscribe(session, subscriber_id, caller.now)
        caller.record(session, "subscriber.unsubscribe", subscriber_id)
        return _to_out(session, [subscriber])[0]


@router.post("/{subscriber_id}/new-links", status_code=202, responses=problems.responses(404, 409))
def make_new_links(caller: CanSend, subscriber_id: Id) -> NewLinks:
    """Email new links to a subscriber, at most once an hour, and invalidate the earlier links.

    The unsubscribe links in earlier emails still work. If no mail can be sent now, nothing is changed.
    """
    with caller.db.read() as session:
        subscribers.require_new_links(session, subscribers.get(session, subscriber_id), caller.now)
    relay.require_sending(caller.db, caller.settings, caller.now)
    with caller.db.write() as session:
        delivery_id = subscribers.new_links(session, subscriber_id, caller.now)
        caller.record(session, "subscriber.new-links", subscriber_id)
    return NewLinks(delivery_id=delivery_id)


@router.get("/{subscriber_id}/events", responses=problems.responses(404))
def list_events(caller: CanRead, subscriber_id: Id, window: Paging) -> Page[EventOut]:
    """List a subscriber's events, newest first: sign-up, changes, pauses, bounces, complaints."""
    with caller.db.read() as session:
        subscribers.get(session, subscriber_id)
        rows, cursor = newest_first(
            session, select(Event), col(Event.id), window, subscriber_id=subscriber_id
        )
    return Page(items=[EventOut.model_validate(row) for row in rows], next_cursor=cursor)


@router.delete("/{subscriber_id}/feedback", status_code=204, responses=problems.responses(404))
def forget_feedback(caller: CanWrite, subscriber_id: Id) -> None:
    """Delete a subscriber's feedback and the papers they pasted."""
    with caller.db.write() as session:
        subscribers.get(session, subscriber_id)
        subscribers.forget_feedback(session, subscriber_id)
        caller.record(session, "subscriber.delete_feedback", subscriber_id)


@router.delete("/{subscriber_id:int}", status_code=204, responses=problems.responses(404, 412))
def erase_subscriber(caller: CanWrite, subscriber_id: Id, if_match: IfMatch = None) -> None:
    """Erase a subscriber's data, and keep only a hash of the address.

    Because of the hash, the address gets no more mail, and nobody can sign up with it until its suppression
    is lifted.
    """
    with caller.db.write() as session:
        subscribers.get_for_update(session, subscriber_id)
        require_match(if_match, _to_detail(session, subscriber_id, caller.now))
        subscribers.erase(session, subscriber_id, caller.now)
        caller.record(session, "subscriber.erase", subscriber_id)


@router.get("/{subscriber_id}/export", responses=problems.responses(404))
def export_subscriber(caller: CanRead, subscriber_id: Id, _slot: Analysis) -> dict[str, Any]:
    """Return everything that is stored about a subscriber, as in the export for the subscriber."""
    with caller.db.read() as session:
        return subscribers.export(session, subscriber_id, caller.now)


def _to_detail(session: Session, subscriber_id: int, now: datetime) -> SubscriberDetail:
    subscriber = subscribers.get(session, subscriber_id)
    feedback = subscribers.feedback_for_ranking(session, [subscriber_id]).get(subscriber_id, ())
    return SubscriberDetail(
        **_to_out(session, [subscriber])[0].model_dump(),
        new_address=subscribers.new_address(session, subscriber_id, now),
        ignored_authors=subscriber.ignored_authors,
        feedback=[FeedbackOut.model_validate(item) for item in feedback],
    )


def _to_out(session: Session, rows: Sequence[Subscriber]) -> list[SubscriberOut]:
    interests = subscribers.interests_of(session, [row.id or 0 for row in rows])
    requested = subscribers.requested_preferences(session, rows)
    listed = []
    for row in rows:
        values = row.model_dump(include=set(SubscriberOut.model_fields))
        values["interests"] = [asdict(each) for each in interests.get(row.id or 0, ())]
        if row.id in requested:
            values |= asdict(requested[row.id])
        listed.append(SubscriberOut(**values))
    return listed
