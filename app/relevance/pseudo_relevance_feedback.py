"""PURE. The papers of the archive that show what an interest means (pseudo-relevance feedback).

An interest's examples are the papers with the highest product of word score and share of the interest's
words. Their weighted centroid is a direction in the LSA space.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from app.relevance.bm25 import Matrix, indicator_matrix
from app.relevance.vector_space import VectorSpace

# Each example is weighted by (its value / the highest value)² / √rank.
EXAMPLES_PER_INTEREST = 40
RANK_WEIGHTS = (1 / np.sqrt(np.arange(1, EXAMPLES_PER_INTEREST + 1))).astype(np.float32)
ENOUGH_EXAMPLES = 5.0  # effective number; with fewer, P is damped, because their other subjects affect it


@dataclass(frozen=True)
class QueryBatch:
    """A batch of interests and their word scores."""

    terms: Sequence[Sequence[str]]  # of each interest
    pairs: Sequence[Sequence[str]]  # in both orders
    common_pairs: Sequence[Sequence[str]]  # those that contain a very common term
    common_counts: Matrix  # the number of very common terms; 0 if the interest has only one term
    term_indicators: sparse.csr_matrix  # interests × terms of the index: 1 for each of `terms`
    total_idf: Matrix  # the sum of the idf of each interest's terms
    words: Matrix  # B: interests × papers
    share: Matrix  # interests × papers: the share of the interest's terms in the paper, by idf


@dataclass(frozen=True)
class SampleScores:
    """The word scores of the papers in the archive's sample, as interests × papers."""

    words: Matrix  # B
    share: Matrix  # of the interest's words that the paper contains, by idf
    prominent_share: Matrix  # of the words that the paper uses prominently
    in_pairs: Matrix  # see `common_terms_in_pairs`


@dataclass(frozen=True)
class ExampleScores:
    """The meaning of each interest in a batch, learned from examples, and scores of sampled papers."""

    directions: Matrix  # of each interest's best examples: unit rows
    # In 0…1: the weighted mean share of the interest's words in its examples, reduced if there are few.
    known_share: Matrix
    sample: SampleScores


class QueryExamples:
    """The papers that show the meaning of interests: the model's examples, and all newer candidates."""

    def __init__(self, space: VectorSpace, fingerprints: Matrix, vectors: Matrix) -> None:
        self._space = space
        self._newer_rows = np.flatnonzero(~space.example_mask(fingerprints))
        self._newer_vectors = vectors[self._newer_rows]

    def find(self, batch: QueryBatch) -> ExampleScores:
        """Find the examples of each interest. Return its meaning and the scores of the sample."""
        columns = self._space.terms.columns
        term_indicators = indicator_matrix(batch.terms, columns)
        indicators = term_indicators + indicator_matrix(batch.pairs, columns)
        model_impacts = sparse.csr_matrix(indicators @ self._space.impacts_with_idf)
        impacts = model_impacts
        if len(self._newer_rows):
            newer = (batch.words + 1j * batch.share * batch.total_idf[:, None])[:, self._newer_rows]
            impacts = sparse.hstack(
                [model_impacts, sparse.csr_matrix(newer.astype(np.complex64))], format="csr"
            )
        share = impacts.data.imag / np.repeat(batch.total_idf, np.diff(impacts.indptr))
        scores = impacts.data.real * share
        spans = itertools.pairwise(impacts.indptr.tolist())
        best = [start + _highest(scores[start:end], EXAMPLES_PER_INTEREST) for start, end in spans]
        ends = np.cumsum([0, *map(len, best)])
        entries, row = np.concatenate(best), np.repeat(np.arange(len(best)), np.diff(ends))
        weights = np.concatenate(
            [RANK_WEIGHTS[: len(own)] * (scores[own] / scores[own[:1]]) ** 2 for own in best]
        )
        chosen = sparse.csr_matrix((weights, impacts.indices[entries], ends), impacts.shape)
        number = len(self._space.examples)
        directions = np.asarray(chosen[:, :number] @ self._space.examples, np.float32)
        if len(self._newer_rows):
            directions += chosen[:, number:] @ self._newer_vectors
        directions /= np.maximum(np.linalg.norm(directions, axis=1, keepdims=True), 1e-9)
        weighted_share = np.bincount(row, weights * share[entries], len(best))
        total_weight = np.bincount(row, weights, len(best))
        known_share = weighted_share / np.maximum(total_weight, 1e-9)
        # Kish's effective sample size.
        effective = total_weight**2 / np.maximum(np.bincount(row, weights**2, len(best)), 1e-9)
        known_share = (known_share * np.minimum(1, effective / ENOUGH_EXAMPLES)).astype(np.float32)
        sample = model_impacts[:, : len(self._space.sample)].toarray()
        sample_scores = SampleScores(
            sample.real,
            sample.imag / batch.total_idf[:, None],
            (term_indicators @ self._space.prominent_idf).toarray() / batch.total_idf[:, None],
            common_terms_in_pairs(batch, columns, self._space.sample_terms),
        )
        return ExampleScores(directions, known_share, sample_scores)


def common_terms_in_pairs(batch: QueryBatch, columns: Mapping[str, int], texts: sparse.csr_matrix) -> Matrix:
    """Return a mask of the texts in which each very common term stands beside another of the interest.

    "Real-World Images with Large Models" is not a text on world models. `texts` is a (terms, texts) matrix,
    and the mask has the shape (interests, texts).
    """
    if not batch.common_counts.any():
        return np.ones((len(batch.terms), texts.shape[1]), bool)
    counts = (indicator_matrix(batch.common_pairs, columns) @ texts).toarray()
    return np.asarray(counts >= batch.common_counts[:, None])


def _highest(scores: Matrix, count: int) -> Matrix:
    """Return the positions of the `count` highest scores, highest first. Ties: earlier positions first."""
    if len(scores) > count:
        least = np.partition(scores, -count)[-count]
        positions = np.flatnonzero(scores >= least)
    else:
        positions = np.arange(len(scores))
    return positions[np.argsort(-scores[positions], kind="stable")][:count]
