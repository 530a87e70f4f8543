"""Cache the last few match indexes: while papers and model are the same, only the first visitor waits."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock

from cachetools import LRUCache

from app.relevance import matching
from app.relevance.model import RelevanceModel
from app.types import PaperView

MAX_INDEXES = 3  # for today's candidates, for those of the last weeks, and for one day that somebody opens


class IndexCache:
    """The match indexes that were used last. Thread-safe: one thread builds an index, the others wait."""

    def __init__(self) -> None:
        self._indexes = LRUCache[object, matching.MatchIndex](MAX_INDEXES)
        self._model: RelevanceModel | None = None  # of all cached indexes
        self._building = Lock()

    def get(self, papers: Sequence[PaperView], model: RelevanceModel) -> matching.MatchIndex:
        """Return the index of these papers. Build it if it is missing."""
        content = tuple((p.id, p.title, p.abstract, p.authors, p.categories) for p in papers)
        with self._building:
            if model is not self._model:
                self._indexes.clear()
                self._model = model
            if content not in self._indexes:
                self._indexes[content] = matching.MatchIndex(papers, model)
            return self._indexes[content]
