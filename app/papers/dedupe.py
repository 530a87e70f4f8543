"""PURE. Decide whether two records are the same paper.

If both records have arXiv ids, these decide. If not, records with the same DOI are the same paper. Otherwise
the titles decide, including the numbers in them. If both records have authors or abstracts, at least one
of these must agree. "Part I" and "Part II", or "v1.5" and "v1", are different papers, however similar their
titles are.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from heapq import nsmallest
from itertools import chain, islice

from rapidfuzz import fuzz, process

# Ratios are computed by rapidfuzz and range from 0 to 100.
TITLE_RATIO = 86.0  # at or above this, two titles are nearly the same
TITLE_RATIO_NAME_MISSING = 90.0  # used if only one title has a name before a colon
TITLE_RATIO_NAME_DIFFERS = 94.0  # used if both titles have a name before a colon
ABSTRACT_RATIO = 60.0  # at or above this, two abstracts are versions of one
MIN_RATIO = 50.0  # titles below this are not compared further
KEY_CHARS = 1_000
SHORT_KEY = 16  # characters: a shorter title, such as "Introduction", does not identify a paper by itself
SHORT_SUBTITLE = 24  # characters: a shorter subtitle, such as "a survey", does not identify a paper
LONG_SUBTITLE = 40  # characters: used instead if both titles have a name before a colon
MAX_TITLES_PER_WORD = 400  # words in more titles are not used to find candidates
MAX_BLOCK_WORDS = 6  # words of a title used to find candidates
MAX_COMPARED = 300  # titles per search

_FORMATTING = re.compile(
    r"\\?(?:text(?:tt|bf|it|sc|rm|sf)|math(?:bf|rm|cal|bb|it|sf|tt)|operatorname|underline|emph|boldsymbol)\s*\{"
    r"|\\text\{"
)
_LATEX_NAMES = {
    "ϕ": "phi",
    "ϵ": "epsilon",
    "ϑ": "theta",
    "ς": "sigma",
    "×": "times",
    "∞": "infty",
    "→": "rightarrow",
}
_NOT_WORD = re.compile(r"[^a-z0-9]+")
_NUMBER = re.compile(r"\d+(?:\.\d+)*")
_ROMAN = re.compile(r"(?:x{0,3})(?:ix|iv|v?i{0,3})")
_RESPONSE_WORDS = {"reply", "comment", "erratum", "corrigendum", "addendum", "correction", "rebuttal"}
_ABBREVIATIONS = {
    "rl": "reinforcement learning",
    "llm": "large language model",
    "llms": "large language models",
    "vlm": "vision language model",
    "vlms": "vision language models",
}
_PERSON_WORD = re.compile(r"[^\W\d_]+")


def title_key(title: str) -> str:
    """Return only the letters and digits of a title, in lower case, without TeX commands and accents."""
    return _normalize(title).replace(" ", "")[:KEY_CHARS]


def _normalize(title: str) -> str:
    """Return a title as plain lower-case words, for comparison."""
    text = unicodedata.normalize("NFKD", _FORMATTING.sub("", title))
    if not text.isascii():
        text = "".join(map(_latex_name, text))
    # Combining accents are removed; any other character that is not a letter separates two words.
    text = "".join(char for char in text if not unicodedata.combining(char)).casefold()
    if not text.isascii():
        return " ".join("".join(char if char.isalnum() else " " for char in text).split())
    return _NOT_WORD.sub(" ", text).strip()


def _latex_name(char: str) -> str:
    """Return the LaTeX name of a Greek letter or sign, because sources use either the sign or its name."""
    name = unicodedata.name(char, "")
    if name.startswith("GREEK") and " LETTER " in name:
        return name.rpartition(" LETTER ")[2].partition(" ")[0].lower().replace("lamda", "lambda")
    return _LATEX_NAMES.get(char, char)


def same_title(a: str, b: str) -> bool:
    """Return whether two titles belong to the same paper, judging by the titles alone."""
    return _is_same_title(Title(a), Title(b))


class Title:
    """A title with the normalized forms that comparisons use, each computed once."""

    __slots__ = ("_marks", "_subtitle", "key", "normalized", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.normalized = _normalize(text)
        self.key = self.normalized.replace(" ", "")[:KEY_CHARS]
        self._marks: tuple[str, ...] | None = None
        self._subtitle: Title | None = None

    @property
    def marks(self) -> tuple[str, ...]:
        """The numbers and words such as "erratum". They must be equal in two titles of the same paper."""
        if self._marks is None:
            numbers = _NUMBER.findall(unicodedata.normalize("NFKD", self.text).casefold())
            words = self.normalized.split()
            romans = [word for word in words if word != "i" and _ROMAN.fullmatch(word)]
            responses = [word for word in words if word in _RESPONSE_WORDS]
            self._marks = tuple(sorted(numbers + romans + responses))
        return self._marks

    @property
    def subtitle(self) -> Title | None:
        """The part after the first colon, or None."""
        if self._subtitle is None and (subtitle := self.text.partition(": ")[2]):
            self._subtitle = Title(subtitle)
        return self._subtitle


def _is_same_title(a: Title, b: Title) -> bool:
    return a.key == b.key or _is_near_title(a, b)


def _is_near_title(a: Title, b: Title) -> bool:
    """Return whether two titles are similar as a whole, or except for the name before a colon.

    One title may lack that name, or the two names may differ.
    """
    if _is_similar(a, b, TITLE_RATIO):
        return True
    if a.subtitle and b.subtitle:
        if not _both_have(LONG_SUBTITLE, a.subtitle, b.subtitle) or a.subtitle.marks != b.subtitle.marks:
            return False
        texts = [
            " ".join(_ABBREVIATIONS.get(word, word) for word in subtitle.normalized.split())
            for subtitle in (a.subtitle, b.subtitle)
        ]
        return fuzz.ratio(*texts, score_cutoff=TITLE_RATIO_NAME_DIFFERS) > 0
    subtitle, other = (a.subtitle, b) if a.subtitle else (b.subtitle, a)
    return (
        subtitle is not None
        and _both_have(SHORT_SUBTITLE, subtitle, other)
        and _is_similar(subtitle, other, TITLE_RATIO_NAME_MISSING)
    )


def _is_similar(a: Title, b: Title, ratio: float) -> bool:
    return fuzz.ratio(a.normalized, b.normalized, score_cutoff=ratio) > 0 and a.marks == b.marks


def _both_have(chars: int, a: Title, b: Title) -> bool:
    return min(len(a.text), len(b.text)) >= chars


@dataclass(frozen=True, slots=True)
class PaperIdentity:
    """The fields that identify a paper."""

    title: str
    arxiv_id: str = ""
    doi: str = ""
    abstract: str = ""
    authors: tuple[str, ...] = ()


def same_paper_reason(a: PaperIdentity, b: PaperIdentity) -> str:
    """Return a short reason why two records are the same paper, or "" if nothing shows that they are."""
    if a.arxiv_id and b.arxiv_id:
        return "same arXiv id" if a.arxiv_id == b.arxiv_id else ""
    if a.doi and a.doi == b.doi:
        return "same DOI"
    agreements = []  # for each field that both records have
    if a.authors and b.authors:
        agreements.append(bool(_surnames(a.authors) & _surnames(b.authors)))
    if a.abstract and b.abstract:
        agreements.append(fuzz.ratio(a.abstract[:600], b.abstract[:600]) >= ABSTRACT_RATIO)
    if agreements and not any(agreements):
        return ""
    title, other = Title(a.title), Title(b.title)
    if title.key and title.key == other.key:
        return "same title" if any(agreements) or len(title.key) >= SHORT_KEY else ""
    if min(len(title.key), len(other.key)) >= SHORT_KEY and _is_near_title(title, other):
        return "nearly the same title"
    return ""


def _surnames(authors: Iterable[str]) -> set[str]:
    """Return the longest word of each name, because order, initials and accents differ between sources."""
    plain = (unicodedata.normalize("NFKD", name).casefold() for name in authors)
    words = (_PERSON_WORD.findall("".join(c for c in name if not unicodedata.combining(c))) for name in plain)
    return {max(name_words, key=len) for name_words in words if name_words}


class TitleIndex:
    """An index that finds similar titles by the rarest words that they share.

    A search compares at most MAX_COMPARED titles: those that share the most of these words.
    """

    def __init__(self) -> None:
        self._titles: dict[int, Title] = {}
        self._by_word: defaultdict[str, set[int]] = defaultdict(set)

    def __len__(self) -> int:
        return len(self._titles)

    def add(self, key: int, title: str) -> None:
        if key in self._titles:
            self.remove(key)
        self._titles[key] = indexed = Title(title)
        for word in set(indexed.normalized.split()):
            self._by_word[word].add(key)

    def remove(self, key: int) -> None:
        for word in set(self._titles.pop(key).normalized.split()):
            self._by_word[word].discard(key)

    def find_near(self, title: str, limit: int | None = None) -> list[int]:
        """Return the keys of titles that are the same or nearly the same, nearest first."""
        query = Title(title)
        by_word = [self._by_word[word] for word in set(query.normalized.split()) if word in self._by_word]
        rare = (keys for keys in by_word if 0 < len(keys) <= MAX_TITLES_PER_WORD)
        rarest = sorted(rare, key=len)[:MAX_BLOCK_WORDS]
        shared = Counter(chain.from_iterable(rarest))
        min_shared = (min(len(rarest), 3) + 1) // 2
        candidates = [key for key, count in shared.items() if count >= min_shared]
        if len(candidates) > MAX_COMPARED:
            candidates = nsmallest(MAX_COMPARED, candidates, key=lambda key: (-shared[key], key))
        texts = {key: self._titles[key].normalized for key in candidates}
        scored = process.extract(
            query.normalized, texts, scorer=fuzz.ratio, score_cutoff=MIN_RATIO, limit=None
        )
        ranked = sorted((-score, key) for _, score, key in scored)
        return list(islice((key for _, key in ranked if _is_same_title(query, self._titles[key])), limit))
