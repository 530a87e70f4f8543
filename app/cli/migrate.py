"""migrate: migrate the database to the newest revision, or back to an older one."""

from typing import Annotated

import typer
from sqlalchemy.engine import make_url

from app import logs
from app.cli import output
from app.settings import Settings
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
    settings = output.load_settings(needs_secret=False)
    if to is None:
        with output.open_application(needs_secret=False, migrate=True) as app:
            current, _ = schema.revisions(app.db)
    else:
        current = migrate_to(settings, to)
    file = sqlite_file(make_url(settings.database_url))
    name = f"The database {output.escaped(str(file.absolute()))}" if file else "The database"
    output.out().print(f"{name} is at revision {current}.", soft_wrap=True)


def migrate_to(settings: Settings, revision: str) -> str | None:
    """Migrate the database to a revision, and return it. Raise Conflict if another process uses it."""
    logs.configure(settings, level="WARNING")
    output.require_database(settings.database_url)
    db = Database(settings.database_url)
    try:
        live_processes.refuse_others(db.engine)
        schema.migrate(settings.database_url, revision)
        return schema.revisions(db)[0]
    finally:
        db.dispose()
