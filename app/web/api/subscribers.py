"""The readers: find, add, change, pause, resume, unsubscribe, erase, and what they would get."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field
from sqlmodel import Session, col, select

from app import subscribers
from app.storage import audit_log, rate_limits
from app.storage.models import Scope, Subscriber, SubscriberState
from app.subscribers import Preferences
from app.types import Cadence, EmptyDigestPolicy, Interest
from app.web.api import problems
from app.web.api.auth import Analysis, CanRead, CanSend, CanWrite, Id, Now, Paperboy
from app.web.api.pagination import Page, Paging, newest_first
from app.web.api.values import Integer, Moment, Number

router = APIRouter(prefix="/subscribers", tags=["subscribers"])

INVITATIONS_AN_HOUR = 100  # a key without the scope `send`
HOUR = timedelta(hours=1)

Text = Annotated[
    str,
    Field(
        max_length=1000,
        examples=['"language agents" -game'],
        description="Words, “phrases” in quotation marks, -exclusions, author:name, cat:cs.CL.",
    ),
]


class InterestIn(BaseModel):
    """What a reader wants to read about."""

    model_config = ConfigDict(extra="forbid", from_attributes=True)
    text: Text
    weight: Number = Field(default=1.0, description="How much it counts against the others: up to 3.")
    quota: Integer | None = Field(default=None, description="At most so many papers of it in a digest.")


class PreferencesPatch(BaseModel):
    """How a reader wants their digest. Where a field is left out, it stays as it is."""

    model_config = ConfigDict(extra="forbid")
    cadence: Cadence | None = None
    weekday: Integer | None = Field(
        default=None, examples=[0], description="Of a weekly digest: Monday is 0."
    )
    hour: Integer | None = Field(default=None, examples=[8], description="Of the reader's local day.")
    zone: str | None = Field(default=None, max_length=64, examples=["Europe/Berlin"])
    min_papers: Integer | None = Field(
        default=None, examples=[1], description="A thinner day is folded into the next."
    )
    max_papers: Integer | None = Field(default=None, examples=[10])
    when_empty: EmptyDigestPolicy | None = None
    beyond: Integer | None = Field(
        default=None, examples=[3], description="At most so many papers that trend beyond the interests."
    )
    muted: list[Text] | None = Field(
        default=None,
        max_length=subscribers.MAX_MUTED,
        examples=[["blockchain"]],
        description="What keeps a paper out: words, author:, cat:.",
    )
    interests: list[InterestIn] | None = Field(default=None, max_length=subscribers.MAX_INTERESTS)

    def applied_to(self, before: Preferences) -> Preferences:
        """The preferences with what was chosen here."""
        lists = {"interests", "muted"}
        chosen = self.model_dump(exclude_none=True, include=set(PreferencesPatch.model_fields) - lists)
        if self.muted is not None:
            chosen["muted"] = tuple(self.muted)
        if self.interests is not None:
            chosen["interests"] = tuple(
                Interest(each.text, each.weight, each.quota) for each in self.interests
            )
        return replace(before, **chosen)


class NewSubscriber(PreferencesPatch):
    """A reader to be added, who agreed elsewhere."""

    email: str = Field(max_length=320, examples=["alice@example.org"])
    consent: str = Field(
        min_length=3,
        max_length=500,
        examples=["signed the list at the workshop on 20 November 2026"],
        description="How and when they agreed. It is kept in the audit.",
    )


class SubscriberOut(BaseModel):
    """A reader."""

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
    beyond: int
    muted: list[str]
    interests: list[InterestIn]
    next_due_at: datetime | None
    paused_until: datetime | None
    consent_at: datetime | None
    consent_version: str = Field(description="The wording they agreed to.")
    created_at: datetime
    confirmed_at: datetime | None
    ended_at: datetime | None


class OpinionOut(BaseModel):
    """What a reader said of a paper."""

    model_config = ConfigDict(from_attributes=True)
    title: str
    liked: bool
    at: datetime
    paper_id: int | None = Field(description="None: they pasted it, and the archive does not know it.")


class SubscriberDetail(SubscriberOut):
    """A reader with what they said of papers, the newest first."""

    ignored_authors: list[str] = Field(description="Who wrote what they like, and does not count for it.")
    opinions: list[OpinionOut]


class Pausing(BaseModel):
    """Until when, if that is known."""

    model_config = ConfigDict(extra="forbid")
    until: Moment | None = Field(default=None, examples=["2026-12-24T00:00:00Z"])


class NewLinks(BaseModel):
    """The mail that brings a reader new links. It leaves within a minute."""

    delivery_id: int = Field(description="Its row of the ledger: see /deliveries.")


@router.get("")
def list_subscribers(
    app: Paperboy,
    _key: CanRead,
    window: Paging,
    state: SubscriberState | None = None,
    email: Annotated[str | None, Query(max_length=320, description="Exactly this address.")] = None,
) -> Page[SubscriberOut]:
    """The readers, the newest first."""
    statement = select(Subscriber)
    if state is not None:
        statement = statement.where(Subscriber.state == state)
    if email is not None:
        statement = statement.where(Subscriber.email == subscribers.normalise_address(email))
    with app.db.read() as session:
        rows, cursor = newest_first(session, statement, col(Subscriber.id), window)
        return Page(items=_shown(session, rows), next_cursor=cursor)


@router.post("", status_code=201, responses=problems.responses(409))
def add_subscriber(app: Paperboy, key: CanWrite, now: Now, wanted: NewSubscriber) -> SubscriberOut:
    """Add a reader who agreed elsewhere. The address must not be known, nor suppressed.

    With a key that has the scope `send`, too, the reader is active at once. With any other key the reader is
    pending, gets a mail that asks for confirmation, and no digest without it.
    """
    settings = app.settings
    defaults = Preferences(
        hour=settings.default_hour, zone=settings.default_zone, beyond=settings.default_beyond
    )
    add = subscribers.add if Scope.SEND in key.scopes else subscribers.invite
    with app.db.write() as session:
        if add is subscribers.invite:
            rate_limits.limit(session, f"invitations of key {key.id}", INVITATIONS_AN_HOUR, now, HOUR)
        number = add(session, wanted.email, wanted.applied_to(defaults), now)
        audit_log.record(session, key.name, "subscriber.add", number, now, consent=wanted.consent)
        return _shown(session, [subscribers.get(session, number)])[0]


@router.get("/{subscriber_id}", responses=problems.responses(404))
def get_subscriber(app: Paperboy, _key: CanRead, subscriber_id: Id) -> SubscriberDetail:
    """One reader, with what they said of papers."""
    with app.db.read() as session:
        reader = subscribers.get(session, subscriber_id)
        said = subscribers.feedback_for_ranking(session, [subscriber_id]).get(subscriber_id, ())
        shown = _shown(session, [reader])[0]
    opinions = [OpinionOut.model_validate(opinion) for opinion in said]
    aside = reader.ignored_authors
    return SubscriberDetail(**shown.model_dump(), ignored_authors=aside, opinions=opinions)


@router.patch("/{subscriber_id}", responses=problems.responses(404, 409))
def change_subscriber(
    app: Paperboy, key: CanWrite, now: Now, subscriber_id: Id, wanted: PreferencesPatch
) -> SubscriberOut:
    """Change how a reader wants their digest. `interests`, where given, replaces all of them."""
    with app.db.write() as session:
        before = subscribers.preferences_of(session, subscribers.get(session, subscriber_id))
        reader = subscribers.change(session, subscriber_id, wanted.applied_to(before), now)
        audit_log.record(session, key.name, "subscriber.change", subscriber_id, now)
        return _shown(session, [reader])[0]


@router.post("/{subscriber_id}/pause", responses=problems.responses(404, 409))
def pause_subscriber(
    app: Paperboy, key: CanWrite, now: Now, subscriber_id: Id, wanted: Pausing
) -> SubscriberOut:
    """Send this reader nothing for a while, or until they resume."""
    with app.db.write() as session:
        reader = subscribers.pause(session, subscriber_id, wanted.until, now)
        audit_log.record(session, key.name, "subscriber.pause", subscriber_id, now)
        return _shown(session, [reader])[0]


@router.post("/{subscriber_id}/resume", responses=problems.responses(404, 409))
def resume_subscriber(app: Paperboy, key: CanSend, now: Now, subscriber_id: Id) -> SubscriberOut:
    """End a reader's pause."""
    with app.db.write() as session:
        reader = subscribers.resume(session, subscriber_id, now)
        audit_log.record(session, key.name, "subscriber.resume", subscriber_id, now)
        return _shown(session, [reader])[0]


@router.post("/{subscriber_id}/unsubscribe", responses=problems.responses(404, 409))
def unsubscribe_subscriber(app: Paperboy, key: CanWrite, now: Now, subscriber_id: Id) -> SubscriberOut:
    """End a reader's digests. They may sign up again themselves."""
    with app.db.write() as session:
        reader = subscribers.unsubscribe(session, subscriber_id, now)
        audit_log.record(session, key.name, "subscriber.unsubscribe", subscriber_id, now)
        return _shown(session, [reader])[0]


@router.post("/{subscriber_id}/new-links", status_code=202, responses=problems.responses(404, 409))
def make_new_links(app: Paperboy, key: CanSend, now: Now, subscriber_id: Id) -> NewLinks:
    """Make every link that was mailed to this reader void, and mail new ones. At most once an hour.

    The unsubscribe links of earlier mails still work.
    """
    with app.db.write() as session:
        delivery_id = subscribers.new_links(session, subscriber_id, now)
        audit_log.record(session, key.name, "subscriber.new-links", subscriber_id, now)
    return NewLinks(delivery_id=delivery_id)


@router.delete("/{subscriber_id}/opinions", status_code=204, responses=problems.responses(404))
def forget_feedback(app: Paperboy, key: CanWrite, now: Now, subscriber_id: Id) -> None:
    """Forget all that a reader said of papers, and the papers that they pasted."""
    with app.db.write() as session:
        subscribers.get(session, subscriber_id)
        subscribers.forget_feedback(session, subscriber_id)
        audit_log.record(session, key.name, "subscriber.forget", subscriber_id, now)


@router.delete("/{subscriber_id}", status_code=204, responses=problems.responses(404))
def erase_subscriber(app: Paperboy, key: CanWrite, now: Now, subscriber_id: Id) -> None:
    """Forget a reader for good. Only the hash of the address stays, so that no mail goes there again."""
    with app.db.write() as session:
        subscribers.erase(session, subscriber_id, now)
        audit_log.record(session, key.name, "subscriber.erase", subscriber_id, now)


@router.get("/{subscriber_id}/export", responses=problems.responses(404))
def export_subscriber(app: Paperboy, _key: CanRead, subscriber_id: Id, _place: Analysis) -> dict[str, Any]:
    """Everything that is known about a reader, as they could ask for it themselves."""
    with app.db.read() as session:
        return subscribers.export(session, subscriber_id)


def _shown(session: Session, rows: Sequence[Subscriber]) -> list[SubscriberOut]:
    wishes = subscribers.interests_of(session, [row.id or 0 for row in rows])
    return [
        SubscriberOut(
            **row.model_dump(include=set(SubscriberOut.model_fields)),
            interests=[InterestIn.model_validate(wish) for wish in wishes.get(row.id or 0, ())],
        )
        for row in rows
    ]
