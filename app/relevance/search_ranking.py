"""Find candidates for a query in the search index, and rank them in the same way as digests do.

The index returns at most several hundred papers for each of five criteria: any of the words, all words, all
words in the title, the organization that the query names, and the meaning. `scoring` ranks these candidates.
So a search takes about the same time in an archive of any size.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from app.relevance import scoring, typed_organizations
from app.relevance.bm25 import Matrix
from app.relevance.filters import required_fields
from app.relevance.pseudo_relevance_feedback import QueryBatch
from app.relevance.query_language import Query
from app.relevance.search_index import Hits, IndexReader
from app.relevance.search_index_fields import (
    ListingFilter,
    QueryBuilder,
    key_of_beginning,
    key_of_inner_word,
    key_of_whole_name,
)
from app.text.tokenizer import stem_all
from app.types import PaperView

ANY_WORD, ALL_WORDS, IN_TITLE, FROM_ORGANIZATION, NEAR = 700, 900, 300, 300, 600  # maximum candidates
EXAMPLES = 100  # papers from which the meaning of a query with filters is learned
MAX_NAME_TEXTS = 200  # papers read to see whether a name is an ordinary word
MAX_CACHED_NAMES = 10_000

PaperLoader = Callable[[Sequence[int]], Sequence[PaperView]]


@dataclass(frozen=True, slots=True)
class RankedPapers:
    """The papers that a search lists, best first, and the number of matching papers in the whole archive."""

    ids: Sequence[int]
    total: int


@dataclass(frozen=True, slots=True)
class _Candidates:
    ids: set[int]
    from_organization: set[int]  # those from an organization that the query names
    matching: int  # papers in the archive with all words, or with the phrases
    are_all: bool  # whether `ids` are all papers that pass the filters


class CandidateRanker:
    """A ranker of search candidates from one version of the index."""

    def __init__(self, index: IndexReader, load_papers: PaperLoader) -> None:
        self._index, self._model = index, index.model
        self._builder = QueryBuilder(index.schema, index.model)
        self._names = _IndexedNames(index, self._builder, load_papers)

    def search(self, query: Query, only: ListingFilter, limit: int, min_relevance: float) -> RankedPapers:
        """Return the papers that match a query and pass a filter, best first, ties newest first.

        Raise InvalidInterest if the query has too many phrases, or DamagedIndex if the index cannot be read.
        """
        builder = self._builder.with_filters(query, only)
        if not query.terms:
            hits = self._index.find(builder.everything(), limit, count=True, newest=True)
            return RankedPapers(hits.ids, hits.total)
        terms, pairs = scoring.terms_and_pairs(query, self._model.abbreviations)
        names = typed_organizations.names_in(
            query, self._names, self._model.abbreviations, self._model.statistics.idf
        )
        candidates = self._find_words(query, builder, terms, names)
        ids, papers = self._index.records(candidates.ids)
        matrices = papers.matrices([*terms, *pairs], self._model)
        batch = scoring.query_batch([query], matrices, self._model)
        meaning = self._meaning(query, matrices, batch, filtered=bool(builder.clauses))
        scores = [scoring.score(batch, matrices, self._model, meaning)]
        days = [papers.days]
        # A phrase is slow to check in so many papers, and the best papers with it are candidates already.
        needs_near = not (candidates.are_all or query.phrases)
        near = builder.near(meaning.directions[0]) if meaning and needs_near else None
        if near:
            others, papers = self._index.records({*self._index.find(near, NEAR).ids} - {*ids})
            matrices = papers.matrices([*terms, *pairs], self._model)
            batch = scoring.query_batch([query], matrices, self._model)
            scores += [scoring.score(batch, matrices, self._model, meaning)]
            days += [papers.days]
            ids += others
        named = [row for row, paper_id in enumerate(ids) if paper_id in candidates.from_organization]
        share = np.concatenate([own.share[0] for own in scores])
        relevance, strength = (
            scoring.with_minimum(query, np.concatenate(rows), share, named)
            for rows in ([own.relevance[0] for own in scores], [own.strength[0] for own in scores])
        )
        matching = 0 if candidates.are_all else candidates.matching
        rows = np.flatnonzero(relevance >= min_relevance)
        return _ranked(ids, np.concatenate(days), strength, rows, matching, limit)

    def _meaning(
        self, query: Query, papers: scoring.PaperMatrices, batch: QueryBatch, *, filtered: bool
    ) -> scoring.QueryMeaning | None:
        """Return the meaning of a query, from its best examples in the whole archive, ignoring its filters.

        `papers` are the candidates, as matrices with the query's terms. Return None if there is no LSA space.
        """
        if filtered and papers.examples:
            names = papers.terms.names
            best = self._index.find(self._builder.any_of(name for name in names if " " not in name), EXAMPLES)
            papers = self._index.records(best.ids)[1].matrices(names, self._model)
            batch = scoring.query_batch([query], papers, self._model)
        space, examples = self._model.space, papers.examples
        return scoring.QueryMeaning.learn(batch, examples, space) if space and examples else None

    def _find_words(
        self, query: Query, builder: QueryBuilder, terms: Sequence[str], names: Sequence[str]
    ) -> _Candidates:
        """Return the candidates that match a query's words or come from an organization that it names."""
        find, named = self._index.find, Hits((), 0)
        if names:
            named = find(builder.from_organizations(names), FROM_ORGANIZATION, count=True, newest=True)
        if builder.has_requirements:  # few papers may pass, and phrases are slow to check repeatedly
            passing = find(builder.any_of(terms), ANY_WORD + ALL_WORDS, count=True)
            are_all = passing.total <= len(passing.ids)
            if are_all or query.phrases:
                return _Candidates({*passing.ids, *named.ids}, {*named.ids}, passing.total, are_all)
        all_words = find(builder.all_of(terms, "text"), ALL_WORDS, count=True)
        ids = {*all_words.ids, *named.ids, *find(builder.all_of(terms, "title"), IN_TITLE).ids}
        if len(terms) > 1 or builder.clauses:
            ids |= {*find(builder.any_of(terms), ANY_WORD).ids}
        return _Candidates(ids, {*named.ids}, max(all_words.total, named.total), False)

    def absent_fields(self, query: Query) -> tuple[str, ...]:
        """Return the fields that a query requires and no indexed paper has, such as "a category"."""
        labels = {"an organization": "organization", "a category": "category"}
        return tuple(
            name for name in required_fields(query) if not self._index.papers_with("labels", labels[name])
        )

    def related(self, paper_id: int, limit: int, min_similarity: float) -> list[int]:
        """Return the ids of at most `limit` papers similar to a paper, most similar first.

        Return [] if the paper is not indexed or the model has no LSA space. `min_similarity` is a cosine.
        """
        ids, papers = self._index.records([paper_id])
        near = self._builder.near(papers.vectors[0]) if ids else None
        if near is None:
            return []
        vector = papers.vectors[0]
        ids, papers = self._index.records([*self._index.find(near, NEAR).ids])
        similarity = papers.vectors @ vector
        order = np.argsort(-similarity, kind="stable")
        order = order[similarity[order] >= min_similarity]
        return [ids[row] for row in order.tolist() if ids[row] != paper_id][:limit]


def _ranked(
    ids: Sequence[int], days: Matrix, strength: Matrix, rows: Matrix, matching: int, limit: int
) -> RankedPapers:
    numbers = np.array(ids, np.int64)
    order = rows[np.lexsort((-numbers[rows], -days[rows], -strength[rows]))]
    listed = order[:limit]
    total = max(len(order), matching) if len(order) else 0
    return RankedPapers(numbers[listed].tolist(), total)


class _IndexedNames:
    """The names of the organizations in the index."""

    def __init__(self, index: IndexReader, builder: QueryBuilder, load_papers: PaperLoader) -> None:
        self._index, self._builder, self._load_papers = index, builder, load_papers
        self._in_lower_case: dict[str, bool] = {}

    def papers_from(self, key: str) -> int:
        return self._index.papers_with("organization_keys", key_of_beginning(key))

    def is_whole_name(self, key: str) -> bool:
        return self._index.papers_with("organization_keys", key_of_whole_name(key)) > 0

    def is_inner_word(self, key: str) -> bool:
        return self._index.papers_with("organization_keys", key_of_inner_word(key)) > 0

    def is_written_in_lower_case(self, key: str) -> bool:
        """Return True if enough of the newest papers that mention a name write it in lower case."""
        if key not in self._in_lower_case:
            if len(self._in_lower_case) >= MAX_CACHED_NAMES:
                self._in_lower_case.clear()
            self._in_lower_case[key] = self._is_in_lower_case(key)
        return self._in_lower_case[key]

    def _is_in_lower_case(self, key: str) -> bool:
        named = self._index.find(self._builder.from_organizations([key]), MAX_NAME_TEXTS, newest=True)
        spellings = {
            spelling
            for paper in self._load_papers(named.ids)
            for name in paper.organization_names
            for beginning, spelling in typed_organizations.name_parts(name).beginnings
            if beginning == key
        }
        containing = {
            paper_id
            for spelling in spellings
            for paper_id in self._index.find(
                self._builder.written(stem_all(spelling)), MAX_NAME_TEXTS, newest=True
            ).ids
        }
        texts = (f"{paper.title}\n{paper.abstract}" for paper in self._load_papers([*containing]))
        writing = len([*typed_organizations.texts_writing(spellings, texts)])
        enough = min(self.papers_from(key), MAX_NAME_TEXTS // 2)
        return writing >= enough
