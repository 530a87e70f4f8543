"""Run another actor's transaction at a chosen moment of a transaction."""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, event

from app.storage.database import wait_for_locks

LOCK_WAIT_MS = 200


@contextmanager
def before_statement(engine: Engine, text: str, action: Callable[[], object]) -> Iterator[None]:
    """Run `action` in another thread, just before this thread's first statement that contains `text`.

    If `action` has to wait for a lock that this thread holds, run it again after the block. Raise its other
    errors.
    """
    errors: list[Exception] = []
    thread, other = threading.get_ident(), threading.Thread(target=lambda: _run(action, errors))

    def run_action(_connection: object, _cursor: object, statement: str, *_: Any) -> None:
        if threading.get_ident() == thread and other.ident is None and text in statement:
            other.start()
            other.join()

    event.listen(engine, "before_cursor_execute", run_action)
    try:
        yield
    finally:
        event.remove(engine, "before_cursor_execute", run_action)
        for error in errors:
            if not _has_waited(error):
                raise error
    assert other.ident is not None, f"no statement contains {text!r}"
    if errors:
        action()


def _has_waited(error: Exception) -> bool:
    """Return whether a transaction failed because it waited too long for a lock."""
    original = getattr(error, "orig", None)
    is_busy = getattr(original, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY
    return is_busy or getattr(original, "sqlstate", None) == "55P03"  # lock_not_available


def _run(action: Callable[[], object], errors: list[Exception]) -> None:
    wait_for_locks(LOCK_WAIT_MS)
    try:
        action()
    except Exception as error:
        errors.append(error)
