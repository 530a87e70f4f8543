"""Test how long figures of large installations are kept."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import count

import pytest
from sqlmodel import Session

from app.application import Application
from app.storage import figure_cache
from app.storage.figure_cache import FigureReader
from app.storage.models import Source
from app.types import SourceKind
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


def test_changes_are_counted_at_once(app: Application, session: Session, now: datetime) -> None:
    """Figures are forgotten when the change is visible, and with them one that is being counted meanwhile."""
    reader, numbers = FigureReader(app.db.figures, MINUTE), count(1)

    def read() -> int:
        return reader.get(session, "a", now, lambda: next(numbers))

    assert read() == 1
    with app.db.write() as other:
        app.db.figures.clear_after_commit(other)
        other.add(Source(name="The lab", kind=SourceKind.FEED, created_at=now))
        other.flush()
        assert read() == 1, "the change is not visible yet"
    assert read() == 2
    assert reader.get(session, "b", now, lambda: app.db.figures._clear() or 1) == 1  # type: ignore[func-returns-value]
    assert reader.get(session, "b", now, lambda: 2) == 2
