"""Add, change, test and remove webhooks, and list their events. A secret is shown once."""

from collections.abc import Sequence
from typing import Annotated, NamedTuple, Unpack

from fastapi import APIRouter, Form, Response
from pydantic import ValidationError

from app.errors import Conflict, InvalidInput
from app.storage import webhook_endpoints
from app.storage.models import WebhookEvent, WebhookState
from app.web.admin.double_clicks import AdminRoute
from app.web.admin.sign_in import FormOutcome, Operator, ProspectiveWriter, Reader, Writer, back_to
from app.web.api import webhooks
from app.web.api.auth import Id
from app.web.api.pagination import PageWindow, window_of
from app.web.forms import Text

router = APIRouter(include_in_schema=False, route_class=AdminRoute)

PATH = "/admin/webhooks"
SHOWN = 50  # events per page
Events = Annotated[list[str] | None, Form()]
MESSAGES = {
    "removed": "Removed.",
    "changed": "Saved.",
    "enabled": "Enabled.",
    "enabled_with_failed_events": "Enabled. To send the failed events, press “Send failed events again”.",
    "disabled": "Disabled. The webhook gets no more events.",
    "resent": "The events will be sent {timing.events}.",
    "accepted": "The test event was accepted.",
}


class WebhookInput(NamedTuple):
    """The fields of a webhook's form, as typed."""

    url: str = ""
    events: Sequence[WebhookEvent] = ()
    addresses: bool = False


@router.get(PATH)
def list_webhooks(operator: Reader, done: str = "") -> Response:
    return _webhooks_page(operator, WebhookInput(events=list(WebhookEvent)), message=MESSAGES.get(done, ""))


@router.post(PATH)
def add_webhook(operator: Writer, url: Text = "", event: Events = None, addresses: Text = "") -> Response:
    """Add a webhook, and show its secret."""
    try:
        body = webhooks.NewWebhook(url=url, events=_events(event), include_addresses=bool(addresses))
        created = webhooks.add_webhook(operator, body)
    except (InvalidInput, Conflict, ValidationError) as error:
        typed = WebhookInput(url, _events(event), bool(addresses))
        return _webhooks_page(operator, typed, problem=_problem(error), status=422)
    return _webhook_page(operator, created.id, secret=created.secret)


def _events(names: list[str] | None) -> list[WebhookEvent]:
    return [event for event in WebhookEvent if event in (names or ())]


def _problem(error: Exception) -> str:
    return "Choose at least one event." if isinstance(error, ValidationError) else str(error)


@router.get(PATH + "/{webhook_id}")
def show_webhook(operator: Reader, webhook_id: Id, done: str = "", cursor: str | None = None) -> Response:
    """Show a webhook and its events."""
    window = window_of(limit=SHOWN, cursor=cursor)
    return _webhook_page(operator, webhook_id, window=window, message=MESSAGES.get(done, ""))


@router.post(PATH + "/{webhook_id}")
def change_webhook(
    operator: Writer, webhook_id: Id, url: Text = "", event: Events = None,
    addresses: Text = "",
) -> Response:  # fmt: skip
    try:
        body = webhooks.WebhookChange(url=url, events=_events(event), include_addresses=bool(addresses))
        webhooks.change_webhook(operator, webhook_id, body)
    except (InvalidInput, Conflict, ValidationError) as error:
        typed = WebhookInput(url, _events(event), bool(addresses))
        return _webhook_page(operator, webhook_id, typed=typed, problem=_problem(error), status=422)
    return back_to(f"{PATH}/{webhook_id}", "changed")


@router.post(PATH + "/{webhook_id}/test")
def test_webhook(operator: Writer, webhook_id: Id) -> Response:
    """Send a test event, and show whether it was accepted."""
    sent = webhooks.test_webhook(operator, webhook_id)
    if sent.error:
        return _webhook_page(operator, webhook_id, problem=f"The test event was not accepted: {sent.error}")
    return back_to(f"{PATH}/{webhook_id}", "accepted")


@router.post(PATH + "/{webhook_id}/rotate")
def rotate_secret(operator: Writer, webhook_id: Id) -> Response:
    """Replace the secret, and show the new one."""
    created = webhooks.rotate_secret(operator, webhook_id)
    return _webhook_page(operator, webhook_id, secret=created.secret)


@router.post(PATH + "/{webhook_id}/enable")
def enable(operator: Writer, webhook_id: Id) -> Response:
    webhook = webhooks.change_webhook(operator, webhook_id, webhooks.WebhookChange(enabled=True))
    has_failed_events = webhook.messages[WebhookState.FAILED]
    return back_to(f"{PATH}/{webhook_id}", "enabled_with_failed_events" if has_failed_events else "enabled")


@router.post(PATH + "/{webhook_id}/disable")
def disable(operator: Writer, webhook_id: Id) -> Response:
    webhooks.change_webhook(operator, webhook_id, webhooks.WebhookChange(enabled=False))
    return back_to(f"{PATH}/{webhook_id}", "disabled")


@router.post(PATH + "/{webhook_id}/resend")
def resend_failed(operator: Writer, webhook_id: Id) -> Response:
    webhooks.resend_failed(operator, webhook_id)
    return back_to(f"{PATH}/{webhook_id}", "resent")


@router.get(PATH + "/{webhook_id}/remove")
def ask_removal(operator: ProspectiveWriter, webhook_id: Id) -> Response:
    """Ask before a webhook is removed."""
    webhook = webhooks.get_webhook(operator, webhook_id)
    return operator.confirmation_page(
        f"Remove webhook {webhook_id}?",
        "The URL gets no more events, and the events stored for it are deleted, including those that are "
        "still to be sent. If you add the URL again, it gets a new secret. To stop events for a while, "
        "disable the webhook instead.",
        confirm="Remove the webhook",
        section=PATH,
        back=f"{PATH}/{webhook_id}",
        facts={"Host": webhook_endpoints.origin(webhook.url), "Events": ", ".join(webhook.events)},
    )


@router.post(PATH + "/{webhook_id}/remove")
def remove_webhook(operator: Writer, webhook_id: Id) -> Response:
    webhooks.remove_webhook(operator, webhook_id)
    return back_to(PATH, "removed")


def _webhooks_page(operator: Operator, typed: WebhookInput, **outcome: Unpack[FormOutcome]) -> Response:
    listed = webhooks.list_webhooks(operator)
    return operator.page(
        "admin/webhooks.html", webhooks=listed.items, typed=typed, events=list(WebhookEvent),
        origin=webhook_endpoints.origin, **outcome,
    )  # fmt: skip


def _webhook_page(
    operator: Operator, webhook_id: int, *, typed: WebhookInput | None = None,
    window: PageWindow | None = None, secret: str = "", **outcome: Unpack[FormOutcome],
) -> Response:  # fmt: skip
    webhook = webhooks.get_webhook(operator, webhook_id)
    sent = webhooks.list_messages(operator, webhook_id, window or PageWindow(SHOWN, None))
    return operator.page(
        "admin/webhook.html", webhook=webhook, sent=sent, secret=secret, events=list(WebhookEvent),
        typed=typed or WebhookInput(webhook.url, webhook.events, webhook.include_addresses),
        origin=webhook_endpoints.origin, days=operator.settings.run_retention_days, **outcome,
    )  # fmt: skip
