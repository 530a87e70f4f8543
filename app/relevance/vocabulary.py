"""PURE. The words of papers as they are spelled, with their numbers of papers, and an English dictionary.

Term statistics count stems, but corrections and suggestions need readable words.
"""

from __future__ import annotations

import itertools
import lzma
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from app.text.characters import fold_accents

MIN_LETTERS = 4  # shorter words are too similar to each other to be corrected
BUNDLED_WORDS = Path(__file__).with_name("vocabulary.txt")
DICTIONARY = Path(__file__).with_name("dictionary.txt.xz")  # from `benchmarks/make_dictionary.py`


@dataclass(frozen=True)
class Vocabulary:
    """Words of at least MIN_LETTERS Latin letters, by their folded form (lower case, without accents)."""

    spellings: Mapping[str, str] = field(default_factory=dict)  # the commonest spelling, such as "ImageNet"
    papers: Mapping[str, int] = field(default_factory=dict)  # the number of papers that contain the word

    @classmethod
    def count(cls, words: Sequence[Iterable[str]], min_papers: int = 1) -> Vocabulary:
        """Count the distinct words of papers, as spelled. Drop words in fewer than `min_papers` papers."""
        spelled, papers, folded_form = Counter[str](), Counter[str](), dict[str, str]()
        for words_of_paper in words:
            spelled.update(words_of_paper)
        for word in spelled:
            folded = fold_accents(word)
            is_counted = len(folded) >= MIN_LETTERS and folded.isascii() and folded.isalpha()
            folded_form[word] = folded if is_counted else ""
        for words_of_paper in words:
            papers.update({*map(folded_form.__getitem__, words_of_paper)})
        del papers[""]
        by_form: dict[str, tuple[int, str]] = defaultdict(lambda: (0, ""))
        for word, folded in folded_form.items():
            by_form[folded] = max(by_form[folded], (spelled[word], word))
        frequent = sorted(word for word, count in papers.items() if count >= min_papers)
        return cls({word: by_form[word][1] for word in frequent}, {word: papers[word] for word in frequent})

    @classmethod
    def from_lines(cls, lines: Iterable[str]) -> Vocabulary:
        """Return the vocabulary that `to_lines` wrote. Raise ValueError if a line is malformed."""
        rows = [(spelling, int(papers)) for spelling, papers in (line.split("\t") for line in lines)]
        folded = [fold_accents(spelling) for spelling, _ in rows]
        spellings = dict(zip(folded, (spelling for spelling, _ in rows), strict=True))
        return cls(spellings, dict(zip(folded, (papers for _, papers in rows), strict=True)))

    def to_lines(self) -> list[str]:
        """Return a line for each word, in alphabetical order: its usual spelling, a tab, its paper count."""
        return [f"{spelling}\t{self.papers[word]}" for word, spelling in sorted(self.spellings.items())]

    def with_bundled(self) -> Vocabulary:
        """Return this vocabulary merged with the bundled one.

        Paper counts are added. If the spellings differ, those of this vocabulary are used.
        """
        bundled = bundled_vocabulary()
        papers = Counter(self.papers)
        papers.update(bundled.papers)
        return Vocabulary({**bundled.spellings, **self.spellings}, papers)


@cache
def bundled_vocabulary() -> Vocabulary:
    """Return the vocabulary of about 13,000 papers that ships with Paperboy for small archives."""
    return Vocabulary.from_lines(BUNDLED_WORDS.read_text(encoding="utf-8").splitlines())


def is_in_dictionary(word: str) -> bool:
    """Return True for an English word of at least five letters, in lower case and without accents."""
    return f" {word} " in _dictionary().get(word[:2], "")


@cache
def _dictionary() -> Mapping[str, str]:
    """Return the words, each between spaces, by their first two letters. A set needs more memory."""
    words = lzma.decompress(DICTIONARY.read_bytes()).decode().split("\n")
    groups = itertools.groupby(words, key=lambda word: word[:2])
    return {beginning: f" {' '.join(group)} " for beginning, group in groups}
