"""Build digests: load the candidate papers once per run and match each distinct interest once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from functools import cached_property, partial
from threading import Event
from typing import NamedTuple

import structlog
from cachetools import FIFOCache
from sqlmodel import Session, col, select

from app import subscribers
from app.delivery import ledger
from app.digests import compose, covered_days, digest_requests, notes, ranking, selection
from app.digests.covered_days import CoveredDays
from app.digests.digest_requests import DigestRequest, DueSubscriber
from app.digests.interest_matching import InterestMatcher
from app.errors import InvalidInterest
from app.papers import canonical_rows, listing_days, paper_views
from app.papers.sources import calendar
from app.relevance import trending, user_profile
from app.relevance.match_index_cache import IndexCache
from app.relevance.model_store import ModelStore
from app.settings import Settings
from app.storage.database import Database
from app.storage.models import Source, Subscriber
from app.subscribers import schedule
from app.types import Digest, Feedback, PaperUpdate, PaperView, Skip, SourceKind

log = structlog.get_logger(__name__)

MAX_CACHED_PROFILES = 500  # more than the number of subscribers in a batch


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


class ComposeError(Skip):
    """The Skip that replaces a digest because of an unexpected error. A later attempt may succeed."""


class DigestGroup(NamedTuple):
    """Subscribers whose digests one builder builds, because it has loaded the days that they cover."""

    builder: DigestBuilder
    rows: Sequence[Subscriber | DueSubscriber]
    lost_since: Mapping[int, date]  # see `covered_days.first_undelivered`

    def requests(self, session: Session, until: datetime | None = None) -> list[DigestRequest]:
        """Load the requests for the digests, with feedback and deliveries up to `until`."""
        since = self.builder.earliest_possible_delivery
        return digest_requests.load(session, self.rows, self.lost_since, since, until)


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
        self._context, self._settings = context, context.settings
        self._catching_up: DigestBuilder | None = None
        self.encoder = ledger.ItemEncoder()  # of the items in the run's digests
        today = day or now.date()
        self._days = CoveredDays(today, context.settings.candidate_days, extra_days)
        since = today - timedelta(days=back + self._days.max_days)
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
        sources = select(col(Source.kind), col(Source.failures)).where(col(Source.paused).is_(False))
        failures = session.exec(sources.distinct()).all()
        self._source_kinds = sorted({kind for kind, number in failures if not number})  # that were read
        self._are_sources_unreadable = any(number > 1 for _, number in failures)
        self.interests = InterestMatcher(self._all, self._model, context.indexes)
        self._profiles = FIFOCache[tuple[Feedback, ...], ProfileScores](MAX_CACHED_PROFILES)
        self._set_moment(now, today, self._all)

    def rewind_to(self, at: datetime) -> None:
        """Build further digests as of this time, with the listings and votes that existed then.

        The texts of the papers and the relevance model do not change.
        """
        since = at.date() - timedelta(days=self._days.max_days)
        listed = {
            number: paper_views.as_of(paper, at)
            for number, paper in self._all.items()
            if any(since <= day <= at.date() for day in paper.listed_on) or paper.is_pinned(at)
        }
        self._set_moment(at, at.date(), listed)

    def _set_moment(self, now: datetime, today: date, papers: dict[int, PaperView]) -> None:
        self._now, self._papers = now, papers
        self._days = replace(self._days, today=today)
        self._pool: ranking.CandidatePool | None = None

    def by_window(
        self,
        session: Session,
        rows: Sequence[Subscriber | DueSubscriber],
        until: datetime | None = None,
    ) -> list[DigestGroup]:
        """Group subscribers by the builder of their digests: this one, or one whose digests cover more days.

        Only digests that were due before `until` count as undelivered. The other builder is created only if
        some days are not loaded here, so that it costs other subscribers nothing and doesn't change their
        candidates.
        """
        ids = [row.id or 0 for row in rows]
        lost_since = covered_days.first_undelivered(session, ids, self._days.today, until)
        behind = covered_days.needing_extra_days(session, rows, lost_since, self._days, self._since, until)
        if not behind:
            return [DigestGroup(self, rows, lost_since)]
        self._catching_up = self._catching_up or DigestBuilder(
            self._context, session, self._now, self._days.today, extra_days=covered_days.CATCH_UP_DAYS
        )
        return [
            DigestGroup(self, [row for row in rows if row.id not in behind], lost_since),
            DigestGroup(self._catching_up, [row for row in rows if row.id in behind], lost_since),
        ]

    @property
    def earliest_possible_delivery(self) -> datetime:
        """The time before which no digest can have contained any of the candidates.

        An unmerged paper may have been sent before its own first listing, as part of the paper that it had
        been merged into.
        """
        days = [paper.first_listed_on for paper in self._papers.values() if paper.first_listed_on]
        listed = datetime.combine(min(days, default=self._days.today) - timedelta(days=1), time(), UTC)
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
        since, expires_on = self._days.window(subscriber.cadence, following_due, request.lost_since)
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

        If a digest cannot be composed, log the error and return a ComposeError instead.
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
        """Compose a subscriber's digest with updates on earlier papers. Return a ComposeError if this fails.

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
        today = datetime.combine(self._days.today, self._now.timetz())
        following_due = schedule.next_edition_due(preferences.cadence, today.weekday(), 0, "UTC", today)
        since, expires_on = self._days.window(preferences.cadence, following_due)
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
            today=self._days.today,
            # No method of the builder: otherwise, its memory would not be free when it is dropped.
            calendar_note=partial(
                _calendar_note,
                *(self._newest_day, self._since, self._days.today),
                *(self._source_kinds, self._are_sources_unreadable),
            ),
            pinned=frozenset(n for n, paper in self._papers.items() if paper.is_pinned(self._now)),
        )
        return self._pool


def _calendar_note(
    newest: date | None,
    since: date,
    today: date,
    kinds: Iterable[SourceKind],
    are_sources_unreadable: bool,
    edition_day: date,
) -> str:
    """Return why there may be no papers, or "" if the reason is not known.

    `newest` is the newest day with papers, or None if there are none. `since` is the first day of the
    candidates. `kinds` are those of the sources that could be read. `edition_day` is the edition's day in the
    subscriber's time zone. Sources list papers by UTC day, so a reason is given only if neither that day nor
    `today`, the current UTC day, has papers.
    """
    if newest is None:
        return "the archive is still empty: no source has delivered a paper yet"
    if newest < since:
        return f"the newest papers in the archive are from {newest:%-d %B %Y}"
    reasons = [
        calendar.no_papers_reason(kind, edition_day)
        for kind in kinds
        if calendar.no_papers_reason(kind, today)
    ]
    unread = "some sources could not be read" if are_sources_unreadable else ""
    return "; ".join(filter(None, dict.fromkeys([*reasons, unread])))


def _candidates(session: Session, since: date, today: date, now: datetime) -> list[PaperView]:
    """Return the papers listed from `since` to `today` and the pinned papers, in order of id."""
    papers = [*paper_views.candidates(session, since, today), *paper_views.pinned(session, now)]
    return sorted({paper.id: paper for paper in papers}.values(), key=lambda paper: paper.id)


def _log_failure(subscriber: Subscriber | DueSubscriber, error: Exception, edition: str = "") -> Skip:
    log.exception("digest not composed", subscriber=subscriber.id, edition=edition)
    skip = Skip if isinstance(error, InvalidInterest) else ComposeError  # only the subscriber can change it
    return skip(f"something went wrong on our side, and we have logged it ({type(error).__name__})")
