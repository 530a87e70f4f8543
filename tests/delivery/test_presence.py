"""Test the detection of live processes by file locks."""

import errno
import stat
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from app.application import Application
from app.storage import live_processes, locks

HOUR = timedelta(hours=1)
DEAD = "host:1:0123456789ab:0123456789ab"


def folder(app: Application) -> Path:
    return Path(f"{app.db.url.database}-processes")


def test_a_process_without_a_lock_is_dead(app: Application, now: datetime) -> None:
    """Its lease is free immediately. A holder without a process id keeps its lease to the end."""
    with app.db.write() as session:
        assert locks.acquire(session, "train", DEAD, now, HOUR)
        assert locks.acquire(session, "prune", "host:1:abc", now, HOUR)
    with app.db.write() as session:
        assert locks.acquire(session, "train", live_processes.new_holder(), now, HOUR)
        assert not locks.acquire(session, "prune", live_processes.new_holder(), now, HOUR)
        assert live_processes.is_alive(session, DEAD) is False


def test_dispose_releases_the_lock(app: Application) -> None:
    """`announce` acquires it again. PostgreSQL's process may end later than the lock is released."""
    is_postgresql = app.db.url.get_backend_name() == "postgresql"
    with app.db.engine.connect() as watching:
        watching.detach()  # so that `dispose` does not close it
        for _ in range(30):
            app.db.presence.announce()
            app.db.presence.announce()
            app.db.dispose()
            if is_postgresql:
                held = """
                    SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'
                        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
                """
                assert watching.scalar(text(held)) == 0
    if not is_postgresql:
        assert list(folder(app).iterdir()) == []


@pytest.mark.once
def test_lock_files_are_private(app: Application) -> None:
    """Only the owner can access them. Files of dead processes are removed."""
    folder(app).mkdir(mode=0o700)
    stale = folder(app) / "0123456789ab-000000.lock"
    stale.touch()
    app.db.presence.announce()
    (lock_file,) = folder(app).iterdir()
    assert lock_file != stale
    assert [stat.S_IMODE(path.stat().st_mode) for path in (folder(app), lock_file)] == [0o700, 0o600]


@pytest.mark.once
def test_file_system_without_locks(app: Application, now: datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    """No process is declared dead, so leases end only by time."""

    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(live_processes.fcntl, "flock", no_locks)
    with app.db.write() as session:
        assert locks.acquire(session, "train", DEAD, now, HOUR)
        assert not locks.acquire(session, "train", live_processes.new_holder(), now, HOUR)
        assert live_processes.is_alive(session, DEAD) is None
        assert locks.acquire(session, "train", live_processes.new_holder(), now + HOUR, HOUR)
    assert list(folder(app).iterdir()) == []
