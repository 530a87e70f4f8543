"""Run Alembic's migrations on the database that the caller passes or, by default, on that of the settings."""

from __future__ import annotations

from alembic import context
from sqlmodel import SQLModel

from app.settings import Settings
from app.storage import models  # noqa: F401  (fills the metadata)
from app.storage.column_types import UtcDateTime
from app.storage.database import Database, lift_timeouts

ONE_AT_A_TIME = 73_627_001  # the key of an advisory lock: any number that no other lock has


def _render_type(type_: str, obj: object, autogen_context: object) -> str | bool:
    if type_ == "type" and isinstance(obj, UtcDateTime):
        return "sa.DateTime(timezone=True)"
    return False


def _include_name(name: str | None, type_: str, parent_names: object) -> bool:
    """Leave out the tables of procrastinate, which have no models."""
    return not (type_ == "table" and (name or "").startswith("procrastinate_"))


def run() -> None:
    """Migrate in one transaction."""
    url = context.config.get_main_option("sqlalchemy.url") or Settings().database_url
    database = Database(url)
    try:
        _migrate(database)
    finally:
        database.dispose()


def _migrate(database: Database) -> None:
    with database.engine.execution_options(paperboy_write=True).connect() as connection:
        if connection.dialect.name == "sqlite":
            # SQLite changes a table by replacing it while other tables refer to it. Use the driver's cursor,
            # because the statement has no effect in a transaction.
            connection.connection.cursor().execute("PRAGMA foreign_keys=OFF")
        context.configure(
            connection=connection,
            target_metadata=SQLModel.metadata,
            render_as_batch=True,
            compare_type=True,
            render_item=_render_type,
            include_name=_include_name,
            transactional_ddl=True,  # also on SQLite, where Alembic would commit each revision
        )
        with context.begin_transaction():
            lift_timeouts(connection)
            if connection.dialect.name == "postgresql":  # several processes may start at once
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({ONE_AT_A_TIME})")
            context.run_migrations()
            if connection.dialect.name == "sqlite":
                broken = connection.exec_driver_sql("PRAGMA foreign_key_check").fetchall()
                if broken:
                    raise RuntimeError(f"the migration would break foreign keys: {broken[:5]}")
        connection.commit()


run()
