"""Store uploaded files that await confirmation, each for one owner. They are deleted after an hour.

The files are stored beside the journals, not in the database, so they exist on one machine only.
"""

import hashlib
import os
import shutil
from datetime import datetime, timedelta
from pathlib import Path
from secrets import token_urlsafe
from typing import BinaryIO

from app.errors import NotFound

GONE = "This file is no longer available: please upload it again."
LIFETIME = timedelta(hours=1)
_SUFFIX = ".upload"
_PATTERN = "[0-9a-f]" * 64 + _SUFFIX  # of the names of our files, because the folder may have others


def folder(journal_dir: str) -> Path:
    """Return an installation's folder for uploaded files."""
    return Path(journal_dir).absolute().with_name("uploads")


def store(directory: Path, content: BinaryIO, owner: str, now: datetime) -> str:
    """Copy a file into the folder, readable only by this process's user. Return a random name for it."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    delete_expired(directory, now)
    name = token_urlsafe(16)
    path = _path(directory, name, owner)
    path.touch(mode=0o600, exist_ok=False)
    with path.open("wb") as file:
        content.seek(0)
        shutil.copyfileobj(content, file)
    os.utime(path, (now.timestamp(), now.timestamp()))
    return name


def find(directory: Path, name: str, owner: str, now: datetime) -> Path:
    """Return the path of a file. Raise NotFound if the file was deleted or has another owner."""
    path = _path(directory, name, owner)
    if not path.is_file() or _is_expired(path, now):
        raise NotFound(GONE)
    return path


def take(directory: Path, name: str, owner: str, now: datetime) -> BinaryIO:
    """Open a file and delete it, so that only one caller gets it. Raise NotFound like `find`."""
    path = find(directory, name, owner, now)
    try:
        file = path.open("rb")
        path.unlink()
    except FileNotFoundError:
        raise NotFound(GONE) from None
    return file


def delete_expired(directory: Path, now: datetime) -> None:
    """Delete the files that nobody confirmed in time."""
    for path in directory.glob(_PATTERN):
        if _is_expired(path, now):
            path.unlink(missing_ok=True)


def _path(directory: Path, name: str, owner: str) -> Path:
    """Return the path of a file. It contains only a hash of the name and the owner."""
    return directory / (hashlib.sha256(f"{owner} {name}".encode()).hexdigest() + _SUFFIX)


def _is_expired(path: Path, now: datetime) -> bool:
    try:
        return path.stat().st_mtime <= (now - LIFETIME).timestamp()
    except FileNotFoundError:
        return True
