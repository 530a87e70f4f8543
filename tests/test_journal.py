"""A dying sender's last words: whatever was written can be read, and whatever cannot be read harms nobody."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from app.delivery import journal
from app.delivery.journal import AbandonedJournal, AttemptResult, Journal
from app.errors import JournalError
from app.types import SendOutcome, SendResult

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


def die(sender: Journal) -> None:
    """What the system does for a process that was killed."""
    sender._map.close()
    os.close(sender._file)


def told(folder: Path) -> AbandonedJournal:
    (remains,) = journal.abandoned(folder)
    return remains


def only_file(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def test_a_dead_sender_is_told_of(folder: Path) -> None:
    """What had an answer, what had none; and afterwards there is nothing to tell."""
    sender = Journal(folder, OWNER)
    begin(sender, 1, 2)
    end(sender, 1)
    end(sender, 3, answer=SendResult(SendOutcome.HARD_BOUNCE, 550, "5.1.1 no such user"))
    die(sender)
    assert journal.any_left_behind(folder)
    assert told(folder) == AbandonedJournal(
        OWNER,
        True,
        {2: ("<2@paperboy.test>", "A subject")},
        (
            AttemptResult(1, QUEUED, 1001.25, "<1@paperboy.test>", "A subject"),
            AttemptResult(3, SendResult(SendOutcome.HARD_BOUNCE, 550, "5.1.1 no such user"), 1001.25),
        ),
    )
    assert not journal.any_left_behind(folder)
    assert list(folder.iterdir()) == []


def test_a_living_sender_is_left_alone(folder: Path) -> None:
    """Its journal is locked, and says whose it is."""
    sender = Journal(folder, OWNER)
    begin(sender, 1)
    assert not journal.any_left_behind(folder)
    assert list(journal.abandoned(folder)) == []
    assert journal.live_owners(folder) == {OWNER}
    sender.close()
    assert journal.live_owners(folder) == set()


def test_a_tale_is_told_until_it_was_heard(folder: Path) -> None:
    """Whoever fails while settling leaves the journal for the next."""
    sender = Journal(folder, OWNER)
    begin(sender, 1)
    die(sender)
    telling = journal.abandoned(folder)
    assert next(telling).begun.keys() == {1}
    with pytest.raises(ZeroDivisionError):
        telling.throw(ZeroDivisionError)  # type: ignore[attr-defined]
    assert told(folder).begun.keys() == {1}


def test_two_never_tell_the_same_tale_at_once(folder: Path) -> None:
    """While one settles, another finds nothing."""
    sender = Journal(folder, OWNER)
    begin(sender, 1)
    die(sender)
    one = journal.abandoned(folder)
    assert next(one).begun.keys() == {1}
    assert list(journal.abandoned(folder)) == []
    one.close()  # type: ignore[attr-defined]


def test_nothing_is_left_of_a_sender_that_ended_well(folder: Path) -> None:
    """When the ledger knows everything, the file goes."""
    sender = Journal(folder, OWNER)
    begin(sender, 1)
    end(sender, 1)
    sender.folded([1])
    sender.close()
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("ended", [True, False])
def test_what_the_ledger_does_not_know_stays(folder: Path, ended: bool) -> None:
    """A sender that had to end first leaves it behind."""
    sender = Journal(folder, OWNER)
    begin(sender, 1)
    if ended:
        end(sender, 1)
    else:
        sender.folded([1])  # of an attempt before this one
    sender.close()
    remains = told(folder)
    assert (len(remains.ended), len(remains.begun)) == (ended, not ended)


def test_cut_off_anywhere(folder: Path) -> None:
    """A file that ends at any byte tells as much as it holds, and a torn line tells nothing."""
    sender = Journal(folder, OWNER)
    begin(sender, 1)
    end(sender, 1)
    begin(sender, 2)
    die(sender)
    whole = only_file(folder).read_bytes().rstrip(b"\0")
    seen = set()
    for size in range(len(whole) + 1):
        remains = journal._read(whole[:size] + b"\0" * 7)
        seen.add(remains and (len(remains.begun), len(remains.ended)))
    assert seen == {None, (0, 0), (1, 0), (0, 1), (1, 1)}


def test_junk_is_passed_over(folder: Path) -> None:
    """Lines that somebody or something else wrote into the file."""
    sender = Journal(folder, OWNER)
    begin(sender, 1)
    die(sender)
    path = only_file(folder)
    lines = path.read_bytes().rstrip(b"\0").split(b"\n")
    spoiled = lines[1].replace(b"\t1\t", b"\t7\t")
    path.write_bytes(b"\n".join([b"\xff\xfe", lines[0], b"", spoiled, b"00000000\t", b"E\t1\n", *lines[1:]]))
    remains = told(folder)
    assert (remains.owner, remains.begun.keys(), remains.ended) == (OWNER, {1}, ())


def test_a_file_that_is_no_journal_is_put_aside(folder: Path) -> None:
    """It is not deleted, and not looked at again."""
    folder.mkdir()
    (folder / "letter.journal").write_text("Dear Alice,")
    assert list(journal.abandoned(folder)) == []
    assert (folder / "letter.junk").read_text() == "Dear Alice,"
    assert not journal.any_left_behind(folder)


def test_hostile_words_make_no_lines(folder: Path) -> None:
    """A relay's words stay one field, in one line, of a length that has its room."""
    words = "x\n00000000\tB\t9\ty\t" + "é" * 2000
    sender = Journal(folder, OWNER)
    begin(sender, 1)
    end(sender, 1, answer=SendResult(SendOutcome.SOFT_BOUNCE, 554, words))
    die(sender)
    (ending,) = told(folder).ended
    assert ending.answer.text.startswith("x 00000000\tB\t9\ty\téé")
    assert len(ending.answer.text.encode()) <= journal.LONGEST_WORDS


class Disk:
    """A disk that holds so many bytes of each file, and no more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
        self.size = size
        self._write = os.pwrite
        monkeypatch.setattr(journal.os, "pwrite", self.write)

    def write(self, file: int, data: bytes, at: int) -> int:
        room = self.size - at
        if room <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self._write(file, data[:room], at)


def test_a_full_disk_stops_before_the_body_leaves(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was begun has room for its answer, the longest one, too."""
    monkeypatch.setattr(journal, "ROOM", 4000)
    disk = Disk(monkeypatch, 50_000)
    sender = Journal(folder, OWNER)
    with pytest.raises(JournalError, match="No space left"):
        begin(sender, *range(1, 1000))
    begun = sorted(sender.open)
    disk.size = sender._ready  # by now another has taken the rest
    longest = SendResult(SendOutcome.SOFT_BOUNCE, 554, "é" * 5000)
    end(sender, *begun, answer=longest)
    die(sender)
    remains = told(folder)
    assert [ending.delivery_id for ending in remains.ended] == begun
    assert remains.begun == {}
    assert len(begun) > 20


def test_a_disk_that_has_room_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that was torn by the full disk is written over by the next."""
    monkeypatch.setattr(journal, "ROOM", 100)
    disk = Disk(monkeypatch, 4000)
    sender = Journal(folder, OWNER)
    begin(sender, 1)
    with pytest.raises(JournalError):
        begin(sender, 2, 3, 4)
    disk.size = 10_000
    begin(sender, 5)
    die(sender)
    assert told(folder).begun.keys() >= {1, 5}


def test_it_stays_short(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines that are no longer needed are cut off; those of a slow mail are kept for as long as it takes."""
    monkeypatch.setattr(journal, "CUT_AT", 5000)
    monkeypatch.setattr(journal, "ROOM", 1000)
    sender = Journal(folder, OWNER)
    begin(sender, 7)
    for delivery_id in range(100, 400):
        begin(sender, delivery_id)
        end(sender, delivery_id)
        if delivery_id < 399:
            sender.folded([delivery_id])
    assert only_file(folder).stat().st_size < 9000
    assert journal.live_owners(folder) == {OWNER}
    die(sender)
    remains = told(folder)
    assert remains.begun.keys() == {7}
    assert remains.ended[-1].delivery_id == 399
    assert len(remains.ended) < 60


def test_a_cut_that_fails_loses_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no room for the shorter file, the long one goes on."""
    monkeypatch.setattr(journal, "CUT_AT", 200)
    monkeypatch.setattr(journal, "ROOM", 40_000)
    sender = Journal(folder, OWNER)
    begin(sender, 1, 2, 3)
    end(sender, 2)
    Disk(monkeypatch, 30_000)
    sender.folded([2])
    end(sender, 3)
    die(sender)
    remains = told(folder)
    assert remains.begun.keys() == {1}
    assert [ending.delivery_id for ending in remains.ended][-1] == 3
    assert list(folder.iterdir()) == []


def another_boot(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "boot").write_text("another\n")
    monkeypatch.setattr(journal, "_BOOT", tmp_path / "boot")


def test_a_machine_that_died(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without waiting for the disk the last lines may be lost: the journal need not be whole."""
    sender = Journal(folder, OWNER)
    die(sender)
    another_boot(monkeypatch, tmp_path)
    assert not told(folder).complete


@pytest.mark.parametrize("same_boot", [True, False])
def test_what_the_disk_was_waited_for(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, same_boot: bool
) -> None:
    """After the machine died, all that was about to leave may have left; after the process, only what had."""
    sender = Journal(folder, OWNER, durable=True)
    sender.intend([1, 2, 3])
    sender.sync()
    begin(sender, 1, 2)
    end(sender, 2)
    die(sender)
    if not same_boot:
        another_boot(monkeypatch, tmp_path)
    remains = told(folder)
    assert remains.complete
    assert remains.begun.keys() == ({1} if same_boot else {1, 3})


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    """The reason names the file."""
    (tmp_path / "journal").write_text("in the way")
    with pytest.raises(JournalError, match=r"journal/abc\.journal cannot be written"):
        Journal(tmp_path / "journal", OWNER)
