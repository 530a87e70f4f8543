"""The folder that a mail server drops notices into: one file each, or a Maildir."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from types import TracebackType

from app.bounces.mime_parser import MAX_BYTES

KEPT = "kept"
SETTLED = 10  # seconds: a file that changed lately may still be being written


class Folder:
    """Files are removed when they were processed. What is no notice is put aside, never deleted.

    In a Maildir, what is in `new` is whole, and what is put aside goes to `cur` with a flag. Elsewhere a file
    is left alone until it has rested for a while, and what is put aside goes to a folder named `kept`.
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

    def waiting(self, most: int) -> Sequence[str]:
        """The names of files to be read, the oldest first; OSError where the folder cannot be read."""
        place = self._path / "new" if self._maildir else self._path
        seen = ((self._ready_since(file), file.name) for file in place.iterdir())
        return [name for _, name in sorted((at, name) for at, name in seen if at is not None)[:most]]

    def raw(self, name: str) -> bytes | None:
        """The bytes of a file, as many as are looked at; None where it cannot be read."""
        try:
            with open(self._file(name), "rb", opener=_opened_itself) as file:
                return file.read(MAX_BYTES)
        except OSError:
            return None

    def remove(self, names: Sequence[str]) -> None:
        """Delete what was processed."""
        for name in names:
            self._file(name).unlink(missing_ok=True)

    def keep(self, names: Sequence[str]) -> None:
        """Put aside what a person should look at."""
        for name in names:
            aside = self._path / "cur" / f"{name}:2,F" if self._maildir else self._aside(name)
            aside.parent.mkdir(exist_ok=True)
            with suppress(FileNotFoundError):  # somebody has looked already
                self._file(name).rename(aside)

    def _file(self, name: str) -> Path:
        return self._path / "new" / name if self._maildir else self._path / name

    def _aside(self, name: str) -> Path:
        """A place of its own: a mail server may give a name again. In a Maildir no two have the same."""
        aside, number = self._path / KEPT / name, 1
        while aside.exists():
            number += 1
            aside = aside.with_name(f"{name}.{number}")
        return aside

    def _ready_since(self, file: Path) -> float | None:
        """When a file was written; None for one that is no mail, not whole yet, or gone again."""
        try:
            seen = file.lstat()
        except FileNotFoundError:
            return None
        if file.name.startswith(".") or not stat.S_ISREG(seen.st_mode):
            return None
        rested = self._now.timestamp() - seen.st_mtime >= SETTLED
        return seen.st_mtime if rested or self._maildir else None


def _opened_itself(path: str, flags: int) -> int:
    """Never what a link leads to, and never waiting for a pipe: others may write to the folder."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
