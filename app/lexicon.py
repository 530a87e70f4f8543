"""The words of the archive: how many papers each occurs in, kept current and shared by all threads."""

from __future__ import annotations

from threading import Lock

from sqlmodel import Session, col, func, select

from app import corpus
from app.models import Paper

# An archive smaller than this knows too little of what is common; the shipped counts serve instead.
YOUNG = 300
NEWEST = 20_000  # papers: older ones say little of how people write now
GROWTH = 1.05  # counted again when the archive has grown by 5 %


class Lexicon:
    """Hands out the statistics of the archive; counting 10,000 papers takes seconds, so it is done rarely."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counted_at = 0
        self._statistics: corpus.Statistics | None = None

    def current(self, session: Session) -> corpus.Statistics:
        size = session.exec(select(func.count()).where(col(Paper.merged_into_id).is_(None))).one()
        with self._lock:
            if self._statistics is None or size > self._counted_at * GROWTH:
                self._statistics = (
                    _count(session) if size >= YOUNG else corpus.Statistics.load(corpus.SHIPPED)
                )
                self._counted_at = size
            return self._statistics


def _count(session: Session) -> corpus.Statistics:
    newest = (
        select(Paper.title, Paper.abstract)
        .where(col(Paper.merged_into_id).is_(None))
        .order_by(col(Paper.id).desc())
        .limit(NEWEST)
    )
    return corpus.Statistics.of(session.exec(newest))
