"""Keep figures that take long to count. Each reader says how old a figure may be, and gets its age."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from threading import Lock
from typing import Any, Generic, TypeVar

from sqlalchemy import event
from sqlmodel import Session, func, select

from app.storage.models import Subscriber

LARGE = 10_000  # subscribers; up to this number, all figures are counted anew
MAX_AGE = timedelta(minutes=10)  # for operators, unless they change something; alerts count every 5 minutes

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Figure(Generic[Value]):
    """A figure, and the time at which it was counted."""

    value: Value
    at: datetime


class FigureCache:
    """The figures of a database by name, which the pages, the API, metrics and checks of a process share."""

    def __init__(self) -> None:
        self._figures: dict[str, Figure[Any]] = {}
        self._locks = defaultdict[str, Lock](Lock)

    def get(
        self, session: Session, name: str, now: datetime, max_age: timedelta, count: Callable[[], Value]
    ) -> Figure[Value]:
        """Return a figure that is younger than `max_age`, or else count it and keep it for other readers.

        While one thread counts, the others wait. If `max_age` is zero, the figure is always counted.
        """
        with self._locks[name]:
            figures = self._figures  # after `clear`, a figure that was counted before is not kept
            figure = figures.get(name)
            if figure is None or not timedelta() <= now - figure.at < max_age:
                figure = Figure(count(), now)
                if (session.exec(select(func.max(Subscriber.id))).one() or 0) > LARGE:
                    figures[name] = figure
            return figure

    def clear_after_commit(self, session: Session) -> None:
        """Forget all figures when the session's changes, such as those of an operator, are visible."""
        event.listen(session, "after_commit", lambda _: self._clear(), once=True)

    def _clear(self) -> None:
        self._figures = {}


@dataclass
class FigureReader:
    """A reader of figures that are younger than `max_age`. `oldest` is the time of the oldest one it got."""

    cache: FigureCache
    max_age: timedelta = timedelta()
    oldest: datetime | None = None

    def get(self, session: Session, name: str, now: datetime, count: Callable[[], Value]) -> Value:
        figure = self.cache.get(session, name, now, self.max_age, count)
        self.oldest = min(self.oldest or figure.at, figure.at)
        return figure.value
