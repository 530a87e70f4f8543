"""PURE. Select papers for a digest: quotas, the best paper of each interest, and diversity.

Each interest's best paper is selected before any others. Papers are selected one at a time: the next is the
one with the best score minus its similarity to those already selected (maximal marginal relevance: Carbonell
and Goldstein 1998).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from app.digests.ranking import ENOUGH, Matrix, Ranked, relevance_of
from app.relevance import trending
from app.types import Interest, PaperView

DIVERSITY = 0.3  # λ of MMR
CONSIDERED = 4  # candidates considered per place in a digest, if no interest has a quota

BY_PROFILE = Interest("")  # stands for the subscriber's profile, for papers that fit no interest


@dataclass(frozen=True)
class SelectedPaper:
    """A selected paper, the interest it is listed under, and its score."""

    paper: PaperView
    interest: Interest
    score: float


class SelectionOutcome(StrEnum):
    """The outcome of the selection for a paper that is relevant enough."""

    PICKED = "picked"
    QUOTA = "quota"  # the quotas of its interests are used up
    FULL = "full"  # the digest already has the maximum number of papers


@dataclass(frozen=True)
class Selection:
    """The selected papers, best score first, and the outcome for every paper that is relevant enough."""

    selected: list[SelectedPaper]
    outcomes: dict[int, SelectionOutcome]
    best_per_interest: frozenset[int]  # selected before all others, whatever their scores


def select(ranked: Ranked) -> Selection:
    """Select papers from those that are relevant enough.

    Pinned papers come first. Then every interest's best paper is selected before any others, so that an
    interest with many papers does not crowd out one with few.
    """
    evidence = ranked.evidence_by_interest()
    best: dict[str, int] = {}  # by interest text: the paper that would be first for it alone
    if ranked.papers:
        by_id = np.argsort(ranked.columns)  # the first of several equal scores is used
        by_interest, columns = evidence[:-1, by_id], ranked.columns[by_id]
        factors, bonuses = ranked.pool.score_factors[columns], ranked.pool.bonuses[columns]
        scores = np.where(by_interest >= ENOUGH, relevance_of(by_interest) * factors + bonuses, 0)
        places = zip(ranked.request.interests, scores.argmax(1).tolist(), scores.max(1).tolist(), strict=True)
        best = {interest.text: ranked.papers[by_id[place]] for interest, place, score in places if score}

    pinned = [number for number in ranked.papers if number in ranked.pool.pinned]
    unpinned = [number for number in ranked.papers if number not in ranked.pool.pinned]
    first = [number for number in unpinned if number in best.values()]
    rest = [number for number in unpinned if number not in best.values()]
    if all(interest.quota is None for interest in ranked.request.interests):
        rest = rest[: CONSIDERED * ranked.request.max_papers]
    selector = _Selector(ranked, evidence, best, [*pinned, *first, *rest])
    selector.select_from(pinned)
    selector.select_from(first)
    selector.select_from(rest)
    outcomes = dict.fromkeys(ranked.papers, SelectionOutcome.FULL) | dict.fromkeys(
        selector.over_quota, SelectionOutcome.QUOTA
    )
    outcomes |= dict.fromkeys(selector.selected, SelectionOutcome.PICKED)
    by_score = sorted(selector.selected.values(), key=lambda selected: (-selected.score, selected.paper.id))
    return Selection(by_score, outcomes, frozenset([*pinned, *first]))


class _Selector:
    """The state of the selection for one digest."""

    def __init__(
        self, ranked: Ranked, evidence: Matrix, best: Mapping[str, int], considered: Sequence[int]
    ) -> None:
        self._ranked, self._best = ranked, best
        self._scores = dict(zip(ranked.papers, ranked.scores.tolist(), strict=True))
        self._evidence = dict(zip(ranked.papers, evidence.T.tolist(), strict=True))
        vectors, rows = ranked.pool.vectors, np.zeros((len(considered), 0))
        if considered and all(number in vectors for number in considered):
            rows = np.stack([vectors[number] for number in considered])
        self._row_of = {number: row for row, number in enumerate(considered)}
        self._similarity = rows @ rows.T
        self._similarity_to_selected = np.zeros(len(considered))  # to the most similar selected paper
        self.selected: dict[int, SelectedPaper] = {}
        self.over_quota = set[int]()

    def select_from(self, numbers: Sequence[int]) -> None:
        """Select from these papers in MMR order until the digest is full.

        The next paper is the one with the best score minus its similarity to the papers selected so far.
        """
        scores = [self._scores[number] for number in numbers]
        rows = np.array([self._row_of[number] for number in numbers], np.intp)
        weighted = np.array(scores) / max(scores, default=1) * (1 - DIVERSITY)
        for _ in numbers:
            if len(self.selected) == self._ranked.request.max_papers:
                return
            next_best = int((weighted - DIVERSITY * self._similarity_to_selected[rows]).argmax())
            weighted[next_best] = -np.inf
            number = numbers[next_best]
            if interest := self._best_interest_with_room(number):
                paper = self._ranked.pool.papers[number]
                self.selected[number] = SelectedPaper(paper, interest, self._scores[number])
                similarity = self._similarity[self._row_of[number]]
                self._similarity_to_selected = np.maximum(self._similarity_to_selected, similarity)
            else:
                self.over_quota.add(number)

    def _best_interest_with_room(self, number: int) -> Interest | None:
        """Return the interest (or BY_PROFILE) to list a paper under: the best fit with room in its quota.

        Another interest is eligible if it has at least half the evidence of the strongest, or enough by
        itself. One place in each quota is reserved for the interest's best paper.
        """
        evidence, interests = self._evidence[number], (*self._ranked.request.interests, BY_PROFILE)
        least = min(max(evidence) / 2, ENOUGH)
        # Weights are divided out: they rank papers, but do not change which interest a paper fits best.
        pairs = zip(evidence, interests, strict=True)
        eligible = [(value / interest.weight, interest) for value, interest in pairs if value >= least]
        for _, interest in sorted(eligible, key=lambda pair: (-pair[0], pair[1].text)):
            if interest.quota is None:
                return interest
            best = self._best.get(interest.text, number)
            reserved = best not in self.selected and best != number
            used = sum(selected.interest == interest for selected in self.selected.values())
            if used + reserved < interest.quota:
                return interest
        return None


def select_trending(ranked: Ranked) -> Iterator[SelectedPaper]:
    """Yield the new papers that the subscriber did not exclude, mute or dislike, most trending first."""
    pool = ranked.pool
    excluded = pool.matches.excluded(ranked.request.interests)
    for number, score in pool.trending:
        is_acceptable = number not in excluded and ranked.profile.get(number, 0) >= 0
        if is_acceptable and ranked.eligible[pool.matches.columns[number]]:
            yield SelectedPaper(pool.papers[number], BY_PROFILE, score)


def select_beyond_interests(ranked: Ranked, selected: Sequence[SelectedPaper]) -> list[SelectedPaper]:
    """Return pinned and well-voted papers for the places that the interests leave free.

    Papers that are relevant enough are not included, even if a quota left them out. The papers get a score of
    0, so that the highest-scored paper in a digest is always one that fits the subscriber.
    """
    room = min(ranked.request.max_trending, ranked.request.max_papers - len(selected))
    relevant = set(ranked.papers)
    well_voted = (
        replace(choice, score=0.0)
        for choice in select_trending(ranked)
        if choice.paper.id not in relevant
        and (choice.paper.id in ranked.pool.pinned or trending.is_well_voted(ranked.pool.trend(choice.paper)))
    )
    return list(itertools.islice(well_voted, room))
