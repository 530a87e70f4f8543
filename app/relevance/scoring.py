"""PURE. Score papers for interests: relevance decides whether a paper is sent, strength decides its place.

Both begin with a sum: words·B + P + all_words·(the paper contains all words of the interest) − missing·(the
share of the words that it lacks, by idf). Each has its own `Weights`. `matching` explains B and P.

The sum with AGREEMENT_WEIGHTS is the agreement z; `cut_offs` explains how it becomes relevance. Relevance
rises slowly below the cut-off, so that many weak matches seldom select a paper that no single interest would
have selected. Strength is 1 − exp(−s / STRENGTH_SCALE). Here, s is the sum with STRENGTH_WEIGHTS, at least 0,
plus TITLE_BONUS if the title contains all words. So the evidence of strength, −ln(1 − strength), is
proportional to s, and the evidence of several interests adds up in full. Digests and the archive search share
this module, so both rank in the same way.
"""

import itertools
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
from scipy import sparse

from app.relevance.bm25 import FieldCounts, Matrix, Terms, indicator_matrix
from app.relevance.cut_offs import FLOOR_Z, estimate_cut_offs, evidence_from
from app.relevance.model import RelevanceModel
from app.relevance.pseudo_relevance_feedback import QueryBatch, QueryExamples, common_terms_in_pairs
from app.relevance.query_language import Query
from app.relevance.vector_space import VectorSpace
from app.text.abbreviations import Abbreviations


class Weights(NamedTuple):
    """The weights of the sum of words and meaning, in which the weight of P is 1."""

    words: float  # of B
    all_words: float
    missing: float


# Measured by `benchmarks/relevance.py`; docs/benchmarks.md lists the alternatives that were tried.
AGREEMENT_WEIGHTS = Weights(0.35, 1.0, 1.0)
STRENGTH_WEIGHTS = Weights(0.2, 0.5, 0.0)
TITLE_BONUS = 6.0  # added to the sum for strength if the title contains all words of the interest
STRENGTH_SCALE = 12.0  # with it, strength resembles relevance at the cut-off
ALL_WORDS_SHARE = 0.9999  # of the idf: counts as all words, because 32-bit sums are inexact
MIN_Z_SCORE, MAX_Z_SCORE = -3.0, 8.0  # P is clipped to this range
SHORT_TEXT = 3  # terms; the P of a text this short counts about half, because few words say little
# If there is no LSA space, P is estimated from the words. These numbers fit the average P of papers that
# contain words of the interest.
FALLBACK_WORD_WEIGHT, FALLBACK_ALL_WORDS_BONUS, FALLBACK_OFFSET = 0.5, 0.42, -0.14
# Papers with all words of the interest in the title, in any order, are relevant enough, however common the
# words. The evidence for this relevance is added to the rest, so that the scores of such papers still differ.
TITLE_RELEVANCE = 0.34
COMMON_IDF = 0.5  # of a stem in 60 % of all papers, such as "model"
MAX_PAIRED = 4  # terms that all form pairs with each other; in a longer run, only neighbors do
# Minimum relevance and strength: for papers from the organization that the interest names, and for papers
# with a phrase that the reader put in quotes and all other words of the interest.
ORGANIZATION_RELEVANCE, PHRASE_RELEVANCE = 0.4, 0.35
FILTER_RELEVANCE = 0.8  # for papers that pass an interest consisting only of filters ("author:…")


@dataclass(frozen=True)
class PaperMatrices:
    """The term matrices and LSA vectors of a set of papers.

    In the sparse matrices, rows are terms and columns are papers.
    """

    terms: Terms
    impacts: sparse.csr_matrix
    idf: sparse.csr_matrix  # of each stem that a paper contains
    in_title: sparse.csr_matrix  # 1 for each term in a title
    certainty: Matrix  # the weight of P, by the length of the text
    vectors: Matrix  # papers × dimensions: unit rows; no columns if there is no LSA space
    examples: QueryExamples | None  # None if there is no LSA space

    @classmethod
    def build(
        cls, terms: Terms, fields: FieldCounts, vectors: Matrix, fingerprints: Matrix, model: RelevanceModel
    ) -> Self:
        """Build the matrices of papers from the counts of their terms."""
        lengths = model.statistics.lengths
        impacts = terms.impacts(fields, lengths).T.tocsr()
        idf = np.where(terms.is_pair, 0, terms.idf).astype(np.float32)
        sizes, mean = sum(fields.sizes), sum(lengths)
        full = mean / (mean + SHORT_TEXT)
        return cls(
            terms,
            impacts,
            sparse.csr_matrix(sparse.diags(idf) @ (impacts > 0)),
            (fields.counts[0] > 0).astype(np.float32).T.tocsr(),
            np.minimum(1, sizes / (sizes + SHORT_TEXT) / full),
            vectors,
            QueryExamples(model.space, fingerprints, vectors) if model.space else None,
        )


@dataclass(frozen=True)
class QueryMeaning:
    """The meaning of a batch of interests, learned from the archive."""

    directions: Matrix  # interests × dimensions of the LSA space: unit rows
    known_share: Matrix  # see `ExampleScores`
    cut_offs: Matrix  # the minimum agreement at which a paper is sent

    @classmethod
    def learn(cls, batch: QueryBatch, examples: QueryExamples, space: VectorSpace) -> Self:
        """Learn the meaning of interests from their examples, and the cut-offs from the archive's sample."""
        best = examples.find(batch)
        sample, directions, known_share = best.sample, best.directions, best.known_share
        meaning = known_share[:, None] * _clipped_z_scores(space, directions, space.sample)
        agreement = _weighted_sum(sample.words, meaning, sample.share, AGREEMENT_WEIGHTS)
        all_words = (sample.share >= ALL_WORDS_SHARE) & sample.in_pairs
        prominent = (sample.prominent_share >= ALL_WORDS_SHARE) & sample.in_pairs
        return cls(directions, known_share, estimate_cut_offs(agreement, all_words, prominent))


@dataclass(frozen=True)
class Scores:
    """The scores for a batch of interests: (interests, papers) matrices unless stated otherwise."""

    words: Matrix
    meaning: Matrix
    share: Matrix  # of the interest's words that the paper contains, by idf
    in_title: Matrix
    known_share: Matrix  # one number per interest
    cut_offs: Matrix  # one number per interest
    directions: Matrix  # interests × dimensions of the LSA space, if there is one: unit rows

    @cached_property
    def agreement(self) -> Matrix:
        return _weighted_sum(self.words, self.meaning, self.share, AGREEMENT_WEIGHTS)

    @cached_property
    def relevance(self) -> Matrix:
        """Return the relevance in 0…1, which decides whether a paper is sent."""
        evidence = evidence_from(self.agreement, self.cut_offs)
        evidence -= self.in_title * math.log1p(-TITLE_RELEVANCE)
        return np.asarray(-np.expm1(-evidence))

    @cached_property
    def strength(self) -> Matrix:
        """Return the strength in 0…1, by which papers are ordered."""
        total = np.maximum(_weighted_sum(self.words, self.meaning, self.share, STRENGTH_WEIGHTS), 0)
        total += np.float32(TITLE_BONUS) * self.in_title
        return np.asarray(-np.expm1(total / np.float32(-STRENGTH_SCALE)))


def score(
    batch: QueryBatch, papers: PaperMatrices, model: RelevanceModel, meaning: QueryMeaning | None = None
) -> Scores:
    """Return the scores of papers. If `meaning` is not given, learn it from the examples."""
    counts = np.array([max(1, len(terms)) for terms in batch.terms])
    in_title = (batch.term_indicators @ papers.in_title).toarray() >= counts[:, None]
    in_title &= common_terms_in_pairs(batch, papers.terms.columns, papers.in_title)
    if model.space and papers.examples:
        of = meaning or QueryMeaning.learn(batch, papers.examples, model.space)
        known_share, cut_offs, directions = of.known_share, of.cut_offs, of.directions
        z_scores = _clipped_z_scores(model.space, directions, papers.vectors)
        closeness = known_share[:, None] * z_scores * papers.certainty
    else:
        known_share, cut_offs = np.zeros(len(batch.terms)), np.full(len(batch.terms), FLOOR_Z)
        directions = np.zeros((len(batch.terms), 0))
        all_words = batch.share >= ALL_WORDS_SHARE
        guess = FALLBACK_WORD_WEIGHT * batch.words + FALLBACK_ALL_WORDS_BONUS * all_words + FALLBACK_OFFSET
        closeness = np.where(batch.words > 0, guess, 0)
    return Scores(batch.words, closeness, batch.share, in_title, known_share, cut_offs, directions)


def _clipped_z_scores(space: VectorSpace, directions: Matrix, vectors: Matrix) -> Matrix:
    return np.clip(space.z_scores(directions, vectors), MIN_Z_SCORE, MAX_Z_SCORE)


def _weighted_sum(words: Matrix, meaning: Matrix, share: Matrix, weights: Weights) -> Matrix:
    """Return the weighted sum of B, P, "all words" and the share of missing words: see the module."""
    # In 32 bits, because 64-bit numbers take twice as long.
    all_words = np.float32(weights.all_words) * (share >= ALL_WORDS_SHARE)
    return np.asarray(weights.words * words + meaning + all_words - weights.missing * (1 - share))


def query_batch(queries: Sequence[Query], papers: PaperMatrices, model: RelevanceModel) -> QueryBatch:
    """Return a batch of interests with their word scores."""
    idf, columns = model.statistics.idf, papers.terms.columns
    terms, pairs = zip(*(terms_and_pairs(query, model.abbreviations) for query in queries), strict=True)
    total_idf = np.array([sum(map(idf, own)) or 1.0 for own in terms], np.float32)
    term_indicators, pair_indicators = indicator_matrix(terms, columns), indicator_matrix(pairs, columns)
    common = [{term for term in own if len(own) > 1 and idf(term) < COMMON_IDF} for own in terms]
    return QueryBatch(
        terms,
        pairs,
        [
            [pair for pair in own if not of.isdisjoint(pair.split(" "))]
            for own, of in zip(pairs, common, strict=True)
        ],
        np.array([len(of) for of in common]),
        term_indicators,
        total_idf,
        words=np.asarray(((term_indicators + pair_indicators) @ papers.impacts).toarray()),
        share=(term_indicators @ papers.idf).toarray() / total_idf[:, None],
    )


def terms_and_pairs(query: Query, abbreviations: Abbreviations) -> tuple[list[str], list[str]]:
    """Return the folded terms of an interest and the pairs that they form, without duplicates.

    The order of the words must not matter, so each pair is returned in both orders. In a run of more
    than MAX_PAIRED terms, only neighbors form pairs. A word in lower case may stand for an acronym.
    """
    typed = (abbreviations.acronyms.stems_of_query(run, query.capitals) for run in query.runs)
    runs = [[*dict.fromkeys(abbreviations.fold_any_order(run))] for run in typed]
    terms = dict.fromkeys(term for run in runs for term in run)
    pairs = dict.fromkeys(
        " ".join(order)
        for run in runs
        for pair in (itertools.combinations(run, 2) if len(run) <= MAX_PAIRED else itertools.pairwise(run))
        for spelled in abbreviations.acronyms.readings(pair)
        for order in (spelled, spelled[::-1])
    )
    return list(terms), list(pairs)


def with_minimum(query: Query, values: Matrix, share: Matrix, rows_named_by_query: Collection[int]) -> Matrix:
    """Return relevances or strengths, raised to the minimum for a phrase or an organization in a query.

    If the query has words beside its phrases, raise only papers that also contain these words or come from
    the organization that the words name. `share` is the one in `Scores`. If the query has no words, return
    FILTER_RELEVANCE for every paper.
    """
    if not query.terms:
        return np.full(len(values), FILTER_RELEVANCE)
    words, *phrases = query.runs
    if any(phrases):
        has_words = share >= ALL_WORDS_SHARE if words else True
        values = np.where(has_words, np.maximum(values, PHRASE_RELEVANCE), values)
    if rows_named_by_query:
        is_named = np.isin(np.arange(len(values)), [*rows_named_by_query])
        values = np.where(is_named, np.maximum(values, ORGANIZATION_RELEVANCE), values)
    return values
