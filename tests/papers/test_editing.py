"""Test that an operator's edits survive polls, merges and splits, and that splits are respected."""

from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import Any

import pytest
from sqlmodel import col, select

from app.application import Application
from app.errors import Conflict, InvalidInput, NotFound
from app.papers import editing, merging, paper_views, pinning, splitting
from app.storage.models import Listing, Paper, Source, VoteCount
from app.types import SourceKind
from tests.papers.test_ingest import DAY, PAGE, PIGEONS, store

NEXT_DAY = timedelta(days=1)
BARE = replace(PIGEONS, arxiv_id="", upvotes=None)


def papers(app: Application) -> list[Paper]:
    """Return the papers that are not merged, by id."""
    with app.db.read() as session:
        unmerged = select(Paper).where(col(Paper.merged_into_id).is_(None))
        return list(session.exec(unmerged.order_by(col(Paper.id))))


def edit(app: Application, now: datetime, **changes: Any) -> Paper:
    """Edit the first paper."""
    with app.db.write() as session:
        paper = session.get_one(Paper, papers(app)[0].id)
        editing.edit(session, paper, changes, now)
    return papers(app)[0]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("title", "Pigeons Plan"),
        ("abstract", "Shorter."),
        ("tldr", "They plan."),
        ("authors", ["Mei Tanaka", "Ada Lovelace"]),
        ("published_on", "2026-11-01"),
        ("code_url", "https://example.org/code"),
        ("abstract", ""),
    ],
)
def test_edited_field_survives_polls_until_it_is_taken_back(
    app: Application, now: datetime, name: str, value: Any
) -> None:
    """The sources' newer value is stored meanwhile, and used when the edit is taken back."""
    store(app, now, replace(PIGEONS, published_on=DAY, tldr="Old.", code_url="https://example.org/old"))
    edited = edit(app, now, **{name: value})
    newer = replace(
        PIGEONS, title="Pigeons That Plan in Big Cities", abstract="We teach pigeons to plan ahead.",
        authors=("Mei Tanaka", "Bob Ross"), tldr="New.", code_url="https://example.org/new",
        published_on=DAY - NEXT_DAY, listed_on=DAY + NEXT_DAY,
    )  # fmt: skip
    store(app, now + NEXT_DAY, newer, polled=True)
    [paper] = papers(app)
    stored = getattr(paper, name)
    assert (stored.isoformat() if isinstance(stored, date) else stored) == value
    assert paper.author_count == (2 if name == "authors" else paper.author_count)
    assert editing.edited_fields(paper) == [name]
    others = {"title": newer.title, "abstract": newer.abstract, "tldr": newer.tldr} | {name: stored}
    assert {field: getattr(paper, field) for field in others} == others
    assert edited.updated_at == now
    taken_back = edit(app, now + 2 * NEXT_DAY, **{name: None})
    wanted_value = getattr(newer, name)
    assert getattr(taken_back, name) == (
        list(wanted_value) if isinstance(wanted_value, tuple) else wanted_value
    )
    assert (editing.edited_fields(taken_back), taken_back.edited_at) == ([], None)


def test_edit_to_the_value_that_is_there_changes_nothing(app: Application, now: datetime) -> None:
    """Polls continue to change the field. The links of a paper on arXiv lead there."""
    record = replace(PIGEONS, published_on=DAY, url="https://example.org/odd")
    store(app, now, record)
    same = {
        "title": record.title, "abstract": record.abstract, "authors": [*record.authors], "tldr": "",
        "published_on": str(DAY), "url": "https://arxiv.org/abs/2611.00001",
    }  # fmt: skip
    paper = edit(app, now, **same)
    assert (paper.sourced, paper.edited_at) == (None, None)
    assert editing.edited_fields(edit(app, now, url=record.url)) == ["url"]


def test_old_link_is_the_one_that_subscribers_saw(app: Application, now: datetime) -> None:
    """A paper on arXiv links there, whatever link its source has."""
    store(app, now, replace(PIGEONS, url="https://example.org/odd"))
    (paper,) = papers(app)
    edited, arxiv = "https://example.org/better", f"https://arxiv.org/abs/{PIGEONS.arxiv_id}"
    with app.db.write() as session:
        row = session.get_one(Paper, paper.id)
        assert editing.edit(session, row, {"url": edited}, now) == {"url": arxiv}
        session.flush()
        assert editing.edit(session, row, {"url": None}, now) == {"url": edited}
        assert editing.shown_values(row, ["url"]) == {"url": arxiv}


def test_authors_can_be_declared_complete(app: Application, now: datetime) -> None:
    """Edited authors are all authors, also if a source counts more."""
    store(app, now, PIGEONS)
    with app.db.write() as session:
        session.get_one(Paper, papers(app)[0].id).author_count = 9
    paper = edit(app, now, authors=[*PIGEONS.authors])
    assert (paper.author_count, editing.edited_fields(paper)) == (len(PIGEONS.authors), ["authors"])


def test_paper_with_edited_title_is_recognized_by_the_old_one(app: Application, now: datetime) -> None:
    """This holds for the same record, for other sources, and for similar titles."""
    store(app, now, BARE)
    edit(app, now, title="Quite Another Name", abstract="Entirely rewritten.", authors=["Nobody Known"])
    assert store(app, now, BARE).unchanged == 1
    assert store(
        app, now, replace(PAGE, title="Pigeons that plan in Citie"), kind=SourceKind.PAGE
    ).papers_merged
    assert store(app, now, PIGEONS).papers_merged == 1
    [paper] = papers(app)
    assert (paper.arxiv_id, paper.title) == ("2611.00001", "Quite Another Name")


@pytest.mark.parametrize(
    "changes",
    [
        {"title": " "},
        {"title": "x" * 1001},
        {"url": "javascript:alert(1)"},
        {"published_on": "yesterday"},
        {"authors": "Mei Tanaka"},
        {"authors": [""]},
        {"arxiv_id": "2611.00002"},
    ],
)
def test_invalid_edit_is_refused(app: Application, now: datetime, changes: dict[str, Any]) -> None:
    store(app, now, PIGEONS)
    with pytest.raises(InvalidInput):
        edit(app, now, **changes)
    assert papers(app)[0].sourced is None


def test_edited_links_of_an_arxiv_paper_are_shown(app: Application, now: datetime) -> None:
    """Without an edit, they lead to arXiv, whatever sources say."""
    store(app, now, replace(PIGEONS, url="https://example.org/odd"))
    paper = edit(app, now, pdf_url="https://example.org/a.pdf")
    with app.db.read() as session:
        [view] = paper_views.by_ids(session, [paper.id or 0])
    assert (view.url, view.pdf_url) == ("https://arxiv.org/abs/2611.00001", "https://example.org/a.pdf")


def test_edit_moves_with_a_merge_and_back(app: Application, now: datetime) -> None:
    """An edit of the absorbed row applies to the survivor until the split."""
    store(app, now, PAGE, kind=SourceKind.PAGE)
    page = edit(app, now, abstract="Edited.", title="Edited Title")
    assert store(app, now, PIGEONS).papers_merged == 1
    [merged] = papers(app)
    assert (merged.title, merged.abstract, merged.arxiv_id) == ("Edited Title", "Edited.", "2611.00001")
    with app.db.write() as session:
        splitting.split_row(session, session.get_one(Paper, merged.id), page.id or 0, now)
    old, new = papers(app)
    assert (old.title, new.title) == ("Edited Title", PIGEONS.title)
    assert (editing.edited_fields(old), editing.edited_fields(new)) == (["title", "abstract"], [])


def test_hidden_paper_stays_hidden_when_it_is_merged(app: Application, now: datetime) -> None:
    """The arXiv version of a hidden paper must not bring it back."""
    store(app, now, PAGE, kind=SourceKind.PAGE)
    with app.db.write() as session:
        session.get_one(Paper, papers(app)[0].id).hidden_at = now
    assert store(app, now, PIGEONS).papers_merged == 1
    assert [paper.hidden_at for paper in papers(app)] == [now]


def test_split_doi_is_respected_by_polls(app: Application, now: datetime) -> None:
    """Records with the arXiv id, the DOI or both belong to one of the two papers each."""
    both = replace(PIGEONS, doi="10.1000/pigeons")
    store(app, now, both)
    with app.db.write() as session:
        paper = session.get_one(Paper, papers(app)[0].id)
        splitting.split_doi(session, paper, now)
    for _ in range(2):
        store(app, now + NEXT_DAY, both)
        store(app, now + NEXT_DAY, replace(both, arxiv_id="", title="Doves"), kind=SourceKind.JSONL)
    one, other = papers(app)
    assert (one.arxiv_id, one.doi, one.title) == ("2611.00001", None, PIGEONS.title)
    assert (other.arxiv_id, other.doi, other.title) == (None, "10.1000/pigeons", "Doves")
    with app.db.write() as session, pytest.raises(Conflict):
        splitting.split_doi(session, session.get_one(Paper, one.id), now)


def test_split_source_is_respected_by_polls(app: Application, now: datetime) -> None:
    """Two sources list different papers of one title, without ids. A later arXiv paper absorbs only one."""
    voted = replace(BARE, upvotes=3)
    store(app, now, voted)
    store(app, now, BARE, kind=SourceKind.FEED)
    [merged] = papers(app)
    with app.db.write() as session:
        feed = session.exec(select(Source).where(Source.kind == SourceKind.FEED)).one()
        splitting.split_source(session, session.get_one(Paper, merged.id), feed.id or 0, now)
    later = now + NEXT_DAY
    store(app, later, replace(voted, listed_on=DAY + NEXT_DAY))
    store(app, later, replace(BARE, listed_on=DAY + NEXT_DAY), kind=SourceKind.FEED)
    one, other = papers(app)
    with app.db.read() as session:
        listed = {
            number: {row.source_id for row in session.exec(select(Listing).where(Listing.paper_id == number))}
            for number in (one.id, other.id)
        }
        votes = session.exec(select(VoteCount.paper_id)).all()
    assert listed == {one.id: {1}, other.id: {feed.id}}
    assert set(votes) == {one.id}
    store(app, later, replace(PIGEONS, doi="10.1000/pigeons"), kind=SourceKind.ARXIV)
    assert len(papers(app)) == 2
    with app.db.write() as session:
        root, alone = (session.get_one(Paper, paper.id) for paper in papers(app))
        assert merging.was_unmerged(session, root, alone)
        with pytest.raises(NotFound):
            splitting.split_source(session, alone, 99, later)


def test_two_papers_are_merged_by_hand_once(app: Application, now: datetime) -> None:
    """The one with an arXiv id survives, whichever is named first."""
    store(app, now, replace(PAGE, title="Doves in Towns", abstract="Other."), kind=SourceKind.PAGE)
    store(app, now, PIGEONS)
    with app.db.write() as session:
        doves, pigeons = (session.get_one(Paper, paper.id) for paper in papers(app))
        assert merging.merge_by_hand(session, doves, pigeons, now) is pigeons
        with pytest.raises(Conflict):
            merging.merge_by_hand(session, pigeons, pigeons, now)
    [paper] = papers(app)
    assert paper.arxiv_id == "2611.00001"
    assert store(
        app, now, replace(PAGE, title="Doves in Towns", abstract="Other."), kind=SourceKind.PAGE
    ).unchanged


@pytest.mark.parametrize("is_expired", [True, False])
def test_pin_that_ends_later_survives_a_merge(app: Application, now: datetime, is_expired: bool) -> None:
    """Both of its times do, until the split."""
    store(app, now, replace(PAGE, title="Doves in Towns", abstract="Other."), kind=SourceKind.PAGE)
    store(app, now, PIGEONS)
    own = (now - 3 * NEXT_DAY, now - NEXT_DAY) if is_expired else (now, now + 9 * NEXT_DAY)
    others = (now, now + 5 * NEXT_DAY)
    with app.db.write() as session:
        doves, pigeons = (session.get_one(Paper, paper.id) for paper in papers(app))
        pigeons.pinned_at, pigeons.pinned_until = own
        doves.pinned_at, doves.pinned_until = others
        merging.merge_by_hand(session, doves, pigeons, now)
        assert (pigeons.pinned_at, pigeons.pinned_until) == (others if is_expired else own)
        splitting.split_row(session, pigeons, doves.id or 0, now)
        assert (pigeons.pinned_at, pigeons.pinned_until) == own
        assert (doves.pinned_at, doves.pinned_until) == others


@pytest.mark.parametrize(("days", "error"), [(0, InvalidInput), (31, InvalidInput), (1, None)])
def test_pin_lasts_some_days(
    app: Application, now: datetime, days: int, error: type[Exception] | None
) -> None:
    store(app, now, PIGEONS)
    with app.db.write() as session:
        paper = session.get_one(Paper, papers(app)[0].id)
        if error:
            with pytest.raises(error):
                pinning.pin(session, paper, days, now)
            return
        pinning.pin(session, paper, days, now)
    with app.db.read() as session:
        assert [view.id for view in paper_views.pinned(session, now)] == [paper.id]
        assert paper_views.pinned(session, now + NEXT_DAY) == []
    with app.db.write() as session:
        paper = session.get_one(Paper, paper.id)
        pinning.unpin(session, paper)
        with pytest.raises(Conflict):
            pinning.unpin(session, paper)
        paper.first_listed_on = DAY - timedelta(days=40)
        with pytest.raises(Conflict, match="only papers first listed in the last 30 days"):
            pinning.pin(session, paper, 1, now)
