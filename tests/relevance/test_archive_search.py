"""Test the archive search: it matches queries like interests, and caches its index."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date, datetime, timedelta
from threading import Event

import pytest
from fastapi.testclient import TestClient
from sqlmodel import Session

from app import main
from app.application import Application
from app.errors import NotReady
from app.papers import queries
from app.papers.queries import PaperFilter
from app.relevance import archive_search, matching, query_language
from app.relevance.archive_search import MIN_RELEVANCE, ArchiveSearch, SearchIndex
from app.relevance.matching import MatchIndex
from app.relevance.model import RelevanceModel
from app.runtime import interpreter
from app.storage.models import Paper
from app.types import PaperView
from tests.conftest import NOW
from tests.support import factories, sample_archive

DAY = NOW.date()


def add_papers(app: Application, *titles: str, day: date = DAY, **fields: object) -> list[int]:
    """Add papers with these titles to the archive. Return their ids."""
    with app.db.write() as session:
        source = factories.add_source(session, NOW, f"source of {titles[0]}")
        return [factories.add_paper(session, source, title, day, NOW, **fields) for title in titles]


def search(
    library: ArchiveSearch,
    app: Application,
    text: str,
    only: PaperFilter = PaperFilter(),  # noqa: B008
    now: datetime = NOW,
) -> list[int]:
    """Refresh the index if it is outdated. Return the ids of the papers found."""
    with app.db.read() as session:
        is_outdated = library.is_outdated(session, now)
    if is_outdated:
        library.refresh()
    return [paper.id for paper in library.search(query_language.parse(text), only, 0, 20).papers]


@pytest.mark.parametrize(
    "text",
    [
        "offline policies of an actor",
        '"machine translation"',
        "RL -bandit",
        'speech -"protein folding" author:turing',
        "author:lovelace -cat:cs",
        'cat:math "we study" -RL -author:"ada lovelace"',
        "-MT retrieval",
    ],
)
def test_search_matches_like_an_interest(text: str) -> None:
    """The search index returns the papers that an interest matches, from MIN_RELEVANCE on."""
    papers = [
        replace(
            paper,
            authors=(("Lovelace, Ada", "Alan Turing"), ("Grace Hopper",))[paper.id % 2],
            categories=(("cs.CL",), ("math.PR", "cs.LG"), ("math",))[paper.id % 3],
        )
        for paper in sample_archive.papers()
    ]
    model = RelevanceModel.train([(paper.title, paper.abstract) for paper in papers])
    query = query_language.parse(text)
    (hits,) = MatchIndex(papers, model).match([query])
    assert set(SearchIndex(papers, model).search(query)) == {
        n for n, relevance in hits.items() if relevance >= MIN_RELEVANCE
    }
    assert hits


def test_equal_matches_are_sorted_newest_first(app: Application) -> None:
    """Of papers listed on the same day, the one added last comes first."""
    older = add_papers(app, "Zebra stripes", day=DAY - timedelta(days=1))
    newer = add_papers(app, "Zebra herds", "Zebra foals")
    assert search(ArchiveSearch(app.db, app.models), app, '"zebra"') == [newer[1], newer[0], *older]


def test_search_filters(app: Application) -> None:
    """Filters are by day, by source, by code, or by several of them."""
    (plain,) = add_papers(app, "Zebra stripes")
    (coded,) = add_papers(app, "Zebra herds", code_url="https://example.org/herds")
    (old,) = add_papers(app, "Zebra foals", day=DAY - timedelta(days=1), code_url="https://example.org/foals")
    library = ArchiveSearch(app.db, app.models)
    assert set(search(library, app, "zebra")) == {plain, coded, old}
    assert set(search(library, app, "zebra", PaperFilter(code=True))) == {coded, old}
    assert set(search(library, app, "zebra", PaperFilter(day=DAY))) == {plain, coded}
    assert set(search(library, app, "zebra", PaperFilter(source="source of Zebra foals"))) == {old}
    assert search(library, app, "zebra", PaperFilter(DAY, "source of Zebra foals", True)) == []


def test_search_without_words_lists_all_papers(app: Application) -> None:
    """Papers without a listing come last. Withdrawn and merged papers are left out."""
    with app.db.write() as session:
        factories.add_unlisted_papers(session, 1, NOW)
    old = add_papers(app, "Old", day=DAY - timedelta(days=1))
    new, withdrawn, merged = add_papers(app, "New", "Withdrawn", "Merged")
    with app.db.write() as session:
        session.get_one(Paper, withdrawn).withdrawn_at = NOW
        session.get_one(Paper, merged).merged_into_id = new
    result = ArchiveSearch(app.db, app.models).search(None, PaperFilter(), 0, 2)
    assert [paper.id for paper in result.papers] == [new, *old]
    assert result.total == 3


def test_new_papers_are_found_within_a_minute(app: Application) -> None:
    """The archive is checked for changes once a minute, not for every visitor."""
    library, (first,) = ArchiveSearch(app.db, app.models), add_papers(app, "Zebra stripes")
    assert search(library, app, "zebra") == [first]
    search(library, app, "zebra", now=NOW + timedelta(seconds=1))
    (second,) = add_papers(app, "Zebra herds")
    assert search(library, app, "zebra", now=NOW + timedelta(seconds=59)) == [first]
    assert set(search(library, app, "zebra", now=NOW + timedelta(seconds=62))) == {first, second}


def test_withdrawn_papers_disappear_immediately(app: Application) -> None:
    """It is missing from the results and the total, before the index is rebuilt."""
    library = ArchiveSearch(app.db, app.models)
    remaining, withdrawn = add_papers(app, "Zebra stripes", "Zebra herds")
    assert set(search(library, app, "zebra")) == {remaining, withdrawn}
    with app.db.write() as session:
        session.get_one(Paper, withdrawn).withdrawn_at = NOW
    result = library.search(query_language.parse("zebra"), PaperFilter(), 0, 20)
    with app.db.read() as session:
        assert queries.in_given_order(session, [withdrawn, remaining]) == list(result.papers)
    assert [paper.id for paper in result.papers] == [remaining]
    assert result.total == 1


def test_search_covers_the_newest_papers_of_a_large_archive(
    app: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The papers listed last are searched, and the page says how many they are."""
    monkeypatch.setattr(archive_search, "MAX_PAPERS", 2)
    newer = add_papers(app, "Zebra stripes", "Zebra herds")
    everything = ArchiveSearch(app.db, app.models).search(query_language.parse("zebra"), PaperFilter(), 0, 20)
    assert everything.of_newest == 0
    add_papers(app, "Zebra foals", day=DAY - timedelta(days=400))
    result = ArchiveSearch(app.db, app.models).search(query_language.parse("zebra"), PaperFilter(), 0, 20)
    assert {paper.id for paper in result.papers} == set(newer)
    assert result.of_newest == 2


def test_few_searches_wait_for_the_index(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others get NotReady at once, so that they hold no thread and no connection."""
    monkeypatch.setattr(archive_search, "MAX_WAITING", 1)
    (zebra,) = add_papers(app, "Zebra stripes")
    library, reading, go_on = ArchiveSearch(app.db, app.models), Event(), Event()
    texts = queries.texts

    def waiting(session: Session, limit: int) -> list[PaperView]:
        reading.set()
        assert go_on.wait(10)
        return texts(session, limit)

    monkeypatch.setattr(queries, "texts", waiting)
    with ThreadPoolExecutor(1) as visitors:
        first = visitors.submit(library.search, query_language.parse("zebra"), PaperFilter(), 0, 20)
        assert reading.wait(10)
        with pytest.raises(NotReady):
            library.search(query_language.parse("zebra"), PaperFilter(), 0, 20)
        go_on.set()
    assert [paper.id for paper in first.result().papers] == [zebra]
    assert library.search(query_language.parse("zebra"), PaperFilter(), 0, 20).total == 1


def test_warm_up(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """After warming up, the first visitor does not wait. A failure keeps the old index."""
    zebra, *_ = add_papers(app, "Zebra stripes")
    site = main.create_app(app)
    main.warm_up(site)
    monkeypatch.setattr(archive_search, "SearchIndex", None)
    monkeypatch.setattr(matching, "MatchIndex", None)
    page = site.state.archive_search.search(query_language.parse("zebra -horse"), PaperFilter(), 0, 20)
    assert [paper.id for paper in page.papers] == [zebra]
    add_papers(app, "Zebra herds")
    main.warm_up(site)  # cannot rebuild the index
    assert site.state.archive_search.search(query_language.parse("zebra"), PaperFilter(), 0, 20).total == 1


def test_index_is_excluded_from_garbage_collection(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects of a large index are frozen, so that garbage collection skips them."""
    add_papers(app, "Zebra stripes")
    monkeypatch.setattr(archive_search, "MIN_PAPERS_TO_FREEZE", 1)
    try:
        ArchiveSearch(app.db, app.models).refresh()
        with interpreter.tuned_for_throughput():
            pass
        assert gc.get_freeze_count(), "sending does not unfreeze it"
    finally:
        gc.unfreeze()


def test_waiting_searches_hold_no_database_connection(
    app: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the thread that builds the index could wait for a connection that waiting threads hold."""
    checked_out: list[int] = []
    texts = queries.texts

    def counting(session: Session, limit: int) -> list[PaperView]:
        checked_out.append(app.db.engine.pool.checkedout())  # type: ignore[attr-defined]
        return texts(session, limit)

    monkeypatch.setattr(queries, "texts", counting)
    client = TestClient(main.create_app(app))
    assert client.get("/search?q=zebra").status_code == 200
    assert checked_out == [1]


def test_related_papers(app: Application) -> None:
    """They are empty until the index is built, because no page waits for it."""
    with app.db.write() as session:
        for paper in sample_archive.papers():
            fields = {"title_key": paper.title, "content_hash": "", "created_at": NOW, "updated_at": NOW}
            session.add(Paper(title=paper.title, abstract=paper.abstract, **fields))
        factories.add_unlisted_papers(session, 100, NOW)
    app.models.train(app.db, NOW)
    library = ArchiveSearch(app.db, app.models)
    with app.db.read() as session:
        (paper,) = queries.newest(session, PaperFilter(), 1, offset=339)
        assert library.related_papers(session, paper.id, 5) == []
        library.refresh()
        related = library.related_papers(session, paper.id, 5)
    subject = next(subject for subject in sample_archive.SUBJECTS if subject in paper.abstract.lower())
    assert related
    assert paper not in related
    assert all(subject in other.abstract.lower() for other in related)
