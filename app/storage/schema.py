"""The schema: migrate a database, and refuse one whose revision or tables are not those of this release."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.engine import Connection
from sqlmodel import SQLModel

from app.errors import SchemaError
from app.storage import models  # noqa: F401  (fills the metadata)
from app.storage.database import ROOT, Database

MIGRATIONS = ROOT / "migrations"
MAX_NAMED = 3  # differences that a message names
# Differences that no statement of ours depends on, such as an operator's own table.
_HARMLESS = ("remove_table", "remove_index")


def migrate(url: str, revision: str = "head") -> None:
    """Upgrade or downgrade a database to a revision in `migrations/`.

    Raise SchemaError if the revision is unknown, or if the database belongs to a newer release.
    """
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.set_main_option("sqlalchemy.url", url.replace("%", "%%"))
    db = Database(url)
    try:
        current, newest = revisions(db)
    finally:
        db.dispose()
    revisions_of_release = known_revisions()
    if current and current not in revisions_of_release:
        raise SchemaError(_newer_release(current, newest))
    if revision not in ("head", "base", *revisions_of_release):
        raise SchemaError(
            f"there is no revision {revision}; this release has {', '.join(revisions_of_release)}"
        )
    steps = (*revisions_of_release, "base")
    is_older = current and revision in steps and steps.index(revision) > steps.index(current)
    (command.downgrade if is_older else command.upgrade)(config, revision)


def revisions(db: Database) -> tuple[str | None, str]:
    """Return the current revision of the database and the newest one of this release."""
    with db.engine.connect() as connection:
        current = MigrationContext.configure(connection).get_current_revision()
    return current, known_revisions()[0]


def revision_fault(db: Database) -> str:
    """Return why the database's revision is not that of this release, or ""."""
    current, newest = revisions(db)
    if current == newest:
        return ""
    if current and current not in known_revisions():
        return _newer_release(current, newest)
    return f"the database is at revision {current or 'none'}; this release needs {newest}"


def table_fault(db: Database) -> str:
    """Return how the tables differ from the models of this release, or "". This takes about 0.1 s."""
    with db.engine.connect() as connection:
        differences = list(_differences(connection))
    if not differences:
        return ""
    named = ", ".join(differences[:MAX_NAMED])
    others = f" and {len(differences) - MAX_NAMED} more" if len(differences) > MAX_NAMED else ""
    return f"the tables are not those of this release: {named}{others}"


class SchemaGuard:
    """A check before work that a foreign schema would spoil. It compares the tables once per revision."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._verified: str | None = None

    def require(self) -> None:
        """Raise SchemaError if the schema is not that of this release."""
        current, newest = revisions(self._db)
        if self._verified == current == newest:
            return
        if fault := revision_fault(self._db) or table_fault(self._db):
            raise SchemaError(fault)
        self._verified = newest


@cache  # an upgrade in place replaces the files below a running process, but not its models
def known_revisions() -> tuple[str, ...]:
    """Return the revisions of this release, newest first."""
    return tuple(script.revision for script in ScriptDirectory(str(MIGRATIONS)).walk_revisions())


def _newer_release(current: str, newest: str) -> str:
    return (
        f"the database is at revision {current} of a newer release; this one ends at {newest}. "
        "Start the newer release, or downgrade with it first: `paperboy migrate --to`"
    )


def _differences(connection: Connection) -> Iterator[str]:
    context = MigrationContext.configure(connection, opts={"compare_type": True, "render_as_batch": True})
    for difference in compare_metadata(context, SQLModel.metadata):
        # A change within a column comes as a list with one tuple per aspect, such as its type.
        kind, *details = difference[0] if isinstance(difference, list) else difference
        if kind not in _HARMLESS:
            yield _describe(kind, details)


def _describe(kind: str, details: list[Any]) -> str:
    action, _, what = kind.partition("_")
    if what == "table":
        return f"table {details[0].name} is missing"
    if what == "column":
        return f"column {details[1]}.{details[2].name} is {'missing' if action == 'add' else 'unknown'}"
    if action == "modify":
        return f"column {details[1]}.{details[2]} has another {what}"
    return f"{what} {details[0].name} is {'missing' if action == 'add' else 'unknown'}"
