"""Load what digests are built from: the subscriber, their interests and feedback, papers sent before."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import NamedTuple

from sqlmodel import Session

from app import subscribers
from app.delivery import ledger
from app.papers import canonical_rows
from app.storage.models import Subscriber, SubscriberState
from app.types import Cadence, EmptyDigestPolicy, Feedback, Interest, SkippedEdition


class DueSubscriber(NamedTuple):
    """The columns of a subscriber that planning uses. Plain rows load far faster than objects."""

    id: int
    state: SubscriberState
    cadence: Cadence
    weekday: int
    hour: int
    zone: str
    min_papers: int
    max_papers: int
    when_empty: EmptyDigestPolicy
    max_trending: int
    paper_updates: bool
    muted: Sequence[str]
    next_due_at: datetime | None
    consent_version: str


@dataclass(frozen=True, slots=True)
class DigestRequest:
    """A subscriber, their interests and feedback, and the papers that they must not be sent again."""

    subscriber: Subscriber | DueSubscriber
    interests: Sequence[Interest] = ()
    feedback: Sequence[Feedback] = ()
    already_promised: frozenset[int] = frozenset()
    skipped_editions: Sequence[SkippedEdition] = ()  # since the subscriber's last digest
    lost_since: date | None = None  # when the first digest since the last delivered one was composed
    following_due: datetime | None = None  # when the next digest is due; None: computed from the cadence


def load(
    session: Session,
    rows: Iterable[Subscriber | DueSubscriber],
    lost_since: Mapping[int, date],
    since: datetime,
    until: datetime | None = None,
) -> list[DigestRequest]:
    """Load each subscriber's interests, feedback up to `until`, and papers promised from `since` to `until`.

    Papers that a subscriber gave feedback on are not sent either, because the subscriber knows them.
    `lost_since` is the result of `covered_days.first_undelivered`.
    """
    by_id = {subscriber.id or 0: subscriber for subscriber in rows}
    interests = subscribers.interests_of(session, by_id)
    feedback = subscribers.feedback_for_ranking(session, [*by_id])
    if until:
        feedback = {n: tuple(item for item in items if item.at <= until) for n, items in feedback.items()}
    promised = already_promised(session, by_id, since, until)
    skipped = ledger.skipped_since_last_digest(session, by_id, since)
    rated = {
        n: {item.paper_id for item in items if item.paper_id is not None} for n, items in feedback.items()
    }
    return [
        DigestRequest(
            subscriber,
            interests.get(number, ()),
            feedback.get(number, ()),
            promised[number] | rated.get(number, set()),
            skipped.get(number, ()),
            lost_since.get(number),
        )
        for number, subscriber in by_id.items()
    ]


def already_promised(
    session: Session, ids: Collection[int], since: datetime, until: datetime | None = None
) -> dict[int, frozenset[int]]:
    """Return the current ids of the papers in each subscriber's deliveries between two times.

    If a paper was split after a delivery, both resulting papers are included.
    """
    promised = ledger.paper_ids_promised(session, ids, since, until)
    history = canonical_rows.MergeHistory.load(session, set().union(*promised.values()))
    return {
        subscriber: frozenset[int]().union(*(history.papers_at(*paper) for paper in papers.items()))
        for subscriber, papers in promised.items()
    }
