"""Where digests are laid out: the candidates of a moment, ranked once, and every interest matched once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from functools import cached_property
from threading import Event
from typing import NamedTuple

import numpy as np
import structlog
from sqlmodel import Session, col, select

from app import subscribers
from app.delivery import ledger
from app.digests import compose, ranking
from app.errors import InvalidInterest
from app.papers import queries
from app.papers.sources import calendar
from app.relevance import matching, query_language, trending, user_profile
from app.relevance.index_cache import IndexCache
from app.relevance.model_store import ModelStore
from app.settings import Settings
from app.storage.database import Database
from app.storage.models import Source, Subscriber
from app.subscribers import schedule
from app.types import Cadence, Digest, Feedback, Interest, PaperView, Skip, SkippedEdition

log = structlog.get_logger(__name__)

WEEK = 8  # days that a weekly digest looks back on: one more, for papers that were listed late
TASTES = 500  # that are kept: more than a shard of readers has
MUTED = 5_000  # that are kept, for all who mute the same: four bytes a paper
REASONS = 100_000  # that are kept, for all who share an interest
_NOTHING = np.array([], np.int32)


@dataclass(frozen=True, slots=True)
class DigestRequest:
    """A reader: what they want, what they said of papers, and which they were promised already."""

    reader: Subscriber
    wishes: Sequence[Interest] = ()
    opinions: Sequence[Feedback] = ()
    already: frozenset[int] = frozenset()
    silences: Sequence[SkippedEdition] = ()  # of late, since their last digest
    following: datetime | None = None  # when the digest after this one is due, where that is known


class ProfileScores(NamedTuple):
    """What a reader's likes and dislikes say of the candidates."""

    relevance: Mapping[int, float]  # by paper; under 0: rather not
    reason: Callable[[int], str]


@dataclass(frozen=True)
class DigestContext:
    """What building digests uses."""

    db: Database
    settings: Settings
    models: ModelStore
    indexes: IndexCache
    snapshots: ledger.SnapshotStore
    stopping: Event  # set when the process is to end: no further shard is planned
    when_planned: Sequence[Callable[[], None]] = ()  # called after each planned shard


class DigestBuilder:
    """Made for one planning run: nobody's digest changes while it is used.

    `back` is for how many days before this one digests will be laid out, too.
    """

    def __init__(
        self, context: DigestContext, session: Session, now: datetime, day: date | None = None, back: int = 0
    ) -> None:
        self._settings, self._indices = context.settings, context.indexes
        today = day or now.date()
        since = today - timedelta(days=back + max(context.settings.candidate_days, WEEK))
        kept_from = now.date() - timedelta(days=context.settings.retention_days)
        self._all = {
            paper.id: paper
            for paper in queries.candidates(session, since, today)
            if (paper.first_listed_on or today) > kept_from  # older deliveries may have been pruned
        }
        self._empty = not self._all and queries.neighbouring_days(session, date.max)[0] is None
        self._parted_since = queries.earliest_unmerge(session, self._all)
        self._corpus = context.models.current(session)
        kinds = select(col(Source.kind)).where(col(Source.paused).is_(False)).distinct()
        self._kinds = sorted(session.exec(kinds))
        self._matches = ranking.EvidenceMatrix(self._all)
        self._queries: dict[str, query_language.Query] = {}
        self._reasons: dict[tuple[str, int], str] = {}
        self._muted: dict[query_language.Query, ranking.Vector] = {}
        self._tastes: dict[tuple[Feedback, ...], ProfileScores] = {}
        self._stand(now, today, self._all)

    def turn_to(self, at: datetime) -> None:
        """Lay out digests as they would have been at this moment: listings and votes as they were then.

        Matching goes by what papers say, and by what the archive says of words, as it is known today.
        """
        since = at.date() - timedelta(days=max(self._settings.candidate_days, WEEK))
        listed = {
            number: queries.as_of(paper, at)
            for number, paper in self._all.items()
            if any(since <= day <= at.date() for day in paper.listed_on)
        }
        self._stand(at, at.date(), listed)

    def _stand(self, now: datetime, today: date, papers: dict[int, PaperView]) -> None:
        self._now, self._today, self._papers = now, today, papers
        self._shelf: ranking.CandidatePool | None = None

    @property
    def oldest(self) -> datetime:
        """No candidate can have been in a digest made before this moment.

        What was sent while a paper stood for another one, too, may be older than its own first listing.
        """
        days = [paper.first_listed_on for paper in self._papers.values() if paper.first_listed_on]
        listed = datetime.combine(min(days, default=self._today) - timedelta(days=1), time(), UTC)
        return min(listed, self._parted_since or listed)

    def ranked(self, orders: Sequence[DigestRequest]) -> list[ranking.Ranked | Skip]:
        """What is relevant to each of these readers, in this order, or why that cannot be told."""
        asked = [self._asked(order) for order in orders]
        ranked = iter(
            ranking.rank(self.shelf, [one for one in asked if isinstance(one, ranking.RankingRequest)])
        )
        return [one if isinstance(one, Skip) else next(ranked) for one in asked]

    def _asked(self, order: DigestRequest) -> ranking.RankingRequest | Skip:
        try:
            return self.asked(order)
        except Exception as error:
            return _failed(order.reader, error)

    def asked(self, order: DigestRequest) -> ranking.RankingRequest:
        """What a reader asks for, with all of it matched."""
        unread = self.prepare(order.wishes)
        readable = tuple(wish for wish in order.wishes if wish.text not in unread)
        if unread and not readable:
            raise next(iter(unread.values()))
        reader = order.reader
        days = WEEK if reader.cadence is Cadence.WEEKLY else self._settings.candidate_days
        rhythm = (reader.cadence, reader.weekday, reader.hour, reader.zone)
        following = order.following or schedule.next_due(*rhythm, self._now)
        asked = ranking.RankingRequest(
            readable,
            *(reader.min_papers, reader.max_papers, reader.when_empty),
            had=order.already,
            since=_first(days, self._today),
            leaving=_first(days, following.date()),
            muted=self.kept_out(reader.muted),
            beyond=reader.beyond,
            silences=tuple(order.silences),
            unread=tuple(unread),
        )
        liked = self.liking(tuple(order.opinions))
        return replace(asked, taste=liked.relevance, why_liked=liked.reason) if liked else asked

    def digest(self, reader: Subscriber, edition: str, ranked: ranking.Ranked | Skip) -> Digest | Skip:
        """One reader's digest. What goes wrong with one reader is written down and stops no other."""
        try:
            return ranked if isinstance(ranked, Skip) else compose.compose(edition, ranked)
        except Exception as error:
            return _failed(reader, error)

    def preview(
        self,
        edition: str,
        wanted: subscribers.Preferences,
        had: frozenset[int] = frozenset(),
    ) -> Digest | Skip:
        """The digest of somebody who is no reader yet and wants this every day."""
        distinct = subscribers.deduplicate(wanted.interests)
        for error in self.prepare(distinct).values():
            raise error
        since = _first(self._settings.candidate_days, self._today)
        asked = ranking.RankingRequest(
            distinct,
            *(wanted.min_papers, wanted.max_papers, wanted.when_empty),
            had=had,
            since=since,
            leaving=since + timedelta(days=1),
            muted=self.kept_out(wanted.muted),
            beyond=wanted.beyond,
        )
        return compose.compose(edition, *ranking.rank(self.shelf, [asked]))

    def fitting(self, text: str) -> list[PaperView]:
        """The papers of all these days that a matched interest would bring by itself."""
        fits = self._matches.evidence[self._matches.places[text]] >= ranking.ENOUGH
        return [self._all[number] for number in self._matches.ids[fits].tolist()]

    @property
    def papers(self) -> list[PaperView]:
        """Every paper of the days that are laid out."""
        return [*self._all.values()]

    def liking(self, opinions: tuple[Feedback, ...]) -> ProfileScores | None:
        """What a reader's opinions say of the candidates, worked out at once; a young archive cannot tell."""
        if not opinions or opinions in self._tastes or not self._tasted:
            return self._tastes.get(opinions)
        if learned := user_profile.build_profile(opinions, self._tasted):
            self._tastes[opinions] = ProfileScores(learned.relevance, learned.reason)
        if len(self._tastes) > TASTES:
            del self._tastes[next(iter(self._tastes))]
        return self._tastes.get(opinions)

    @cached_property
    def _tasted(self) -> user_profile.Candidates | None:
        space = self._corpus.space
        return user_profile.Candidates([*self._all.values()], self._corpus, space) if space else None

    @property
    def shelf(self) -> ranking.CandidatePool:
        """What there is to pick from at this moment."""
        self._shelf = self._shelf or ranking.CandidatePool(
            papers=self._papers,
            trends=trending.trends(list(self._papers.values()), self._now),
            matches=self._matches,
            reason=self._reason,
            missing=lambda text: self._index.missing_words(self._query(text)),
            vectors=self._index.vectors,
            today=self._today,
            quiet=self._why_quiet(),
        )
        return self._shelf

    def _why_quiet(self) -> str:
        """Why there may be no papers, where that is known: what the calendars of the sources say."""
        if self._empty:
            return "The archive is still empty: no source has brought a paper yet."
        said = dict.fromkeys(calendar.no_papers_reason(kind, self._today) for kind in self._kinds)
        return " ".join(filter(None, said))

    @cached_property
    def _index(self) -> matching.MatchIndex:
        return self._indices.get([*self._all.values()], self._corpus)

    def prepare(self, wishes: Iterable[Interest]) -> dict[str, InvalidInterest]:
        """Match interests that were not matched yet; each is matched once for all who share it.

        Those that cannot be understood come back, with what is wrong with them.
        """
        queries: dict[str, query_language.Query] = {}
        broken: dict[str, InvalidInterest] = {}
        for text in dict.fromkeys(wish.text for wish in wishes if wish.text not in self._matches.places):
            try:
                queries[text] = self._query(text)
            except InvalidInterest as error:
                broken[text] = error
        for (text, query), hits in zip(queries.items(), self._index.match([*queries.values()]), strict=True):
            self._matches.add(text, hits, self._index.excluded_papers(query))
        return broken

    def kept_out(self, texts: Iterable[str]) -> frozenset[int]:
        """The papers that muted words keep out of all sections."""
        return frozenset[int]().union(*(self.saying(text).tolist() for text in texts))

    def saying(self, text: str) -> ranking.Vector:
        """The papers that say what is muted, looked for once for all who mute it, however they spell it."""
        try:
            query = replace(query_language.parse_muted(text), text="")
        except InvalidInterest:  # was understood once: it must not cost its reader the digest
            return _NOTHING
        if query not in self._muted:
            if len(self._muted) >= MUTED:
                self._muted.clear()
            self._muted[query] = np.array(sorted(self._index.excluded_papers(query)), np.int32)
        return self._muted[query]

    def numbers(self, text: str, paper: PaperView) -> matching.MatchDetails:
        """How a paper fits an interest; it need not be a candidate."""
        index = self._index if paper.id in self._all else matching.MatchIndex([paper], self._corpus)
        return index.details(query_language.parse(text), paper.id)

    def _query(self, text: str) -> query_language.Query:
        if text not in self._queries:
            self._queries[text] = query_language.parse(text)
        return self._queries[text]

    def _reason(self, text: str, paper_id: int) -> str:
        reason = self._reasons.get((text, paper_id))
        if reason is None:
            if len(self._reasons) >= REASONS:
                self._reasons.clear()
            reason = self._reasons[text, paper_id] = self._index.reason(self._query(text), paper_id)
        return reason


def _first(days: int, last: date) -> date:
    """The first of so many days."""
    return last - timedelta(days=days - 1)


def _failed(reader: Subscriber, error: Exception) -> Skip:
    log.exception("digest not composed", subscriber=reader.id)
    return Skip(f"something went wrong on our side, and was noted ({type(error).__name__})")
