"""The whole archive is searched as digests are matched, and what was made for that is kept."""

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
from app.relevance.archive_search import SHOWN, ArchiveSearch, SearchIndex
from app.relevance.matching import MatchIndex
from app.relevance.model import RelevanceModel
from app.runtime import interpreter
from app.storage.models import Paper
from app.types import PaperView
from tests import corpora, shelves
from tests.conftest import NOW

DAY = NOW.date()


def written(app: Application, *titles: str, day: date = DAY, **fields: object) -> list[int]:
    """Papers of the archive; their ids."""
    with app.db.write() as session:
        source = shelves.source(session, NOW, f"source of {titles[0]}")
        return [shelves.paper(session, source, title, day, NOW, **fields) for title in titles]


def found(
    library: ArchiveSearch,
    app: Application,
    text: str,
    only: PaperFilter = PaperFilter(),  # noqa: B008
    now: datetime = NOW,
) -> list[int]:
    with app.db.read() as session:
        outdated = library.outdated(session, now)
    if outdated:
        library.renew()
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
def test_search_finds_what_an_interest_finds(text: str) -> None:
    """The quick way over all papers leaves out what the way through each paper leaves out."""
    papers = [
        replace(
            paper,
            authors=(("Lovelace, Ada", "Alan Turing"), ("Grace Hopper",))[paper.id % 2],
            categories=(("cs.CL",), ("math.PR", "cs.LG"), ("math",))[paper.id % 3],
        )
        for paper in corpora.papers()
    ]
    corpus, query = (
        RelevanceModel.of([(paper.title, paper.abstract) for paper in papers]),
        query_language.parse(text),
    )
    (hits,) = MatchIndex(papers, corpus).match([query])
    assert set(SearchIndex(papers, corpus).find(query)) == {
        n for n, relevance in hits.items() if relevance >= SHOWN
    }
    assert hits


def test_what_fits_as_well_comes_newest_first(app: Application) -> None:
    """And of one day what came last."""
    older = written(app, "Zebra stripes", day=DAY - timedelta(days=1))
    newer = written(app, "Zebra herds", "Zebra foals")
    assert found(ArchiveSearch(app.db, app.models), app, '"zebra"') == [newer[1], newer[0], *older]


def test_filters_narrow_what_is_found(app: Application) -> None:
    """By day, by source, by code, or by several at once."""
    (plain,) = written(app, "Zebra stripes")
    (coded,) = written(app, "Zebra herds", code_url="https://example.org/herds")
    (old,) = written(app, "Zebra foals", day=DAY - timedelta(days=1), code_url="https://example.org/foals")
    library = ArchiveSearch(app.db, app.models)
    assert set(found(library, app, "zebra")) == {plain, coded, old}
    assert set(found(library, app, "zebra", PaperFilter(code=True))) == {coded, old}
    assert set(found(library, app, "zebra", PaperFilter(day=DAY))) == {plain, coded}
    assert set(found(library, app, "zebra", PaperFilter(source="source of Zebra foals"))) == {old}
    assert found(library, app, "zebra", PaperFilter(DAY, "source of Zebra foals", True)) == []


def test_without_words_all_papers_come_newest_first(app: Application) -> None:
    """Those that no source listed last; what was withdrawn or merged away does not."""
    with app.db.write() as session:
        shelves.archive(session, 1, NOW)
    old = written(app, "Old", day=DAY - timedelta(days=1))
    new, withdrawn, merged = written(app, "New", "Withdrawn", "Merged")
    with app.db.write() as session:
        session.get_one(Paper, withdrawn).withdrawn_at = NOW
        session.get_one(Paper, merged).merged_into_id = new
    result = ArchiveSearch(app.db, app.models).search(None, PaperFilter(), 0, 2)
    assert [paper.id for paper in result.papers] == [new, *old]
    assert result.total == 3


def test_what_came_since_is_found_a_minute_later(app: Application) -> None:
    """The archive is not looked at for every visitor."""
    library, (first,) = ArchiveSearch(app.db, app.models), written(app, "Zebra stripes")
    assert found(library, app, "zebra") == [first]
    found(library, app, "zebra", now=NOW + timedelta(seconds=1))
    (second,) = written(app, "Zebra herds")
    assert found(library, app, "zebra", now=NOW + timedelta(seconds=59)) == [first]
    assert set(found(library, app, "zebra", now=NOW + timedelta(seconds=62))) == {first, second}


def test_what_is_withdrawn_is_gone_at_once(app: Application) -> None:
    """From what is found, and from how many papers those are, before the archive is looked at again."""
    library, (kept, withdrawn) = (
        ArchiveSearch(app.db, app.models),
        written(app, "Zebra stripes", "Zebra herds"),
    )
    assert set(found(library, app, "zebra")) == {kept, withdrawn}
    with app.db.write() as session:
        session.get_one(Paper, withdrawn).withdrawn_at = NOW
    result = library.search(query_language.parse("zebra"), PaperFilter(), 0, 20)
    with app.db.read() as session:
        assert queries.in_given_order(session, [withdrawn, kept]) == list(result.papers)
    assert [paper.id for paper in result.papers] == [kept]
    assert result.total == 1


def test_of_a_very_large_archive_the_newest_papers_are_searched(
    app: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those listed last, whenever they came in; and it is said how many those are."""
    monkeypatch.setattr(archive_search, "NEWEST", 2)
    newer = written(app, "Zebra stripes", "Zebra herds")
    everything = ArchiveSearch(app.db, app.models).search(query_language.parse("zebra"), PaperFilter(), 0, 20)
    assert everything.of_newest == 0
    written(app, "Zebra foals", day=DAY - timedelta(days=400))
    result = ArchiveSearch(app.db, app.models).search(query_language.parse("zebra"), PaperFilter(), 0, 20)
    assert {paper.id for paper in result.papers} == set(newer)
    assert result.of_newest == 2


def test_a_few_wait_until_the_archive_is_read(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody else is asked to come back: the threads and connections of others are not held up."""
    monkeypatch.setattr(archive_search, "WAITING", 1)
    (zebra,) = written(app, "Zebra stripes")
    library, reading, go_on = ArchiveSearch(app.db, app.models), Event(), Event()
    texts = queries.texts

    def slowly(session: Session, limit: int) -> list[PaperView]:
        reading.set()
        assert go_on.wait(10)
        return texts(session, limit)

    monkeypatch.setattr(queries, "texts", slowly)
    with ThreadPoolExecutor(1) as visitors:
        first = visitors.submit(library.search, query_language.parse("zebra"), PaperFilter(), 0, 20)
        assert reading.wait(10)
        with pytest.raises(NotReady):
            library.search(query_language.parse("zebra"), PaperFilter(), 0, 20)
        go_on.set()
    assert [paper.id for paper in first.result().papers] == [zebra]
    assert library.search(query_language.parse("zebra"), PaperFilter(), 0, 20).total == 1


def test_a_service_may_be_warmed_up(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first visitor waits for nothing; and where that fails, for what it takes."""
    zebra, *_ = written(app, "Zebra stripes")
    site = main.create_app(app)
    main.warm_up(site)
    monkeypatch.setattr(archive_search, "SearchIndex", None)
    monkeypatch.setattr(matching, "MatchIndex", None)
    found = site.state.library.search(query_language.parse("zebra -horse"), PaperFilter(), 0, 20)
    assert [paper.id for paper in found.papers] == [zebra]
    written(app, "Zebra herds")
    main.warm_up(site)  # cannot make the stacks anew
    assert site.state.library.search(query_language.parse("zebra"), PaperFilter(), 0, 20).total == 1


def test_the_collector_passes_over_a_large_archive(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """What stays for hours is not looked through whenever somebody asks for a page."""
    written(app, "Zebra stripes")
    monkeypatch.setattr(archive_search, "MANY", 1)
    try:
        ArchiveSearch(app.db, app.models).renew()
        with interpreter.tuned_for_throughput():
            pass
        assert gc.get_freeze_count(), "sending leaves it so"
    finally:
        gc.unfreeze()


def test_who_waits_for_the_archive_holds_no_connection(
    app: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who reads it needs one: it would wait for those who wait for it."""
    held: list[int] = []
    texts = queries.texts

    def counted(session: Session, limit: int) -> list[PaperView]:
        held.append(app.db.engine.pool.checkedout())  # type: ignore[attr-defined]
        return texts(session, limit)

    monkeypatch.setattr(queries, "texts", counted)
    client = TestClient(main.create_app(app))
    assert client.get("/search?q=zebra").status_code == 200
    assert held == [1]


def test_related_papers_say_nearly_the_same(app: Application) -> None:
    """They are told as soon as the archive was looked at, and never waited for."""
    with app.db.write() as session:
        for paper in corpora.papers():
            fields = {"title_key": paper.title, "content_hash": "", "created_at": NOW, "updated_at": NOW}
            session.add(Paper(title=paper.title, abstract=paper.abstract, **fields))
        shelves.archive(session, 100, NOW)
    app.models.learn(app.db, NOW)
    library = ArchiveSearch(app.db, app.models)
    with app.db.read() as session:
        (asked,) = queries.newest(session, PaperFilter(), 1, offset=339)
        assert library.related(session, asked.id, 5) == []
        library.renew()
        related = library.related(session, asked.id, 5)
    subject = next(subject for subject in corpora.SUBJECTS if subject in asked.abstract.lower())
    assert related
    assert asked not in related
    assert all(subject in paper.abstract.lower() for paper in related)
