"""What a sender is about to do, and what came of it, written down where a dying process cannot lose it.

A journal is one file of one sender. A short line is written right before a mail's body leaves, another
after its answer. The file is mapped into memory: what stands there is the kernel's, so `kill -9` loses none,
and no line costs a system call. The file is locked as long as its sender lives. Whoever finds it unlocked
settles what that sender had in hand (`left_behind`).

    <crc>  O  <owner>  <boot>  <durable or empty>    the first line
    <crc>  I  <id>                                   about to be handed over: where the disk is waited for
    <crc>  B  <id>  <time>  <message-id>  <subject>  the body leaves now
    <crc>  E  <id>  <time>  <verdict>  <code>  <the relay's words>

Fields are set apart by tabs. The file is filled with zeros ahead of its lines, so that there is room for
every answer before a body leaves: a full disk stops sending in time, as an error and not as a broken map. A
line that is torn, or not ours, has a wrong checksum and is passed over.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import structlog

from app.errors import JournalError
from app.types import SendOutcome, SendResult

ROOM = 1 << 18  # bytes made ready at a time
CUT_AT = 1 << 20  # bytes after which the lines that are no longer needed are dropped
LONGEST_WORDS = 1000  # bytes of a relay's answer
LONGEST_END = LONGEST_WORDS + 100
_BOOT = Path("/proc/sys/kernel/random/boot_id")

log = structlog.get_logger(__name__)


class AttemptResult(NamedTuple):
    """What came of one attempt. `at` is in seconds since 1970; message_id is empty when nothing was begun."""

    delivery_id: int
    answer: SendResult
    at: float
    message_id: str = ""
    subject: str = ""


@dataclass(frozen=True, slots=True)
class AbandonedJournal:
    """What a dead sender's journal tells."""

    owner: str
    complete: bool  # False: the machine died as well, and may have lost lines that were written
    begun: Mapping[int, tuple[str, str]]  # Message-ID and subject; without an answer: each may have arrived
    ended: tuple[AttemptResult, ...]


class Journal:
    """The journal of one living sender. Not to be used by two threads at once."""

    _file: int
    _map: mmap.mmap
    _at: int  # where the next line goes
    _ready: int  # bytes that there is room for

    def __init__(self, folder: Path, owner: str, *, durable: bool = False) -> None:
        self.durable = durable
        self._path = folder / f"{owner.rpartition(':')[2]}.journal"
        self._first = _line(f"O\t{owner}\t{_boot()}\t{'durable' if durable else ''}")
        self._lines: dict[int, bytes] = {}  # what must not be cut off yet, by delivery
        self._open: set[int] = set()
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with _alone(folder):
                self._start_file(self._path)
        except OSError as error:
            raise _unwritable(self._path, error) from error

    @property
    def open(self) -> frozenset[int]:
        """Begun, and not ended."""
        return frozenset(self._open)

    def is_open(self, delivery_id: int) -> bool:
        return delivery_id in self._open

    def intend(self, delivery_ids: Iterable[int]) -> None:
        """These may leave soon. Followed by `sync`, that much survives the machine."""
        for delivery_id in delivery_ids:
            self._keep(delivery_id, _line(f"I\t{delivery_id}"), len(self._open))

    def sync(self) -> None:
        """Wait for the disk. This one may run in another thread."""
        try:  # not `mmap.flush`, which lets nobody else run meanwhile
            os.fsync(self._file)
        except OSError as error:
            raise _unwritable(self._path, error) from error

    def begin(self, delivery_id: int, at: float, message_id: str, subject: str) -> None:
        """The body leaves now. JournalError: it must not, for there is no room to write down its answer."""
        line = _line(f"B\t{delivery_id}\t{at:.3f}\t{message_id}\t{subject}")
        self._keep(delivery_id, line, len(self._open) + 1)
        self._open.add(delivery_id)

    def end(self, ending: AttemptResult) -> None:
        """The answer is here. What was begun has its room already."""
        delivery_id, answer = ending.delivery_id, ending.answer
        words = answer.text.encode("utf-8", "replace")[:LONGEST_WORDS].decode("utf-8", "ignore")
        line = _line(f"E\t{delivery_id}\t{ending.at:.3f}\t{answer.outcome}\t{answer.code or ''}\t{words}")
        self._keep(delivery_id, line, len(self._open) - (delivery_id in self._open))
        self._open.discard(delivery_id)

    def folded(self, delivery_ids: Iterable[int]) -> None:
        """The ledger knows of these ends: their lines are needed no more."""
        for delivery_id in delivery_ids:
            if delivery_id not in self._open:
                self._lines.pop(delivery_id, None)
        if self._at > CUT_AT:
            with suppress(OSError):  # then it is longer than it need be
                self._cut()

    def close(self, *, settled: bool = True) -> None:
        """The sender is done. What the ledger does not know yet stays for whoever starts next, and so does
        the journal where not all that was claimed is `settled`: that tells that it never left."""
        if settled and not self._lines:
            _remove(self._path)
        self._map.close()
        os.close(self._file)

    def _keep(self, delivery_id: int, line: bytes, answers_to_come: int) -> None:
        try:
            self._make_room(len(line) + LONGEST_END * answers_to_come)
            self._write(line)
        except OSError as error:
            raise _unwritable(self._path, error) from error
        self._lines[delivery_id] = self._lines.get(delivery_id, b"") + line

    def _make_room(self, size: int) -> None:
        if self._at + size > self._ready:
            grown = max(ROOM, size)
            _fill(self._file, grown, self._ready)
            mapped = mmap.mmap(self._file, self._ready + grown)
            self._map.close()
            self._map, self._ready = mapped, self._ready + grown

    def _write(self, line: bytes) -> None:
        end = self._at + len(line)
        self._map[self._at : end] = line
        self._at = end

    def _cut(self) -> None:
        """The lines that are still needed, in a file of their own that takes the place of the old one."""
        old = self._file, self._map, self._at, self._ready
        try:
            self._start_file(self._path.with_suffix(".new"), *self._lines.values())
        except OSError:
            self._file, self._map, self._at, self._ready = old
            raise
        self._path.with_suffix(".new").replace(self._path)
        old[1].close()
        os.close(old[0])

    def _start_file(self, path: Path, *lines: bytes) -> None:
        self._map = mmap.mmap(-1, mmap.PAGESIZE)  # until there is room in the file
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        self._at = self._ready = 0
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            start = b"".join((self._first, *lines))
            self._make_room(len(start) + LONGEST_END * len(self._open))
            self._write(start)
            if self.durable:
                os.fsync(self._file)
                _sync_folder(path.parent)
        except OSError:
            self._map.close()
            os.close(self._file)
            raise


def abandoned(folder: Path) -> Iterator[AbandonedJournal]:
    """What dead senders left. A journal is deleted when the next one is asked for, and not before."""
    for path in sorted(folder.glob("*.journal")):
        with _taken(path) as mine:
            if not mine:
                continue
            remains = _read(path.read_bytes())
            if remains is None:
                log.warning("this is no journal; it is put aside", path=str(path))
                path.rename(path.with_suffix(".junk"))
                continue
            yield remains
            _remove(path)


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.with_suffix(".new").unlink(missing_ok=True)  # of a cut that was not finished


def any_left_behind(folder: Path) -> bool:
    """Whether `left_behind` would find one."""
    for path in folder.glob("*.journal"):
        with _taken(path) as mine:
            if mine:
                return True
    return False


def live_owners(folder: Path) -> set[str]:
    """The owners of journals whose senders live."""
    owners = set()
    for path in folder.glob("*.journal"):
        with _taken(path) as dead, suppress(FileNotFoundError):
            if not dead and (remains := _read(path.read_bytes())):
                owners.add(remains.owner)
    return owners


def _read(data: bytes) -> AbandonedJournal | None:
    """None: there is no first line of a journal in it."""
    owner, same_boot, complete = None, False, False
    begun, ended = dict[int, tuple[str, str]](), dict[int, AttemptResult]()  # of the last attempt at each
    for kind, *fields in _lines_of(data):
        if kind == "O":
            owner, same_boot = fields[0], fields[1] == _boot() != ""
            complete = same_boot or bool(fields[2])
        elif kind == "B" or (kind == "I" and not same_boot):
            begun[int(fields[0])] = (fields[2], fields[3]) if kind == "B" else ("", "")
            ended.pop(int(fields[0]), None)
        elif kind == "E":
            ending = _ending(*fields)
            message_id, subject = begun.pop(ending.delivery_id, ("", ""))
            ended[ending.delivery_id] = ending._replace(message_id=message_id, subject=subject)
    return None if owner is None else AbandonedJournal(owner, complete, begun, tuple(ended.values()))


def _ending(delivery_id: str, at: str, verdict: str, code: str, words: str) -> AttemptResult:
    answer = SendResult(SendOutcome(verdict), int(code) if code else None, words)
    return AttemptResult(int(delivery_id), answer, float(at))


def _line(fields: str) -> bytes:
    text = fields.replace("\n", " ").encode("utf-8", "replace")
    return b"%08x\t%s\n" % (zlib.crc32(text), text)


def _lines_of(data: bytes) -> Iterator[list[str]]:
    for line in data.split(b"\n"):
        crc, _, text = line.partition(b"\t")
        if crc == b"%08x" % zlib.crc32(text):
            yield text.decode("utf-8").split("\t", 5)


@contextmanager
def _taken(path: Path) -> Iterator[bool]:
    """Whether it could be locked, for the block: not where its sender lives, or where it is gone."""
    file = _lock(path)
    try:
        yield file is not None
    finally:
        if file is not None:
            os.close(file)


def _lock(path: Path) -> int | None:
    with _alone(path.parent):
        try:
            file = os.open(path, os.O_RDWR)
        except FileNotFoundError:
            return None
        with suppress(BlockingIOError, FileNotFoundError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # What was opened may have been cut off, or told and deleted by another, in between.
            if path.stat().st_ino == os.fstat(file).st_ino:
                return file
        os.close(file)
        return None


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Nobody takes a journal for a dead sender's between its making and its locking."""
    file = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def _fill(file: int, size: int, at: int) -> None:
    """Zeros; OSError when not all of them could be written."""
    if os.pwrite(file, bytes(size), at) < size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _sync_folder(folder: Path) -> None:
    """So that the file's name survives the machine, too."""
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _boot() -> str:
    """What is different after the machine was started again; empty where it does not tell."""
    return _BOOT.read_text().strip() if _BOOT.exists() else ""


def _unwritable(path: Path, error: OSError) -> JournalError:
    said = error.strerror or str(error)
    return JournalError(f"the journal {path} cannot be written ({said}), and no mail leaves without it")
