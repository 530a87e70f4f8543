"""Cache the last few match indexes: while papers and model are the same, only the first visitor waits."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock

from app.relevance import matching
from app.relevance.model import RelevanceModel
from app.types import PaperView

MAX_INDEXES = 3  # for today's candidates, for those of the last weeks, and for one day that somebody opens


class IndexCache:
    """The match indexes that were used last. Thread-safe: one thread builds an index, the others wait."""

    def __init__(self) -> None:
        self._entries: list[tuple[RelevanceModel, list[object], matching.MatchIndex]] = []
        self._building = Lock()

    def get(self, papers: Sequence[PaperView], model: RelevanceModel) -> matching.MatchIndex:
        """Return the index of these papers. Build it if it is missing."""
        content: list[object] = [(p.id, p.title, p.abstract, p.authors, p.categories) for p in papers]
        with self._building:
            cached = (index for key, texts, index in self._entries if key is model and texts == content)
            index = next(cached, None) or matching.MatchIndex(papers, model)
            others = [entry for entry in self._entries if entry[2] is not index and entry[0] is model]
            self._entries = [(model, content, index), *others][:MAX_INDEXES]
        return index
