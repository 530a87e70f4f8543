"""Store the URLs to which events are sent, with the secrets that sign them."""

import base64
import re
import secrets
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from urllib.parse import urlsplit

from sqlalchemy import func, update
from sqlmodel import Session, col, delete, select

from app.errors import Conflict, InvalidInput, NotFound
from app.storage.database import advisory_lock
from app.storage.models import WebhookEndpoint, WebhookEvent, WebhookMessage, WebhookState

MAX_ENDPOINTS = 20
MAX_URL = 2000  # characters
OVERLAP = timedelta(days=1)  # previous secrets also sign for this long after a rotation
MAX_PREVIOUS = 2  # previous secrets that sign
DISABLED = "the endpoint was disabled"
_PREFIX = "whsec_"  # defined by Standard Webhooks
_SECRET_BYTES = 32
_LOCK = "webhooks"  # advisory lock, held by each transaction that adds an endpoint or changes its URL


def new_secret() -> str:
    """Return a new secret in the format that Standard Webhooks defines."""
    return f"{_PREFIX}{base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()}"


def add(
    session: Session, url: str, events: Iterable[str], include_addresses: bool, now: datetime
) -> WebhookEndpoint:
    """Add an endpoint. Raise InvalidInput if an argument is invalid.

    Raise Conflict if the URL is in use, or if there are already MAX_ENDPOINTS.
    """
    advisory_lock(session, _LOCK)
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
        row.url, row.paused_until = _check_url(session, url, row.id), None
    if events is not None:
        row.events = sorted({WebhookEvent(event).value for event in events})
        if not row.events:
            raise InvalidInput("choose at least one event", field="events")
    if include_addresses is not None:
        row.include_addresses = include_addresses
    if enabled is True:
        row.disabled_at, row.paused_until, row.error = None, None, ""
    session.add(row)
    session.flush()
    if enabled is False and row.disabled_at is None:
        disable(session, row, now)


def _check_url(session: Session, url: str, own_id: int | None) -> str:
    """Check a URL's syntax and return it without surrounding spaces. Each request checks the host."""
    url = url.strip()
    if len(url.encode(errors="replace")) > MAX_URL:  # it is indexed, so its length in bytes matters
        raise InvalidInput(f"the URL must have at most {MAX_URL:,} characters", "url")
    if not re.fullmatch(r"https?://[^/?#@\s]+([/?][!-\"$-~]*)?", url, re.ASCII):
        raise InvalidInput(
            "a webhook's URL must begin with https:// and contain no user name, password or #", "url"
        )
    advisory_lock(session, _LOCK)
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
    """Replace an endpoint's secret. Until OVERLAP has passed, the previous secret also signs each event.

    If the previous rotation is more recent than OVERLAP, the last MAX_PREVIOUS secrets sign: the receiver
    has the latest one, or an earlier one because the operator lost the latest.
    """
    row.previous_secret = "".join(secrets_of(row, now)[:MAX_PREVIOUS])
    row.previous_until = now + OVERLAP
    row.secret = new_secret()
    session.add(row)


def secrets_of(row: WebhookEndpoint, now: datetime) -> list[str]:
    """Return the secrets that sign events at `now`, newest first."""
    if row.previous_until is None or now >= row.previous_until:
        return [row.secret]
    return [row.secret, *(_PREFIX + secret for secret in row.previous_secret.split(_PREFIX)[1:])]


def listeners(session: Session, event: WebhookEvent) -> list[WebhookEndpoint]:
    """Return the enabled endpoints that listen to an event."""
    enabled = select(WebhookEndpoint).where(col(WebhookEndpoint.disabled_at).is_(None))
    return [row for row in session.exec(enabled) if event in row.events]


def disable_all(session: Session, reason: str, now: datetime) -> list[WebhookEndpoint]:
    """Disable all endpoints of a database that is or has a copy, because the other database sends the events.

    Return the endpoints that were enabled.
    """
    enabled = [row for row in all_endpoints(session) if row.disabled_at is None]
    for row in enabled:
        row.error = reason
        disable(session, row, now)
    return enabled


def disable(session: Session, row: WebhookEndpoint, now: datetime) -> None:
    """Disable an endpoint, and give up on its waiting events."""
    row.disabled_at = now
    session.add(row)
    waiting = update(WebhookMessage).where(
        col(WebhookMessage.endpoint_id) == row.id, col(WebhookMessage.next_attempt_at).is_not(None)
    )
    values = {"state": WebhookState.FAILED, "next_attempt_at": None, "error": DISABLED}
    session.execute(waiting.values(**values))
