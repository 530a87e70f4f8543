"""send: compose and send the digests that are due."""

from typing import Annotated

import typer
from sqlmodel import select

from app import clock, pipeline
from app.cli import output, sending
from app.delivery import ledger
from app.storage.models import Subscriber, SubscriberState
from app.types import Skip


def send(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show the digests that are due. Send nothing.")
    ] = False,
    everybody: Annotated[
        bool, typer.Option("--all", help="With --dry-run: also show subscribers who are not due yet.")
    ] = False,
    as_json: output.AsJson = False,
) -> None:
    """Compose the digests that are due, and send all waiting emails. Exit code 1 if an email failed."""
    if everybody and not dry_run:
        raise typer.BadParameter("--all works only with --dry-run")
    if dry_run:
        _print_due(everybody=everybody, as_json=as_json)
        return
    with output.open_application() as app, output.graceful_shutdown(app):
        counts = pipeline.plan_and_send(app, clock.utcnow())
        with app.db.read() as session:
            pauses, waiting = ledger.pauses(session), ledger.waiting_mails(session)
    if as_json:
        output.print_json(dict(counts))
    elif counts:
        output.table(["", "count"], sorted(counts.items()))
    elif not (pauses or waiting):
        output.out().print("No digest is due, and no mail is waiting.")
    if waiting and not (pauses or as_json):
        output.out().print(f"{sending.describe_waiting(waiting, clock.utcnow())}.")
    sending.print_pauses(pauses)
    if counts["failed"]:
        raise typer.Exit(1)


def _print_due(*, everybody: bool, as_json: bool) -> None:
    with output.open_application() as app:
        active = select(Subscriber.id).where(Subscriber.state == SubscriberState.ACTIVE)
        with app.db.read() as session:
            ids = [number or 0 for number in session.exec(active)] if everybody else None
        due = pipeline.preview_due(app, clock.utcnow(), ids)
        if as_json:
            output.print_json([{"email": entry.email, **output.digest_object(entry.digest)} for entry in due])
            return
        rows = []
        for entry in due:
            if isinstance(entry.digest, Skip):
                rows.append((entry.email, f"nothing: {entry.digest.reason}"))
            else:
                rows.append((entry.email, "; ".join(item.title for item in entry.digest.picks)))
    output.table(["subscriber", "would get"], rows)
    output.out().print(f"{'Active subscribers' if everybody else 'Subscribers due'}: {len(rows)}.")
