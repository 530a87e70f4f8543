"""Cache recent match indexes. Until the papers or the model change, only the first visitor has to wait."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock

from cachetools import LRUCache

from app.relevance import matching
from app.relevance.model import RelevanceModel
from app.types import PaperView

MAX_INDEXES = 3  # today's candidates, those of the last few weeks, and one day that a visitor opens


class IndexCache:
    """The most recently used match indexes. Thread-safe: one thread builds an index while the others wait."""

    def __init__(self) -> None:
        self._indexes = LRUCache[object, matching.MatchIndex](MAX_INDEXES)
        self._model: RelevanceModel | None = None  # the model of all cached indexes
        self._building = Lock()

    def get(self, papers: Sequence[PaperView], model: RelevanceModel) -> matching.MatchIndex:
        """Return the index of these papers. Build it if it is not cached."""
        content = tuple(map(matching.content_of, papers))
        with self._building:
            if model is not self._model:
                self._indexes.clear()
                self._model = model
            if content not in self._indexes:
                texts = {key: text for index in self._indexes.values() for key, text in index.texts.items()}
                self._indexes[content] = matching.MatchIndex(papers, model, texts)
            return self._indexes[content]
