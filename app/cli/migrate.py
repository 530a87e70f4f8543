"""migrate: migrate the database to the newest revision."""

from __future__ import annotations

from app import logs
from app.cli import output
from app.storage import database


def migrate() -> None:
    """Migrate the database to the newest revision. Other commands do this automatically."""
    settings = output.load_settings(needs_secret=False)
    logs.configure(settings, level="WARNING")
    database.migrate(settings.database_url)
    db = database.Database(settings.database_url)
    current, _ = database.schema_revisions(db)
    db.dispose()
    output.out().print(f"The database is at revision {current}.")
