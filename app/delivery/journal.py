"""The write-ahead journal of a sender process: the emails that it is about to send, and the relay's replies.

Each sender has one journal file. The sender writes a short line right before it sends an email's body, and
another line after the relay's reply. The file is mapped into memory, so the kernel owns its content: lines
survive `kill -9`, and writing a line does not need a system call. The sender holds a lock on the file until
it exits. An unlocked journal belongs to a dead sender, so another process records its results (see
`abandoned`).

    <crc>  O  <owner>  <boot>  <durable or empty>    the first line
    <crc>  I  <id>                                   intent: may be sent soon; synced to disk if durable
    <crc>  B  <id>  <time>  <message-id>  <subject>  the body is about to be sent
    <crc>  E  <id>  <time>  <verdict>  <code>  <text of the relay's reply>

Fields are separated by tabs. The space after the last line is filled with zeros, which reserves room for the
reply before the body is sent. If the disk is full, sending fails early with an error, not later with SIGBUS.
Incomplete and foreign lines have a wrong checksum and are skipped.
"""

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

from app.delivery.send_result import SendOutcome, SendResult
from app.errors import JournalError

ALLOCATION = 1 << 18  # bytes by which the file grows
COMPACT_AT = 1 << 20  # bytes in the file after which acknowledged lines are dropped
MAX_REPLY_BYTES = 1000  # of the relay's reply
MAX_END_LINE = MAX_REPLY_BYTES + 100
_BOOT = Path("/proc/sys/kernel/random/boot_id")

log = structlog.get_logger(__name__)


class AttemptResult(NamedTuple):
    """The result of one attempt to send an email. `at` is in seconds since 1970.

    `message_id` and `subject` are empty if no body was sent.
    """

    delivery_id: int
    result: SendResult
    at: float
    message_id: str = ""
    subject: str = ""


@dataclass(frozen=True, slots=True)
class AbandonedJournal:
    """The content of a dead sender's journal."""

    owner: str
    complete: bool  # False if lines may be missing: the machine restarted, and the journal is not durable
    # By delivery id: the Message-ID and subject (empty if unknown) of the emails that may have arrived.
    unanswered: Mapping[int, tuple[str, str]]
    results: tuple[AttemptResult, ...]


class Journal:
    """The journal of a running sender. Not thread-safe, except for `sync`.

    A `durable` journal is complete even after a crash of the machine, provided that the sender calls `intend`
    and `sync` before it sends emails. The constructor, `intend`, `sync`, `begin` and `end` raise JournalError
    if the file cannot be written.
    """

    _file: int
    _map: mmap.mmap
    _position: int  # of the next line
    _allocated: int  # size of the file in bytes

    def __init__(self, folder: Path, owner: str, *, durable: bool = False) -> None:
        self.durable = durable
        self._path = folder / f"{owner.rpartition(':')[2]}.journal"
        self._header = _line(f"O\t{owner}\t{_boot_id()}\t{'durable' if durable else ''}")
        self._needed_lines: dict[int, bytes] = {}  # by delivery: the lines that compaction must keep
        self.in_flight: set[int] = set()  # the deliveries that were started and have no result
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with _folder_lock(folder):
                self._start_file(self._path)
        except OSError as error:
            raise _unwritable(self._path, error) from error

    def intend(self, delivery_ids: Iterable[int]) -> None:
        """Record that these emails may be sent soon. After `sync`, this survives a crash of the machine."""
        for delivery_id in delivery_ids:
            self._append(delivery_id, _line(f"I\t{delivery_id}"), len(self.in_flight))

    def sync(self) -> None:
        """Flush the file to disk. May run in another thread."""
        try:  # not `mmap.flush`, which holds the interpreter's lock while it waits
            os.fsync(self._file)
        except OSError as error:
            raise _unwritable(self._path, error) from error

    def begin(self, delivery_id: int, at: float, message_id: str, subject: str) -> None:
        """Record that the body is about to be sent, and reserve space in the file for the result.

        If this raises JournalError, do not send the body, because its result could not be recorded.
        """
        line = _line(f"B\t{delivery_id}\t{at:.3f}\t{message_id}\t{subject}")
        self._append(delivery_id, line, len(self.in_flight) + 1)
        self.in_flight.add(delivery_id)

    def end(self, attempt: AttemptResult) -> None:
        """Record the result of an attempt. If the body was sent, `begin` has reserved the space."""
        delivery_id, result = attempt.delivery_id, attempt.result
        text = result.text.encode("utf-8", "replace")[:MAX_REPLY_BYTES].decode("utf-8", "ignore")
        line = _line(f"E\t{delivery_id}\t{attempt.at:.3f}\t{result.outcome}\t{result.code or ''}\t{text}")
        self._append(delivery_id, line, len(self.in_flight) - (delivery_id in self.in_flight))
        self.in_flight.discard(delivery_id)

    def acknowledge(self, delivery_ids: Iterable[int]) -> None:
        """Drop the lines of these deliveries, because their results are now in the ledger.

        Keep the lines of deliveries in flight. The file is compacted only if it is larger than COMPACT_AT.
        """
        for delivery_id in delivery_ids:
            if delivery_id not in self.in_flight:
                self._needed_lines.pop(delivery_id, None)
        if self._position <= COMPACT_AT:
            return
        # Write the lines that are still needed to a new file, and replace the old file with it.
        old = self._file, self._map, self._position, self._allocated
        try:
            self._start_file(self._path.with_suffix(".new"), *self._needed_lines.values())
        except OSError:  # keep the old file for now
            self._file, self._map, self._position, self._allocated = old
            return
        with suppress(OSError):
            self._path.with_suffix(".new").replace(self._path)
            old[1].close()
            os.close(old[0])

    def close(self, *, complete: bool = True) -> None:
        """Close the journal, and delete it if nothing is left to recover.

        Keep the file if it contains results that are not in the ledger yet. Also keep it if `complete` is
        false, which means that some claimed emails have no result: the file proves that they were never sent.
        """
        if complete and not self._needed_lines:
            _remove(self._path)
        self._map.close()
        os.close(self._file)

    def _append(self, delivery_id: int, line: bytes, expected_results: int) -> None:
        try:
            self._reserve(len(line) + MAX_END_LINE * expected_results)
            self._write(line)
        except OSError as error:
            raise _unwritable(self._path, error) from error
        self._needed_lines[delivery_id] = self._needed_lines.get(delivery_id, b"") + line

    def _reserve(self, size: int) -> None:
        if self._position + size > self._allocated:
            growth = max(ALLOCATION, size)
            if os.pwrite(self._file, bytes(growth), self._allocated) < growth:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            remapped = mmap.mmap(self._file, self._allocated + growth)
            self._map.close()
            self._map, self._allocated = remapped, self._allocated + growth

    def _write(self, line: bytes) -> None:
        end = self._position + len(line)
        self._map[self._position : end] = line
        self._position = end

    def _start_file(self, path: Path, *lines: bytes) -> None:
        self._map = mmap.mmap(-1, mmap.PAGESIZE)  # until space is allocated in the file
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        self._position = self._allocated = 0
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            start = b"".join((self._header, *lines))
            self._reserve(len(start) + MAX_END_LINE * len(self.in_flight))
            self._write(start)
            if self.durable:
                os.fsync(self._file)
                with _open_folder(path.parent) as folder:  # so that the file's name survives a crash, too
                    os.fsync(folder)
        except OSError:
            self._map.close()
            os.close(self._file)
            raise


def abandoned(folder: Path) -> Iterator[AbandonedJournal]:
    """Yield the journals of dead senders. Each file is deleted when the caller asks for the next journal."""
    for path in sorted(folder.glob("*.journal")):
        with _lock_if_abandoned(path) as locked:
            if not locked:
                continue
            journal = _parse(path.read_bytes())
            if journal is None:
                log.warning("renamed an unreadable journal to .junk", path=str(path))
                path.rename(path.with_suffix(".junk"))
                continue
            yield journal
            _remove(path)


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.with_suffix(".new").unlink(missing_ok=True)  # left by an interrupted `acknowledge`


def any_abandoned(folder: Path) -> bool:
    """Return whether `abandoned` would find a journal."""
    for path in folder.glob("*.journal"):
        with _lock_if_abandoned(path) as locked:
            if locked:
                return True
    return False


def live_owners(folder: Path) -> set[str]:
    """Return the owners of the journals whose senders are alive."""
    owners = set()
    for path in folder.glob("*.journal"):
        with _lock_if_abandoned(path) as locked, suppress(FileNotFoundError):
            if not locked and (journal := _parse(path.read_bytes())):
                owners.add(journal.owner)
    return owners


def _parse(data: bytes) -> AbandonedJournal | None:
    """Return the content of a journal, or None if its header is missing or invalid."""
    owner, same_boot, complete = None, False, False
    # Both mappings contain only the last attempt at each delivery.
    unanswered, results = dict[int, tuple[str, str]](), dict[int, AttemptResult]()
    for line in data.split(b"\n"):
        crc, _, text = line.partition(b"\t")
        if crc != b"%08x" % zlib.crc32(text):
            continue
        kind, *fields = text.decode("utf-8").split("\t", 5)
        if kind == "O":
            owner, same_boot = fields[0], fields[1] == _boot_id() != ""
            complete = same_boot or bool(fields[2])
        elif kind == "B" or (kind == "I" and not same_boot):
            unanswered[int(fields[0])] = (fields[2], fields[3]) if kind == "B" else ("", "")
            results.pop(int(fields[0]), None)
        elif kind == "E":
            delivery_id, at, verdict, code, reply = fields
            was_begun = int(delivery_id) in unanswered
            result = SendResult(_outcome(verdict, was_begun), int(code) if code else None, reply)
            names = unanswered.pop(int(delivery_id), ("", ""))
            results[int(delivery_id)] = AttemptResult(int(delivery_id), result, float(at), *names)
    return None if owner is None else AbandonedJournal(owner, complete, unanswered, tuple(results.values()))


def _outcome(verdict: str, was_begun: bool) -> SendOutcome:
    """Return the outcome with this name. If another release wrote it, assume as little as possible."""
    try:
        return SendOutcome(verdict)
    except ValueError:
        return SendOutcome.UNCERTAIN if was_begun else SendOutcome.DEFERRED


def _line(fields: str) -> bytes:
    text = fields.replace("\n", " ").encode("utf-8", "replace")
    return b"%08x\t%s\n" % (zlib.crc32(text), text)


@contextmanager
def _lock_if_abandoned(path: Path) -> Iterator[bool]:
    """Try to lock a journal during the block. Yield False if its sender is alive or the file is gone."""
    file, locked = None, False
    with _folder_lock(path.parent), suppress(BlockingIOError, FileNotFoundError):
        file = os.open(path, os.O_RDWR)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Another process may have compacted the file, or recovered and deleted it, since it was opened.
        locked = path.stat().st_ino == os.fstat(file).st_ino
    try:
        yield locked
    finally:
        if file is not None:
            os.close(file)


@contextmanager
def _folder_lock(folder: Path) -> Iterator[None]:
    """Lock the folder, so that no process finds a new journal before its sender has locked it."""
    with _open_folder(folder) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _open_folder(folder: Path) -> Iterator[int]:
    file = os.open(folder, os.O_RDONLY)
    try:
        yield file
    finally:
        os.close(file)


def _boot_id() -> str:
    """Return an id that changes at each boot, or "" if the system does not have one."""
    return _BOOT.read_text().strip() if _BOOT.exists() else ""


def _unwritable(path: Path, error: OSError) -> JournalError:
    cause = error.strerror or str(error)
    return JournalError(f"cannot write to the journal {path} ({cause}): no mail is sent until this is fixed")
