"""Pauses of all sending, of one edition, or of the first digests of new subscribers."""

import re
from collections.abc import Collection
from datetime import date, datetime, timedelta

import structlog
from sqlalchemy import event, exists, or_, update
from sqlmodel import Session, col, delete, select

from app.delivery.ledger import suspected_refusals
from app.delivery.ledger.claims import ALL_EDITIONS
from app.delivery.ledger.entries import MAX_EDITION_DELAY, UNDELIVERED, awaiting_first_digest, is_held
from app.delivery.ledger.expiry import exclude_pause
from app.errors import Conflict, InvalidInput
from app.storage import api_keys, audit_log, webhook_outbox
from app.storage.database import execute_and_count
from app.storage.inserts import insert_or_ignore
from app.storage.models import (
    AuditEntry,
    Delivery,
    Event,
    SendingPause,
    WebhookEvent,
)
from app.storage.models import DeliveryState as State

AWAITS_APPROVAL = "it awaits approval"
MOVED = "this database was moved"
ALSO = "; also: "  # between the reasons for a pause
IMPORTED = "subscribers were imported, and their digests have not been checked yet"
# The scope of a pause that holds only the first digests of subscribers who are added or imported during it.
FIRST_DIGESTS = "first digests"
COMPOSED_WITHIN = timedelta(days=3)  # longer than an edition's day lasts in all time zones together
HOLD_AHEAD = timedelta(days=60)  # a later day is probably a mistake
UNSENT = (State.PENDING, State.DEFERRED, State.CLAIMED)

log = structlog.get_logger(__name__)


def pause(session: Session, reason: str, now: datetime, edition: str = ALL_EDITIONS) -> bool:
    """Pause all sending, one edition or FIRST_DIGESTS. Return False if the existing pause and reason remain.

    Add the reason to those of an existing pause, so that the operator who resumes sees all of them. If
    IMPORTED is already one of them, date the pause `now`, so that it does not end with the import that began
    it (see `end_import_pause`).
    """
    values = {"reason": reason, "since": now}
    if insert_or_ignore(session, SendingPause, ["edition"], edition=edition, **values) is not None:
        facts = {"edition": _name(edition), "reason": reason}
        webhook_outbox.emit(session, WebhookEvent.PAUSED, facts, now)
        return True
    row = _lock_row(session, edition)
    if row and reason not in reasons(row) and not is_moved(row):
        row.reason += ALSO + reason
    elif row and reason == IMPORTED:
        row.since = now
    else:
        return False
    return True


def _lock_row(session: Session, scope: str) -> SendingPause | None:
    row = select(SendingPause).where(SendingPause.edition == scope).with_for_update()
    return session.exec(row.execution_options(populate_existing=True)).one_or_none()


def pause_automatically(session: Session, reason: str, now: datetime) -> None:
    """Pause all sending without an operator, unless it is paused for the same cause. Then log an error.

    Log it as well, because the relay may also refuse the email that alerts operators. `reason` must not
    contain an address, because it outlives the erasure of a subscriber.
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


def _cause(reason: str) -> list[str]:
    """Return the words of an automatic reason without numbers and the relay's reply, which may differ."""
    return [word for word in reason.partition(":")[0].split() if re.search("[a-z]", word)]


def _name(edition: str) -> str | None:
    """Return the name of an edition for events, or None for all sending."""
    return None if edition == ALL_EDITIONS else edition


def end_import_pause(session: Session, since: datetime, scope: str = ALL_EDITIONS) -> bool:
    """End the pause that an import began at `since`. Return False if it is over or was taken over.

    Also return False if it has other reasons by now: they remain.
    """
    row = _lock_row(session, scope)
    if row is None or row.since != since or IMPORTED not in reasons(row):
        return False
    if remove_reason(session, IMPORTED, scope):
        return False
    if scope == FIRST_DIGESTS:
        _release_first_digests(session)
    return True


def remove_reason(session: Session, reason: str, scope: str = ALL_EDITIONS) -> bool:
    """Remove a reason for a pause, and end the pause if it has no other. Return whether it has.

    Emails do not change, unlike in `resume`.
    """
    row = _lock_row(session, scope)
    others = [each for each in reasons(row) if each != reason] if row else []
    if row and others:
        row.reason = ALSO.join(others)
    elif row:
        session.delete(row)
    session.flush()
    return bool(others)


def _release_first_digests(session: Session) -> None:
    """Release the held digests.

    The caller must have deleted the pause, so that planning does not hold more digests.
    """
    session.execute(update(Delivery).where(is_held()).values(next_attempt_at=Delivery.due_at))


def hold_new(session: Session, editions: Collection[str], now: datetime) -> None:
    """Pause the editions that have had no scheduled digests yet, until an operator resumes (approves) them.

    `editions` must be those to which digests are being added, because nobody can approve an edition in which
    everyone was skipped. Skips in the ledger do not count, but the digests of erased subscribers do.
    Requested first digests do not count, because the operator who approves them has not seen the scheduled
    ones. Withdrawn digests count, because an approval also covers the digests that replace them. Call this in
    the transaction that adds the digests, before adding them.
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
        # Skips in planning have no time to give up. The content of digests of erased subscribers is deleted.
        has_digest = or_(col(Delivery.state) != State.SKIPPED, col(Delivery.give_up_at).is_not(None))
        scheduled = select(Delivery.id).where(in_edition, has_digest, ~is_requested)
        scheduled = scheduled.order_by(Delivery.edition)
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


def unsent_editions(session: Session, editions: Collection[str]) -> set[str]:
    """Return the editions among `editions` with emails that may still be sent, including uncertain ones."""
    unsent = col(Delivery.edition).in_(editions), col(Delivery.state).in_((*UNSENT, State.UNCERTAIN))
    return set(session.exec(select(Delivery.edition).where(*unsent).distinct()))


def resume(session: Session, now: datetime, edition: str = ALL_EDITIONS, *, force: bool = False) -> bool:
    """End a pause for an operator. Return False if there was none.

    If all sending was paused, the dates of waiting requested emails are moved by the time they waited (see
    `exclude_pause`). Raise Conflict if the database was moved, because the new database sends the digests.
    With `force`, resume anyway.
    """
    row = session.exec(select(SendingPause).where(SendingPause.edition == edition)).first()
    if row and is_moved(row) and not force:
        raise Conflict(
            f"{row.reason}, so digests are sent from there; to send from here anyway, run "
            "paperboy sending resume --force"
        )
    if row and edition == ALL_EDITIONS:
        suspected_refusals.reset(session, row.since)
        exclude_pause(session, row.since, now)
    count = execute_and_count(session, delete(SendingPause).where(col(SendingPause.edition) == edition))
    if edition == FIRST_DIGESTS:
        _release_first_digests(session)
    return bool(count)


def prune_pauses(session: Session, now: datetime) -> int:
    """Delete the pauses of past editions that hold nothing, and return their number.

    Their emails were given up or cancelled, or they never had any.
    """
    last = (now - MAX_EDITION_DELAY).date().isoformat()
    is_past = (col(SendingPause.edition) < last) & (col(SendingPause.edition) != ALL_EDITIONS)
    past = set(session.exec(select(SendingPause.edition).where(is_past)))
    empty = past - unsent_editions(session, past)
    return execute_and_count(session, delete(SendingPause).where(col(SendingPause.edition).in_(empty)))


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
    """Return the subscribers in `subscriber_ids` whose first digest must be held.

    These are subscribers who have been added or imported since the pause began, and have not confirmed since.
    """
    paused = select(SendingPause.since).where(SendingPause.edition == FIRST_DIGESTS)
    since = session.exec(paused.with_for_update(read=True)).first()  # lock the pause until we commit
    return awaiting_first_digest(session, subscriber_ids, since) if since else set()


def pauses(session: Session) -> list[SendingPause]:
    return list(session.exec(select(SendingPause).order_by(col(SendingPause.since))))


def hold_reason(current: Collection[SendingPause], delivery: Delivery) -> str:
    """Return the reasons why an unsent email is held back, or "". `current` is the result of `pauses`."""
    scopes = {ALL_EDITIONS, delivery.edition}
    if delivery.next_attempt_at is None:
        scopes.add(FIRST_DIGESTS)
    if delivery.state not in UNSENT:
        return ""
    holding = (reason for pause in current if pause.edition in scopes for reason in reasons(pause))
    return ALSO.join(dict.fromkeys(holding))


def reasons_by_delivery(session: Session, deliveries: Collection[Delivery]) -> dict[int, str]:
    """Return, by id, why each email was not sent, was deferred or is held back. "" if there is no reason."""
    current = pauses(session)
    return {
        delivery.id or 0: ALSO.join(filter(None, (delivery.reason, hold_reason(current, delivery))))
        for delivery in deliveries
    }


def is_released(current: Collection[SendingPause], delivery: Delivery, now: datetime) -> bool:
    """Return whether a subscriber may read a digest. `current` is the result of `pauses`.

    Return False before it is due, while it is held, and if it was cancelled, or given up before any attempt
    to send it. A digest that may have arrived stays readable.
    """
    if delivery.state is State.SENT or delivery.possibly_delivered:
        return True
    never_sent = delivery.state is State.SKIPPED or (delivery.state in UNDELIVERED and not delivery.attempts)
    return delivery.due_at <= now and not never_sent and not hold_reason(current, delivery)
