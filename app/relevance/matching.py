"""PURE. Interests × papers → relevance, with a reason that is literally true.

B, the words: BM25F and pairs of words, as `space` writes down. Long and short forms are one word.
P, the meaning: the papers of the archive that have the words best, and most of them, are its examples; their
centroid is a direction in the LSA space, and P says how many standard deviations nearer to it a paper is
than the archive's papers are, per interest. That is what makes interests comparable, and finds papers that
say the same in other words. An interest that the archive hardly knows has poor examples: P is damped.

z = WORDS·B + P + WHOLE·(all of its words are there), and relevance rises with z alike for all interests.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from app.relevance.filters import Filters
from app.relevance.highlights import PaperText
from app.relevance.model import RelevanceModel
from app.relevance.query_language import Query
from app.relevance.vector_space import (
    Matrix,
    Terms,
    VectorSpace,
    count_matrix,
    fingerprint,
    indicator_matrix,
    with_expansions,
)
from app.text.tokenizer import bigrams, stems, telling, tokenise
from app.types import PaperView

# `benchmarks/relevance.py` measures these; docs/benchmarks.md says what else was tried.
ALL = 0.9999  # of an interest's idf: the sums are in 32 bits
WORDS, WHOLE = 0.35, 1.0
NEAREST = 40  # examples, by score × share of the interest; each counts (that / the best one's)² / √rank
RANKS = (1 / np.sqrt(np.arange(1, NEAREST + 1))).astype(np.float32)
FARTHEST, CLOSEST = -3.0, 8.0  # standard deviations: beyond, P says nothing more
# Where no archive says what an interest means, P is what it is on average where its words are found.
GUESS_WORDS, GUESS_WHOLE, GUESS = 0.5, 0.42, -0.14
# Evidence is softplus(z − ODDS) above that of LEAST, and relevance 1 − exp(−evidence / SCALE): combined as
# 1 − Π (1 − r), the relevances of several interests add up their evidence.
ODDS, SCALE, LEAST = 2.0, 8.0, 1.0
# However common the words: a paper with an interest as typed in its title is worth showing, and so is one
# that has a phrase which the reader put in quotes.
TITLE_RELEVANCE, PHRASE_RELEVANCE = 0.4, 0.35
# An interest of filters alone ("author:…") asks for all that passes them.
FILTER_RELEVANCE = 0.8
BATCH = 500  # interests that are matched at once: bounds the memory
DIRECTIONS_KEPT = 20_000  # of interests: some megabytes
CLOSE_WORDS = 3  # that a reason names


@dataclass(frozen=True, slots=True)
class MatchDetails:
    """Every number on the way from an interest and a paper to its relevance."""

    words: float  # B
    meaning: float  # P: standard deviations above the archive's mean, damped
    archive_knows_it: float  # in 0…1: the interest, and by how much P is damped
    all_words: bool  # of the interest are in the paper
    in_title: bool  # all of them, as they were typed
    agreement: float  # z
    relevance: float  # in 0…1, at least what a title, a phrase or a filter is worth; 0 where it is left out
    left_out: str  # why, or nothing


@dataclass(frozen=True)
class _Scores:
    """What a batch of interests has to say of all papers: interests × papers, or a column of interests."""

    words: Matrix
    closeness: Matrix
    known: Matrix
    whole: Matrix
    titled: Matrix

    @cached_property
    def agreement(self) -> Matrix:
        return np.asarray(WORDS * self.words + self.closeness + WHOLE * self.whole)

    @cached_property
    def relevance(self) -> Matrix:
        evidence = np.logaddexp(0, self.agreement - ODDS) - np.logaddexp(0, LEAST - ODDS)
        relevance = -np.expm1(-np.maximum(evidence, 0) / SCALE)
        return np.asarray(np.where(self.titled, np.maximum(relevance, TITLE_RELEVANCE), relevance))


@dataclass(frozen=True)
class _QueryBatch:
    """A batch of interests: a row of terms for each."""

    terms: Sequence[Sequence[str]]
    texts: Sequence[Sequence[str]]  # the same, and its pairs of neighbours
    full: Matrix  # the idf of all its terms together


class MatchIndex:
    """The candidates of a digest, ready to be asked for any number of interests."""

    def __init__(self, papers: Iterable[PaperView], corpus: RelevanceModel) -> None:
        self._corpus, self._space = corpus, corpus.space
        self._passages = [PaperText(paper, corpus.abbreviations) for paper in papers]
        self._filters = Filters([passage.paper for passage in self._passages], corpus.abbreviations)
        self._places = {passage.paper.id: place for place, passage in enumerate(self._passages)}
        self._ids = np.array([*self._places], np.int64)
        documents = [corpus.document(p.paper.title, p.paper.abstract) for p in self._passages]
        texts = [text for document in documents for text in document]
        parts = corpus.abbreviations.parts
        seen = dict.fromkeys(term for text in texts for term in with_expansions(text, parts))
        self._terms = Terms.of(list(seen), corpus.statistics.idf, parts)
        self._impacts = self._terms.impacts(documents, corpus.statistics.lengths).T.tocsr()
        idf = np.where(self._terms.is_pair, 0, self._terms.idf).astype(np.float32)
        self._said = sparse.csr_matrix(sparse.diags(idf) @ (self._impacts > 0))
        titles = count_matrix((with_expansions(title, parts) for title, _ in documents), self._terms.columns)
        self._titled = (titles > 0).astype(np.float32).T.tocsr()
        self._tfidf = self._space.tfidf(documents) if self._space else sparse.csr_matrix((len(documents), 0))
        self._vectors = self._space.placed(self._tfidf) if self._space else np.zeros((len(documents), 0))
        self._examples = _Examples(self._space, self._passages, self._vectors) if self._space else None
        self._directions: dict[str, Matrix] = {}

    @cached_property
    def vectors(self) -> dict[int, Matrix]:
        """Each paper's place in the LSA space, a unit row; without a space, rows of no length."""
        return {passage.paper.id: row for passage, row in zip(self._passages, self._vectors, strict=True)}

    def match(self, queries: Sequence[Query]) -> list[dict[int, float]]:
        """For each interest the papers that fit it at all, by id, with their relevance in 0…1."""
        found = []
        for start in range(0, len(queries), BATCH):
            batch = queries[start : start + BATCH]
            relevance = self._scores(batch).relevance
            found += [self._kept(query, row) for query, row in zip(batch, relevance, strict=True)]
        return found

    def relevance(self, query: Query) -> Matrix:
        """The relevance of each paper, in the order in which they came, whatever the interest leaves out."""
        return self._worth(query, self._scores([query]).relevance[0])

    def _worth(self, query: Query, relevance: Matrix) -> Matrix:
        """Relevance, and what filters and required phrases are worth to those that pass them."""
        if not query.terms:
            return np.full(len(self._passages), FILTER_RELEVANCE)
        return np.maximum(relevance, PHRASE_RELEVANCE) if any(map(telling, query.phrases)) else relevance

    def _kept(self, query: Query, relevance: Matrix) -> dict[int, float]:
        """What is relevant and passes the filters, required phrases and exclusions of one interest."""
        relevance = self._worth(query, relevance)
        fitting = relevance > 0
        places = (fitting & self.passing(query) if query.strict else fitting).nonzero()[0]
        return dict(zip(self._ids[places].tolist(), relevance[places].tolist(), strict=True))

    def passing(self, query: Query) -> Matrix:
        """Whether each paper, in the order in which they came, is left out by nothing in an interest."""
        return self._filters.passing(query)

    def read_ahead(self) -> None:
        """Read all papers for filters and exclusions, too: the first who asks need not wait for it."""
        self._filters.read()

    def excluded(self, query: Query) -> frozenset[int]:
        """The papers that the exclusions of an interest forbid, by id."""
        return frozenset(self._ids[self._filters.excluded(query)].tolist())

    def missing(self, query: Query) -> list[str]:
        """The words of an interest, as they were typed, that no paper has."""
        typed = {token.stem: query.text[token.start : token.end] for token in reversed(tokenise(query.text))}
        fold, there = self._corpus.abbreviations.fold, self._terms.columns
        return [typed[stem] for stem in query.terms if there.keys().isdisjoint([stem, *fold([stem])])]

    def numbers(self, query: Query, paper_id: int) -> MatchDetails:
        """How an interest's relevance of one candidate came about; KeyError where it is none."""
        place, scores = self._places[paper_id], self._scores([query])
        return MatchDetails(
            words=float(scores.words[0, place]),
            meaning=float(scores.closeness[0, place]),
            archive_knows_it=float(scores.known[0]),
            all_words=bool(scores.whole[0, place]),
            in_title=bool(scores.titled[0, place]),
            agreement=float(scores.agreement[0, place]),
            relevance=self._kept(query, scores.relevance[0]).get(paper_id, 0.0),
            left_out=self._filters.why_not(query, place),
        )

    def reason(self, query: Query, paper_id: int) -> str:
        """Why a paper fits: the words that matched, as it spells them, and where; filters that it passed.

        Where not all words are there, also the words that bring the paper close to the interest.
        """
        passage = self._passages[self._places[paper_id]]
        wanted = set(self._folded(query)[0])
        said = passage.quotes(wanted, self._corpus.statistics.idf)
        missing = any(not passage.spelled(term) for term in wanted)
        if missing and (close := self._close_words(query, passage)):
            said.append(f"close to your interest through {', '.join(f'“{word}”' for word in close)}")
        passed = {"by": passage.writers(query.authors), "filed under": passage.filings(query.categories)}
        said += [f"{word} {', '.join(names)}" for word, names in passed.items() if names]
        return "; ".join(said)

    def _close_words(self, query: Query, passage: PaperText) -> list[str]:
        """The words of a paper that bring it near to what the interest means, the strongest first.

        The cosine of a paper x and a direction q is a sum over the paper's stems t: x_t · (V_t · q).
        """
        if not (self._space and self._examples):
            return []
        direction, place = self._direction(query, self._examples), self._places[passage.paper.id]
        away = self._space.standardised(direction, self._vectors[[place]]).item()
        if away <= 0:  # it fits by its words alone
            return []
        row = self._tfidf[place]
        gains = row.data * (self._space.projection[row.indices] @ direction[0])
        names, own = self._space.stems.names, self._folded(query)[0]
        strongest = [names[row.indices[n]] for n in np.argsort(-gains, kind="stable") if gains[n] > 0]
        quoted = {*own, *(stem for term in own for stem in stems(passage.spelled(term)))}
        spelled = (passage.spelled(stem) for stem in strongest if len(stem) > 1)
        return list(itertools.islice(_new(spelled, quoted), CLOSE_WORDS))

    def _direction(self, query: Query, examples: _Examples) -> Matrix:
        """Where an interest's examples point, a unit row; worked out once, since many papers ask for it."""
        if query.text not in self._directions:
            if len(self._directions) >= DIRECTIONS_KEPT:
                self._directions.clear()
            asked = self._asked([query])
            self._directions[query.text], _ = examples.meanings(
                asked, self._words(asked), self._said_of(asked)
            )
        return self._directions[query.text]

    def _scores(self, queries: Sequence[Query]) -> _Scores:
        asked = self._asked(queries)
        words, said = self._words(asked), self._said_of(asked)
        whole = said >= ALL * asked.full[:, None]
        # All words stand in a title next to each other as they were typed where their pairs do, too.
        titled = (indicator_matrix(asked.texts, self._terms.columns) @ self._titled).toarray() >= _sizes(
            asked.texts
        )
        if self._space and self._examples:
            directions, known = self._examples.meanings(asked, words, said)
            away = self._space.standardised(directions, self._vectors)
            closeness = known[:, None] * np.clip(away, FARTHEST, CLOSEST)
        else:
            known = np.zeros(len(queries))
            closeness = np.where(words > 0, GUESS_WORDS * words + GUESS_WHOLE * whole + GUESS, 0)
        return _Scores(words, closeness, known, whole, titled)

    def _words(self, asked: _QueryBatch) -> Matrix:
        """B: interests × papers."""
        return np.asarray((indicator_matrix(asked.texts, self._terms.columns) @ self._impacts).toarray())

    def _said_of(self, asked: _QueryBatch) -> Matrix:
        """Interests × papers: the idf of the terms that a paper has."""
        return np.asarray((indicator_matrix(asked.terms, self._terms.columns) @ self._said).toarray())

    def _asked(self, queries: Sequence[Query]) -> _QueryBatch:
        """A batch of interests, as the archive counts their words."""
        idf = self._corpus.statistics.idf
        folded = [self._folded(query) for query in queries]
        full = np.array([sum(map(idf, terms)) or 1.0 for terms, _ in folded], np.float32)
        return _QueryBatch(
            [terms for terms, _ in folded], [[*terms, *joined] for terms, joined in folded], full
        )

    def _folded(self, query: Query) -> tuple[list[str], list[str]]:
        """The terms of an interest and its pairs of neighbours, each once, as the archive counts them."""
        runs = [self._corpus.abbreviations.fold(run) for run in query.runs]
        terms = dict.fromkeys(term for run in runs for term in run)
        return list(terms), list(
            dict.fromkeys(pair for run in runs for pair in bigrams([*dict.fromkeys(run)]))
        )


def _new(spelled: Iterable[str], quoted: Set[str]) -> Iterator[str]:
    """Of these words those that have no stem in common with what was quoted, nor with those before them."""
    known = set(quoted)
    for words in spelled:
        if (own := set(stems(words))) and own.isdisjoint(known):
            known |= own
            yield words


class _Examples:
    """The papers that say what an interest means: the archive's, and the candidates that it lacks."""

    def __init__(self, space: VectorSpace, passages: Sequence[PaperText], vectors: Matrix) -> None:
        known = set(space.fingerprints.tolist())
        titles = [passage.paper.title for passage in passages]
        self._space = space
        self._new = [place for place, title in enumerate(titles) if fingerprint(title) not in known]
        self._vectors = np.concatenate([space.examples, vectors[self._new]])

    def meanings(self, asked: _QueryBatch, words: Matrix, said: Matrix) -> tuple[Matrix, Matrix]:
        """Unit rows that point to each interest's best examples; how much of it those have, in 0…1.

        The best have a high B and much of the interest. `words` is B of the candidates, `said` the idf that
        they have of an interest.
        """
        found = sparse.csr_matrix(indicator_matrix(asked.texts, self._space.terms.columns) @ self._space.told)
        if self._new:
            newer = (words + 1j * said)[:, self._new].astype(np.complex64)
            found = sparse.hstack([found, sparse.csr_matrix(newer)], format="csr")
        share = found.data.imag / np.repeat(asked.full, np.diff(found.indptr))
        scores = found.data.real * share
        spans = itertools.pairwise(found.indptr.tolist())
        best = [start + _highest(scores[start:end], NEAREST) for start, end in spans]
        ends = np.cumsum([0, *map(len, best)])
        places, row = np.concatenate(best), np.repeat(np.arange(len(best)), np.diff(ends))
        weights = np.concatenate([_weights(scores[places]) for places in best])
        chosen = sparse.csr_matrix((weights, found.indices[places], ends), (len(best), len(self._vectors)))
        directions = np.asarray(chosen @ self._vectors, np.float32)
        known, total = (np.bincount(row, each, len(best)) for each in (weights * share[places], weights))
        norms = np.linalg.norm(directions, axis=1, keepdims=True)
        return directions / np.maximum(norms, 1e-9), known / np.maximum(total, 1e-9)


def _weights(scores: Matrix) -> Matrix:
    """How much examples count, from their scores in falling order."""
    return np.asarray(RANKS[: len(scores)] * (scores / scores[:1]) ** 2)


def _highest(scores: Matrix, most: int) -> Matrix:
    """The places of the highest scores, in order; of equal ones the first."""
    if len(scores) > most:
        least = np.partition(scores, -most)[-most]
        places = np.flatnonzero(scores >= least)
    else:
        places = np.arange(len(scores))
    return places[np.argsort(-scores[places], kind="stable")][:most]


def _sizes(texts: Sequence[Sequence[str]]) -> Matrix:
    return np.array([max(1, len(text)) for text in texts])[:, None]
