"""changes: list the audit log of changes made by operators."""

from typing import Annotated

import typer
from sqlmodel import col, select

from app.cli import output
from app.delivery import ledger
from app.storage import audit_log
from app.storage.models import AuditEntry


def changes(
    actor: Annotated[
        str | None,
        typer.Option(
            help="Only changes by this actor: the name of a key, cli, or paperboy (automatic pauses)."
        ),
    ] = None,
    action: Annotated[
        str | None, typer.Option(help="Only this action, as named in --json, such as source.pause.")
    ] = None,
    limit: Annotated[int, typer.Option(help="The maximum number of changes.", min=1, max=10_000)] = 50,
    as_json: output.AsJson = False,
) -> None:
    """List the audit log: the changes made by operators, newest first."""
    query = select(AuditEntry).order_by(col(AuditEntry.id).desc()).limit(limit)
    equal = {"actor": actor, "action": action}
    query = query.filter_by(**{name: value for name, value in equal.items() if value})
    with output.open_application(needs_secret=False) as app, app.db.read() as session:
        rows = session.exec(query).all()
    if as_json:
        output.print_json([row.model_dump(mode="json") for row in rows])
        return
    cells = [
        (
            row.at,
            row.actor,
            audit_log.describe(row.action),
            "all emails" if row.subject == ledger.ALL_EDITIONS else row.subject,
            audit_log.describe_details(row.detail),
        )
        for row in rows
    ]
    output.table(["time", "by", "change", "object", "details"], cells)
