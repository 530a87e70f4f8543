"""Where digests are laid out: the candidates of a moment, ranked once, and every interest matched once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from functools import cached_property

import structlog
from sqlmodel import Session, col, select

from app import archive, cadence, compose, interest, match, trend
from app.models import Source, Subscriber
from app.parts import App
from app.records import Cadence, Digest, PaperView, Skip, Trend, Wish
from app.sources import quiet

log = structlog.get_logger(__name__)

WEEK = 8  # days that a weekly digest looks back on: one more, for papers that were listed late


class Desk:
    """Made for one planning run: nobody's digest changes while it is used."""

    def __init__(self, app: App, session: Session, now: datetime, day: date | None = None) -> None:
        self._settings, self._now = app.settings, now
        self._today = day or now.date()
        since = self._today - timedelta(days=max(app.settings.candidate_days, WEEK))
        kept_from = now.date() - timedelta(days=app.settings.retention_days)
        self._papers = {
            paper.id: paper
            for paper in archive.candidates(session, since, self._today)
            if (paper.first_listed_on or self._today) > kept_from  # older deliveries may have been pruned
        }
        self._parted_since = archive.parted_since(session, self._papers)
        self._corpus = app.lexicon.current(session)
        self._quiet = _silence(session, self._today)
        self._hits: dict[str, dict[int, float]] = {}
        self._excluded: dict[str, frozenset[int]] = {}
        self._listed: dict[date, dict[int, PaperView]] = {}

    @property
    def oldest(self) -> datetime:
        """No candidate can have been in a digest made before this moment.

        What was sent while a paper stood for another one, too, may be older than its own first listing.
        """
        days = [paper.first_listed_on for paper in self._papers.values() if paper.first_listed_on]
        listed = datetime.combine(min(days, default=self._today) - timedelta(days=1), time(), UTC)
        return min(listed, self._parted_since or listed)

    def digest(
        self, reader: Subscriber, wishes: Sequence[Wish], edition: str, already: frozenset[int]
    ) -> Digest | Skip:
        """One reader's digest. What goes wrong with one reader is written down and stops no other."""
        asked = compose.Reader(tuple(wishes), reader.min_papers, reader.max_papers, reader.when_empty)
        days = WEEK if reader.cadence is Cadence.WEEKLY else self._settings.candidate_days
        try:
            following = cadence.next_due(reader.cadence, reader.weekday, reader.hour, reader.zone, self._now)
            return compose.compose(edition, asked, self.shelf(wishes, days, following.date()), already)
        except Exception as error:
            log.exception("digest not composed", subscriber=reader.id)
            return Skip(f"it could not be composed ({type(error).__name__}): see the log")

    def shelf(self, wishes: Iterable[Wish], days: int, following: date | None = None) -> compose.Shelf:
        """What there is to pick from, looking back on so many days, today included.

        `following` is the day of the reader's next digest, tomorrow unless told.
        """
        self.prepare(wishes)
        back = timedelta(days=days - 1)
        return compose.Shelf(
            papers=self._listed_since(self._today - back),
            trends=self._trends,
            matches=self._hits,
            excluded=self._excluded,
            reason=self._reason,
            vectors=self._index.vectors,
            today=self._today,
            leaving=(following or self._today + timedelta(days=1)) - back,
            quiet=self._quiet,
        )

    def _listed_since(self, since: date) -> dict[int, PaperView]:
        if since not in self._listed:
            self._listed[since] = {
                number: paper
                for number, paper in self._papers.items()
                if paper.last_listed_on and paper.last_listed_on >= since
            }
        return self._listed[since]

    @cached_property
    def _index(self) -> match.Index:
        return match.Index(self._papers.values(), self._corpus)

    @cached_property
    def _trends(self) -> dict[int, Trend]:
        return trend.trends(list(self._papers.values()), self._now)

    def prepare(self, wishes: Iterable[Wish]) -> None:
        """Match interests that were not matched yet; each is matched once for all who share it."""
        new = [text for text in dict.fromkeys(wish.text for wish in wishes) if text not in self._hits]
        queries = {text: interest.parse(text) for text in new}
        for (text, query), hits in zip(queries.items(), self._index.match([*queries.values()]), strict=True):
            self._hits[text] = hits
            self._excluded[text] = self._index.excluded(query)

    def _reason(self, text: str, paper_id: int) -> str:
        return self._index.reason(interest.parse(text), paper_id)


def _silence(session: Session, day: date) -> str:
    """Why the sources have nothing new on this day, if that is known."""
    kinds = session.exec(select(col(Source.kind)).where(col(Source.paused).is_(False)).distinct())
    return " ".join(filter(None, dict.fromkeys(quiet.why(kind, day) for kind in sorted(kinds))))
