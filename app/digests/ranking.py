"""PURE. Readers × papers → what is relevant enough to each reader, the best score first.

Evidence is −ln(1 − relevance), so that a paper's relevance to a reader, 1 − Π (1 − r)^w over their interests
and what they liked, is 1 − exp(−Σ w·evidence): one product of readers × interests and interests × papers says
it of many readers at once. A paper is sent from FLOOR on; its score is relevance × (1 + TREND·trend) ×
FRESH^days since it was listed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from app.types import EmptyDigestPolicy, Interest, PaperView, SkippedEdition, Trend

Vector = np.ndarray[Any, Any]
Matrix = np.ndarray[Any, Any]

FLOOR = 0.33
TREND = 0.2
FRESH = 0.9
CERTAIN = 1 - 1e-9  # no relevance counts for more: its evidence is a number
NO_TREND = Trend(0.0, "")


def evidence_of(relevances: Iterable[float]) -> Vector:
    """Evidence for relevances up to 1; a relevance under 0 speaks against a paper."""
    return np.asarray(-np.log1p(-np.minimum([*relevances], CERTAIN)))


def relevance_of(evidence: Vector) -> Vector:
    """Relevances for evidence, added up or not."""
    return np.asarray(-np.expm1(-evidence))


ENOUGH = evidence_of([FLOOR]).item()


class EvidenceMatrix:
    """What interests say of the candidates, as far as they were asked: a row of evidence for each."""

    def __init__(self, papers: Iterable[int]) -> None:
        self.ids = np.array(sorted(papers), np.int64)  # of the columns
        self.columns = {number: column for column, number in enumerate(self.ids.tolist())}
        self.places: dict[str, int] = {}  # of the rows, by the text of the interest
        self.evidence = np.zeros((1, len(self.ids)))  # rows that have no place yet are empty
        self._excluded: dict[str, frozenset[int]] = {}

    def add(self, text: str, hits: Mapping[int, float], excluded: frozenset[int] = frozenset()) -> None:
        """File an interest: relevance by paper, and the papers that its exclusions forbid."""
        place = self.places.setdefault(text, len(self.places))
        if place == len(self.evidence):  # doubled, so that filing many copies few
            larger = np.zeros((2 * place, len(self.ids)))  # takes no memory before it is written to
            larger[:place] = self.evidence
            self.evidence = larger
        self.evidence[place] = self.row(hits)
        self._excluded[text] = excluded

    def row(self, hits: Mapping[int, float]) -> Vector:
        """Evidence by column, from relevance by paper."""
        row = np.zeros(len(self.ids))
        row[[self.columns[number] for number in hits]] = evidence_of(hits.values())
        return row

    def excluded(self, wishes: Iterable[Interest]) -> frozenset[int]:
        """What an exclusion of any interest speaks against: only an interest of its own may bring it."""
        return frozenset[int]().union(*(self._excluded[wish.text] for wish in wishes))


@dataclass(frozen=True)
class RankingRequest:
    """What a reader asked for, and had."""

    wishes: tuple[Interest, ...]
    min_papers: int = 1
    max_papers: int = 10
    when_empty: EmptyDigestPolicy = EmptyDigestPolicy.SKIP
    silences: tuple[SkippedEdition, ...] = ()  # of late, since their last digest
    unread: tuple[str, ...] = ()  # interests that nobody can understand any more
    taste: Mapping[int, float] = field(default_factory=dict)  # relevance by paper; under 0: rather not
    why_liked: Callable[[int], str] = str  # the reason why a paper is to their taste
    had: frozenset[int] = frozenset()  # papers that they were promised before: never again
    muted: frozenset[int] = frozenset()  # papers that say what they never want to see
    beyond: int = 0  # at most so many papers that trend beyond their interests
    since: date = date.min  # what was last listed before is too old
    leaving: date = date.min  # what was last listed before is too old when their next digest is made


@dataclass(frozen=True, eq=False)
class CandidatePool:
    """What there is to pick from: the candidates, how they trend, and what every interest says of them."""

    papers: Mapping[int, PaperView]  # each has a column of `matches`
    trends: Mapping[int, Trend]
    matches: EvidenceMatrix
    reason: Callable[[str, int], str]  # why a paper fits an interest
    vectors: Mapping[int, Vector]  # unit rows by paper, whose products are likenesses
    today: date
    quiet: str = ""  # why the sources are silent today, if they are
    missing: Callable[[str], Sequence[str]] = lambda text: ()  # the words of an interest that no paper has
    shown: dict[int, dict[str, Any]] = field(default_factory=dict)  # what cards show, worked out once

    def trend(self, paper: PaperView) -> Trend:
        return self.trends.get(paper.id, NO_TREND)

    def freshness(self, paper: PaperView) -> float:
        return math.pow(FRESH, max(0, (self.today - (paper.last_listed_on or self.today)).days))

    @cached_property
    def worth(self) -> Vector:
        """By column, what the relevance of a paper is multiplied by."""
        return self._row(lambda paper: (1 + TREND * self.trend(paper).score) * self.freshness(paper))

    @cached_property
    def listed(self) -> Vector:
        """By column, the ordinal of the day on which a paper was last listed; 0 where it is not here."""
        return self._row(lambda paper: (paper.last_listed_on or self.today).toordinal())

    @cached_property
    def trending(self) -> list[tuple[int, float]]:
        """trend × freshness of every paper, by id, the best first."""
        places = {n: self.trend(paper).score * self.freshness(paper) for n, paper in self.papers.items()}
        return sorted(places.items(), key=lambda pair: (-pair[1], pair[0]))

    def _row(self, figure: Callable[[PaperView], float]) -> Vector:
        row = np.zeros(len(self.matches.ids))
        row[[self.matches.columns[number] for number in self.papers]] = [*map(figure, self.papers.values())]
        return row


@dataclass(frozen=True, slots=True)
class ScoreBreakdown:
    """What a paper is to a reader."""

    relevance: float
    trend: Trend
    freshness: float
    score: float


@dataclass(frozen=True, eq=False)
class Ranked:
    """What is relevant enough to one reader, and how every paper came to its place."""

    reader: RankingRequest
    shelf: CandidatePool
    evidence: Vector  # by column, whether or not it is enough
    open: Vector  # by column: whether the paper is new to the reader, not muted, and listed lately
    columns: Vector  # of the open papers that are relevant enough, the best score first
    scores: Vector  # theirs

    @cached_property
    def papers(self) -> list[int]:
        """The ids of those that are relevant enough, the best score first."""
        ids: list[int] = self.shelf.matches.ids[self.columns].tolist()
        return ids

    @cached_property
    def taste(self) -> Mapping[int, float]:
        """What the reader's taste adds or takes away, as relevance by paper."""
        return _counting(self.reader, self.shelf.matches)

    @property
    def kept_out(self) -> int:
        """How many new papers are not open to the reader, because of what they muted."""
        columns = [self.shelf.matches.columns[number] for number in self.reader.muted - self.reader.had]
        return int((self.shelf.listed[columns] >= self.reader.since.toordinal()).sum())

    def parts(self) -> Matrix:
        """The evidence for `papers` from each interest, in the reader's order, and from their taste."""
        matches, wishes = self.shelf.matches, self.reader.wishes
        places = np.array([matches.places[wish.text] for wish in wishes], np.intp)
        weights = np.array([wish.weight for wish in wishes], float)
        own = matches.evidence[places[:, None], self.columns] * weights[:, None]
        return np.vstack([own, matches.row(self.taste)[self.columns]])

    def weigh(self, paper: PaperView) -> ScoreBreakdown:
        """Every number of a paper of the shelf, whether or not it is relevant enough."""
        column = self.shelf.matches.columns[paper.id]
        relevance = relevance_of(self.evidence[[column]])
        score = relevance * self.shelf.worth[column]
        trend, freshness = self.shelf.trend(paper), self.shelf.freshness(paper)
        return ScoreBreakdown(relevance.item(), trend, freshness, score.item())


def rank(shelf: CandidatePool, readers: Sequence[RankingRequest]) -> list[Ranked]:
    """What is relevant enough to each reader: the same, to the last digit, alone as among others."""
    matches = shelf.matches
    evidence = np.asarray(_weights(readers, matches) @ matches.evidence)
    since = np.array([reader.since.toordinal() for reader in readers])
    wanted = shelf.listed >= since[:, None]
    for n, reader in enumerate(readers):
        if reader.taste:
            evidence[n] += matches.row(_counting(reader, matches))
        if never := reader.had | reader.muted:
            wanted[n, [matches.columns[number] for number in never if number in matches.columns]] = False
    rows, columns = np.nonzero(wanted & (evidence >= ENOUGH))
    scores = relevance_of(evidence[rows, columns]) * shelf.worth[columns]
    order = np.lexsort((columns, -scores, rows))  # equal scores by id
    ends = np.searchsorted(rows, np.arange(len(readers) + 1))
    inside = [order[start:end] for start, end in itertools.pairwise(ends.tolist())]
    return [
        Ranked(reader, shelf, evidence[n], wanted[n], columns[inside[n]], scores[inside[n]])
        for n, reader in enumerate(readers)
    ]


def _weights(readers: Sequence[RankingRequest], matches: EvidenceMatrix) -> sparse.csr_matrix:
    """Readers × interests; each reader's by text, since sums in another order differ in their last digits."""
    wishes = [sorted((wish.text, wish.weight) for wish in reader.wishes) for reader in readers]
    ends = np.cumsum([0, *map(len, wishes)])
    places = [matches.places[text] for each in wishes for text, _ in each]
    weights = np.array([weight for each in wishes for _, weight in each], float)
    return sparse.csr_matrix((weights, places, ends), (len(readers), len(matches.evidence)))


def _counting(reader: RankingRequest, matches: EvidenceMatrix) -> dict[int, float]:
    """A reader's taste, which speaks for nothing that an exclusion speaks against."""
    muted = matches.excluded(reader.wishes)
    return {number: says for number, says in reader.taste.items() if says < 0 or number not in muted}
