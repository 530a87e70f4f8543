"""A folder into which a mail server writes notices: one file per notice, or a Maildir."""

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Self

from app.bounces.mime_parser import MAX_BYTES

SET_ASIDE = "kept"  # name of the folder for files that an operator should look at
MIN_AGE = 10  # seconds: a file that changed more recently may still be incomplete


class Folder:
    """A source of notices. Processed files are deleted, and files that could not be processed are set aside.

    In a Maildir, files in `new` are complete, and files that are set aside are flagged and moved to `cur`. In
    other folders, a file is complete if it has not changed for MIN_AGE seconds, and files are set aside in
    `kept`.
    """

    name = "the folder"

    def __init__(self, path: str, now: datetime) -> None:
        self._path, self._now = Path(path), now
        self._maildir = all((self._path / part).is_dir() for part in ("new", "cur"))
        self._incoming = self._path / "new" if self._maildir else self._path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def pending(self, limit: int) -> Sequence[str]:
        """Return the names of files to read, oldest first. Raise OSError if the folder cannot be read."""
        files: list[tuple[float, str]] = []
        for file in self._incoming.iterdir():
            with suppress(FileNotFoundError):  # another process removed it
                status = file.lstat()
                complete = self._maildir or self._now.timestamp() - status.st_mtime >= MIN_AGE
                if complete and stat.S_ISREG(status.st_mode) and not file.name.startswith("."):
                    files.append((status.st_mtime, file.name))
        return [name for _, name in sorted(files)[:limit]]

    def fetch(self, name: str) -> bytes | None:
        """Return at most MAX_BYTES of a file, or None if it no longer exists.

        Raise OSError if it cannot be read.
        """
        try:
            with open(self._incoming / name, "rb", opener=_open_regular) as file:
                return file.read(MAX_BYTES)
        except FileNotFoundError:
            return None

    def remove(self, names: Sequence[str]) -> None:
        """Delete files that were processed."""
        for name in names:
            (self._incoming / name).unlink(missing_ok=True)

    def set_aside(self, names: Sequence[str]) -> None:
        """Move unprocessed files to `cur` or `kept`, where an operator should look at them."""
        for name in names:
            target = self._path / ("cur" if self._maildir else SET_ASIDE)
            target /= f"{name}:2,F" if self._maildir else name
            number = 1
            while not self._maildir and target.exists():  # mail servers may reuse a name
                number += 1
                target = target.with_name(f"{name}.{number}")
            target.parent.mkdir(exist_ok=True)
            with suppress(FileNotFoundError):  # an operator removed it
                (self._incoming / name).rename(target)


def _open_regular(path: str, flags: int) -> int:
    """Open a file that another user may have created. Do not follow symlinks or block on pipes."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
