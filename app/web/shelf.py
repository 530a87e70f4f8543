"""The papers of a day as the public pages show them, and words to begin an interest with."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from threading import Lock

from sqlmodel import Session

from app import archive, compose, trend
from app.db import Database
from app.records import PaperView

SUGGEST_FROM = timedelta(days=60)
KEEP_SUGGESTIONS = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Card:
    """A paper on the page."""

    paper: PaperView
    authors: str
    summary: str
    trend: str


@dataclass(frozen=True, slots=True)
class Day:
    """What was listed on a day, the most votes first, and the days beside it."""

    day: date
    cards: tuple[Card, ...]
    total: int
    before: date | None
    after: date | None


def latest(session: Session) -> date | None:
    """The newest day of which there are papers."""
    return archive.around(session, date.max)[0]


def of_day(session: Session, day: date, limit: int, now: datetime) -> Day:
    """The papers of a day, at most so many."""
    papers = archive.candidates(session, day, day)
    trends = trend.trends(papers, now)
    ranked = sorted(papers, key=lambda paper: (-paper.upvotes, -trends[paper.id].score, paper.id))
    cards = (
        Card(
            paper,
            compose.byline(paper.authors, paper.author_count),
            compose.summary(paper),
            trends[paper.id].words,
        )
        for paper in ranked[:limit]
    )
    before, after = archive.around(session, day)
    return Day(day, tuple(cards), len(papers), before, after)


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
                    counted = archive.keywords(session, (now - SUGGEST_FROM).date())
                self._known = [word for word, _ in counted.most_common() if 2 < len(word) <= 60]
                self._count_again_at = now + KEEP_SUGGESTIONS
            return self._known
