"""Cache figures that are slow to count.

Each reader sets a maximum age and records the time of its oldest figure.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from threading import Lock
from typing import Any, NamedTuple, TypeVar

from sqlmodel import Session, col, select

from app.storage.models import Subscriber

LARGE = 10_000  # subscribers; up to this number, all figures are counted anew
MAX_AGE = timedelta(minutes=10)  # for operators, unless they change something; alerts count every 5 minutes
CHANGED = "figures_changed"  # the item of `Session.info` that makes `Database.write` clear the figures

Value = TypeVar("Value")


class Figure(NamedTuple):
    """A figure, and the time at which it was counted."""

    value: Any
    at: datetime


class FigureCache:
    """The figures of a database by name, which the pages, the API, metrics and checks of a process share."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.figures: dict[str, Figure] = {}

    def clear(self) -> None:
        """Count all figures again. Do not keep those that current readers count: they may lack a change."""
        self.figures = {}


class FigureReader:
    """A reader of figures that are younger than `max_age`. `oldest` is the time of the oldest one it got.

    Create it before the session reads, because SQLite's sessions do not see later changes.
    """

    def __init__(self, cache: FigureCache, max_age: timedelta = timedelta()) -> None:
        self._cache, self._max_age, self._figures = cache, max_age, cache.figures
        self.oldest: datetime | None = None

    def get(self, session: Session, name: str, now: datetime, count: Callable[[], Value]) -> Value:
        """Return a cached figure, or count and cache it.

        Only one thread counts at a time, and those that waited for it use its figures. If `max_age` is zero,
        always count.
        """
        figure = self._find(name, now)
        if figure is None:
            with self._cache.lock:
                figure = self._find(name, now) or self._store(session, name, Figure(count(), now))
        self.oldest = min(self.oldest or figure.at, figure.at)
        value: Value = figure.value
        return value

    def _find(self, name: str, now: datetime) -> Figure | None:
        figure = self._cache.figures.get(name)
        # Another thread may have counted after `now`. A clock that was set back leaves much later times.
        return figure if figure and abs(now - figure.at) < self._max_age else None

    def _store(self, session: Session, name: str, figure: Figure) -> Figure:
        """Cache a figure of a large installation, and delete those that nobody accepts anymore."""
        if session.exec(select(col(Subscriber.id)).offset(LARGE).limit(1)).first() is not None:
            for other in [key for key, old in self._figures.items() if abs(figure.at - old.at) >= MAX_AGE]:
                del self._figures[other]
            self._figures[name] = figure
        return figure
