"""Carry out a request with an idempotency key only once, and store its response.

The claim, the change and the response are three transactions. The claim is marked in the transaction of the
change (see `audit_log.record`), so a request is never carried out twice, even if its process is killed or its
lease expires. Responses about a subscriber are deleted when the subscriber is erased.
"""

import hashlib
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, delete, update
from sqlmodel import Session, col, select

from app.errors import Conflict, InvalidInput
from app.storage import live_processes
from app.storage.database import execute_and_count
from app.storage.inserts import insert_or_ignore
from app.storage.models import IdempotencyKey

LIFETIME = timedelta(hours=24)
LEASE = timedelta(minutes=2)  # of a running request, if the death of its process cannot be detected
UNDER_WAY = "the first request with this Idempotency-Key is still running: repeat this request in a moment"


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A stored HTTP response. The body is None if it must not be stored, or was lost or deleted.

    The status is None if the response was lost.
    """

    status: int | None
    body: str | None


@dataclass(slots=True)
class Attempt:
    """One attempt at a request. `name` is empty until `claim` has claimed its idempotency key."""

    key: str
    fingerprint: str
    holder: str = field(default_factory=live_processes.new_holder)
    name: str = ""


# The attempt at the current request. It is an object that threads change, because a thread cannot set a
# context variable for its caller.
current: ContextVar[Attempt | None] = ContextVar("idempotent_attempt", default=None)


def claim(session: Session, attempt: Attempt, api_key_id: int, now: datetime) -> StoredResponse | None:
    """Claim an idempotency key for an attempt.

    Return the stored response if the request was carried out before, or None if this attempt may carry it
    out. Raise InvalidInput if the key was used for another request, or Conflict while another attempt runs.
    """
    name = hashlib.sha256(f"{api_key_id} {attempt.key}".encode()).hexdigest()
    if presence := session.info.get("presence"):
        presence.announce()
    values = _new_claim(attempt, now)
    if insert_or_ignore(session, IdempotencyKey, ["name"], name=name, **values) is None:
        locked = select(IdempotencyKey).where(IdempotencyKey.name == name).with_for_update()
        row = session.exec(locked.execution_options(populate_existing=True)).one_or_none()
        if row is None:  # the other request has just failed
            raise Conflict(UNDER_WAY)
        if row.expires_at > now and (response := _previous_response(session, row, attempt, now)):
            return response
        session.execute(update(IdempotencyKey).where(col(IdempotencyKey.name) == name).values(**values))
    attempt.name = name
    return None


def _new_claim(attempt: Attempt, now: datetime) -> dict[str, Any]:
    return {
        "fingerprint": attempt.fingerprint,
        "holder": attempt.holder,
        "until": now + LEASE,
        "changed": False,
        "subject": "",
        "status": None,
        "answer": None,
        "expires_at": now + LIFETIME,
    }


def _previous_response(
    session: Session, row: IdempotencyKey, attempt: Attempt, now: datetime
) -> StoredResponse | None:
    """Return the response to an earlier attempt, or None if this attempt may take over."""
    if row.fingerprint != attempt.fingerprint:
        raise InvalidInput("this Idempotency-Key was used for another request: use a new key")
    if row.status is not None:
        return StoredResponse(row.status, row.answer)
    if row.until > now and live_processes.is_alive(session, row.holder) is not False:
        raise Conflict(UNDER_WAY)
    return StoredResponse(None, None) if row.changed else None


def note_change(session: Session, subject: str) -> None:
    """Record that the current attempt made its change. Call this in the transaction of the change.

    Raise Conflict, which undoes the change, if another attempt has taken over.
    """
    attempt = current.get()
    if attempt is None or not attempt.name:
        return
    own = update(IdempotencyKey).where(*_own(attempt))
    if not execute_and_count(session, own.values(changed=True, subject=subject)):
        raise Conflict(UNDER_WAY)


def store_response(session: Session, attempt: Attempt, response: StoredResponse) -> None:
    """Store the response to an attempt, if no other attempt has taken over."""
    values = {"status": response.status, "answer": response.body}
    session.execute(update(IdempotencyKey).where(*_own(attempt)).values(**values))


def release(session: Session, attempt: Attempt) -> None:
    """Delete the claim of an attempt that failed, unless it changed something."""
    session.execute(delete(IdempotencyKey).where(*_own(attempt), col(IdempotencyKey.changed).is_(False)))


def _own(attempt: Attempt) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return col(IdempotencyKey.name) == attempt.name, col(IdempotencyKey.holder) == attempt.holder


def erase_responses(session: Session, *subjects: str) -> None:
    """Delete the responses about these subjects, which are named as in the audit log."""
    about = col(IdempotencyKey.subject).in_(subjects)
    erased = update(IdempotencyKey).where(about).values(answer=None, subject="", status=0)
    session.execute(erased, execution_options={"synchronize_session": False})


def prune(session: Session, now: datetime) -> None:
    """Delete expired keys."""
    session.execute(delete(IdempotencyKey).where(col(IdempotencyKey.expires_at) <= now))
