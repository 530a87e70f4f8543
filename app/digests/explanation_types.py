"""The types that make up an explanation. Their fields define the JSON of `explain --json` and the API."""

from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum

from app.digests.ranking import ScoreBreakdown
from app.digests.selection import SelectionOutcome
from app.relevance.matching import MatchDetails
from app.storage.models import DeliveryState, SubscriberState
from app.types import Interest, Match


@dataclass(frozen=True, slots=True)
class SubscriberNow:
    """The facts about a subscriber that determine whether and when a digest may be sent."""

    id: int
    email: str
    state: SubscriberState | None  # at the time of the explanation; None: not signed up yet
    zone: str
    paused_until: datetime | None
    suppression_reason: str  # why the address is suppressed; empty if it is not
    next_due_at: datetime | None  # also None if the explanation is for a time other than now
    min_papers: int
    max_papers: int


@dataclass(frozen=True, slots=True)
class PaperNow:
    """The facts about a paper: where and when it was listed, and whether it was withdrawn or hidden."""

    id: int
    requested_id: int  # differs from `id` if that paper was merged into this one
    title: str
    arxiv_id: str
    withdrawn_at: datetime | None
    hidden_at: datetime | None  # by an operator
    listings: tuple[tuple[date, str], ...]  # day and source, oldest first


@dataclass(frozen=True, slots=True)
class PastDelivery:
    """A delivery in the ledger whose digest contains the paper."""

    delivery_id: int
    edition: str
    state: DeliveryState
    state_reason: str
    hold_reason: str  # why it is held back; empty if it is not
    possibly_delivered: bool
    next_attempt_at: datetime | None  # None if it is held or no further attempt is planned
    created_at: datetime
    sent_at: datetime | None
    interest: str  # the interest that the paper was listed under
    reason: str
    trend: str
    score: float


@dataclass(frozen=True, slots=True)
class InterestMatch:
    """The paper's match with one of the subscriber's interests."""

    interest: Interest
    details: MatchDetails
    weighted: float  # the relevance, adjusted by the interest's weight: 1 − (1 − relevance)^weight


@dataclass(frozen=True, slots=True)
class HigherRanked:
    """A paper with a higher score."""

    id: int
    title: str
    score: float


class OutrankedBy(StrEnum):
    """The reason why a paper with a lower score was selected instead."""

    VARIETY = "variety"  # this paper is similar to a selected one
    BEST_OF_INTEREST = "best_of_interest"  # the other paper is the best for one of the interests


@dataclass(frozen=True, slots=True)
class RankPosition:
    """The paper's position among the candidates for the next digest."""

    breakdown: ScoreBreakdown  # relevance to the subscriber, trend, freshness and score
    outcome: SelectionOutcome | None  # None: not relevant enough, or sent before
    position: int | None  # by score among the relevant papers, from 1
    relevant_papers: int  # the number of relevant papers
    candidates: int  # the number of papers that are new to the subscriber
    higher_ranked: tuple[HigherRanked, ...]  # the highest-scored of the papers ranked above it
    similarity: float  # cosine similarity to the most similar paper selected before it
    similar_to: str  # the title of that paper
    outranked_by: OutrankedBy | None  # why a lower-scored paper was selected; None if none was


@dataclass(frozen=True, slots=True)
class Card:
    """The paper's card in a digest."""

    interest: str
    reason: str
    trend: str
    score: float


@dataclass(frozen=True, slots=True)
class PreferenceChange:
    """A change of preferences since the explained time. The scores use the changed preferences."""

    at: datetime
    preferences: tuple[str, ...]  # names, as in the API; empty if a new sign-up replaced all of them


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation in one sentence, with every fact and number behind it."""

    verdict: str
    note: str  # how the preferences may differ from those at the explained time; empty if they do not
    at: datetime
    changes_since: tuple[PreferenceChange, ...]  # since `at` or the digest with the paper, oldest first
    subscriber: SubscriberNow
    paper: PaperNow
    deliveries: tuple[PastDelivery, ...]  # newest first
    floor: float
    interests: tuple[InterestMatch, ...]
    profile: Match | None
    ineligible_reason: str  # why it cannot be in the next digest; empty if it can
    rank: RankPosition | None  # None if the paper is not a candidate
    card: Card | None  # None if the next digest does not contain the paper
    skip_reason: str  # why there would be no next digest; empty if there would be one
