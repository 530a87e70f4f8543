"""PURE. A positional index that finds phrases in many papers at once.

All texts are stored one after another in a single array of word numbers.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

import numpy as np

from app.relevance.bm25 import Matrix

_END = -1  # marks the end of each text, so that phrases do not span two texts


class PhraseIndex:
    """An index of papers. A paper consists of texts, and a text is a sequence of words."""

    def __init__(self, papers: Iterable[Iterable[Sequence[str]]]) -> None:
        self.numbers: dict[str, int] = {}  # the number of each word
        words, ends = array("i", [_END]), array("q")
        for texts in papers:
            for text in texts:
                words.extend(self.numbers.setdefault(word, len(self.numbers)) for word in text)
                words.append(_END)
            ends.append(len(words))
        self._words, self._ends = np.array(words, np.int32), np.array(ends, np.int64)

    def containing(self, phrase: Sequence[str]) -> Matrix:
        """Return a mask of the papers that contain these words next to each other, in this order.

        An empty phrase matches no paper.
        """
        numbers = [self.numbers.get(word, _END) for word in phrase]
        if not numbers or _END in numbers:
            return np.zeros(len(self._ends), bool)
        positions = np.flatnonzero(self._words == numbers[0])
        for offset, number in enumerate(numbers[1:], 1):
            positions = positions[self._words.take(positions + offset, mode="clip") == number]
        return self._papers_at(positions)

    def containing_any(self, words: Iterable[str]) -> Matrix:
        """Return a mask of the papers that contain at least one of these words."""
        numbers = [self.numbers[word] for word in words if word in self.numbers]
        if not numbers:
            return np.zeros(len(self._ends), bool)
        is_wanted = np.zeros(len(self.numbers) + 1, bool)  # the last element is for _END
        is_wanted[numbers] = True
        return self._papers_at(np.flatnonzero(is_wanted[self._words]))

    def _papers_at(self, positions: Matrix) -> Matrix:
        mask = np.zeros(len(self._ends), bool)
        mask[np.searchsorted(self._ends, positions, side="right")] = True
        return mask
