"""PURE. Find the most likely correction of a misspelled word.

A candidate differs by one edit (an inserted, dropped or replaced letter, or two swapped neighbors), or by
two if the word is long. Its score is the log-odds that the word is a slip, as opposed to a correct word such
as a new name. A word in the dictionary is never corrected. The weights are the rounded weights of a logistic
regression. docs/benchmarks.md explains how they were found, and how often correct words are changed.
"""

import math
from collections.abc import Mapping, Sequence

from rapidfuzz import process
from rapidfuzz.distance import OSA

from app.relevance import vocabulary
from app.relevance.vocabulary import Vocabulary
from app.text.tokenizer import stem_all
from app.text.word_forms import americanize

MIN_LETTERS = 5  # a shorter word is similar to too many other words
LETTERS_FOR_TWO_EDITS = 7
MIN_CANDIDATE_PAPERS = 5  # a rarer word may itself be misspelled
# A word that up to MAX_PAPERS_OF_SLIP papers contain is a slip only if two letters are swapped, and the other
# spelling is SWAPPED_RATIO times as frequent.
MAX_PAPERS_OF_SLIP, SWAPPED_RATIO = 2, 300

LOG_PAPERS, LOG_PAIRS = 0.5, 0.5  # × log(papers with the candidate), × log(1 + papers with a pair)
NO_PAIR = -0.8  # the candidate occurs next to none of the neighboring words
SECOND_EDIT, FIRST_LETTER, SWAPPED = -3.0, -0.6, 2.5
PER_LETTER = 0.8  # a longer word is less likely to be near another one by chance
MIN_SCORE = 6.5


class SpellChecker:
    """A spell checker that uses the vocabulary of papers and the frequencies of pairs of stems."""

    def __init__(self, words: Vocabulary, frequencies: Mapping[str, int]) -> None:
        self._vocabulary, self._frequencies = words, frequencies
        self._candidates = [w for w, papers in words.papers.items() if papers >= MIN_CANDIDATE_PAPERS]

    def papers(self, word: str) -> int:
        """Return the number of papers with a word or an inflection of it. `word` must have no accents."""
        stems = stem_all(word)
        by_stem = self._frequencies.get(stems[0], 0) if len(stems) == 1 else 0
        return max(by_stem, self._vocabulary.papers.get(word, 0))

    def is_known(self, word: str, min_papers: int) -> bool:
        """Return True if at least `min_papers` papers contain this spelling. `word` must have no accents.

        The vocabulary does not list short words and words with digits, so their stems are counted instead.
        """
        is_listed = len(word) >= vocabulary.MIN_LETTERS and word.isascii() and word.isalpha()
        return (self._vocabulary.papers.get(word, 0) if is_listed else self.papers(word)) >= min_papers

    def correct(self, words: Sequence[str], position: int, papers: int) -> str:
        """Return the most likely correction of the word at `position`, or "" if it seems correct.

        `words` must have no accents and no stop words. `papers` is the number of papers with the word.
        """
        word = words[position]
        if len(word) < MIN_LETTERS or not (word.isascii() and word.isalpha()):
            return ""
        if papers > MAX_PAPERS_OF_SLIP and word in self._vocabulary.papers:
            return ""
        if vocabulary.is_in_dictionary(word) or vocabulary.is_in_dictionary(americanize(word)):
            return ""
        candidates = self._candidates_for(word)
        inflections = [other for other, _ in candidates if stem_all(other) == stem_all(word)]
        if inflections:  # the word matches the same papers; only its spelling may be wrong
            best = max(inflections, key=self._frequency)
            return self._vocabulary.spellings[best] if word not in self._vocabulary.papers else ""
        if papers > MAX_PAPERS_OF_SLIP:
            return ""
        neighbours = [*words[max(0, position - 1) : position], *words[position + 1 : position + 2]]
        scores = {
            other: self._score(word, other, distance, neighbours)
            for other, distance in candidates
            if not papers or (_is_swapped(word, other) and self._frequency(other) >= SWAPPED_RATIO * papers)
        }
        best = max(scores, key=lambda other: (scores[other], other), default="")
        return self._vocabulary.spellings[best] if best and scores[best] >= MIN_SCORE else ""

    def _candidates_for(self, word: str) -> list[tuple[str, int]]:
        """Return the frequent words within the allowed edit distance, each with its distance."""
        edits = 2 if len(word) >= LETTERS_FOR_TWO_EDITS else 1
        near = process.extract(word, self._candidates, scorer=OSA.distance, score_cutoff=edits, limit=None)
        return [(candidate, int(distance)) for candidate, distance, _ in near]

    def _score(self, word: str, candidate: str, distance: int, neighbours: Sequence[str]) -> float:
        pairs = max((self._pair_papers(candidate, other) for other in neighbours), default=0)
        return (
            LOG_PAPERS * math.log(self._frequency(candidate))
            + LOG_PAIRS * math.log1p(pairs)
            + NO_PAIR * (bool(neighbours) and not pairs)
            + SECOND_EDIT * (distance - 1)
            + FIRST_LETTER * (candidate[0] != word[0])
            + SWAPPED * _is_swapped(word, candidate)
            + PER_LETTER * len(word)
        )

    def _frequency(self, word: str) -> int:
        return self._vocabulary.papers[word]

    def _pair_papers(self, first: str, second: str) -> int:
        """Return the number of papers in which two words are neighbors, in either order."""
        stems = stem_all(f"{first} {second}")
        return sum(self._frequencies.get(" ".join(pair), 0) for pair in (stems, stems[::-1]))


def _is_swapped(word: str, other: str) -> bool:
    """Return True if two words differ only in that two neighboring letters are swapped."""
    differences = [place for place, (a, b) in enumerate(zip(word, other, strict=False)) if a != b]
    return (
        len(word) == len(other)
        and len(differences) == 2
        and differences[1] - differences[0] == 1
        and sorted(word) == sorted(other)
    )
