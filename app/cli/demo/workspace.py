"""Lock the demo's folder, so that only one demo runs at a time, and delete the files of an earlier demo."""

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.errors import Conflict
from app.storage import demo_clock

OWN_FILES = (".env", f"*{demo_clock.SUFFIX}", "paperboy.db*", "search", "journal", "uploads")


@contextmanager
def hold(folder: Path, url: str) -> Iterator[None]:
    """Hold the lock of a folder for the demo at `url`. Raise Conflict if another demo holds it.

    The kernel releases the lock when the demo ends, even if it is killed.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise Conflict(f"a demo is already running here, at {file.read()}: stop it first") from None
        file.truncate(0)
        file.write(url)
        file.flush()
        yield


def clear(folder: Path) -> None:
    """Create the folder, and delete the files of an earlier demo. Keep all other files, such as backups."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in (path for pattern in OWN_FILES for path in folder.glob(pattern)):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
