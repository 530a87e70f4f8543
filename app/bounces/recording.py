"""Record bounces and complaints. Suppress addresses after a hard bounce, several soft bounces or a complaint.

Each kind of event is recorded once per delivery, even if the relay's reply, a notice in the mailbox and a
webhook all report it. An email that asks to unsubscribe is recorded once.
"""

import hashlib
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import ColumnElement, func
from sqlmodel import Session, col, exists, select

from app.bounces import soft_bounce_score
from app.bounces.notices import Notice
from app.delivery import suppression
from app.delivery.journal import AttemptResult
from app.delivery.ledger import LEASE, SENDER_REJECTION
from app.delivery.send_result import SendOutcome
from app.errors import LinkForged
from app.links import LinkSigner
from app.storage import webhook_outbox
from app.storage.inserts import insert_or_ignore
from app.storage.models import Delivery, DeliveryState, Event, Subscriber, WebhookEvent
from app.storage.models import SubscriberState as State
from app.subscribers import event_log, repository
from app.text import sanitize

HARD, SOFT, TRUSTED = "bounce", "soft_bounce", "trusted_again"
COMPLAINT, OPT_OUT, UNSUBSCRIBE_MAIL = "complaint", "opt_out", "unsubscribe_mail"
# The events that operators' webhooks receive, each with its additional data.
_WEBHOOK_EVENTS: dict[str, tuple[WebhookEvent, dict[str, bool]]] = {
    HARD: (WebhookEvent.BOUNCED, {"permanent": True}),
    SOFT: (WebhookEvent.BOUNCED, {"permanent": False}),
    COMPLAINT: (WebhookEvent.COMPLAINED, {}),
}
_APOSTROPHE = re.compile("['’`]")
_MAILED_STATES = (State.PENDING, State.ACTIVE, State.PAUSED)


@dataclass(frozen=True, slots=True)
class BouncedDelivery:
    """The delivery that a notice is about, and its subscriber."""

    delivery_id: int
    subscriber_id: int
    email: str
    to_earlier_address: bool  # the subscriber has changed their address since
    edition: str


def find_delivery(session: Session, signer: LinkSigner, notice: Notice) -> BouncedDelivery | None:
    """Return the delivery that a notice is about, or None if the notice does not prove which one.

    Our signed return path is proof. Some relays report our Message-ID instead, which is proof only together
    with the subscriber's address. The address also makes the query fast, because Message-IDs are not indexed.
    """
    for path in notice.return_paths:
        with suppress(LinkForged):
            return _delivery_where(session, col(Delivery.id) == signer.delivery_of(path))
    if not (notice.message_id and notice.recipient):
        return None
    has_message_id = col(Delivery.message_id) == notice.message_id
    # An apostrophe may belong to the address, or to the word before it: "l'adresse d'alice@example.org".
    address = notice.recipient.lower()
    has_address = col(Subscriber.email).in_((address, _APOSTROPHE.split(address)[-1]))
    return _delivery_where(session, has_message_id & has_address)


def _delivery_where(session: Session, condition: ColumnElement[bool]) -> BouncedDelivery | None:
    changed = _address_changed_since(func.coalesce(Delivery.sent_at, Delivery.created_at))
    columns = select(col(Delivery.id), col(Subscriber.id), col(Subscriber.email), changed)
    query = columns.join(Subscriber, col(Subscriber.id) == Delivery.subscriber_id).where(condition)
    row = session.execute(query.add_columns(col(Delivery.edition))).first()
    return BouncedDelivery(*row) if row else None


def _address_changed_since(moment: datetime | ColumnElement[datetime]) -> ColumnElement[bool]:
    """Return the condition that a subscriber has changed their address since `moment`."""
    return exists().where(
        col(Event.subscriber_id) == Subscriber.id,
        col(Event.kind) == event_log.ADDRESS_CHANGED,
        col(Event.at) >= moment,
    )


def record_refusal(session: Session, attempt: AttemptResult, subscriber_id: int, now: datetime) -> None:
    """Record a refusal by the relay, and ignore other failures.

    Like a bounce notice, a refusal that concerns us or this email does not count against the address. Ignore
    a refusal if the subscriber has changed their address since the attempt began, because the email was to
    the earlier address. An attempt takes less than LEASE. The ledger calls this for each failed delivery, and
    records suspected rejections of us itself.
    """
    outcome, code, text = attempt.result
    record = _RECORDERS.get(outcome)
    began_at = datetime.fromtimestamp(attempt.at, UTC) - LEASE
    moved = select(Subscriber.id).where(Subscriber.id == subscriber_id, _address_changed_since(began_at))
    if record and session.exec(moved).first() is None:
        record(session, attempt.delivery_id, subscriber_id, f"{code or ''} {text}".strip(), now)


def record_hard(
    session: Session, delivery_id: int, subscriber_id: int, diagnostic: str, now: datetime
) -> bool:
    """Record a hard bounce and suppress the address. Return False if it has already been recorded."""
    if not _record_event(session, HARD, delivery_id, subscriber_id, diagnostic, now):
        return False
    _suppress_subscriber(session, subscriber_id, f"bounced: {diagnostic}", now)
    return True


def record_soft(
    session: Session, delivery_id: int, subscriber_id: int, diagnostic: str, now: datetime
) -> bool:
    """Record a soft bounce, and suppress the address if there are too many soft bounces.

    Return False if this soft bounce has already been recorded.
    """
    if not _record_event(session, SOFT, delivery_id, subscriber_id, diagnostic, now):
        return False
    moments = soft_bounces_since_success(session, subscriber_id, now)
    if soft_bounce_score.exceeds_threshold(moments, now):
        reason = f"{len(moments)} emails bounced since {min(moments):%Y-%m-%d}: {diagnostic}"
        _record_event(session, HARD, delivery_id, subscriber_id, reason, now)
        _suppress_subscriber(session, subscriber_id, reason, now)
    return True


def record_sender_rejection(
    session: Session, delivery_id: int, subscriber_id: int, diagnostic: str, now: datetime
) -> bool:
    """Record a rejection of the sender or the content, which does not count against the address.

    Return False if the rejection has already been recorded.
    """
    return _record_event(session, SENDER_REJECTION, delivery_id, subscriber_id, diagnostic, now)


_RECORDERS = {
    SendOutcome.HARD_BOUNCE: record_hard,
    SendOutcome.SOFT_BOUNCE: record_soft,
    SendOutcome.MAILBOX_FULL: record_soft,
    SendOutcome.CONTENT_REFUSED: record_sender_rejection,
}


def record_complaint(
    session: Session, delivery_id: int, subscriber_id: int, diagnostic: str, now: datetime
) -> bool:
    """Record a spam complaint and suppress the address for all mail.

    Return False if the complaint has already been recorded.
    """
    if not _record_event(session, COMPLAINT, delivery_id, subscriber_id, diagnostic, now):
        return False
    subscriber = session.get_one(Subscriber, subscriber_id)
    if subscriber.state is not State.ERASED:
        suppression.suppress(session, subscriber.email, "the subscriber marked an email as spam", now)
    return True


def record_opt_out(
    session: Session, delivery_id: int, subscriber_id: int, diagnostic: str, now: datetime
) -> bool:
    """Record an opt-out. Return False if it has already been recorded.

    In that case, the caller must not unsubscribe the subscriber, who may have resubscribed since.
    """
    return _record_event(session, OPT_OUT, delivery_id, subscriber_id, diagnostic, now)


def is_request_recorded(session: Session, raw: bytes) -> bool:
    """Return whether an email that asks to unsubscribe was already processed (see `record_request`)."""
    return session.exec(select(Event.id).where(Event.key == _request_key(raw))).first() is not None


def record_request(session: Session, raw: bytes, subscriber_id: int, now: datetime) -> None:
    """Record that an email that asks to unsubscribe was processed.

    It may be read again if it could not be deleted, but the subscriber may have resubscribed since.
    """
    kind, key = UNSUBSCRIBE_MAIL, _request_key(raw)
    session.add(Event(at=now, kind=kind, subscriber_id=subscriber_id, key=key))


def _request_key(raw: bytes) -> str:
    return f"{UNSUBSCRIBE_MAIL}:{hashlib.sha256(raw).hexdigest()[:40]}"


def soft_bounces_since_success(session: Session, subscriber_id: int, now: datetime) -> Sequence[datetime]:
    """Return the due times of the messages that have soft-bounced since the last delivered message.

    Omit messages that were due before the last lifted suppression or the last change of address.
    """
    soft = select(col(Delivery.due_at)).join(Event, col(Event.delivery_id) == Delivery.id)
    soft = soft.where(Event.subscriber_id == subscriber_id, Event.kind == SOFT)
    bounced = exists().where(col(Event.delivery_id) == Delivery.id, col(Event.kind).in_((HARD, SOFT)))
    delivered = select(func.max(Delivery.due_at)).where(
        Delivery.subscriber_id == subscriber_id,
        Delivery.state == DeliveryState.SENT,
        col(Delivery.sent_at) <= now - soft_bounce_score.ASSUME_DELIVERED_AFTER,
        ~bounced,
    )
    lifted = select(func.max(Event.at)).where(
        Event.subscriber_id == subscriber_id, col(Event.kind).in_((TRUSTED, event_log.ADDRESS_CHANGED))
    )
    for moment in (session.exec(delivered).one(), session.exec(lifted).one()):
        if moment:
            soft = soft.where(col(Delivery.due_at) > moment)
    return session.exec(soft).all()


def _record_event(
    session: Session, kind: str, delivery_id: int, subscriber_id: int, diagnostic: str, now: datetime
) -> bool:
    """Record an event and return True, or return False if it has already been recorded.

    Remove addresses from the diagnostic, because it may name other people and outlives the subscriber's
    erasure. Omit it if they have been erased, because it may name them.
    """
    erased = session.get_one(Subscriber, subscriber_id).state is State.ERASED
    row = insert_or_ignore(
        session,
        Event,
        ["key"],
        at=now,
        kind=kind,
        subscriber_id=subscriber_id,
        delivery_id=delivery_id,
        detail="" if erased else sanitize.redact_addresses(diagnostic),
        key=f"{kind}:{delivery_id}",
    )
    if row is not None and kind in _WEBHOOK_EVENTS:
        event, facts = _WEBHOOK_EVENTS[kind]
        subject = {"subscriber_id": subscriber_id, "delivery_id": delivery_id}
        webhook_outbox.emit(session, event, subject | facts, now)
    return row is not None


def _suppress_subscriber(session: Session, subscriber_id: int, reason: str, now: datetime) -> None:
    subscriber = repository.get_for_update(session, subscriber_id)
    if subscriber.state is State.ERASED:
        return  # the address no longer exists
    # The suppression outlives an erasure, so its reason must not contain an address.
    suppression.suppress(session, subscriber.email, sanitize.redact_addresses(reason), now)
    if subscriber.state in _MAILED_STATES:
        subscriber.state, subscriber.ended_at, subscriber.next_due_at = State.BOUNCING, now, None
        session.add(subscriber)
