"""PURE. Check required and excluded phrases and filters for all papers at once.

No score outweighs an exclusion, and a required phrase must occur as a whole. Words match in all their forms,
but not if they merely share a stem: "experience" does not match "experiments". `search_index_fields` has the
same filters for the search index: change both.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from functools import cached_property

import numpy as np

from app.relevance.bm25 import Matrix
from app.relevance.model import TermStatistics
from app.relevance.phrase_index import PhraseIndex, TextIndex
from app.relevance.query_language import FilterField, Query, has_one_content_word, name_as_typed
from app.text import preposition_compounds
from app.text.abbreviations import Abbreviations
from app.text.acronyms import TERM, stem_of
from app.text.characters import fold_accents
from app.text.names import forms_of_name, words_of_organization
from app.text.tokenizer import folded_words, without_stopwords
from app.text.word_forms import stem
from app.types import PaperView

MIN_LIFT = 2.0

Clause = tuple[str, Matrix]  # the reason for rejecting papers, and a mask of these papers

_EXCLUDED = {
    FilterField.AUTHOR: "it is by an author whom the interest excludes",
    FilterField.ORGANIZATION: "it is from an organization that the interest excludes",
    FilterField.CATEGORY: "it is filed under a category that the interest excludes",
}
_OTHERS = {
    FilterField.AUTHOR: "it is by other authors",
    FilterField.ORGANIZATION: "it is from another organization",
    FilterField.CATEGORY: "it is filed under other categories",
}
# Fields that some sources don't provide.
_ABSENT = {
    FilterField.ORGANIZATION: ("organization_names", "no source names its organization"),
    FilterField.CATEGORY: ("categories", "no source gives its categories"),
}


class Filters:
    """Filters over a list of papers, which are indexed on first use. Masks have one entry for each paper."""

    def __init__(
        self,
        papers: Sequence[PaperView],
        abbreviations: Abbreviations,
        statistics: TermStatistics | None = None,
    ) -> None:
        self._papers, self._abbreviations, self._statistics = papers, abbreviations, statistics

    def passing_mask(self, query: Query) -> Matrix:
        """Return a mask of the papers that meet all requirements of a query and match no exclusion."""
        return ~self._any_of([*self._exclusions(query), *self._unmet_requirements(query)])

    def excluded_mask(self, query: Query) -> Matrix:
        """Return a mask of the papers that match an exclusion of a query."""
        return self._any_of(self._exclusions(query))

    def rejection_reason(self, query: Query, row: int) -> str:
        """Return the reason why a query rejects the paper at `row` regardless of its score, or ""."""
        clauses = (clause for of in (self._exclusions, self._unmet_requirements) for clause in of(query))
        return next((reason for reason, rejected in clauses if rejected[row]), "")

    def absent_fields(self, query: Query) -> list[str]:
        """Return the fields that a query requires and no paper has: "an organization", "a category".

        Return [] if there are no papers.
        """
        indexes = {"an organization": self._organizations, "a category": self._categories}
        return [name for name in required_fields(query) if self._papers and not indexes[name].numbers]

    def missing_categories(self, query: Query) -> list[str]:
        """Return the categories that a query requires and that no paper is in, or [] if no paper has any."""
        own, required = self._categories.numbers, query.required.get(FilterField.CATEGORY, ())
        missing = (name for name in required if not any(in_categories(each, [name]) for each in own))
        return [*missing] if own else []

    @cached_property
    def categories(self) -> list[str]:
        """Return the categories of the papers as the papers spell them, those with the most papers first."""
        counts = Counter(category for paper in self._papers for category in dict.fromkeys(paper.categories))
        return [category for category, _ in counts.most_common()]

    def _exclusions(self, query: Query) -> Iterator[Clause]:
        for phrase in dict.fromkeys(query.excluded_phrases):
            mentioning = self._mentioning(phrase, query.excluded_capitals)
            yield "it contains a word or phrase that the interest excludes", mentioning
        for field, values in query.excluded.items():
            yield _EXCLUDED[field], self._having(field, values)

    def _unmet_requirements(self, query: Query) -> Iterator[Clause]:
        for phrase in dict.fromkeys(query.phrases):
            yield "it does not contain a phrase in quotes", ~self._containing(phrase, query.capitals)
        for name in self.required_names(query):
            typed = name_as_typed(query, name)
            yield f"it does not contain “{typed}” as a whole", ~self._mentioning_name(name, query.capitals)
        for field, values in query.required.items():
            if field in _ABSENT:
                attribute, reason = _ABSENT[field]
                yield reason, np.array([not getattr(paper, attribute) for paper in self._papers], bool)
            yield _OTHERS[field], ~self._having(field, values)

    def required_names(self, query: Query) -> list[Sequence[str]]:
        """Return the names of a query, words joined by hyphens, that must occur as a whole."""
        names = dict.fromkeys(query.names)
        return [
            name
            for name in names
            if belongs_together(name, query.capitals, self._abbreviations, self._statistics)
        ]

    def _containing(self, phrase: Sequence[str], capitals: Set[str]) -> Matrix:
        """Return a mask of the papers that contain this phrase as typed, with its acronyms in capitals."""
        mask = self._texts[0].containing(phrase)
        for acronym in capitals & self._abbreviations.acronyms.words & {*phrase}:
            mask &= self._acronyms.containing([acronym.upper()])
        return mask

    def _mentioning(self, phrase: Sequence[str], capitals: Set[str]) -> Matrix:
        """Return a mask of the papers that contain this phrase, as typed or in its short or long form."""
        as_written, as_folded = self._texts
        # Without "on", "on-policy" would match any policy. Papers may write "on-line" as one word.
        if has_one_content_word([*map(stem, phrase)]):
            return np.asarray(as_written.containing(phrase) | as_written.containing(["".join(phrase)]))
        words = self._abbreviations.acronyms.words_of_phrase(phrase, capitals)
        terms = self._abbreviations.fold(without_stopwords(map(stem_of, words)))
        containing = self._abbreviations.contained_in.get(" ".join(terms), ())
        return np.asarray(
            self._containing(phrase, capitals)
            | as_folded.containing(self._abbreviations.fold_words(words))
            | as_folded.containing_any(f"{TERM}{term}" for term in containing)
        )

    def _mentioning_name(self, name: Sequence[str], capitals: Set[str]) -> Matrix:
        """Return a mask of the papers that contain a name, with its hyphen if papers seldom leave it out."""
        if "-".join(name) not in self._abbreviations.hyphenated:
            return self._mentioning(name, capitals)
        with_hyphen = self._compounds.containing([preposition_compounds.stemmed("-".join(name))])
        return np.asarray(with_hyphen | self._texts[0].containing(["".join(name)]))

    def _having(self, field: FilterField, names: Sequence[str]) -> Matrix:
        """Return a mask of the papers with an author, an organization or a category that matches a name.

        An author or an organization matches if it contains a name. Whole words must match; accents and the
        middle initials of authors are ignored.
        """
        match field:
            case FilterField.AUTHOR:
                phrases, index = [form for name in names for form in forms_of_name(name)], self._authors
            case FilterField.ORGANIZATION:
                phrases, index = [words_of_organization(name) for name in names], self._organizations
            case FilterField.CATEGORY:
                own = self._categories
                return own.containing_any(each for each in own.numbers if in_categories(each, names))
        return self._any_of(("", index.containing(phrase)) for phrase in phrases)

    def _any_of(self, clauses: Iterable[Clause]) -> Matrix:
        mask = np.zeros(len(self._papers), bool)
        for _, papers in clauses:
            mask |= papers
        return mask

    @cached_property
    def _texts(self) -> tuple[TextIndex, TextIndex]:
        """Return two indexes of the papers: one as written, one with long forms folded."""
        texts = [(paper.title, paper.abstract) for paper in self._papers]
        own = self._abbreviations
        return TextIndex([[folded_words(text) for text in both] for both in texts]), TextIndex(
            [own.fold_words(own.acronyms.words_of(text), redefined) for text in both]
            for both, redefined in ((both, own.redefined_short_forms(*both)) for both in texts)
        )

    @cached_property
    def _acronyms(self) -> PhraseIndex:
        find = self._abbreviations.acronyms.find
        return PhraseIndex(
            [[word] for text in (paper.title, paper.abstract) for word in find(text).values()]
            for paper in self._papers
        )

    @cached_property
    def _compounds(self) -> PhraseIndex:
        return PhraseIndex(
            [
                [compound]
                for text in (paper.title, paper.abstract)
                for compound in preposition_compounds.compounds_in(text)
            ]
            for paper in self._papers
        )

    @cached_property
    def _authors(self) -> PhraseIndex:
        return PhraseIndex(
            [form for name in paper.authors for form in forms_of_name(name)] for paper in self._papers
        )

    @cached_property
    def _organizations(self) -> PhraseIndex:
        return PhraseIndex(map(words_of_organization, paper.organization_names) for paper in self._papers)

    @cached_property
    def _categories(self) -> PhraseIndex:
        # A category is a single word here, so it only matches as a whole.
        return PhraseIndex([[category] for category in paper.categories] for paper in self._papers)


def required_fields(query: Query) -> list[str]:
    """Return "an organization" and "a category" if a query requires them. Some sources provide neither."""
    fields = {"an organization": FilterField.ORGANIZATION, "a category": FilterField.CATEGORY}
    return [name for name, field in fields.items() if field in query.required]


def belongs_together(
    words: Sequence[str],
    capitals: Set[str],
    abbreviations: Abbreviations,
    statistics: TermStatistics | None,
) -> bool:
    """Return True if words joined by hyphens are a name ("SWE-bench"), not ordinary words ("LLM-based").

    A word followed by a number is a name ("GPT-5"). Other words belong together if they are neighbors
    in at least MIN_LIFT times as many papers as would contain both by chance. Words that are too rare to
    decide are treated as a name. `capitals` are those of the query.
    """
    if any(any(map(str.isdigit, word)) for word in words[1:]):
        return True
    folded = abbreviations.fold([*map(stem_of, abbreviations.acronyms.words_of_phrase(words, capitals))])
    if not statistics:
        return True
    papers, total = statistics.frequencies, max(1, statistics.papers)
    for first, second in itertools.pairwise(folded):
        by_chance = papers.get(first, 0) * papers.get(second, 0) / total
        if by_chance >= 1 and papers.get(f"{first} {second}", 0) < MIN_LIFT * by_chance:
            return False
    return True


def in_categories(category: str, names: Sequence[str]) -> bool:
    """Return True if a category is one of `names`, or a subcategory of one: `cs.CL` is in `cs`.

    `names` must be in lower case, without accents.
    """
    own = fold_accents(category)
    return any(own == name or own.startswith(f"{name}.") for name in names)
