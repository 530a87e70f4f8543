"""Search the newest papers in the archive, in memory. A query is matched like an interest.

`queries.find_by_reference` finds a paper by arXiv id, DOI or URL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from threading import BoundedSemaphore, Lock

import numpy as np
from sqlmodel import Session

from app.errors import NotReady
from app.papers import queries
from app.papers.queries import PaperFilter
from app.relevance import matching, model_store
from app.relevance.model import RelevanceModel
from app.relevance.model_store import ArchiveFingerprint, ModelStore
from app.relevance.query_language import Query
from app.runtime import interpreter
from app.storage.database import Database
from app.types import PaperView

MAX_PAPERS = 10_000  # the newest ones, which need about 300 MB; older ones are on the pages for their days
MIN_RELEVANCE = 0.1  # far less than a paper needs for a digest
MIN_SIMILARITY = 0.4  # cosine, for related papers
MIN_PAPERS_TO_FREEZE = 1_000  # garbage collection of a larger index takes noticeable time
MAX_WAITING = 4  # visitors who may wait for the first index; more would use up the threads
CHECK_INTERVAL = timedelta(minutes=1)  # between checks for changes to the archive


@dataclass(frozen=True, slots=True)
class SearchPage:
    """A page of search results."""

    papers: tuple[PaperView, ...]
    total: int
    of_newest: int = 0  # the number of papers searched, or 0 if the whole archive was searched
    absent_fields: tuple[str, ...] = ()  # what the query requires and none of the searched papers has


class SearchIndex:
    """A snapshot of the newest papers in the archive, indexed for search."""

    def __init__(self, papers: Sequence[PaperView], model: RelevanceModel) -> None:
        self._index = matching.MatchIndex(papers, model)
        self._index.filters.build_indexes()
        self._ids = np.array([paper.id for paper in papers], np.int64)
        self._row_of = {number: row for row, number in enumerate(self._ids.tolist())}
        days = [paper.last_listed_on.toordinal() if paper.last_listed_on else 0 for paper in papers]
        self._days = np.array(days, np.int64)
        self._vectors = np.array([*self._index.vectors.values()], np.float32)

    def search(self, query: Query) -> list[int]:
        """Return the ids of the papers that match a query, most relevant first. Ties: newest first."""
        relevance = self._index.relevance(query)
        rows = np.flatnonzero((relevance >= MIN_RELEVANCE) & self._index.filters.passing_mask(query))
        order = np.lexsort((-self._ids[rows], -self._days[rows], -relevance[rows]))
        ids: list[int] = self._ids[rows[order]].tolist()
        return ids

    def absent_fields(self, query: Query) -> tuple[str, ...]:
        """Return what a query requires and no paper has, such as "a category"."""
        return tuple(self._index.filters.absent_fields(query))

    def similar(self, paper_id: int, limit: int) -> list[int]:
        """Return the ids of the papers most similar to this one, or [] if the model has no LSA space."""
        row = self._row_of.get(paper_id)
        if row is None:
            return []
        similarity = self._vectors @ self._vectors[row]
        similarity[row] = -1
        nearest = np.argsort(-similarity, kind="stable")[:limit]
        ids: list[int] = self._ids[nearest[similarity[nearest] >= MIN_SIMILARITY]].tolist()
        return ids


@dataclass(frozen=True, slots=True)
class _CachedIndex:
    archive: ArchiveFingerprint  # at the time when the index was built
    model: RelevanceModel
    index: SearchIndex
    of_newest: int  # the number of papers in the index, or 0 if it contains the whole archive


class ArchiveSearch:
    """Search over the archive. Rebuilding the index takes seconds; meanwhile, searches use the old one."""

    def __init__(self, db: Database, models: ModelStore) -> None:
        self._db, self._models = db, models
        self._cached: _CachedIndex | None = None
        self._building, self._waiting = Lock(), BoundedSemaphore(MAX_WAITING)
        self._next_check_at: datetime | None = None

    def search(self, query: Query | None, only: PaperFilter, start: int, size: int) -> SearchPage:
        """Return the papers that match a query, best first. Without a query, return all papers, newest first.

        Raise NotReady if there is no index yet and MAX_WAITING visitors are already waiting for it.
        """
        if query is None:
            with self._db.read() as session:
                newest = queries.newest(session, only, size, start)
                return SearchPage(tuple(newest), queries.count(session, only))
        # Do not open a session before this: the thread that builds the index needs one while others wait.
        cached = self._first_index()
        ids = cached.index.search(query)
        with self._db.read() as session:
            # Papers may have been withdrawn since the index was built.
            ids = queries.filter_ids(session, only, ids)
            papers = queries.in_given_order(session, ids[start : start + size])
        return SearchPage(tuple(papers), len(ids), cached.of_newest, cached.index.absent_fields(query))

    def related_papers(self, session: Session, paper_id: int, limit: int) -> list[PaperView]:
        """Return the most similar papers, or [] if there is no index yet: pages do not wait for it."""
        ids = self._cached.index.similar(paper_id, limit) if self._cached else []
        return queries.in_given_order(session, ids)

    def is_outdated(self, session: Session, now: datetime) -> bool:
        """Return True if the index is missing, or if a check finds that the archive or the model has changed.

        Checks are at least `CHECK_INTERVAL` apart. Between them, return False.
        """
        cached = self._cached
        if cached is None:
            return True
        if self._next_check_at is None or self._next_check_at <= now:
            self._next_check_at = now + CHECK_INTERVAL
            return cached.model is not self._models.current(
                session
            ) or cached.archive != model_store.archive_fingerprint(session)
        return False

    def refresh(self) -> None:
        """Rebuild the index if the archive has changed, unless another thread is doing so."""
        if self._building.acquire(blocking=False):
            try:
                self._cached = self._build()
            finally:
                self._building.release()

    def _first_index(self) -> _CachedIndex:
        """Return the index. If there is none yet, build it or wait for the thread that is building it."""
        if self._cached:
            return self._cached
        if not self._waiting.acquire(blocking=False):
            raise NotReady
        try:
            with self._building:
                self._cached = cached = self._cached or self._build()
                return cached
        finally:
            self._waiting.release()

    def _build(self) -> _CachedIndex:
        """Return a new index, or the current one if the archive and the model have not changed."""
        with self._db.read() as session:
            archive, model = model_store.archive_fingerprint(session), self._models.current(session)
            cached = self._cached
            if cached and cached.model is model and cached.archive == archive:
                return cached
            papers = queries.texts(session, MAX_PAPERS + 1)
        index = SearchIndex(papers[:MAX_PAPERS], model)
        if len(papers) >= MIN_PAPERS_TO_FREEZE:
            interpreter.freeze_live_objects()  # everything now in memory will stay there for hours
        return _CachedIndex(archive, model, index, MAX_PAPERS if len(papers) > MAX_PAPERS else 0)
