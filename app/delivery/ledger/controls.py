"""Operators' decisions about emails: cancel, resend or confirm uncertain ones, and retry failed digests."""

from collections import Counter
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, case, exists, func, literal, or_, update
from sqlalchemy import select as sql_select
from sqlalchemy.orm import aliased
from sqlmodel import Session, col, select
from sqlmodel.sql.expression import SelectOfScalar

from app.delivery.ledger.entries import CANCELLED, editions_from
from app.delivery.ledger.sending_pauses import UNSENT
from app.errors import Conflict, NotFound
from app.storage.column_types import UtcDateTime
from app.storage.database import execute_and_count, in_array
from app.storage.models import (
    Delivery,
    DigestContent,
    Subscriber,
    SubscriberState,
)
from app.storage.models import DeliveryState as State
from app.types import MailKind

ARRIVED = "It arrived, according to an operator."
# Emails in flight are cancelled as well, so that they are not retried. The relay's reply is still recorded.
CANCELLABLE = (*UNSENT, State.COMMITTING)


def cancel(session: Session, edition: str) -> int:
    """Cancel the unsent emails of an edition, including those in flight, and return their number.

    Emails that may have arrived in an earlier attempt become uncertain and are not sent again. If an email in
    flight is accepted, it ends as sent. If it is refused, it stays cancelled, and the refusal counts.
    """
    skipped, uncertain = _cancellable(edition)
    cancelled = update(Delivery).values(reason=CANCELLED, next_attempt_at=None, lease_until=None)
    count = execute_and_count(session, cancelled.where(skipped).values(state=State.SKIPPED))
    return count + execute_and_count(session, cancelled.where(uncertain).values(state=State.UNCERTAIN))


def count_cancellable(session: Session, edition: str) -> int:
    return session.exec(select(func.count(col(Delivery.id))).where(or_(*_cancellable(edition)))).one()


def _cancellable(edition: str) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    """Return the conditions for the unsent emails that cannot have arrived, and for those that may have."""
    of_edition, state = col(Delivery.edition) == edition, col(Delivery.state)
    may_have_arrived = col(Delivery.possibly_delivered)
    is_due = col(Delivery.next_attempt_at).is_not(None)
    skipped = and_(of_edition, state.in_(CANCELLABLE), ~may_have_arrived)
    return skipped, and_(of_edition, state.in_((*CANCELLABLE, State.UNCERTAIN)), is_due, may_have_arrived)


def resend(session: Session, delivery_id: int, now: datetime) -> None:
    """Have an uncertain email sent again with the same Message-ID and bytes.

    Raise NotFound if there is no such delivery. Raise Conflict if it is not uncertain or its content is lost.
    """
    delivery = session.get(Delivery, delivery_id)
    if delivery is None:
        raise NotFound(f"there is no delivery {delivery_id}")
    if delivery.state is not State.UNCERTAIN:
        raise Conflict(f"this delivery is {delivery.state}: only uncertain deliveries can be resent")
    if delivery.kind is MailKind.DIGEST and session.get(DigestContent, delivery_id) is None:
        raise Conflict(
            "this digest cannot be sent again, because its content was not in the restored backup: record it "
            "as arrived if it was delivered"
        )
    delivery.next_attempt_at, delivery.give_up_at = now, None
    delivery.reason = ""  # if it was cancelled, it no longer is
    session.add(delivery)


def uncertain_ids(session: Session, edition: str) -> list[int]:
    """Return the sorted ids of an edition's uncertain deliveries."""
    uncertain = col(Delivery.edition) == edition, col(Delivery.state) == State.UNCERTAIN
    return list(session.scalars(sql_select(col(Delivery.id)).where(*uncertain).order_by(col(Delivery.id))))


def resend_uncertain(session: Session, edition: str, now: datetime) -> int:
    """Have all uncertain digests of an edition sent again, except those whose content is lost.

    Return their number.
    """
    uncertain = update(Delivery).where(
        col(Delivery.edition) == edition, col(Delivery.state) == State.UNCERTAIN, _has_content(Delivery)
    )
    return execute_and_count(session, uncertain.values(reason="", next_attempt_at=now, give_up_at=None))


def confirm_arrival(session: Session, delivery_id: int, now: datetime) -> None:
    """Record an uncertain email as sent, because it arrived.

    If its sender reports the relay's reply later, the reply is recorded as well. Raise NotFound if there is
    no such delivery, and Conflict if it is not uncertain.
    """
    if not _record_arrival(session, col(Delivery.id) == delivery_id, now):
        delivery = session.get(Delivery, delivery_id)
        if delivery is None:
            raise NotFound(f"there is no delivery {delivery_id}")
        raise Conflict(f"this delivery is {delivery.state}: only uncertain deliveries can be confirmed")


def confirm_uncertain(session: Session, edition: str, now: datetime) -> int:
    """Record all uncertain digests of an edition as sent, because they arrived. Return their number."""
    return _record_arrival(session, col(Delivery.edition) == edition, now)


def _record_arrival(session: Session, mails: ColumnElement[bool], now: datetime) -> int:
    """Record as sent all uncertain emails that meet a condition. No sender holds a lease on them."""
    values = {"state": State.SENT, "reason": "", "next_attempt_at": None, "smtp_text": ARRIVED}
    uncertain = update(Delivery).where(mails, col(Delivery.state) == State.UNCERTAIN)
    due_at = col(Delivery.due_at)  # the actual time of sending is unknown
    sent_at = case((due_at < now, due_at), else_=literal(now, UtcDateTime))
    return execute_and_count(session, uncertain.values(**values, sent_at=sent_at))


def count_held_uncertain(session: Session, since: datetime) -> dict[str, int]:
    """Count the digests created at or after `since` that an operator must resend or confirm, by edition."""
    held = sql_select(col(Delivery.edition)).where(
        *editions_from(since),
        col(Delivery.created_at) >= since,
        col(Delivery.kind) == MailKind.DIGEST,
        col(Delivery.state) == State.UNCERTAIN,
        col(Delivery.next_attempt_at).is_(None),
    )
    return _count_by_edition(session, held)


def retry_failed(session: Session, edition: str, now: datetime) -> int:
    """Send the failed digests of an edition again, as new emails. Return their number.

    A digest stays failed if it may have arrived, if its content is lost, if its subscriber no longer gets
    digests, or if a later digest, which may contain the same papers, is due, was or will be sent, or can be
    retried instead. A retried digest is given up when the subscriber's next one is due, like any other.
    """
    failed = select(col(Delivery.subscriber_id)).where(_failed_digests(), col(Delivery.edition) == edition)
    # Planning locks the subscribers whose history it reads, so it cannot choose the same papers meanwhile.
    waiting = session.exec(_not_due(now).where(col(Subscriber.id).in_(failed)).with_for_update()).all()
    retried = _retryable(col(Delivery.id)).where(
        col(Delivery.edition) == edition, in_array(session, col(Delivery.subscriber_id), waiting)
    )
    next_due_at = select(Subscriber.next_due_at).where(col(Subscriber.id) == Delivery.subscriber_id)
    values = {
        "state": State.PENDING,
        "reason": "",
        "attempts": 0,
        "next_attempt_at": now,
        "give_up_at": next_due_at.scalar_subquery(),
    }
    return execute_and_count(session, update(Delivery).where(col(Delivery.id).in_(retried)).values(**values))


def count_retryable(session: Session, since: datetime, now: datetime) -> dict[str, int]:
    """Count the digests created at or after `since` that `retry_failed` would send again, by edition."""
    retryable = _retryable(col(Delivery.edition)).where(
        *editions_from(since), col(Delivery.created_at) >= since, _is_waiting(now)
    )
    return _count_by_edition(session, retryable)


def has_retryable(session: Session, edition: str, now: datetime) -> bool:
    """Return whether `retry_failed` would send a digest of this edition again."""
    retryable = _retryable(col(Delivery.id)).where(col(Delivery.edition) == edition, _is_waiting(now))
    return session.execute(retryable.limit(1)).first() is not None


def _count_by_edition(session: Session, mails: Select[Any]) -> dict[str, int]:
    """Count the selected emails by edition. GROUP BY would make SQLite read the emails of all editions."""
    return dict(sorted(Counter(session.execute(mails).scalars()).items()))


def _not_due(now: datetime) -> SelectOfScalar[int | None]:
    """Select the active subscribers whose next digest is not due yet."""
    is_active = Subscriber.state == SubscriberState.ACTIVE
    return select(col(Subscriber.id)).where(is_active, col(Subscriber.next_due_at) > now)


def _is_waiting(now: datetime) -> ColumnElement[bool]:
    """Return the condition that a delivery's subscriber is active and not due yet."""
    return _not_due(now).where(col(Subscriber.id) == Delivery.subscriber_id).exists()


def _failed_digests() -> ColumnElement[bool]:
    has_ended = col(Delivery.next_attempt_at).is_(None)  # always true; lets the database use ix_delivery_due
    return and_(col(Delivery.kind) == MailKind.DIGEST, col(Delivery.state) == State.FAILED, has_ended)


def _retryable(*columns: Any) -> Select[Any]:
    """Select failed digests that cannot have arrived.

    Leave out those whose content is lost, and those whose subscriber has a later digest that may have
    arrived or can still be sent. A later failed digest can, unless its content is lost, and it contains the
    same papers.
    """
    later = aliased(Delivery)
    is_unsendable = or_(
        col(later.state).in_((State.SUPPRESSED, State.SKIPPED)),
        (col(later.state) == State.FAILED) & ~_has_content(later),
    )
    later_digest = exists().where(
        col(later.subscriber_id) == Delivery.subscriber_id,
        col(later.kind) == MailKind.DIGEST,
        col(later.created_at) > Delivery.created_at,
        or_(~is_unsendable, col(later.possibly_delivered)),
    )
    # Check later editions first, because a later digest almost always has one. After a change of time zone,
    # it may have an earlier edition.
    is_last = [
        ~later_digest.where(edition)
        for edition in (col(later.edition) > Delivery.edition, col(later.edition) <= Delivery.edition)
    ]
    is_undelivered = ~col(Delivery.possibly_delivered)
    return sql_select(*columns).where(_failed_digests(), is_undelivered, _has_content(Delivery), *is_last)


def _has_content(delivery: type[Delivery]) -> ColumnElement[bool]:
    """Return the condition that the content of a digest is stored."""
    return exists().where(col(DigestContent.delivery_id) == delivery.id)
