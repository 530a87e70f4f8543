"""Word statistics come from the archive as soon as it is large enough to know."""

from __future__ import annotations

from app.lexicon import YOUNG, Lexicon
from app.models import Paper
from app.pipeline import App
from tests.conftest import NOW


def fill(app: App, first: int, count: int) -> None:
    with app.db.write() as session:
        for number in range(first, first + count):
            title = f"Zebrafish number {number}"
            session.add(Paper(title=title, title_key=title, content_hash="", created_at=NOW, updated_at=NOW))


def test_a_young_archive_uses_the_shipped_counts(app: App) -> None:
    """Three papers say nothing of what is common in the field."""
    fill(app, 0, 3)
    with app.db.read() as session:
        statistics = Lexicon().current(session)
    assert statistics.papers > 5_000
    assert statistics.idf("model") < statistics.idf("zebrafish")


def test_a_grown_archive_counts_for_itself_and_again_when_it_has_grown(app: App) -> None:
    """What is common is what is common here; a few papers more change nothing, many do."""
    lexicon = Lexicon()
    fill(app, 0, YOUNG)
    with app.db.read() as session:
        first = lexicon.current(session)
        assert first.frequencies["zebrafish"] == YOUNG
        assert lexicon.current(session) is first
    fill(app, YOUNG, YOUNG // 10)
    with app.db.read() as session:
        assert lexicon.current(session).papers == YOUNG * 11 // 10
