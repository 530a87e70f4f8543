"""suppressions: list, add and lift suppressions of addresses."""

from typing import Annotated

import typer
from sqlmodel import col

from app import subscribers
from app.cli import output
from app.delivery import suppression
from app.errors import NotFound
from app.storage.models import Suppression

suppressions = output.command_group("List, add and lift suppressions: addresses that get no mail.")

Address = Annotated[str, typer.Argument(help="The address.")]
Reason = Annotated[str, typer.Option(help="The reason, which is stored.")]


@suppressions.command("list")
def list_suppressions(
    reason: Annotated[
        str, typer.Option("--reason", help="Only suppressions whose reason contains this text.")
    ] = "",
    as_json: output.AsJson = False,
) -> None:
    """List suppressed addresses. An address that does not belong to a subscriber is shown as its hash."""
    with output.open_application(needs_secret=False) as app, app.db.read() as session:
        rows = session.exec(suppression.with_reason(reason).order_by(col(Suppression.id))).all()
        emails = suppression.addresses_of(session, rows)
    if as_json:
        output.print_json(
            [row.model_dump(exclude={"id"}) | {"email": emails.get(row.address_hash, "")} for row in rows]
        )
        return
    cells = [
        (emails.get(row.address_hash) or f"{row.address_hash[:12]}…", row.since, row.reason) for row in rows
    ]
    output.table(["address", "since", "reason"], cells)
    if any(row.address_hash not in emails for row in rows):
        output.err().print(
            "Paperboy stores only hashes of suppressed addresses. If no subscriber has an address, the list "
            "shows the beginning of its hash.",
            soft_wrap=True,
        )


@suppressions.command()
def add(email: Address, reason: Reason) -> None:
    """Send no more mail to an address. If it is already suppressed, its first reason is kept."""
    email = subscribers.normalize_address(email)
    with output.change() as change:
        suppression.suppress(change.session, email, reason, change.now)
        change.record("suppression.add", suppression.address_hash(email), reason=reason)
    output.out().print(f"No mail will be sent to {output.escaped(email)}.")


@suppressions.command()
def lift(email: Address, reason: Reason) -> None:
    """Allow mail to an address again. A subscriber whose email bounced returns to their previous state."""
    email = subscribers.normalize_address(email)
    with output.change() as change:
        if not subscribers.lift_suppression(change.session, email, change.now):
            raise NotFound("this address is not suppressed")
        change.record("suppression.lift", suppression.address_hash(email), reason=reason)
    output.out().print(f"Mail will be sent to {output.escaped(email)} again.")
