"""The outbox of events for webhooks: the waiting events, with their attempts.

`emit` stores an event in the transaction that causes it, so that both are committed or neither is.
`app.webhooks` sends it.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import func, update
from sqlmodel import Session, col, delete, select

from app.errors import Conflict
from app.storage import webhook_endpoints
from app.storage.database import execute_and_count
from app.storage.growing_delays import GrowingDelays
from app.storage.inserts import insert_many_or_ignore
from app.storage.models import WebhookEndpoint, WebhookEvent, WebhookMessage, WebhookState

# The delays after which an event is sent again that an endpoint did not accept.
RETRY_DELAYS = GrowingDelays(first=timedelta(minutes=1), longest=timedelta(hours=6), factor=4)
GIVE_UP_AFTER = timedelta(days=3)
TEST = "webhook.test"
GONE = 410  # the status with which an endpoint refuses all further events


@dataclass(frozen=True, slots=True)
class WebhookAttempt:
    """The outcome of an attempt. `error` is empty if the endpoint accepted the event."""

    status: int | None = None
    error: str = ""
    wait: timedelta | None = None  # the delay that the endpoint asked for


def emit(
    session: Session, event: WebhookEvent, data: Mapping[str, Any], now: datetime, key: str | None = None
) -> None:
    """Store an event for each endpoint that listens to it. With a `key`, it is stored only once per endpoint.

    `data` must not contain an address. For endpoints that get addresses, the address is added when sending.
    """
    rows = webhook_endpoints.listeners(session, event)
    messages = [message(row.id or 0, event, now, data) | {"key": key} for row in rows]
    insert_many_or_ignore(session, WebhookMessage, ["endpoint_id", "key"], messages)


def is_stored(session: Session, key: str) -> bool:
    """Return whether an event with this key was stored for any endpoint."""
    return session.exec(select(WebhookMessage.id).where(WebhookMessage.key == key)).first() is not None


def message(endpoint_id: int, event: str, now: datetime, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the column values of an event that is due now."""
    return {
        "endpoint_id": endpoint_id, "message_id": f"msg_{secrets.token_hex(16)}", "event": event, "at": now,
        "data": dict(data), "state": WebhookState.PENDING, "attempts": 0, "next_attempt_at": now,
        "give_up_at": now + GIVE_UP_AFTER, "error": "",
    }  # fmt: skip


def due_endpoints(session: Session, now: datetime) -> list[int]:
    """Return the ids of the endpoints with events that are due. Leave out those that asked for a pause."""
    due = select(WebhookMessage.endpoint_id).where(col(WebhookMessage.next_attempt_at) <= now).distinct()
    paused = select(WebhookEndpoint.id).where(col(WebhookEndpoint.paused_until) > now)
    return sorted(set(session.exec(due)) - set(session.exec(paused)))


def due(session: Session, endpoint_id: int, now: datetime, limit: int) -> Sequence[int]:
    """Return the ids of an endpoint's events that are due, oldest first."""
    ids = select(col(WebhookMessage.id)).where(
        WebhookMessage.endpoint_id == endpoint_id, col(WebhookMessage.next_attempt_at) <= now
    )
    return [number or 0 for number in session.exec(ids.order_by(col(WebhookMessage.id)).limit(limit))]


def record_attempt(
    session: Session, message_id: int, url: str, attempt: WebhookAttempt, now: datetime
) -> None:
    """Record the outcome of an attempt at a URL, and schedule the next attempt or give up on the event.

    If the endpoint got a new URL during the attempt, ignore a failure: the event is still due at the new URL.

    If the endpoint asks for a pause (`Retry-After`), all its events wait until the pause ends.

    Disable the endpoint if it responds with GONE, or if the event has failed and the endpoint has accepted
    nothing since the event was created. Do neither if the endpoint was disabled during the attempt.
    """
    row = session.get(WebhookMessage, message_id)
    locked: dict[str, Any] = {"with_for_update": {"key_share": True}, "populate_existing": True}
    endpoint = session.get(WebhookEndpoint, row.endpoint_id, **locked) if row else None
    if row is None or endpoint is None:  # the endpoint was removed in the meantime
        return
    if attempt.error and endpoint.url != url:
        return
    session.refresh(row)
    was_waiting = row.next_attempt_at is not None
    set_outcome(row, endpoint, attempt, now)
    endpoint.paused_until = now + attempt.wait if attempt.wait else None
    if attempt.error and was_waiting:
        row.next_attempt_at = now + max(
            RETRY_DELAYS.after(row.attempts, message_id), attempt.wait or timedelta()
        )
        if row.next_attempt_at >= row.give_up_at:
            row.state, row.next_attempt_at = WebhookState.FAILED, None
    session.add_all([row, endpoint])
    unused = endpoint.accepted_at is None or endpoint.accepted_at < row.at
    if was_waiting and (attempt.status == GONE or (row.state is WebhookState.FAILED and unused)):
        webhook_endpoints.disable(session, endpoint, now)


def set_outcome(
    row: WebhookMessage, endpoint: WebhookEndpoint, attempt: WebhookAttempt, now: datetime
) -> None:
    """Set the outcome of an attempt on the event and on the endpoint."""
    row.attempts, row.attempted_at = row.attempts + 1, now
    row.status, row.error = attempt.status, attempt.error
    endpoint.error = attempt.error
    if not attempt.error:
        row.state, row.next_attempt_at = WebhookState.ACCEPTED, None
        endpoint.accepted_at = now


def resend_failed(session: Session, row: WebhookEndpoint, now: datetime) -> int:
    """Make the failed events of an endpoint due again, and return their number.

    Raise Conflict if the endpoint is disabled.
    """
    if row.disabled_at:
        raise Conflict("this webhook is disabled: enable it first")
    failed = update(WebhookMessage).where(
        col(WebhookMessage.endpoint_id) == row.id,
        col(WebhookMessage.state) == WebhookState.FAILED,
        col(WebhookMessage.event) != TEST,
    )
    values = {"state": WebhookState.PENDING, "attempts": 0, "next_attempt_at": now}
    values["give_up_at"] = now + GIVE_UP_AFTER
    return execute_and_count(session, failed.values(**values))


def count_given_up(session: Session, endpoint_id: int, since: datetime) -> int:
    """Return the number of an endpoint's events since `since` that failed until they were given up.

    Events that waited when the endpoint was disabled do not count.
    """
    given_up = select(func.count()).where(
        WebhookMessage.endpoint_id == endpoint_id,
        col(WebhookMessage.at) >= since,
        WebhookMessage.state == WebhookState.FAILED,
        WebhookMessage.event != TEST,
        WebhookMessage.error != webhook_endpoints.DISABLED,
    )
    return session.exec(given_up).one()


def count_by_state(session: Session, endpoint_id: int) -> dict[WebhookState, int]:
    state = col(WebhookMessage.state)
    rows = select(state, func.count()).where(WebhookMessage.endpoint_id == endpoint_id).group_by(state)
    return dict.fromkeys(WebhookState, 0) | dict(session.exec(rows).all())


def prune(session: Session, before: datetime) -> int:
    """Delete events from before `before` that are not waiting, and return their number."""
    outdated = delete(WebhookMessage).where(
        col(WebhookMessage.at) < before, col(WebhookMessage.next_attempt_at).is_(None)
    )
    return execute_and_count(session, outdated)
