"""PURE. Papers as rows of term weights: BM25F impacts and TF-IDF.

An impact is what a term in a paper adds to the paper's score for each interest that contains the term:
idf · w·(k1+1) / (w+k1), where w is the term's weighted frequency in BM25F (Robertson, Zaragoza, Taylor
2004), with title ×2, k1 1.2 and b 0.6. Pairs of neighboring stems count 0.7 times as much as stems (k1 0.8).
The score of a paper is the sum of its impacts, so a single sparse product scores many papers for many
interests.
"""

from __future__ import annotations

import itertools
from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, Self

import numpy as np
from scipy import sparse

from app.text.tokenizer import bigrams

Matrix = np.ndarray[Any, Any]
Document = tuple[Sequence[str], Sequence[str]]  # the terms of a title and of an abstract, in order
Idf = Callable[[str], float]
Idfs = Callable[[Iterable[str]], Matrix]  # the idf of each of many terms
Expansions = Mapping[str, Sequence[str]]  # a folded term → the terms that it implies

TITLE_WEIGHT = 2.0
K1, B = 1.2, 0.6
PAIR_WEIGHT, PAIR_K1 = 0.7, 0.8
_PAIR = 2**32  # see `_key_of`


def with_expansions(text: Sequence[str], expansions: Expansions) -> Iterator[str]:
    """Return the terms of a text, its pairs of neighboring terms, and the terms that folded terms imply."""
    return itertools.chain(text, bigrams(text), *(expansions[term] for term in text if term in expansions))


def count_matrix(texts: Iterable[Iterable[str]], columns: Mapping[str, int]) -> sparse.csr_matrix:
    """Return a (texts, terms) matrix of term counts. Skip terms without a column."""
    counts = indicator_matrix(texts, columns)
    counts.sum_duplicates()
    return counts


def indicator_matrix(texts: Iterable[Iterable[str]], columns: Mapping[str, int]) -> sparse.csr_matrix:
    """Return a (texts, terms) matrix with a 1 for each occurrence. Skip terms without a column.

    Repeated terms are stored as separate entries, which is faster and sufficient for a matrix product.
    """
    ends, numbers = [0], list[int]()
    for text in texts:
        numbers += [number for number in map(columns.get, text) if number is not None]
        ends.append(len(numbers))
    shape = (len(ends) - 1, len(columns))
    return sparse.csr_matrix((np.ones(len(numbers), np.float32), numbers, ends), shape=shape)


def _key_of(term: str, numbers: Mapping[str, int]) -> int:
    """Return the number that stands for a stem or a pair. Raise KeyError if a stem has no number.

    For a stem, it is the stem's number; for a pair, _PAIR · (1 + the first stem's number) + the second's.
    """
    first, space, second = term.partition(" ")
    return _PAIR * (1 + numbers[first]) + numbers[second] if space else numbers[first]


class TermColumns(Mapping[str, int]):
    """The column of each term. Pairs are stored as numbers, because most occur once and texts are large."""

    def __init__(self, numbers: Mapping[str, int], keys: Matrix) -> None:
        """The column of a term is the index of its key in `keys`. `numbers` contains 0, 1, 2, … in order."""
        order = keys.argsort()
        self._numbers, self._keys = numbers, array("q", keys[order].tobytes())
        self._columns = array("I", order.astype(np.uint32).tobytes())

    def __getitem__(self, term: str) -> int:
        key = _key_of(term, self._numbers)
        place = bisect_left(self._keys, key)
        if self._keys[place : place + 1] != array("q", [key]):
            raise KeyError(term)
        return self._columns[place]

    def __iter__(self) -> Iterator[str]:
        stems = [*self._numbers]
        for key in np.array(self._keys)[np.argsort(self._columns)].tolist():
            first, second = divmod(key, _PAIR)
            yield f"{stems[first - 1]} {stems[second]}" if first else stems[second]

    def __len__(self) -> int:
        return len(self._keys)


@dataclass(frozen=True)
class FieldCounts:
    """The frequencies of terms in documents. Each tuple has the titles first, then the abstracts."""

    counts: tuple[sparse.csr_matrix, sparse.csr_matrix]  # documents × terms, with implied terms
    sizes: tuple[Matrix, Matrix]  # the number of terms in each document, without implied terms

    def select(self, columns: Matrix, max_documents: int | None = None) -> Self:
        """Return the counts of the terms in these columns, in the first `max_documents` documents."""
        titles, abstracts = (matrix[:max_documents, columns] for matrix in self.counts)
        title_sizes, abstract_sizes = (sizes[:max_documents] for sizes in self.sizes)
        return type(self)((titles, abstracts), (title_sizes, abstract_sizes))


def count_terms(
    documents: Sequence[Document], expansions: Expansions
) -> tuple[TermColumns, Matrix, FieldCounts]:
    """Count all terms of documents. Return their columns, a mask of those that are pairs, and their counts.

    The columns are in the order in which the terms first occur.
    """
    numbers = defaultdict[str, int](itertools.count().__next__)
    texts = [text for document in documents for text in document]
    sizes = np.array([*map(len, texts)], np.int64)
    all_stems = itertools.chain.from_iterable(texts)
    stems = np.fromiter(map(numbers.__getitem__, all_stems), np.int64, sizes.sum())
    rows_of_stems = np.repeat(np.arange(len(texts), dtype=np.int32), sizes)
    is_pair = rows_of_stems[1:] == rows_of_stems[:-1]
    pairs = (_PAIR * (1 + stems[:-1]) + stems[1:])[is_pair]
    implied = [
        (row, _key_of(term, numbers))
        for row, text in enumerate(texts)
        for stem in text
        if stem in expansions
        for term in expansions[stem]
    ]
    rows_of_implied, keys_of_implied = np.array(implied, np.int64).reshape(-1, 2).T
    rows = np.concatenate([rows_of_stems, rows_of_stems[1:][is_pair], rows_of_implied.astype(np.int32)])
    keys = np.concatenate([stems, pairs, keys_of_implied])[rows.argsort(kind="stable")]
    distinct, first_places, inverse = np.unique(keys, return_index=True, return_inverse=True)
    by_place = first_places.argsort()
    columns = TermColumns(dict(numbers), distinct[by_place])
    ends = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(texts)))])
    counts = sparse.csr_matrix(
        (np.ones(len(keys), np.float32), by_place.argsort()[inverse], ends), (len(texts), len(columns))
    )
    counts.sum_duplicates()
    fields = FieldCounts((counts[0::2], counts[1::2]), (sizes[0::2] * 1.0, sizes[1::2] * 1.0))
    return columns, distinct[by_place] >= _PAIR, fields


@dataclass(frozen=True)
class Terms:
    """The columns of a matrix of impacts: each term's idf, and whether it is a pair of stems."""

    columns: Mapping[str, int]
    idf: Matrix
    is_pair: Matrix
    expansions: Expansions

    @classmethod
    def from_names(
        cls, names: Sequence[str], idf: Idf, expansions: Expansions = MappingProxyType({})
    ) -> Terms:
        """Return terms whose columns are in the order of `names`."""
        columns = {term: number for number, term in enumerate(names)}
        is_pair = np.array([" " in term for term in names], bool)
        return cls(columns, np.array([idf(term) for term in names]), is_pair, expansions)

    @classmethod
    def of_documents(
        cls, documents: Sequence[Document], idfs: Idfs, expansions: Expansions
    ) -> tuple[Terms, FieldCounts]:
        """Return the terms of documents, in the order in which they first occur, and their counts."""
        columns, is_pair, fields = count_terms(documents, expansions)
        return cls(columns, idfs(columns), is_pair, expansions), fields

    @cached_property
    def names(self) -> list[str]:
        """Return the terms in column order."""
        return list(self.columns)

    def field_counts(self, documents: Sequence[Document]) -> FieldCounts:
        """Count the occurrences of the terms in the title and the abstract of each document."""
        fields = [[document[field] for document in documents] for field in (0, 1)]
        titles, abstracts = (
            count_matrix((with_expansions(text, self.expansions) for text in texts), self.columns)
            for texts in fields
        )
        title_sizes, abstract_sizes = (np.array([*map(len, texts)], np.float64) for texts in fields)
        return FieldCounts((titles, abstracts), (title_sizes, abstract_sizes))

    def impacts(self, fields: FieldCounts, lengths: tuple[float, float]) -> sparse.csr_matrix:
        """Return a (documents, terms) matrix with the impact of each term.

        `lengths` are the mean lengths of titles and abstracts in the archive, in terms.
        """
        # BM25F's weighted frequencies: the sum over both fields, each normalized by its length.
        titles, abstracts = (
            sparse.diags(factor / (1 - B + B * sizes / mean)) @ counts
            for factor, counts, sizes, mean in zip(
                (TITLE_WEIGHT, 1.0), fields.counts, fields.sizes, lengths, strict=True
            )
        )
        weighted = sparse.csr_matrix(titles + abstracts)

        is_pair = self.is_pair[weighted.indices]
        k1 = np.where(is_pair, PAIR_K1, K1)
        gain = self.idf[weighted.indices] * np.where(is_pair, PAIR_WEIGHT, 1.0)
        weighted.data = (gain * weighted.data * (k1 + 1) / (weighted.data + k1)).astype(np.float32)
        return weighted

    def tfidf(self, documents: Sequence[Document]) -> sparse.csr_matrix:
        """Return a (documents, terms) matrix of unit rows: (1 + ln count) · idf. Titles count twice."""
        titles, abstracts = ([document[field] for document in documents] for field in (0, 1))
        rows = count_matrix(titles, self.columns) * TITLE_WEIGHT + count_matrix(abstracts, self.columns)
        rows.data = (1 + np.log(rows.data)) * self.idf[rows.indices]
        return sparse_unit_rows(rows)


def sparse_unit_rows(rows: sparse.csr_matrix) -> sparse.csr_matrix:
    """Return the rows scaled to length 1. Rows of zeros stay as they are."""
    norms = np.sqrt(np.asarray(rows.multiply(rows).sum(1)).ravel())
    return sparse.csr_matrix(sparse.diags(1 / np.maximum(norms, 1e-9)) @ rows, dtype=np.float32)
