"""deliveries: list the emails in the ledger."""

from typing import Annotated

import typer
from sqlmodel import col, select

from app import subscribers
from app.cli import output
from app.delivery import ledger
from app.storage.models import Delivery, DeliveryState
from app.types import MailKind

_FIELDS = {
    "id", "subscriber_id", "kind", "edition", "state", "reason", "subject", "message_id", "attempts",
    "next_attempt_at", "smtp_code", "smtp_text", "due_at", "sent_at",
}  # fmt: skip


def deliveries(
    subscriber: Annotated[str | None, typer.Option(help="Only this subscriber (address or number).")] = None,
    state: Annotated[
        DeliveryState | None,
        typer.Option(metavar="STATE", help=f"Only emails in this state: {', '.join(DeliveryState)}."),
    ] = None,
    kind: Annotated[
        MailKind | None,
        typer.Option(metavar="KIND", help=f"Only emails of this kind: {', '.join(MailKind)}."),
    ] = None,
    edition: Annotated[str | None, typer.Option(help="Only this edition, such as 2026-11-20.")] = None,
    limit: Annotated[int, typer.Option(help="The maximum number of emails.", min=1, max=10_000)] = 50,
    as_json: output.AsJson = False,
) -> None:
    """List the emails in the ledger, newest first, with their states and reasons."""
    with output.open_application(needs_secret=False) as app, app.db.read() as session:
        query = select(Delivery)
        if subscriber:
            query = query.where(Delivery.subscriber_id == subscribers.find(session, subscriber).id)
        if kind:
            query = query.where(ledger.of_kind(kind))
        equal = {"state": state, "edition": edition}
        query = query.filter_by(**{name: value for name, value in equal.items() if value})
        rows = session.exec(query.order_by(col(Delivery.id).desc()).limit(limit)).all()
        reasons = ledger.reasons_by_delivery(session, rows)
    if as_json:
        output.print_json(
            [row.model_dump(mode="json", include=_FIELDS) | {"reason": reasons[row.id or 0]} for row in rows]
        )
        return
    cells = [
        (row.id, row.subscriber_id, row.edition, row.state, row.due_at, reasons[row.id or 0] or row.smtp_text)
        for row in rows
    ]
    output.table(["number", "subscriber", "edition", "state", "due", "reason or reply"], cells)
