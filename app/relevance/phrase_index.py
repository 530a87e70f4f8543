"""PURE. A positional index that finds phrases in many papers at once.

All texts are stored one after another in a single array of word numbers.
"""

import itertools
from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from app.relevance.bm25 import Matrix
from app.text.acronyms import TERM, stem_of
from app.text.word_forms import is_same_word

_END = -1  # marks the end of each text, so that phrases do not span two texts


class PhraseIndex:
    """An index of papers. A paper consists of texts, and a text is a sequence of words."""

    def __init__(self, papers: Iterable[Iterable[Sequence[str]]]) -> None:
        numbers = defaultdict[str, int](itertools.count().__next__)
        words, ends = array("i", [_END]), array("q")
        for texts in papers:
            for text in texts:
                words.extend(map(numbers.__getitem__, text))
                words.append(_END)
            ends.append(len(words))
        self.numbers = dict(numbers)  # the number of each word
        self._words, self._ends = np.array(words, np.int32), np.array(ends, np.int64)

    def containing(self, phrase: Sequence[str]) -> Matrix:
        """Return a mask of the papers that contain these words next to each other, in this order.

        An empty phrase matches no paper.
        """
        numbers = [self.numbers.get(word, _END) for word in phrase]
        if not numbers or _END in numbers:
            return np.zeros(len(self._ends), bool)
        return self._papers_at(_positions_of(numbers, self._words))

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


class TextIndex(PhraseIndex):
    """An index of papers whose texts are words as spelled, in lower case and without accents.

    Words match in all their forms, but not if they merely share a stem. A term that stands for several words
    begins with TERM, and matches any word with the same stem.
    """

    def __init__(self, papers: Iterable[Iterable[Sequence[str]]]) -> None:
        super().__init__(papers)
        stems = [*map(stem_of, self.numbers)]
        self._by_stem = defaultdict[str, list[str]](list)
        for word, own in zip(self.numbers, stems, strict=True):
            self._by_stem[own].append(word)
        self._stem_numbers = {own: number for number, own in enumerate(self._by_stem)}
        self._stems = np.array([*map(self._stem_numbers.__getitem__, stems), _END], np.int32)[self._words]

    def containing(self, phrase: Sequence[str]) -> Matrix:
        """Return a mask of the papers that contain forms of these words next to each other, in this order."""
        numbers = [self._stem_numbers.get(stem_of(word), _END) for word in phrase]
        if not numbers or _END in numbers:
            return np.zeros(len(self._ends), bool)
        positions = _positions_of(numbers, self._stems)
        for offset, word in enumerate(phrase):
            if others := [self.numbers[o] for o in self._by_stem[stem_of(word)] if not _is_form(word, o)]:
                positions = positions[~np.isin(self._words[positions + offset], others)]
        return self._papers_at(positions)

    def containing_any(self, words: Iterable[str]) -> Matrix:
        """Return a mask of the papers that contain a word with the stem of at least one of these words."""
        return super().containing_any(o for word in words for o in self._by_stem.get(stem_of(word), ()))


def _positions_of(phrase: Sequence[int], words: Matrix) -> Matrix:
    """Return the positions at which a phrase begins."""
    positions = np.flatnonzero(words == phrase[0])
    for offset, number in enumerate(phrase[1:], 1):
        positions = positions[words.take(positions + offset, mode="clip") == number]
    return positions


def _is_form(word: str, other: str) -> bool:
    """Return True for two forms of one word, or if either is a term that stands for several words.

    Both must have the same stem.
    """
    return word.startswith(TERM) or other.startswith(TERM) or is_same_word(word, other)
