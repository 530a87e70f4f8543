"""Papers as the public pages show them, and words to begin an interest with."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from threading import Lock

from sqlmodel import Session

from app.papers import display, queries
from app.papers.queries import ListingView
from app.relevance import trending
from app.storage.database import Database
from app.types import PaperView, Trend, VoteSample

SUGGEST_FROM = timedelta(days=60)
KEEP_NEWEST = timedelta(minutes=1)
ON_FRONT = 10  # papers
KEEP_SUGGESTIONS = timedelta(minutes=10)
WIDTH, HEIGHT = 240, 60  # of a curve, in its own units


@dataclass(frozen=True, slots=True)
class PaperCard:
    """A paper on the page."""

    paper: PaperView
    authors: str
    summary: str
    trend: str


@dataclass(frozen=True, slots=True)
class Week:
    """A week of the ISO calendar: it begins on Monday, and the year is that of its Thursday."""

    year: int
    number: int

    def __str__(self) -> str:
        return f"{self.year:04}-W{self.number:02}"

    @property
    def first(self) -> date:
        return date.fromisocalendar(self.year, self.number, 1)

    @property
    def last(self) -> date:
        return date.fromisocalendar(self.year, self.number, 7)


@dataclass(frozen=True, slots=True)
class Day:
    """What was listed on a day, or a page of it, the most votes first, and the days beside it."""

    day: date
    cards: tuple[PaperCard, ...]
    total: int
    before: date | None
    after: date | None
    page: int
    pages: int
    first: int  # place of the first one shown

    @property
    def week(self) -> Week:
        return week_of(self.day)


@dataclass(frozen=True, slots=True)
class WeekShown:
    """What was listed in a week, the most votes first, its days, and the weeks beside it."""

    week: Week
    days: tuple[date, ...]
    cards: tuple[PaperCard, ...]
    total: int
    before: Week | None
    after: Week | None


@dataclass(frozen=True, slots=True)
class VoteChart:
    """Votes over time, to be drawn in a field of WIDTH × HEIGHT, and in words."""

    points: tuple[tuple[float, float], ...]
    words: str
    width: int = WIDTH
    height: int = HEIGHT


@dataclass(frozen=True, slots=True)
class PaperPage:
    """All that a paper's own page shows."""

    card: PaperCard
    listings: tuple[ListingView, ...]
    curve: VoteChart | None
    related: tuple[PaperCard, ...]


def week_of(day: date) -> Week:
    year, number, _ = day.isocalendar()
    return Week(year, number)


def latest(session: Session) -> date | None:
    """The newest day of which there are papers."""
    return queries.neighbouring_days(session, date.max)[0]


def of_day(session: Session, day: date, limit: int, now: datetime, page: int = 1) -> Day:
    """The papers of a day, at most so many on a page."""
    papers = queries.candidates(session, day, day)
    trends = trending.trends(papers, now)
    ranked = sorted(papers, key=lambda paper: (-paper.upvotes, -trends[paper.id].score, paper.id))
    start = (page - 1) * limit
    shown = tuple(_card(paper, trends[paper.id]) for paper in ranked[start : start + limit])
    before, after = queries.neighbouring_days(session, day)
    return Day(day, shown, len(papers), before, after, page, math.ceil(len(papers) / limit), start + 1)


def of_week(session: Session, week: Week, limit: int, now: datetime) -> WeekShown:
    """The papers of a week, at most so many."""
    ids, total = queries.most_voted(session, week.first, week.last, limit)
    before, _ = queries.neighbouring_days(session, week.first)
    _, after = queries.neighbouring_days(session, week.last)
    return WeekShown(
        week,
        tuple(queries.days_between(session, week.first, week.last)),
        cards(queries.in_given_order(session, ids), now),
        total,
        week_of(before) if before else None,
        week_of(after) if after else None,
    )


def sheet(session: Session, paper_id: int, related: Iterable[PaperView], now: datetime) -> PaperPage:
    """A paper's own page."""
    (paper,) = queries.paper_views(session, [paper_id])
    (card,) = cards([paper], now)
    listings = tuple(queries.listings(session, paper_id))
    return PaperPage(card, listings, curve(paper.votes), cards(related, now))


def cards(papers: Iterable[PaperView], now: datetime) -> tuple[PaperCard, ...]:
    """Papers of any days. How one stands among those of its own day is not told: they are not all here."""
    return tuple(_card(paper, trending.trends([paper], now)[paper.id]) for paper in papers)


def _card(paper: PaperView, how: Trend) -> PaperCard:
    byline = display.byline(paper.authors, paper.author_count)
    return PaperCard(paper, byline, display.summary(paper), how.words)


def curve(votes: Sequence[VoteSample]) -> VoteChart | None:
    """From the first figure to the last, on a scale that begins at no votes; one figure draws none."""
    if len(votes) < 2:
        return None
    first, last = votes[0], votes[-1]
    span, most = last.at - first.at, max(point.upvotes for point in votes) or 1
    points = (
        (round(WIDTH * ((point.at - first.at) / span), 1), round(HEIGHT * (1 - point.upvotes / most), 1))
        for point in votes
    )
    return VoteChart(tuple(points), _told(first, last))


def _told(first: VoteSample, last: VoteSample) -> str:
    until = f"{last.upvotes} on {_day(last.at)}"
    if first.at.date() == last.at.date():
        return f"From {_votes(first)} to {until}."
    return f"From {_votes(first)} on {_day(first.at)} to {until}."


def _votes(point: VoteSample) -> str:
    return "1 vote" if point.upvotes == 1 else f"{point.upvotes} votes"


def _day(at: datetime) -> str:
    return f"{at.day} {at:%B %Y}"


class Newest:
    """Cache the newest day of the front page for a minute."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._lock = Lock()
        self._shown: Day | None = None
        self._read_at: datetime | None = None

    def of(self, now: datetime) -> Day | None:
        """Return the newest day, or None for an empty archive."""
        with self._lock:
            if self._shown is None or self._read_at is None or now - self._read_at >= KEEP_NEWEST:
                with self._db.read() as session:
                    day = latest(session)
                    self._shown = of_day(session, day, ON_FRONT, now) if day else None
                self._read_at = now
            return self._shown


class Suggestions:
    """What recent papers are about, counted anew every ten minutes at most."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._lock = Lock()
        self._known: list[str] = []
        self._count_again_at: datetime | None = None

    def matching(self, typed: str, now: datetime, limit: int = 8) -> list[str]:
        """Keywords with a word that begins like the last one typed, the most frequent first."""
        typed = " ".join(typed.lower().split())
        return [word for word in self._all(now) if f" {typed}" in f" {word}"][:limit]

    def _all(self, now: datetime) -> list[str]:
        with self._lock:
            if self._count_again_at is None or self._count_again_at <= now:
                with self._db.read() as session:
                    counted = queries.keywords(session, (now - SUGGEST_FROM).date())
                self._known = [word for word, _ in counted.most_common() if 2 < len(word) <= 60]
                self._count_again_at = now + KEEP_SUGGESTIONS
            return self._known
