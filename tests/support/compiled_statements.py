"""Compile each SQL statement once per process instead of once per engine."""

from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import URL, Engine
from sqlalchemy.util import LRUCache

from app.storage import database

MAX_STATEMENTS = 3000  # compiled SQL statements that a process keeps


def _configure_for_tests(connection: Any, _record: object) -> None:
    """Configure a connection to SQLite: do not wait for the disk, and reverse rows that have no ORDER BY.

    Test databases need not survive a power cut. PostgreSQL guarantees no order without ORDER BY, either.
    """
    for pragma in ("reverse_unordered_selects = ON", "synchronous = OFF"):
        connection.execute(f"PRAGMA {pragma}").close()


class SharedStatements:
    """Keep compiled SQL for all engines of a process: compiling takes up to a third of a test's time.

    The statements belong to the dialect of the engine that compiled them, so engines share the dialect, too.
    Only the first engine queries the server for its version and types.
    """

    def __init__(self) -> None:
        self._make_engine = database._make_engine
        self._first: dict[str, Engine] = {}

    def make_engine(self, url: URL) -> Engine:
        """Make an engine as the application does."""
        engine = self._make_engine(url)
        if engine.dialect.name == "sqlite":
            event.listen(engine, "connect", _configure_for_tests)
        if first := self._first.get(engine.dialect.name):
            engine.dialect.initialize = lambda _connection: None  # type: ignore[method-assign]
            engine.dialect = first.dialect
            engine._compiled_cache = first._compiled_cache
        return engine

    def begin(self, url: str) -> None:
        """Make the engine whose dialect and statements all later engines share. Connect it to `url` once."""
        db = database.Database(url)
        with db.read() as session:
            session.connection()
        db.dispose()
        db.engine._compiled_cache = LRUCache(MAX_STATEMENTS)
        self._first[db.engine.dialect.name] = db.engine
