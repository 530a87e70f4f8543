"""Where digests are laid out: the candidates of a moment, ranked once, and every interest matched once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from functools import cached_property

import structlog
from sqlmodel import Session, col, select

from app import archive, cadence, compose, interest, match, taste, trend
from app.models import Source, Subscriber
from app.parts import App
from app.records import Cadence, Digest, Opinion, PaperView, Skip, Wish
from app.sources import quiet

log = structlog.get_logger(__name__)

WEEK = 8  # days that a weekly digest looks back on: one more, for papers that were listed late


class Desk:
    """Made for one planning run: nobody's digest changes while it is used.

    `back` is for how many days before this one digests will be laid out, too.
    """

    def __init__(
        self, app: App, session: Session, now: datetime, day: date | None = None, back: int = 0
    ) -> None:
        self._settings, self._indices = app.settings, app.indices
        today = day or now.date()
        since = today - timedelta(days=back + max(app.settings.candidate_days, WEEK))
        kept_from = now.date() - timedelta(days=app.settings.retention_days)
        self._all = {
            paper.id: paper
            for paper in archive.candidates(session, since, today)
            if (paper.first_listed_on or today) > kept_from  # older deliveries may have been pruned
        }
        self._parted_since = archive.parted_since(session, self._all)
        self._corpus = app.lexicon.current(session)
        kinds = select(col(Source.kind)).where(col(Source.paused).is_(False)).distinct()
        self._kinds = sorted(session.exec(kinds))
        self._hits: dict[str, dict[int, float]] = {}
        self._excluded: dict[str, frozenset[int]] = {}
        self._reasons: dict[tuple[str, int], str] = {}
        self._tastes: dict[tuple[Opinion, ...], taste.Taste | None] = {}
        self._stand(now, today, self._all)

    def turn_to(self, at: datetime) -> None:
        """Lay out digests as they would have been at this moment: listings and votes as they were then.

        Matching goes by what papers say, and by what the archive says of words, as it is known today.
        """
        since = at.date() - timedelta(days=max(self._settings.candidate_days, WEEK))
        listed = {
            number: archive.as_of(paper, at)
            for number, paper in self._all.items()
            if any(since <= day <= at.date() for day in paper.listed_on)
        }
        self._stand(at, at.date(), listed)

    def _stand(self, now: datetime, today: date, papers: dict[int, PaperView]) -> None:
        self._now, self._today, self._papers = now, today, papers
        self._trends = trend.trends(list(papers.values()), now)
        self._quiet = " ".join(filter(None, dict.fromkeys(quiet.why(kind, today) for kind in self._kinds)))
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
        self,
        reader: Subscriber,
        wishes: Sequence[Wish],
        edition: str,
        already: frozenset[int],
        opinions: Sequence[Opinion] = (),
    ) -> Digest | Skip:
        """One reader's digest. What goes wrong with one reader is written down and stops no other."""
        try:
            return compose.compose(edition, *self.laid_out(reader, wishes, opinions), already)
        except Exception as error:
            log.exception("digest not composed", subscriber=reader.id)
            return Skip(f"it could not be composed ({type(error).__name__}): see the log")

    def laid_out(
        self, reader: Subscriber, wishes: Sequence[Wish], opinions: Sequence[Opinion] = ()
    ) -> tuple[compose.Reader, compose.Shelf]:
        """What a reader asks for, and what there is to pick from for them."""
        amounts = (reader.min_papers, reader.max_papers, reader.when_empty)
        liked = self.liking(tuple(opinions))
        taste = (liked.relevance, liked.reason) if liked else ()
        asked = compose.Reader(tuple(wishes), *amounts, *taste)
        following = cadence.next_due(reader.cadence, reader.weekday, reader.hour, reader.zone, self._now)
        return asked, self.shelf(wishes, self.days_back(reader), following.date())

    def liking(self, opinions: tuple[Opinion, ...]) -> taste.Taste | None:
        """What a reader's likes and dislikes say of the candidates; a young archive cannot tell."""
        if opinions and opinions not in self._tastes and self._tasted:
            self._tastes[opinions] = taste.learn(opinions, self._tasted)
        return self._tastes.get(opinions)

    @cached_property
    def _tasted(self) -> taste.Candidates | None:
        space = self._corpus.space
        return taste.Candidates([*self._all.values()], self._corpus, space) if space else None

    def days_back(self, reader: Subscriber) -> int:
        """On how many days a reader's digest looks back, today included."""
        return WEEK if reader.cadence is Cadence.WEEKLY else self._settings.candidate_days

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
        return self._indices.of([*self._all.values()], self._corpus)

    def prepare(self, wishes: Iterable[Wish]) -> None:
        """Match interests that were not matched yet; each is matched once for all who share it."""
        new = [text for text in dict.fromkeys(wish.text for wish in wishes) if text not in self._hits]
        queries = {text: interest.parse(text) for text in new}
        for (text, query), hits in zip(queries.items(), self._index.match([*queries.values()]), strict=True):
            self._hits[text] = hits
            self._excluded[text] = self._index.excluded(query)

    def numbers(self, text: str, paper: PaperView) -> match.Numbers:
        """How a paper fits an interest; it need not be a candidate."""
        index = self._index if paper.id in self._all else match.Index([paper], self._corpus)
        return index.numbers(interest.parse(text), paper.id)

    def _reason(self, text: str, paper_id: int) -> str:
        if (text, paper_id) not in self._reasons:
            self._reasons[text, paper_id] = self._index.reason(interest.parse(text), paper_id)
        return self._reasons[text, paper_id]
