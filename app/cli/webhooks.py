"""webhooks: manage the URLs to which events are sent, and list or resend their events."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from sqlmodel import col, select

from app import clock
from app import webhooks as sending
from app.cli import output
from app.storage import audit_log, webhook_endpoints, webhook_outbox
from app.storage.models import WebhookEndpoint, WebhookEvent, WebhookMessage
from app.text.in_words import count_of

webhooks = output.command_group("Send events to your own URLs.")

Number = Annotated[int, typer.Argument(help="The number of the webhook, as shown by `list`.")]


@webhooks.command("list")
def list_webhooks(as_json: output.AsJson = False) -> None:
    """List the webhooks, without their secrets."""
    with output.open_application(needs_secret=False) as app, app.db.read() as session:
        rows = webhook_endpoints.all_endpoints(session)
    if as_json:
        secret = {"secret", "previous_secret", "previous_until"}
        output.print_json([row.model_dump(mode="json", exclude=secret) for row in rows])
        return
    cells = []
    for row in rows:
        state = "disabled" if row.disabled_at else "failing" if row.error else "ok"
        cells.append((row.id, row.url, " ".join(row.events), state, row.accepted_at or "–", row.error))
    output.table(["number", "URL", "events", "state", "last accepted", "error"], cells)


@webhooks.command()
def add(
    url: Annotated[str, typer.Argument(help="The URL, which begins with https://.")],
    event: Annotated[
        list[WebhookEvent] | None,
        typer.Option(
            metavar="EVENT",
            help=f"An event to send: {', '.join(WebhookEvent)}. Repeat the option for more. Default: all.",
        ),
    ] = None,
    addresses: Annotated[
        bool,
        typer.Option("--addresses", help="Include the subscriber's address in events about subscribers."),
    ] = False,
) -> None:
    """Add a webhook. The secret, which verifies the signatures of events, is printed only once."""
    now = clock.utcnow()
    with output.open_application(needs_secret=False) as app:
        sending.check_url(app.settings, url)
        with app.db.write() as session:
            row = webhook_endpoints.add(session, url, event or list(WebhookEvent), addresses, now)
            audit_log.record(
                session, output.ACTOR, "webhook.add", row.id, now, url=webhook_endpoints.origin(row.url)
            )
    _print_secret(row)


@webhooks.command()
def rotate(number: Number) -> None:
    """Replace the secret of a webhook. For one more day, events are signed with both secrets.

    If you replace it again within that day, the last two old secrets sign for one more day.
    """
    with _changing(number, "rotate") as (change, row):
        webhook_endpoints.rotate(change.session, row, change.now)
    _print_secret(row)


def _print_secret(row: WebhookEndpoint) -> None:
    typer.echo(row.secret)
    output.err().print(f"Webhook {row.id}. Save the secret now: it will not be shown again.")


@webhooks.command()
def test(number: Number) -> None:
    """Send the event “webhook.test” now. Exit with code 1 if the event is not accepted."""
    with output.open_application(needs_secret=False) as app:
        row = sending.send_test(app, number, clock.utcnow())
    if row.error:
        output.fail(f"the event was not accepted: {row.error}")
    output.out().print(f"Accepted: HTTP {row.status}.")


@webhooks.command()
def messages(
    number: Number,
    limit: Annotated[int, typer.Option(help="The maximum number of events.", min=1, max=10_000)] = 20,
    as_json: output.AsJson = False,
) -> None:
    """List the events for a webhook, newest first, with the outcome of their last attempt."""
    newest = select(WebhookMessage).where(WebhookMessage.endpoint_id == number)
    with output.open_application(needs_secret=False) as app, app.db.read() as session:
        webhook_endpoints.get(session, number)
        rows = session.exec(newest.order_by(col(WebhookMessage.id).desc()).limit(limit)).all()
    if as_json:
        output.print_json([row.model_dump(mode="json") for row in rows])
        return
    cells = [
        (row.event, row.at, row.state, row.attempts, row.next_attempt_at or "–", row.error) for row in rows
    ]
    output.table(["event", "at", "state", "attempts", "next attempt", "error"], cells)


@webhooks.command()
def enable(number: Number) -> None:
    """Enable a webhook again. `resend` sends the failed events again."""
    with _changing(number, "enable") as (change, row):
        webhook_endpoints.change(change.session, row, enabled=True, now=change.now)
    output.out().print(f"Webhook {number} is enabled.")


@webhooks.command()
def disable(number: Number) -> None:
    """Disable a webhook. Its waiting events fail."""
    with _changing(number, "disable") as (change, row):
        webhook_endpoints.change(change.session, row, enabled=False, now=change.now)
    output.out().print(f"Webhook {number} is disabled.")


@webhooks.command()
def resend(number: Number) -> None:
    """Send all failed events of a webhook again."""
    with _changing(number, "resend") as (change, row):
        count = webhook_outbox.resend_failed(change.session, row, change.now)
    output.out().print(f"{count_of(count, 'event')} will be sent again.")


@webhooks.command()
def remove(number: Number) -> None:
    """Remove a webhook and its events."""
    with _changing(number, "remove") as (change, row):
        webhook_endpoints.remove(change.session, row)
    output.out().print(f"Webhook {number} is removed.")


@contextmanager
def _changing(number: int, action: str) -> Iterator[tuple[output.OperatorChange, WebhookEndpoint]]:
    """Record an action on a webhook. Yield the change and the webhook."""
    with output.change() as change:
        row = webhook_endpoints.get_for_update(change.session, number)
        change.record(f"webhook.{action}", row.id, url=webhook_endpoints.origin(row.url))
        yield change, row
