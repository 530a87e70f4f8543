"""Search the whole archive with an index on disk. A query is matched like an interest.

To find a paper by arXiv id, DOI or URL, use `canonical_rows.find_by_reference`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from threading import BoundedSemaphore, Event, Lock, Thread, main_thread

import structlog
from cachetools import LRUCache, TTLCache
from sqlmodel import Session, col, select

from app import clock
from app.errors import DamagedIndex, NotReady
from app.papers import archive_lists, paper_views
from app.papers.archive_lists import PaperFilter
from app.relevance import search_index_updates, search_offers
from app.relevance.model import RelevanceModel
from app.relevance.model_store import ModelStore
from app.relevance.query_language import Query
from app.relevance.search_index import IndexReader
from app.relevance.search_index_fields import ListingFilter
from app.relevance.search_index_folder import mark_damaged
from app.relevance.search_index_updates import IndexUpdater
from app.relevance.search_offers import SearchOffers
from app.relevance.search_ranking import CandidateRanker, RankedPapers
from app.relevance.suggestions import InterestHint, InterestReader
from app.storage.database import Database
from app.storage.models import Source
from app.types import PaperView

MAX_RESULTS = 1_000  # maximum number of papers that a search lists
MIN_RELEVANCE = 0.1  # minimum for listing a paper, far below the relevance that a digest needs
MIN_SIMILARITY = 0.4  # cosine, for related papers
MAX_WAITING = 4  # visitors who may wait for the first index; more would use up the web threads
FIRST_INDEX_SECONDS = 20.0  # the longest that a visitor waits; the newest papers are indexed first
REFRESH_SECONDS = 10.0  # the longest that a web thread waits for an update
MAX_CACHED_SEARCHES = 100  # each up to 16 kB; reused for the other pages of a search
KEEP_COUNTS = 300  # seconds; counting a million papers takes a second or more

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SearchPage:
    papers: tuple[PaperView, ...]
    total: int  # papers that match
    listed: int  # papers on all pages together: at most the first MAX_RESULTS
    searchable: int = 0  # the number of papers indexed so far, or 0 if all are
    absent_fields: tuple[str, ...] = ()  # fields that the query requires and no paper has
    hint: InterestHint | None = None  # on the first page only
    by_author: str = ""  # a query with the filter `author:`, if the words name an author; first page only


class ArchiveSearch:
    """A search of the archive. While the index is being updated, searches use its previous state."""

    def __init__(self, db: Database, models: ModelStore, folder: Path, stopping: Event) -> None:
        self._db, self._models, self._stopping = db, models, stopping
        self._updater = IndexUpdater(db, models, folder, self._is_stopping)
        self._opened: tuple[IndexReader, CandidateRanker] | None = None
        self._interest_reader: tuple[RelevanceModel, InterestReader] | None = None
        self._opening, self._waiting = Lock(), BoundedSemaphore(MAX_WAITING)
        self._updating, self._usable = Lock(), Event()
        self._next_check_at: datetime | None = None
        self._results = LRUCache[object, RankedPapers](MAX_CACHED_SEARCHES)
        self._counts: TTLCache[PaperFilter, int] = TTLCache(MAX_CACHED_SEARCHES, KEEP_COUNTS)
        self._results_lock = Lock()  # guards both caches

    def search(self, query: Query | None, only: PaperFilter, start: int, size: int) -> SearchPage:
        """Return a page of the papers that match `query`, best first.

        If `query` is None, return a page of all papers, newest first. Only the first MAX_RESULTS papers are
        listed. Raise NotReady if there is no readable index yet, and InvalidInterest if the query has too
        many phrases.
        """
        if query is None:
            return self._newest(only, start, size)
        reader, ranker = self._wait_for_index()
        try:
            ranked = self._rank(reader, ranker, query, only)
            absent = ranker.absent_fields(query)
            offers = SearchOffers() if start else self._offers(reader, ranker, query, only, ranked.total)
        except DamagedIndex:
            self._discard(reader)
            raise NotReady from None
        with self._db.read() as session:
            # Papers may have been withdrawn since the last update.
            ids = archive_lists.filter_ids(session, only, ranked.ids)
            papers = paper_views.in_given_order(session, ids[start : start + size])
        total = ranked.total - (len(ranked.ids) - len(ids))
        searchable = 0 if reader.is_complete else reader.papers
        return SearchPage(tuple(papers), total, len(ids), searchable, absent, *offers)

    def _newest(self, only: PaperFilter, start: int, size: int) -> SearchPage:
        with self._results_lock:
            total = self._counts.get(only)
        with self._db.read() as session:
            if total is None:
                total = archive_lists.count(session, only)
            listed = min(total, MAX_RESULTS)
            size = min(size, max(0, listed - start))
            papers = archive_lists.newest(session, only, size, start) if size else ()
        if total > MAX_RESULTS:  # smaller counts must be current, because the number of pages depends on them
            with self._results_lock:
                self._counts[only] = total
        return SearchPage(tuple(papers), total, listed)

    def related_papers(self, session: Session, paper_id: int, limit: int) -> list[PaperView]:
        """Return the papers most similar to a paper, or [] if there is no index yet. Do not wait for one."""
        opened = self._open(session)
        if opened is None:
            return []
        try:
            return paper_views.in_given_order(session, opened[1].related(paper_id, limit, MIN_SIMILARITY))
        except DamagedIndex:
            self._discard(opened[0])
            return []

    def is_outdated(self, session: Session, now: datetime) -> bool:
        """Return True if a check finds that the archive or the model has changed, or that there is no index.

        Checks are at least `search_index_updates.CHECK_INTERVAL` apart. Between them, return False.
        """
        interval = search_index_updates.CHECK_INTERVAL
        if self._next_check_at is None or not now < self._next_check_at <= now + interval:
            self._next_check_at = now + interval
            return self._updater.is_needed(session, now)
        return False

    def refresh(self) -> None:
        """Bring the index up to date, unless another thread or process is doing so."""
        if self._updating.acquire(blocking=False):
            try:
                self._updater.update(clock.utcnow(), self._usable.set)
            finally:
                self._updating.release()
                self._usable.set()

    def start_refresh(self) -> Thread:
        """Start and return a thread that updates the index. This takes minutes for a large archive."""
        thread = Thread(target=self._refresh_safely, name="search index")
        thread.start()
        return thread

    def refresh_after_response(self) -> None:
        """Start to bring the index up to date, and wait for at most REFRESH_SECONDS."""
        self.start_refresh().join(REFRESH_SECONDS)

    def _refresh_safely(self) -> None:
        try:
            self.refresh()
        except Exception:
            if not self._is_stopping():  # the database may be closed already
                log.exception("updating the search index failed; the next search tries again")

    def _is_stopping(self) -> bool:
        return self._stopping.is_set() or not main_thread().is_alive()

    def _wait_for_index(self) -> tuple[IndexReader, CandidateRanker]:
        """Return the index. If there is none yet, start to build it, and wait up to FIRST_INDEX_SECONDS.

        Raise NotReady if it cannot be used by then, or if MAX_WAITING visitors are already waiting.
        """
        # Do not hold a session while waiting: the thread that builds the index needs one.
        self._usable.clear()
        if opened := self._open_current():
            return opened
        if not self._waiting.acquire(blocking=False):
            raise NotReady
        try:
            self.start_refresh()
            self._usable.wait(FIRST_INDEX_SECONDS)
        finally:
            self._waiting.release()
        opened = self._open_current()
        if opened is None:
            raise NotReady
        return opened

    def _open_current(self) -> tuple[IndexReader, CandidateRanker] | None:
        with self._db.read() as session:
            return self._open(session)

    def _open(self, session: Session) -> tuple[IndexReader, CandidateRanker] | None:
        """Return a reader and a ranker of the index as of its last update, or None if there is no index."""
        with self._opening:
            while version := self._updater.folder.version_in_use():
                try:
                    return self._open_version(session, version)
                except DamagedIndex as error:
                    self._opened = None
                    if self._updater.folder.version_in_use() == version:
                        log.error("the search index cannot be read and will be built again", error=str(error))
                        mark_damaged(version)
                        return None
                    # Another process has replaced and removed the version, so try the new one.
            return None

    def _open_version(self, session: Session, version: Path) -> tuple[IndexReader, CandidateRanker]:
        opened = self._opened
        if opened is None or opened[0].version != version:
            model = self._updater.model_of(version, self._models.loaded(session))
            reader = IndexReader(version, model)
            opened = self._opened = reader, CandidateRanker(reader, self._load_papers)
        opened[0].refresh()
        return opened

    def _discard(self, reader: IndexReader) -> None:
        """Stop using a damaged version, and start to build a new one."""
        log.error("the search index is damaged and will be built again", version=reader.version.name)
        self._opened = None
        mark_damaged(reader.version)
        self.start_refresh()

    def _rank(
        self, reader: IndexReader, ranker: CandidateRanker, query: Query, only: PaperFilter
    ) -> RankedPapers:
        """Rank papers for a query. The result is cached, because all pages of a search need it."""
        key = reader.snapshot, query, only
        with self._results_lock:
            ranked = self._results.get(key)
        if ranked is None:
            ranked = ranker.search(query, self._listing_filter(only), MAX_RESULTS, MIN_RELEVANCE)
            with self._results_lock:
                self._results[key] = ranked
        return ranked

    def _offers(
        self, reader: IndexReader, ranker: CandidateRanker, query: Query, only: PaperFilter, total: int
    ) -> SearchOffers:
        def has_papers(other: Query) -> bool:
            return ranker.search(other, self._listing_filter(only), 1, MIN_RELEVANCE).total > 0

        cached = self._interest_reader
        if cached is None or cached[0] is not reader.model:  # its vocabulary takes milliseconds to load
            cached = self._interest_reader = reader.model, InterestReader(reader.model)
        return search_offers.choose(query, total, cached[1], has_papers)

    def _listing_filter(self, only: PaperFilter) -> ListingFilter:
        source_id = None
        if only.source:
            with self._db.read() as session:
                of_name = select(Source.id).where(col(Source.name) == only.source)
                source_id = session.exec(of_name).first() or 0
        return ListingFilter(only.day, source_id, only.code)

    def _load_papers(self, ids: Sequence[int]) -> Sequence[PaperView]:
        with self._db.read() as session:
            return paper_views.in_given_order(session, ids)
