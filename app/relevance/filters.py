"""PURE. What must, and what must not, stand in papers, asked of all of them at once.

No score outweighs an exclusion, and a required phrase stands there word by word.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

import numpy as np

from app.relevance.highlights import belongs, words_of_name
from app.relevance.phrase_index import PhraseIndex
from app.relevance.query_language import Query
from app.relevance.vector_space import Matrix
from app.text.abbreviations import Abbreviations
from app.text.tokenizer import running, telling
from app.types import PaperView

Clause = tuple[str, Matrix]  # what is said of a paper that it leaves out, and which papers these are


class Filters:
    """Papers, read once, when somebody first asks or ahead. Answers are in the order in which they came."""

    def __init__(self, papers: Sequence[PaperView], folding: Abbreviations) -> None:
        self._papers, self._folding = papers, folding

    def read(self) -> None:
        """Read the papers now, so that nobody waits for it later."""
        _ = self._texts, self._authors, self._filed

    def passing(self, query: Query) -> Matrix:
        """Which papers have all that a query requires and nothing that it excludes."""
        return ~self._any([*self._excluding(query), *self._requiring(query)])

    def excluded(self, query: Query) -> Matrix:
        """Which papers the exclusions of a query forbid."""
        return self._any(self._excluding(query))

    def why_not(self, query: Query, place: int) -> str:
        """Why a query does not want one of the papers, whatever its score; nothing where it may."""
        clauses = (clause for of in (self._excluding, self._requiring) for clause in of(query))
        return next((why for why, out in clauses if out[place]), "")

    def _excluding(self, query: Query) -> Iterator[Clause]:
        for phrase in dict.fromkeys(query.without):
            yield "a word or phrase that the interest excludes is in it", self._means(phrase)
        if query.without_authors:
            yield "an author whom the interest excludes wrote it", self._by(query.without_authors)
        if query.without_categories:
            filed = self._under(query.without_categories)
            yield "it is filed under a category that the interest excludes", filed

    def _requiring(self, query: Query) -> Iterator[Clause]:
        for phrase in dict.fromkeys(query.phrases):
            yield "a phrase in quotes is not in it", ~self._texts[0].having(phrase)
        if query.authors:
            yield "it is by other authors", ~self._by(query.authors)
        if query.categories:
            yield "it is filed under other categories", ~self._under(query.categories)

    def _means(self, phrase: Sequence[str]) -> Matrix:
        """Whether these stems stand there, as typed or in their short or long form."""
        if len(telling(phrase)) == 1 < len(phrase):  # without "on", "on-policy" would be any policy
            return self._texts[0].having(phrase)
        folded = self._folding.fold(telling(phrase))
        wanted = " ".join(folded)
        besides = [stem for stem, says in self._folding.parts.items() if wanted in says]
        said, meant = self._texts
        return np.asarray(said.having(phrase) | meant.having(folded) | meant.having_any(besides))

    def _by(self, names: Iterable[str]) -> Matrix:
        """Whether one of the authors has one of these names, or last names: whole words, any accents."""
        return self._any(("", self._authors.having(words_of_name(name))) for name in names)

    def _under(self, names: Sequence[str]) -> Matrix:
        return self._filed.having_any(own for own in self._categories if belongs(own, names))

    def _any(self, clauses: Iterable[Clause]) -> Matrix:
        out = np.zeros(len(self._papers), bool)
        for _, papers in clauses:
            out |= papers
        return out

    @cached_property
    def _texts(self) -> tuple[PhraseIndex, PhraseIndex]:
        """The papers as they are written, and with long forms folded into their short ones."""
        texts = [[running(paper.title), running(paper.abstract)] for paper in self._papers]
        folded = ([self._folding.fold(telling(text)) for text in both] for both in texts)
        return PhraseIndex(texts), PhraseIndex(folded)

    @cached_property
    def _authors(self) -> PhraseIndex:
        return PhraseIndex([words_of_name(name) for name in paper.authors] for paper in self._papers)

    @cached_property
    def _filed(self) -> PhraseIndex:
        # A category is one word here: it is found whole.
        return PhraseIndex([[category] for category in paper.categories] for paper in self._papers)

    @cached_property
    def _categories(self) -> list[str]:
        return sorted({category for paper in self._papers for category in paper.categories})
