"""Set the demo's clock. A file beside its database records how far the clock is ahead of this machine's.

Commands on that database also use the demo's clock. With this machine's clock, a command would plan digests
for a day months after the demo's date, and the demo itself would have nothing left to plan.
"""

from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

from sqlalchemy.engine import URL, make_url

from app import clock
from app.storage.database import Database

SUFFIX = ".demo-clock"  # of the file, which is named like the database


def travel(db: Database, to: datetime) -> None:
    """Set the clock of this process, and that of later commands on this database, to `to`."""
    clock.travel(to)
    if file := _file(db.url):
        file.write_text(str(round((to - clock.system_time()).total_seconds())), encoding="ascii")


def follow(database_url: str) -> None:
    """Set the clock of this process to the demo's clock, if the database belongs to a demo."""
    with suppress(OSError, ValueError):
        if file := _file(make_url(database_url)):
            clock.travel(clock.system_time() + timedelta(seconds=int(file.read_text(encoding="ascii"))))


def belongs_to_demo(db: Database) -> bool:
    """Return whether a database belongs to a demo."""
    file = _file(db.url)
    return file is not None and file.exists()


def _file(url: URL) -> Path | None:
    is_sqlite = url.get_backend_name() == "sqlite"
    return Path(url.database).with_suffix(SUFFIX) if is_sqlite and url.database else None
