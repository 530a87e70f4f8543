"""Migrate a database, and refuse one whose revision or tables do not match this release."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from sqlalchemy import inspect, text
from sqlalchemy.engine import Connection
from sqlmodel import SQLModel

from app.errors import SchemaError
from app.storage import models  # noqa: F401  (fills the metadata)
from app.storage.database import ROOT, Database

MIGRATIONS = ROOT / "migrations"
MAX_NAMED = 3  # differences that a message names
# Queries that list the columns (with their table, and whether they must have a value) and the indexes.
# Reflecting the tables takes fifty times as long, and every command and every sender would wait for it.
_COLUMNS = {
    "sqlite": text("""
        SELECT tables.name, columns.name, columns."notnull"
        FROM sqlite_master AS tables JOIN pragma_table_info(tables.name) AS columns
        WHERE tables.type = 'table'
    """),
    "postgresql": text("""
        SELECT table_name, column_name, is_nullable = 'NO'
        FROM information_schema.columns WHERE table_schema = current_schema()
    """),
}
_INDEXES = {
    "sqlite": text("SELECT name FROM sqlite_master WHERE type = 'index'"),
    "postgresql": text("SELECT indexname FROM pg_indexes WHERE schemaname = current_schema()"),
}


@dataclass(frozen=True, slots=True)
class SchemaFault:
    """A difference between the schemas of a database and of this release.

    `fix` says how to resolve it in the service's database, `fix_previous` in one that a restore replaces.
    """

    message: str
    fix: str
    fix_previous: str

    def __str__(self) -> str:
        return f"{self.message}: {self.fix}"


def migrate(url: str, revision: str = "head") -> None:
    """Upgrade or downgrade a database to a revision in `migrations/`.

    Raise SchemaError if the revision is unknown, if the database belongs to a newer release, or if a new one
    is not in UTF-8.
    """
    db = Database(url)
    try:
        current, newest = revisions(db)
        if not current:
            _require_utf8(db)
    finally:
        db.dispose()
    newest_first = known_revisions()
    if current and current not in newest_first:
        raise SchemaError(str(_newer_release(current, newest)))
    if revision not in ("head", *newest_first):
        raise SchemaError(f"there is no revision {revision}; this release has {', '.join(newest_first)}")
    if current == (newest if revision == "head" else revision):
        return
    # Imported here, because most commands find a migrated database, and the import takes a tenth of their
    # start-up time.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.set_main_option("sqlalchemy.url", url.replace("%", "%%"))
    is_older = (
        current and revision in newest_first and newest_first.index(revision) > newest_first.index(current)
    )
    (command.downgrade if is_older else command.upgrade)(config, revision)


def revisions(db: Database) -> tuple[str | None, str]:
    """Return the current revision of the database and the newest revision of this release."""
    with db.engine.connect() as connection:
        is_migrated = inspect(connection).has_table("alembic_version")
        current = connection.scalar(text("SELECT version_num FROM alembic_version")) if is_migrated else None
    return current, known_revisions()[0]


def revision_fault(db: Database) -> SchemaFault | None:
    """Return a fault if the database's revision does not match this release."""
    current, newest = revisions(db)
    if current == newest:
        return None
    if current and current not in known_revisions():
        return _newer_release(current, newest)
    return SchemaFault(
        f"the database is at revision {current or 'none'}; this release needs {newest}",
        "start the service, or run `paperboy migrate`; if you have downgraded the database, install the "
        "older release",
        "migrate it with `paperboy migrate` (set PAPERBOY_DATABASE_URL to it)",
    )


def table_fault(db: Database) -> SchemaFault | None:
    """Return a fault if the tables differ from the models of this release.

    Columns and indexes are compared by name, and columns also by whether they may be empty. Tables and
    indexes that an operator added do not matter.
    """
    with db.engine.connect() as connection:
        differences = list(_differences(connection))
    if not differences:
        return None
    named = ", ".join(differences[:MAX_NAMED])
    others = f" and {len(differences) - MAX_NAMED} more" if len(differences) > MAX_NAMED else ""
    return SchemaFault(
        f"the tables do not match this release ({named}{others})",
        "undo the change to the tables, or restore a backup; until then, no mail is sent",
        "undo the change to its tables",
    )


class SchemaGuard:
    """A guard for work that needs the schema of this release. It compares the tables once per revision."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._verified: str | None = None

    def require(self) -> None:
        """Raise SchemaError if the schema does not match this release."""
        current, newest = revisions(self._db)
        if self._verified == current == newest:
            return
        if fault := revision_fault(self._db) or table_fault(self._db):
            raise SchemaError(str(fault))
        self._verified = newest


@cache  # an upgrade in place replaces a running process's files, but not its models
def known_revisions() -> tuple[str, ...]:
    """Return the revisions of this release, newest first. The files in `migrations/` are named after them."""
    files = (MIGRATIONS / "versions").glob("[0-9]*_*.py")
    return tuple(sorted((file.name.partition("_")[0] for file in files), reverse=True))


def _require_utf8(db: Database) -> None:
    """Raise SchemaError if a PostgreSQL database has another encoding. SQLite always uses Unicode."""
    if db.url.get_backend_name() != "postgresql":
        return
    with db.engine.connect() as connection:
        encoding = connection.scalar(text("SHOW server_encoding"))
    if encoding != "UTF8":
        raise SchemaError(
            f"the encoding of the database is {encoding}, not UTF8: create another one, for example with "
            "`createdb --template template0 --encoding UTF8 --locale C.UTF-8 NAME`"
        )


def _newer_release(current: str, newest: str) -> SchemaFault:
    return SchemaFault(
        f"the database is at revision {current} of a newer release; the newest revision of this release is "
        f"{newest}",
        f"start the newer release, or use it to run `paperboy migrate --to {newest}`",
        "restore with the newer release",
    )


def _differences(connection: Connection) -> Iterator[str]:
    dialect = connection.dialect.name
    columns: dict[str, dict[str, bool]] = {}
    for table_name, column_name, is_required in connection.execute(_COLUMNS[dialect]):
        columns.setdefault(table_name, {})[column_name] = bool(is_required)
    indexes = set(connection.scalars(_INDEXES[dialect]))
    for table in SQLModel.metadata.sorted_tables:
        present = columns.get(table.name)
        if present is None:
            yield f"table {table.name} is missing"
            continue
        expected = {column.name: not column.nullable for column in table.columns}
        for name in sorted(expected.keys() | present.keys()):
            if name not in present:
                yield f"column {table.name}.{name} is missing"
            elif name not in expected:
                yield f"column {table.name}.{name} is unknown"
            elif present[name] != expected[name]:
                yield f"column {table.name}.{name} {'may' if expected[name] else 'must not'} be empty"
        for index in sorted(str(index.name) for index in table.indexes):
            if index not in indexes:
                yield f"index {index} is missing"
