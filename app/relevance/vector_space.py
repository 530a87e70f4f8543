"""PURE. Papers as rows of numbers: BM25F impacts, TF-IDF, and the LSA space that an archive spans.

A row of impacts says what each term of a paper adds to the score of an interest that has the term:
idf · w·(k1+1) / (w+k1), where w is the term's weighted frequency in BM25F (Robertson, Zaragoza, Taylor
2004: title ×2, k1 1.2, b 0.6); pairs of neighbouring stems count .7 (k1 .8). An interest's score of a
paper is then a sum, and many interests × many papers are one sparse product.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from types import MappingProxyType
from typing import Any

import numpy as np
from scipy import sparse

from app.text.tokenizer import bigrams

Matrix = np.ndarray[Any, Any]
Document = tuple[Sequence[str], Sequence[str]]  # the terms of a title and of an abstract, in order

TITLE_WEIGHT = 2.0
K1, B = 1.2, 0.6
PAIR_WEIGHT, PAIR_K1 = 0.7, 0.8
DIMENSIONS = 200
# Each direction of the space counts with its singular value to the power 1 − WHITEN: the few widest
# directions, which say "machine learning" in general, no longer outweigh the rest.
WHITEN = 0.4
LEAST_PAPERS = 50  # fewer span no space
LEAST_FREQUENCY = 3  # papers: rarer words place no paper
EXAMPLES = 10_000  # the newest papers serve as examples of what an interest means


Parts = Mapping[str, Sequence[str]]  # a folded term → the terms that it says besides


def with_expansions(text: Sequence[str], parts: Parts) -> Iterator[str]:
    """Each term and pair of a text, and what its folded terms say besides."""
    return itertools.chain(text, bigrams(text), *(parts[term] for term in text if term in parts))


def count_matrix(texts: Iterable[Iterable[str]], columns: Mapping[str, int]) -> sparse.csr_matrix:
    """Texts × terms: how often each text has each term; what has no column is left out."""
    found = indicator_matrix(texts, columns)
    found.sum_duplicates()
    return found


def indicator_matrix(texts: Iterable[Iterable[str]], columns: Mapping[str, int]) -> sparse.csr_matrix:
    """The same in the order of the terms, each time a term is there by itself: enough for a product."""
    ends, numbers = [0], list[int]()
    for text in texts:
        numbers += [number for number in map(columns.get, text) if number is not None]
        ends.append(len(numbers))
    shape = (len(ends) - 1, len(columns))
    return sparse.csr_matrix((np.ones(len(numbers), np.float32), numbers, ends), shape=shape)


@dataclass(frozen=True)
class Terms:
    """The columns of a matrix of impacts: what a term's idf is, and whether it is a pair."""

    columns: Mapping[str, int]
    idf: Matrix
    is_pair: Matrix
    parts: Parts

    @classmethod
    def of(
        cls, terms: Sequence[str], idf: Callable[[str], float], parts: Parts = MappingProxyType({})
    ) -> Terms:
        """Columns in this order."""
        columns = {term: number for number, term in enumerate(terms)}
        is_pair = np.array([" " in term for term in terms], bool)
        return cls(columns, np.array([idf(term) for term in terms]), is_pair, parts)

    @cached_property
    def names(self) -> list[str]:
        """The terms, in the order of the columns."""
        return list(self.columns)

    def impacts(self, documents: Sequence[Document], lengths: tuple[float, float]) -> sparse.csr_matrix:
        """Documents × terms: what each adds. `lengths` are the archive's means, in terms, of both fields."""
        weighted = self._weighted(documents, lengths)
        pair = self.is_pair[weighted.indices]
        k1 = np.where(pair, PAIR_K1, K1)
        gain = self.idf[weighted.indices] * np.where(pair, PAIR_WEIGHT, 1.0)
        weighted.data = (gain * weighted.data * (k1 + 1) / (weighted.data + k1)).astype(np.float32)
        return weighted

    def _weighted(self, documents: Sequence[Document], lengths: tuple[float, float]) -> sparse.csr_matrix:
        """BM25F's weighted frequencies: both fields, each by its length."""
        fields = []
        for field, (gain, mean) in enumerate(zip((TITLE_WEIGHT, 1.0), lengths, strict=True)):
            texts = [document[field] for document in documents]
            sizes = np.array([len(text) for text in texts], np.float64)
            found = count_matrix((with_expansions(text, self.parts) for text in texts), self.columns)
            fields.append(sparse.diags(gain / (1 - B + B * sizes / mean)) @ found)
        return sparse.csr_matrix(fields[0] + fields[1])


def fingerprint(title: str) -> int:
    """63 bits by which a paper of an archive is known again."""
    return int.from_bytes(blake2b(title.encode(), digest_size=8).digest(), "big") >> 1


@dataclass(frozen=True)
class VectorSpace:
    """The LSA space of an archive (Deerwester et al. 1990), and its papers as examples in it."""

    stems: Terms  # the rows of `projection`
    projection: Matrix  # stems × dimensions
    mean: Matrix  # of the archive's unit rows
    covariance: Matrix
    terms: Terms  # the rows of `impacts`
    impacts: sparse.csr_matrix  # terms × examples
    examples: Matrix  # the newest papers, unit rows
    fingerprints: Matrix  # of their titles

    @classmethod
    def fit(
        cls,
        papers: Sequence[tuple[str, Document]],
        frequencies: Mapping[str, int],
        idf: Callable[[str], float],
        lengths: tuple[float, float],
        parts: Parts,
    ) -> VectorSpace | None:
        """Fit to (title, document) of an archive, the newest first; None if it is too small."""
        stems, terms = lsa_terms(frequencies, idf), index_terms(frequencies, idf, parts)
        if len(papers) < LEAST_PAPERS or len(stems.columns) <= DIMENSIONS:
            return None
        documents = [document for _, document in papers]
        rows = _tfidf(documents, stems)
        projection = _halved(_projection(rows))
        vectors = _halved(_unit(rows @ projection))
        return cls(
            stems,
            projection,
            mean=vectors.mean(0),
            covariance=np.cov(vectors.T).astype(np.float32),
            terms=terms,
            impacts=_halved_rows(terms.impacts(documents[:EXAMPLES], lengths).T),
            examples=vectors[:EXAMPLES],
            fingerprints=np.array([fingerprint(title) for title, _ in papers[:EXAMPLES]], np.int64),
        )

    def arrays(self) -> dict[str, Matrix]:
        """What `of_arrays` needs besides the archive's frequencies."""
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
    def of_arrays(
        cls, arrays: Mapping[str, Any], frequencies: Mapping[str, int], idf: Callable[[str], float]
    ) -> VectorSpace:
        """What `arrays` gave; KeyError or ValueError where that is not what it is."""
        examples = arrays["examples"].astype(np.float32)
        terms = index_terms(frequencies, idf)
        parts = (
            arrays["impacts"].astype(np.float32),
            arrays["impact_examples"].astype(np.int32),
            arrays["impact_ends"],
        )
        impacts = sparse.csr_matrix(parts, shape=(len(terms.columns), len(examples)))
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
        space._check()
        return space

    def _check(self) -> None:
        """Raise ValueError where the parts are not of one model."""
        dimensions = self.projection.shape[-1]
        shapes = {
            "projection": (self.projection, (len(self.stems.columns), dimensions)),
            "mean": (self.mean, (dimensions,)),
            "covariance": (self.covariance, (dimensions, dimensions)),
            "examples": (self.examples, (len(self.fingerprints), dimensions)),
        }
        for name, (array, shape) in shapes.items():
            if array.shape != shape or not np.isfinite(array).all():
                raise ValueError(f"{name}: {array.shape} instead of {shape}, or numbers that are none")

    @cached_property
    def told(self) -> sparse.csr_matrix:
        """Terms × examples: the impact of each term, and its idf as the imaginary part, where it is no pair.

        So one product says the score of an example, and how much of an interest it has.
        """
        idf = np.where(self.terms.is_pair, 0, self.terms.idf).astype(np.float32)
        told = (self.impacts.data + 1j * np.repeat(idf, np.diff(self.impacts.indptr))).astype(np.complex64)
        return sparse.csr_matrix((told, self.impacts.indices, self.impacts.indptr), self.impacts.shape)

    def tfidf(self, documents: Sequence[Document]) -> sparse.csr_matrix:
        """Documents × stems, unit rows: (1 + ln count) · idf, the title counted twice."""
        return _tfidf(documents, self.stems)

    def vectors(self, documents: Sequence[Document]) -> Matrix:
        """Documents × dimensions, unit rows (a row of zeros where no word is known)."""
        return self.placed(self.tfidf(documents))

    def placed(self, tfidf: sparse.csr_matrix) -> Matrix:
        """The same, of documents whose rows are known."""
        return _unit(tfidf @ self.projection)

    def standardised(self, wanted: Matrix, vectors: Matrix) -> Matrix:
        """How close papers are to each of the wanted directions (unit rows), in standard deviations.

        Mean and deviation of q·x over all of the archive are q·μ and √(qᵀΣq): no sample is needed.
        """
        deviation = np.sqrt(((wanted @ self.covariance) * wanted).sum(1))
        away: Matrix = wanted @ vectors.T - (wanted @ self.mean)[:, None]
        return np.asarray(away / np.maximum(deviation, 1e-6)[:, None])


def lsa_terms(frequencies: Mapping[str, int], idf: Callable[[str], float]) -> Terms:
    """The stems that enough papers have to place a paper by them."""
    return Terms.of(
        sorted(t for t, papers in frequencies.items() if " " not in t and papers >= LEAST_FREQUENCY), idf
    )


def index_terms(
    frequencies: Mapping[str, int], idf: Callable[[str], float], parts: Parts = MappingProxyType({})
) -> Terms:
    """The stems and pairs by which examples are found: what one paper alone says leads to no other."""
    return Terms.of(sorted(term for term, papers in frequencies.items() if papers > 1), idf, parts)


def _tfidf(documents: Sequence[Document], stems: Terms) -> sparse.csr_matrix:
    titles, abstracts = ([document[field] for document in documents] for field in (0, 1))
    rows = count_matrix(titles, stems.columns) * TITLE_WEIGHT + count_matrix(abstracts, stems.columns)
    rows.data = (1 + np.log(rows.data)) * stems.idf[rows.indices]
    norms = np.sqrt(np.asarray(rows.multiply(rows).sum(1)).ravel())
    return sparse.csr_matrix(sparse.diags(1 / np.maximum(norms, 1e-9)) @ rows, dtype=np.float32)


def _projection(rows: sparse.csr_matrix) -> Matrix:
    from sklearn.utils.extmath import randomized_svd  # loads slowly, and only training needs it

    dimensions = min(DIMENSIONS, min(rows.shape) - 1)
    _, singular, directions = randomized_svd(rows, dimensions, n_iter=4, random_state=0)
    return np.asarray(directions.T / np.maximum(singular, 1e-6) ** WHITEN, np.float32)


def _unit(rows: Matrix) -> Matrix:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(norms, 1e-9), np.float32)


def _halved(numbers: Matrix) -> Matrix:
    """As they will be kept, in 16 bits: a model serves the same before and after it was written."""
    return numbers.astype(np.float16).astype(np.float32)


def _halved_rows(rows: sparse.csc_matrix) -> sparse.csr_matrix:
    kept = sparse.csr_matrix(rows)
    kept.data = _halved(kept.data)
    return kept
