"""The folder with the versions of the search index, on one machine.

Each version is a separate folder. Its name begins with the format and the model that it belongs to, and ends
with a random id, so that readers notice when a version was rebuilt. A file names the version in use. Readers
hold a lock on their version. Other versions are removed once no reader holds them. Folders with another name
or with other files are not versions and are left alone, because other programs may use the folder, too.
"""

import fcntl
import os
import re
import secrets
import shutil
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from app.relevance.model import FORMAT
from app.relevance.search_index_fields import INDEX_FORMAT

_LOCK_OF_READERS, _DAMAGED = "readers.lock", "damaged"
_VERSION = re.compile(r"(removed\.)*\d+\.\d+-\w+\.[0-9a-f]{16}")  # of any release
_CONTENT = {
    "texts", "model.npz", "model.new", "papers.db", "papers.db-wal", "papers.db-shm",
    _LOCK_OF_READERS, _DAMAGED,
}  # fmt: skip


class IndexFolder:
    """The folder with the versions of the index. Only the process that holds its lock may change it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def version_in_use(self) -> Path | None:
        """Return the version that searches use. Return None if no version has this release's format."""
        try:
            name = (self.path / "current").read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            return None
        version = self.path / name
        is_readable = name.startswith(_name_prefix("")) and "/" not in name and version.is_dir()
        return version if is_readable else None

    def version_to_build(self, digest: str) -> Path:
        """Return an unfinished version for the model with this digest, or the path of a new one."""
        unfinished = (v for v in self._versions() if belongs_to(v, digest) and not is_damaged(v))
        return next(unfinished, self.path / f"{_name_prefix(digest[:16])}.{secrets.token_hex(8)}")

    def use(self, version: Path) -> None:
        """Make searches use a version."""
        new = self.path / "current.new"
        new.write_text(version.name, encoding="utf-8")
        with new.open() as file:
            os.fsync(file.fileno())
        new.replace(self.path / "current")

    def abandon_all(self) -> None:
        """Stop using all versions, because one of them is damaged."""
        (self.path / "current").unlink(missing_ok=True)
        for version in self._versions():
            mark_damaged(version)

    def remove_unused(self, version: Path) -> None:
        """Remove the versions that no reader holds, except this one and the one in use."""
        for other in {*self._versions()} - {version, self.version_in_use()}:
            with suppress(OSError), (other / _LOCK_OF_READERS).open("w") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                removed = self.path / f"removed.{other.name}"  # so that no reader opens it half removed
                other.rename(removed)
                shutil.rmtree(removed, ignore_errors=True)

    def _versions(self) -> list[Path]:
        return [
            path
            for path in self.path.iterdir()
            if _VERSION.fullmatch(path.name)
            and path.is_dir()
            and not path.is_symlink()
            and {entry.name for entry in path.iterdir()} <= _CONTENT
        ]

    @contextmanager
    def lock(self) -> Iterator[bool]:
        """Lock the folder and yield True. If another process or thread holds the lock, yield False.

        If a writer dies, its lock is released.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / "lock").open("a") as file:  # do not empty a file of another program
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True


def belongs_to(version: Path, digest: str) -> bool:
    """Return whether a version has this release's format and belongs to the model with this digest."""
    return version.name.startswith(_name_prefix(digest[:16]))


def is_damaged(version: Path) -> bool:
    """Return whether a search could not read a version."""
    return (version / _DAMAGED).exists()


def mark_damaged(version: Path) -> None:
    """Mark a version that a search could not read, so that the next update builds a new one."""
    with suppress(FileNotFoundError):  # it has been removed already
        (version / _DAMAGED).touch()


def hold(version: Path, reader: object) -> None:
    """Keep a version from being removed while its reader exists. Raise OSError if it is being removed."""
    descriptor = os.open(version / _LOCK_OF_READERS, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    weakref.finalize(reader, os.close, descriptor)
    fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)


def _name_prefix(digest: str) -> str:
    return f"{INDEX_FORMAT}.{FORMAT}-{digest}"
