"""PURE. The latent semantic analysis (LSA) space of an archive, and the newest papers as examples in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from app.relevance.bm25 import K1, Document, Expansions, FieldCounts, Idf, Matrix, Terms

DIMENSIONS = 200
# Each dimension is scaled by its singular value to the power 1 − WHITEN. Otherwise the few largest
# dimensions, which mean "machine learning" in general, would outweigh the others.
WHITEN = 0.4
MIN_PAPERS = 50  # a smaller archive has no LSA space
MIN_FREQUENCY = 3  # papers; rarer stems are not in the LSA space
MIN_INDEX_FREQUENCY = 2  # papers; rarer stems and pairs are not used to find examples
# Minimum mean z-scores of a term that is close to a direction, and of each stem in a pair that is close.
# For "speech synthesis", "voice" has 4.5 and "word" has 1.2.
CLOSE_Z, PART_Z = 1.5, 0.5
ENOUGH_EXAMPLES, MAX_TERM_EXAMPLES = 10, 500  # minimum and maximum for the mean z-score of a term
MAX_CACHED_TERMS = 5_000  # terms whose mean vectors are cached, 800 bytes each
MAX_EXAMPLES = 10_000  # the newest papers, which serve as examples of what an interest means
SAMPLE_SIZE = 2_000  # the newest examples, from which cut-offs are estimated
PROMINENT = 1.5  # weighted frequency (`Terms.impacts`): about one occurrence in a title or two in an abstract


def title_fingerprint(title: str) -> int:
    """Return a 63-bit hash of a title, to recognize candidates that are among the examples."""
    return int.from_bytes(blake2b(title.encode(), digest_size=8).digest(), "big") >> 1


class Direction(NamedTuple):
    """A unit vector in the LSA space, with the mean and the deviation of the archive's papers along it."""

    vector: Matrix
    mean: float
    deviation: float

    def z_score(self, vector: Matrix) -> float:
        """Return the z-score of one vector. See `VectorSpace.z_scores`."""
        return float((self.vector @ vector - self.mean) / self.deviation)


@dataclass(frozen=True)
class VectorSpace:
    """The LSA space of an archive (Deerwester et al. 1990), and the newest papers as examples in it."""

    stems: Terms  # the rows of `projection`
    projection: Matrix  # stems × dimensions
    mean: Matrix  # of the archive's unit rows
    covariance: Matrix
    terms: Terms  # the rows of `impacts`
    impacts: sparse.csr_matrix  # terms × examples
    examples: Matrix  # the newest papers, unit rows
    fingerprints: Matrix  # of the examples' titles

    @classmethod
    def fit(
        cls,
        papers: Sequence[tuple[str, Document]],
        fields: FieldCounts,
        frequencies: Mapping[str, int],
        idf: Idf,
        lengths: tuple[float, float],
        expansions: Expansions,
        max_examples: int = MAX_EXAMPLES,
    ) -> VectorSpace | None:
        """Fit a space to (title, document) pairs, newest first.

        `fields` has their counts of the terms in `frequencies`, in the same order. Return None if there are
        fewer than MIN_PAPERS papers or too few stems.
        """
        stems, terms = lsa_terms(frequencies, idf), index_terms(frequencies, idf, expansions)
        if len(papers) < MIN_PAPERS or len(stems.columns) <= DIMENSIONS:
            return None
        from sklearn.utils.extmath import randomized_svd  # slow to import, and only training needs it

        documents = [document for _, document in papers]
        rows = stems.tfidf(documents)
        dimensions = min(DIMENSIONS, min(rows.shape) - 1)
        _, singular, directions = randomized_svd(rows, dimensions, n_iter=4, random_state=0)
        projection = _rounded_to_16_bits(
            np.asarray(directions.T / np.maximum(singular, 1e-6) ** WHITEN, np.float32)
        )
        vectors = _rounded_to_16_bits(_unit_rows(rows @ projection))
        (columns,) = (np.array([*frequencies.values()]) >= MIN_INDEX_FREQUENCY).nonzero()
        impacts = sparse.csr_matrix(terms.impacts(fields.select(columns, max_examples), lengths).T)
        impacts.data = _rounded_to_16_bits(impacts.data)
        return cls(
            stems,
            projection,
            mean=vectors.mean(0),
            covariance=np.cov(vectors.T).astype(np.float32),
            terms=terms,
            impacts=impacts,
            examples=vectors[:max_examples],
            fingerprints=np.array([title_fingerprint(title) for title, _ in papers[:max_examples]], np.int64),
        )

    def to_arrays(self) -> dict[str, Matrix]:
        """Return the arrays that `from_arrays` needs, besides the term frequencies and idf of the archive."""
        return {
            "projection": self.projection.astype(np.float16),
            "mean": self.mean,
            "covariance": self.covariance,
            "examples": self.examples.astype(np.float16),
            "fingerprints": self.fingerprints,
            "impacts": self.impacts.data.astype(np.float16),
            "impact_examples": self.impacts.indices.astype(np.uint16),
            "impact_ends": self.impacts.indptr.astype(np.int32),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any], frequencies: Mapping[str, int], idf: Idf) -> VectorSpace:
        """Return the space in these arrays. Raise KeyError or ValueError if the arrays are invalid."""
        examples = arrays["examples"].astype(np.float32)
        terms = index_terms(frequencies, idf)
        csr = (
            arrays["impacts"].astype(np.float32),
            arrays["impact_examples"].astype(np.int32),
            arrays["impact_ends"],
        )
        impacts = sparse.csr_matrix(csr, shape=(len(terms.columns), len(examples)))
        impacts.check_format()
        space = cls(
            lsa_terms(frequencies, idf),
            arrays["projection"].astype(np.float32),
            arrays["mean"],
            arrays["covariance"],
            terms,
            impacts,
            examples,
            arrays["fingerprints"],
        )
        space._check_arrays()
        return space

    def _check_arrays(self) -> None:
        """Raise ValueError if the arrays' shapes do not match, or if an array contains NaN or infinity."""
        dimensions = self.projection.shape[-1]
        shapes = {
            "projection": (self.projection, (len(self.stems.columns), dimensions)),
            "mean": (self.mean, (dimensions,)),
            "covariance": (self.covariance, (dimensions, dimensions)),
            "examples": (self.examples, (len(self.fingerprints), dimensions)),
        }
        for name, (array, shape) in shapes.items():
            if array.shape != shape:
                raise ValueError(f"{name} has shape {array.shape} instead of {shape}")
            _check_finite(name, array)
        _check_finite("impacts", self.impacts.data)

    @cached_property
    def impacts_with_idf(self) -> sparse.csr_matrix:
        """Return a (terms, examples) matrix: impacts as real parts, idf (0 for pairs) as imaginary parts.

        One product with it computes both the score of each example and the total idf of the terms in it.
        """
        idf = np.where(self.terms.is_pair, 0, self.terms.idf).astype(np.float32)
        data = (self.impacts.data + 1j * np.repeat(idf, np.diff(self.impacts.indptr))).astype(np.complex64)
        return sparse.csr_matrix((data, self.impacts.indices, self.impacts.indptr), self.impacts.shape)

    @cached_property
    def _sorted_fingerprints(self) -> Matrix:
        return np.sort(self.fingerprints)

    def example_mask(self, fingerprints: Matrix) -> Matrix:
        """Return a mask of the papers that are examples, given the fingerprints of their titles."""
        examples = self._sorted_fingerprints
        places = np.minimum(np.searchsorted(examples, fingerprints), len(examples) - 1)
        return np.asarray(examples[places] == fingerprints)

    @cached_property
    def sample(self) -> Matrix:
        """Return the vectors of the newest SAMPLE_SIZE examples: unit rows, in column-major order."""
        return np.asfortranarray(self.examples[:SAMPLE_SIZE])

    @cached_property
    def _sample_impacts(self) -> sparse.csr_matrix:
        return sparse.csr_matrix(self.impacts[:, :SAMPLE_SIZE])

    @cached_property
    def prominent_idf(self) -> sparse.csr_matrix:
        """Return a (terms, sample) matrix with the idf of each stem that a sample paper uses prominently."""
        impacts = self._sample_impacts.copy()
        idf = np.repeat(self.terms.idf, np.diff(impacts.indptr))
        is_pair = np.repeat(self.terms.is_pair, np.diff(impacts.indptr))
        is_prominent = ~is_pair & (impacts.data >= idf * PROMINENT * (K1 + 1) / (PROMINENT + K1))
        impacts.data = np.where(is_prominent, idf, 0).astype(np.float32)
        impacts.eliminate_zeros()
        return impacts

    @cached_property
    def sample_terms(self) -> sparse.csr_matrix:
        """Return a (terms, sample) matrix with a 1 for each stem and pair that a sample paper contains."""
        impacts = self._sample_impacts
        return sparse.csr_matrix((np.ones_like(impacts.data), impacts.indices, impacts.indptr), impacts.shape)

    def vectors(self, documents: Sequence[Document]) -> Matrix:
        """Return the unit vectors of documents. A document without known stems gets a vector of zeros."""
        return self.project(self.stems.tfidf(documents))

    def project(self, tfidf: sparse.csr_matrix) -> Matrix:
        """Return the vectors of documents, given their TF-IDF rows."""
        return _unit_rows(tfidf @ self.projection)

    def z_scores(self, directions: Matrix, vectors: Matrix) -> Matrix:
        """Return a (directions, vectors) matrix of z-scores: standard deviations above the archive's mean.

        `directions` must be unit rows. For a direction q, the mean and the standard deviation of q·x over all
        papers x of the archive are q·μ and √(qᵀΣq), so no sample is needed. For a few directions, this is
        three times as fast if `vectors` is in column-major order.
        """
        deviation = np.sqrt(((directions @ self.covariance) * directions).sum(1))
        difference: Matrix = directions @ vectors.T - (directions @ self.mean)[:, None]
        return np.asarray(difference / np.maximum(deviation, 1e-6)[:, None])

    def direction(self, vector: Matrix) -> Direction:
        """Return the `Direction` of a unit vector. It computes one z-score much faster than `z_scores`."""
        deviation = np.sqrt(((vector @ self.covariance) * vector).sum())
        return Direction(vector, float(vector @ self.mean), max(float(deviation), 1e-6))

    def is_close(self, term: str, direction: Direction) -> bool:
        """Return True if a stem or a pair explains to a reader why a paper is close to a direction.

        On average, the papers that contain the term must be close themselves. In a pair such as "LLMs
        achieve", the papers that contain each stem must also be close, but less so.
        """
        if " " in term and not all(self._mean_z_score(stem, direction) >= PART_Z for stem in term.split(" ")):
            return False
        return self._mean_z_score(term, direction) >= CLOSE_Z

    def _mean_z_score(self, term: str, direction: Direction) -> float:
        """Return the mean z-score of the newest examples that contain a term, or 0 if only a few do."""
        return direction.z_score(self._mean_vector(term))

    @cached_property
    def _mean_vector(self) -> Callable[[str], Matrix]:
        # The cache does not refer to the space, so that an old space is freed as soon as it is dropped.
        arrays = self.terms.columns, self.impacts, self.examples, self.mean
        return lru_cache(MAX_CACHED_TERMS)(partial(_mean_vector, *arrays))


def lsa_terms(frequencies: Mapping[str, int], idf: Idf) -> Terms:
    """Return the stems that occur in enough papers for the LSA space."""
    return Terms.from_names(
        sorted(t for t, papers in frequencies.items() if " " not in t and papers >= MIN_FREQUENCY), idf
    )


def index_terms(
    frequencies: Mapping[str, int], idf: Idf, expansions: Expansions = MappingProxyType({})
) -> Terms:
    """Return the stems and pairs used to find examples."""
    return Terms.from_names(
        sorted(term for term, papers in frequencies.items() if papers >= MIN_INDEX_FREQUENCY), idf, expansions
    )


def _mean_vector(
    columns: Mapping[str, int], impacts: sparse.csr_matrix, examples: Matrix, mean: Matrix, term: str
) -> Matrix:
    """Return the mean of the newest examples that contain a term, or of all papers if only a few do."""
    if (column := columns.get(term)) is None:
        return mean
    rows = impacts.indices[impacts.indptr[column] : impacts.indptr[column + 1]]
    if len(rows) < ENOUGH_EXAMPLES:
        return mean
    return np.asarray(examples[rows[:MAX_TERM_EXAMPLES]].mean(0))


def _check_finite(name: str, numbers: Matrix) -> None:
    if not np.isfinite(numbers).all():
        raise ValueError(f"{name} contains NaN or infinity")


def _unit_rows(rows: Matrix) -> Matrix:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(norms, 1e-9), np.float32)


def _rounded_to_16_bits(numbers: Matrix) -> Matrix:
    """Round numbers to their stored precision, so that storing and loading a model does not change it."""
    return numbers.astype(np.float16).astype(np.float32)
