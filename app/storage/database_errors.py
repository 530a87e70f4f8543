"""Classify the errors of databases: outages, limits, read-only databases, full disks."""

import sqlite3

from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

# SQLSTATEs of a read-only database, such as a standby, and of transactions that PostgreSQL ended after a
# time-out. The driver counts them as internal errors.
_READ_ONLY, _TIMED_OUT = "25006", ("25P03", "25P04")


def is_unavailable(error: Exception) -> bool:
    """Return whether the database is locked, full, read-only or unreachable, so that a retry may succeed."""
    if isinstance(error, PoolTimeout):
        return True
    code = getattr(getattr(error, "orig", None), "sqlite_errorcode", None)
    if code == sqlite3.SQLITE_ERROR or exceeds_limit(error):
        return False
    return isinstance(error, (OperationalError, InterfaceError))


def exceeds_limit(error: Exception) -> bool:
    """Return whether PostgreSQL refused a value that exceeds a limit, such as the size of an index row."""
    state = getattr(getattr(error, "orig", None), "sqlstate", None)
    return isinstance(state, str) and state.startswith("54")  # class 54: program limit exceeded


def is_read_only(error: BaseException) -> bool:
    """Return whether the database refused a write, such as a standby of PostgreSQL or a read-only file."""
    cause = getattr(error, "orig", error)
    return getattr(cause, "sqlstate", None) == _READ_ONLY or sqlite_code(error) == sqlite3.SQLITE_READONLY


def is_full(error: BaseException) -> bool:
    """Return whether SQLite refused a write because the disk is full."""
    return sqlite_code(error) == sqlite3.SQLITE_FULL


def sqlite_code(error: BaseException) -> int:
    """Return the primary result code of an error of SQLite, or 0 for other errors."""
    return getattr(getattr(error, "orig", error), "sqlite_errorcode", 0) & 0xFF


def is_temporary(cause: BaseException) -> bool:
    """Return whether the driver counts an error of PostgreSQL as internal, although a retry may succeed."""
    return getattr(cause, "sqlstate", None) in (_READ_ONLY, *_TIMED_OUT)


def is_outage(error: Exception) -> bool:
    """Return whether the database is unreachable or read-only. Otherwise, it is locked or full."""
    cause = getattr(error, "orig", None)
    if isinstance(cause, sqlite3.Error):
        return sqlite_code(cause) in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
    state = getattr(cause, "sqlstate", "")
    # Without a connection, there is no SQLSTATE. Class 57P: PostgreSQL is starting or shutting down.
    return state is None or state.startswith(("08", "57P", _READ_ONLY))
