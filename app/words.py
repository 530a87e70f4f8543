"""PURE. A text → its words: without case and accents, stemmed, and where each stands."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import Stemmer

WORD = re.compile(r"[^\W_]+")
_STOPWORDS = (
    "a an and are as at be by can for from has have how in into is it its of on or our that the their there "
    "these this those to towards via was we were what when where which while who with using"
)
_stemmer = Stemmer.Stemmer("english")


@dataclass(frozen=True, slots=True)
class Token:
    """A word of a text: its stem, and where it stands."""

    stem: str
    start: int
    end: int


def tokenise(text: str) -> list[Token]:
    """The words of a text: letters and digits, without case or accents, stemmed."""
    folded = plain(text)
    if len(folded) != len(text):  # offsets must stay those of the text
        folded = text.casefold() if len(text.casefold()) == len(text) else text
    return [Token(_stem(m.group()), m.start(), m.end()) for m in WORD.finditer(folded)]


def plain(text: str) -> str:
    """Lower case without accents; one character for one character wherever Unicode allows it."""
    return "".join(_plain_char(char) for char in text)


@lru_cache(maxsize=10_000)
def _plain_char(char: str) -> str:
    base = unicodedata.normalize("NFKD", char)[:1] or char
    return base.lower() if len(base.lower()) == 1 else base


@lru_cache(maxsize=200_000)
def _stem(word: str) -> str:
    return str(_stemmer.stemWord(word))


def telling(stems: Iterable[str]) -> list[str]:
    """Without the words that are in every text: "text to image" and "text-image" are one pair."""
    return [stem for stem in stems if stem not in _stop_stems()]


@cache
def _stop_stems() -> frozenset[str]:
    return frozenset(_stem(word) for word in _STOPWORDS.split())


def pairs(stems: Sequence[str]) -> Iterator[str]:
    return (f"{first} {second}" for first, second in itertools.pairwise(stems))
