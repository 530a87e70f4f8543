"""Check that our folders are writable, and that other users of this machine cannot read our files."""

import shlex
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from sqlalchemy import make_url

from app.doctor.findings import Finding, error, ok, warning
from app.settings import Settings
from app.storage.database import sqlite_file


def check(settings: Settings) -> Iterator[Finding]:
    """Check that our folders are writable, and that other users cannot read the journals or the database."""
    yield _check_folder(settings, "journal_dir", "sending")
    yield _check_folder(settings, "search_dir", "searching")
    files = [("journal_dir", Path(settings.journal_dir), "700")]
    if file := sqlite_file(make_url(settings.database_url)):
        paths = (Path(f"{file}{ending}") for ending in ("", "-wal", "-shm"))
        files += [("database file", path, "600") for path in paths]
    for name, path, mode in files:
        with suppress(OSError):  # it does not exist yet, or others report that it cannot be used
            # A folder that only its owner can enter protects its contents.
            if others_have_access(path) and others_have_access(path.absolute().parent):
                yield access_warning(name, path, mode)


def _check_folder(settings: Settings, name: str, needed_by: str) -> Finding:
    folder = Path(getattr(settings, name))
    try:
        # The folder is created when it is needed, so check its nearest existing parent.
        existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        reason = write_error(existing)
    except OSError as fault:  # a folder above it cannot be entered
        reason = fault.strerror or str(fault)
    if reason:
        other = f"set PAPERBOY_{name.upper()} to another folder: {needed_by} needs it"
        fix = f"let Paperboy write there, or {other}"
        return error(name, f"{folder} cannot be written to: {reason}", fix)
    return ok(name, f"{folder} can be written to")


def others_have_access(path: Path) -> bool:
    """Return whether users other than its owner have any permission on a file or folder."""
    return bool(path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO))


def access_warning(check_name: str, path: Path, mode: str) -> Finding:
    """Return a warning that other users can read a file or folder. The fix sets its mode to `mode`."""
    message = f"other users of this machine can read {path} ({stat.filemode(path.stat().st_mode)})"
    return warning(check_name, message, f"run `chmod {mode} {shlex.quote(str(path))}` as its owner")


def write_error(folder: Path) -> str:
    """Try to create a file in a folder. Return the error, or an empty string on success."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as fault:
        return fault.strerror or str(fault)
