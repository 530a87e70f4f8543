"""migrate: migrate the database to the newest revision, or back to an older one."""

from __future__ import annotations

from typing import Annotated

import typer
from sqlalchemy.engine import make_url

from app import logs
from app.cli import output
from app.storage import live_processes, schema
from app.storage.database import Database, sqlite_file


def migrate(
    to: Annotated[
        str | None, typer.Option(help="The revision to downgrade to before you install an older release.")
    ] = None,
) -> None:
    """Create the database, or migrate it to the newest revision. `paperboy serve` and `worker` do this, too.

    Before a downgrade, stop all processes.
    """
    url = output.load_settings(needs_secret=False).database_url
    if to is not None:
        downgrade(url, to)
    else:
        with output.open_application(needs_secret=False, migrate=True) as app:
            to, _ = schema.revisions(app.db)
    file = sqlite_file(make_url(url))
    name = f"The database {output.escaped(str(file.absolute()))}" if file else "The database"
    output.out().print(f"{name} is at revision {to}.", soft_wrap=True)


def downgrade(url: str, revision: str) -> None:
    """Migrate the database to an older revision. Raise Conflict if another process uses it."""
    logs.configure(output.load_settings(needs_secret=False), level="WARNING")
    output.require_database(url)
    db = Database(url)
    try:
        live_processes.refuse_others(db.engine)
        schema.migrate(url, revision)
    finally:
        db.dispose()
