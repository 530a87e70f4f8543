"""Detect which processes are alive, from locks that are released when their process dies.

A process holds one lock for each database that it uses. On PostgreSQL, it is a session-level advisory lock on
a separate connection. On SQLite, it is a lock on a file next to the database. The database or the kernel
releases the lock when the process dies, so this does not depend on any clock.

A process that holds its lock is alive. A process without a lock is dead, or has briefly lost its connection.
Emails are therefore recovered only after their lease has also expired (see delivery.ledger.recovery).
"""

import fcntl
import os
import re
import socket
import uuid
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import Lock
from urllib.parse import unquote, urlsplit

import structlog
from sqlalchemy import text
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import Session

from app.errors import Conflict

_PROCESS = re.compile(r"[0-9a-f]{12}")
_KEYS = 0x5042 << 48  # the prefix of our advisory locks, to distinguish them from those of other programs
_LOCK = text("SELECT pg_advisory_lock_shared(:key)")
_UNLOCK = text("SELECT pg_advisory_unlock_all()")
_IS_HELD = text("""
    SELECT EXISTS (
        SELECT FROM pg_locks
        WHERE locktype = 'advisory' AND granted AND objsubid = 1
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
            AND classid::bigint = :high AND objid::bigint = :low
    )
""")
_OTHERS = text("""
    SELECT count(DISTINCT pid) FROM pg_locks
    WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND classid::bigint >> 16 = :prefix
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND objid::bigint + (classid::bigint << 32) <> :own
""")
_SERVER_PROCESS = text("SELECT pg_backend_pid()")
# A machine that loses power does not close its connection. With these keepalives, PostgreSQL notices after
# two minutes instead of two hours.
_KEEPALIVES = (
    "SET tcp_keepalives_idle = 60",
    "SET tcp_keepalives_interval = 10",
    "SET tcp_keepalives_count = 6",
)

log = structlog.get_logger(__name__)


def new_holder() -> str:
    """Return a name for a holder of leases. It is unique across machines and identifies this process."""
    return f"{process_name()}:{uuid.uuid4().hex[:12]}"


def process_name() -> str:
    """Return the name of this process: its machine, its pid and a random number."""
    return f"{socket.gethostname()[:60]}:{os.getpid()}:{_process(os.getpid())}"


@cache
def _process(_pid: int) -> str:
    return uuid.uuid4().hex[:12]  # one per pid, because a forked child is a different process


def is_alive(session: Session, holder: str) -> bool | None:
    """Return whether a holder's process is alive, or None if that cannot be determined.

    Also return None for this process: it is alive, but the thread that was the holder may have ended.
    """
    parts = holder.split(":")
    if len(parts) != 4 or not _PROCESS.fullmatch(parts[2]) or parts[2] == _process(os.getpid()):
        return None
    engine = session.get_bind().engine
    if engine.dialect.name == "postgresql":
        key = _key(parts[2])
        return bool(session.execute(_IS_HELD, {"high": key >> 32, "low": key & 0xFFFFFFFF}).scalar())
    folder = _folder(engine)
    if folder is None:
        return None
    try:
        if any(_is_locked(path) for path in folder.glob(f"{parts[2]}-*.lock")):
            return True
        # If this process has no lock file, the file system may not support locks.
        return False if any(folder.glob(f"{_process(os.getpid())}-*.lock")) else None
    except OSError:  # a file system without locks
        return None


def refuse_others(engine: Engine, name: str = "the database") -> None:
    """Raise Conflict if other processes use the database, and so may send mail or run jobs."""
    if others := count_others(engine):
        raise Conflict(f"{name} is in use by {others} other process{'es' * (others > 1)}: stop the service")


def count_others(engine: Engine) -> int:
    """Return the number of other processes that hold their lock."""
    own = _process(os.getpid())
    if engine.dialect.name == "postgresql":
        with engine.connect() as connection:
            return int(connection.execute(_OTHERS, {"prefix": _KEYS >> 48, "own": _key(own)}).scalar_one())
    locked = (path.name[:12] for path in (_folder(engine) or Path()).glob("*.lock") if _is_locked(path))
    return len(set(locked) - {own})


def uses_transaction_pooling(engine: Engine) -> bool:
    """Return whether a connection pooler in front of PostgreSQL pools transactions.

    Then the lock of a dead process is held as long as the pooler keeps its connection. Two short transactions
    nearly always get the same server connection from it.
    """
    if engine.dialect.name != "postgresql":
        return False
    with engine.connect() as first, engine.connect() as second:
        before = first.scalar(_SERVER_PROCESS)
        first.rollback()
        during, after = second.scalar(_SERVER_PROCESS), first.scalar(_SERVER_PROCESS)
    return bool(during == before or after != before)


def _key(process: str) -> int:
    return _KEYS | int(process, 16)


def _folder(engine: Engine) -> Path | None:
    """Return the folder for the lock files of the processes that use an SQLite database."""
    database = engine.url.database or ":memory:"
    if database.startswith("file:"):  # see `database.existing_file`
        database = unquote(urlsplit(database).path)
    return Path(f"{database}-processes") if database != ":memory:" else None


def _is_locked(path: Path) -> bool:
    with suppress(FileNotFoundError):
        file = os.open(path, os.O_RDONLY)
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(file)
    return False


class Presence:
    """The lock that shows that this process is alive, from the first `announce` until `end`. Thread-safe."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = Lock()
        self._connection: Connection | None = None
        self._file: tuple[int, Path] | None = None
        self._lockable = True  # False if the file system has no locks

    def announce(self) -> None:
        """Acquire the lock, or reacquire it if the connection was lost."""
        with self._lock:
            if self._engine.dialect.name == "postgresql":
                self._ensure_connected()
            elif self._file is None and self._lockable and (folder := _folder(self._engine)):
                self._file = _lock_new_file(folder)
                self._lockable = self._file is not None

    def end(self) -> None:
        """Release the lock."""
        with self._lock:
            if self._connection is not None:
                with suppress(SQLAlchemyError):
                    # After a disconnection alone, PostgreSQL holds the lock until its own process has ended.
                    self._connection.execute(_UNLOCK)
            self._disconnect()
            if self._file is not None:
                file, path = self._file
                path.unlink(missing_ok=True)
                os.close(file)
                self._file = None

    def _ensure_connected(self) -> None:
        try:
            if self._connection is not None and self._connection.scalar(text("SELECT 1")):
                return
        except SQLAlchemyError:
            self._disconnect()
        connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        connection.detach()  # so that the pool does not reuse it, and closing it releases the lock
        self._connection = connection
        try:
            for setting in _KEEPALIVES:
                connection.exec_driver_sql(setting)
            connection.execute(_LOCK, {"key": _key(_process(os.getpid()))})
        except BaseException:
            self._disconnect()
            raise

    def _disconnect(self) -> None:
        if self._connection is not None:
            with suppress(SQLAlchemyError):
                self._connection.close()
            self._connection = None


def _lock_new_file(folder: Path) -> tuple[int, Path] | None:
    """Create and lock a file for this process. It gets the suffix `.lock` only once it is locked.

    Delete the files of dead processes first. Return None if the file cannot be created or locked.
    """
    name = f"{_process(os.getpid())}-{uuid.uuid4().hex[:6]}"
    path, unnamed = folder / f"{name}.lock", folder / f"{name}.new"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        for other in folder.glob("*.lock"):
            if not _is_locked(other):  # its process is dead
                other.unlink(missing_ok=True)
        file = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            unnamed.rename(path)
        except OSError:
            os.close(file)
            unnamed.unlink(missing_ok=True)
            raise
        return file, path
    except OSError as error:
        problem = "cannot create a lock file, so other processes cannot see that this process is alive"
        log.warning(problem, folder=str(folder), error=str(error))
        return None
