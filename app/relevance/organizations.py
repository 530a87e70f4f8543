"""PURE. Recognise the names of organisations that subscribers type as plain words, without `org:`."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Sequence

from app.relevance.query_language import Query
from app.relevance.vector_space import Idf
from app.text.abbreviations import Abbreviations
from app.text.tokenizer import WORD, fold_accents, tokenise, without_stopwords
from app.types import PaperView

MAX_WORDS = 8  # of an interest, so that no text takes long to split into names
RARE_IDF = 6.2  # the idf of a word that one paper in 500 contains
_NONE = frozenset[int]()


class OrganizationNames:
    """The names of the organisations that published some papers.

    An interest names organisations if all of its plain words do: as a whole name in any order ("Meta AI") or
    spelling ("Deep Mind"), as its first words ("Microsoft" for "Microsoft Research"), or as several of these
    ("Google DeepMind"). A name is ignored if at least as many papers write it in lower case as come from the
    organisation ("together"). First words that are no whole name must also be rare in the archive ("Alibaba",
    but not "Personalized"), and a single one must not be in another place of other names ("University").
    """

    def __init__(self, papers: Sequence[PaperView], abbreviations: Abbreviations, idf: Idf) -> None:
        self._papers, self._abbreviations, self._idf = papers, abbreviations, idf
        self._rows: dict[str, set[int]] = defaultdict(set)  # by the keys of whole names and their beginnings
        self._spellings: dict[str, set[str]] = defaultdict(set)  # in lower case, by the same keys
        self._whole_names, self._inner_words = set[str](), set[str]()
        for row, paper in enumerate(papers):
            for name in paper.organization_names:
                self._add(row, name)
        self._recognised: dict[tuple[str, ...], frozenset[int]] = {}  # by words

    def _add(self, row: int, name: str) -> None:
        words = [token for token in tokenise(name) if without_stopwords([token.stem])]
        stems = [word.stem for word in words]
        self._inner_words.update(stems[1:])
        self._whole_names.update(_keys(stems))
        for end, word in enumerate(words, 1):
            for key in _keys(stems[:end]):
                self._rows[key].add(row)
                self._spellings[key].add(fold_accents(name[words[0].start : word.end]))

    def rows_named_by(self, query: Query) -> frozenset[int]:
        """Return the positions of the papers from the organisations that an interest names."""
        words = without_stopwords(query.words)
        return _NONE if query.phrases or len(words) > MAX_WORDS else self._rows_named_by(words)

    def _rows_named_by(self, words: Sequence[str]) -> frozenset[int]:
        """Return the papers from the organisations whose names the words are: one name, or several."""
        for end in range(len(words), 0, -1):
            rows = self._rows_of_name(words[:end])
            others = self._rows_named_by(words[end:]) if rows and end < len(words) else rows
            if others:
                return rows | others
        return _NONE

    def _rows_of_name(self, words: Sequence[str]) -> frozenset[int]:
        key, in_any_order = _keys(words)
        if key not in self._rows:
            key = in_any_order
        if key not in self._rows:
            return _NONE
        if tuple(words) not in self._recognised:
            is_rare = key not in self._inner_words and any(self._idf(word) >= RARE_IDF for word in words)
            is_name = (key in self._whole_names or is_rare) and not self._is_ordinary(key)
            self._recognised[tuple(words)] = frozenset(self._rows[key]) if is_name else _NONE
        return self._recognised[tuple(words)]

    def _is_ordinary(self, key: str) -> bool:
        """Return True if papers use a name as an ordinary word, or define it as an abbreviation."""
        if key in self._abbreviations.expansions:
            return True
        spellings = (map(re.escape, WORD.findall(spelling)) for spelling in sorted(self._spellings[key]))
        alternatives = "|".join(map(r"[\s-]+".join, spellings))
        # Not within an address, such as "github.com/nvidia".
        written = re.compile(rf"(?<![\w/.@:-])(?:{alternatives})(?![\w/@-]|\.\w)")
        writing = (paper for paper in self._papers if written.search(f"{paper.title}\n{paper.abstract}"))
        enough = len(self._rows[key])
        return len([*itertools.islice(writing, enough)]) == enough


def _keys(words: Sequence[str]) -> tuple[str, str]:
    """Return the keys under which a name is found: its letters in order, and its words in any order."""
    return "".join(words), " ".join(sorted(words))
