"""PURE. Select papers for a digest: quotas, the best paper of each interest, and diversity.

Pinned papers are selected first, then each interest's best paper, then the others. Within each group, papers
are selected one at a time: the next is the one with the best score minus its similarity to those already
selected (maximal marginal relevance: Carbonell and Goldstein 1998).
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

import numpy as np

from app.digests.ranking import ENOUGH, CandidatePool, Matrix, Ranked, Vector
from app.relevance import trending
from app.types import Interest, PaperView

DIVERSITY = 0.3  # 1 − λ of MMR: the weight of similarity
CONSIDERED = 4  # candidates considered per place in a digest, if no interest has a quota

BY_PROFILE = Interest("")  # stands for the subscriber's profile, for papers that fit no interest


class SelectedPaper(NamedTuple):
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
    """The selected papers, best score first, and what the selection left out."""

    ranked: Ranked
    selected: list[SelectedPaper]
    first_choices: frozenset[int]  # pinned papers and each interest's best one, whatever their scores
    over_quota: frozenset[int] = frozenset()

    @cached_property
    def outcomes(self) -> dict[int, SelectionOutcome]:
        """The outcome for every paper that is relevant enough."""
        outcomes = dict.fromkeys(self.ranked.papers, SelectionOutcome.FULL)
        outcomes |= dict.fromkeys(self.over_quota, SelectionOutcome.QUOTA)
        return outcomes | {selected.paper.id: SelectionOutcome.PICKED for selected in self.selected}

    @property
    def crowded_interests(self) -> set[str]:
        """The texts of the interests that match papers for which the digest has no room."""
        is_left_out = [self.outcomes[number] is SelectionOutcome.FULL for number in self.ranked.papers]
        crowded = (self.ranked.evidence_by_interest()[:, is_left_out] >= ENOUGH).any(axis=1)
        return {
            interest.text
            for interest, is_crowded in zip(self.ranked.request.interests, crowded, strict=False)
            if is_crowded
        }


def select(ranked: Ranked) -> Selection:
    """Select papers from those that are relevant enough.

    Pinned papers come first. Then every interest's best paper is selected before any others, so that an
    interest with many papers does not crowd out one with few.
    """
    return select_for_all([ranked])[0]


def select_for_all(all_ranked: Sequence[Ranked]) -> list[Selection]:
    """Return the result of `select` for each subscriber of the same pool, in order.

    Most subscribers set no quotas. Their papers are selected together, because numpy takes about as long for
    one subscriber as for a hundred.
    """
    together = [ranked for ranked in all_ranked if ranked.pool.can_compare_all and not _has_quota(ranked)]
    selections = iter(_selections(together, _select_columns(together)) if together else ())
    is_together = set(map(id, together))
    return [
        next(selections) if id(ranked) in is_together else _select_by_quota(ranked) for ranked in all_ranked
    ]


def _has_quota(ranked: Ranked) -> bool:
    return any(interest.quota is not None for interest in ranked.request.interests)


def _best_columns(ranked: Ranked) -> dict[str, int]:
    """Return the column of each interest's best relevant paper, by the text of the interest."""
    best = {}
    for interest in ranked.request.interests:
        order = ranked.pool.order_of(interest.text, interest.weight)
        if len(order) and ranked.relevant[column := order[ranked.relevant[order].argmax()]]:
            best[interest.text] = int(column)
    return best


# --- without quotas


def _select_columns(all_ranked: Sequence[Ranked]) -> list[tuple[list[int], list[int]]]:
    """Return two lists of places in `ranked.columns` per subscriber: the selected, and those tried first."""
    considered = [_places_to_consider(ranked) for ranked in all_ranked]
    shape = len(all_ranked), max(len(places) for places, *_ in considered)
    columns, scores = np.zeros(shape, np.intp), np.zeros(shape)
    for row, (ranked, (places, *_)) in enumerate(zip(all_ranked, considered, strict=True)):
        columns[row, : len(places)] = ranked.columns[places]
        scores[row, : len(places)] = ranked.scores[places]
    ends = np.array([(pinned, first, len(places)) for places, pinned, first in considered])
    room = np.array([ranked.request.max_papers for ranked in all_ranked])
    position = np.arange(shape[1])
    is_selected = np.zeros(shape, bool)
    similarity = np.zeros(shape)  # to the most similar selected paper
    pool = all_ranked[0].pool
    for begin, end in itertools.pairwise((np.zeros(len(ends), int), *ends.T)):
        group = (position >= begin[:, None]) & (position < end[:, None])
        _select_group(pool, columns, np.where(group, scores, -np.inf), room, is_selected, similarity)
    return [
        ([places[at] for at in np.flatnonzero(chosen).tolist()], places[:first])
        for chosen, (places, _, first) in zip(is_selected, considered, strict=True)
    ]


def _places_to_consider(ranked: Ranked) -> tuple[list[int], int, int]:
    """Return the places in `ranked.columns` of pinned papers, each interest's best paper, and more.

    Also return the positions at which the pinned papers and the best papers end.
    """
    bonuses = ranked.pool.bonuses
    pinned = np.flatnonzero(bonuses[ranked.columns]).tolist() if ranked.pool.pinned else []
    best = {int((ranked.columns == column).argmax()) for column in _best_columns(ranked).values()}
    first = [*pinned, *sorted(best.difference(pinned))]
    most = CONSIDERED * ranked.request.max_papers
    rest = [place for place in range(min(len(ranked.columns), most + len(first))) if place not in first]
    return [*first, *rest[:most]], len(pinned), len(first)


def _select_group(
    pool: CandidatePool,
    columns: Matrix,
    scores: Matrix,
    room: Vector,
    is_selected: Matrix,
    similarity: Matrix,
) -> None:
    """Select in MMR order from the papers with finite scores, for all subscribers (rows) at once.

    Update `is_selected` and `similarity`.
    """
    if not scores.size:  # nobody has a relevant paper
        return
    highest = scores.max(1, initial=-np.inf)
    weighted = scores / np.where(highest > 0, highest, 1)[:, None] * (1 - DIVERSITY)
    rows = np.arange(len(columns))
    while True:
        has_room = is_selected[rows].sum(1) < room[rows]
        values = weighted[rows] - DIVERSITY * similarity[rows]
        next_best = values.argmax(1)
        is_open = has_room & (values[np.arange(len(rows)), next_best] > -np.inf)
        rows, next_best = rows[is_open], next_best[is_open]
        if not len(rows):
            return
        weighted[rows, next_best] = -np.inf
        is_selected[rows, next_best] = True
        to_selected = pool.similarity(columns[rows, next_best], columns[rows])
        similarity[rows] = np.maximum(similarity[rows], to_selected)


def _selections(
    all_ranked: Sequence[Ranked], picks: Sequence[tuple[Sequence[int], Sequence[int]]]
) -> list[Selection]:
    """Return each subscriber's selected places as papers, each listed under the interest that it fits best.

    `picks` is the result of `_select_columns`.
    """
    all_columns = [ranked.columns[places] for ranked, (places, _) in zip(all_ranked, picks, strict=True)]
    all_interests = [
        sorted((BY_PROFILE, *ranked.request.interests), key=lambda interest: interest.text)
        for ranked in all_ranked
    ]
    all_fits = _best_fits(all_ranked, all_columns, all_interests)
    pool, selections = all_ranked[0].pool, []
    papers, ids = pool.papers, pool.matches.ids
    for ranked, (places, first), columns, interests, fits in zip(
        all_ranked, picks, all_columns, all_interests, all_fits, strict=True
    ):
        numbers, scores = ids[columns].tolist(), ranked.scores[places].tolist()
        selected = [
            SelectedPaper(papers[number], interests[row], score)
            for number, row, score in zip(numbers, fits, scores, strict=False)
        ]
        selected.sort(key=lambda choice: (-choice.score, choice.paper.id))
        selections.append(Selection(ranked, selected, frozenset(ids[ranked.columns[first]].tolist())))
    return selections


def _best_fits(
    all_ranked: Sequence[Ranked], all_columns: Sequence[Vector], all_interests: Sequence[Sequence[Interest]]
) -> list[list[int]]:
    """Return a list for each subscriber: the row of the interest to list each column under.

    The lists are padded at the end. See `_best_interest_with_room`. The arrays are subscribers × interests ×
    columns, padded with zeros.
    """
    matches = all_ranked[0].pool.matches
    texts = dict.fromkeys(interest.text for own in all_interests for interest in own[1:])
    row_of = {text: row for row, text in enumerate(texts, start=1)}
    used = np.unique(np.concatenate(all_columns))
    by_interest = np.zeros((1 + len(texts), len(used)))  # the first row is empty
    matches.matrices(texts)[0][:, used].toarray(out=by_interest[1:])
    most = max(map(len, all_interests)), max(map(len, all_columns))
    rows, weights = (np.zeros((len(all_ranked), most[0]), kind) for kind in (np.intp, float))
    columns = np.zeros((len(all_ranked), most[1]), np.intp)
    for n, (own, interests) in enumerate(zip(all_columns, all_interests, strict=True)):
        columns[n, : len(own)] = own
        matched = interests[1:]  # the first one is the profile
        rows[n, 1 : len(interests)] = [row_of[interest.text] for interest in matched]
        weights[n, 1 : len(interests)] = [interest.weight for interest in matched]
    places = np.searchsorted(used, columns)
    evidence = by_interest[rows[:, :, None], places[:, None, :]] * weights[:, :, None]
    for n, ranked in enumerate(all_ranked):
        if ranked.profile:
            evidence[n, 0] = matches.evidence_row(ranked.profile)[columns[n]]
    least = np.minimum(evidence.max(1, keepdims=True) / 2, ENOUGH)
    by_weight = evidence / np.where(weights, weights, 1.0)[:, :, None]
    fits: list[list[int]] = np.where(evidence >= least, by_weight, -np.inf).argmax(1).tolist()
    return fits


# --- with quotas


def _select_by_quota(ranked: Ranked) -> Selection:
    evidence = ranked.evidence_by_interest()
    ids = ranked.pool.matches.ids
    best = {text: int(ids[column]) for text, column in _best_columns(ranked).items()}
    pinned = [number for number in ranked.papers if number in ranked.pool.pinned]
    unpinned = [number for number in ranked.papers if number not in ranked.pool.pinned]
    first = [number for number in unpinned if number in best.values()]
    rest = [number for number in unpinned if number not in best.values()]
    if not _has_quota(ranked):
        rest = rest[: CONSIDERED * ranked.request.max_papers]
    selector = _Selector(ranked, evidence, best, [*pinned, *first, *rest])
    selector.select_from(pinned)
    selector.select_from(first)
    selector.select_from(rest)
    by_score = sorted(selector.selected.values(), key=lambda selected: (-selected.score, selected.paper.id))
    return Selection(ranked, by_score, frozenset([*pinned, *first]), frozenset(selector.over_quota))


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
        """Return the interest (or BY_PROFILE) to list a paper under: the one that it fits best.

        Another interest is eligible if it has at least half the evidence of the strongest one, or enough
        by itself. If the quota of the best fit is used up, the paper moves only to another interest that
        would select it by itself, and not to the likes: the subscriber limited the papers of this subject.
        One place in each quota is reserved for the interest's best paper.
        """
        evidence, interests = self._evidence[number], (*self._ranked.request.interests, BY_PROFILE)
        least = min(max(evidence) / 2, ENOUGH)
        # Weights are divided out: they rank papers, but do not change which interest a paper fits best.
        pairs = zip(evidence, interests, strict=True)
        eligible = [(value / interest.weight, value, interest) for value, interest in pairs if value >= least]
        is_best_full = False
        for _, value, interest in sorted(eligible, key=lambda fit: (-fit[0], fit[2].text)):
            if is_best_full and (value < ENOUGH or interest is BY_PROFILE):
                continue
            if interest.quota is None:
                return interest
            best = self._best.get(interest.text, number)
            reserved = best not in self.selected and best != number
            used = sum(selected.interest == interest for selected in self.selected.values())
            if used + reserved < interest.quota:
                return interest
            is_best_full = True
        return None


def select_trending(ranked: Ranked) -> Iterator[SelectedPaper]:
    """Yield the new papers that the subscriber did not exclude, mute or dislike, strongest trend first."""
    pool = ranked.pool
    excluded = pool.matches.excluded(ranked.request.interests)
    for number, score in pool.trending:
        is_acceptable = number not in excluded and ranked.profile.get(number, 0) >= 0
        if is_acceptable and ranked.eligible[pool.matches.columns[number]]:
            yield SelectedPaper(pool.papers[number], BY_PROFILE, score)


def select_beyond_interests(ranked: Ranked, selected: Sequence[SelectedPaper]) -> list[SelectedPaper]:
    """Return pinned and well-voted papers for the places that the interests leave free.

    If the subscriber has no interests, fill all free places, also with papers that are not well-voted. Papers
    that are relevant enough are not included, even if a quota left them out. The papers get a score of 0, so
    that the highest-scored paper in a digest is always one that fits the subscriber.
    """
    request, pool = ranked.request, ranked.pool
    room = request.max_papers - len(selected)
    if request.interests:
        room = min(request.max_trending, room)
    if room <= 0:
        return []
    relevant = set(ranked.papers)
    trending_papers = (
        choice._replace(score=0.0)
        for choice in select_trending(ranked)
        if choice.paper.id not in relevant
        and (
            not request.interests
            or choice.paper.id in pool.pinned
            or trending.is_well_voted(pool.trend(choice.paper))
        )
    )
    return list(itertools.islice(trending_papers, room))
