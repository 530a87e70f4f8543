"""migrate: migrate the database to the newest revision, or back to an older one."""

from __future__ import annotations

from typing import Annotated

import typer

from app import logs
from app.cli import output
from app.storage import schema
from app.storage.database import Database


def migrate(
    to: Annotated[
        str, typer.Option(help="The revision to downgrade to before you install an older release.")
    ] = ("head"),
) -> None:
    """Migrate the database to the newest revision. Other commands do this automatically."""
    settings = output.load_settings(needs_secret=False)
    logs.configure(settings, level="WARNING")
    schema.migrate(settings.database_url, to)
    db = Database(settings.database_url)
    current, _ = schema.revisions(db)
    db.dispose()
    output.out().print(f"The database is at revision {current or 'none'}.")
