"""Test how long figures of large installations are kept."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from itertools import count
from threading import Event

import pytest
from sqlmodel import Session, func, select

from app.application import Application
from app.storage import audit_log, figure_cache
from app.storage.figure_cache import MAX_AGE, FigureReader
from app.storage.models import Subscriber
from tests.support import factories

MINUTE = timedelta(minutes=1)


@pytest.fixture
def session(app: Application, now: datetime, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """Yield a session of an installation that counts as large."""
    monkeypatch.setattr(figure_cache, "LARGE", 0)
    with app.db.write() as session:
        factories.add_subscriber(session, "alice@example.org", [], now)
    with app.db.read() as session:
        yield session


def test_figures_are_kept_as_long_as_a_reader_accepts(
    app: Application, session: Session, now: datetime
) -> None:
    """A reader that accepts no age counts for the others. A clock that was set back makes no figure newer."""
    numbers = count(1)

    def read(minutes: int, at: datetime) -> int:
        reader = FigureReader(app.db.figures, minutes * MINUTE)
        return reader.get(session, "a", at, lambda: next(numbers))

    assert [read(5, now), read(5, now + 4 * MINUTE), read(5, now + 5 * MINUTE)] == [1, 1, 2]
    assert [read(0, now + 6 * MINUTE), read(5, now + 7 * MINUTE)] == [3, 3]
    assert read(5, now) == 4


def test_small_installations_count_anew(
    app: Application, session: Session, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figure_cache, "LARGE", 1)
    reader, numbers = FigureReader(app.db.figures, MINUTE), count(1)
    assert [reader.get(session, "a", now, lambda: next(numbers)) for _ in range(2)] == [1, 2]


def test_reader_knows_its_oldest_figure(app: Application, session: Session, now: datetime) -> None:
    reader = FigureReader(app.db.figures, 5 * MINUTE)
    assert reader.oldest is None
    for name, at in (("a", now), ("b", now + MINUTE), ("a", now + MINUTE)):
        reader.get(session, name, at, lambda: 1)
        assert reader.oldest == now


def test_threads_that_waited_for_a_figure_use_it(app: Application, session: Session, now: datetime) -> None:
    """They do not count it again, although their requests began earlier."""
    began, may_end, numbers = Event(), Event(), count(1)

    def count_slowly() -> int:
        began.set()
        assert may_end.wait(10)
        return next(numbers)

    def read(at: datetime) -> int:
        with app.db.read() as session:
            return FigureReader(app.db.figures, MINUTE).get(session, "a", at, count_slowly)

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(read, now)
        assert began.wait(10)
        second = threads.submit(read, now - timedelta(seconds=1))
        may_end.set()
        assert (first.result(), second.result()) == (1, 1)


def test_changes_are_counted_at_once(app: Application, session: Session, now: datetime) -> None:
    """Figures are forgotten when the change is visible, also after a savepoint."""
    numbers = count(1)

    def read() -> int:
        return FigureReader(app.db.figures, MINUTE).get(session, "a", now, lambda: next(numbers))

    assert read() == 1
    with app.db.write() as other:
        audit_log.record(other, "cli", "subscriber.add", 1, now)
        with other.begin_nested():
            other.flush()
        assert read() == 1, "the change is not visible yet"
    assert read() == 2
    with app.db.write() as other:
        audit_log.record(other, "cli", "source.add", "The lab", now)
    assert read() == 2, "no figure depends on the sources"


def test_figures_that_lack_a_change_are_not_kept(app: Application, session: Session, now: datetime) -> None:
    """On SQLite, a session that has begun to read before a change does not see it."""

    def read(session: Session, name: str, reader: FigureReader) -> int:
        query = select(func.count()).select_from(Subscriber)
        return reader.get(session, name, now, session.exec(query).one)

    with app.db.read() as earlier:
        reader = FigureReader(app.db.figures, MINUTE)
        assert read(earlier, "a", reader) == 1
        with app.db.write() as other:
            factories.add_subscriber(other, "bob@example.org", [], now)
            audit_log.record(other, "cli", "subscriber.add", 2, now)
        assert read(earlier, "b", reader) == (2 if app.db.locks_rows else 1)
    with app.db.read() as later:
        assert read(later, "b", FigureReader(app.db.figures, MINUTE)) == 2


def test_old_figures_are_deleted(app: Application, session: Session, now: datetime) -> None:
    for minute in range(30):
        reader = FigureReader(app.db.figures, MAX_AGE)
        reader.get(session, f"report {minute}", now + minute * MINUTE, lambda: 1)
    assert len(app.db.figures.figures) == 10
