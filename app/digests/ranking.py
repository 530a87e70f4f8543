"""PURE. Rank the papers that are relevant enough to each subscriber, best score first.

Evidence is −ln(1 − relevance). A paper's relevance to a subscriber is 1 − Π (1 − r)^w over their interests
and their profile, which equals 1 − exp(−Σ w·evidence). One product of the matrices subscribers × interests
and interests × papers therefore computes it for many subscribers at once. A paper may be sent if its
relevance is at least FLOOR. Its strength is computed from the strengths in the same way. Its score is
strength × (1 + TREND·trend) × FRESH^days since it was listed. A pinned paper counts as listed today, and its
score is PINNED higher, so it precedes all others.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from app.relevance import reasons
from app.relevance.cut_offs import FLOOR
from app.types import (
    DEFAULT_MAX_PAPERS,
    DEFAULT_MIN_PAPERS,
    CardReason,
    DigestItem,
    EmptyDigestPolicy,
    Interest,
    PaperView,
    SkippedEdition,
    Trend,
)

Vector = np.ndarray[Any, Any]
Matrix = np.ndarray[Any, Any]

TREND = 0.2
FRESH = 0.9
PINNED = 2.0  # higher than the score of any paper that is not pinned
CERTAIN = 1 - 1e-9  # higher relevances are capped at this, so that their evidence is finite
MAX_COMPARED = 5_000  # papers whose similarities are kept: at most 100 megabytes
RANK_BATCH_SIZE = 100  # subscribers, to limit the memory of dense matrices
MAX_DENSE_TEXTS = 5  # distinct interests per subscriber in a batch; with more, sparse matrices are faster
MAX_CACHED_ORDERS = 20_000  # interests with their weights; a few hundred bytes each
ROW_BYTES = 500  # of an interest's objects, besides the numbers
NO_TREND = Trend(0.0, "")


def evidence_of(relevances: Iterable[float] | Vector) -> Vector:
    """Convert relevances or strengths up to 1 into evidence; a negative number counts against a paper."""
    values = np.asarray(relevances if isinstance(relevances, np.ndarray) else [*relevances], float)
    return np.asarray(-np.log1p(-np.minimum(values, CERTAIN)))


def relevance_of(evidence: Vector) -> Vector:
    """Convert evidence, single or summed, into relevances or strengths."""
    return np.asarray(-np.expm1(-evidence))


ENOUGH = evidence_of([FLOOR]).item()


class EvidenceRow(NamedTuple):
    """The evidence from one interest."""

    columns: Vector  # of the matching papers, in ascending order
    evidence: Vector
    strengths: Vector  # as evidence, so that they add up
    excluded: frozenset[int]  # the papers that match its exclusions

    @property
    def nbytes(self) -> int:
        """The approximate size in memory, in bytes."""
        return ROW_BYTES + self.columns.nbytes + self.evidence.nbytes + self.strengths.nbytes

    def enough(self, weight: float) -> Vector:
        """Return a mask of the papers that are relevant enough because of this interest alone."""
        return np.asarray(self.evidence * weight >= ENOUGH)


class EvidenceMatrix:
    """A sparse matrix of evidence with a row for each matched interest and a column for each candidate."""

    def __init__(self, papers: Iterable[int]) -> None:
        self.ids = np.array(sorted(papers), np.int64)  # the paper of each column
        self.columns = {number: column for column, number in enumerate(self.ids.tolist())}
        self.rows: dict[str, EvidenceRow] = {}  # by the text of the interest

    def add_columns(
        self,
        text: str,
        columns: Vector,
        relevance: Vector,
        strength: Vector,
        excluded: frozenset[int] = frozenset(),
    ) -> None:
        """Add an interest with the matching columns, in ascending order, and the papers it excludes."""
        strengths = evidence_of(strength).astype(np.float32)
        self.rows[text] = EvidenceRow(columns, evidence_of(relevance), strengths, excluded)

    @property
    def nbytes(self) -> int:
        """The approximate size in memory, in bytes."""
        return sum(row.nbytes for row in self.rows.values())

    def matrices(self, texts: Iterable[str]) -> tuple[sparse.csr_matrix, sparse.csr_matrix]:
        """Return the evidence and the strengths of these interests, with a row for each of them."""
        rows = [self.rows[text] for text in texts]
        ends = np.cumsum([0, *(len(row.columns) for row in rows)])
        columns = np.concatenate([np.zeros(0, np.int32), *(row.columns for row in rows)])
        evidence = np.concatenate([np.zeros(0), *(row.evidence for row in rows)])
        strengths = np.concatenate([np.zeros(0, np.float32), *(row.strengths for row in rows)])
        shape = len(rows), len(self.ids)
        return (
            sparse.csr_matrix((evidence, columns, ends), shape),
            sparse.csr_matrix((strengths, columns, ends), shape),
        )

    def evidence_by_column(self, text: str) -> Vector:
        """Return the evidence from an interest for each candidate."""
        by_column = np.zeros(len(self.ids))
        by_column[self.rows[text].columns] = self.rows[text].evidence
        return by_column

    def evidence_row(self, hits: Mapping[int, float]) -> Vector:
        """Convert relevance by paper into evidence by column."""
        row = np.zeros(len(self.ids))
        row[[self.columns[number] for number in hits]] = evidence_of(hits.values())
        return row

    def excluded(self, interests: Iterable[Interest]) -> frozenset[int]:
        """Return the papers that match an exclusion of any of these interests.

        Such a paper can be selected only because of another interest, not because of likes or trends.
        """
        return frozenset[int]().union(*(self.rows[interest.text].excluded for interest in interests))


@dataclass(frozen=True)
class RankingRequest:
    """The parts of a subscriber's preferences and history that ranking and composing need."""

    interests: tuple[Interest, ...]
    min_papers: int = DEFAULT_MIN_PAPERS
    max_papers: int = DEFAULT_MAX_PAPERS
    when_empty: EmptyDigestPolicy = EmptyDigestPolicy.SKIP
    skipped_editions: tuple[SkippedEdition, ...] = ()  # since the subscriber's last digest
    invalid_interests: tuple[str, ...] = ()  # texts that can no longer be parsed
    profile: Mapping[int, float] = field(default_factory=dict)  # relevance by paper; negative: disliked
    profile_reason: Callable[[int], str] = str  # why a paper fits the profile
    already_sent: frozenset[int] = frozenset()  # papers sent, planned or rated before: never sent again
    muted: frozenset[int] = frozenset()  # papers that the subscriber's muted words match
    max_trending: int = 0  # maximum number of papers beyond the interests in a digest
    since: date = date.min  # papers last listed before this day are too old
    expires_on: date = date.min  # papers last listed before this day will be too old next time


@dataclass(frozen=True, eq=False)
class CandidatePool:
    """The candidate papers, their trends, and the evidence for them from every matched interest."""

    papers: Mapping[int, PaperView]  # each has a column in `matches`
    trends: Mapping[int, Trend]
    matches: EvidenceMatrix
    reason: Callable[[str, int], CardReason]  # why a paper fits an interest
    vectors: Mapping[int, Vector]  # unit rows by paper; their products are cosine similarities
    today: date
    # The reason why the sources list no papers on the day of an edition, or "" if it is not known.
    calendar_note: Callable[[date], str] = lambda edition_day: ""
    missing_words: Callable[[str], Sequence[str]] = lambda text: ()  # words of an interest that no paper has
    absent_fields_note: Callable[[str], str] = lambda text: ""  # what an interest requires and no paper has
    card_fields: dict[int, dict[str, Any]] = field(default_factory=dict)  # by paper, cached by `compose`
    items: dict[tuple[str, int], DigestItem] = field(default_factory=dict)  # by interest and paper
    pinned: frozenset[int] = frozenset()  # papers that an operator puts first

    def trend(self, paper: PaperView) -> Trend:
        return self.trends.get(paper.id, NO_TREND)

    def bonus(self, paper: PaperView) -> float:
        return PINNED if paper.id in self.pinned else 0.0

    def freshness(self, paper: PaperView) -> float:
        if paper.id in self.pinned:
            return 1.0
        return math.pow(FRESH, max(0, (self.today - (paper.last_listed_on or self.today)).days))

    @cached_property
    def score_factors(self) -> Vector:
        """The factor, by column, that turns strength into the score."""
        return self._by_column(lambda paper: (1 + TREND * self.trend(paper).score) * self.freshness(paper))

    @cached_property
    def bonuses(self) -> Vector:
        """The addition to the score, by column."""
        return self._by_column(self.bonus)

    @cached_property
    def listed_ordinals(self) -> Vector:
        """The ordinal, by column, of the day a paper was last listed; 0 if it is not in the pool."""
        return self._by_column(
            lambda paper: (
                self.today if paper.id in self.pinned else paper.last_listed_on or self.today
            ).toordinal()
        )

    @cached_property
    def trending(self) -> list[tuple[int, float]]:
        """The id and the trend × freshness of every paper, pinned ones first, then best first."""
        scores = {
            n: self.trend(paper).score * self.freshness(paper) + self.bonus(paper)
            for n, paper in self.papers.items()
        }
        return sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))

    def scores(self, columns: Vector, strengths: Vector) -> Vector:
        """Return the scores of the papers in `columns`, given their strengths to a subscriber as evidence."""
        strength = relevance_of(np.maximum(strengths, 0))
        return np.asarray(strength * self.score_factors[columns] + self.bonuses[columns])

    def order_of(self, text: str, weight: float) -> Vector:
        """Return the columns that an interest would select by itself, best first; equal scores by id."""
        key = text, weight
        if key not in self._orders:
            if len(self._orders) >= MAX_CACHED_ORDERS:
                self._orders.clear()
            row = self.matches.rows[text]
            is_enough = row.enough(weight)
            columns = row.columns[is_enough]
            scores = self.scores(columns, row.strengths[is_enough] * weight)
            self._orders[key] = columns[np.argsort(-scores, kind="stable")].astype(np.int32)
        return self._orders[key]

    @cached_property
    def _orders(self) -> dict[tuple[str, float], Vector]:
        return {}

    @cached_property
    def can_compare_all(self) -> bool:
        """True if each paper in the pool has a vector, and the matrix of similarities fits into memory."""
        return self.vectors.keys() >= self.papers.keys() and len(self.matches.ids) <= MAX_COMPARED

    @cached_property
    def _vector_rows(self) -> Matrix:
        """The papers' vectors, by column. A paper without a vector has zeros."""
        size = len(next(iter(self.vectors.values()), ()))
        rows = np.zeros((len(self.matches.ids), size), np.float32)
        for number, vector in self.vectors.items():
            if (column := self.matches.columns.get(number)) is not None:
                rows[column] = vector
        return rows

    @cached_property
    def _similarities(self) -> tuple[Matrix, Vector]:
        """The similarities of papers, by column, and a mask of the rows computed so far."""
        size = len(self.matches.ids)
        return np.zeros((size, size), np.float32), np.zeros(size, bool)  # uses no memory until written to

    def similarity(self, columns: Vector, others: Matrix) -> Matrix:
        """Return the similarity of each of `columns` to the columns in its row of `others`."""
        similarities, is_computed = self._similarities
        if len(new := np.unique(columns[~is_computed[columns]])):
            similarities[new] = self._vector_rows[new] @ self._vector_rows.T
            is_computed[new] = True
        return np.asarray(similarities[columns[:, None], others])

    def _by_column(self, value_of: Callable[[PaperView], float]) -> Vector:
        row = np.zeros(len(self.matches.ids))
        row[[self.matches.columns[number] for number in self.papers]] = [*map(value_of, self.papers.values())]
        return row


@dataclass(frozen=True, slots=True)
class ScoreBreakdown:
    """A paper's score for a subscriber, and the numbers it is computed from."""

    relevance: float
    strength: float
    trend: Trend
    freshness: float
    score: float
    pinned: bool = False


@dataclass(frozen=True, eq=False)
class Ranked:
    """The papers that are relevant enough to one subscriber, and their scores."""

    request: RankingRequest
    pool: CandidatePool
    eligible: Vector  # by column: True if the paper is new to the subscriber, not muted, and listed recently
    relevant: Vector  # by column: True if the paper is eligible and relevant enough
    columns: Vector  # of the eligible papers that are relevant enough, best score first
    scores: Vector  # in the order of `columns`

    @cached_property
    def papers(self) -> list[int]:
        """The ids of the papers that are relevant enough, best score first."""
        ids: list[int] = self.pool.matches.ids[self.columns].tolist()
        return ids

    @cached_property
    def profile(self) -> Mapping[int, float]:
        """The relevance, by paper, that the subscriber's profile adds or, if negative, subtracts."""
        return _effective_profile(self.request, self.pool.matches) if self.request.profile else {}

    def reason(self, interest: str, number: int) -> CardReason:
        """Return why a paper fits an interest.

        If the profile alone would suffice, add why the paper fits the profile.
        """
        reason = self.pool.reason(interest, number) if interest else CardReason("")
        if number in self.profile and (not interest or self.profile[number] >= FLOOR):
            return reasons.with_addition(reason, self.request.profile_reason(number))
        return reason

    @property
    def muted_count(self) -> int:
        """The number of new papers that are not eligible because the subscriber muted them."""
        muted = self.request.muted - self.request.already_sent
        columns = [self.pool.matches.columns[number] for number in muted]
        return int((self.pool.listed_ordinals[columns] >= self.request.since.toordinal()).sum())

    def evidence_by_interest(self) -> Matrix:
        """Return the evidence for `papers`: a row for each interest, then one for the profile."""
        return self.evidence_of((*self.request.interests, Interest("")), self.columns)

    def evidence_of(self, interests: Sequence[Interest], columns: Vector) -> Matrix:
        """Return an (interests, columns) matrix of weighted evidence. An empty text means the profile."""
        matches = self.pool.matches
        evidence = np.zeros((len(interests), len(columns)))
        for row, interest in enumerate(interests):
            if interest.text:
                evidence[row] = matches.evidence_by_column(interest.text)[columns] * interest.weight
            elif self.profile:
                evidence[row] = matches.evidence_row(self.profile)[columns]
        return evidence

    def score_breakdown(self, paper: PaperView) -> ScoreBreakdown:
        """Return the score breakdown for any paper in the pool, even if it is not relevant enough."""
        column = self.pool.matches.columns[paper.id]
        [evidence], [strengths] = _sums(self.pool.matches, [self.request])
        relevance, strength = (relevance_of(row[column]).item() for row in (evidence, strengths))
        score = self.pool.scores(np.array([column]), strengths[[column]]).item()
        trend, freshness = self.pool.trend(paper), self.pool.freshness(paper)
        return ScoreBreakdown(
            relevance, max(strength, 0.0), trend, freshness, score, paper.id in self.pool.pinned
        )


def rank(pool: CandidatePool, requests: Sequence[RankingRequest]) -> list[Ranked]:
    """Return the papers that are relevant enough to each subscriber, in the order of `requests`.

    A subscriber's result is the same to the last digit whether they are ranked alone or with others.
    """
    batches = (
        requests[start : start + RANK_BATCH_SIZE] for start in range(0, len(requests), RANK_BATCH_SIZE)
    )
    return [ranked for batch in batches for ranked in _rank_batch(pool, batch)]


def _rank_batch(pool: CandidatePool, requests: Sequence[RankingRequest]) -> Iterator[Ranked]:
    """Yield the ranked papers of a few subscribers."""
    matches = pool.matches
    evidence, strengths = _sums(matches, requests)
    since = np.array([request.since.toordinal() for request in requests])
    eligible = pool.listed_ordinals >= since[:, None]
    for n, request in enumerate(requests):
        if barred := request.already_sent | request.muted:
            eligible[n, [matches.columns[number] for number in barred if number in matches.columns]] = False
    relevant = eligible & (evidence >= ENOUGH)
    rows, columns = np.nonzero(relevant)
    scores = pool.scores(columns, strengths[rows, columns])
    ends = np.searchsorted(rows, np.arange(len(requests) + 1)).tolist()
    for n, (start, end) in enumerate(itertools.pairwise(ends)):
        order = start + np.argsort(-scores[start:end], kind="stable")  # equal scores by id
        yield Ranked(requests[n], pool, eligible[n], relevant[n], columns[order], scores[order])


def _sums(matches: EvidenceMatrix, requests: Sequence[RankingRequest]) -> tuple[Matrix, Matrix]:
    """Return two (requests, columns) matrices: the evidence and the strengths, each summed per subscriber."""
    # Each subscriber's interests are sorted by text: sums in a different order differ in their last digits.
    interests = [
        sorted((interest.text, interest.weight) for interest in request.interests) for request in requests
    ]
    texts = dict.fromkeys(text for pairs in interests for text, _ in pairs)
    row_of = {text: row for row, text in enumerate(texts)}
    interest_rows = [row_of[text] for pairs in interests for text, _ in pairs]
    weights = [weight for pairs in interests for _, weight in pairs]
    spans = np.cumsum([0, *map(len, interests)])
    shape = (len(requests), len(texts))
    is_dense = len(texts) <= MAX_DENSE_TEXTS * len(requests)
    evidence, strengths = (
        _product(
            sparse.csr_matrix((np.array(weights, own.dtype), interest_rows, spans), shape), own, is_dense
        )
        for own in matches.matrices(texts)
    )
    for n, request in enumerate(requests):
        if request.profile:
            by_profile = matches.evidence_row(_effective_profile(request, matches))
            evidence[n] += by_profile
            strengths[n] += by_profile
    return evidence, strengths


def _product(weights: sparse.csr_matrix, evidence: sparse.csr_matrix, is_dense: bool) -> Matrix:
    """Return the product as a dense matrix. `is_dense` changes the time, but not the result.

    If subscribers share interests, making the evidence dense first takes down to a third of the time. If each
    has 20 interests of their own, it takes up to twice as long.
    """
    product = weights @ evidence.toarray() if is_dense else (weights @ evidence).toarray()
    return np.asarray(product)


def _effective_profile(request: RankingRequest, matches: EvidenceMatrix) -> dict[int, float]:
    """Return a subscriber's profile without positive relevance for papers that match their exclusions."""
    excluded = matches.excluded(request.interests)
    return {
        number: relevance
        for number, relevance in request.profile.items()
        if relevance < 0 or number not in excluded
    }
