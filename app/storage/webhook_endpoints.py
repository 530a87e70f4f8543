"""Store the URLs to which events are sent, and the outbox: the waiting events, with their attempts.

`emit` stores an event in the transaction that causes it, so that both are committed or neither is.
`app.webhooks` sends it.
"""

from __future__ import annotations

import base64
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import func, update
from sqlmodel import Session, col, delete, select

from app.errors import Conflict, InvalidInput, NotFound
from app.storage.database import execute_and_count, insert_many_or_ignore
from app.storage.growing_delays import GrowingDelays
from app.storage.models import WebhookEndpoint, WebhookEvent, WebhookMessage, WebhookState

MAX_ENDPOINTS = 20
MAX_URL = 2000  # characters
# The delays after which an event is sent again that an endpoint did not accept.
RETRY_DELAYS = GrowingDelays(first=timedelta(minutes=1), longest=timedelta(hours=6), factor=4)
GIVE_UP_AFTER = timedelta(days=3)
OVERLAP = timedelta(days=1)  # the previous secret also signs for this long after a rotation
TEST = "webhook.test"
DISABLED = "the endpoint was disabled"
GONE = 410  # the status with which an endpoint refuses all further events
_SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class WebhookAttempt:
    """The outcome of an attempt. `error` is empty if the endpoint accepted the event."""

    status: int | None = None
    error: str = ""
    wait: timedelta | None = None  # the delay that the endpoint asked for


def new_secret() -> str:
    """Return a new secret in the format that Standard Webhooks defines."""
    return f"whsec_{base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()}"


def add(
    session: Session, url: str, events: Iterable[str], include_addresses: bool, now: datetime
) -> WebhookEndpoint:
    """Add an endpoint. Raise InvalidInput if an argument is invalid.

    Raise Conflict if the URL is in use, or if there are already MAX_ENDPOINTS.
    """
    if session.exec(select(func.count()).select_from(WebhookEndpoint)).one() >= MAX_ENDPOINTS:
        raise Conflict(f"there are already {MAX_ENDPOINTS} webhooks: remove one first")
    row = WebhookEndpoint(url="", include_addresses=include_addresses, secret=new_secret(), created_at=now)
    change(session, row, url=url, events=events, now=now)
    return row


def change(
    session: Session,
    row: WebhookEndpoint,
    *,
    url: str | None = None,
    events: Iterable[str] | None = None,
    include_addresses: bool | None = None,
    enabled: bool | None = None,
    now: datetime,
) -> None:
    """Change an endpoint. Raise InvalidInput if a value is invalid, or Conflict if the URL is in use."""
    if url is not None:
        row.url = _check_url(session, url, row.id)
    if events is not None:
        row.events = sorted({WebhookEvent(event).value for event in events})
        if not row.events:
            raise InvalidInput("choose at least one event", field="events")
    if include_addresses is not None:
        row.include_addresses = include_addresses
    if enabled is True:
        row.disabled_at, row.error = None, ""
    session.add(row)
    session.flush()
    if enabled is False and row.disabled_at is None:
        _disable(session, row, now)


def _check_url(session: Session, url: str, own_id: int | None) -> str:
    """Check a URL's syntax and return it without surrounding spaces. Each request checks the host."""
    url = url.strip()
    if len(url) > MAX_URL:
        raise InvalidInput(f"the URL must have at most {MAX_URL:,} characters", "url")
    if not re.fullmatch(r"https?://[^/?#@\s]+([/?][!-\"$-~]*)?", url, re.ASCII):
        raise InvalidInput(
            "a webhook's URL must begin with https:// and contain no user name, password or #", "url"
        )
    same = select(WebhookEndpoint.id).where(WebhookEndpoint.url == url)
    if session.exec(same).first() not in (None, own_id):
        raise Conflict("there is already a webhook with this URL: change or remove that one")
    return url


def origin(url: str) -> str:
    """Return the scheme and host of a URL. Its path and query may contain a secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def label(row: WebhookEndpoint) -> str:
    """Return an endpoint's number and origin for display."""
    return f"{row.id} ({origin(row.url)})"


def get(session: Session, endpoint_id: int) -> WebhookEndpoint:
    """Return an endpoint. Raise NotFound if there is none with this id."""
    row = session.get(WebhookEndpoint, endpoint_id)
    if row is None:
        raise NotFound(f"there is no webhook {endpoint_id}")
    return row


def get_for_update(session: Session, endpoint_id: int) -> WebhookEndpoint:
    """Return an endpoint and lock its row. Raise NotFound like `get`."""
    session.get(WebhookEndpoint, endpoint_id, with_for_update=True, populate_existing=True)
    return get(session, endpoint_id)


def all_endpoints(session: Session) -> Sequence[WebhookEndpoint]:
    return session.exec(select(WebhookEndpoint).order_by(col(WebhookEndpoint.id))).all()


def remove(session: Session, row: WebhookEndpoint) -> None:
    """Remove an endpoint and its events."""
    session.execute(delete(WebhookMessage).where(col(WebhookMessage.endpoint_id) == row.id))
    session.delete(row)


def rotate(session: Session, row: WebhookEndpoint, now: datetime) -> None:
    """Replace an endpoint's secret. Until OVERLAP has passed, each event is signed with both secrets."""
    row.previous_secret, row.previous_until = row.secret, now + OVERLAP
    row.secret = new_secret()
    session.add(row)


def secrets_of(row: WebhookEndpoint, now: datetime) -> list[str]:
    """Return the secrets that sign events at `now`, newest first."""
    both = row.previous_until is not None and now < row.previous_until
    return [row.secret, row.previous_secret] if both else [row.secret]


def emit(
    session: Session, event: WebhookEvent, data: Mapping[str, Any], now: datetime, key: str | None = None
) -> None:
    """Store an event for each endpoint that listens to it. With a `key`, it is stored only once per endpoint.

    `data` must not contain an address. For endpoints that get addresses, the address is added when sending.
    """
    rows = listeners(session, event)
    messages = [message(row.id or 0, event, now, data) | {"key": key} for row in rows]
    insert_many_or_ignore(session, WebhookMessage, ["endpoint_id", "key"], messages)


def listeners(session: Session, event: WebhookEvent) -> list[WebhookEndpoint]:
    """Return the endpoints that listen to an event."""
    enabled = select(WebhookEndpoint).where(col(WebhookEndpoint.disabled_at).is_(None))
    return [row for row in session.exec(enabled) if event in row.events]


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
    """Return the ids of the endpoints with events that are due."""
    due = select(WebhookMessage.endpoint_id).where(col(WebhookMessage.next_attempt_at) <= now)
    return sorted(session.exec(due.distinct()))


def due(session: Session, endpoint_id: int, now: datetime, limit: int) -> Sequence[int]:
    """Return the ids of an endpoint's events that are due, oldest first."""
    ids = select(col(WebhookMessage.id)).where(
        WebhookMessage.endpoint_id == endpoint_id, col(WebhookMessage.next_attempt_at) <= now
    )
    return [number or 0 for number in session.exec(ids.order_by(col(WebhookMessage.id)).limit(limit))]


def record_attempt(session: Session, message_id: int, attempt: WebhookAttempt, now: datetime) -> None:
    """Record the outcome of an attempt, and schedule the next attempt or give up on the event.

    Disable the endpoint if it responds with GONE, or if the event has failed and the endpoint has accepted
    nothing since the event was created.
    """
    row = session.get(WebhookMessage, message_id)
    endpoint = session.get(WebhookEndpoint, row.endpoint_id) if row else None
    if row is None or endpoint is None:  # the endpoint was removed in the meantime
        return
    set_outcome(row, endpoint, attempt, now)
    if attempt.error:
        row.next_attempt_at = now + max(
            RETRY_DELAYS.after(row.attempts, message_id), attempt.wait or timedelta()
        )
        if row.next_attempt_at >= row.give_up_at:
            row.state, row.next_attempt_at = WebhookState.FAILED, None
    session.add_all([row, endpoint])
    session.flush()
    unused = endpoint.accepted_at is None or endpoint.accepted_at < row.at
    if attempt.status == GONE or (row.state is WebhookState.FAILED and unused):
        _disable(session, endpoint, now)


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


def disable_all(session: Session, reason: str, now: datetime) -> list[WebhookEndpoint]:
    """Disable all endpoints of a database that is or has a copy, because the other database sends the events.

    Return the endpoints that were enabled.
    """
    enabled = [row for row in all_endpoints(session) if row.disabled_at is None]
    for row in enabled:
        row.error = reason
        _disable(session, row, now)
    return enabled


def _disable(session: Session, row: WebhookEndpoint, now: datetime) -> None:
    row.disabled_at = now
    session.add(row)
    waiting = update(WebhookMessage).where(
        col(WebhookMessage.endpoint_id) == row.id, col(WebhookMessage.next_attempt_at).is_not(None)
    )
    values = {"state": WebhookState.FAILED, "next_attempt_at": None, "error": DISABLED}
    session.execute(waiting.values(**values))


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


def count_by_state(session: Session, endpoint_id: int) -> dict[WebhookState, int]:
    """Count the stored events of an endpoint by state."""
    state = col(WebhookMessage.state)
    rows = select(state, func.count()).where(WebhookMessage.endpoint_id == endpoint_id).group_by(state)
    return dict.fromkeys(WebhookState, 0) | dict(session.exec(rows).all())


def prune(session: Session, before: datetime) -> int:
    """Delete events from before `before` that are not waiting, and return their number."""
    outdated = delete(WebhookMessage).where(
        col(WebhookMessage.at) < before, col(WebhookMessage.next_attempt_at).is_(None)
    )
    return execute_and_count(session, outdated)
