"""PURE. Where runs of words stand, in many papers at once: texts as one long row of numbers."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

import numpy as np

from app.relevance.vector_space import Matrix

_END = -1  # of a text: no run goes over it


class PhraseIndex:
    """Papers, each some texts, each a sequence of words. It answers for all papers together."""

    def __init__(self, papers: Iterable[Iterable[Sequence[str]]]) -> None:
        self._numbers: dict[str, int] = {}
        row, ends = array("i", [_END]), array("q")
        for texts in papers:
            for text in texts:
                row.extend(self._numbers.setdefault(word, len(self._numbers)) for word in text)
                row.append(_END)
            ends.append(len(row))
        self._row, self._ends = np.array(row, np.int32), np.array(ends, np.int64)

    def having(self, run: Sequence[str]) -> Matrix:
        """Whether each paper has these words next to each other, in this order; no words stand nowhere."""
        wanted = [self._numbers.get(word, _END) for word in run]
        if not wanted or _END in wanted:
            return np.zeros(len(self._ends), bool)
        places = np.flatnonzero(self._row == wanted[0])
        for step, word in enumerate(wanted[1:], 1):
            places = places[self._row.take(places + step, mode="clip") == word]
        return self._papers_at(places)

    def having_any(self, words: Iterable[str]) -> Matrix:
        """Whether each paper has at least one of these words."""
        known = [self._numbers[word] for word in words if word in self._numbers]
        if not known:
            return np.zeros(len(self._ends), bool)
        wanted = np.zeros(len(self._numbers) + 1, bool)  # its last place is that of _END
        wanted[known] = True
        return self._papers_at(np.flatnonzero(wanted[self._row]))

    def _papers_at(self, places: Matrix) -> Matrix:
        found = np.zeros(len(self._ends), bool)
        found[np.searchsorted(self._ends, places, side="right")] = True
        return found
