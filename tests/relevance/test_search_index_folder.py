"""Test the folder of the search index: names, and when a version is removed."""

from pathlib import Path

import pytest

from app.errors import DamagedIndex
from app.relevance.model import RelevanceModel
from app.relevance.search_index import IndexReader, IndexWriter
from app.relevance.search_index_folder import IndexFolder, belongs_to, mark_damaged

DIGEST = "0123456789abcdef0123"
MODEL = RelevanceModel.bundled()


def build(folder: IndexFolder) -> Path:
    """Build an empty version, and use it."""
    version = folder.version_to_build(DIGEST)
    with IndexWriter(version, MODEL):
        pass
    folder.use(version)
    return version


def test_versions_of_other_formats_are_not_used(tmp_path: Path) -> None:
    folder = IndexFolder(tmp_path)
    assert folder.version_in_use() is None
    (tmp_path / "0.0-bundled").mkdir()
    for name in ("0.0-bundled", "../elsewhere", "", "missing"):
        (tmp_path / "current").write_text(name)
        assert folder.version_in_use() is None
    with pytest.raises(DamagedIndex):
        IndexReader(tmp_path / "0.0-bundled", MODEL)


def test_unfinished_version_is_continued(tmp_path: Path) -> None:
    """A version that is damaged, or belongs to another model, is not."""
    folder = IndexFolder(tmp_path)
    unfinished = folder.version_to_build(DIGEST)
    unfinished.mkdir()
    assert folder.version_to_build(DIGEST) == unfinished
    assert belongs_to(unfinished, DIGEST)
    assert not belongs_to(folder.version_to_build("fedcba98"), DIGEST)
    mark_damaged(unfinished)
    assert folder.version_to_build(DIGEST) != unfinished


def test_version_is_removed_after_its_last_reader(tmp_path: Path) -> None:
    """While a reader has it open, it stays complete on disk, even if it is damaged."""
    folder = IndexFolder(tmp_path)
    old = build(folder)
    readers = [IndexReader(old, MODEL), IndexReader(old, MODEL)]
    folder.abandon_all()
    assert folder.version_in_use() is None
    new = build(folder)
    while readers:
        folder.remove_unused(new)
        assert {*tmp_path.iterdir()} >= {old, new}
        assert readers.pop().papers == 0
    folder.remove_unused(new)
    assert {path for path in tmp_path.iterdir() if path.is_dir()} == {new}
    mark_damaged(old)  # by a search that noticed the damage late
    with pytest.raises(DamagedIndex):
        IndexReader(old, MODEL)
    assert not old.exists()


def test_other_folders_are_not_removed(tmp_path: Path) -> None:
    """Remove versions of old formats, but no other folders."""
    random_id = "0123456789abcdef"
    others = [tmp_path / "backups", tmp_path / f"1.1-bundled.{random_id}", tmp_path / "1.1-bundled"]
    for other in others:
        other.mkdir()
        (other / "file").touch()
    elsewhere = tmp_path / "backups" / "old"
    elsewhere.mkdir()
    others.append(tmp_path / f"1.2-bundled.{random_id}")
    others[-1].symlink_to(elsewhere)
    for name in (f"1.3-bundled.{random_id}", f"removed.1.4-bundled.{random_id}"):
        (tmp_path / name / "texts").mkdir(parents=True)
    (tmp_path / "lock").write_text("of another program")
    folder = IndexFolder(tmp_path)
    with folder.lock():
        new = build(folder)
        folder.remove_unused(new)
        folder.abandon_all()
    assert {path for path in tmp_path.iterdir() if path.is_dir()} == {new, *others}
    assert [[path.name for path in other.iterdir()] for other in others[1:]] == [["file"], ["file"], []]
    assert (tmp_path / "lock").read_text() == "of another program"
