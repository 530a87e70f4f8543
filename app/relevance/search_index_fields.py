"""The fields of the search index. Convert papers to tantivy documents, and queries to tantivy queries.

Texts are stored as our own stems, so that accents, endings and abbreviations match as in digests. The filters
have the same meaning as in `filters`, which checks requirements and exclusions for digests: change both.

    text     title (twice, because titles count double) and abstract, long forms folded into short forms
    title    the folded title
    written  title and abstract as written, with stop words
    words    the distinct words of both as spelled, which tell apart words that share a stem; also acronyms,
             and compounds such as "in-context"
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field
from datetime import date

import numpy as np
import tantivy
from tantivy import Occur

from app.errors import InvalidInterest
from app.papers.searchable_papers import SearchablePaper
from app.relevance import typed_organizations
from app.relevance.bm25 import Document, Matrix
from app.relevance.filters import belongs_together
from app.relevance.model import RelevanceModel
from app.relevance.query_language import FilterField, FilterValues, Query, has_one_content_word
from app.text import preposition_compounds
from app.text.acronyms import TERM, stem_of
from app.text.characters import fold_accents
from app.text.names import forms_of_name, words_of_organization
from app.text.tokenizer import STOP_STEMS, folded_words, without_stopwords
from app.text.word_forms import americanize, forms_pattern, stem

INDEX_FORMAT = 9  # increase this when a field is added or removed, or a field or a record changes its meaning
MAX_PHRASES = 10  # phrases, exclusions and hyphenated words in a search; each may take a tenth of a second
# Words of a phrase whose forms are checked. The stems of a longer phrase are distinctive enough.
MAX_CHECKED_FORMS = 6
CLOSE_STEMS = 16  # stems that represent the meaning of a query
_BREAK = "|"  # between texts, so that phrases do not span two of them; no stem contains it
_ID_BITS = 32

TantivyQuery = tantivy.Query


@dataclass(frozen=True, slots=True)
class ListingFilter:
    """The filters of a search that are not part of the query."""

    day: date | None = None
    source_id: int | None = None
    code: bool = False


def schema() -> tantivy.Schema:
    """Return the schema of the index. A change to it needs a new INDEX_FORMAT, which rebuilds the index."""
    builder = tantivy.SchemaBuilder()
    builder.add_unsigned_field("id", indexed=True, fast=True)
    builder.add_unsigned_field("newest", fast=True)  # sorts by day, then by id
    for name in ("text", "title", "written", "authors", "organizations"):
        builder.add_text_field(name, tokenizer_name="stems", index_option="position")
    builder.add_text_field("words", tokenizer_name="stems", index_option="basic")
    for name in ("categories", "labels", "organization_keys"):
        builder.add_text_field(name, tokenizer_name="raw", index_option="basic")
    return builder.build()


def register_tokenizer(index: tantivy.Index) -> None:
    """Register a tokenizer that splits texts at spaces, because an index does not store its tokenizer."""
    stems = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace()).build()
    index.register_tokenizer("stems", stems)


def document(
    searchable: SearchablePaper, written: Document, folded: Document, model: RelevanceModel
) -> tantivy.Document:
    """Return a paper as a document of the index.

    `written` contains the stems of its title and abstract, and `folded` the folded terms.
    """
    paper, new = searchable.view, tantivy.Document()
    day = paper.last_listed_on.toordinal() if paper.last_listed_on else 0
    new.add_unsigned("id", paper.id)
    new.add_unsigned("newest", day << _ID_BITS | paper.id)
    title, abstract = folded
    implied_in_title, implied = (_implied(text, model) for text in folded)
    new.add_text("title", _joined([title, *implied_in_title]))
    new.add_text("text", _joined([title, title, abstract, *implied_in_title, *implied_in_title, *implied]))
    new.add_text("written", _joined(written))
    words = {*folded_words(f"{paper.title} {paper.abstract}")}
    forms = {*map(americanize, words)}
    for text in (paper.title, paper.abstract):
        forms.update(model.abbreviations.acronyms.find(text).values())
        forms.update(preposition_compounds.compounds_in(text))
    new.add_text("words", " ".join(forms))
    new.add_text("authors", _joined(form for name in paper.authors for form in forms_of_name(name)))
    new.add_text("organizations", _joined(map(words_of_organization, paper.organization_names)))
    for category in _with_parents(paper.categories):
        new.add_text("categories", category)
    for label in _labels(searchable):
        new.add_text("labels", label)
    for key in _organization_keys(paper.organization_names):
        new.add_text("organization_keys", key)
    return new


def _implied(text: Sequence[str], model: RelevanceModel) -> list[list[str]]:
    expansions = model.abbreviations.expansions
    return [[_token(implied)] for term in text if term in expansions for implied in expansions[term]]


def _token(term: str) -> str:
    """Return a term or a pair as one token."""
    return term.replace(" ", "_")


def _joined(texts: Iterable[Sequence[str]]) -> str:
    return f" {_BREAK} ".join(" ".join(text) for text in texts)


def _with_parents(categories: Iterable[str]) -> set[str]:
    """Return categories together with their parent categories: "cs.cl" and "cs"."""
    parts = [fold_accents(category).split(".") for category in categories]
    return {".".join(own[:end]) for own in parts for end in range(1, len(own) + 1)}


def _labels(searchable: SearchablePaper) -> set[str]:
    paper = searchable.view
    labels = {"code"} if searchable.with_code else set[str]()
    labels |= {"organization"} if paper.organization_names else set()
    labels |= {"category"} if paper.categories else set()
    for day, source_id in searchable.listings:
        labels |= {_listing_label(day), _listing_label(None, source_id), _listing_label(day, source_id)}
    return labels


def _listing_label(day: date | None = None, source_id: int | None = None) -> str:
    return f"listed {day or 'any day'} {source_id or 'anywhere'}"


def _organization_keys(names: Iterable[str]) -> set[str]:
    keys = set[str]()
    for name in names:
        parts = typed_organizations.name_parts(name)
        keys |= {key_of_beginning(key) for key, _ in parts.beginnings}
        keys |= {key_of_whole_name(key) for key in parts.whole} | {key_of_inner_word(w) for w in parts.inner}
    return keys


def key_of_beginning(key: str) -> str:
    return f"begins {key}"


def key_of_whole_name(key: str) -> str:
    return f"is {key}"


def key_of_inner_word(stem: str) -> str:
    return f"contains {stem}"


@dataclass(frozen=True)
class QueryBuilder:
    """A builder of the tantivy queries for one search."""

    schema: tantivy.Schema
    model: RelevanceModel
    clauses: Sequence[tuple[Occur, TantivyQuery]] = field(default=())  # filters and exclusions

    def with_filters(self, query: Query, only: ListingFilter) -> QueryBuilder:
        """Return a builder of queries for papers that pass the filters.

        Raise InvalidInterest if there are too many phrases.
        """
        phrases = *query.phrases, *query.names, *query.excluded_phrases
        if len(phrases) > MAX_PHRASES:
            raise InvalidInterest(
                f"A search can have at most {MAX_PHRASES} phrases, exclusions and hyphenated words.", "q"
            )
        musts = [*self._requirements(query), *self._listings(only)]
        excluded, capitals = dict.fromkeys(query.excluded_phrases), query.excluded_capitals
        excluded_phrases = (self._mentioning(phrase, capitals) for phrase in excluded)
        must_nots = [*excluded_phrases, *self._fields(query.excluded)]
        clauses = [(Occur.Must, _unscored(must)) for must in musts]
        clauses += [(Occur.MustNot, _unscored(must_not)) for must_not in must_nots]
        return QueryBuilder(self.schema, self.model, clauses)

    @property
    def has_requirements(self) -> bool:
        """Return whether papers must meet a requirement. Exclusions do not count."""
        return any(occur is Occur.Must for occur, _ in self.clauses)

    def any_of(self, terms: Iterable[str]) -> TantivyQuery:
        """Return a query for papers with any of the terms. Papers with more and rarer terms come first."""
        return self._filtered([(Occur.Should, self._term("text", _token(term))) for term in terms])

    def all_of(self, terms: Iterable[str], field_name: str) -> TantivyQuery:
        """Return a query for papers with all terms in a field."""
        return self._filtered([(Occur.Must, self._term(field_name, _token(term))) for term in terms])

    def everything(self) -> TantivyQuery:
        """Return a query for all papers that pass the filters."""
        return self._filtered([] if self.has_requirements else [(Occur.Must, TantivyQuery.all_query())])

    def from_organizations(self, keys: Iterable[str]) -> TantivyQuery:
        """Return a query for papers from organizations whose names begin with these keys."""
        begins = [*map(key_of_beginning, keys)]
        keyed = TantivyQuery.term_set_query(self.schema, "organization_keys", begins)
        return self._filtered([(Occur.Must, keyed)])

    def near(self, direction: Matrix) -> TantivyQuery | None:
        """Return a query for papers near a direction of the LSA space, by the stems that are nearest to it.

        The cosine of a paper and a direction is a sum over the paper's stems, so a few stems with the
        largest weights approximate it. Return None if no stem is near.
        """
        if not self.model.space:
            return None
        stems = self.model.space.stems
        weights = stems.idf * (self.model.space.projection @ direction)
        nearest = np.argpartition(-weights, min(CLOSE_STEMS, len(weights) - 1))[:CLOSE_STEMS]
        shoulds = [
            (Occur.Should, TantivyQuery.boost_query(self._term("text", stems.names[n]), float(weights[n])))
            for n in nearest.tolist()
            if weights[n] > 0
        ]
        return self._filtered(shoulds) if shoulds else None

    def written(self, stems: Sequence[str]) -> TantivyQuery:
        """Return a query for papers that contain these stems next to each other."""
        return self._phrase("written", stems)

    def label(self, name: str) -> TantivyQuery:
        return self._term("labels", name)

    def _filtered(self, clauses: Sequence[tuple[Occur, TantivyQuery]]) -> TantivyQuery:
        return TantivyQuery.boolean_query([*clauses, *self.clauses])

    def _term(self, field_name: str, term: str) -> TantivyQuery:
        return TantivyQuery.term_query(self.schema, field_name, term, "freq")

    def _phrase(self, field_name: str, words: Sequence[str]) -> TantivyQuery:
        """Return a query for a phrase. An empty phrase matches no paper."""
        if len(words) < 2:
            return self._term(field_name, words[0]) if words else TantivyQuery.empty_query()
        return TantivyQuery.phrase_query(self.schema, field_name, [*words])

    def _requirements(self, query: Query) -> Iterable[TantivyQuery]:
        for phrase in dict.fromkeys(query.phrases):
            yield self._containing(phrase, query.capitals)
        abbreviations, statistics = self.model.abbreviations, self.model.statistics
        for name in dict.fromkeys(query.names):
            if belongs_together(name, query.capitals, abbreviations, statistics):
                yield self._mentioning_name(name, query.capitals)
        yield from self._fields(query.required)

    def _fields(self, filters: FilterValues) -> Iterable[TantivyQuery]:
        for name, values in filters.items():
            yield _any([self._having(name, value) for value in values])

    def _having(self, name: FilterField, value: str) -> TantivyQuery:
        match name:
            case FilterField.AUTHOR:
                return _any([self._phrase("authors", form) for form in forms_of_name(value)])
            case FilterField.ORGANIZATION:
                return self._phrase("organizations", words_of_organization(value))
            case FilterField.CATEGORY:
                return self._term("categories", value)

    def _listings(self, only: ListingFilter) -> Iterable[TantivyQuery]:
        if only.code:
            yield self.label("code")
        if only.day or only.source_id is not None:
            yield self.label(_listing_label(only.day, only.source_id))

    def _mentioning(self, phrase: Sequence[str], capitals: Set[str]) -> TantivyQuery:
        """Return a query for papers that contain this phrase, as typed or in its short or long form."""
        texts, abbreviations = [self._containing(phrase, capitals)], self.model.abbreviations
        words = abbreviations.acronyms.words_of_phrase(phrase, capitals)
        stems = [*map(stem_of, words)]
        # Without "on", "on-policy" would match any policy. Papers may write "on-line" as one word.
        if has_one_content_word(stems):
            texts.append(self._containing(["".join(phrase)], capitals))
        else:
            terms = abbreviations.fold(without_stopwords(stems))
            folded = self._phrase("text", terms)
            # A paper may contain the long form of a word instead, so a short form is found by its stem alone.
            spelled = [
                word
                for word in abbreviations.fold_words(words)
                if not (word.startswith(TERM) or stem(word) in abbreviations.folded_terms)
            ]
            texts.append(self._with_forms(folded, spelled))
            containing = abbreviations.contained_in.get(" ".join(terms), ())
            texts += [self._term("text", term) for term in containing]
        return _any(texts)

    def _mentioning_name(self, name: Sequence[str], capitals: Set[str]) -> TantivyQuery:
        """Return a query for papers that contain a name, with its hyphen if papers seldom leave it out."""
        if (compound := "-".join(name)) not in self.model.abbreviations.hyphenated:
            return self._mentioning(name, capitals)
        with_hyphen = self._term("words", preposition_compounds.stemmed(compound))
        return _any([with_hyphen, self._containing(["".join(name)], capitals)])

    def _containing(self, phrase: Sequence[str], capitals: Set[str]) -> TantivyQuery:
        """Return a query for papers that contain this phrase as typed, with its acronyms in capitals."""
        stems = [*map(stem, phrase)]
        words = self.model.abbreviations.acronyms.words_of_phrase(phrase, capitals)
        return self._with_forms(self.written(stems), [w for w in words if stem_of(w) not in STOP_STEMS])

    def _with_forms(self, query: TantivyQuery, words: Sequence[str]) -> TantivyQuery:
        """Limit a query to papers that contain forms of the first MAX_CHECKED_FORMS of these words."""
        distinct = dict.fromkeys(words[:MAX_CHECKED_FORMS])
        patterns = (word[1:] if word.startswith(TERM) else forms_pattern(word) for word in distinct)
        forms = (TantivyQuery.regex_query(self.schema, "words", pattern) for pattern in patterns)
        return TantivyQuery.boolean_query([(Occur.Must, part) for part in (query, *forms)])


def _any(queries: Sequence[TantivyQuery]) -> TantivyQuery:
    return TantivyQuery.boolean_query([(Occur.Should, query) for query in queries])


def _unscored(query: TantivyQuery) -> TantivyQuery:
    return TantivyQuery.const_score_query(query, 0.0)
