"""A folder into which a mail server writes notices: one file each, or a Maildir."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from types import TracebackType

from app.bounces.mime_parser import MAX_BYTES

SET_ASIDE = "kept"  # name of the folder for mails that are not notices
MIN_AGE = 10  # seconds: a file that changed more recently may still be incomplete


class Folder:
    """A source of notices. Processed files are deleted; files that are not notices are set aside.

    In a Maildir, files in `new` are complete, and files that are set aside move to `cur` with a flag. In
    other folders, a file is read when it has not changed for MIN_AGE seconds, and set aside in `kept`.
    """

    name = "the folder"

    def __init__(self, path: str, now: datetime) -> None:
        self._path, self._now = Path(path), now
        self._maildir = all((self._path / part).is_dir() for part in ("new", "cur"))

    def __enter__(self) -> Folder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def pending(self, limit: int) -> Sequence[str]:
        """Return the names of files to read, oldest first. Raises OSError if the folder cannot be read."""
        folder = self._path / "new" if self._maildir else self._path
        files = ((self._ready_since(file), file.name) for file in folder.iterdir())
        return [name for _, name in sorted((at, name) for at, name in files if at is not None)[:limit]]

    def fetch(self, name: str) -> bytes | None:
        """Return at most MAX_BYTES of a file, or None if it cannot be read."""
        try:
            with open(self._file(name), "rb", opener=_open_regular) as file:
                return file.read(MAX_BYTES)
        except OSError:
            return None

    def remove(self, names: Sequence[str]) -> None:
        """Delete files that were processed."""
        for name in names:
            self._file(name).unlink(missing_ok=True)

    def set_aside(self, names: Sequence[str]) -> None:
        """Move files that an operator should look at."""
        for name in names:
            target = self._path / "cur" / f"{name}:2,F" if self._maildir else self._unused_path(name)
            target.parent.mkdir(exist_ok=True)
            with suppress(FileNotFoundError):  # an operator has removed it
                self._file(name).rename(target)

    def _file(self, name: str) -> Path:
        return self._path / "new" / name if self._maildir else self._path / name

    def _unused_path(self, name: str) -> Path:
        """Return a path in the folder `kept` that is not in use: mail servers may reuse a name."""
        path, number = self._path / SET_ASIDE / name, 1
        while path.exists():
            number += 1
            path = path.with_name(f"{name}.{number}")
        return path

    def _ready_since(self, file: Path) -> float | None:
        """Return when a file was written, or None if it is not a mail, not complete yet, or already gone."""
        try:
            status = file.lstat()
        except FileNotFoundError:
            return None
        if file.name.startswith(".") or not stat.S_ISREG(status.st_mode):
            return None
        complete = self._maildir or self._now.timestamp() - status.st_mtime >= MIN_AGE
        return status.st_mtime if complete else None


def _open_regular(path: str, flags: int) -> int:
    """Open a file without following links or blocking on a pipe: others may write to the folder."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
