"""PURE. Papers as short binary records: all that ranking needs to know about a paper in the index.

A record holds a hash of each folded term of the title and the abstract, in order, and the paper's vector,
with a byte for each dimension. A thousand candidates are therefore ranked in milliseconds, without
loading their texts.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Self
from zlib import crc32

import numpy as np
from scipy import sparse

from app.relevance.bm25 import Document, FieldCounts, Matrix, Terms
from app.relevance.model import RelevanceModel
from app.relevance.scoring import PaperMatrices
from app.relevance.vector_space import title_fingerprint
from app.types import PaperView

_HEADER = np.dtype(
    [("fingerprint", "<i8"), ("day", "<u4"), ("title", "<u2"), ("abstract", "<u2"), ("dimensions", "<u2")]
)  # `title` and `abstract` are numbers of terms
_MAX_TERMS = 0xFFFF
_BUCKETS = 1 << 16
_LEVELS = 127  # of a signed byte


def encode(paper: PaperView, document: Document, vector: Matrix) -> bytes:
    """Return the record of a paper, given its folded terms and its unit vector."""
    fields = [np.array([*map(_term_hash, field[:_MAX_TERMS])], np.uint32) for field in document]
    scale = _LEVELS / max(np.abs(vector).max(initial=0), 1e-9)
    day = paper.last_listed_on.toordinal() if paper.last_listed_on else 0
    header = np.array((title_fingerprint(paper.title), day, *map(len, fields), len(vector)), _HEADER)
    return b"".join(
        [header.tobytes(), np.rint(vector * scale).astype(np.int8).tobytes(), *map(bytes, fields)]
    )


@lru_cache(maxsize=200_000)
def _term_hash(term: str) -> int:
    """Return a 32-bit hash of a term. Collisions are rare, because a query has only a few terms."""
    return crc32(term.encode())


@dataclass(frozen=True)
class PaperRecords:
    """The decoded records of some papers. Their hashed terms are one array, paper by paper."""

    fingerprints: Matrix
    days: Matrix  # on which they were last listed, as ordinals
    vectors: Matrix  # unit rows
    hashes: Matrix  # of the terms of each title and then of its abstract
    ends: Matrix  # of each paper in `hashes`
    title_ends: Matrix

    @classmethod
    def decode(cls, records: Sequence[bytes], dimensions: int) -> Self:
        """Return the records of papers whose vectors have this number of dimensions."""
        start = _HEADER.itemsize + dimensions
        headers = np.frombuffer(b"".join([record[: _HEADER.itemsize] for record in records]), _HEADER)
        vectors = b"".join([record[_HEADER.itemsize : start] for record in records])
        matrix = np.frombuffer(vectors, np.int8).astype(np.float32).reshape(len(records), dimensions)
        matrix /= np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), 1e-9)
        title_sizes, abstract_sizes = (headers[name].astype(np.int64) for name in ("title", "abstract"))
        ends = np.cumsum(title_sizes + abstract_sizes)
        return cls(
            headers["fingerprint"],
            headers["day"].astype(np.int64),
            matrix,
            np.frombuffer(b"".join([record[start:] for record in records]), np.uint32),
            ends,
            ends - abstract_sizes,
        )

    def matrices(self, names: Sequence[str], model: RelevanceModel) -> PaperMatrices:
        """Return the matrices of the papers, with only these terms and pairs."""
        terms = Terms.from_names(names, model.statistics.idf)
        counts = self._counts(terms.columns, model.abbreviations.implied_by)
        title_sizes = self.title_ends - np.concatenate([[0], self.ends[:-1]])
        sizes = title_sizes.astype(np.float64), (self.ends - self.title_ends).astype(np.float64)
        return PaperMatrices.build(terms, FieldCounts(counts, sizes), self.vectors, self.fingerprints, model)

    def _counts(
        self, columns: Mapping[str, int], implied_by: Mapping[str, Sequence[str]]
    ) -> tuple[sparse.csr_matrix, sparse.csr_matrix]:
        """Return (papers, terms) matrices of term counts for titles and abstracts. Count implied terms."""
        single, pairs = dict[int, list[int]](), dict[int, list[int]]()
        for term, column in columns.items():
            for source in (term, *implied_by.get(term, ())):
                first, space, second = source.partition(" ")
                if space:
                    pairs.setdefault(_term_hash(first) << 32 | _term_hash(second), []).append(column)
                else:
                    single.setdefault(_term_hash(source), []).append(column)
        entries = self._entries(single, paired=False), self._entries(pairs, paired=True)
        papers, is_title, numbers = (np.concatenate(part) for part in zip(*entries, strict=True))
        shape = len(self.ends), len(columns)
        titles, abstracts = (
            sparse.csr_matrix((np.ones(mask.sum(), np.float32), (papers[mask], numbers[mask])), shape=shape)
            for mask in (is_title, ~is_title)
        )
        return titles, abstracts

    def _entries(
        self, columns_of: Mapping[int, Sequence[int]], *, paired: bool
    ) -> tuple[Matrix, Matrix, Matrix]:
        """Return three arrays with an entry per occurrence: the paper, True if in the title, the column."""
        keys = np.array(sorted(columns_of), np.uint64)
        firsts = keys >> np.uint64(32) if paired else keys
        bucket = np.zeros(_BUCKETS, bool)
        bucket[firsts % np.uint64(_BUCKETS)] = True
        # A table rules out most terms, which is faster than searching for each.
        positions = np.flatnonzero(bucket[self.hashes % _BUCKETS])
        papers = np.searchsorted(self.ends, positions, side="right")
        codes = self.hashes[positions].astype(np.uint64)
        is_title = positions < self.title_ends[papers]
        if paired:
            field_ends = np.where(is_title, self.title_ends[papers], self.ends[papers])
            has_next = positions + 1 < field_ends
            positions, papers, is_title = positions[has_next], papers[has_next], is_title[has_next]
            codes = codes[has_next] << np.uint64(32) | self.hashes[positions + 1]
        if not len(codes):
            return np.zeros(0, np.int64), np.zeros(0, bool), np.zeros(0, np.int64)
        numbers = np.minimum(np.searchsorted(keys, codes), len(keys) - 1)
        is_key = keys[numbers] == codes
        columns = [columns_of[key] for key in keys.tolist()]
        own = [columns[number] for number in numbers[is_key].tolist()]
        sizes = [*map(len, own)]
        flat = np.array([*itertools.chain.from_iterable(own)], np.int64)
        return np.repeat(papers[is_key], sizes), np.repeat(is_title[is_key], sizes), flat
