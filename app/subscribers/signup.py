"""Sign up, confirm, decline, and request a link by email.

Submitting a form only stores a row, so neither the response nor its timing depends on whether the address
belongs to a subscriber. `process` then decides what to send: a confirmation, the link to the preferences, or
nothing.

Acquire locks in this order: the mailbox, the subscriber whose address changes, the form, the subscriber with
the form's address. In another order, two transactions could deadlock.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from secrets import token_hex

from sqlmodel import Session, and_, col, exists, or_, select

from app.delivery import ledger, suppression
from app.errors import Conflict, InvalidInput
from app.links import LIFETIMES, Purpose
from app.storage.database import advisory_lock, in_array
from app.storage.inserts import insert_or_ignore
from app.storage.models import AddressChange, Delivery, Event, FormSubmission, RequestKind, Subscriber
from app.storage.models import SubscriberState as State
from app.subscribers import declines, feedback, form_submissions, mailbox_limits
from app.subscribers.address import normalize_address
from app.subscribers.address_change import is_open
from app.subscribers.event_log import record_event
from app.subscribers.form_submissions import Choices, SignUp
from app.subscribers.preferences import Preferences, check
from app.subscribers.privacy import anonymize
from app.subscribers.repository import (
    enqueue_mail,
    enqueue_requested_mail,
    get,
    get_for_update,
    preferences_of,
    require_not_suppressed,
    reschedule,
    store_preferences,
)
from app.types import MailKind

# The text that a subscriber agrees to by confirming. A changed text needs a new version.
CONSENT_VERSION = "2026-11-22"
CONSENT_TEXT = (
    "By confirming, you agree to receive research papers by email. You can change, pause or end your "
    "subscription at any time with the links in every digest."
)
CONSENT_GIVEN_ELSEWHERE = "given to the operator"
# Sign-ups that one transaction ends. SQLite is locked for about half a second.
EXPIRY_BATCH = 100
_SUBSCRIBED = (State.ACTIVE, State.PAUSED)


# --- storing and processing forms


def request_sign_up(session: Session, form: SignUp, visitor: str, now: datetime) -> int:
    """Store a sign-up and return its id. `process` decides what to send.

    Raise InvalidAddress or InvalidPreference if the form has an invalid value.
    """
    email, choices = normalize_address(form.email), Choices(check(form.preferences), form.liked)
    return form_submissions.store(session, RequestKind.SIGN_UP, email, visitor, now, choices)


def request_link(session: Session, email: str, visitor: str, now: datetime) -> int:
    """Store a request for the link to the subscriber's preferences and return its id."""
    return form_submissions.store(session, RequestKind.LINK, normalize_address(email), visitor, now)


def send_link(
    session: Session, email: str, visitor: str, now: datetime, confirmable: timedelta
) -> int | None:
    """Store and process a request for a link. Return the id of the email, or None if none is sent."""
    return process(session, request_link(session, email, visitor, now), now, confirmable)


def process(session: Session, request_id: int, now: datetime, confirmable: timedelta) -> int | None:
    """Decide what to send in response to a stored form. Return the id of the email, or None if none is sent.

    A confirmation that cannot be sent is given up after `confirmable`, when its link expires. Do nothing if
    the form has already been processed.
    """
    unprocessed = session.get(FormSubmission, request_id)
    if unprocessed is None:
        return None
    advisory_lock(session, f"mailbox {unprocessed.mailbox}")
    # Lock the subscriber whose address changes first, and then the form, as an erasure does. In the other
    # order, the two could deadlock.
    if unprocessed.subscriber_id is not None:
        get_for_update(session, unprocessed.subscriber_id)
    request = form_submissions.take(session, request_id)
    if request is None:
        return None
    match request.kind:
        case RequestKind.SIGN_UP:
            delivery_id, subscriber_id = _answer_sign_up(session, request, now, confirmable)
        case RequestKind.LINK:
            delivery_id, subscriber_id = _answer_link(session, request, now, confirmable)
        case RequestKind.ADDRESS:
            delivery_id, subscriber_id = _answer_address(session, request, now), None
    form_submissions.finish(request, now, delivery_id, subscriber_id)
    session.add(request)
    return delivery_id


# The id of the email to be sent, and the id of the subscriber whose choices it can confirm.
_Answer = tuple[int | None, int | None]
_NOTHING: _Answer = (None, None)


def _answer_sign_up(
    session: Session, request: FormSubmission, now: datetime, confirmable: timedelta
) -> _Answer:
    """Ask the owner of the address to confirm. An active or paused subscriber gets a preferences link."""
    subscriber = _find(session, request.email)
    if subscriber is not None and subscriber.state in _SUBSCRIBED:
        return _send_manage_link(session, request, subscriber, now)
    if _refusal(session, request, now):
        record_event(session, "signup_refused", None, now)
        return _NOTHING
    if subscriber is None or subscriber.state is State.PENDING:
        subscriber, _ = _get_or_create(session, request.email, now)
        record_event(session, "signed_up", subscriber, now, request.visitor)
    else:  # a former subscriber: their state does not change until they confirm
        record_event(session, "signup_asked", subscriber, now, request.visitor)
    # Random, because exports show the suffix, and a row id would reveal how many other people signed up.
    suffix = f"-{token_hex(4)}"
    return enqueue_mail(session, subscriber, MailKind.CONFIRM, now, confirmable, suffix), subscriber.id


def _answer_link(session: Session, request: FormSubmission, now: datetime, confirmable: timedelta) -> _Answer:
    """Send the link to the preferences or, if the address is not confirmed yet, the email that confirms it.

    That is the confirmation of the sign-up or, if there is none to confirm, of the latest change to this
    address. Send nothing if the change has expired and nobody signed up.
    """
    subscriber = _find(session, request.email)
    if subscriber is None:
        record_event(session, "link_refused", None, now)
        return _NOTHING
    if subscriber.state is not State.PENDING:
        return _send_manage_link(session, request, subscriber, now)
    if reason := _refusal(session, request, now):
        return _refuse_link(session, subscriber, reason, now)
    own_mail = select(Delivery.kind).where(Delivery.subscriber_id == subscriber.id)
    kind, lifetime, change = MailKind.CONFIRM, confirmable, None
    open_request = form_submissions.find_open(session, subscriber.id or 0)
    if open_request is not None:
        request.preferences, request.liked = open_request.preferences, open_request.liked
    elif change := _approved_change(session, request.email, now):
        kind, lifetime = MailKind.ADDRESS, LIFETIMES[Purpose.ADDRESS]
    elif set(session.exec(own_mail)) == {MailKind.ADDRESS}:
        return _refuse_link(session, subscriber, "the change to this address has expired", now)
    delivery_id = enqueue_requested_mail(session, subscriber, kind, now, lifetime=lifetime)
    if delivery_id is None:
        return _refuse_link(session, subscriber, _MAILED_RECENTLY, now)
    record_event(session, "link_asked", subscriber, now, request.visitor)
    if change is None:
        return delivery_id, subscriber.id
    change.delivery_id, change.requested_at = delivery_id, now
    session.add(change)
    return delivery_id, None


def _approved_change(session: Session, email: str, now: datetime) -> AddressChange | None:
    """Return the latest open change to this address that the owner of the old address confirmed, or None."""
    approved = select(AddressChange).where(
        AddressChange.email == email,
        col(AddressChange.approved_at).is_not(None),
        is_open(now),
    )
    return session.exec(approved.order_by(col(AddressChange.requested_at).desc()).with_for_update()).first()


def _answer_address(session: Session, request: FormSubmission, now: datetime) -> int | None:
    """Ask the owner of a subscriber's new address to confirm, if the address has no subscriber yet.

    The caller has locked the subscriber, so that the address cannot be replaced by another one meanwhile.
    """
    change = session.get(AddressChange, request.subscriber_id or 0)
    if change is None or change.email != request.email:
        return None  # another change has been requested, or the subscriber has been erased
    holder = _find(session, request.email)
    if (holder is not None and holder.state is not State.PENDING) or _refusal(session, request, now):
        return None
    holder, _ = _get_or_create(session, request.email, now)
    lifetime = LIFETIMES[Purpose.ADDRESS]
    suffix = f"-{token_hex(4)}"
    change.delivery_id = enqueue_mail(session, holder, MailKind.ADDRESS, now, lifetime, suffix)
    change.requested_at = now
    session.add(change)
    return change.delivery_id


_MAILED_RECENTLY = "an earlier email was sent less than an hour ago"


def _refusal(session: Session, request: FormSubmission, now: datetime) -> str:
    """Return why no request to confirm may be sent, or "" if it may."""
    if suppression.is_suppressed(session, request.email):
        return "the address is suppressed"
    if declines.has_declined(session, request.mailbox, now):
        return "a sign-up was declined"
    return "" if mailbox_limits.may_mail(session, request.mailbox, now) else "too many emails were requested"


def _send_manage_link(
    session: Session, request: FormSubmission, subscriber: Subscriber, now: datetime
) -> _Answer:
    if suppression.is_suppressed(session, request.email):
        return _refuse_link(session, subscriber, "the address is suppressed", now)
    is_subscribed = subscriber.state in _SUBSCRIBED
    limits = mailbox_limits.MAX_MAILS_WITH_LINK if is_subscribed else mailbox_limits.MAX_MAILS
    if not mailbox_limits.may_mail(session, request.mailbox, now, limits):
        return _refuse_link(session, subscriber, "too many emails were requested", now)
    delivery_id = enqueue_requested_mail(session, subscriber, MailKind.MANAGE, now)
    if delivery_id is None:
        return _refuse_link(session, subscriber, _MAILED_RECENTLY, now)
    record_event(session, "link_asked", subscriber, now, request.visitor)
    return delivery_id, None


def _refuse_link(session: Session, subscriber: Subscriber, reason: str, now: datetime) -> _Answer:
    """Record for operators why a requested link is not sent."""
    record_event(session, "link_refused", subscriber, now, reason)
    return _NOTHING


# --- answers from the owner of the address


def pending_choices(session: Session, subscriber_id: int, delivery_id: int | None = None) -> Choices | None:
    """Return the choices that a confirmation email can confirm, or None if there is nothing left to confirm.

    Without `delivery_id`, the newest sign-up is used.
    """
    subscriber = get(session, subscriber_id)
    request = form_submissions.find_open(session, subscriber_id, delivery_id)
    if subscriber.state in (*_SUBSCRIBED, State.ERASED):
        return None
    # Old links must not reactivate a subscriber who left.
    if request is None and (subscriber.state is not State.PENDING or delivery_id is not None):
        return None
    stored = Choices(preferences_of(session, subscriber))
    return (form_submissions.choices_of(request) if request else None) or stored


def requested_preferences(session: Session, rows: Iterable[Subscriber]) -> dict[int, Preferences]:
    """Return the requested preferences of the pending subscribers among `rows`, keyed by id."""
    pending = [row.id or 0 for row in rows if row.state is State.PENDING]
    choices = form_submissions.newest_choices(session, pending)
    return {number: each.preferences for number, each in choices.items()}


def confirm(
    session: Session, subscriber_id: int, ip: str, now: datetime, delivery_id: int | None = None
) -> Subscriber:
    """Record the owner's consent to one sign-up and store its choices. Repeated calls have no effect.

    A former subscriber's muted words are kept like their likes, because the form has no field for them.
    `delivery_id` is the email whose link was followed; without it, the newest sign-up is used. Raise Conflict
    if the sign-up is no longer valid, or AddressSuppressed if the address is suppressed.
    """
    subscriber = get_for_update(session, subscriber_id)
    if subscriber.state in _SUBSCRIBED:
        return subscriber
    require_not_suppressed(session, subscriber)
    choices = pending_choices(session, subscriber_id, delivery_id)
    if choices is None:
        raise Conflict("This sign-up is no longer valid. You are welcome to sign up again.")
    muted = choices.preferences.muted or preferences_of(session, subscriber).muted
    store_preferences(session, subscriber, replace(choices.preferences, muted=muted))
    # A former subscriber may exceed the limit on papers. The sign-up is then confirmed without new papers.
    with suppress(InvalidInput):
        feedback.like(session, subscriber_id, choices.liked, now)
    activate(session, subscriber, ip, now)
    record_event(session, "confirmed", subscriber, now, ip, delivery_id)
    return subscriber


def last_confirmation(session: Session, subscriber_id: int) -> Event | None:
    """Return the event of the subscriber's last confirmation, or None if it was deleted."""
    confirmed = select(Event).where(Event.subscriber_id == subscriber_id, Event.kind == "confirmed")
    return session.exec(confirmed.order_by(col(Event.id).desc())).first()


def decline(session: Session, subscriber_id: int, now: datetime, delivery_id: int | None = None) -> bool:
    """End a sign-up that the owner of the address did not request, and block further sign-ups for 90 days.

    If the address was never confirmed, only the hash of the mailbox is kept. The decline is remembered even
    if the sign-up has already expired. For an active or paused subscriber, change nothing and return False.
    """
    subscriber = get_for_update(session, subscriber_id)
    if subscriber.state in _SUBSCRIBED:
        return False
    if delivery_id is None:
        request = form_submissions.find_open(session, subscriber_id)
    else:  # even if the sign-up is no longer open
        request = form_submissions.by_delivery(session, delivery_id)
    if request is not None:
        declines.remember_decline(session, request, now)
    if subscriber.state is State.PENDING or (request is not None and request.subscriber_id is not None):
        end_sign_up(session, subscriber, now)
    return True


def is_declined(session: Session, delivery_id: int) -> bool:
    """Return True if the sign-up that this email was sent for was declined and has not been allowed again."""
    request = form_submissions.by_delivery(session, delivery_id)
    return request is not None and request.declined_at is not None


def allow_again(session: Session, delivery_id: int) -> None:
    """Undo a decline. The link in the email proves that the request is from the owner of the mailbox."""
    request = form_submissions.by_delivery(session, delivery_id)
    if request is not None:
        declines.forget_decline(session, request.mailbox)


def end_sign_up(session: Session, subscriber: Subscriber, now: datetime) -> None:
    """End a sign-up without a confirmation. Erase the personal data if no sign-up was ever confirmed."""
    if subscriber.confirmed_at is None:
        anonymize(session, subscriber, now)
    else:
        form_submissions.close(session, subscriber.id or 0)
        if subscriber.state is State.PENDING:
            subscriber.state = State.UNSUBSCRIBED
        session.add(subscriber)
    record_event(session, "declined", subscriber, now)


def add(session: Session, email: str, preferences: Preferences, now: datetime) -> int:
    """Add an active subscriber who gave their consent elsewhere. Return their id.

    Raise Conflict if the address is suppressed or belongs to a subscriber who is not pending.
    """
    subscriber, _ = _store_subscriber(session, email, preferences, now)
    activate(session, subscriber, "", now, version=CONSENT_GIVEN_ELSEWHERE)
    record_event(session, "added", subscriber, now)
    return subscriber.id or 0


def invite(
    session: Session, email: str, preferences: Preferences, now: datetime, confirmable: timedelta
) -> int:
    """Add a pending subscriber and send them a request to confirm. Return their id.

    The email is given up after `confirmable`, when its link expires.

    Raise Conflict if the address is registered or suppressed, or if no confirmation may be sent to it now.
    """
    email = normalize_address(email)
    advisory_lock(session, f"mailbox {form_submissions.mailbox_hash(email)}")
    subscriber, created = _store_subscriber(session, email, preferences, now)
    if not created:
        raise registered_error(subscriber.email, subscriber.state)
    record_event(session, "signed_up", subscriber, now)
    if send_link(session, subscriber.email, "", now, confirmable) is None:
        raise Conflict(
            f"No confirmation was sent: the owner of {email} declined a sign-up, or too many emails to it "
            "were requested. Try again later."
        )
    return subscriber.id or 0


def suppressed_error(email: str) -> Conflict:
    return Conflict(f"{email} is suppressed: if its owner wants mail again, lift the suppression first.")


def registered_error(email: str, state: State) -> Conflict:
    """Return the error for an address that belongs to a subscriber."""
    hint = ", so only its owner can subscribe again, by signing up" if state is State.UNSUBSCRIBED else ""
    return Conflict(f"{email} is already registered ({state}){hint}.")


def _store_subscriber(
    session: Session, email: str, preferences: Preferences, now: datetime
) -> tuple[Subscriber, bool]:
    """Store a pending subscriber with these preferences. Return the subscriber, and True if they are new.

    Raise Conflict if the address is suppressed or belongs to a subscriber who is not pending.
    """
    email, preferences = normalize_address(email), check(preferences)
    if suppression.is_suppressed(session, email):
        raise suppressed_error(email)
    subscriber, created = _get_or_create(session, email, now)
    if subscriber.state is not State.PENDING:
        raise registered_error(email, subscriber.state)
    store_preferences(session, subscriber, preferences)
    return subscriber, created


def activate(
    session: Session, subscriber: Subscriber, ip: str, now: datetime, version: str = CONSENT_VERSION
) -> None:
    """Record the consent and schedule the next digest. Close open sign-ups and forget declines."""
    form_submissions.close(session, subscriber.id or 0)
    declines.forget_decline(session, form_submissions.mailbox_hash(subscriber.email))
    subscriber.state = State.ACTIVE
    subscriber.confirmed_at = subscriber.confirmed_at or now
    subscriber.consent_at, subscriber.consent_version, subscriber.consent_ip = now, version, ip
    subscriber.ended_at = subscriber.paused_until = None
    reschedule(session, subscriber, now)
    session.add(subscriber)


def expire_pending(session: Session, before: datetime, now: datetime) -> int:
    """End a batch of unconfirmed sign-ups from before `before` with no recent confirmation email.

    This includes addresses whose confirmation bounced, or whose owner complained or unsubscribed. An address
    to which a subscriber wants to change is kept until the change ends. Skip rows that another transaction
    has locked. Return the number of ended sign-ups; call this again until it is 0.
    """
    mailed_since = exists().where(
        col(Delivery.subscriber_id) == Subscriber.id,
        col(Delivery.kind) == MailKind.CONFIRM,
        ledger.is_recent_or_waiting(before),
    )
    unconfirmed = or_(
        col(Subscriber.state) == State.PENDING,
        and_(
            col(Subscriber.state).in_((State.BOUNCING, State.UNSUBSCRIBED)),
            col(Subscriber.confirmed_at).is_(None),
        ),
    )
    has_change = exists().where(col(AddressChange.email) == Subscriber.email)
    expired = unconfirmed, col(Subscriber.created_at) < before, ~mailed_since, ~has_change
    batch = select(col(Subscriber.id)).where(*expired).order_by(col(Subscriber.id)).limit(EXPIRY_BATCH)
    ids = session.exec(batch.with_for_update(skip_locked=True)).all()
    # Check again under the locks: somebody may have signed up between the query and its locks.
    locked = select(Subscriber).where(in_array(session, col(Subscriber.id), ids), *expired)
    subscribers = session.exec(locked.execution_options(populate_existing=True)).all()
    for subscriber in subscribers:
        end_sign_up(session, subscriber, now)
    return len(subscribers)


def _find(session: Session, email: str) -> Subscriber | None:
    row = select(Subscriber).where(Subscriber.email == email).with_for_update()
    return session.exec(row.execution_options(populate_existing=True)).one_or_none()


def _get_or_create(session: Session, email: str, now: datetime) -> tuple[Subscriber, bool]:
    """Lock and return the row of an address, and whether it is new. Create the row if it is missing."""
    new = insert_or_ignore(session, Subscriber, ["email"], email=email, state=State.PENDING, created_at=now)
    row = select(Subscriber).where(Subscriber.email == email).with_for_update()
    return session.exec(row.execution_options(populate_existing=True)).one(), new is not None
