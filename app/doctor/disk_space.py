"""Check the free space on the disk."""

import shutil
from collections.abc import Iterator
from pathlib import Path

from app.doctor.findings import Finding, error, ok, warning
from app.storage.database import Database, sqlite_file

LOW_SPACE, NO_SPACE = 2_000_000_000, 200_000_000  # bytes


def check(db: Database, journals: Path) -> Iterator[Finding]:
    """Check the free disk space for the journals and for an SQLite database."""
    folders = {journals}
    if file := sqlite_file(db.url):
        folders.add(file.parent)
    existing = list[tuple[int, Path]]()
    for folder in sorted(folders):
        try:
            existing.append((shutil.disk_usage(folder).free, folder))
        except FileNotFoundError:
            continue  # it is created when it is needed
        except OSError as fault:
            message = f"the free space in {folder} cannot be read: {fault.strerror}"
            yield error("disk", message, "check the disk, and let Paperboy enter the folder")
    if existing:
        free, folder = min(existing)
        message = f"{free / 1e9:.1f} GB are free in {folder}"
        fix = "free disk space, or lower PAPERBOY_RETENTION_DAYS: with a full disk, no mail is sent"
        if free < LOW_SPACE:
            yield (error if free < NO_SPACE else warning)("disk", message, fix)
        else:
            yield ok("disk", message)
