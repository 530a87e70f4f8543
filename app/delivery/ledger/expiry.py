"""Give up on emails that have waited too long.

A digest expires before the next one is composed, even during a pause, because the next one contains its
papers. Other emails were requested by somebody. They don't expire while all sending is paused, and the time
of the pause counts neither toward their expiry nor toward that of their links (see `exclude_pause`).
"""

from collections import Counter
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, case, literal, or_, update
from sqlmodel import Session, col, select
from sqlmodel.sql.expression import SelectOfScalar

from app.delivery.ledger.claims import FINAL_STATES, WAITING_STATES, is_all_paused
from app.delivery.ledger.entries import is_held
from app.storage.database import in_array, skew
from app.storage.models import Delivery
from app.storage.models import DeliveryState as State
from app.types import MailKind


def expire_overdue(session: Session, now: datetime) -> Counter[str]:
    """Give up on emails whose `give_up_at` has passed. Return the number of emails by new state."""
    return _give_up(session, is_overdue(now))


def expire_before_next(session: Session, by: datetime) -> Counter[str]:
    """Give up on the waiting digests whose subscribers' next digests are due by `by`, and count them.

    Call this before the next digests are composed, so that they contain the same papers. Digests that are
    being sent do not change: see `with_unsettled_digest`. Neither do those that may have arrived.
    """
    is_unsent = (col(Delivery.kind) == MailKind.DIGEST) & col(Delivery.possibly_delivered).is_(False)
    held = is_held() & (col(Delivery.give_up_at) <= by)
    return _give_up(session, is_overdue(by) & is_unsent) + _give_up(session, held & is_unsent)


def with_unsettled_digest(by: datetime) -> SelectOfScalar[int]:
    """Select the subscribers with a digest that is being sent although their next one is due by `by`.

    Until its result is recorded, it is not known whether the next digest must contain the same papers.
    """
    return select(Delivery.subscriber_id).where(
        Delivery.kind == MailKind.DIGEST,
        # A digest that has just been deferred or released expires before the next planning run. With `in_`,
        # SQLite would use the index of states and read all digests that were planned since the run began.
        col(Delivery.state).not_in(FINAL_STATES),
        col(Delivery.possibly_delivered).is_(False),
        col(Delivery.next_attempt_at).is_not(None),
        col(Delivery.give_up_at) <= by,
    )


def is_overdue(now: datetime) -> ColumnElement[bool]:
    """Return the condition that an email must be given up, because its `give_up_at` has passed."""
    return (
        col(Delivery.state).in_(WAITING_STATES)
        & col(Delivery.next_attempt_at).is_not(None)
        & (col(Delivery.give_up_at) <= now)
        & or_(col(Delivery.kind) == MailKind.DIGEST, ~is_all_paused())
    )


def is_recent_or_waiting(since: datetime) -> ColumnElement[bool]:
    """Return the condition that an email was created after `since`, or waits while all sending is paused."""
    return or_(col(Delivery.created_at) > since, col(Delivery.next_attempt_at).is_not(None) & is_all_paused())


def exclude_pause(session: Session, since: datetime, now: datetime) -> None:
    """Move the dates of requested emails that waited during a pause of all sending by the time they waited.

    Their links count from `created_at`, so they work as long as without the pause. An email that may have
    arrived keeps its dates, because it is sent again with the same bytes.
    """
    waiting = select(Delivery).where(
        col(Delivery.kind) != MailKind.DIGEST,
        col(Delivery.state).in_((State.PENDING, State.DEFERRED)),
        col(Delivery.next_attempt_at).is_not(None),
        col(Delivery.possibly_delivered).is_(False),
    )
    ahead = skew(session)  # `created_at` is by the database's clock
    since, now = since + ahead, now + ahead
    waiting = waiting.order_by(col(Delivery.id)).with_for_update()
    for delivery in session.exec(waiting.execution_options(populate_existing=True)):
        waited = max(now - max(since, delivery.created_at), timedelta())
        delivery.created_at += waited
        if delivery.give_up_at:
            delivery.give_up_at += waited


def _give_up(session: Session, condition: ColumnElement[bool]) -> Counter[str]:
    """Give up on the emails that meet a condition. Return their number by new state.

    Skip rows that other transactions have locked.
    """
    columns = select(Delivery.id, Delivery.possibly_delivered).where(condition)
    may_have_arrived = dict(session.exec(columns.with_for_update(skip_locked=True)).all())
    if not may_have_arrived:
        return Counter()
    why = case((col(Delivery.kind) == MailKind.DIGEST, "the next digest is due"), else_="it is out of date")
    last_reason = case((col(Delivery.reason) == "", "never attempted"), else_=col(Delivery.reason))
    values = {
        "state": case((col(Delivery.possibly_delivered), State.UNCERTAIN), else_=State.FAILED),
        "reason": literal("given up because ") + why + ": " + last_reason,
        "next_attempt_at": None,
        "lease_until": None,
    }
    overdue = update(Delivery).where(in_array(session, col(Delivery.id), may_have_arrived))
    session.execute(overdue.values(**values))
    return Counter(State.UNCERTAIN if uncertain else State.FAILED for uncertain in may_have_arrived.values())
