"""The database: engine, sessions and parts of queries."""

import json
import os
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from contextvars import ContextVar
from datetime import datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import unquote, urlsplit

from sqlalchemy import (
    Boolean,
    ColumnElement,
    CursorResult,
    UpdateBase,
    any_,
    create_engine,
    event,
    func,
    literal,
    select,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.engine import URL, Connection, Engine, ExceptionContext, make_url
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlmodel import Session

from app import clock
from app.storage import compressed_json, figure_cache
from app.storage.database_errors import is_read_only, is_temporary, is_unavailable, sqlite_code
from app.storage.live_processes import Presence

BUSY_TIMEOUT_MS = 30_000
PAUSE_BETWEEN_BATCHES = 0.1  # in seconds: a transaction that waits for SQLite's lock retries every 100 ms
MIN_FREE_BYTES = 1_000_000  # with less space on the disk, SQLite may not be able to commit
WEB_BUSY_TIMEOUT_MS = 5_000  # shorter, because each request that waits for a lock occupies a thread
CONNECT_SECONDS = "10"  # the default is two minutes
SKEW_TOLERANCE = timedelta(seconds=1)  # clocks that differ by less count as equal
ROOT = Path(__file__).resolve().parents[2]

# What Paperboy relies on, whatever the defaults of a PostgreSQL server, database or role. The driver reads
# times in ISO format only, and west of UTC it could not read a time at the start of year 1. These are
# statements, because connection poolers reject the connection parameter `options`.
SESSION_SETTINGS = (
    "SET client_encoding = 'UTF8'; SET TIME ZONE 'UTC'; SET DateStyle = 'ISO'; "
    "SET default_transaction_isolation = 'read committed'"
)

# transaction_timeout is new in PostgreSQL 17.
_TIMEOUTS = (
    "statement_timeout",
    "lock_timeout",
    "idle_in_transaction_session_timeout",
    "transaction_timeout",
)

# PostgreSQL rejects NUL in text, and lone surrogates cannot be encoded in UTF-8.
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_WITHOUT_TEXT = {type(None), bool, int, float, bytes, datetime}

_busy_timeout_ms = ContextVar("busy_timeout_ms", default=BUSY_TIMEOUT_MS)


def wait_for_locks(milliseconds: int) -> None:
    """Set how long `write` sessions in this thread or task wait for a lock before they fail."""
    _busy_timeout_ms.set(milliseconds)


def storable(value: Any) -> Any:
    """Return a value with U+FFFD in place of the characters in its texts that a database cannot store."""
    if isinstance(value, str):
        is_plain = value.isascii() and "\0" not in value  # much faster than the pattern
        return value if is_plain else _UNSTORABLE.sub("\ufffd", value)
    if isinstance(value, list | tuple):  # almost all are rows, so it is worth calling this for texts only
        return type(value)([item if type(item) in _WITHOUT_TEXT else storable(item) for item in value])
    if isinstance(value, dict):
        return {name: storable(item) for name, item in value.items()}
    return value


class Database:
    """An engine and its sessions. Application code never commits: a `write` block commits when it ends."""

    def __init__(self, url: str, *, create: bool = True, read_only: bool = False) -> None:
        """Create the file of an SQLite database if it is missing, unless `create` is false.

        `read_only` is for a database that no process uses. SQLite can then open it on a full or read-only
        disk, unless it has a log (see `has_log`).
        """
        self.url = make_url(url)
        self.figures = figure_cache.FigureCache()
        is_new = create and not read_only
        self.engine = _make_engine(self.url if is_new else existing_file(self.url, read_only=read_only))
        event.listen(self.engine, "before_cursor_execute", _with_storable_text, retval=True)
        # Make SQLite acquire the write lock at BEGIN, where it can wait for the lock. At the first INSERT in
        # a transaction that has already read, it would fail at once instead.
        self._writing = self.engine.execution_options(paperboy_write=True)
        self.presence = Presence(self.engine)

    @property
    def locks_rows(self) -> bool:
        """Return whether a transaction can lock single rows. SQLite locks the whole database."""
        return self.url.get_backend_name() != "sqlite"

    @contextmanager
    def read(self) -> Iterator[Session]:
        """Yield a session whose changes are discarded."""
        with Session(self.engine, expire_on_commit=False) as session:
            yield session

    @contextmanager
    def read_snapshot(self) -> Iterator[Session]:
        """Yield a session like `read`, whose queries all see the same snapshot."""
        with self.read() as session:
            if self.url.get_backend_name() == "postgresql":  # on SQLite, this is so in every transaction
                session.connection(execution_options={"isolation_level": "REPEATABLE READ"})
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """Yield a session that is committed at the end of the block, or rolled back if the block raises."""
        info = {"presence": self.presence}
        with Session(self._writing, expire_on_commit=False, info=info) as session, session.begin():
            yield session
        if session.info.get(figure_cache.CHANGED):
            self.figures.clear()

    def write_in_batches(self, work: Callable[[Session], int], stopping: Event) -> None:
        """Call `work` in one transaction after another, until it returns 0 or `stopping` is set.

        Between them, SQLite's lock stays free long enough for other transactions to acquire it.
        """
        pause = 0 if self.locks_rows else PAUSE_BETWEEN_BATCHES
        has_ended = stopping.is_set()
        while not has_ended:
            with self.write() as session:
                count = work(session)
            has_ended = not count or stopping.wait(pause)

    @contextmanager
    def read_then_write(self) -> Iterator[Session]:
        """Yield a session that locks nothing until it writes, and is committed at the end of the block.

        On SQLite, call `has_changed` before the session writes.
        """
        with Session(self.engine, expire_on_commit=False) as session, session.begin():
            yield session

    def skew(self) -> timedelta:
        """Return how far the database's clock is ahead of this machine's. See the function `skew`."""
        if self.url.get_backend_name() == "sqlite":
            return timedelta()
        with self.read() as session:
            return skew(session)

    def require_writes(self) -> None:
        """Raise OperationalError if the database refuses writes.

        PostgreSQL refuses them as a standby. Try to write, because the error also removes a connection that
        began while the database was read-only and remains so. SQLite refuses them if its file is read-only or
        the disk is full. Do not wait for its lock: a process that has it can write.
        """
        if self.locks_rows:
            with self.write() as session:
                session.connection().exec_driver_sql("DELETE FROM subscriber WHERE false")
        elif file := sqlite_file(self.url):
            _require_writable(file)

    def fsync(self) -> None:
        """Flush committed transactions to disk. PostgreSQL flushes them at each commit."""
        database_file = sqlite_file(self.url)
        if database_file and (log := Path(f"{database_file}-wal")).exists():
            file = os.open(log, os.O_RDONLY)
            try:
                os.fsync(file)
            finally:
                os.close(file)

    def dispose(self) -> None:
        self.presence.end()
        self.engine.dispose()


def _require_writable(file: Path) -> None:
    """Raise OperationalError if an SQLite database is read-only or its disk is full.

    A connection that was opened before the file became read-only can still write, so open another one.
    """
    url = f"{file.absolute().as_uri()}?mode=rw"
    try:
        with closing(sqlite3.connect(url, timeout=0, isolation_level=None, uri=True)) as connection:
            connection.execute("BEGIN IMMEDIATE")
        if shutil.disk_usage(file.parent).free < MIN_FREE_BYTES:
            full = sqlite3.OperationalError("database or disk is full")
            full.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise full
    except sqlite3.DatabaseError as error:
        if sqlite_code(error) != sqlite3.SQLITE_BUSY:
            raise OperationalError("BEGIN IMMEDIATE", None, error) from error


def has_changed(session: Session) -> bool:
    """Return whether an SQLite database has changed since the transaction began to read. If not, lock it.

    SQLite lets a transaction write only if nobody has written since it began to read.
    """
    try:
        session.connection().exec_driver_sql("DELETE FROM subscriber WHERE 0")
    except OperationalError as error:
        if not is_unavailable(error):
            raise
        return True
    return False


def skew(session: Session) -> timedelta:
    """Return how far the database's clock is ahead of this machine's, or 0 if that is within the tolerance.

    The tolerance is SKEW_TOLERANCE plus the round trip. SQLite runs in this process and has no clock of its
    own.
    """
    if session.get_bind().dialect.name == "sqlite":
        return timedelta()
    session.connection()  # so that connecting does not count as part of the round trip
    before = clock.system_time()
    database_time: datetime = session.execute(select(func.clock_timestamp())).scalar_one()
    round_trip = clock.system_time() - before
    ahead = database_time - (before + round_trip / 2)
    return ahead if abs(ahead) > SKEW_TOLERANCE + round_trip else timedelta()


def execute_and_count(session: Session, statement: UpdateBase) -> int:
    """Execute an UPDATE or a DELETE, and return the number of rows that it matched."""
    result: CursorResult[Any] = session.execute(statement)  # type: ignore[assignment]
    return result.rowcount


def in_array(session: Session, column: Any, values: Iterable[Any]) -> ColumnElement[bool]:
    """Return the condition `column IN values` with one parameter, because hundreds of parameters are slow."""
    if session.get_bind().dialect.name == "postgresql":
        return column == any_(literal(list(values), postgresql.ARRAY(column.type)))  # type: ignore[no-any-return]
    array = func.json_each(json.dumps(list(values))).table_valued("value")
    return column.in_(select(array.c.value))  # type: ignore[no-any-return]


def contains(column: Any, text: str) -> ColumnElement[bool]:
    """Return the condition that a column contains a text, ignoring case.

    SQLite itself ignores the case of ASCII letters only, as does PostgreSQL with the locale C. For other
    letters, SQLite calls a function in Python, which has to wait for other threads in each row. PostgreSQL
    gets a pattern with both cases of each letter.
    """
    if text.isascii():
        return column.icontains(text, autoescape=True)  # type: ignore[no-any-return]
    part = re.sub("[%_/]", r"/\g<0>", text)
    pattern = "".join(map(_caseless_pattern, text))
    return _Contains(column, literal(f"%{part}%"), literal(pattern))


def _caseless_pattern(char: str) -> str:
    """Return a regular expression for a character. PostgreSQL ignores the case of ASCII letters in it."""
    return re.escape(char) if char.isascii() else f"(?:{char}|{char.lower()}|{char.upper()})"


class _Contains(FunctionElement[bool]):
    """The condition of `contains` for a column, a pattern for LIKE and a regular expression."""

    inherit_cache = True
    type = Boolean()


@compiles(_Contains)
def _compile_contains(element: _Contains, compiler: SQLCompiler, **options: Any) -> str:
    column, like_pattern, regular_expression = element.clauses
    if compiler.dialect.name == "sqlite":
        texts = (compiler.process(each, **options) for each in (column, like_pattern))
        return "casefold({}) LIKE casefold({}) ESCAPE '/'".format(*texts)
    return f"{compiler.process(column, **options)} ~* {compiler.process(regular_expression, **options)}"


def utc_day(session: Session, moment: Any) -> Any:
    """Return the UTC day of a column with times: a date in PostgreSQL, and its ISO text in SQLite."""
    is_sqlite = session.get_bind().dialect.name == "sqlite"
    return func.date(moment if is_sqlite else func.timezone("UTC", moment))


def advisory_lock(session: Session, name: str) -> None:
    """Take a PostgreSQL advisory lock until the transaction ends. SQLite has a single writer anyway."""
    if session.get_bind().dialect.name == "postgresql":
        session.execute(select(func.pg_advisory_xact_lock(func.hashtext(name))))


def lift_timeouts(connection: Connection) -> None:
    """Disable the time-outs of a PostgreSQL server, database or role until the transaction ends.

    Migrations and backups may take longer. `pg_dump` does the same.
    """
    if connection.dialect.name == "postgresql":
        lift = "SELECT set_config(name, '0', true) FROM pg_settings WHERE name = ANY(%(names)s)"
        connection.exec_driver_sql(lift, {"names": list(_TIMEOUTS)})


def sqlite_file(url: URL) -> Path | None:
    """Return the file of an SQLite database, or None for another database and for one in memory.

    Its name in the URL may be a URI, as in sqlite:///file:/path/paperboy.db?uri=true.
    """
    name = (url.get_backend_name() == "sqlite" and url.database) or ":memory:"
    if name.startswith("file:"):
        name = unquote(urlsplit(name).path)
    return Path(name) if name != ":memory:" and url.query.get("mode") != "memory" else None


def existing_file(url: URL, *, read_only: bool = False) -> URL:
    """Return the URL of the same database, in a form in which SQLite does not create a missing file.

    To read a database, SQLite creates files beside it, unless it is told that nobody changes the database.
    """
    file = sqlite_file(url)
    if not file:
        return url
    access = {"mode": "ro" if read_only else "rw"}
    if read_only and not has_log(file):
        access["immutable"] = "1"
    return url.set(database=file.absolute().as_uri(), query={**url.query, "uri": "true", **access})


def has_log(file: Path) -> bool:
    """Return whether an SQLite database has changes that are only in its -wal file."""
    log = Path(f"{file}-wal")
    return log.exists() and log.stat().st_size > 0


def _make_engine(url: URL) -> Engine:
    if url.get_backend_name() != "sqlite":
        url = url.set(query={"connect_timeout": CONNECT_SECONDS, **url.query})
        engine = create_engine(url, **_OPTIONS, pool_pre_ping=True, pool_size=10, max_overflow=20)
        # First, because SQLAlchemy reads the version and the default isolation level of its first connection.
        event.listen(engine, "connect", _configure_postgresql, insert=True)
        event.listen(engine, "begin", _begin_postgresql)
        event.listen(engine, "handle_error", _reclassify_error)
        return engine
    if (path := sqlite_file(url)) and "mode" not in url.query:
        # Only the owner has access. SQLite gives its -wal and -shm files the same mode as the database.
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError, PermissionError):  # SQLite reports a file that it cannot open
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    arguments = {"check_same_thread": False, "timeout": BUSY_TIMEOUT_MS / 1000}
    engine = create_engine(url, **_OPTIONS, connect_args=arguments)
    event.listen(engine, "connect", _configure_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


_OPTIONS: dict[str, Any] = {
    "hide_parameters": True,  # parameters contain addresses, and error messages are logged and stored
    "json_serializer": compressed_json.dump_text,
    "json_deserializer": compressed_json.load_text,
}


def _with_storable_text(
    _connection: object, _cursor: object, statement: str, parameters: Any, _context: object, _many: bool
) -> tuple[str, Any]:
    """Replace the characters that a database cannot store in the parameters of a statement."""
    return statement, storable(parameters)


def _configure_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # the driver's BEGIN would come too late: see _begin_sqlite
    cursor = connection.cursor()
    timeout = f"busy_timeout={BUSY_TIMEOUT_MS}"
    for pragma in ("journal_mode=WAL", "foreign_keys=ON", "synchronous=NORMAL", timeout):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()
    connection.create_function("casefold", 1, _casefold, deterministic=True)


def _casefold(value: object) -> object:
    return value.casefold() if isinstance(value, str) else value


def _configure_postgresql(connection: Any, _record: object) -> None:
    connection.autocommit = True
    connection.execute(SESSION_SETTINGS)
    connection.autocommit = False


def _reclassify_error(context: ExceptionContext) -> OperationalError | None:
    """Return an OperationalError for a temporary error, so that callers treat all outages alike.

    If one was read-only, replace all connections: `default_transaction_read_only` applies to new connections
    only, and after a failover the old ones may still lead to the former primary.
    """
    cause = context.original_exception
    if not is_temporary(cause):
        return None
    context.is_disconnect = context.is_disconnect or is_read_only(cause)
    return OperationalError(
        context.statement,
        context.parameters,
        cause,
        hide_parameters=True,
        connection_invalidated=context.is_disconnect,
    )


def _begin_sqlite(connection: Connection) -> None:
    if not connection.get_execution_options().get("paperboy_write", False):
        connection.exec_driver_sql("BEGIN")
        return
    timeout = _busy_timeout_ms.get()
    if connection.info.get("busy_timeout_ms", BUSY_TIMEOUT_MS) != timeout:
        connection.exec_driver_sql(f"PRAGMA busy_timeout={timeout}")
        connection.info["busy_timeout_ms"] = timeout
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _begin_postgresql(connection: Connection) -> None:
    timeout = _busy_timeout_ms.get()
    if timeout != BUSY_TIMEOUT_MS and connection.get_execution_options().get("paperboy_write", False):
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = {timeout}")
