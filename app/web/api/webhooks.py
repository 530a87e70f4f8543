"""Webhooks: the URLs to which events are sent. Add, change, test and remove them; list their events."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from sqlmodel import Session, col, select

from app import webhooks
from app.errors import Conflict
from app.storage import webhook_endpoints, webhook_outbox
from app.storage.api_keys import Scope
from app.storage.models import WebhookEndpoint, WebhookEvent, WebhookMessage, WebhookState
from app.web.api import problems
from app.web.api.auth import Caller, CanRead, CanWrite, Id
from app.web.api.etags import IfMatch, Versioned, require_match
from app.web.api.idempotency import SecretResponse
from app.web.api.pagination import Page, Paging, newest_first
from app.web.api.values import Representation, RequestBody

router = APIRouter(prefix="/webhooks", tags=["webhooks"])

Url = Annotated[
    str,
    Field(
        json_schema_extra={"maxLength": webhook_endpoints.MAX_URL},  # which `webhook_endpoints` enforces
        examples=["https://crm.example.org/hooks/paperboy"],
    ),
]
Events = Annotated[list[WebhookEvent], Field(min_length=1, max_length=len(WebhookEvent))]
Addresses = Annotated[
    bool, Field(description="Whether events about a subscriber contain their address, as `email`.")
]


class WebhookOut(Versioned):
    """A webhook, without its secret."""

    UNVERSIONED = frozenset({"accepted_at", "paused_until", "error", "messages"})  # change with each event
    id: int
    url: Url = Field(description="Only scheme and host, unless the key has the `write` scope.")
    events: list[WebhookEvent]
    include_addresses: Addresses
    created_at: datetime
    accepted_at: datetime | None = Field(description="When the webhook last accepted an event.")
    disabled_at: datetime | None = Field(description="When the webhook was disabled; null if it is enabled.")
    paused_until: datetime | None = Field(
        description="The end of the pause that the webhook's last response asked for (`Retry-After`), if any."
    )
    error: str = Field(description="The error of the last attempt; empty if it succeeded.", examples=[""])
    messages: dict[WebhookState, int] = Field(description="The number of stored events by state.")


class WebhookList(BaseModel):
    """All webhooks, oldest first."""

    items: list[WebhookOut]


class WebhookWithSecret(WebhookOut, SecretResponse):
    """A webhook with a new secret, which is shown only here."""

    secret: str = Field(description="The key that signs events (Standard Webhooks).", examples=["whsec_…"])


class NewWebhook(RequestBody):
    """A webhook to add."""

    url: Url
    events: Events
    include_addresses: Addresses = False


class WebhookChange(RequestBody):
    """Changes to a webhook."""

    url: Url | None = None
    events: Events | None = None
    include_addresses: Addresses | None = None
    enabled: bool | None = Field(default=None, description="A disabled webhook gets no events.")


class MessageOut(Representation):
    """An event for a webhook, and the outcome of its last attempt."""

    id: int
    message_id: str = Field(examples=["msg_5f2b8c3e"], description="The header `webhook-id`.")
    event: str = Field(examples=["subscriber.confirmed"])
    at: datetime
    data: dict[str, Any] = Field(description="The data of the event as sent, but without addresses.")
    state: WebhookState
    attempts: int
    attempted_at: datetime | None
    next_attempt_at: datetime | None
    status: int | None = Field(description="The HTTP status of the last response.", examples=[204])
    error: str


class ResentMessages(BaseModel):
    """The number of events that will be sent again."""

    messages: int


@router.get("")
def list_webhooks(caller: CanRead) -> WebhookList:
    """List all webhooks."""
    with caller.db.read() as session:
        rows = webhook_endpoints.all_endpoints(session)
        return WebhookList(items=[_to_out(session, row, caller) for row in rows])


@router.post("", status_code=201, responses=problems.responses(409))
def add_webhook(caller: CanWrite, body: NewWebhook) -> WebhookWithSecret:
    """Add a webhook. The key must also have the `read` scope, because events contain stored data.

    The URL must begin with https:// and its host must have a public address, except for hosts that
    PAPERBOY_ALLOW_PRIVATE_SOURCES lists.
    """
    _require_read(caller)
    webhooks.check_url(caller.settings, body.url)
    with caller.db.write() as session:
        row = webhook_endpoints.add(session, body.url, body.events, body.include_addresses, caller.now)
        _record(session, caller, "add", row)
        return _with_secret(session, row, caller)


@router.get("/{webhook_id}", responses=problems.responses(404))
def get_webhook(caller: CanRead, webhook_id: Id) -> WebhookOut:
    """Return a webhook."""
    with caller.db.read() as session:
        return _to_out(session, webhook_endpoints.get(session, webhook_id), caller)


@router.patch("/{webhook_id}", responses=problems.responses(404, 409, 412))
def change_webhook(
    caller: CanWrite, webhook_id: Id, body: WebhookChange, if_match: IfMatch = None
) -> WebhookOut:
    """Change the fields that the body contains. If you disable a webhook, its waiting events fail.

    The key must also have the `read` scope.
    """
    _require_read(caller)
    if body.url is not None:
        webhooks.check_url(caller.settings, body.url)
    with caller.db.write() as session:
        row = webhook_endpoints.get_for_update(session, webhook_id)
        require_match(if_match, _to_out(session, row, caller))
        webhook_endpoints.change(session, row, **body.model_dump(), now=caller.now)
        if body.enabled is not None:
            _record(session, caller, "enable" if body.enabled else "disable", row)
        if body.model_dump(exclude={"enabled"}, exclude_none=True):
            _record(session, caller, "change", row)
        return _to_out(session, row, caller)


@router.delete("/{webhook_id}", status_code=204, responses=problems.responses(404, 412))
def remove_webhook(caller: CanWrite, webhook_id: Id, if_match: IfMatch = None) -> None:
    """Remove a webhook and its stored events."""
    with caller.db.write() as session:
        row = webhook_endpoints.get_for_update(session, webhook_id)
        require_match(if_match, _to_out(session, row, caller))
        _record(session, caller, "remove", row)
        webhook_endpoints.remove(session, row)


@router.post("/{webhook_id}/rotate", status_code=201, responses=problems.responses(404, 409))
def rotate_secret(caller: CanWrite, webhook_id: Id) -> WebhookWithSecret:
    """Replace the secret. For one more day, events are signed with both the old and the new secret.

    If you replace it again within that day, the last two old secrets sign for one more day. The key must also
    have the `read` scope.
    """
    with caller.db.write() as session:
        row = webhook_endpoints.get_for_update(session, webhook_id)
        _require_read(caller)
        webhook_endpoints.rotate(session, row, caller.now)
        _record(session, caller, "rotate", row)
        return _with_secret(session, row, caller)


@router.post("/{webhook_id}/test", responses=problems.responses(404))
def test_webhook(caller: CanWrite, webhook_id: Id) -> MessageOut:
    """Send a `webhook.test` event now, once, even to a disabled webhook, and return the outcome."""
    with caller.db.write() as session:
        _record(session, caller, "test", webhook_endpoints.get(session, webhook_id))
    return MessageOut.model_validate(webhooks.send_test(caller.app, webhook_id, caller.now))


@router.post("/{webhook_id}/resend", responses=problems.responses(404, 409))
def resend_failed(caller: CanWrite, webhook_id: Id) -> ResentMessages:
    """Resend all failed events that are still stored."""
    with caller.db.write() as session:
        row = webhook_endpoints.get(session, webhook_id)
        number = webhook_outbox.resend_failed(session, row, caller.now)
        _record(session, caller, "resend", row)
    return ResentMessages(messages=number)


@router.get("/{webhook_id}/messages", responses=problems.responses(404))
def list_messages(
    caller: CanRead, webhook_id: Id, window: Paging, state: Annotated[WebhookState | None, Query()] = None
) -> Page[MessageOut]:
    """List the stored events of a webhook, newest first."""
    with caller.db.read() as session:
        webhook_endpoints.get(session, webhook_id)
        of_endpoint = select(WebhookMessage).where(WebhookMessage.endpoint_id == webhook_id)
        rows, cursor = newest_first(session, of_endpoint, col(WebhookMessage.id), window, state=state)
    return Page(items=list(map(MessageOut.model_validate, rows)), next_cursor=cursor)


def _require_read(caller: Caller) -> None:
    if Scope.READ not in caller.key.scopes:
        raise Conflict(
            "this key lacks the “read” scope, which is needed to receive events: use a key that has it"
        )


def _record(session: Session, caller: Caller, change: str, row: WebhookEndpoint) -> None:
    caller.record(session, f"webhook.{change}", row.id, url=webhook_endpoints.origin(row.url))


def _to_out(session: Session, row: WebhookEndpoint, caller: Caller) -> WebhookOut:
    """Return a webhook without its secret. Keys without the `write` scope get only the origin of its URL."""
    url = row.url if Scope.WRITE in caller.key.scopes else webhook_endpoints.origin(row.url)
    counts = webhook_outbox.count_by_state(session, row.id or 0)
    return WebhookOut.model_validate(row.model_dump() | {"url": url, "messages": counts})


def _with_secret(session: Session, row: WebhookEndpoint, caller: Caller) -> WebhookWithSecret:
    return WebhookWithSecret(**_to_out(session, row, caller).model_dump(), secret=row.secret)
