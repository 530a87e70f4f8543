"""Test how papers are read: a merged paper has the votes and listings of all its rows."""

from datetime import date, datetime, timedelta

import pytest
from sqlmodel import Session

from app.application import Application
from app.papers import archive_lists, canonical_rows, listing_days, merging, paper_views, splitting
from app.storage.models import Listing, Paper, VoteCount
from tests.conftest import NOW
from tests.support import factories

TODAY = NOW.date()


def add_vote(
    session: Session,
    paper_id: int,
    source_id: int,
    at: datetime,
    upvotes: int,
    comments: int = 0,
    stars: int = 0,
) -> None:
    at_paper = {"paper_id": paper_id, "original_paper_id": paper_id, "source_id": source_id}
    session.add(VoteCount(**at_paper, at=at, upvotes=upvotes, comments=comments, stars=stars))
    session.flush()


def test_candidates_are_listed_in_the_window(app: Application) -> None:
    """The window includes both ends; withdrawn papers are left out."""
    with app.db.write() as session:
        source = factories.add_source(session, NOW)
        ids = [
            factories.add_paper(session, source, f"Paper {ago}", TODAY - timedelta(days=ago), NOW)
            for ago in range(4)
        ]
        withdrawn = factories.add_paper(session, source, "Withdrawn", TODAY, NOW, withdrawn_at=NOW)
        papers = paper_views.candidates(session, TODAY - timedelta(days=2), TODAY)
    assert [paper.id for paper in papers] == ids[:3]
    assert withdrawn not in {paper.id for paper in papers}
    assert papers[0].sources == ("Hugging Face Daily Papers",)


def test_votes_of_several_sources_are_summed_over_time(app: Application) -> None:
    """The curve is the sum of all sources' latest figures, and never falls."""
    with app.db.write() as session:
        first, second = factories.add_source(session, NOW), factories.add_source(session, NOW, "Another")
        number = factories.add_paper(session, first, "Paper", TODAY, NOW, upvotes=3)
        add_vote(session, number, second.id or 0, NOW + timedelta(hours=1), 5, comments=2, stars=7)
        add_vote(session, number, first.id or 0, NOW + timedelta(hours=2), 40, comments=1)
        add_vote(session, number, first.id or 0, NOW + timedelta(hours=3), 38)
        (paper,) = paper_views.by_ids(session, [number])
    assert [point.upvotes for point in paper.votes] == [3, 8, 45, 45]
    assert [point.newly_counted for point in paper.votes] == [3, 5, 0, 0]
    assert (paper.upvotes, paper.comments, paper.stars) == (45, 2, 7)


def test_first_submitter_is_named(app: Application) -> None:
    """A source that names nobody is passed over."""
    with app.db.write() as session:
        sources = [factories.add_source(session, NOW, name) for name in ("A", "B", "C")]
        number = factories.add_paper(session, sources[0], "Paper", TODAY - timedelta(days=2), NOW)
        for source, ago, name in zip(sources[1:], (0, 1), ("Late", "Early"), strict=True):
            day = TODAY - timedelta(days=ago)
            at_paper = {"paper_id": number, "original_paper_id": number, "source_id": source.id}
            session.add(Listing(**at_paper, listed_on=day, submitted_by=name))
        session.flush()
        (paper,) = paper_views.by_ids(session, [number])
    assert paper.submitted_by == "Early"


def test_merged_ids_resolve_to_the_remaining_paper(app: Application) -> None:
    """Ids in old digests lead to the current paper through any chain of merges."""
    with app.db.write() as session:
        source = factories.add_source(session, NOW)
        old, middle, current = (
            factories.add_paper(session, source, f"Paper {n}", TODAY, NOW) for n in range(3)
        )
        session.get_one(Paper, old).merged_into_id = middle
        session.get_one(Paper, middle).merged_into_id = current
        session.flush()
        assert canonical_rows.canonical_ids(session, [old, middle, current, 999]) == {
            old: current,
            middle: current,
            current: current,
        }
        assert [paper.id for paper in paper_views.by_ids(session, [old, middle])] == [current]


def test_recently_absorbed_rows(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that they had absorbed before are included; merges that were undone do not count."""
    monkeypatch.setattr(canonical_rows, "MERGES_READ", 2)
    hour = timedelta(hours=1)
    with app.db.write() as session:
        source = factories.add_source(session, NOW)
        ids = [factories.add_paper(session, source, f"Paper {n}", TODAY, NOW) for n in range(6)]
        papers = [session.get_one(Paper, number) for number in ids]
        merging.merge_by_hand(session, papers[4], papers[5], NOW - 3 * hour)
        merging.merge_by_hand(session, papers[0], papers[1], NOW - 2 * hour)
        merging.merge_by_hand(session, papers[3], papers[4], NOW)
        merging.merge_by_hand(session, papers[0], papers[2], NOW)
        session.flush()
        assert canonical_rows.absorbed_since(session, NOW - 4 * hour) == {*ids} - {ids[0], ids[3]}
        assert canonical_rows.absorbed_since(session, NOW - hour) == {ids[2], ids[4], ids[5]}
        assert canonical_rows.rows_by_paper(session, [ids[0], ids[4], 999]) == {
            ids[0]: {*ids[:3]},
            ids[4]: {*ids[4:]},
        }
        splitting.split_row(session, papers[0], ids[2], NOW)
        splitting.split_row(session, papers[3], ids[4], NOW)
        session.flush()
        assert canonical_rows.absorbed_since(session, NOW - hour) == set()
        assert canonical_rows.absorbed_since(session, NOW - 2 * hour) == {ids[1]}


@pytest.mark.parametrize(
    ("fields", "url", "pdf"),
    [
        ({"arxiv_id": "2611.00001", "url": "https://elsewhere.example"}, "https://arxiv.org/abs/2611.00001", "https://arxiv.org/pdf/2611.00001"),
        ({"doi": "10.1000/1"}, "https://doi.org/10.1000/1", ""),
        ({"doi": "10.1002/(sici)1<3::aid>2-#"}, "https://doi.org/10.1002/(sici)1%3C3::aid%3E2-%23", ""),
        ({"doi": "10.1000/1", "url": "https://journal.example/1"}, "https://journal.example/1", ""),
        ({}, "", ""),
    ],
)  # fmt: skip
def test_paper_url(app: Application, fields: dict[str, str], url: str, pdf: str) -> None:
    """The arXiv id comes first, then the paper's own URL, then its DOI; a mere title gives no link."""
    with app.db.write() as session:
        number = factories.add_paper(
            session, factories.add_source(session, NOW), "Paper", TODAY, NOW, **fields
        )
        (paper,) = paper_views.by_ids(session, [number])
    assert (paper.url, paper.pdf_url) == (url, pdf)


def test_days_with_paper_counts(app: Application) -> None:
    """The newest day comes first. A paper listed by two sources on a day counts once."""
    with app.db.write() as session:
        first, second = factories.add_source(session, NOW), factories.add_source(session, NOW, "Another")
        number = factories.add_paper(session, first, "Paper", TODAY, NOW)
        factories.add_paper(session, first, "Older", date(2026, 11, 1), NOW)
        session.add(Listing(paper_id=number, original_paper_id=number, source_id=second.id, listed_on=TODAY))
        session.flush()
        assert listing_days.latest(session) == [(TODAY, 1), (date(2026, 11, 1), 1)]


def test_search_words_are_literal(app: Application) -> None:
    """All words must occur in title or abstract; % and _ are not wildcards; `before` pages back."""
    with app.db.write() as session:
        source = factories.add_source(session, NOW)
        titles = ["Agents plan 100% of trips", "Agents remember", "100 agents", "Plan B"]
        ids = {title: factories.add_paper(session, source, title, TODAY, NOW) for title in titles}
        matches = archive_lists.search(session, "agents 100%")
        assert [paper.id for paper in matches] == [ids[titles[0]]]
        page = archive_lists.search(session, "AGENTS", limit=2)
        assert [paper.title for paper in page] == ["100 agents", "Agents remember"]
        rest = archive_lists.search(session, "agents", before=page[-1].id)
        assert [paper.title for paper in rest] == [titles[0]]
        assert archive_lists.search(session, "agents", day=date(2026, 11, 1)) == []
        assert len(archive_lists.search(session, "", source_id=source.id)) == 4
