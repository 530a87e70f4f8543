"""Test ingestion: records become new, merged, changed, unchanged or rejected papers, in any order."""

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from sqlmodel import Session, col, select

from app.application import Application
from app.errors import Conflict, NotFound
from app.papers import (
    archive_lists,
    canonical_rows,
    ingest,
    merging,
    paper_views,
    searchable_papers,
    title_normalization,
    withdrawals,
)
from app.papers.title_normalization import KEY_BYTES
from app.storage.models import Listing, Merge, Paper, Source, VoteCount
from app.text.sanitize import TITLE_CHARS
from app.types import IngestSummary, PaperRecord, ParseResult, Rejection, SourceKind

DAY = date(2026, 11, 19)
PIGEONS = PaperRecord(
    title="Pigeons That Plan in Cities",
    arxiv_id="2611.00001",
    abstract="We teach pigeons to plan.",
    authors=("Mei Tanaka",),
    listed_on=DAY,
    rank=1,
    upvotes=7,
)
PAGE = PaperRecord(title="Pigeons that plan in cities", abstract="We teach pigeons to plan.", listed_on=DAY)


def store(
    app: Application,
    now: datetime,
    *records: PaperRecord,
    kind: SourceKind = SourceKind.HUGGINGFACE,
    polled: bool = False,
) -> IngestSummary:
    """Store records under the source of a kind."""

    def source_of(session: Session) -> Source:
        source = session.exec(select(Source).where(Source.kind == kind)).first()
        return source or add_source(session, now, kind.value, kind)

    parsed = ParseResult(len(records), records)
    summary = ingest.store_in_batches(app.db, parsed, now, source_of, polled=polled)
    counts = summary.counts()
    outcomes = ("papers_new", "papers_merged", "changed", "unchanged")
    numbered = sum(rejection.row is not None for rejection in summary.rejections)
    assert counts["rows"] == sum(counts[name] for name in outcomes) + numbered
    return summary


def add_source(session: Session, now: datetime, name: str, kind: SourceKind) -> Source:
    source = Source(name=name, kind=kind, created_at=now)
    session.add(source)
    session.flush()
    return source


def poll(app: Application, now: datetime, source_id: int, record: PaperRecord) -> IngestSummary:
    """Store a record as a poll of this source does."""
    parsed = ParseResult(1, (record,))
    return ingest.store_in_batches(
        app.db, parsed, now, lambda session: session.get_one(Source, source_id), polled=True
    )


def rows(session: Session, table: type[Any]) -> list[dict[str, Any]]:
    """Return all rows of a table."""
    return [row.model_dump() for row in session.exec(select(table).order_by(table.id))]


def test_out_of_order_votes_are_compacted(app: Application, now: datetime) -> None:
    """The earlier day has fewer votes, so one of two rows is left."""
    before = replace(PIGEONS, listed_on=DAY - timedelta(days=1), upvotes=9)
    store(app, now, PIGEONS, before)
    with app.db.read() as session:
        assert [row.upvotes for row in session.exec(select(VoteCount))] == [9]
        assert len(session.exec(select(Listing)).all()) == 2


def papers(app: Application) -> list[Paper]:
    with app.db.read() as session:
        return list(session.exec(select(Paper).where(col(Paper.merged_into_id).is_(None))))


def test_new_paper_has_a_listing_and_votes(app: Application, now: datetime) -> None:
    """The paper has one listing, its votes and its days."""
    summary = store(app, now, PIGEONS)
    assert (summary.papers_new, summary.listings) == (1, 1)
    with app.db.read() as session:
        [view] = paper_views.candidates(session, DAY, DAY)
    assert (view.title, view.upvotes, view.first_listed_on) == (PIGEONS.title, 7, DAY)


def test_storing_again_changes_nothing(app: Application, now: datetime) -> None:
    """No row of any table changes when the records are stored again a day later."""
    store(app, now, PIGEONS, PAGE)
    with app.db.read() as session:
        before = [rows(session, table) for table in (Paper, Listing, VoteCount, Merge)]
    summary = store(app, now + timedelta(days=1), PIGEONS, PAGE)
    assert (summary.unchanged, summary.rows) == (2, 2)
    with app.db.read() as session:
        assert [rows(session, table) for table in (Paper, Listing, VoteCount, Merge)] == before


@pytest.mark.parametrize("url", ["", "https://birds.test/models"])
def test_short_title_is_stored_once(app: Application, now: datetime, url: str) -> None:
    """A feed may give only a title, and an operator may have hidden the paper."""
    entry = PaperRecord("World Models", url=url, listed_on=DAY)
    store(app, now, entry, kind=SourceKind.FEED, polled=True)
    with app.db.write() as session:
        session.exec(select(Paper)).one().hidden_at = now
    summary = store(app, now + timedelta(hours=1), entry, entry, kind=SourceKind.FEED, polled=True)
    assert (summary.unchanged, len(papers(app))) == (2, 1)
    other = replace(entry, url="https://birds.test/other")
    assert store(app, now, other, kind=SourceKind.FEED, polled=True).papers_new == 1


def test_duplicate_rows_in_one_response(app: Application, now: datetime) -> None:
    """Some archives repeat a paper within a day."""
    assert store(app, now, PIGEONS, PIGEONS).counts()["papers_new"] == 1


def test_papers_with_and_without_id_are_merged(app: Application, now: datetime) -> None:
    """In either order the row with the arXiv id stays and has both listings."""
    for first, second in ((PIGEONS, PAGE), (PAGE, PIGEONS)):
        with app.db.write() as session:
            for table in (Merge, VoteCount, Listing):
                for row in session.exec(select(table)):
                    session.delete(row)
            session.flush()
            for paper in session.exec(select(Paper).order_by(col(Paper.merged_into_id).desc())):
                paper.merged_into_id = None
                session.flush()
                session.delete(paper)
        assert store(app, now, first, kind=_kind(first)).papers_new == 1
        assert store(app, now, second, kind=_kind(second)).papers_merged == 1
        [paper] = papers(app)
        assert paper.arxiv_id == "2611.00001"
        with app.db.read() as session:
            listings = session.exec(select(Listing)).all()
        assert {listing.paper_id for listing in listings} == {paper.id}
        assert len({listing.original_paper_id for listing in listings}) == 2


def test_organization_is_kept_by_sources_that_do_not_name_it(app: Application, now: datetime) -> None:
    """A newer name replaces it. A merge takes it over, and an undone merge gives it back."""
    nvidia = replace(PIGEONS, organization_names=("NVIDIA", "nvidia-birds"))
    store(app, now, PAGE, kind=SourceKind.PAGE)
    assert store(app, now, nvidia).papers_merged == 1
    assert store(app, now, nvidia).unchanged == 1
    store(app, now, replace(PIGEONS, listed_on=DAY + timedelta(days=1)), kind=SourceKind.ARXIV)
    assert papers(app)[0].organization_names == ["NVIDIA", "nvidia-birds"]
    newer = replace(nvidia, listed_on=DAY + timedelta(days=2), organization_names=("NVIDIA Research",))
    assert store(app, now, newer).changed == 1
    with app.db.write() as session:
        [view] = archive_lists.newest(session, archive_lists.PaperFilter(), 9)
        [(text, *_)] = searchable_papers.load(session, [view.id])
        assert text.organization_names == view.organization_names == ("NVIDIA Research",)
        assert text.organization == "NVIDIA Research"
        merging.undo_merge(session, _merge_ids(session)[0], now)
    assert sorted(paper.organization_names for paper in papers(app)) == [[], ["NVIDIA Research"]]


def _kind(record: PaperRecord) -> SourceKind:
    return SourceKind.HUGGINGFACE if record.arxiv_id else SourceKind.PAGE


def test_concurrent_writers_store_one_paper(app: Application, now: datetime) -> None:
    """A file is read while a source is polled: each must see the papers that the other adds."""
    for kind in (SourceKind.HUGGINGFACE, SourceKind.PAGE):
        store(app, now, PaperRecord(f"A First Paper of the {kind} Source"), kind=kind)
    titles = [f"Pigeons That Plan in City {number}" for number in range(8)]
    records = [replace(PIGEONS, arxiv_id=f"2611.1000{n}", title=title) for n, title in enumerate(titles)]
    jobs = [
        (kind, replace(record, arxiv_id=record.arxiv_id if kind is SourceKind.HUGGINGFACE else ""))
        for record in records
        for kind in (SourceKind.HUGGINGFACE, SourceKind.PAGE)
    ]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda job: store(app, now, job[1], kind=job[0]), jobs))
    assert sorted(paper.title for paper in papers(app) if paper.arxiv_id) == titles
    assert len(papers(app)) == len(titles) + 2


def test_different_arxiv_ids_are_different_papers(app: Application, now: datetime) -> None:
    """Versions of a paper share one id."""
    assert store(app, now, PIGEONS, replace(PIGEONS, arxiv_id="2611.00002")).papers_new == 2


def test_record_with_both_ids_merges_two_papers(app: Application, now: datetime) -> None:
    """One source has the arXiv id, another the DOI, a third has both."""
    store(app, now, PIGEONS)
    store(app, now, PaperRecord("Birds, a Journal Version", doi="10.1/birds"), kind=SourceKind.FEED)
    assert len(papers(app)) == 2
    both = replace(PIGEONS, doi="10.1/birds")
    assert store(app, now, both, kind=SourceKind.ARXIV).papers_merged == 1
    [paper] = papers(app)
    assert paper.arxiv_id == "2611.00001"
    assert store(app, now, both, kind=SourceKind.ARXIV).unchanged == 1


def test_arxiv_paper_absorbs_the_paper_with_its_doi(app: Application, now: datetime) -> None:
    """The journal's feed was read first."""
    store(app, now, PaperRecord("Birds, a Journal Version", doi="10.1/birds"), kind=SourceKind.FEED)
    assert store(app, now, replace(PIGEONS, doi="10.1/birds")).papers_merged == 1
    assert [paper.arxiv_id for paper in papers(app)] == ["2611.00001"]


def test_doi_never_merges_two_arxiv_papers(app: Application, now: datetime) -> None:
    """A wrong DOI in one source must not merge two papers."""
    store(app, now, replace(PIGEONS, doi="10.1/birds"))
    owls = PaperRecord("Owls at Noon in the Woods", arxiv_id="2611.00002", doi="10.1/birds", listed_on=DAY)
    assert store(app, now, owls).papers_new == 1
    assert len(papers(app)) == 2


def test_chain_of_merges(app: Application, now: datetime) -> None:
    """A page has the title, a journal the DOI, and a third record the arXiv id."""
    journal = PaperRecord("Pigeons That Plan in Cities", doi="10.1/birds", listed_on=DAY)
    store(app, now, PAGE, kind=SourceKind.PAGE)
    store(app, now, journal, kind=SourceKind.FEED)
    store(app, now, PIGEONS)
    [paper] = papers(app)
    assert paper.arxiv_id == "2611.00001"
    with app.db.read() as session:
        assert {row.paper_id for row in session.exec(select(Listing))} == {paper.id}
        ids = [paper_id for paper_id in session.exec(select(Paper.id)) if paper_id]
        assert set(canonical_rows.canonical_ids(session, ids).values()) == {paper.id}
    assert store(app, now, PAGE, kind=SourceKind.PAGE).unchanged == 1


def test_votes_never_decrease(app: Application, now: datetime) -> None:
    """Each change of the figures adds a row; smaller figures later are ignored."""
    for hours, upvotes in ((0, 7), (1, 7), (2, 12), (3, 9), (4, 13)):
        at = now + timedelta(hours=hours)
        store(app, at, replace(PIGEONS, upvotes=upvotes, comments=None), polled=True)
    with app.db.read() as session:
        series = [
            (row.at, row.upvotes) for row in session.exec(select(VoteCount).order_by(col(VoteCount.at)))
        ]
    assert series == [(now + timedelta(hours=hours), votes) for hours, votes in ((0, 7), (2, 12), (4, 13))]


def test_source_without_votes_stores_none(app: Application, now: datetime) -> None:
    """Zero votes would be wrong and would rank the paper last."""
    store(app, now, replace(PAGE, comments=3), kind=SourceKind.PAGE)
    store(app, now, replace(PIGEONS, arxiv_id="2611.00009", title="Owls at Noon in the Woods", upvotes=0))
    with app.db.read() as session:
        views = paper_views.candidates(session, DAY, DAY)
    assert [[point.upvotes for point in view.votes] for view in views] == [[], [0]]


def test_votes_of_a_file_count_from_the_end_of_its_day(app: Application, now: datetime) -> None:
    """Their time is never in the future."""
    store(app, now, PIGEONS, replace(PIGEONS, arxiv_id="2611.00002", listed_on=now.date()))
    with app.db.read() as session:
        ends = [row.at for row in session.exec(select(VoteCount).order_by(col(VoteCount.id)))]
    assert ends == [datetime(2026, 11, 20, tzinfo=UTC), now]


@pytest.mark.parametrize("arxiv_id", ["2611.00001", ""])
def test_listing_in_the_future_is_dated_the_first_poll(
    app: Application, now: datetime, arxiv_id: str
) -> None:
    """Journals name the month of an issue. Later polls add no listing, also when the month has come."""
    issued = now.date() + timedelta(days=40)
    entry = replace(PIGEONS, arxiv_id=arxiv_id, listed_on=issued, as_of=issued, upvotes=None)
    for days in (0, 1, 2, 7):
        store(app, now + timedelta(days=days), entry, entry, kind=SourceKind.FEED, polled=True)
    [paper] = papers(app)
    assert (paper.first_listed_on, paper.last_listed_on) == (now.date(), now.date())
    assert paper.versions["title"] == f"0.{now.date()}.1.000000001"
    with app.db.read() as session:
        assert [row.listed_on for row in session.exec(select(Listing))] == [now.date()]
    for days in (39, 40, 41):
        store(app, now + timedelta(days=days), entry, kind=SourceKind.FEED, polled=True)
    assert papers(app)[0].last_listed_on == now.date()


def test_updated_entry_keeps_its_listing_day(app: Application, now: datetime) -> None:
    """Some feeds date an entry only with its last update. Its newer fields are used."""
    for days, abstract in enumerate(("Some birds.", "No birds.", "A bird.")):
        at = now + timedelta(days=days)
        entry = replace(PAGE, listed_on=at.date(), as_of=at.date(), abstract=abstract)
        store(app, at, entry, kind=SourceKind.FEED, polled=True)
    [paper] = papers(app)
    assert (paper.abstract, paper.last_listed_on) == ("A bird.", now.date())


def test_values_of_the_future_are_of_today(app: Application, now: datetime) -> None:
    """A replaced paper is not listed. Its values do not stay newer than those of other feeds."""
    entry = replace(PIGEONS, listed_on=None, as_of=now.date() + timedelta(days=40), upvotes=None)
    store(app, now, entry, kind=SourceKind.FEED, polled=True)
    [paper] = papers(app)
    assert paper.first_listed_on is None
    assert paper.versions["title"] == f"0.{now.date()}.1.000000001"


@pytest.mark.parametrize("kind", [SourceKind.HUGGINGFACE, SourceKind.FEED])
def test_correction_within_a_day_is_stored(app: Application, now: datetime, kind: SourceKind) -> None:
    """The next poll returns the same day and another value, also if a file was read in between."""
    store(app, now, replace(PIGEONS, abstract="Zebras plan."), kind=kind, polled=True)
    assert store(app, now + timedelta(hours=1), PIGEONS, kind=kind, polled=True).changed == 1
    store(app, now + timedelta(hours=2), replace(PIGEONS, abstract="Zebras plan."), kind=kind)
    assert papers(app)[0].abstract == PIGEONS.abstract
    assert store(app, now + timedelta(hours=3), PIGEONS, kind=kind, polled=True).unchanged == 1


def test_two_feeds_do_not_replace_each_others_values(app: Application, now: datetime) -> None:
    """Both list the paper on the same day with different abstracts. Each poll would change the paper."""
    with app.db.write() as session:
        first, second = (
            add_source(session, now, name, SourceKind.FEED).id or 0 for name in ("first", "second")
        )
    entries = {first: PIGEONS, second: replace(PIGEONS, abstract="Birds.")}
    changed = [poll(app, now, *entry).changed for _ in range(3) for entry in entries.items()]
    assert changed == [0, 1, 0, 0, 0, 0]


@pytest.mark.parametrize("doi", ["10.1/early", "10.1/issue"])
def test_two_entries_of_a_paper_in_one_poll(app: Application, now: datetime, doi: str) -> None:
    """A feed lists the early view and the issue, with one DOI or two. Only a correction changes the paper."""
    early = replace(PAGE, doi="10.1/early", authors=("Mei Tanaka",), url="https://birds.test/early")
    issue = replace(early, doi=doi, abstract="We teach some pigeons to plan.", url="https://birds.test/issue")
    poll = partial(store, app, kind=SourceKind.FEED, polled=True)
    poll(now, early, issue)
    [paper] = papers(app)
    for hours, records in enumerate([(early, issue), (issue, early)], 1):
        assert poll(now + timedelta(hours=hours), *records).unchanged == 2
    assert papers(app) == [paper]
    corrected = replace(issue, abstract="We taught pigeons to plan.", url="https://birds.test/1")
    assert poll(now + timedelta(hours=3), replace(corrected, doi=early.doi), corrected).changed > 0
    assert papers(app)[0].abstract == corrected.abstract


def test_sources_with_ids_of_different_length(app: Application, now: datetime) -> None:
    """Between feeds of one day, the one that was added last has precedence."""
    with app.db.write() as session:
        feeds = [Source(id=n, name=f"{n}", kind=SourceKind.FEED, created_at=now) for n in (9, 10)]
        session.add_all(feeds)
    for feed, abstract in ((9, "Zebras plan."), (10, PAGE.abstract)):
        poll(app, now, feed, replace(PAGE, abstract=abstract, url="https://birds.test/1"))
    assert papers(app)[0].abstract == PAGE.abstract


def test_undated_entry_is_listed_once(app: Application, now: datetime) -> None:
    """A feed without dates is dated the day of its first poll. A file has the day that its reader names."""
    for days in (0, 1, 7):
        at = now + timedelta(days=days)
        entry = replace(PAGE, listed_on=at.date(), as_of=at.date(), abstract=f"{days} birds.")
        store(app, at, entry, kind=SourceKind.FEED, polled=True)
    [paper] = papers(app)
    assert (paper.first_listed_on, paper.last_listed_on) == (now.date(), now.date())
    assert paper.abstract == "7 birds."
    store(app, at, entry, kind=SourceKind.FEED)
    assert papers(app)[0].last_listed_on == at.date()


def test_listing_of_tomorrow_is_stored(app: Application, now: datetime) -> None:
    """It may be tomorrow where the source is."""
    tomorrow = now.date() + timedelta(days=1)
    store(app, now, replace(PIGEONS, listed_on=tomorrow))
    assert papers(app)[0].first_listed_on == tomorrow


@pytest.mark.parametrize("seed", range(6))
def test_result_does_not_depend_on_the_order(app: Application, now: datetime, seed: int) -> None:
    """Fields, listings and votes are the same in any order."""
    days = [DAY - timedelta(days=n) for n in range(4)]
    records = [
        replace(
            PIGEONS, listed_on=day, upvotes=votes, rank=n + 1, title=f"Pigeons That Plan in Cities{'!' * n}"
        )
        for n, (day, votes) in enumerate(zip(days, (9, 9, 4, 6), strict=True))
    ]
    shuffled = random.Random(seed).sample(records, len(records))  # noqa: S311
    for record in shuffled:
        store(app, now, record)
    with app.db.read() as session:
        [paper] = session.exec(select(Paper))
        votes = [
            (row.at.date(), row.upvotes)
            for row in session.exec(select(VoteCount).order_by(col(VoteCount.at)))
        ]
    assert (paper.title, paper.first_listed_on, paper.last_listed_on) == (records[0].title, days[3], days[0])
    assert votes == [(days[3] + timedelta(days=1), 6), (days[1] + timedelta(days=1), 9)]


def test_listing_keeps_its_best_rank(app: Application, now: datetime) -> None:
    """A paper's rank changes during the day."""
    for rank in (5, 2, 9):
        store(app, now, replace(PIGEONS, rank=rank))
    with app.db.read() as session:
        assert [row.rank for row in session.exec(select(Listing))] == [2]


def test_withdrawal_time_is_recorded_once(app: Application, now: datetime) -> None:
    """The time is that of the first record that says so."""
    store(app, now, PIGEONS)
    withdrawn = replace(PIGEONS, withdrawn=True)
    assert store(app, now, withdrawn).changed == 1
    assert store(app, now + timedelta(days=3), withdrawn).unchanged == 1
    assert papers(app)[0].withdrawn_at == now
    with app.db.read() as session:
        assert paper_views.candidates(session, DAY, DAY) == []


def test_newer_record_of_the_same_source_reinstates_a_paper(app: Application, now: datetime) -> None:
    """In any order. Records that are older or of other sources do not reinstate it."""
    first = replace(PIGEONS, listed_on=None, as_of=DAY, withdrawn=True)
    same_day = replace(first, withdrawn=False)
    elsewhere = replace(same_day, as_of=DAY + timedelta(days=9))
    later = replace(same_day, as_of=DAY + timedelta(days=5))
    silent = replace(elsewhere, withdrawn=None)
    store(app, now, first, kind=SourceKind.ARXIV)
    for record, kind in (
        (same_day, SourceKind.ARXIV), (elsewhere, SourceKind.HUGGINGFACE), (silent, SourceKind.ARXIV_FEED),
    ):  # fmt: skip
        store(app, now, record, kind=kind)
        assert papers(app)[0].withdrawn_at == now
    later_run = now + timedelta(days=5)
    assert store(app, later_run, later, kind=SourceKind.ARXIV_OAI).changed == 1
    (paper,) = papers(app)
    assert (paper.withdrawn_at, paper.updated_at) == (None, later_run)
    assert store(app, later_run, first, kind=SourceKind.ARXIV).unchanged == 1
    assert papers(app)[0].withdrawn_at is None
    again = replace(later, withdrawn=True)
    assert store(app, later_run, again, kind=SourceKind.ARXIV).changed == 1
    assert papers(app)[0].withdrawn_at == later_run


def test_paper_withdrawn_by_an_earlier_release_is_reinstated(app: Application, now: datetime) -> None:
    """Such a row does not say when its source withdrew it. Only arXiv's records reinstate it."""
    store(app, now, replace(PIGEONS, withdrawn=True), kind=SourceKind.ARXIV)
    with app.db.write() as session:
        row = session.exec(select(Paper)).one()
        row.versions = {name: version for name, version in row.versions.items() if name != "withdrawn"}
    store(app, now, replace(PIGEONS, withdrawn=False), kind=SourceKind.HUGGINGFACE)
    assert papers(app)[0].withdrawn_at == now
    store(app, now, replace(PIGEONS, withdrawn=False), kind=SourceKind.ARXIV)
    assert papers(app)[0].withdrawn_at is None


def test_row_refused_by_the_database_is_rejected(app: Application, now: datetime) -> None:
    """The rows before and after it are stored; its rejection has its number."""
    bad = replace(PIGEONS, arxiv_id="2611.00003", upvotes=2**80)
    owls = PaperRecord("Owls at Noon in the Woods", arxiv_id="2611.00002", listed_on=DAY)
    parsed = ParseResult(4, (PIGEONS, bad, owls), (Rejection("the row has no title", 2),))
    summary = ingest.store_in_batches(
        app.db,
        parsed,
        now,
        lambda session: add_source(session, now, "hf", SourceKind.HUGGINGFACE),
        origin="a.json",
    )
    assert (summary.rows, summary.papers_new, summary.rejected) == (4, 2, 2)
    assert {(rejection.reason, rejection.row, rejection.origin) for rejection in summary.rejections} == {
        ("the row has no title", 2, "a.json"),
        ("the database refused the row", 3, "a.json"),
    }
    assert sorted(str(paper.arxiv_id) for paper in papers(app)) == ["2611.00001", "2611.00002"]


def long_title(first: str) -> str:
    """Return a title of random letters that follow `first`, which PostgreSQL cannot compress much."""
    chance = random.Random(1)  # noqa: S311 - a test must do the same again
    return "".join(chr(ord(first) + chance.randrange(2000)) for _ in range(TITLE_CHARS))


@pytest.mark.parametrize("first", ["a", "一", "가", "ﷺ", "𠀀"])
def test_long_title_in_any_script_is_stored(app: Application, now: datetime, first: str) -> None:
    """PostgreSQL refused to index 900 Chinese characters, and polls of the source failed from then on."""
    for _ in range(2):
        summary = store(app, now, PIGEONS, PaperRecord(long_title(first), listed_on=DAY))
        assert not summary.rejections
    assert (summary.rows, summary.unchanged) == (2, 2)
    assert all(len(paper.title_key.encode()) <= KEY_BYTES for paper in papers(app))


@pytest.mark.postgres
def test_row_that_exceeds_a_limit_is_rejected(
    app: Application, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of its batch was stored."""
    monkeypatch.setattr(title_normalization, "KEY_BYTES", 4_000)
    summary = store(app, now, PIGEONS, PaperRecord(long_title("一"), listed_on=DAY))
    assert [rejection.reason for rejection in summary.rejections] == [ingest.DATABASE_REJECTED]
    assert [paper.title for paper in papers(app)] == [PIGEONS.title]


def test_row_without_id_and_title_is_rejected(app: Application, now: datetime) -> None:
    """Otherwise it would be a new paper each time."""
    summary = store(app, now, PaperRecord("?!"))
    assert [rejection.reason for rejection in summary.rejections] == [ingest.NO_IDENTITY]


def _merge_ids(session: Session) -> Sequence[int]:
    return [merge_id for merge_id in session.exec(select(Merge.id).order_by(col(Merge.id))) if merge_id]


def test_undone_merge_restores_both_papers_permanently(app: Application, now: datetime) -> None:
    """Listings, fields and days are restored, and the two are not merged when both are stored again."""
    page = replace(PAGE, tldr="Birds.", listed_on=DAY - timedelta(days=5))
    store(app, now, PIGEONS)
    store(app, now, page, kind=SourceKind.PAGE)
    assert papers(app)[0].tldr == "Birds."
    with app.db.write() as session:
        [merge_id] = _merge_ids(session)
        merging.undo_merge(session, merge_id, now)
    with_id, without = sorted(papers(app), key=lambda paper: paper.arxiv_id or "", reverse=True)
    assert (with_id.tldr, with_id.first_listed_on, with_id.abstract) == ("", DAY, PIGEONS.abstract)
    assert (without.tldr, without.first_listed_on) == ("Birds.", page.listed_on)
    with app.db.read() as session:
        assert {row.paper_id for row in session.exec(select(VoteCount))} == {with_id.id}
    assert store(app, now, PIGEONS).unchanged == 1
    assert store(app, now, page, kind=SourceKind.PAGE).unchanged == 1
    assert len(papers(app)) == 2


def test_separated_papers_are_not_merged_by_doi(app: Application, now: datetime) -> None:
    """Each poll may bring the wrong DOI again."""
    store(app, now, PaperRecord("Birds, a Journal Version", doi="10.1/birds"), kind=SourceKind.FEED)
    wrong = replace(PIGEONS, doi="10.1/birds")
    store(app, now, wrong)
    with app.db.write() as session:
        merging.undo_merge(session, _merge_ids(session)[0], now)
    assert store(app, now, wrong).unchanged == 1
    assert len(papers(app)) == 2


def test_undoing_a_merge_restores_withdrawals(app: Application, now: datetime) -> None:
    """Only the paper that was withdrawn itself stays withdrawn."""
    for arxiv_id, withdrawn in (("2611.00001", False), ("2611.00002", True)):
        title = f"Pigeons That Plan in Cities of {arxiv_id}"
        store(app, now, replace(PIGEONS, arxiv_id=arxiv_id, title=title, withdrawn=withdrawn))
        store(app, now, replace(PAGE, title=title, withdrawn=True), kind=SourceKind.PAGE)
    with app.db.write() as session:
        for merge_id in _merge_ids(session):
            merging.undo_merge(session, merge_id, now)
    assert _withdrawals(app) == {"2611.00001": None, "2611.00002": now}


OWLS = replace(PIGEONS, arxiv_id="2611.00002", title="Owls at Noon in the Woods")


def merge_pair(app: Application, now: datetime, reinstated: str = "") -> None:
    """Merge the two stored papers. First reinstate the paper with an arXiv id for an operator, if given."""
    with app.db.write() as session:
        first, second = session.exec(select(Paper)).all()
        for paper in (first, second):
            if paper.arxiv_id == reinstated:
                withdrawals.reinstate(paper, now)
        merging.merge_by_hand(session, first, second, now)


def _withdrawals(app: Application) -> dict[str | None, datetime | None]:
    return {paper.arxiv_id: paper.withdrawn_at for paper in papers(app) if paper.arxiv_id}


@pytest.mark.parametrize("reinstated", [PIGEONS.arxiv_id, OWLS.arxiv_id])
def test_reinstated_paper_stays_reinstated_when_merged(
    app: Application, now: datetime, reinstated: str
) -> None:
    """No record withdraws it again, whether the other paper absorbs it or is absorbed."""
    both = [replace(record, withdrawn=True) for record in (PIGEONS, OWLS)]
    store(app, now, *both, kind=SourceKind.ARXIV)
    merge_pair(app, now, reinstated)
    (paper,) = papers(app)
    assert (paper.arxiv_id, paper.withdrawn_at) == (PIGEONS.arxiv_id, None)
    later = [replace(record, listed_on=DAY + timedelta(days=9)) for record in both]
    store(app, now, *later, kind=SourceKind.ARXIV)
    assert papers(app)[0].withdrawn_at is None


@pytest.mark.parametrize("withdrawn", [False, True])
def test_undoing_a_merge_with_a_reinstated_paper(app: Application, now: datetime, withdrawn: bool) -> None:
    """The other paper is withdrawn as before the merge, or when its source withdraws it later."""
    store(
        app, now, replace(PIGEONS, withdrawn=withdrawn), replace(OWLS, withdrawn=True), kind=SourceKind.ARXIV
    )
    merge_pair(app, now, OWLS.arxiv_id)
    with app.db.write() as session:
        merging.undo_merge(session, _merge_ids(session)[0], now)
    own = now if withdrawn else None
    assert _withdrawals(app) == {PIGEONS.arxiv_id: own, OWLS.arxiv_id: None}
    for record in (PIGEONS, OWLS):
        later = replace(record, withdrawn=True, listed_on=DAY + timedelta(days=9))
        store(app, now, later, kind=SourceKind.ARXIV)
    assert _withdrawals(app) == {PIGEONS.arxiv_id: now, OWLS.arxiv_id: None}


def test_merged_papers_follow_the_newest_statement_on_withdrawal(app: Application, now: datetime) -> None:
    """A source has reinstated one of them since the other was withdrawn. Undoing the merge restores both."""
    store(app, now, *(replace(record, withdrawn=True) for record in (PIGEONS, OWLS)), kind=SourceKind.ARXIV)
    reinstated = replace(OWLS, withdrawn=False, listed_on=DAY + timedelta(days=1))
    store(app, now, reinstated, kind=SourceKind.ARXIV)
    merge_pair(app, now)
    assert _withdrawals(app) == {PIGEONS.arxiv_id: None}
    with app.db.write() as session:
        merging.undo_merge(session, _merge_ids(session)[0], now)
    assert _withdrawals(app) == {PIGEONS.arxiv_id: now, OWLS.arxiv_id: None}


def test_undoing_a_merge_keeps_newer_fields(app: Application, now: datetime) -> None:
    """A newer abstract from the remaining paper's own source stays."""
    store(app, now, PIGEONS)
    store(app, now, replace(PAGE, tldr="Birds."), kind=SourceKind.PAGE)
    store(app, now, replace(PIGEONS, abstract="Rewritten.", listed_on=DAY + timedelta(days=1)))
    with app.db.write() as session:
        merging.undo_merge(session, _merge_ids(session)[0], now)
    assert {paper.abstract for paper in papers(app)} == {"Rewritten.", PAGE.abstract}


def test_a_merge_can_be_undone_once(app: Application, now: datetime) -> None:
    """A second undo is a conflict; an unknown merge is not found."""
    store(app, now, PIGEONS)
    store(app, now, PAGE, kind=SourceKind.PAGE)
    with app.db.write() as session:
        merging.undo_merge(session, _merge_ids(session)[0], now)
        with pytest.raises(Conflict):
            merging.undo_merge(session, _merge_ids(session)[0], now)
        with pytest.raises(NotFound):
            merging.undo_merge(session, 999, now)


def test_undoing_the_first_merge_of_a_chain(app: Application, now: datetime) -> None:
    """The paper at the end of the chain gets back its own fields, which arXiv would not list again."""
    wrong = replace(PAGE, abstract="We teach pigeons to plan, and owls.", authors=PIGEONS.authors)
    later = replace(wrong, listed_on=DAY + timedelta(days=1), withdrawn=True)
    store(app, now, later, kind=SourceKind.JSONL)
    journal = replace(PIGEONS, arxiv_id="", doi="10.1/birds", abstract="", upvotes=None)
    store(app, now, journal, kind=SourceKind.FEED)
    store(app, now, PIGEONS, kind=SourceKind.ARXIV)
    assert [paper.abstract for paper in papers(app)] == [later.abstract]
    with app.db.write() as session:
        merging.undo_merge(session, _merge_ids(session)[0], now)
    first, second = sorted(papers(app), key=lambda paper: paper.id or 0)
    assert (first.abstract, bool(first.withdrawn_at), first.arxiv_id) == (later.abstract, True, None)
    assert (second.abstract, second.withdrawn_at, second.arxiv_id) == (
        PIGEONS.abstract,
        None,
        PIGEONS.arxiv_id,
    )
    assert second.published_on == PIGEONS.published_on


def test_undoing_a_merge_keeps_the_fields_of_other_papers(app: Application, now: datetime) -> None:
    """The second paper’s fields were not used before, because its record is older than that of the first."""
    bare = replace(PIGEONS, abstract="")
    store(app, now, bare, kind=SourceKind.ARXIV)
    for number, doi in enumerate(("10.1/birds", "10.2/birds")):
        record = replace(PIGEONS, arxiv_id="", doi=doi, abstract=f"We teach pigeons to plan, part {number}.")
        store(app, now, replace(record, listed_on=DAY - timedelta(days=number)), kind=SourceKind.FEED)
    assert [paper.abstract for paper in papers(app)] == ["We teach pigeons to plan, part 0."]
    with app.db.write() as session:
        merging.undo_merge(session, _merge_ids(session)[0], now)
    assert {paper.abstract for paper in papers(app) if paper.arxiv_id} == {
        "We teach pigeons to plan, part 1."
    }


def test_undoing_the_last_merge_of_a_chain(app: Application, now: datetime) -> None:
    """The papers that the journal's paper had absorbed stay with it."""
    store(app, now, PAGE, kind=SourceKind.PAGE)
    journal = PaperRecord("Pigeons That Plan in Cities", doi="10.1/birds", listed_on=DAY)
    store(app, now, journal, kind=SourceKind.FEED)
    store(app, now, PIGEONS)
    with app.db.write() as session:
        merging.undo_merge(session, _merge_ids(session)[-1], now)
        listed = {row.original_paper_id: row.paper_id for row in session.exec(select(Listing))}
    assert sorted(listed.values()).count(listed[min(listed)]) == 2
    assert len(papers(app)) == 2
