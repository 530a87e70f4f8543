"""A bounce becomes an event, and what follows from it: hard ones suppress at once, soft ones add up.

Each delivery counts once for each kind of event, however often it is told of: by the relay's answer, a
notice in the mailbox, the same notice again, and a webhook.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, func
from sqlmodel import Session, col, exists, select

from app.bounces import scoring
from app.bounces.notices import Notice
from app.delivery import suppression
from app.errors import LinkForged
from app.links import LinkSigner
from app.storage.database import insert_or_ignore
from app.storage.models import Delivery, DeliveryState, Event, Subscriber
from app.storage.models import SubscriberState as State
from app.text import sanitize
from app.types import SendOutcome, SendResult

HARD, SOFT, TRUSTED = "bounce", "soft_bounce", "trusted_again"
COMPLAINT, OPT_OUT, REFUSED_US = "complaint", "opt_out", "refused_us"
_REACHED = (State.PENDING, State.ACTIVE, State.PAUSED)


@dataclass(frozen=True, slots=True)
class BouncedDelivery:
    """The delivery that a notice is about, and its reader."""

    delivery_id: int
    subscriber_id: int
    email: str


def find_delivery(session: Session, signer: LinkSigner, notice: Notice) -> BouncedDelivery | None:
    """Whose mail a notice is about, by what only we can have made; None where nothing proves it.

    Our signed return path proves it alone. A Message-ID of ours, which a relay hands back by webhook, only
    together with the reader's address. They are found by way of the reader, who has an index: Message-IDs,
    in the table that grows fastest, have none.
    """
    for path in notice.return_paths:
        with suppress(LinkForged):
            return _the_one(session, col(Delivery.id) == signer.delivery_of(path))
    if not (notice.message_id and notice.recipient):
        return None
    named = col(Delivery.message_id) == notice.message_id
    return _the_one(session, named & (col(Subscriber.email) == notice.recipient.lower()))


def _the_one(session: Session, which: ColumnElement[bool]) -> BouncedDelivery | None:
    named = select(col(Delivery.id), col(Subscriber.id), Subscriber.email)
    joined = named.join(Subscriber, col(Subscriber.id) == Delivery.subscriber_id)
    row = session.exec(joined.where(which)).first()
    return BouncedDelivery(row[0] or 0, row[1] or 0, row[2]) if row else None


def record_refusal(
    session: Session, delivery_id: int, subscriber_id: int, answer: SendResult, now: datetime
) -> None:
    """Draw the consequences of the relay's last word on a delivery. Nothing follows where it was our fault.

    For the ledger, for each delivery that ended in failure.
    """
    said = f"{answer.code or ''} {answer.text}".strip()
    if answer.outcome is SendOutcome.HARD_BOUNCE:
        record_hard(session, delivery_id, subscriber_id, said, now)
    elif answer.outcome in (SendOutcome.SOFT_BOUNCE, SendOutcome.MAILBOX_FULL):
        record_soft(session, delivery_id, subscriber_id, said, now)


def record_hard(session: Session, delivery_id: int, subscriber_id: int, said: str, now: datetime) -> bool:
    """The address takes no mail: it is suppressed at once. False when that was known already."""
    if not _noted(session, HARD, delivery_id, subscriber_id, said, now):
        return False
    _give_up(session, subscriber_id, f"bounced: {said}", now)
    return True


def record_soft(session: Session, delivery_id: int, subscriber_id: int, said: str, now: datetime) -> bool:
    """This mail came back; enough of them within weeks, and the address is suppressed, too."""
    if not _noted(session, SOFT, delivery_id, subscriber_id, said, now):
        return False
    moments = since_success(session, subscriber_id, now)
    if scoring.exceeds_threshold(moments, now):
        told = f"{len(moments)} mails came back since {min(moments):%Y-%m-%d}: {said}"
        _noted(session, HARD, delivery_id, subscriber_id, told, now)
        _give_up(session, subscriber_id, told, now)
    return True


def record_sender_rejection(
    session: Session, delivery_id: int, subscriber_id: int, said: str, now: datetime
) -> bool:
    """This mail came back for what we or it are: it is written down, and says nothing of the reader."""
    return _noted(session, REFUSED_US, delivery_id, subscriber_id, said, now)


def record_complaint(
    session: Session, delivery_id: int, subscriber_id: int, said: str, now: datetime
) -> bool:
    """The reader called it spam: no mail of any kind goes there again."""
    if not _noted(session, COMPLAINT, delivery_id, subscriber_id, said, now):
        return False
    reader = session.get_one(Subscriber, subscriber_id)
    if reader.state is not State.ERASED:
        suppression.suppress(session, reader.email, "its reader called a mail spam", now)
    return True


def record_opt_out(session: Session, delivery_id: int, subscriber_id: int, said: str, now: datetime) -> bool:
    """The reader wants no more; where that was known already, they may have come back since."""
    return _noted(session, OPT_OUT, delivery_id, subscriber_id, said, now)


def since_success(session: Session, subscriber_id: int, now: datetime) -> Sequence[datetime]:
    """When the mails were due that came back softly since one last arrived, or an operator trusted again."""
    soft = select(col(Delivery.due_at)).join(Event, col(Event.delivery_id) == Delivery.id)
    soft = soft.where(Event.subscriber_id == subscriber_id, Event.kind == SOFT)
    success = _last_success(session, subscriber_id, now)
    return session.exec(soft.where(col(Delivery.due_at) > success) if success else soft).all()


def _last_success(session: Session, subscriber_id: int, now: datetime) -> datetime | None:
    came_back = exists().where(col(Event.delivery_id) == Delivery.id, col(Event.kind).in_((HARD, SOFT)))
    arrived = select(func.max(Delivery.due_at)).where(
        Delivery.subscriber_id == subscriber_id,
        Delivery.state == DeliveryState.SENT,
        col(Delivery.sent_at) <= now - scoring.ASSUME_DELIVERED_AFTER,
        ~came_back,
    )
    trusted = select(func.max(Event.at)).where(Event.subscriber_id == subscriber_id, Event.kind == TRUSTED)
    known = (session.exec(arrived).one(), session.exec(trusted).one())
    return max((at for at in known if at), default=None)


def _noted(
    session: Session, kind: str, delivery_id: int, subscriber_id: int, said: str, now: datetime
) -> bool:
    """Write an event down, unless it is known; whether it is new.

    No address stays in a server's words: they may be told after their reader was erased, and name others.
    """
    row = insert_or_ignore(
        session,
        Event,
        ["key"],
        at=now,
        kind=kind,
        subscriber_id=subscriber_id,
        delivery_id=delivery_id,
        detail=sanitize.redact_addresses(said),
        key=f"{kind}:{delivery_id}",
    )
    return row is not None


def _give_up(session: Session, subscriber_id: int, reason: str, now: datetime) -> None:
    mine = select(Subscriber).where(col(Subscriber.id) == subscriber_id).with_for_update()
    reader = session.exec(mine.execution_options(populate_existing=True)).one()
    if reader.state is State.ERASED:
        return  # there is no address any more
    # The list outlives an erasure: no address may stand in the words that it keeps.
    suppression.suppress(session, reader.email, sanitize.redact_addresses(reason), now)
    if reader.state in _REACHED:
        reader.state, reader.ended_at, reader.next_due_at = State.BOUNCING, now, None
        session.add(reader)
