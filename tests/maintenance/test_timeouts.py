"""Test that the time-outs of a PostgreSQL server, database or role do not end migrations and backups."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pytest
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from app.storage import backup_file, schema
from app.storage.database import Database
from tests.support.postgres_server import PostgresServer
from tests.support.postgres_settings import set_for_database

pytestmark = pytest.mark.postgres
TIMEOUT, LONGER = "'1s'", 1.5
MIGRATION_LOCK = "SELECT pg_advisory_xact_lock(73627001)"
REVISION_LOCK = "LOCK TABLE alembic_version"


@contextmanager
def locked(url: str, lock: str) -> Iterator[None]:
    """Hold a lock for longer than the time-outs. Statements in the block wait for it."""
    engine = create_engine(url, poolclass=NullPool)
    with ThreadPoolExecutor(1) as executor, engine.connect() as connection:
        connection.exec_driver_sql(lock)
        for timeout in ("statement_timeout", "lock_timeout"):
            set_for_database(url, timeout, TIMEOUT)

        def release() -> None:
            connection.exec_driver_sql(f"SELECT pg_sleep({LONGER})")
            connection.rollback()

        executor.submit(release)
        yield


def test_migration(postgres: PostgresServer) -> None:
    """With a large archive, a migration takes minutes. It failed with a traceback."""
    url = postgres.create_empty_database()
    with locked(url, MIGRATION_LOCK):
        schema.migrate(url)


def test_backup(postgres: PostgresServer, tmp_path: Path, now: datetime) -> None:
    db = Database(postgres.create_database())
    with locked(db.url.render_as_string(), REVISION_LOCK):
        assert backup_file.write(db, tmp_path / "backup.zip", tmp_path, now, "1.0").tables
    db.dispose()
