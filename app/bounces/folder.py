"""The folder that a mail server drops notices into: one file each, or a Maildir."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType

from app.bounces.mime import MAX_BYTES

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
        found = [(file.lstat().st_mtime, file.name) for file in place.iterdir() if self._is_ready(file)]
        return [name for _, name in sorted(found)[:most]]

    def raw(self, name: str) -> bytes:
        """The bytes of a file, as many as are looked at."""
        with self._file(name).open("rb") as file:
            return file.read(MAX_BYTES)

    def remove(self, names: Sequence[str]) -> None:
        """Delete what was processed."""
        for name in names:
            self._file(name).unlink(missing_ok=True)

    def keep(self, names: Sequence[str]) -> None:
        """Put aside what a person should look at."""
        for name in names:
            aside = self._path / "cur" / f"{name}:2,F" if self._maildir else self._path / KEPT / name
            aside.parent.mkdir(exist_ok=True)
            self._file(name).rename(aside)

    def _file(self, name: str) -> Path:
        return self._path / "new" / name if self._maildir else self._path / name

    def _is_ready(self, file: Path) -> bool:
        if file.name.startswith(".") or file.is_symlink() or not file.is_file():
            return False
        return self._maildir or self._now.timestamp() - file.lstat().st_mtime >= SETTLED
