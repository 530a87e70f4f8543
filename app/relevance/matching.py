"""PURE. Match interests with papers: compute the relevance, the strength, and a reason that quotes the paper.

B, the words: BM25F over words and pairs of words, as defined in `bm25`. Long and short forms of a
term count as the same word.

P, the meaning: the examples of an interest are the papers in the archive with the highest product of score
and share of the interest's words. Their centroid is a direction in the LSA space. P is the z-score of a paper
in this direction: the number of standard deviations by which it is closer than the archive's average paper.
Therefore, the scores of different interests are comparable, and papers that use other words are found. P is
damped if the examples contain few of the interest's words.

`scoring` combines B and P into the agreement and the strength. `cut_offs` defines the agreement that a paper
needs to be sent. The papers that are sent are ordered by strength.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from threading import Lock
from types import MappingProxyType

import numpy as np
from cachetools import LRUCache
from scipy import sparse

from app.relevance import query_words, reasons, scoring
from app.relevance.bm25 import Idf, Matrix, Terms
from app.relevance.filters import Filters
from app.relevance.highlights import Highlights, PaperText, Typed
from app.relevance.model import RelevanceModel
from app.relevance.query_language import FilterField, Query
from app.relevance.typed_organizations import OrganizationNames
from app.relevance.vector_space import CLOSE_Z, Direction, title_fingerprint
from app.relevance.word_runs import is_digit
from app.text.tokenizer import Token, stem_all, tokenize, without_stopwords
from app.types import CardReason, Marks, PaperView, Spans

MAX_GAINS = 20  # words of a paper that may be named in place of missing ones: those that add most to P
# The size of the cache, which holds about 10,000 interests, and the usual size of an interest's reasons.
MAX_CACHED_BYTES, USUAL_REASONS_BYTES = 120_000_000, 5_000
BATCH_SIZE = 500  # interests matched at once, to limit memory
_UNKNOWN = 2  # neither False nor True
MAX_CACHED_QUERY_WORDS, MAX_CACHED_EXCERPTS = 2_000, 10_000


@dataclass(frozen=True, slots=True)
class MatchDetails:
    """The numbers from which a paper's relevance to an interest and its strength are computed."""

    words: float  # B
    meaning: float  # P: standard deviations above the archive's mean, damped
    archive_knows_it: float  # in 0…1: the share of the interest's words in its examples; damps P
    all_words: bool  # the paper contains all words of the interest
    in_title: bool  # the paper's title contains all words of the interest
    from_organization: bool  # the interest is the name of the paper's organization
    agreement: float  # z
    cut_off: float  # the z that a paper needs to be sent
    # In 0…1, raised to the minimum for an organization, a phrase or a filter; 0 if the paper is rejected.
    relevance: float
    strength: float  # in 0…1, raised in the same way: decides the place among the papers that are sent
    rejection_reason: str  # why a filter or an exclusion rejects the paper, or ""


@dataclass(frozen=True, slots=True)
class _WordsInPaper:
    """The words of an interest that a paper contains."""

    terms: frozenset[str]  # as stems, short forms, or phrases of stems
    typed: Typed  # the words of the interest that its excerpts depend on
    missing: Sequence[str]  # the words that the paper lacks, as typed


@dataclass(frozen=True, slots=True)
class _Excerpts:
    """The places where a paper contains the words of an interest."""

    highlights: Highlights
    unmarked: Highlights  # those that the marks on the card do not show
    marks_in_title: Spans
    marks_in_summary: Spans


@dataclass(frozen=True, slots=True)
class InterestMatches:
    """The papers that match an interest. The last two fields are caches, filled as reasons are requested."""

    rows: Matrix  # of the papers in the index
    relevance: Matrix  # in 0…1, in the order of `rows`; in 64 bits, so that a minimum of .35 is exact
    strength: Matrix  # in 0…1, in the order of `rows`
    organization_rows: frozenset[int]  # of the papers from an organization that the interest names
    excluded: frozenset[int]  # papers that match an exclusion
    direction: Direction | None  # of the interest in the LSA space; None if there is no space
    reasons: dict[int, CardReason] = field(default_factory=dict)  # by paper
    close_stems: dict[str, bool] = field(default_factory=dict)  # whether a stem is close to the direction

    @property
    def size(self) -> int:
        """Return the approximate size in memory, in bytes."""
        arrays = self.rows.nbytes + self.relevance.nbytes + self.strength.nbytes
        arrays += self.direction.vector.nbytes if self.direction else 0
        return int(arrays) + 32 * len(self.excluded | self.organization_rows) + USUAL_REASONS_BYTES

    def scores_of(self, row: int) -> tuple[float, float]:
        """Return the relevance and the strength of the paper in a row, or zeros if it does not match."""
        is_row = self.rows == row
        return float(self.relevance[is_row].sum()), float(self.strength[is_row].sum())


class MatchCache:
    """A cache of recent matches for all indexes that share it, up to MAX_CACHED_BYTES. Thread-safe."""

    def __init__(self) -> None:
        self._matches = LRUCache[tuple[object, Query], InterestMatches](
            MAX_CACHED_BYTES, lambda matches: matches.size
        )
        self._lock = Lock()

    def get(self, index_key: object, query: Query) -> InterestMatches | None:
        """Return the cached matches of a query in an index, or None."""
        with self._lock:
            return self._matches.get((index_key, query))

    def put(self, index_key: object, query: Query, matches: InterestMatches) -> None:
        """Cache matches. If the cache is full, drop the least recently used ones."""
        with self._lock:
            self._matches[index_key, query] = matches


Content = tuple[object, ...]


def content_of(paper: PaperView) -> Content:
    """Return the fields on which matching and reasons depend, such as the title but not the votes."""
    names = paper.authors, paper.organization_names, paper.categories
    return paper.id, paper.title, paper.abstract, paper.tldr, *names


class MatchIndex:
    """An index of papers, such as the candidates for a digest, that matches any number of interests."""

    def __init__(
        self,
        papers: Iterable[PaperView],
        model: RelevanceModel,
        texts: Mapping[Content, PaperText] = MappingProxyType({}),
        cache: MatchCache | None = None,
    ) -> None:
        """Index these papers. `texts` contains papers already split into words by the same model.

        Indexes with the same `cache` share its limit, so MAX_CACHED_BYTES is not multiplied by their number.
        """
        self._model, self._space = model, model.space
        self._texts = [
            texts.get(content_of(paper)) or PaperText(paper, model.abbreviations) for paper in papers
        ]
        self.filters = Filters([text.paper for text in self._texts], model.abbreviations, model.statistics)
        self._organizations = OrganizationNames(
            [text.paper for text in self._texts], model.abbreviations, model.statistics.idf
        )
        self._row_of = {text.paper.id: row for row, text in enumerate(self._texts)}
        self._ids = np.array([*self._row_of], np.int64)
        documents = [text.document for text in self._texts]
        terms, counts = Terms.of_documents(documents, model.statistics.idfs, model.abbreviations.expansions)
        self._tfidf = (
            self._space.stems.tfidf(documents) if self._space else sparse.csr_matrix((len(documents), 0))
        )
        vectors = self._space.project(self._tfidf) if self._space else np.zeros((len(documents), 0))
        self._vectors = np.asfortranarray(vectors)  # for `VectorSpace.z_scores`
        fingerprints = np.array([title_fingerprint(text.paper.title) for text in self._texts], np.int64)
        self._papers = scoring.PaperMatrices.build(terms, counts, self._vectors, fingerprints, model)
        self._cache, self._key = cache or MatchCache(), object()
        self._query_words = lru_cache(MAX_CACHED_QUERY_WORDS)(
            partial(query_words.prepare, abbreviations=model.abbreviations)
        )
        # The cached functions do not refer to the index. Otherwise, a dropped index would stay in memory
        # until the garbage collector runs.
        idf, rows = lru_cache(MAX_CACHED_QUERY_WORDS)(model.statistics.idf), len(self._texts)
        self._excerpts = lru_cache(MAX_CACHED_EXCERPTS)(partial(_find_excerpts, self._texts, idf))
        # The results of `PaperText.has_other_form` for a typed word, by row. Readers type the same words.
        self._has_other_form = lru_cache(MAX_CACHED_QUERY_WORDS)(
            lambda stem, word: bytearray([_UNKNOWN]) * rows
        )

    @property
    def texts(self) -> dict[Content, PaperText]:
        """Return the papers, split into words, by content."""
        return {content_of(text.paper): text for text in self._texts}

    @cached_property
    def vectors(self) -> dict[int, Matrix]:
        """Return each paper's unit vector in the LSA space, by id. Without a space, the vectors are empty."""
        return {text.paper.id: vector for text, vector in zip(self._texts, self._vectors, strict=True)}

    def match(self, queries: Sequence[Query]) -> list[dict[int, float]]:
        """Return, for each interest, the relevance in 0…1 of the papers that match it, by paper id."""
        matches = self.matches(queries)
        return [dict(zip(self._ids[m.rows].tolist(), m.relevance.tolist(), strict=True)) for m in matches]

    def matches(self, queries: Sequence[Query]) -> list[InterestMatches]:
        """Return, for each interest, the papers that match it. Results are cached, up to MAX_CACHED_BYTES.

        So planning matches an interest only once until the papers or the model change, however often it runs.
        """
        cached = {query: self._cache.get(self._key, query) for query in queries}
        matches = {query: own for query, own in cached.items() if own is not None}
        missing = [query for query, own in cached.items() if own is None]
        for start in range(0, len(missing), BATCH_SIZE):
            batch = missing[start : start + BATCH_SIZE]
            scores = self._scores(batch)
            numbers = scores.relevance, scores.strength, scores.share, scores.directions
            for query, *row in zip(batch, *numbers, strict=True):
                new = matches[query] = self._matches(query, *row)
                self._cache.put(self._key, query, new)
        return [matches[query] for query in queries]

    def _scores(self, queries: Sequence[Query]) -> scoring.Scores:
        batch = scoring.query_batch(queries, self._papers, self._model)
        return scoring.score(batch, self._papers, self._model)

    def _matches(
        self, query: Query, relevance: Matrix, strength: Matrix, share: Matrix, direction: Matrix
    ) -> InterestMatches:
        """Return the relevant papers that meet the requirements of a query and match no exclusion."""
        named = self._organizations.rows_named_by(query)
        relevance, strength = (
            scoring.with_minimum(query, row, share, named) for row in (relevance, strength)
        )
        is_match = relevance > 0
        rows = (is_match & self.filters.passing_mask(query) if query.has_filters else is_match).nonzero()[0]
        # A copy, because a view would keep the directions of the whole batch in memory.
        own = self._space.direction(direction.copy()) if self._space else None
        return InterestMatches(
            rows.astype(np.int32),
            relevance[rows],
            strength[rows].astype(np.float32),
            frozenset(named),
            self.excluded_papers(query),
            own,
        )

    def excluded_papers(self, query: Query) -> frozenset[int]:
        """Return the ids of the papers that match an exclusion of an interest."""
        return frozenset(self._ids[self.filters.excluded_mask(query)].tolist())

    def missing_words(self, query: Query) -> list[str]:
        """Return the words of an interest, as typed, that occur in no paper and name no organization."""
        if self._organizations.rows_named_by(query):
            query = _without_words(query)
        typed = {
            token.stem: query_words.as_typed(query.text, token) for token in reversed(tokenize(query.text))
        }
        abbreviations, columns = self._model.abbreviations, self._papers.terms.columns
        terms = abbreviations.acronyms.stems_of_query(query.terms, query.capitals)
        return [
            typed[stem]
            for stem, term in zip(query.terms, terms, strict=True)
            if columns.keys().isdisjoint([term, *abbreviations.fold([term])])
        ]

    def details(self, query: Query, paper_id: int) -> MatchDetails:
        """Return the numbers behind a paper's relevance. Raise KeyError if the paper is not in the index."""
        row, scores, [matches] = self._row_of[paper_id], self._scores([query]), self.matches([query])
        relevance, strength = matches.scores_of(row)
        return MatchDetails(
            words=float(scores.words[0, row]),
            meaning=float(scores.meaning[0, row]),
            archive_knows_it=float(scores.known_share[0]),
            all_words=bool(scores.share[0, row] >= scoring.ALL_WORDS_SHARE),
            in_title=bool(scores.in_title[0, row]),
            from_organization=row in matches.organization_rows,
            agreement=float(scores.agreement[0, row]),
            cut_off=float(scores.cut_offs[0]),
            relevance=relevance,
            strength=strength,
            rejection_reason=self.filters.rejection_reason(query, row),
        )

    def reason(self, query: Query, paper_id: int) -> CardReason:
        """Return why a paper matches an interest. Raise KeyError if the paper is not in the index."""
        matches = self._cache.get(self._key, query) or self.matches([query])[0]
        reason = matches.reasons.get(paper_id)
        if reason is None:
            reason = matches.reasons[paper_id] = self._new_reason(query, paper_id, matches)
        return reason

    def _new_reason(self, query: Query, paper_id: int, matches: InterestMatches) -> CardReason:
        """Return why a paper matches: its matching words as it spells them, their fields, and the filters.

        If some words are missing, name them, and the words that make the paper close to the interest.
        The marks are the matching words on the paper's card.
        """
        row = self._row_of[paper_id]
        text, required = self._texts[row], query.required
        organization = text.matching_organization(required.get(FilterField.ORGANIZATION, ()))
        words = self._words_in(text, query)
        if row in matches.organization_rows:
            organization = text.matching_organization(query.text.split()) or text.paper.organization
            words = self._words_in(text, _without_words(query)) if words.missing else words
        excerpts = self._excerpts(row, tuple(sorted(words.terms)), tuple(sorted(words.typed.items())))
        whole, rest_in_words = reasons.interest_reason(
            excerpts.highlights,
            excerpts.unmarked,
            words.missing,
            self._close_words(matches, text, words) if words.missing else None,
            text.matching_authors(required.get(FilterField.AUTHOR, ())),
            organization,
            text.matching_categories(required.get(FilterField.CATEGORY, ())),
        )
        marks = Marks(excerpts.marks_in_title, excerpts.marks_in_summary, rest_in_words)
        return CardReason(whole, marks)

    def _words_in(self, text: PaperText, query: Query) -> _WordsInPaper:
        """Return which words of an interest a paper contains, and which it lacks, as typed.

        A paper that lacks a term may still contain some of the words that the term consists of. Stop words
        such as "use" can matter, as in "tool use", so the paper must contain them beside another word of the
        interest. A required phrase or name that it contains as written is one term.
        """
        query, phrases = self._query_without_phrases_in(text, query)
        words = self._query_words(query)
        # Whether a short form stands for a phrase depends on all typed words.
        typed = words.typed if phrases else self._typed_words_that_matter(text, words.typed)
        present = phrases | {term for term in words.terms if text.surface_form(term, typed)}
        expansions = self._model.abbreviations.expansions
        implied = {stem for term in present for stem in expansions.get(term, ())}
        missing = list[Token]()
        for stem, within in words.tokens_by_term:
            for token in within if stem not in present else ():
                if token.stem not in implied:
                    if text.surface_form(token.stem, typed):
                        present.add(token.stem)
                    else:
                        missing.append(token)
        absent = query_words.joined(query.text, missing)
        if words.stop_words and present and not missing:
            if text.are_together(present, words.stop_words):
                present |= words.stop_words
            else:
                absent = [words.searched_text]
        if not present:  # "token" is not a form of "tokenization", but better than nothing
            terms = self._model.abbreviations.acronyms.stems_of_query(query.terms, query.capitals)
            present, typed = {term for term in terms if text.surface_form(term)}, {}
        return _WordsInPaper(frozenset(present), typed, absent)

    def _typed_words_that_matter(self, text: PaperText, typed: Typed) -> Typed:
        """Return the typed words that distinguish words of a paper: see `PaperText.has_other_form`."""
        row, matter = self._row_of[text.paper.id], dict[str, str]()
        for stem, word in typed.items():
            answers = self._has_other_form(stem, word)
            if answers[row] == _UNKNOWN:
                answers[row] = text.has_other_form(stem, word)
            if answers[row]:
                matter[stem] = word
        return matter

    def _query_without_phrases_in(self, text: PaperText, query: Query) -> tuple[Query, set[str]]:
        """Return a query without the required phrases and names that a paper has as written, and these."""
        if not (query.phrases or query.names):
            return query, set()
        typed = self._query_words(query).typed
        required = (*query.phrases, *self.filters.required_names(query))
        stems = {phrase: stem_all(" ".join(phrase)) for phrase in required}
        as_typed = {phrase: " ".join(own) for phrase, own in stems.items() if without_stopwords(own)}
        contained = {
            phrase: spelling
            for spellings in (query.joined_names, as_typed)
            for phrase, spelling in spellings.items()
            if text.contains_phrase(spelling, typed)
        }
        return query_words.without_phrases(query, contained), {*contained.values()}

    def _close_words(
        self, matches: InterestMatches, text: PaperText, words: _WordsInPaper
    ) -> list[str] | None:
        """Return the words that make a paper close to the meaning of an interest, strongest first.

        Return None if the paper is not close.
        """
        row = self._row_of[text.paper.id]
        z_score = matches.direction.z_score(self._vectors[row]) if matches.direction else 0
        if z_score <= 0:  # the paper matches only by its words
            return None
        parts = {part for term in words.terms for part in term.split(" ")}
        quoted = parts.union(*(reasons.stems_in(text.surface_form(part)) for part in parts))
        strongest = map(text.whole_word, self._close_stems(matches, row))
        return reasons.distinct_words(strongest, quoted) or ([] if z_score >= CLOSE_Z else None)

    def _close_stems(self, matches: InterestMatches, row: int) -> Iterator[str]:
        """Yield the stems that make a paper close to an interest, strongest first.

        The cosine of a paper x and a direction q is a sum over the paper's stems t: x_t · (V_t · q),
        where V is the projection. Only stems that are close themselves count: see `VectorSpace.is_close`.
        """
        if not (self._space and matches.direction):
            return
        entries = slice(*self._tfidf.indptr[row : row + 2])  # scipy takes 100 µs to return a row
        columns = self._tfidf.indices[entries]
        stems = self._space.projection.take(columns, axis=0)
        gains = self._tfidf.data[entries] * (stems @ matches.direction.vector)
        for n in (-gains).argsort(kind="stable")[:MAX_GAINS].tolist():
            stem = self._space.stems.names[columns[n]]
            if stem not in matches.close_stems:
                is_close = len(stem) > 1 and self._space.is_close(stem, matches.direction)
                matches.close_stems[stem] = is_close
            if matches.close_stems[stem] and gains[n] > 0:
                yield stem


def _find_excerpts(
    texts: Sequence[PaperText],
    idf: Idf,
    row: int,
    words: tuple[str, ...],
    typed_words: tuple[tuple[str, str], ...],
) -> _Excerpts:
    """Return the places where a paper contains these words. Interests with the same words share them."""
    text, terms, typed = texts[row], {*words}, dict(typed_words)
    in_title, in_summary, marked = text.card.marks(terms, idf, typed)
    highlights = unmarked = text.highlights(terms, idf, typed)
    if marked:  # a stop word is not a highlight by itself
        rest = {term for term in terms - marked if not is_digit(term)}
        unmarked = (text.highlights(rest, idf, typed) or highlights) if rest else []
    return _Excerpts(highlights, unmarked, in_title, in_summary)


def _without_words(query: Query) -> Query:
    """Return a query with its phrases and filters only."""
    return replace(query, words=(), names=())
