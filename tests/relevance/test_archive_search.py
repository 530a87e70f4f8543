"""Test the archive search: it follows the archive, survives damage, and waits for nobody."""

import gc
import json
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import date, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import time_machine
from sqlmodel import Session, col, delete, select

from app import clock, main, pipeline
from app.application import Application
from app.errors import InvalidInterest, NotReady
from app.papers import archive_lists, merging, paper_views, searchable_papers
from app.papers.archive_lists import PaperFilter
from app.papers.searchable_papers import SearchablePaper
from app.papers.sources import files
from app.papers.sources.files import ParsedFile
from app.relevance import (
    archive_search,
    model_store,
    query_language,
    search_index_folder,
    search_index_updates,
    search_ranking,
)
from app.relevance.archive_search import ArchiveSearch
from app.relevance.model import RelevanceModel
from app.relevance.model_store import LoadedModel
from app.relevance.search_index import IndexReader, IndexWriter
from app.relevance.search_index_folder import IndexFolder
from app.storage.models import JobRun, Listing, Paper, VoteCount
from tests.conftest import NOW
from tests.support import factories, sample_archive

DAY = NOW.date()


def new_search(app: Application) -> ArchiveSearch:
    """Return the search of a process that has just started."""
    return ArchiveSearch(app.db, app.models, Path(app.settings.search_dir), app.stopping)


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


@pytest.mark.once
def test_finds_papers_of_an_import_that_takes_hours(
    app: Application, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were dated the beginning of the import, so updates of the index did not look for them."""
    file, original = tmp_path / "dump.jsonl", files.read_file
    rows = [{"id": f"0704.{number:04}", "title": f"Zebra stripes, part {number}"} for number in (1, 2)]
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    library = new_search(app)
    monkeypatch.setattr(files, "ROWS_PER_PART", 1)
    with time_machine.travel(NOW, tick=False) as traveller:

        def read_slowly(*arguments: Any, **options: Any) -> Iterator[ParsedFile]:
            first, second = original(*arguments, **options)
            yield first
            traveller.shift(timedelta(hours=2))
            with app.db.write() as session:  # a poll
                source = factories.add_source(session, NOW, "polled")
                factories.add_paper(session, source, "Giraffes", DAY, clock.utcnow())
            assert len(search(library, app, "zebra", now=clock.utcnow())) == 1
            traveller.shift(timedelta(minutes=2))
            yield second

        monkeypatch.setattr(files, "read_file", read_slowly)
        assert pipeline.read_files(app, [file], NOW).summary.papers_new == 2
        assert len(search(library, app, "zebra", now=clock.utcnow())) == 2


def test_equal_matches_are_sorted_newest_first(app: Application) -> None:
    """Of papers listed on the same day, the one added last comes first."""
    older = add_papers(app, "Zebra stripes", day=DAY - timedelta(days=1))
    newer = add_papers(app, "Zebra herds", "Zebra foals")
    assert search(new_search(app), app, '"zebra"') == [newer[1], newer[0], *older]


def test_search_filters(app: Application) -> None:
    """Filters are by day, by source, by code, or by several of them."""
    (plain,) = add_papers(app, "Zebra stripes")
    (coded,) = add_papers(app, "Zebra herds", code_url="https://example.org/herds")
    (old,) = add_papers(app, "Zebra foals", day=DAY - timedelta(days=1), code_url="https://example.org/foals")
    library = new_search(app)
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
    result = new_search(app).search(None, PaperFilter(), 0, 2)
    assert [paper.id for paper in result.papers] == [new, *old]
    assert result.total == 3


def test_new_papers_are_found_within_a_minute(app: Application) -> None:
    """The archive is checked for changes once a minute, not for every visitor."""
    library, (first,) = new_search(app), add_papers(app, "Zebra stripes")
    assert search(library, app, "zebra") == [first]
    search(library, app, "zebra", now=NOW + timedelta(seconds=1))
    (second,) = add_papers(app, "Zebra herds")
    assert search(library, app, "zebra", now=NOW + timedelta(seconds=59)) == [first]
    assert set(search(library, app, "zebra", now=NOW + timedelta(seconds=62))) == {first, second}


def test_withdrawn_papers_disappear_immediately(app: Application) -> None:
    """It is missing from the results and the total, before the index is rebuilt."""
    library = new_search(app)
    remaining, withdrawn = add_papers(app, "Zebra stripes", "Zebra herds")
    assert set(search(library, app, "zebra")) == {remaining, withdrawn}
    with app.db.write() as session:
        session.get_one(Paper, withdrawn).withdrawn_at = NOW
    result = library.search(query_language.parse("zebra"), PaperFilter(), 0, 20)
    with app.db.read() as session:
        assert paper_views.in_given_order(session, [withdrawn, remaining]) == list(result.papers)
    assert [paper.id for paper in result.papers] == [remaining]
    assert result.total == 1


def test_few_searches_wait_for_the_index(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others get NotReady at once, so that they hold no thread and no connection."""
    monkeypatch.setattr(archive_search, "MAX_WAITING", 1)
    (zebra,) = add_papers(app, "Zebra stripes")
    library, reading, go_on = new_search(app), Event(), Event()
    load = searchable_papers.load

    def waiting(session: Session, ids: Sequence[int]) -> list[SearchablePaper]:
        reading.set()
        assert go_on.wait(10)
        return load(session, ids)

    monkeypatch.setattr(searchable_papers, "load", waiting)
    with ThreadPoolExecutor(1) as visitors:
        first = visitors.submit(library.search, query_language.parse("zebra"), PaperFilter(), 0, 20)
        assert reading.wait(10)
        with pytest.raises(NotReady):
            library.search(query_language.parse("zebra"), PaperFilter(), 0, 20)
        go_on.set()
    assert [paper.id for paper in first.result().papers] == [zebra]


def test_waiting_searches_hold_no_database_connection(
    app: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the thread that builds the index could wait for a connection that waiting threads hold."""
    add_papers(app, "Zebra stripes")
    checked_out: list[int] = []
    load = searchable_papers.load

    def counting(session: Session, ids: Sequence[int]) -> list[SearchablePaper]:
        checked_out.append(app.db.engine.pool.checkedout())  # type: ignore[attr-defined]
        return load(session, ids)

    monkeypatch.setattr(searchable_papers, "load", counting)
    new_search(app).search(query_language.parse("zebra"), PaperFilter(), 0, 20)
    assert checked_out == [0]


def test_unfinished_index_is_searched(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest papers come first, and the page says how many can be searched so far."""
    old, new = add_papers(app, "Zebra stripes", "Zebra herds")
    monkeypatch.setattr(search_index_updates, "PAPERS_PER_BATCH", 1)
    monkeypatch.setattr(search_index_updates, "FIRST_PAPERS", 1)
    monkeypatch.setattr(search_index_updates, "WINDOW", 1)
    library = new_search(app)
    updates = library._updater
    update_window = updates._update_window

    def stopping_after_the_first(writer: IndexWriter, window: int) -> None:
        update_window(writer, window)
        app.stopping.set()

    monkeypatch.setattr(updates, "_update_window", stopping_after_the_first)
    library.refresh()
    page = library.search(query_language.parse("zebra"), PaperFilter(), 0, 20)
    assert ([paper.id for paper in page.papers], page.searchable) == ([new], 1)
    app.stopping.clear()
    assert set(search(new_search(app), app, "zebra")) == {old, new}
    page = library.search(query_language.parse("zebra"), PaperFilter(), 0, 20)
    assert ({paper.id for paper in page.papers}, page.searchable) == ({old, new}, 0)


def test_warm_up(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """After warming up, the first visitor does not wait. A failure keeps the old index."""
    zebra, *_ = add_papers(app, "Zebra stripes")
    site = main.create_app(app)
    main.warm_up(site)
    library = site.state.archive_search
    page = library.search(query_language.parse("zebra -horse"), PaperFilter(), 0, 20)
    assert [paper.id for paper in page.papers] == [zebra]
    monkeypatch.setattr(searchable_papers, "load", None)
    add_papers(app, "Zebra herds")
    library.refresh_after_response()
    assert library.search(query_language.parse("zebra"), PaperFilter(), 0, 20).total == 1


def test_changed_papers(app: Application) -> None:
    """An update follows edits, hidden and withdrawn papers, merges, listings and deleted rows."""
    edited, hidden, withdrawn, survivor, absorbed, listed, deleted = add_papers(
        app, *(f"Zebra {name}" for name in ("stripes", "herds", "foals", "eyes", "ears", "tails", "hooves"))
    )
    library = new_search(app)
    assert len(search(library, app, "zebra")) == 7
    later = NOW + timedelta(hours=2)
    with app.db.write() as session:
        papers = {number: session.get_one(Paper, number) for number in (edited, hidden, withdrawn, survivor)}
        papers[edited].title, papers[edited].updated_at = "Pigeon stripes", later
        papers[hidden].hidden_at = papers[hidden].updated_at = later
        papers[withdrawn].withdrawn_at = papers[withdrawn].updated_at = later
        merging.merge(session, papers[survivor], session.get_one(Paper, absorbed), "same title", later)
        other = factories.add_source(session, NOW, "another source")
        session.add(Listing(paper_id=listed, original_paper_id=listed, source_id=other.id, listed_on=DAY))
        for table in (Listing, VoteCount):
            session.execute(delete(table).where(col(table.paper_id) == deleted))
        session.execute(delete(Paper).where(col(Paper.id) == deleted))
    assert set(search(library, app, "zebra", now=later)) == {survivor, listed}
    assert search(library, app, "pigeon", now=later) == [edited]
    assert search(library, app, "zebra", PaperFilter(source="another source"), now=later) == [listed]
    with app.db.write() as session:
        merging.undo_merge(session, 1, later + timedelta(hours=2))
        session.get_one(Paper, hidden).hidden_at = None
        session.get_one(Paper, hidden).updated_at = later + timedelta(hours=2)
    found = search(library, app, "zebra", now=later + timedelta(hours=3))
    assert set(found) == {survivor, absorbed, listed, hidden}


def test_all_papers_are_compared_once_a_day(app: Application) -> None:
    """So even a change without a time is found, and a paper whose row was deleted is removed."""
    changed, deleted = add_papers(app, "Zebra stripes", "Zebra herds")
    library = new_search(app)
    search(library, app, "zebra")
    with app.db.write() as session:
        session.get_one(Paper, changed).last_listed_on = DAY - timedelta(days=1)
        for table in (Listing, VoteCount):
            session.execute(delete(table).where(col(table.paper_id) == deleted))
        session.execute(delete(Paper).where(col(Paper.id) == deleted))
    with time_machine.travel(clock.utcnow() + timedelta(days=2)):
        library.refresh()
    with app.db.read() as session:
        current = app.models.current(session)
    reader = IndexReader(library._updater.folder.version_in_use(), current)
    ids, records = reader.records([changed, deleted])
    assert ids == [changed]
    assert records.days.tolist() == [(DAY - timedelta(days=1)).toordinal()]
    assert reader.papers == 1


def test_clock_was_ahead(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """Papers that are added after it was set right are found, although older ones have later dates."""
    monkeypatch.setattr(search_index_updates, "WINDOW", 1)
    library, expected = new_search(app), set[int]()
    later = NOW + timedelta(minutes=2)
    for now, title in ((NOW + timedelta(days=365), "stripes"), (NOW, "herds"), (later, "foals")):
        with app.db.write() as session:
            source = factories.add_source(session, NOW, title)
            expected.add(factories.add_paper(session, source, f"Zebra {title}", DAY, now))
            session.exec(delete(Listing))  # new listings also cause an update
        with time_machine.travel(now, tick=False):
            assert set(search(library, app, "zebra", now=now)) == expected


def test_database_clock_is_ahead(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes, which the database's clock dates, are found at once."""
    ahead = timedelta(minutes=10)
    monkeypatch.setattr(searchable_papers, "skew", lambda session: ahead)
    library, expected = new_search(app), set[int]()
    for minutes, title in ((0, "stripes"), (2, "herds")):
        now = NOW + timedelta(minutes=minutes)
        with app.db.write() as session:
            source = factories.add_source(session, NOW, title)
            expected.add(factories.add_paper(session, source, f"Zebra {title}", DAY, now + ahead))
            session.exec(delete(Listing))  # new listings also cause an update
        with time_machine.travel(now, tick=False):
            assert set(search(library, app, "zebra", now=now)) == expected


def test_texts_without_a_record_are_removed(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that dies between its two commits leaves them, and the papers may be gone afterwards."""
    remaining, withdrawn = add_papers(app, "Zebra stripes", "Zebra herds")
    library = new_search(app)

    def die_between_the_commits(writer: IndexWriter) -> None:
        writer._writer.commit()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(IndexWriter, "commit", die_between_the_commits)
        with pytest.raises(KeyboardInterrupt):
            library.refresh()
    with app.db.write() as session:
        session.get_one(Paper, withdrawn).withdrawn_at = NOW
    library.refresh()
    assert search(library, app, "zebra") == [remaining]
    assert library._opened
    assert library._opened[0].papers == 1


def test_index_of_an_older_model(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is used and updated until its age justifies a new one. Then the new one replaces it."""
    monkeypatch.setattr(model_store, "MIN_PAPERS", 100)
    (zebra,) = add_papers(app, "Zebra stripes")
    with app.db.write() as session:
        factories.add_unlisted_papers(session, 1000, NOW)
    library = new_search(app)
    assert search(library, app, "zebra") == [zebra]
    first = library._updater.folder.version_in_use()
    add_papers(app, "Pigeon herds")
    assert app.models.train(app.db, NOW).model_id
    library = new_search(app)
    library.refresh()
    assert library._updater.folder.version_in_use() == first
    assert library.search(query_language.parse("zebra"), PaperFilter(), 0, 20).total == 1
    assert library.search(query_language.parse("pigeon"), PaperFilter(), 0, 20).total == 1
    with time_machine.travel(clock.utcnow() + timedelta(days=1)):
        library.refresh()
    second = library._updater.folder.version_in_use()
    assert first != second
    assert library.search(query_language.parse("zebra"), PaperFilter(), 0, 20).total == 1
    gc.collect()  # the first search
    library.refresh()
    assert [path for path in second.parent.iterdir() if path.is_dir()] == [second]


@pytest.mark.once
@pytest.mark.parametrize("part", ["papers.db", "meta.json", ".idx", ".term", ".fast", "model.npz"])
def test_damaged_index_is_built_again(app: Application, part: str) -> None:
    """The next search notices the damage, or finds the paper in what is still readable."""
    (zebra,) = add_papers(app, "Zebra stripes")
    assert search(new_search(app), app, "zebra") == [zebra]
    for file in Path(app.settings.search_dir).rglob(f"*{part}"):
        file.write_bytes(b"\x00damaged\xff" * 20)
    library = new_search(app)
    with suppress(NotReady):
        library.search(query_language.parse("zebra"), PaperFilter(), 0, 20)
    library.refresh()
    assert search(library, app, "zebra") == [zebra]


def test_other_processes_use_the_version_built_again(app: Application) -> None:
    """They notice it although it belongs to the same model, and the old one is removed after that."""
    (zebra,) = add_papers(app, "Zebra stripes")
    library, other = new_search(app), new_search(app)
    assert search(library, app, "zebra") == search(other, app, "zebra") == [zebra]
    old = library._updater.folder.version_in_use()
    assert old
    search_index_folder.mark_damaged(old)
    (second,) = add_papers(app, "Zebra herds")
    library.refresh()
    page = other.search(query_language.parse("zebra"), PaperFilter(), 0, 20)
    assert {paper.id for paper in page.papers} == {zebra, second}
    assert library.search(query_language.parse("zebra"), PaperFilter(), 0, 20).total == 2
    library.refresh()
    assert not old.exists()


def test_version_replaced_while_it_is_opened(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search then opens the version that replaced it, and reports no damage."""
    (zebra,) = add_papers(app, "Zebra stripes")
    library, other = new_search(app), new_search(app)
    assert search(library, app, "zebra") == [zebra]
    old, model_of = library._updater.folder.version_in_use(), other._updater.model_of
    assert old
    search_index_folder.mark_damaged(old)
    library._opened = None

    def replace_first(version: Path, newest: LoadedModel) -> RelevanceModel:
        if version == old:
            library.refresh()
        return model_of(version, newest)

    monkeypatch.setattr(other._updater, "model_of", replace_first)
    assert search(other, app, "zebra") == [zebra]
    new = library._updater.folder.version_in_use()
    assert new
    assert new != old
    assert not search_index_folder.is_damaged(new)


def test_missing_index_is_built_again(app: Application) -> None:
    (zebra,) = add_papers(app, "Zebra stripes")
    library = new_search(app)
    assert search(library, app, "zebra") == [zebra]
    shutil.rmtree(app.settings.search_dir)
    assert search(library, app, "zebra") == [zebra]
    with app.db.read() as session:
        runs = session.exec(select(JobRun).where(JobRun.job == "index")).all()
    assert [(run.counts, run.error, bool(run.ended_at)) for run in runs] == [({"papers": 1}, "", True)] * 2


def test_another_process_writes(app: Application) -> None:
    """While it does, searches use the last state, and nothing is written twice."""
    add_papers(app, "Zebra stripes")
    library, other = new_search(app), new_search(app)
    assert len(search(library, app, "zebra")) == 1
    (second,) = add_papers(app, "Zebra herds")
    with IndexFolder(Path(app.settings.search_dir)).lock() as acquired:
        assert acquired
        library.refresh()
        assert library.search(query_language.parse("zebra"), PaperFilter(), 0, 20).total == 1
    other.refresh()
    assert second in {
        p.id for p in library.search(query_language.parse("zebra"), PaperFilter(), 0, 20).papers
    }


def test_total_counts_papers_that_are_not_listed(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the best papers are listed, but the total is that of the archive."""
    monkeypatch.setattr(archive_search, "MAX_RESULTS", 2)
    for name in ("ANY_WORD", "ALL_WORDS", "IN_TITLE", "NEAR"):
        monkeypatch.setattr(search_ranking, name, 2)
    add_papers(app, "Zebra stripes", "Zebra herds", "Zebra foals")
    library = new_search(app)
    library.refresh()
    page = library.search(query_language.parse("zebra"), PaperFilter(), 0, 20)
    assert (len(page.papers), page.listed, page.total) == (2, 2, 3)
    assert library.search(query_language.parse("zebra"), PaperFilter(), 1000, 20).papers == ()


def test_list_without_a_query_is_limited(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """The papers after the first MAX_RESULTS are not read, and a count above it is cached."""
    monkeypatch.setattr(archive_search, "MAX_RESULTS", 2)
    titles = "Zebra stripes", "Zebra herds", "Zebra foals"
    add_papers(app, *titles)
    library = new_search(app)
    pages = [library.search(None, PaperFilter(), start, 20) for start in (0, 1, 2, 1000)]
    assert [(len(page.papers), page.listed, page.total) for page in pages] == [
        (2, 2, 3), (1, 2, 3), (0, 2, 3), (0, 2, 3),
    ]  # fmt: skip
    monkeypatch.setattr(archive_lists, "count", lambda *_: pytest.fail("counted again"))
    assert library.search(None, PaperFilter(), 0, 20).total == 3


def test_too_many_phrases_are_refused(app: Application) -> None:
    library = new_search(app)
    query = query_language.parse(" ".join(f'"of the {letter}"' for letter in "abcdefghijkl"))
    library.refresh()
    with pytest.raises(InvalidInterest, match="at most 10 phrases"):
        library.search(query, PaperFilter(), 0, 20)


def test_related_papers(app: Application) -> None:
    """They are empty until the index is built, because no page waits for it."""
    with app.db.write() as session:
        for paper in sample_archive.papers():
            fields = {"title_key": paper.title, "content_hash": "", "created_at": NOW, "updated_at": NOW}
            session.add(Paper(title=paper.title, abstract=paper.abstract, **fields))
        factories.add_unlisted_papers(session, 100, NOW)
    app.models.train(app.db, NOW)
    library = new_search(app)
    with app.db.read() as session:
        (paper,) = archive_lists.newest(session, PaperFilter(), 1, offset=339)
        assert library.related_papers(session, paper.id, 5) == []
        library.refresh()
        related = library.related_papers(session, paper.id, 5)
    subject = next(subject for subject in sample_archive.SUBJECTS if subject in paper.abstract.lower())
    assert related
    assert paper not in related
    assert all(subject in other.abstract.lower() for other in related)
