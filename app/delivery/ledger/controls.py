"""Operator controls: pause, resume, cancel, resend or confirm uncertain emails, and retry failed digests."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from datetime import date, datetime, timedelta
from typing import Any

import structlog
from sqlalchemy import ColumnElement, Select, and_, case, event, exists, func, literal, or_, update
from sqlalchemy import select as sql_select
from sqlalchemy.orm import aliased
from sqlmodel import Session, col, delete, select
from sqlmodel.sql.expression import SelectOfScalar

from app.delivery.ledger import suspected_refusals
from app.delivery.ledger.claims import ALL_EDITIONS
from app.delivery.ledger.entries import CANCELLED, UNDELIVERED, is_held, with_digest
from app.errors import Conflict, InvalidInput, NotFound
from app.storage import api_keys, audit_log, webhook_outbox
from app.storage.column_types import UtcDateTime
from app.storage.database import execute_and_count, in_array
from app.storage.inserts import insert_or_ignore
from app.storage.models import (
    AuditEntry,
    Delivery,
    DigestContent,
    Event,
    SendingPause,
    Subscriber,
    SubscriberState,
    WebhookEvent,
)
from app.storage.models import DeliveryState as State
from app.types import MailKind

AWAITS_APPROVAL = "it awaits approval"
MOVED = "this database was moved"
ALSO = "; also: "  # between the reasons for a pause
ARRIVED = "It arrived, according to an operator."
IMPORTED = "subscribers were imported, and their digests have not been checked yet"
# The scope of a pause that holds only the first digests of subscribers who were added or imported.
FIRST_DIGESTS = "first digests"
COMPOSED_WITHIN = timedelta(days=3)  # longer than an edition's day lasts in all time zones together
HOLD_AHEAD = timedelta(days=60)  # a later day is probably a mistake
UNSENT = (State.PENDING, State.DEFERRED, State.CLAIMED)
# Emails in flight are cancelled as well, so that they are not retried. The relay's reply is still recorded.
CANCELLABLE = (*UNSENT, State.COMMITTING)

log = structlog.get_logger(__name__)


def pause(session: Session, reason: str, now: datetime, edition: str = ALL_EDITIONS) -> bool:
    """Pause all sending, one edition or FIRST_DIGESTS. Return False if the existing pause and reason remain.

    Add the reason to that of an existing pause, so that whoever resumes knows both. If an import began the
    pause, replace its reason; otherwise, the pause would end with the import (see `end_import_pause`).
    """
    values = {"reason": reason, "since": now}
    if insert_or_ignore(session, SendingPause, ["edition"], edition=edition, **values) is not None:
        facts = {"edition": _name(edition), "reason": reason}
        webhook_outbox.emit(session, WebhookEvent.PAUSED, facts, now)
        return True
    existing = select(SendingPause).where(SendingPause.edition == edition).with_for_update()
    row = session.exec(existing.execution_options(populate_existing=True)).one_or_none()
    if row and row.reason == IMPORTED:
        row.reason, row.since = reason, now
    elif row and reason not in reasons(row) and not is_moved(row):
        row.reason += ALSO + reason
    else:
        return False
    return True


def pause_automatically(session: Session, reason: str, now: datetime) -> None:
    """Pause all sending without an operator, unless it is paused for the same cause. Then log an error.

    The log must report the pause, because the relay may refuse the alert, too. `reason` must not contain an
    address, because it outlives the erasure of a subscriber.
    """
    reasons = session.exec(select(SendingPause.reason).where(SendingPause.edition == ALL_EDITIONS)).first()
    if _cause(reason) in map(_cause, (reasons or "").split(ALSO)) or not pause(session, reason, now):
        return
    actor, action = api_keys.AUTOMATIC, audit_log.SENDING_PAUSED
    audit_log.record(session, actor, action, ALL_EDITIONS, now, reason=reason)

    @event.listens_for(session, "after_commit", once=True)
    def log_pause(_session: Session) -> None:
        fix = "paperboy sending resume, when the reason no longer applies"
        log.error("all sending is paused", reason=reason, fix=fix)


def reasons(pause: SendingPause) -> list[str]:
    """Return the reasons for a pause, oldest first."""
    return pause.reason.split(ALSO)


def awaits_approval(reason: str) -> bool:
    """Return whether an edition that is paused for this reason waits until an operator approves it."""
    return AWAITS_APPROVAL in reason.split(ALSO)


def is_moved(pause: SendingPause) -> bool:
    """Return whether sending is paused because the database was moved."""
    return any(reason.startswith(MOVED) for reason in reasons(pause))


def _cause(reason: str) -> str:
    """Return the reason for an automatic pause without numbers and the relay's reply, which may differ."""
    return re.sub(r"[\d.,]+", "", reason.partition(":")[0])


def _name(edition: str) -> str | None:
    """Return the name of an edition for events, or None for all sending."""
    return None if edition == ALL_EDITIONS else edition


def end_import_pause(
    session: Session, since: datetime, scope: str = ALL_EDITIONS, earlier: datetime | None = None
) -> bool:
    """End the pause that an import began at `since`. Return False if it is over or was replaced.

    If it was taken over from an import that had begun it at `earlier`, give it back and return False.
    """
    own = (
        col(SendingPause.edition) == scope,
        col(SendingPause.reason) == IMPORTED,
        col(SendingPause.since) == since,
    )
    if earlier:
        session.execute(update(SendingPause).where(*own).values(since=earlier))
        return False
    if not execute_and_count(session, delete(SendingPause).where(*own)):
        return False
    if scope == FIRST_DIGESTS:
        _release_first_digests(session)
    return True


def _release_first_digests(session: Session) -> None:
    """Release the held digests.

    The caller must have deleted the pause, so that planning does not hold more digests.
    """
    session.execute(update(Delivery).where(is_held()).values(next_attempt_at=Delivery.due_at))


def hold_new(session: Session, editions: Collection[str], now: datetime) -> None:
    """Pause the editions that have had no scheduled digests yet, until an operator resumes (approves) them.

    Requested first digests do not count, because whoever approves them has not seen the scheduled ones.
    Withdrawn digests count, because an approval also covers the digests that replace them. Call this in the
    transaction that adds the digests of these editions, before adding them.
    """
    for edition in sorted(set(editions)):
        is_requested = exists().where(
            col(Event.subscriber_id) == Delivery.subscriber_id,
            col(Event.kind) == "first_asked",
            col(Event.at) == Delivery.due_at,  # a requested digest is due at once
            col(Event.at) > now - COMPOSED_WITHIN,
        )
        # A sorted range, because PostgreSQL reads the whole table for the first row of a large edition.
        in_edition = col(Delivery.edition).between(edition, edition)
        scheduled = select(Delivery.id).where(in_edition, ~is_requested).order_by(Delivery.edition)
        withdrawn = select(Event.id).where(
            Event.kind == "digest_withdrawn", Event.at > now - COMPOSED_WITHIN, Event.detail == edition
        )
        if all(session.exec(digests.limit(1)).first() is None for digests in (scheduled, withdrawn)):
            pause(session, AWAITS_APPROVAL, now, edition)


def pause_edition(session: Session, edition: str, reason: str, now: datetime) -> None:
    """Pause a planned or upcoming edition. Otherwise, raise InvalidInput like `hold`."""
    if not planned_editions(session, [edition]):
        _require_upcoming(edition, now)
    pause(session, reason, now, edition)


def hold(session: Session, edition: str, now: datetime) -> None:
    """Pause an upcoming edition, such as 2026-11-20, until an operator approves it.

    Raise InvalidInput if the edition is not a date, is over or is too far ahead. Raise Conflict if it has
    been planned or is already held.
    """
    _require_upcoming(edition, now)
    if planned_editions(session, [edition]):
        raise Conflict(f"the edition {edition} has already been planned: pause it instead")
    if is_paused(session, edition):
        raise Conflict(f"the edition {edition} is already held")
    pause(session, AWAITS_APPROVAL, now, edition)


def _require_upcoming(edition: str, now: datetime) -> None:
    try:
        day = date.fromisoformat(edition)
    except ValueError:
        day = date.min
    if day.isoformat() != edition or day == date.min:
        raise InvalidInput(f"“{edition}” is not an edition: enter a date, such as 2026-11-20", "edition")
    if day < (now - timedelta(days=1)).date():  # the day may not be over in every time zone
        raise InvalidInput(f"the edition {edition} is over: choose a later one", "edition")
    if day > (now + HOLD_AHEAD).date():
        raise InvalidInput(f"{edition} is more than {HOLD_AHEAD.days} days away: check the year", "edition")


def planned_editions(session: Session, editions: Collection[str]) -> set[str]:
    """Return the editions among `editions` that have emails."""
    return set(session.exec(select(Delivery.edition).where(col(Delivery.edition).in_(editions)).distinct()))


def resume(session: Session, edition: str = ALL_EDITIONS, *, force: bool = False) -> bool:
    """End a pause. Return False if there was none.

    Raise Conflict if the database was moved, because the new database sends the digests. With `force`,
    resume anyway.
    """
    row = session.exec(select(SendingPause).where(SendingPause.edition == edition)).first()
    if row and is_moved(row) and not force:
        raise Conflict(
            f"{row.reason}, so digests are sent from there; to send from here anyway, run "
            "paperboy sending resume --force"
        )
    if row and edition == ALL_EDITIONS:
        suspected_refusals.reset(session, row.since)
    count = execute_and_count(session, delete(SendingPause).where(col(SendingPause.edition) == edition))
    if edition == FIRST_DIGESTS:
        _release_first_digests(session)
    return bool(count)


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
    """Return the ids of the deliveries that `resend_uncertain` and `confirm_uncertain` are about, sorted."""
    uncertain = col(Delivery.edition) == edition, col(Delivery.state) == State.UNCERTAIN
    return list(session.scalars(sql_select(col(Delivery.id)).where(*uncertain).order_by(col(Delivery.id))))


def resend_uncertain(session: Session, edition: str, now: datetime) -> int:
    """Have all uncertain digests of an edition sent again, except those whose content is lost.

    Return their number.
    """
    has_content = exists().where(col(DigestContent.delivery_id) == Delivery.id)
    uncertain = update(Delivery).where(
        col(Delivery.edition) == edition, col(Delivery.state) == State.UNCERTAIN, has_content
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
        col(Delivery.created_at) >= since,
        col(Delivery.kind) == MailKind.DIGEST,
        col(Delivery.state) == State.UNCERTAIN,
        col(Delivery.next_attempt_at).is_(None),
    )
    return _count_by_edition(session, held)


def retry_failed(session: Session, edition: str, now: datetime) -> int:
    """Send the failed digests of an edition again, as new emails. Return their number.

    A digest stays failed if it may have arrived, if its content is lost, if its subscriber no longer gets
    digests, or if a later digest, which may contain the same papers, is due or was or will be sent. A retried
    digest is given up when the subscriber's next one is due, like any other.
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
    is_waiting = _not_due(now).where(col(Subscriber.id) == Delivery.subscriber_id).exists()
    retryable = _retryable(col(Delivery.edition)).where(col(Delivery.created_at) >= since, is_waiting)
    return _count_by_edition(session, retryable)


def _count_by_edition(session: Session, mails: Select[Any]) -> dict[str, int]:
    """Count the selected emails by edition. GROUP BY would make SQLite read the emails of all editions."""
    return dict(sorted(Counter(session.execute(mails).scalars()).items()))


def _not_due(now: datetime) -> SelectOfScalar[int | None]:
    """Select the active subscribers whose next digest is not due yet."""
    is_active = Subscriber.state == SubscriberState.ACTIVE
    return select(col(Subscriber.id)).where(is_active, col(Subscriber.next_due_at) > now)


def _failed_digests() -> ColumnElement[bool]:
    return (col(Delivery.kind) == MailKind.DIGEST) & (col(Delivery.state) == State.FAILED)


def _retryable(*columns: Any) -> Select[Any]:
    """Select failed digests that cannot have arrived.

    Leave out those whose content is lost, and those whose subscriber has a later digest.
    """
    later = aliased(Delivery)
    has_later = exists().where(
        col(later.subscriber_id) == Delivery.subscriber_id,
        col(later.kind) == MailKind.DIGEST,
        col(later.created_at) > Delivery.created_at,
        col(later.state).not_in(UNDELIVERED),
    )
    has_content = exists().where(col(DigestContent.delivery_id) == Delivery.id)
    is_undelivered = ~col(Delivery.possibly_delivered)
    return sql_select(*columns).where(_failed_digests(), is_undelivered, has_content, ~has_later)


def lock_pause(session: Session, scope: str) -> str:
    """Return the reason for a pause, or "". No reason is added to it until the transaction ends."""
    reason = select(SendingPause.reason).where(SendingPause.edition == scope).with_for_update()
    return session.exec(reason).first() or ""


def is_paused(session: Session, scope: str = ALL_EDITIONS) -> bool:
    """Return whether a scope is paused: all editions, one edition or the first digests."""
    paused = select(SendingPause.id).where(SendingPause.edition == scope)
    return session.exec(paused).first() is not None


def last_automatic(session: Session, pause: SendingPause) -> datetime | None:
    """Return when `pause_automatically` last began a pause or added a reason to it, or None if never."""
    entries = select(AuditEntry.at).where(
        AuditEntry.at >= pause.since,
        AuditEntry.actor == api_keys.AUTOMATIC,
        AuditEntry.action == audit_log.SENDING_PAUSED,
        AuditEntry.subject == pause.edition,
    )
    return session.exec(entries.order_by(col(AuditEntry.at).desc())).first()


def first_digests_to_hold(session: Session, subscriber_ids: Collection[int]) -> set[int]:
    """Return the added or imported subscribers in `subscriber_ids` whose first digest must be held."""
    paused = select(SendingPause.id).where(SendingPause.edition == FIRST_DIGESTS)
    if session.exec(paused.with_for_update(read=True)).first() is None:  # lock the pause until we commit
        return set()
    waiting = set(subscriber_ids) - with_digest(session, subscriber_ids)
    added = select(Event.subscriber_id).where(
        in_array(session, col(Event.subscriber_id), waiting), Event.kind == "added"
    )
    return {number for number in session.exec(added) if number is not None}


def pauses(session: Session) -> list[SendingPause]:
    return list(session.exec(select(SendingPause).order_by(col(SendingPause.since))))


def hold_reason(current: Collection[SendingPause], delivery: Delivery) -> str:
    """Return the reason why an unsent email is held back, or "". `current` is the result of `pauses`."""
    scopes = {ALL_EDITIONS, delivery.edition}
    if delivery.next_attempt_at is None:
        scopes.add(FIRST_DIGESTS)
    if delivery.state not in UNSENT:
        return ""
    return next((pause.reason for pause in current if pause.edition in scopes), "")


def is_released(current: Collection[SendingPause], delivery: Delivery, now: datetime) -> bool:
    """Return whether a subscriber may read a digest. `current` is the result of `pauses`.

    Return False before it is due, while it is held, and if it was cancelled, or given up before any attempt
    to send it. A digest that may have arrived stays readable.
    """
    if delivery.state is State.SENT or delivery.possibly_delivered:
        return True
    never_sent = delivery.state is State.SKIPPED or (delivery.state in UNDELIVERED and not delivery.attempts)
    return delivery.due_at <= now and not never_sent and not hold_reason(current, delivery)
