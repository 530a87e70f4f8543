"""PURE. Recognize the names of organizations that subscribers type as plain words, without `org:`.

An interest names organizations if its plain words form one or more names ("Google DeepMind"). A name may be
whole, in any order ("Meta AI") or spelling ("Deep Mind"), or reduced to its first words ("Microsoft" for
"Microsoft Research"). A name is ignored if at least as many papers write it in lower case as come from the
organization ("together"). First words that are not a whole name must also be rare in the archive ("Alibaba",
but not "Personalized"), and a single first word must not occur elsewhere in other names ("University").
"""

import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from app.relevance.bm25 import Idf
from app.relevance.query_language import Query
from app.text.abbreviations import Abbreviations
from app.text.characters import fold_accents
from app.text.tokenizer import WORD, tokenize, without_stopwords
from app.types import PaperView

MAX_WORDS = 8  # of an interest, so that no text takes long to split into names
RARE_IDF = 6.2  # the idf of a word that one paper in 500 contains
_NONE = frozenset[int]()


@dataclass(frozen=True, slots=True)
class NameParts:
    """An organization's name, split for lookups."""

    beginnings: Sequence[tuple[str, str]]  # (key, spelling) of its first words and of the whole name
    whole: Sequence[str]  # the keys of the whole name
    inner: Sequence[str]  # the stems of all words but the first


class NameTable(Protocol):
    """The names of the organizations that published some papers."""

    def papers_from(self, key: str) -> int:
        """Return the number of papers from the organizations whose names begin with a key's words."""

    def is_whole_name(self, key: str) -> bool:
        """Return True if a name consists of the key's words."""

    def is_inner_word(self, key: str) -> bool:
        """Return True if a name contains the key as one of its words other than the first."""

    def is_written_in_lower_case(self, key: str) -> bool:
        """Return True if at least as many papers write the key in lower case as `papers_from` counts."""


def name_parts(name: str) -> NameParts:
    """Split an organization's name for lookups."""
    words = [token for token in tokenize(name) if without_stopwords([token.stem])]
    stems = [word.stem for word in words]
    beginnings = (
        (key, fold_accents(name[words[0].start : word.end]))
        for end, word in enumerate(words, 1)
        for key in _keys(stems[:end])
    )
    return NameParts([*beginnings], _keys(stems) if stems else (), stems[1:])


def names_in(query: Query, table: NameTable, abbreviations: Abbreviations, idf: Idf) -> tuple[str, ...]:
    """Return the keys of the organizations that an interest names, or () if it contains other plain words."""
    words = without_stopwords(query.words)
    return _names_in(words, table, abbreviations, idf) if len(words) <= MAX_WORDS else ()


def _names_in(
    words: Sequence[str], table: NameTable, abbreviations: Abbreviations, idf: Idf
) -> tuple[str, ...]:
    """Return the keys of the organizations that the words name, or () if any word is left over."""
    for end in range(len(words), 0, -1):
        key = next((key for key in _keys(words[:end]) if table.papers_from(key)), "")
        if key and _is_name(key, words[:end], table, abbreviations, idf):
            others = _names_in(words[end:], table, abbreviations, idf)
            if others or end == len(words):
                return key, *others
    return ()


def _is_name(
    key: str, words: Sequence[str], table: NameTable, abbreviations: Abbreviations, idf: Idf
) -> bool:
    is_rare = not table.is_inner_word(key) and any(idf(word) >= RARE_IDF for word in words)
    if not (table.is_whole_name(key) or is_rare) or key in abbreviations.expansions:
        return False
    return not table.is_written_in_lower_case(key)


class OrganizationNames:
    """The names of the organizations that published some papers, in memory."""

    def __init__(self, papers: Sequence[PaperView], abbreviations: Abbreviations, idf: Idf) -> None:
        self._papers, self._abbreviations, self._idf = papers, abbreviations, idf
        self._rows: dict[str, set[int]] = defaultdict(set)  # by the keys of whole names and their beginnings
        self._spellings: dict[str, set[str]] = defaultdict(set)  # in lower case, by the same keys
        self._whole_names, self._inner_words = set[str](), set[str]()
        for row, paper in enumerate(papers):
            for name in paper.organization_names:
                self._add(row, name_parts(name))
        self._in_lower_case: dict[str, bool] = {}  # by key

    def _add(self, row: int, name: NameParts) -> None:
        self._inner_words.update(name.inner)
        self._whole_names.update(name.whole)
        for key, spelling in name.beginnings:
            self._rows[key].add(row)
            self._spellings[key].add(spelling)

    def rows_named_by(self, query: Query) -> frozenset[int]:
        """Return the positions of the papers from the organizations that an interest names."""
        keys = names_in(query, self, self._abbreviations, self._idf)
        return _NONE.union(*(self._rows[key] for key in keys))

    def papers_from(self, key: str) -> int:
        return len(self._rows.get(key, ()))

    def is_whole_name(self, key: str) -> bool:
        return key in self._whole_names

    def is_inner_word(self, key: str) -> bool:
        return key in self._inner_words

    def is_written_in_lower_case(self, key: str) -> bool:
        if key not in self._in_lower_case:
            texts = (f"{paper.title}\n{paper.abstract}" for paper in self._papers)
            writing, enough = texts_writing(self._spellings[key], texts), len(self._rows[key])
            self._in_lower_case[key] = len([*itertools.islice(writing, enough)]) == enough
        return self._in_lower_case[key]


def texts_writing(spellings: Iterable[str], texts: Iterable[str]) -> Iterator[str]:
    """Yield the texts that write one of the names in lower case, as an ordinary word."""
    parts = (map(re.escape, WORD.findall(spelling)) for spelling in sorted(spellings))
    alternatives = "|".join(map(r"[\s-]+".join, parts))
    # Ignore names within an address, such as "github.com/nvidia".
    written = re.compile(rf"(?<![\w/.@:-])(?:{alternatives})(?![\w/@-]|\.\w)")
    return (text for text in texts if written.search(text))


def _keys(words: Sequence[str]) -> tuple[str, str]:
    """Return two lookup keys of a name: its words joined without spaces, and its words sorted."""
    return "".join(words), " ".join(sorted(words))
