"""The clock of the demo. Its database records how far the demo is ahead of this machine's clock.

Commands on that database use this clock. By their own, they would plan in another time, after which nothing
is planned in the demo's.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from datetime import datetime, timedelta
from pathlib import Path

from sqlalchemy.engine import make_url
from sqlmodel import text

from app import clock
from app.storage.database import Database


def travel(db: Database, to: datetime) -> None:
    """Set the clock of this process, and that of later commands on this database, to `to`."""
    clock.travel(to)
    if db.url.get_backend_name() == "sqlite":
        seconds = round((to - clock.system_time()).total_seconds())
        with db.write() as session:
            session.execute(text(f"PRAGMA user_version = {seconds}"))


def follow(database_url: str) -> None:
    """Set the clock of this process to that of the demo whose database this is. Others have no such clock."""
    url = make_url(database_url)
    if url.get_backend_name() != "sqlite" or not url.database or not Path(url.database).is_file():
        return
    with suppress(sqlite3.Error), closing(sqlite3.connect(url.database)) as connection:
        (seconds,) = connection.execute("PRAGMA user_version").fetchone()
        if seconds:
            clock.travel(clock.system_time() + timedelta(seconds=seconds))
