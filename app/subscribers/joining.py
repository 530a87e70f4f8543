"""Signing up, confirming, declining, and asking for a link by mail.

What is done for a known, an unknown and a suppressed address differs; what is answered does not. Every case
writes down what happened and waits for the disk once. What takes longer, keeping pasted papers and handing
the mail over, is for when the answer is out, so that the time taken tells nothing either.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from sqlmodel import Session, col, exists, select

from app import suppression
from app.db import insert_new
from app.errors import Conflict, InvalidInput
from app.models import Delivery, MailKind, Subscriber
from app.models import SubscriberState as State
from app.subscribers import feedback
from app.subscribers.feedback import Recognised
from app.subscribers.leaving import forget
from app.subscribers.preferences import Preferences, check, normalise_address
from app.subscribers.register import mail, note, schedule, store_preferences, take
from app.tokens import LIFETIMES, Purpose

# What a reader agrees to with the button that confirms. Whoever changes it gives it a new version.
CONSENT_VERSION = "2026-11"
CONSENT_TEXT = (
    "By this you agree to get research papers by e-mail. You can change, pause or end that at any time "
    "by the links in every mail."
)
GIVEN_ELSEWHERE = "given to the operator"
_READING = (State.ACTIVE, State.PAUSED)


@dataclass(frozen=True, slots=True)
class SignUp:
    """What somebody asks for with the form on the front page."""

    email: str
    wanted: Preferences


def sign_up(session: Session, asked: SignUp, ip: str, now: datetime) -> int | None:
    """Ask the owner of the address to confirm; the mail that goes out, if one does."""
    email, wanted = normalise_address(asked.email), check(asked.wanted)
    if suppression.is_suppressed(session, email):
        note(session, "signup_refused", None, now)
        return None
    subscriber = _get_or_create(session, email, now)
    if subscriber.state in _READING:
        note(session, "link_asked", subscriber, now, ip)
        return mail(session, subscriber, MailKind.MANAGE, now)
    subscriber.state = State.PENDING
    store_preferences(session, subscriber, wanted)
    note(session, "signed_up", subscriber, now, ip)
    return mail(session, subscriber, MailKind.CONFIRM, now, lifetime=LIFETIMES[Purpose.CONFIRM])


def keep_liked(session: Session, email: str, liked: Recognised, now: datetime) -> None:
    """Keep what was pasted with a sign-up until it is confirmed, if one waits for that.

    What an earlier sign-up that nobody confirmed had pasted gives way; what a reader of old said stays.
    """
    email = normalise_address(email)
    waiting = select(Subscriber).where(Subscriber.email == email, Subscriber.state == State.PENDING)
    subscriber = session.exec(waiting).one_or_none()
    if subscriber is None or suppression.is_suppressed(session, email):
        return
    if subscriber.confirmed_at is None:
        feedback.forget(session, subscriber.id or 0)
    with suppress(InvalidInput):  # a reader of old may have no room: there is nobody to tell
        feedback.like(session, subscriber.id or 0, liked, now)


def send_link(session: Session, email: str, ip: str, now: datetime) -> int | None:
    """Mail the link to one's preferences, or to the confirmation that is still missing."""
    email = normalise_address(email)
    subscriber = session.exec(select(Subscriber).where(Subscriber.email == email)).one_or_none()
    if subscriber is None or suppression.is_suppressed(session, email):
        note(session, "link_refused", None, now)
        return None
    note(session, "link_asked", subscriber, now, ip)
    if subscriber.state is State.PENDING:
        return mail(session, subscriber, MailKind.CONFIRM, now, lifetime=LIFETIMES[Purpose.CONFIRM])
    return mail(session, subscriber, MailKind.MANAGE, now)


def confirm(session: Session, subscriber_id: int, ip: str, now: datetime) -> Subscriber:
    """The owner of the address agrees. Confirming twice is confirming once."""
    subscriber = take(session, subscriber_id)
    if subscriber.state in _READING:
        return subscriber
    if subscriber.state is not State.PENDING:
        raise Conflict("This sign-up has ended. You are welcome to sign up again.")
    activate(session, subscriber, ip, now)
    note(session, "confirmed", subscriber, now, ip)
    return subscriber


def decline(session: Session, subscriber_id: int, now: datetime) -> None:
    """The owner of the address did not ask for it. Nothing is kept of who never was a reader."""
    subscriber = take(session, subscriber_id)
    if subscriber.state is not State.PENDING:
        return
    if subscriber.confirmed_at is None:
        forget(session, subscriber, now)
    else:
        subscriber.state = State.UNSUBSCRIBED
    note(session, "declined", subscriber, now)


def add(session: Session, email: str, wanted: Preferences, now: datetime) -> int:
    """An operator adds somebody who gave their consent elsewhere: active at once. Returns their id."""
    email, wanted = normalise_address(email), check(wanted)
    if suppression.is_suppressed(session, email):
        raise Conflict(f"{email} is suppressed: lift that first, if its owner really wants mail again.")
    subscriber = _get_or_create(session, email, now)
    if subscriber.state is not State.PENDING:
        raise Conflict(f"{email} is known already, and {subscriber.state}.")
    store_preferences(session, subscriber, wanted)
    activate(session, subscriber, "", now, version=GIVEN_ELSEWHERE)
    note(session, "added", subscriber, now)
    return subscriber.id or 0


def invite(session: Session, email: str, wanted: Preferences, now: datetime) -> int:
    """Add a pending reader and mail them the question for their consent. Returns their id."""
    email = normalise_address(email)
    if suppression.is_suppressed(session, email):
        raise Conflict(f"{email} is suppressed: lift that first, if its owner really wants mail again.")
    known = session.exec(select(Subscriber).where(Subscriber.email == email)).one_or_none()
    if known is not None:
        raise Conflict(f"{email} is known already, and {known.state}.")
    sign_up(session, SignUp(email, wanted), "", now)
    return session.exec(select(Subscriber).where(Subscriber.email == email)).one().id or 0


def activate(
    session: Session, subscriber: Subscriber, ip: str, now: datetime, version: str = CONSENT_VERSION
) -> None:
    """Record the consent, and say when the first digest is due."""
    subscriber.state = State.ACTIVE
    subscriber.confirmed_at = subscriber.confirmed_at or now
    subscriber.consent_at, subscriber.consent_version, subscriber.consent_ip = now, version, ip
    subscriber.ended_at = subscriber.paused_until = None
    schedule(session, subscriber, now)
    session.add(subscriber)


def expire_pending(session: Session, before: datetime, now: datetime) -> int:
    """Let go of sign-ups that nobody confirmed: what decline() does, for those who did not even say so."""
    asked_since = exists().where(
        col(Delivery.subscriber_id) == Subscriber.id,
        col(Delivery.kind) == MailKind.CONFIRM,
        col(Delivery.created_at) >= before,
    )
    waiting = select(Subscriber.id).where(
        Subscriber.state == State.PENDING, col(Subscriber.created_at) < before, ~asked_since
    )
    ids = [identity for identity in session.exec(waiting) if identity is not None]
    for identity in ids:
        decline(session, identity, now)
    return len(ids)


def _get_or_create(session: Session, email: str, now: datetime) -> Subscriber:
    insert_new(session, Subscriber, ["email"], email=email, state=State.PENDING, created_at=now)
    mine = select(Subscriber).where(Subscriber.email == email).with_for_update()
    return session.exec(mine.execution_options(populate_existing=True)).one()
