"""PURE. Split a text into stemmed words with their positions, ignoring case and accents."""

from __future__ import annotations

import itertools
import re
import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from app.text import word_forms
from app.text.characters import ACCENT, MARK, fold_accents

# A run of letters and digits, with their marks. The s of "women's" and the t of "don't" and "can't" are not
# words, but the t of "van't Hoff" is one, because the name is also written "van 't Hoff". A longer run is
# always a word.
_POSSESSIVES = r"(?<!\w['’][sS])(?<![^\WaA][nN]['’][tT])(?<![^\WvV][aA][nN]['’][tT])"
_WITH_MARKS = rf"(?:{MARK}[^\W_]*+)"
WORD = re.compile(rf"[^\W_]{{2,}}+{_WITH_MARKS}*+|[^\W_](?:{_WITH_MARKS}++|{_POSSESSIVES})")
_MARK = re.compile(MARK)
_WORDS_AND_GAPS = re.compile(f"({WORD.pattern})")
_STOPWORDS = (
    "a an and are as at be by can for from has have how in into is it its of on or our that the their there "
    "these this those to towards via was we were what when where which while who with using"
)


class Token(NamedTuple):
    """The stem of a word and the word's position in the text."""

    stem: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of a text, in order. Columns take an eighth of the memory of a tuple for each token."""

    stems: list[str]
    starts: Sequence[int]
    ends: Sequence[int]

    @classmethod
    def of(cls, tokens: Iterable[Token]) -> Tokens:
        """Return these tokens as columns."""
        rows = list(tokens)
        spans = array("I", (row.start for row in rows)), array("I", (row.end for row in rows))
        return cls([row.stem for row in rows], *spans)

    def __len__(self) -> int:
        return len(self.stems)

    def __getitem__(self, position: int) -> Token:
        return Token(self.stems[position], self.starts[position], self.ends[position])

    def __iter__(self) -> Iterator[Token]:
        return map(Token, self.stems, self.starts, self.ends)

    def with_stems(self, stems: Mapping[int, str]) -> Tokens:
        """Return the tokens with other stems at some positions."""
        changed = [*self.stems]
        for position, stem in stems.items():
            changed[position] = stem
        return Tokens(changed, self.starts, self.ends)


def tokenize(text: str) -> Tokens:
    """Return the stems of the words in a text with their positions."""
    folded = fold_accents(text)
    parts = _WORDS_AND_GAPS.split(folded)  # gap, word, gap, …, gap
    ends = array("I", itertools.accumulate(map(len, parts)))
    return Tokens([*map(word_forms.stem, _without_accents(parts[1::2], folded))], ends[:-1:2], ends[1::2])


def folded_words(text: str) -> list[str]:
    """Return the words of a text, in order, in lower case and without accents."""
    folded = fold_accents(text)
    return _without_accents(WORD.findall(folded), folded)


def _without_accents(words: list[str], folded: str) -> list[str]:
    """Return the words of a folded text without the accents that are characters of their own."""
    return [word.replace(ACCENT, "") for word in words] if ACCENT in folded else words


def compound_span(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the span of the hyphenated word around a word, such as "off-policy" around "policy"."""
    while _is_hyphen(text, start - 1):
        start -= 2
        while start and _is_in_word(text[start - 1]):
            start -= 1
    while _is_hyphen(text, end):
        end += 2
        while end < len(text) and _is_in_word(text[end]):
            end += 1
    return start, end


def _is_hyphen(text: str, place: int) -> bool:
    """Return True if a hyphen at this place joins two words."""
    around = text[max(0, place - 1) : place + 2]
    return len(around) == 3 and around[1] == "-" and _is_in_word(around[0]) and around[2].isalnum()


def _is_in_word(char: str) -> bool:
    return char.isalnum() or _MARK.match(char) is not None


def content_stems(text: str) -> list[str]:
    """Return the stems of a text without stop words."""
    return without_stopwords(stem_all(text))


def stem_all(text: str) -> list[str]:
    """Return the stems of all words in a text, in order."""
    return [*map(word_forms.stem, folded_words(text))]


def distinct_words(text: str) -> tuple[str, ...]:
    """Return the distinct words of a text as spelled, in any order. Texts share the memory of equal words."""
    return tuple(map(sys.intern, {*WORD.findall(text)}))


STOP_STEMS = frozenset(word_forms.stem(word) for word in _STOPWORDS.split())


def without_stopwords(stems: Iterable[str]) -> list[str]:
    """Return the stems that are not stop words. So "text to image" and "text-image" give the same stems."""
    return [stem for stem in stems if stem not in STOP_STEMS]


def bigrams(stems: Sequence[str]) -> Iterator[str]:
    """Yield each pair of neighboring stems, joined by a space."""
    return map(" ".join, itertools.pairwise(stems))
