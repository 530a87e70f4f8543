"""Bring the search index on this machine up to date with the archive.

The index is compared with the archive in windows of paper ids. In each window, new and changed papers are
indexed, and papers that are no longer searchable are removed. Normally, only windows with recent changes are
compared. Once a day, and until an index is complete, all windows are compared, newest first. An interrupted
update is simply repeated.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import structlog
from sqlmodel import Session

from app.errors import DamagedIndex
from app.papers import searchable_papers
from app.relevance.model import RelevanceModel
from app.relevance.model_store import LoadedModel, ModelStore
from app.relevance.search_index import IndexedPaper, IndexWriter, read_model, read_state
from app.relevance.search_index_folder import IndexFolder, belongs_to, is_damaged
from app.runtime import interpreter
from app.storage import job_runs
from app.storage.database import Database

WINDOW = 5_000  # ids
PAPERS_PER_BATCH = 1_000  # loaded and indexed at once
FIRST_PAPERS = 2_000  # of a new index, after which searches can use it
CHECK_INTERVAL = timedelta(minutes=1)  # between checks for changes to the archive
OVERLAP = timedelta(hours=1)  # longer than it takes to store a part of a file, or all pages of a poll
COMPARE_ALL_EVERY = timedelta(days=1)
# An index with an older model is built again at this age per paper: 10,000 papers after six hours, a million
# after 23 days. Building the index therefore takes only a small share of the time.
AGE_PER_PAPER = timedelta(seconds=2)
_LAST_ID = 2**62

log = structlog.get_logger(__name__)


class IndexUpdater:
    def __init__(self, db: Database, models: ModelStore, path: Path, stopping: Callable[[], bool]) -> None:
        self._db, self._models, self.folder, self._stopping = db, models, IndexFolder(path), stopping
        self._older_model: tuple[str, RelevanceModel] | None = None  # a version's name and its model

    def is_needed(self, session: Session, now: datetime) -> bool:
        """Return whether the index must be built, or compared with the archive again."""
        version = self.folder.version_in_use()
        if version is None or is_damaged(version):
            return True
        state = read_state(version)
        is_complete, marks = _is_current(state, now), searchable_papers.marks(session, now)
        return not is_complete or state["marks"] != _text(marks) or self._needs_rebuild(session, version, now)

    def _needs_rebuild(self, session: Session, version: Path, now: datetime) -> bool:
        """Return whether an index with an older model should be built again."""
        state = read_state(version)
        if belongs_to(version, self._models.loaded(session).digest):
            return False
        if "built_at" not in state:  # the index was never complete
            return True
        return now - datetime.fromisoformat(state["built_at"]) >= AGE_PER_PAPER * int(state["papers"])

    def update(self, now: datetime, on_use: Callable[[], None] = lambda: None) -> None:
        """Update the index, unless another process is doing so. Build it if it is missing or damaged.

        Call `on_use` when searches can use a new index.
        """
        with self.folder.lock() as acquired:
            if not acquired:
                return
            try:
                self._update(now, on_use)
            except DamagedIndex as error:
                log.error("the search index is damaged and will be built again", error=str(error))
                self.folder.abandon_all()  # an unfinished version may be the damaged one
                self._update(now, on_use)

    def _update(self, now: datetime, on_use: Callable[[], None]) -> None:
        version = self.folder.version_in_use()
        if version and is_damaged(version):
            raise DamagedIndex("A search could not read the index.")
        with self._db.read() as session:
            newest = self._models.loaded(session)
            rebuild = version is None or self._needs_rebuild(session, version, now)
        if version and not rebuild:
            self.folder.remove_unused(version)
            self._write(version, self.model_of(version, newest), now)
        else:
            new = self.folder.version_to_build(newest.digest)
            self.folder.remove_unused(new)
            self._build(new, newest.model, now, on_use)

    def model_of(self, version: Path, newest: LoadedModel) -> RelevanceModel:
        """Return the model of a version. Raise DamagedIndex if its copy is unreadable."""
        if belongs_to(version, newest.digest):
            self._older_model = None
            return newest.model
        if self._older_model is None or self._older_model[0] != version.name:
            self._older_model = version.name, read_model(version)
        return self._older_model[1]

    def _build(self, version: Path, model: RelevanceModel, now: datetime, on_use: Callable[[], None]) -> None:
        """Build a new version. If there is no other version, use it once its newest papers are indexed."""

        def use() -> None:
            self.folder.use(version)
            self.folder.remove_unused(version)
            on_use()

        is_first = self.folder.version_in_use() is None
        with job_runs.record(self._db, "index", now) as run:
            is_complete = self._write(version, model, now, use if is_first else None, run)
            if is_complete or is_first:
                use()
        interpreter.return_free_memory()

    def _write(
        self,
        version: Path,
        model: RelevanceModel,
        now: datetime,
        use: Callable[[], None] | None = None,
        run: job_runs.JobRunRecorder | None = None,
    ) -> bool:
        """Bring a version up to date. Return False if the service stopped before the update was complete."""
        with IndexWriter(version, model) as writer:
            with self._db.read() as session:
                marks, newest = searchable_papers.marks(session, now), searchable_papers.newest_id(session)
            state = writer.state()
            is_current = _is_current(state, now)
            windows = self._changed_windows(state) if is_current else range(newest // WINDOW, -1, -1)
            if not is_current:
                writer.delete([*writer.versions((newest // WINDOW + 1) * WINDOW, _LAST_ID)])
            for window in windows:
                if self._stopping():
                    return False
                self._update_window(writer, window)
                if run:
                    run.counts["papers"] = writer.indexed
                    job_runs.store_counts(self._db, run)
                if use and writer.indexed >= FIRST_PAPERS:
                    writer.commit()
                    use()
                    use = None
            if self._stopping():
                return False
            notes = {"marks": _text(marks), "papers": str(writer.count())}
            notes["built_at"] = state.get("built_at", now.isoformat())
            notes["compared_at"] = state["compared_at"] if is_current else now.isoformat()
            writer.set_state(**notes)
        return True

    def _changed_windows(self, state: dict[str, str]) -> list[int]:
        changed_at, _, listing_id = state["marks"].rpartition(" ")
        since = datetime.fromisoformat(changed_at) - OVERLAP if changed_at != "None" else None
        with self._db.read() as session:
            windows = searchable_papers.changed_windows(session, since, int(listing_id), WINDOW)
        return sorted(windows, reverse=True)

    def _update_window(self, writer: IndexWriter, window: int) -> None:
        """Index the papers of a window that are new or changed, and remove those that are not searchable."""
        first, last = window * WINDOW, window * WINDOW + WINDOW - 1
        indexed = writer.versions(first, last)
        with self._db.read() as session:
            versions = searchable_papers.versions(session, first, last)
        writer.delete([number for number in indexed if number not in versions])
        newest_first = sorted(versions, reverse=True)
        outdated = [number for number in newest_first if indexed.get(number) != versions[number]]
        for start in range(0, len(outdated), PAPERS_PER_BATCH):
            if self._stopping():
                return
            with self._db.read() as session:
                papers = searchable_papers.load(session, outdated[start : start + PAPERS_PER_BATCH])
            writer.put([IndexedPaper(paper, versions[paper.view.id]) for paper in papers])


def _is_current(state: dict[str, str], now: datetime) -> bool:
    """Return whether all windows were compared within the last day, and not by a clock that was ahead."""
    compared_at = state.get("compared_at")
    if compared_at is None:
        return False
    return timedelta() <= now - datetime.fromisoformat(compared_at) < COMPARE_ALL_EVERY


def _text(marks: searchable_papers.ArchiveMarks) -> str:
    return f"{marks.changed_at.isoformat() if marks.changed_at else None} {marks.listing_id}"
