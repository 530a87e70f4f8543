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
# Whose s is their own: "GPS" is not several GPs.
_SINGULAR = "bfs cls css dfs dns fps gnss gps mcts mvs nms nvs rts rvos sds sms sts tls tts"
# As in Britain: "quantisation", "behaviour". What is rewritten besides, such as "noise", is so everywhere.
_BRITISH = re.compile(
    r"(?<=..)(?<!expert)is(?=(?:ed?|es|ers?|ing|able|ations?)$)|(?<=...)our(?=(?:s|ed|ing|al)?$)"
)
# Snowball leaves the plural of what has no vowel, or none but its last letter: "llms", "vlas".
_SHORT_FORMS = re.compile(r"[^\W\d_aeiouy]{2,}[ao]?s")
_AMERICAN = {"is": "iz", "our": "or"}
_stemmer = Stemmer.Stemmer("english")


@dataclass(frozen=True, slots=True)
class Token:
    """A word of a text: its stem, and where it stands."""

    stem: str
    start: int
    end: int


def tokenise(text: str) -> list[Token]:
    """The words of a text: letters and digits, without case or accents, stemmed."""
    return [Token(_stem(m.group()), m.start(), m.end()) for m in WORD.finditer(fold_accents(text))]


def stems(text: str) -> list[str]:
    """The telling words of a text, stemmed; many times faster than `tokenise`."""
    return telling(running(text))


def running(text: str) -> list[str]:
    """All words of a text in their order, stemmed."""
    return [*map(_stem, WORD.findall(fold_accents(text)))]


class _Plain(dict[int, str]):
    """What each character is written as, found out when it is first seen."""

    def __missing__(self, code: int) -> str:
        base = unicodedata.normalize("NFKD", chr(code))[:1] or chr(code)
        self[code] = base.lower() if len(base.lower()) == 1 else base
        return self[code]


_plain = _Plain()


def fold_accents(text: str) -> str:
    """Lower case without accents, one character for one character."""
    return text.translate(_plain)


@lru_cache(maxsize=100_000)
def normalized_name(author: str) -> str:
    """One spelling of a name: "Jané Q. Doe" and "Doe, Jane" are "jane doe", "J. Doe" is "j doe"."""
    last, comma, first = fold_accents(author).partition(",")
    words = WORD.findall(f"{first} {last}" if comma else last)
    return " ".join([*words[:1], *(word for word in words[1:-1] if len(word) > 1), *words[1:][-1:]])


@lru_cache(maxsize=200_000)
def _stem(word: str) -> str:
    stem = str(_stemmer.stemWord(_BRITISH.sub(lambda found: _AMERICAN[found.group()], word)))
    return stem[:-1] if _SHORT_FORMS.fullmatch(stem) and stem not in _SINGULAR.split() else stem


def telling(stems: Iterable[str]) -> list[str]:
    """Without the words that are in every text: "text to image" and "text-image" are one pair."""
    common = _stop_stems()
    return [stem for stem in stems if stem not in common]


@cache
def _stop_stems() -> frozenset[str]:
    return frozenset(_stem(word) for word in _STOPWORDS.split())


def bigrams(stems: Sequence[str]) -> Iterator[str]:
    return map(" ".join, itertools.pairwise(stems))
