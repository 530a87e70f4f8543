"""migrate: migrate the database to the newest revision, or back to an older one."""

from __future__ import annotations

from typing import Annotated

import typer

from app import logs
from app.cli import output
from app.storage import live_processes, schema
from app.storage.database import Database


def migrate(
    to: Annotated[
        str | None, typer.Option(help="The revision to downgrade to before you install an older release.")
    ] = None,
) -> None:
    """Migrate the database to the newest revision. `paperboy serve` and `worker` do this when they start.

    Before a downgrade, stop all processes.
    """
    settings = output.load_settings(needs_secret=False)
    logs.configure(settings, level="WARNING")
    db = Database(settings.database_url)
    try:
        if to is not None:
            live_processes.refuse_others(db.engine)
        schema.migrate(settings.database_url, to or "head")
        current, _ = schema.revisions(db)
    finally:
        db.dispose()
    output.out().print(f"The database is at revision {current or 'none'}.")
