"""The whole archive, searched by words and by meaning: an interest is asked of all its papers at once.

What names one paper finds that one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from threading import BoundedSemaphore, Lock

import numpy as np
from sqlmodel import Session, select

from app.errors import NotFound, NotReady
from app.papers import queries
from app.papers.queries import PaperFilter
from app.relevance import matching, model_store
from app.relevance.model import RelevanceModel
from app.relevance.model_store import ArchiveFingerprint, ModelStore
from app.relevance.query_language import Query
from app.runtime import interpreter
from app.storage.database import Database
from app.storage.models import Paper
from app.text import sanitize
from app.types import PaperView

NEWEST = 10_000  # papers that are searched, for some 300 MB; older ones are found by their day
SHOWN = 0.1  # relevance: far less than what is worth a place in a digest
NEAR = 0.4  # cosine from which a paper is related to another
MANY = 1_000  # papers, from which it shows how long the garbage collector looks at them
WAITING = 4  # visitors, until the stacks are made for the first time: others keep their threads
LOOK_EVERY = timedelta(minutes=1)  # whether the archive has changed
_ONE_NAME = re.compile(r"(?:(?:arxiv|doi):?\s*)?\S+", re.IGNORECASE)


def find_by_reference(session: Session, name: str) -> int | None:
    """The paper that an arXiv id, a DOI or a URL names, or NotFound; None for what is no such name."""
    name = sanitize.one_line(name, sanitize.URL_CHARS)
    if not _ONE_NAME.fullmatch(name):
        return None
    doi, url = sanitize.doi(name), sanitize.url(name)
    last = re.split("[?#]", name)[0].rstrip("/").rpartition("/")[2]  # as in huggingface.co/papers/2603.25746
    arxiv_id = sanitize.arxiv_id(name)[0] or sanitize.arxiv_id(last)[0] or sanitize.arxiv_id_of_doi(doi)
    if not (arxiv_id or doi or url):
        return None
    known = select(Paper.id)
    if arxiv_id:
        known = known.where(Paper.arxiv_id == arxiv_id)
    else:
        known = known.where(Paper.doi == doi) if doi else known.where(Paper.url == url)
    found = session.exec(known).first()
    if found is None:
        raise NotFound(f"There is no paper {name[:100]} in the archive.")
    return found


@dataclass(frozen=True, slots=True)
class SearchPage:
    """A page of what was found."""

    papers: tuple[PaperView, ...]
    total: int
    of_newest: int = 0  # papers, where not all of the archive was searched


class SearchIndex:
    """The papers of the archive as they were at one moment, ready to be asked."""

    def __init__(self, papers: Sequence[PaperView], corpus: RelevanceModel) -> None:
        self._index = matching.MatchIndex(papers, corpus)
        self._index.read_ahead()
        self._ids = np.array([paper.id for paper in papers], np.int64)
        self._places = {number: place for place, number in enumerate(self._ids.tolist())}
        days = [paper.last_listed_on.toordinal() if paper.last_listed_on else 0 for paper in papers]
        self._days = np.array(days, np.int64)
        self._vectors = np.array([*self._index.vectors.values()], np.float32)

    def find(self, query: Query) -> list[int]:
        """The papers that fit an interest, the best first; of equal ones the newest."""
        relevance = self._index.relevance(query)
        places = np.flatnonzero((relevance >= SHOWN) & self._index.passing(query))
        order = np.lexsort((-self._ids[places], -self._days[places], -relevance[places]))
        ids: list[int] = self._ids[places[order]].tolist()
        return ids

    def near(self, paper_id: int, limit: int) -> list[int]:
        """The papers that say what is nearest to what this one says; none where no archive spans a space."""
        place = self._places.get(paper_id)
        if place is None:
            return []
        likeness = self._vectors @ self._vectors[place]
        likeness[place] = -1
        nearest = np.argsort(-likeness, kind="stable")[:limit]
        ids: list[int] = self._ids[nearest[likeness[nearest] >= NEAR]].tolist()
        return ids


@dataclass(frozen=True, slots=True)
class _Held:
    archive: ArchiveFingerprint  # as it was
    corpus: RelevanceModel
    stacks: SearchIndex
    of_newest: int  # papers, where there are more


class ArchiveSearch:
    """Keeps the stacks. To renew them takes seconds; meanwhile the old ones answer."""

    def __init__(self, db: Database, lexicon: ModelStore) -> None:
        self._db, self._lexicon = db, lexicon
        self._held: _Held | None = None
        self._making, self._room = Lock(), BoundedSemaphore(WAITING)
        self._look_again_at: datetime | None = None

    def search(self, query: Query | None, only: PaperFilter, start: int, size: int) -> SearchPage:
        """What fits the interest, the best first; without one all papers, the newest first. Or NotReady."""
        if query is None:
            with self._db.read() as session:
                newest = queries.newest(session, only, size, start)
                return SearchPage(tuple(newest), queries.count(session, only))
        held = self._open()  # while no session is: who makes the stacks needs one, and others wait for them
        ids = held.stacks.find(query)
        with self._db.read() as session:
            ids = queries.passing(session, only, ids)  # the stacks may not know yet what was withdrawn
            papers = queries.in_given_order(session, ids[start : start + size])
        return SearchPage(tuple(papers), len(ids), held.of_newest)

    def related(self, session: Session, paper_id: int, limit: int) -> list[PaperView]:
        """The nearest papers, as far as the stacks are there already: no page waits for them."""
        ids = self._held.stacks.near(paper_id, limit) if self._held else []
        return queries.in_given_order(session, ids)

    def outdated(self, session: Session, now: datetime) -> bool:
        """Whether to renew the stacks; looked at every minute at most."""
        if self._held is None:
            return True
        if self._look_again_at is None or self._look_again_at <= now:
            self._look_again_at = now + LOOK_EVERY
            held = self._held
            return held.corpus is not self._lexicon.current(session) or held.archive != model_store.extent(
                session
            )
        return False

    def renew(self) -> None:
        """Make the stacks anew where the archive has changed, unless somebody does so already."""
        if self._making.acquire(blocking=False):
            try:
                self._held = self._made()
            finally:
                self._making.release()

    def _open(self) -> _Held:
        if self._held:
            return self._held
        if not self._room.acquire(blocking=False):
            raise NotReady
        try:
            with self._making:  # there is nothing to go on with: wait for whoever makes them
                self._held = held = self._held or self._made()
                return held
        finally:
            self._room.release()

    def _made(self) -> _Held:
        with self._db.read() as session:
            extent, corpus = model_store.extent(session), self._lexicon.current(session)
            held = self._held
            if held and held.corpus is corpus and held.archive == extent:
                return held
            papers = queries.texts(session, NEWEST + 1)
        stacks = SearchIndex(papers[:NEWEST], corpus)
        if len(papers) >= MANY:
            interpreter.freeze_live_objects()  # what is there now stays for hours
        return _Held(extent, corpus, stacks, NEWEST if len(papers) > NEWEST else 0)
