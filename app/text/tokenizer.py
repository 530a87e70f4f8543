"""PURE. Split a text into stemmed words with their positions, ignoring case and accents."""

from __future__ import annotations

import itertools
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import Stemmer

from app.text.characters import fold_accents

WORD = re.compile(r"[^\W_]+")
_WORDS_AND_GAPS = re.compile(r"([^\W_]+)")
_STOPWORDS = (
    "a an and are as at be by can for from has have how in into is it its of on or our that the their there "
    "these this those to towards via was we were what when where which while who with using"
)
# Abbreviations whose singular ends in s: "GPS" is not the plural of "GP".
_SINGULAR = "bfs cls css dfs dns fps gnss gps mcts mvs nms nvs rts rvos sds sms sts tls tts"
# British spellings, such as "quantisation" and "behaviour". Other words that match, such as "noise",
# are rewritten in every text, so they still match each other.
_BRITISH = re.compile(
    r"(?<=..)(?<!expert)is(?=(?:ed?|es|ers?|ing|able|ations?)$)|(?<=...)our(?=(?:s|ed|ing|al)?$)"
)
# Plurals that Snowball does not stem, such as "llms" and "vlas". Only the letter before the s may be a vowel.
_SHORT_FORMS = re.compile(r"[^\W\d_aeiouy]{2,}[ao]?s")
# Endings of plurals, and of the forms of a verb and the nouns made from it: "detects", "detection".
_ENDINGS = "s es ies y e ed ing ion ions ation ations er ers or ors ic ics le able ility"
_AMERICAN = {"is": "iz", "our": "or"}
_stemmer = Stemmer.Stemmer("english")


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


def tokenise(text: str) -> Tokens:
    """Return the stems of the words in a text with their positions. A word is a run of letters and digits."""
    parts = _WORDS_AND_GAPS.split(fold_accents(text))  # gap, word, gap, …, gap
    ends = array("I", itertools.accumulate(map(len, parts)))
    return Tokens([*map(_stem, parts[1::2])], ends[:-1:2], ends[1::2])


def compound_span(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the span of the hyphenated word around a word, such as "off-policy" around "policy"."""
    while _is_hyphen(text, start - 1):
        start -= 2
        while start and text[start - 1].isalnum():
            start -= 1
    while _is_hyphen(text, end):
        end += 2
        while end < len(text) and text[end].isalnum():
            end += 1
    return start, end


def _is_hyphen(text: str, place: int) -> bool:
    """Return True if a hyphen at this place joins two words."""
    around = text[max(0, place - 1) : place + 2]
    return len(around) == 3 and around[1] == "-" and around[0].isalnum() and around[2].isalnum()


def content_stems(text: str) -> list[str]:
    """Return the stems of a text without stop words."""
    return without_stopwords(stem_all(text))


def stem_all(text: str) -> list[str]:
    """Return the stems of all words in a text, in order."""
    return [*map(_stem, WORD.findall(fold_accents(text)))]


@lru_cache(maxsize=200_000)
def _stem(word: str) -> str:
    stem = str(_stemmer.stemWord(_BRITISH.sub(lambda match: _AMERICAN[match.group()], word)))
    return stem[:-1] if _SHORT_FORMS.fullmatch(stem) and stem not in _SINGULAR.split() else stem


@lru_cache(maxsize=20_000)
def _bases(word: str) -> frozenset[str]:
    """Return the possible base forms of a word, such as "plan" for "planning"."""
    american = _BRITISH.sub(lambda found: _AMERICAN[found.group()], fold_accents(word))
    bases = {american.removesuffix(ending) for ending in ("", *_ENDINGS.split())}
    return frozenset(bases | {base[:-1] for base in bases if base[-2:-1] == base[-1:]})  # "planning"


@lru_cache(maxsize=50_000)
def is_same_word(first: str, second: str) -> bool:
    """Return True if two words with the same stem also share a base form, and so mean the same.

    This is true of "detected" and "detection", but not of "token" and "tokenization".
    """
    return not _bases(first).isdisjoint(_bases(second))


STOP_STEMS = frozenset(_stem(word) for word in _STOPWORDS.split())


def without_stopwords(stems: Iterable[str]) -> list[str]:
    """Return the stems that are not stop words. So "text to image" and "text-image" give the same stems."""
    return [stem for stem in stems if stem not in STOP_STEMS]


def bigrams(stems: Sequence[str]) -> Iterator[str]:
    """Yield each pair of neighbouring stems, joined by a space."""
    return map(" ".join, itertools.pairwise(stems))
