"""Types of an explanation. Their fields are the JSON of `explain --json` and of the API."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum

from app.digests.ranking import ScoreBreakdown
from app.digests.selection import SelectionOutcome
from app.relevance.matching import MatchDetails
from app.storage.models import DeliveryState, SubscriberState
from app.types import Interest, Match


@dataclass(frozen=True, slots=True)
class ReaderNow:
    """Hold the facts about a reader that decide whether and when anything may be sent."""

    id: int
    email: str
    state: SubscriberState | None  # at the time of the explanation; None: not signed up yet
    paused_until: datetime | None
    suppression_reason: str  # why the address is suppressed; empty if it is not
    next_due_at: datetime | None  # None, too, for an explanation of another time than now
    min_papers: int
    max_papers: int


@dataclass(frozen=True, slots=True)
class PaperNow:
    """Hold the facts about a paper: where and when it was listed, and whether it was withdrawn."""

    id: int
    requested_id: int  # differs from `id` if that paper was merged into this one
    title: str
    arxiv_id: str
    withdrawn_at: datetime | None
    listings: tuple[tuple[date, str], ...]  # day and source, oldest first


@dataclass(frozen=True, slots=True)
class PastDelivery:
    """Hold a delivery in the ledger whose digest has the paper."""

    delivery_id: int
    edition: str
    state: DeliveryState
    state_reason: str
    hold_reason: str  # why its edition is held back; empty if it is not
    possibly_delivered: bool
    created_at: datetime
    sent_at: datetime | None
    interest: str  # under which the paper stood
    reason: str
    trend: str
    score: float


@dataclass(frozen=True, slots=True)
class InterestMatch:
    """Hold how the paper fits one of the reader's interests."""

    interest: Interest
    details: MatchDetails
    weighted: float  # its relevance, by the weight of the interest: 1 − (1 − relevance)^weight


@dataclass(frozen=True, slots=True)
class HigherRanked:
    """Hold a paper with a better score."""

    id: int
    title: str
    score: float


class OutrankedBy(StrEnum):
    """Name the reason for selecting a paper with a lower score instead."""

    VARIETY = "variety"  # this paper is similar to a selected one
    BEST_OF_INTEREST = "best_of_interest"  # the other is the best paper of an interest


@dataclass(frozen=True, slots=True)
class RankPosition:
    """Hold the position of the paper among the candidates of the next digest."""

    breakdown: ScoreBreakdown  # relevance to the reader, trend, freshness and score
    outcome: SelectionOutcome | None  # None: not relevant enough, or sent before
    position: int | None  # by score among the relevant papers, from 1
    relevant_papers: int  # the number of relevant papers
    candidates: int  # the number of papers that are new to the reader
    higher_ranked: tuple[HigherRanked, ...]  # the best papers with better scores
    similarity: float  # cosine similarity to the most similar paper selected before it
    similar_to: str  # the title of that paper
    outranked_by: OutrankedBy | None  # if a paper with a lower score was selected instead


@dataclass(frozen=True, slots=True)
class Card:
    """Hold the paper's card in the next digest."""

    interest: str
    reason: str
    trend: str
    score: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """Hold the explanation in one sentence, and every fact and number behind it."""

    verdict: str
    at: datetime
    reader: ReaderNow
    paper: PaperNow
    deliveries: tuple[PastDelivery, ...]  # newest first
    floor: float
    interests: tuple[InterestMatch, ...]
    profile: Match | None
    ineligible_reason: str  # why it cannot be in the next digest; empty if it can
    rank: RankPosition | None  # of a candidate
    card: Card | None  # if the next digest has the paper
    skip_reason: str  # why there would be no next digest; empty if there would be one
