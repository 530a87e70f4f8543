"""Build digests: load the candidate papers once per run and match each distinct interest once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from functools import cached_property
from threading import Event
from typing import NamedTuple, TypeVar

import structlog
from cachetools import FIFOCache
from sqlmodel import Session, col, select

from app import subscribers
from app.delivery import ledger
from app.digests import compose, notes, ranking, selection
from app.digests.interest_matching import InterestMatcher
from app.papers import canonical_rows, listing_days, paper_views
from app.papers.sources import calendar
from app.relevance import trending, user_profile
from app.relevance.match_index_cache import IndexCache
from app.relevance.model_store import ModelStore
from app.settings import Settings
from app.storage.database import Database
from app.storage.models import Source, Subscriber, SubscriberState
from app.subscribers import schedule
from app.types import (
    Cadence,
    Digest,
    EmptyDigestPolicy,
    Feedback,
    Interest,
    PaperUpdate,
    PaperView,
    Skip,
    SkippedEdition,
)

log = structlog.get_logger(__name__)

WEEKLY_DAYS = 8  # days that a weekly digest covers: one more than a week, for papers listed late
CATCH_UP_DAYS = 7  # how many days more than usual a digest may cover: see `DigestBuilder.by_window`
MAX_CACHED_PROFILES = 500  # more than the number of subscribers in a batch


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


Row = TypeVar("Row", Subscriber, DueSubscriber)


@dataclass(frozen=True, slots=True)
class DigestRequest:
    """A subscriber, their interests and feedback, and the papers that they must not be sent again."""

    subscriber: Subscriber | DueSubscriber
    interests: Sequence[Interest] = ()
    feedback: Sequence[Feedback] = ()
    already_promised: frozenset[int] = frozenset()
    skipped_editions: Sequence[SkippedEdition] = ()  # since the subscriber's last digest
    following_due: datetime | None = None  # when the next digest is due; None: computed from the cadence


class ProfileScores(NamedTuple):
    """The candidates' relevance according to a subscriber's likes and dislikes."""

    relevance: Mapping[int, float]  # by paper; negative: similar to what the subscriber disliked
    reason: Callable[[int], str]


@dataclass(frozen=True)
class DigestContext:
    """The dependencies for building and planning digests."""

    db: Database
    settings: Settings
    models: ModelStore
    indexes: IndexCache
    snapshots: ledger.SnapshotStore
    stopping: Event  # set at shutdown, after which no more batches are planned
    on_batch_planned: Sequence[Callable[[], None]] = ()  # called after each planned batch


class DigestBuilder:
    """A builder of digests for one run. It loads the candidates once, and they do not change after that.

    `rewind_to` can go back up to `back` days before `day`. Digests cover up to `extra_days` days more than
    usual.
    """

    def __init__(
        self,
        context: DigestContext,
        session: Session,
        now: datetime,
        day: date | None = None,
        back: int = 0,
        extra_days: int = 0,
    ) -> None:
        self._context, self._settings, self._extra_days = context, context.settings, extra_days
        self._catching_up: DigestBuilder | None = None
        self.lost_since: dict[int, date] = {}  # by subscriber: when the first undelivered digest was composed
        self.encoder = ledger.ItemEncoder()  # of the items in the run's digests
        today = day or now.date()
        since = today - timedelta(days=back + self._max_days)
        self.retained_since = ledger.retained_since(session, now, context.settings.retention_days)
        self._all = {
            paper.id: paper
            for paper in _candidates(session, since, today, now)
            # Deliveries up to `retained_since` may have been deleted, so older papers may have been sent.
            if (paper.first_listed_on or today) > self.retained_since
        }
        # If there are no candidates: the newest listing day, or None if the archive is empty.
        self._newest_day = since if self._all else listing_days.neighbours(session, date.max)[0]
        self._since = since
        self._earliest_undone_merge = canonical_rows.earliest_undone_merge(session, self._all)
        self._model = context.models.current(session)
        kinds = select(col(Source.kind)).where(col(Source.paused).is_(False)).distinct()
        self._source_kinds = sorted(session.exec(kinds))
        self.interests = InterestMatcher(self._all, self._model, context.indexes)
        self._profiles = FIFOCache[tuple[Feedback, ...], ProfileScores](MAX_CACHED_PROFILES)
        self._set_moment(now, today, self._all)

    @property
    def _max_days(self) -> int:
        return max(self._settings.candidate_days, WEEKLY_DAYS) + self._extra_days

    def rewind_to(self, at: datetime) -> None:
        """Build further digests as of this time, with the listings and votes that existed then.

        The texts of the papers and the relevance model do not change.
        """
        since = at.date() - timedelta(days=self._max_days)
        listed = {
            number: paper_views.as_of(paper, at)
            for number, paper in self._all.items()
            if any(since <= day <= at.date() for day in paper.listed_on) or paper.is_pinned(at)
        }
        self._set_moment(at, at.date(), listed)

    def _set_moment(self, now: datetime, today: date, papers: dict[int, PaperView]) -> None:
        self._now, self._today, self._papers = now, today, papers
        self._pool: ranking.CandidatePool | None = None

    def by_window(
        self, session: Session, rows: Iterable[Row], until: datetime | None = None
    ) -> list[tuple[DigestBuilder, list[Row]]]:
        """Group subscribers by the builder of their digests: this one, or one whose digests cover more days.

        If the last digest (due before `until`) was not delivered, a daily or weekday digest also covers the
        usual days of the undelivered ones, but at most CATCH_UP_DAYS days more than usual. A weekly digest
        covers all these additional days, also if the last one was due before the days that it usually covers,
        for example because the subscriber paused, or if it is late. The other builder is created only if some
        days are not loaded here, so that it costs other subscribers nothing and doesn't change their
        candidates.
        """
        rows = list(rows)
        since = datetime.combine(_first_day(WEEKLY_DAYS + CATCH_UP_DAYS, self._today), time(), UTC)
        undelivered = ledger.first_undelivered(session, [row.id or 0 for row in rows], since, until)
        self.lost_since = {number: digest.created_at.date() for number, digest in undelivered.items()}
        weekly = [row for row in rows if row.cadence is Cadence.WEEKLY]
        behind = self._late(session, weekly, since, until) | {
            row.id or 0
            for row in rows
            if row.id in undelivered
            and (row.cadence is Cadence.WEEKLY or self._first_day_of_daily(row.id) < self._since)
        }
        if not behind:
            return [(self, rows)]
        self._catching_up = self._catching_up or DigestBuilder(
            self._context, session, self._now, self._today, extra_days=CATCH_UP_DAYS
        )
        self._catching_up.lost_since = self.lost_since
        return [
            (self, [row for row in rows if row.id not in behind]),
            (self._catching_up, [row for row in rows if row.id in behind]),
        ]

    def _late(
        self, session: Session, weekly: Sequence[Row], since: datetime, until: datetime | None
    ) -> set[int]:
        """Return the weekly subscribers whose digest is late or whose last one was due too long ago."""
        if not weekly:
            return set()
        late = {row.id or 0 for row in weekly if row.next_due_at and row.next_due_at.date() < self._today}
        ids = [row.id or 0 for row in weekly]
        covered_from = _first_day(WEEKLY_DAYS, self._today)
        last_due = ledger.last_due_times(session, ids, since, until)
        others = [number for number in ids if number not in last_due]  # new, or after a long pause
        last_due |= ledger.last_due_times(session, others, until=until)
        return late | {number for number, due_at in last_due.items() if due_at.date() < covered_from}

    @property
    def earliest_possible_delivery(self) -> datetime:
        """The time before which no digest can have contained any of the candidates.

        An unmerged paper may have been sent before its own first listing, as part of the paper that it had
        been merged into.
        """
        days = [paper.first_listed_on for paper in self._papers.values() if paper.first_listed_on]
        listed = datetime.combine(min(days, default=self._today) - timedelta(days=1), time(), UTC)
        return min(listed, self._earliest_undone_merge or listed)

    def ranked(self, requests: Sequence[DigestRequest]) -> list[ranking.Ranked | Skip]:
        """Return each subscriber's ranked papers, or a Skip if a request fails, in the order of `requests`.

        Do not use the results of earlier calls after this, because their matches may have been released.
        """
        self.interests.clear_if_full()
        with suppress(Exception):  # raised again, and logged, for the request that causes it
            self.interests.match([interest for request in requests for interest in request.interests])
        prepared = list[ranking.RankingRequest]()
        skips: dict[int, Skip] = {}  # by position
        for position, request in enumerate(requests):
            try:
                prepared.append(self.ranking_request(request))
            except Exception as error:
                skips[position] = _log_failure(request.subscriber, error)
        ranked = iter(ranking.rank(self.pool, prepared))
        return [skips.get(position) or next(ranked) for position in range(len(requests))]

    def ranking_request(self, request: DigestRequest) -> ranking.RankingRequest:
        """Match a subscriber's interests, muted words and feedback, and return the input for ranking.

        Raise InvalidInterest if the subscriber has interests and none of them can be parsed.
        """
        invalid = self.interests.match(request.interests)
        valid = tuple(interest for interest in request.interests if interest.text not in invalid)
        if invalid and not valid:
            raise next(iter(invalid.values()))
        subscriber = request.subscriber
        cadence = (subscriber.cadence, subscriber.weekday, subscriber.hour, subscriber.zone)
        following_due = request.following_due or schedule.next_due(*cadence, self._now)
        since, expires_on = self._window(subscriber.cadence, following_due, subscriber.id)
        prepared = ranking.RankingRequest(
            valid,
            *(subscriber.min_papers, subscriber.max_papers, subscriber.when_empty),
            already_sent=request.already_promised,
            since=since,
            expires_on=expires_on,
            muted=self.interests.muted_papers(subscriber.muted),
            max_trending=subscriber.max_trending,
            skipped_editions=tuple(request.skipped_editions),
            invalid_interests=tuple(invalid),
        )
        return self._with_profile(prepared, request.feedback)

    def _window(
        self, cadence: Cadence, following_due: datetime, subscriber_id: int | None = None
    ) -> tuple[date, date]:
        """Return the first listing day of a digest (`since`), and of the following one (`expires_on`)."""
        if cadence is Cadence.WEEKLY:
            since = _first_day(WEEKLY_DAYS + self._extra_days, self._today)
            return since, _first_day(WEEKLY_DAYS, following_due.date())
        expires_on = _first_day(self._settings.candidate_days, following_due.date())
        return self._first_day_of_daily(subscriber_id), expires_on

    def _first_day_of_daily(self, subscriber_id: int | None) -> date:
        """Return the first listing day of a daily or weekday digest: see `by_window`."""
        days = self._settings.candidate_days
        composed_on = min(self.lost_since.get(subscriber_id or 0, self._today), self._today)
        return max(_first_day(days, composed_on), _first_day(days + CATCH_UP_DAYS, self._today))

    def _with_profile(
        self, request: ranking.RankingRequest, feedback: Sequence[Feedback]
    ) -> ranking.RankingRequest:
        """Return the request with the profile that the feedback gives, if any."""
        if profile := self.profile_of(tuple(feedback)):
            return replace(request, profile=profile.relevance, profile_reason=profile.reason)
        return request

    def digests(
        self,
        editions: Iterable[tuple[Subscriber | DueSubscriber, str]],
        all_ranked: Sequence[ranking.Ranked | Skip],
        updates: Mapping[int, tuple[PaperUpdate, ...]],
    ) -> list[Digest | Skip]:
        """Compose a digest for each subscriber and edition. `updates` maps subscriber ids to updates.

        If a digest cannot be composed, log the error and return a Skip instead.
        """
        together = [ranked for ranked in all_ranked if isinstance(ranked, ranking.Ranked)]
        selections = dict[int, selection.Selection]()
        with suppress(Exception):  # an error recurs, and is logged, when its digest is composed
            selections = dict(zip(map(id, together), selection.select_for_all(together), strict=True))
        return [
            self.digest(
                subscriber, edition, ranked, updates.get(subscriber.id or 0, ()), selections.get(id(ranked))
            )
            for (subscriber, edition), ranked in zip(editions, all_ranked, strict=True)
        ]

    def digest(
        self,
        subscriber: Subscriber | DueSubscriber,
        edition: str,
        ranked: ranking.Ranked | Skip,
        updates: tuple[PaperUpdate, ...] = (),
        selected_ahead: selection.Selection | None = None,
    ) -> Digest | Skip:
        """Compose one subscriber's digest, with updates on earlier papers. If this fails, return a Skip.

        If there are only updates, no digest is sent, and the updates wait for the next one.
        """
        try:
            if isinstance(ranked, Skip):
                return ranked
            digest = compose.compose(edition, ranked, selected_ahead)
        except Exception as error:
            return _log_failure(subscriber, error, edition)
        return replace(digest, updates=updates) if updates and isinstance(digest, Digest) else digest

    def close(self) -> None:
        """Release the memory of the matches now. Otherwise, it would be held until the run ends."""
        self._pool = None
        self.interests.release()
        if self._catching_up:
            self._catching_up.close()

    @property
    def added_note(self) -> str:
        """The note in the first digest of a subscriber whom the operator added."""
        return notes.added_note(self._settings.site_name, self._settings.contact_address)

    def preview(
        self,
        edition: str,
        preferences: subscribers.Preferences,
        already_sent: frozenset[int] = frozenset(),
        feedback: Sequence[Feedback] = (),
    ) -> Digest | Skip:
        """Return the digest that a subscriber with these preferences and feedback would receive now.

        Raise InvalidInterest if an interest cannot be parsed.
        """
        return compose.compose(edition, self.rank(preferences, already_sent, feedback))

    def rank(
        self,
        preferences: subscribers.Preferences,
        already_sent: frozenset[int] = frozenset(),
        feedback: Sequence[Feedback] = (),
    ) -> ranking.Ranked:
        """Rank the papers of the digest that `preview` returns for the same arguments."""
        distinct = subscribers.deduplicate(preferences.interests)
        for error in self.interests.match(distinct).values():
            raise error
        today = datetime.combine(self._today, self._now.timetz())
        following_due = schedule.next_edition_due(preferences.cadence, today.weekday(), 0, "UTC", today)
        since, expires_on = self._window(preferences.cadence, following_due)
        rated = {item.paper_id for item in feedback if item.paper_id is not None}
        request = ranking.RankingRequest(
            distinct,
            *(preferences.min_papers, preferences.max_papers, preferences.when_empty),
            already_sent=already_sent | rated,
            since=since,
            expires_on=expires_on,
            muted=self.interests.muted_papers(preferences.muted),
            max_trending=preferences.max_trending,
        )
        (ranked,) = ranking.rank(self.pool, [self._with_profile(request, feedback)])
        return ranked

    @cached_property
    def listing_days(self) -> frozenset[date | None]:
        """The days on which the loaded papers were first listed."""
        return frozenset(paper.first_listed_on for paper in self._all.values())

    @property
    def papers(self) -> list[PaperView]:
        """All loaded papers, regardless of the time at which digests are built."""
        older = self._catching_up.papers if self._catching_up else []
        return [*({paper.id: paper for paper in older} | self._all).values()]

    def profile_of(self, feedback: tuple[Feedback, ...]) -> ProfileScores | None:
        """Score candidates by feedback. Return None if there is no feedback or the archive is too small."""
        if not feedback or feedback in self._profiles or not self._profile_candidates:
            return self._profiles.get(feedback)
        if profile := user_profile.build_profile(feedback, self._profile_candidates):
            self._profiles[feedback] = ProfileScores(profile.relevance, profile.reason)
        return self._profiles.get(feedback)

    @cached_property
    def _profile_candidates(self) -> user_profile.Candidates | None:
        space = self._model.space
        if not space:
            return None
        return user_profile.Candidates([*self._all.values()], self._model, space, self.interests.texts)

    @property
    def pool(self) -> ranking.CandidatePool:
        """The candidate pool for the time at which digests are built."""
        if self._pool:
            return self._pool
        self._pool = ranking.CandidatePool(
            papers=self._papers,
            trends=trending.trends(list(self._papers.values()), self._now),
            matches=self.interests.evidence,
            reason=self.interests.reason,
            missing_words=self.interests.missing_words,
            absent_fields_note=self.interests.absent_fields_note,
            vectors=self.interests.vectors,
            today=self._today,
            calendar_note=self._calendar_note,
            pinned=frozenset(n for n, paper in self._papers.items() if paper.is_pinned(self._now)),
        )
        return self._pool

    def _calendar_note(self, edition_day: date) -> str:
        """Return why there may be no papers, or "" if the reason is not known.

        `edition_day` is the edition's day in the subscriber's time zone. Sources list papers by UTC day, so
        a reason is given only if neither that day nor the current UTC day has papers.
        """
        if self._newest_day is None:
            return "the archive is still empty: no source has delivered a paper yet"
        if self._newest_day < self._since:
            return f"the newest papers in the archive are from {self._newest_day:%-d %B %Y}"
        reasons = [
            calendar.no_papers_reason(kind, edition_day)
            for kind in self._source_kinds
            if calendar.no_papers_reason(kind, self._today)
        ]
        return "; ".join(filter(None, dict.fromkeys(reasons)))


def _candidates(session: Session, since: date, today: date, now: datetime) -> list[PaperView]:
    """Return the papers listed from `since` to `today` and the pinned papers, in order of id."""
    papers = [*paper_views.candidates(session, since, today), *paper_views.pinned(session, now)]
    return sorted({paper.id: paper for paper in papers}.values(), key=lambda paper: paper.id)


def _first_day(days: int, last: date) -> date:
    """Return the first day of a window of `days` days that ends on `last`."""
    return last - timedelta(days=days - 1)


def _log_failure(subscriber: Subscriber | DueSubscriber, error: Exception, edition: str = "") -> Skip:
    log.exception("digest not composed", subscriber=subscriber.id, edition=edition)
    return Skip(f"something went wrong on our side, and we have logged it ({type(error).__name__})")
