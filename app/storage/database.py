"""The database: one engine, short sessions, and the column types that keep data honest."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

import orjson
from alembic import command
from alembic.config import Config
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Dialect,
    Enum,
    Integer,
    Table,
    any_,
    create_engine,
    event,
    func,
    inspect,
    literal,
    select,
)
from sqlalchemy import DateTime as SqlDateTime
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, Connection, Engine, make_url
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.types import TypeDecorator
from sqlmodel import Session, SQLModel

from app import clock
from app.storage.live_processes import Presence

# SQLite only counts up a key that is declared INTEGER; PostgreSQL would run out of 32 bits.
BigId = BigInteger().with_variant(Integer, "sqlite")

BUSY_TIMEOUT_MS = 30_000
WEB_BUSY_TIMEOUT_MS = 5_000  # visitors who wait for a lock each keep a thread: they are told to come back
CONNECT_SECONDS = "10"  # a host that does not answer would be waited for for two minutes
AGREES = timedelta(seconds=1)  # clocks that differ by less are taken for equal
ROOT = Path(__file__).resolve().parents[2]

_busy_timeout_ms = ContextVar("busy_timeout_ms", default=BUSY_TIMEOUT_MS)


def wait_for_locks(milliseconds: int) -> None:
    """Set how long writing sessions of this thread or task wait for others before they fail."""
    _busy_timeout_ms.set(milliseconds)


def is_unavailable(error: Exception) -> bool:
    """Whether the database is locked, full or away: trying again helps. A wrong statement stays wrong."""
    if isinstance(error, PoolTimeout):
        return True
    code = getattr(getattr(error, "orig", None), "sqlite_errorcode", None)
    return isinstance(error, (OperationalError, InterfaceError)) and code != sqlite3.SQLITE_ERROR


class UtcDateTime(TypeDecorator[datetime]):
    """An aware datetime in UTC, on every backend. A naive one is refused: it would be a guess."""

    impl = SqlDateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a naive datetime has no place in the database")
        value = value.astimezone(UTC)
        return value.replace(tzinfo=None) if dialect.name == "sqlite" else value

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def in_sqlite(moment: datetime) -> str:
    """How SQLite holds an aware moment in UTC, for statements that go past the type."""
    return moment.isoformat(" ", "microseconds")[:26]


def enum_type(kind: type[StrEnum]) -> Enum:
    """A StrEnum stored as its value in a short text column with a CHECK, portable and readable."""
    return Enum(
        kind,
        native_enum=False,
        create_constraint=True,
        name=kind.__name__.lower(),
        length=20,
        values_callable=lambda members: [member.value for member in members],
    )


class Database:
    """Sessions on one engine. Application code never commits: the `write` block does, at its end."""

    def __init__(self, url: str) -> None:
        self.url = make_url(url)
        self.engine = _make_engine(self.url)
        # SQLite takes the write lock at BEGIN, where waiting for it works; taking it later, at the
        # first INSERT of a transaction that has read already, fails at once instead.
        self._writing = self.engine.execution_options(paperboy_write=True)
        self.presence = Presence(self.engine)

    @property
    def locks_rows(self) -> bool:
        """Whether a transaction can lock single rows. SQLite locks the whole database."""
        return self.url.get_backend_name() != "sqlite"

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A session whose changes are thrown away."""
        with Session(self.engine, expire_on_commit=False) as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """A session committed at the end of the block, rolled back when the block raises."""
        info = {"presence": self.presence}
        with Session(self._writing, expire_on_commit=False, info=info) as session, session.begin():
            yield session

    def skew(self) -> timedelta:
        """Return how far the database's clock is ahead of this machine's: see the function `skew`."""
        if self.url.get_backend_name() == "sqlite":
            return timedelta()
        with self.read() as session:
            return skew(session)

    def sync(self) -> None:
        """Wait until what was committed survives the machine. PostgreSQL has seen to it by itself."""
        log = Path(f"{self.url.database}-wal")
        if self.url.get_backend_name() == "sqlite" and log.exists():
            file = os.open(log, os.O_RDONLY)
            try:
                os.fsync(file)
            finally:
                os.close(file)

    def dispose(self) -> None:
        self.presence.end()
        self.engine.dispose()


def skew(session: Session) -> timedelta:
    """Return how far the database's clock is ahead of this machine's; zero where they agree to a second.

    SQLite is a part of this process and has no clock of its own.
    """
    if session.get_bind().dialect.name == "sqlite":
        return timedelta()
    session.connection()  # so that only the question itself is measured
    before = clock.system_time()
    theirs: datetime = session.execute(select(func.clock_timestamp())).scalar_one()
    asking = clock.system_time() - before
    ahead = theirs - (before + asking / 2)
    return ahead if abs(ahead) > AGREES + asking else timedelta()


def insert_new(session: Session, table: type[SQLModel], unique: Sequence[str], **values: Any) -> int | None:
    """Insert a row and return its id, or None when one with the same unique columns is there already."""
    rows = inspect(table).local_table
    statement = _insert_new(session, rows, unique).returning(*rows.primary_key)
    session.flush()
    identity: int | None = session.execute(statement, values).scalar()
    return identity


def insert_all_new(
    session: Session, table: type[SQLModel], unique: Sequence[str], values: Sequence[Mapping[str, Any]]
) -> list[int | None]:
    """The same for many rows, which differ in their unique columns: each one's id, or None."""
    rows = inspect(table).local_table
    returned = (*rows.primary_key, *(rows.c[name] for name in unique))
    statement = _insert_new(session, rows, unique).returning(*returned)
    session.flush()
    ids = {tuple(key): number for number, *key in session.execute(statement, values)} if values else {}
    return [ids.get(tuple(each[name] for name in unique)) for each in values]


def _insert_new(session: Session, rows: Table, unique: Sequence[str]) -> sqlite.Insert | postgresql.Insert:
    # Of the table rather than its class, whose statements take three times as long.
    insert = sqlite.insert if session.get_bind().dialect.name == "sqlite" else postgresql.insert
    return insert(rows).on_conflict_do_nothing(index_elements=unique)


def reserve_ids(session: Session, table: type[SQLModel], count: int) -> Iterator[int]:
    """Return ids for so many new rows, so that rows that name each other can be inserted all at once.

    On SQLite they are reserved as long as the transaction, which must be one that writes.
    """
    if not count:
        return iter(())
    key = inspect(table).local_table.primary_key.columns[0]
    if session.get_bind().dialect.name == "sqlite":
        last = session.execute(select(func.max(key))).scalar() or 0
        return iter(range(last + 1, last + 1 + count))
    sequence = func.pg_get_serial_sequence(key.table.name, key.name)
    drawn = select(func.nextval(sequence)).select_from(func.generate_series(1, count))
    return iter(session.execute(drawn).scalars().all())


def one_of(session: Session, column: Any, values: Iterable[Any]) -> ColumnElement[bool]:
    """`column IN values` as one parameter. As one for each of hundreds, they take longer than the search."""
    if session.get_bind().dialect.name == "postgresql":
        return column == any_(literal(list(values), postgresql.ARRAY(column.type)))  # type: ignore[no-any-return]
    each = func.json_each(json.dumps(list(values))).table_valued("value")
    return column.in_(select(each.c.value))  # type: ignore[no-any-return]


def take_turns(session: Session, name: str) -> None:
    """Wait until no other transaction has this turn, and keep it to the end of one's own.

    SQLite has one writer at a time as it is.
    """
    if session.get_bind().dialect.name == "postgresql":
        session.execute(select(func.pg_advisory_xact_lock(func.hashtext(name))))


def migrate(url: str, revision: str = "head") -> None:
    """Bring a database to a revision of `migrations/`; the newest unless told."""
    config = Config()
    config.set_main_option("script_location", str(ROOT / "migrations"))
    config.set_main_option("sqlalchemy.url", url.replace("%", "%%"))
    command.upgrade(config, revision)


def _make_engine(url: URL) -> Engine:
    if url.get_backend_name() != "sqlite":
        url = url.set(query={"connect_timeout": CONNECT_SECONDS, **url.query})
        engine = create_engine(url, **_JSON, pool_pre_ping=True, pool_size=10, max_overflow=20)
        event.listen(engine, "begin", _begin_postgresql)
        return engine
    if url.database and url.database != ":memory:":
        _create_private(Path(url.database))
    engine = create_engine(
        url,
        **_JSON,
        connect_args={"check_same_thread": False, "timeout": BUSY_TIMEOUT_MS / 1000},
    )
    event.listen(engine, "connect", _configure_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _create_private(path: Path) -> None:
    """Create a file, and the folder it is in, for their owner alone, if they are not there.

    SQLite gives its -wal and -shm files the mode of the database.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileExistsError, PermissionError):  # what cannot be created, SQLite reports
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def _read(text: str | bytes) -> Any:
    """JSON, fast. Half a surrogate, which Python writes and reads, is foreign to orjson."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return json.loads(text)


_JSON: dict[str, Any] = {
    "json_serializer": partial(json.dumps, separators=(",", ":")),
    "json_deserializer": _read,
}


def _configure_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # the driver's own BEGIN comes too late: see _begin_sqlite
    cursor = connection.cursor()
    for pragma in (
        "journal_mode=WAL",
        "foreign_keys=ON",
        "synchronous=NORMAL",
        f"busy_timeout={BUSY_TIMEOUT_MS}",
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


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
