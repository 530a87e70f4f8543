"""Cache recent match indexes. Until the papers or the model change, only the first visitor has to wait."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from threading import Lock

from app.relevance import matching
from app.relevance.model import RelevanceModel
from app.types import PaperView

# Today's candidates, those of digests that cover more days, the last few weeks, a day that a visitor opens.
MAX_INDEXES = 4
MOSTLY_SAME = 0.75  # if two indexes share this part of their papers, the newer replaces the older one


@dataclass(frozen=True, slots=True)
class _CachedIndex:
    index: matching.MatchIndex
    papers: frozenset[int]
    newest: date  # the last day on which any of the papers was listed


class IndexCache:
    """The most recently used match indexes. Thread-safe: one thread builds an index while the others wait.

    An index takes about 75 megabytes for 3,000 papers. So yesterday's is dropped when today's is built.
    """

    def __init__(self) -> None:
        self._indexes: dict[object, _CachedIndex] = {}  # the least recently used one first
        self._matches = matching.MatchCache()
        self._model: RelevanceModel | None = None  # the model of all cached indexes
        self._building = Lock()

    def get(self, papers: Sequence[PaperView], model: RelevanceModel) -> matching.MatchIndex:
        """Return the index of these papers. Build it if it is not cached."""
        content = tuple(map(matching.content_of, papers))
        with self._building:
            if model is not self._model:
                self._indexes.clear()
                self._matches = matching.MatchCache()
                self._model = model
            cached = self._indexes.pop(content, None) or self._build(papers, model)
            self._indexes[content] = cached
            return cached.index

    def _build(self, papers: Sequence[PaperView], model: RelevanceModel) -> _CachedIndex:
        """Build an index, after dropping the indexes that it replaces, so that their memory is free."""
        texts = {key: text for each in self._indexes.values() for key, text in each.index.texts.items()}
        ids = frozenset(paper.id for paper in papers)
        newest = max((paper.last_listed_on or date.min for paper in papers), default=date.min)
        outdated = [
            content
            for content, other in self._indexes.items()
            if other.newest <= newest
            and not ids < other.papers  # the last few weeks contain today's candidates: keep both
            and len(ids & other.papers) >= MOSTLY_SAME * len(ids | other.papers)
        ]
        for content in outdated:
            del self._indexes[content]
        while len(self._indexes) >= MAX_INDEXES:
            del self._indexes[next(iter(self._indexes))]
        return _CachedIndex(matching.MatchIndex(papers, model, texts, self._matches), ids, newest)
