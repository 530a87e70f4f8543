"""Test the journal: every complete line is recovered, and damaged lines are skipped."""

import errno
import os
from enum import StrEnum
from pathlib import Path

import pytest

from app.delivery import journal
from app.delivery.journal import AbandonedJournal, AttemptResult, Journal
from app.delivery.send_result import SendOutcome, SendResult
from app.errors import JournalError

QUEUED = SendResult(SendOutcome.ACCEPTED, 250, "2.0.0 Ok: queued as 4F1C")
OWNER = "host:1:abc"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def begin(sender: Journal, *delivery_ids: int) -> None:
    for delivery_id in delivery_ids:
        sender.begin(delivery_id, 1000.5, f"<{delivery_id}@paperboy.test>", "A subject")


def end(sender: Journal, *delivery_ids: int, answer: SendResult = QUEUED) -> None:
    for delivery_id in delivery_ids:
        sender.end(AttemptResult(delivery_id, answer, 1001.25))


def kill_sender(sender: Journal) -> None:
    """Close the files as the system does for a killed process."""
    sender._map.close()
    os.close(sender._file)


def recover_one(folder: Path) -> AbandonedJournal:
    (recovered,) = journal.abandoned(folder)
    return recovered


def only_file(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def test_journal_of_a_dead_sender_is_recovered_once(folder: Path) -> None:
    """It has answered and unanswered emails, and is deleted afterwards."""
    sender = Journal(folder, OWNER)
    begin(sender, 1, 2)
    end(sender, 1)
    end(sender, 3, answer=SendResult(SendOutcome.HARD_BOUNCE, 550, "5.1.1 no such user"))
    kill_sender(sender)
    assert journal.any_abandoned(folder)
    assert recover_one(folder) == AbandonedJournal(
        OWNER,
        True,
        {2: ("<2@paperboy.test>", "A subject")},
        (
            AttemptResult(1, QUEUED, 1001.25, "<1@paperboy.test>", "A subject"),
            AttemptResult(3, SendResult(SendOutcome.HARD_BOUNCE, 550, "5.1.1 no such user"), 1001.25),
        ),
    )
    assert not journal.any_abandoned(folder)
    assert list(folder.iterdir()) == []


def test_outcomes_of_another_release(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An outcome with an unknown name is uncertain if the body was sent, and otherwise deferred."""
    sender = Journal(folder, OWNER)
    begin(sender, 1)
    end(sender, 1, 2)
    kill_sender(sender)
    monkeypatch.setattr(journal, "SendOutcome", StrEnum("SendOutcome", ["UNCERTAIN", "DEFERRED"]))
    outcomes = [result.outcome.value for _, result, *_ in recover_one(folder).results]
    assert outcomes == ["uncertain", "deferred"]


def test_journal_of_a_living_sender_is_not_recovered(folder: Path) -> None:
    """It is locked and names its owner."""
    sender = Journal(folder, OWNER)
    begin(sender, 1)
    assert not journal.any_abandoned(folder)
    assert list(journal.abandoned(folder)) == []
    assert journal.live_owners(folder) == {OWNER}
    sender.close()
    assert journal.live_owners(folder) == set()


def test_journal_is_kept_if_recovery_fails(folder: Path) -> None:
    """The next process recovers it."""
    sender = Journal(folder, OWNER)
    begin(sender, 1)
    kill_sender(sender)
    telling = journal.abandoned(folder)
    assert next(telling).unanswered.keys() == {1}
    with pytest.raises(ZeroDivisionError):
        telling.throw(ZeroDivisionError)  # type: ignore[attr-defined]
    assert recover_one(folder).unanswered.keys() == {1}


def test_two_processes_never_recover_the_same_journal(folder: Path) -> None:
    """While one recovers it, another one finds none."""
    sender = Journal(folder, OWNER)
    begin(sender, 1)
    kill_sender(sender)
    recovering = journal.abandoned(folder)
    assert next(recovering).unanswered.keys() == {1}
    assert list(journal.abandoned(folder)) == []
    recovering.close()  # type: ignore[attr-defined]


def test_a_complete_journal_is_deleted(folder: Path) -> None:
    """All its results are in the ledger."""
    sender = Journal(folder, OWNER)
    begin(sender, 1)
    end(sender, 1)
    sender.acknowledge([1])
    sender.close()
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("ended", [True, False])
def test_an_incomplete_journal_is_kept(folder: Path, ended: bool) -> None:
    """A sender that stopped early leaves its results in the file."""
    sender = Journal(folder, OWNER)
    begin(sender, 1)
    if ended:
        end(sender, 1)
    else:
        sender.acknowledge([1])  # of an attempt before this one
    sender.close()
    recovered = recover_one(folder)
    assert (len(recovered.results), len(recovered.unanswered)) == (ended, not ended)


def test_truncated_file(folder: Path) -> None:
    """All complete lines are read, and a torn line is skipped."""
    sender = Journal(folder, OWNER)
    begin(sender, 1)
    end(sender, 1)
    begin(sender, 2)
    kill_sender(sender)
    whole = only_file(folder).read_bytes().rstrip(b"\0")
    collected = set()
    for size in range(len(whole) + 1):
        recovered = journal._parse(whole[:size] + b"\0" * 7)
        collected.add(recovered and (len(recovered.unanswered), len(recovered.results)))
    assert collected == {None, (0, 0), (1, 0), (0, 1), (1, 1)}


def test_lines_without_a_valid_checksum_are_skipped(folder: Path) -> None:
    sender = Journal(folder, OWNER)
    begin(sender, 1)
    kill_sender(sender)
    path = only_file(folder)
    lines = path.read_bytes().rstrip(b"\0").split(b"\n")
    spoiled = lines[1].replace(b"\t1\t", b"\t7\t")
    path.write_bytes(b"\n".join([b"\xff\xfe", lines[0], b"", spoiled, b"00000000\t", b"E\t1\n", *lines[1:]]))
    recovered = recover_one(folder)
    assert (recovered.owner, recovered.unanswered.keys(), recovered.results) == (OWNER, {1}, ())


def test_a_file_that_is_not_a_journal_is_renamed(folder: Path) -> None:
    """It is neither deleted nor read again."""
    folder.mkdir()
    (folder / "letter.journal").write_text("Dear Alice,")
    assert list(journal.abandoned(folder)) == []
    assert (folder / "letter.junk").read_text() == "Dear Alice,"
    assert not journal.any_abandoned(folder)


def test_hostile_reply_is_one_field(folder: Path) -> None:
    """Its text is escaped and has a limited length."""
    words = "x\n00000000\tB\t9\ty\t" + "é" * 2000
    sender = Journal(folder, OWNER)
    begin(sender, 1)
    end(sender, 1, answer=SendResult(SendOutcome.SOFT_BOUNCE, 554, words))
    kill_sender(sender)
    (attempt,) = recover_one(folder).results
    assert attempt.result.text.startswith("x 00000000\tB\t9\ty\téé")
    assert len(attempt.result.text.encode()) <= journal.MAX_REPLY_BYTES


class LimitedDisk:
    """A disk with a limited number of bytes for each file."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
        self.size = size
        self._write = os.pwrite
        monkeypatch.setattr(journal.os, "pwrite", self.write)

    def write(self, file: int, data: bytes, at: int) -> int:
        free = self.size - at
        if free <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self._write(file, data[:free], at)


def test_full_disk_stops_before_the_body_is_sent(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every email that was started has space for its result, even the longest."""
    monkeypatch.setattr(journal, "ALLOCATION", 4000)
    disk = LimitedDisk(monkeypatch, 50_000)
    sender = Journal(folder, OWNER)
    with pytest.raises(JournalError, match="No space left"):
        begin(sender, *range(1, 1000))
    started = sorted(sender.in_flight)
    disk.size = sender._allocated  # another process has taken the rest by now
    longest = SendResult(SendOutcome.SOFT_BOUNCE, 554, "é" * 5000)
    end(sender, *started, answer=longest)
    kill_sender(sender)
    recovered = recover_one(folder)
    assert [attempt.delivery_id for attempt in recovered.results] == started
    assert recovered.unanswered == {}
    assert len(started) > 20


def test_writing_continues_when_space_is_freed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next line overwrites the torn one."""
    monkeypatch.setattr(journal, "ALLOCATION", 100)
    disk = LimitedDisk(monkeypatch, 4000)
    sender = Journal(folder, OWNER)
    begin(sender, 1)
    with pytest.raises(JournalError):
        begin(sender, 2, 3, 4)
    disk.size = 10_000
    begin(sender, 5)
    kill_sender(sender)
    assert recover_one(folder).unanswered.keys() >= {1, 5}


def test_compaction(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Acknowledged lines are dropped; those of pending emails are kept."""
    monkeypatch.setattr(journal, "COMPACT_AT", 5000)
    monkeypatch.setattr(journal, "ALLOCATION", 1000)
    sender = Journal(folder, OWNER)
    begin(sender, 7)
    for delivery_id in range(100, 400):
        begin(sender, delivery_id)
        end(sender, delivery_id)
        if delivery_id < 399:
            sender.acknowledge([delivery_id])
    assert only_file(folder).stat().st_size < 9000
    assert journal.live_owners(folder) == {OWNER}
    kill_sender(sender)
    recovered = recover_one(folder)
    assert recovered.unanswered.keys() == {7}
    assert recovered.results[-1].delivery_id == 399
    assert len(recovered.results) < 60


def test_a_failed_compaction_loses_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without space for the new file, the old one stays in use."""
    monkeypatch.setattr(journal, "COMPACT_AT", 200)
    monkeypatch.setattr(journal, "ALLOCATION", 40_000)
    sender = Journal(folder, OWNER)
    begin(sender, 1, 2, 3)
    end(sender, 2)
    LimitedDisk(monkeypatch, 30_000)
    sender.acknowledge([2])
    end(sender, 3)
    kill_sender(sender)
    recovered = recover_one(folder)
    assert recovered.unanswered.keys() == {1}
    assert [attempt.delivery_id for attempt in recovered.results][-1] == 3
    assert list(folder.iterdir()) == []


def change_boot_id(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "boot").write_text("another\n")
    monkeypatch.setattr(journal, "_BOOT", tmp_path / "boot")


def test_journal_after_a_machine_crash(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without fsync the last lines may be lost, so the journal may be incomplete."""
    sender = Journal(folder, OWNER)
    kill_sender(sender)
    change_boot_id(monkeypatch, tmp_path)
    assert not recover_one(folder).complete


@pytest.mark.parametrize("same_boot", [True, False])
def test_synced_intents_after_a_machine_crash(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, same_boot: bool
) -> None:
    """All intended emails may have been sent; after a process crash, only those that were started."""
    sender = Journal(folder, OWNER, durable=True)
    sender.intend([1, 2, 3])
    sender.sync()
    begin(sender, 1, 2)
    end(sender, 2)
    kill_sender(sender)
    if not same_boot:
        change_boot_id(monkeypatch, tmp_path)
    recovered = recover_one(folder)
    assert recovered.complete
    assert recovered.unanswered.keys() == ({1} if same_boot else {1, 3})


def test_unwritable_folder_is_an_error(tmp_path: Path) -> None:
    """The error names the file."""
    (tmp_path / "journal").write_text("in the way")
    with pytest.raises(JournalError, match=r"cannot write to the journal .*abc\.journal"):
        Journal(tmp_path / "journal", OWNER)
