"""Test the search for papers with similar titles."""

from datetime import date, datetime
from typing import Any

import pytest
from sqlalchemy import event

from app.application import Application
from app.papers import dedupe, duplicate_candidates, stored_fields
from app.papers.title_normalization import Title
from app.storage.models import Paper
from app.types import PaperRecord
from tests.support import factories

TITLE = "Pigeons That Plan in the Streets of Large Cities"
DAY = date(2026, 11, 19)


@pytest.fixture
def paper_ids(app: Application, now: datetime) -> dict[str, int]:
    """Add a paper with an arXiv id, and a copy without one."""
    with app.db.write() as session:
        source = factories.add_source(session, now)
        return {
            "with": factories.add_paper(session, source, TITLE, DAY, now, arxiv_id="2611.00001"),
            "without": factories.add_paper(session, source, TITLE.replace("Streets", "Street"), DAY, now),
            "other": factories.add_paper(session, source, "Nothing Like Any of These", DAY, now),
        }


def find(app: Application, record: PaperRecord, after: int = 0) -> list[int]:
    with app.db.read() as session:
        return duplicate_candidates.find_stored(session, [(1, record)], after)[1]


def test_similar_titles_are_found(app: Application, paper_ids: dict[str, int]) -> None:
    """They are found by their beginning or their end, nearest first."""
    assert find(app, PaperRecord(TITLE)) == [paper_ids["with"], paper_ids["without"]]
    assert find(app, PaperRecord(f"Pigeon: {TITLE}")) == [paper_ids["with"], paper_ids["without"]]
    assert find(app, PaperRecord(TITLE.replace("Pigeons", "Pigeon"))) != []
    assert find(app, PaperRecord(TITLE.removesuffix(" Cities"))) != []
    assert find(app, PaperRecord("A Title Without Any Copy in the Archive")) == []


def test_records_with_an_arxiv_id_are_compared_with_papers_without(
    app: Application, paper_ids: dict[str, int]
) -> None:
    """Two arXiv ids are two papers, however similar the titles are."""
    assert find(app, PaperRecord(TITLE, arxiv_id="2611.00002")) == [paper_ids["without"]]


def test_only_newer_papers_are_searched(app: Application, paper_ids: dict[str, int]) -> None:
    """Rows that were stored since a search have higher ids."""
    assert find(app, PaperRecord(TITLE), after=paper_ids["with"]) == [paper_ids["without"]]


def test_edited_titles_are_compared_as_sources_give_them(
    app: Application, now: datetime, paper_ids: dict[str, int]
) -> None:
    """An operator's title does not hide a copy."""
    with app.db.write() as session:
        paper = session.get_one(Paper, paper_ids["with"])
        stored_fields.set_edit(paper, "title", "City Birds")
        stored_fields.renew_hash(paper)
        paper.edited_at = now
    assert paper_ids["with"] in find(app, PaperRecord(TITLE))


@pytest.mark.once
@pytest.mark.parametrize("arxiv_id", ["", "2611.00002"])
def test_search_uses_indexes(app: Application, paper_ids: dict[str, int], arxiv_id: str) -> None:
    """Three million titles are not read for each record."""
    plans: list[str] = []

    def explain(connection: Any, _cursor: Any, statement: str, values: Any, *_: Any) -> None:
        if "json_group_array" in statement:
            cursor = connection.connection.cursor()
            cursor.execute(f"EXPLAIN QUERY PLAN {statement}", values)
            plans.append("\n".join(str(row[-1]) for row in cursor.fetchall()))

    event.listen(app.db.engine, "before_cursor_execute", explain)
    find(app, PaperRecord(TITLE, arxiv_id=arxiv_id))
    event.remove(app.db.engine, "before_cursor_execute", explain)
    suffix = "_without_id" if arxiv_id else ""
    assert [
        f"ix_paper_{name}{suffix} (" in plan
        for name, plan in zip(("title_key", "title_end"), plans, strict=True)
    ] == [
        True,
        True,
    ]
    assert all("SCAN paper" not in plan for plan in plans)


def test_blocks_of_short_titles() -> None:
    """Titles without letters, or with few, are found by their whole key only."""
    assert dedupe.block_ranges(Title("?!")) == ([], [])
    assert dedupe.block_ranges(Title("Birds")) == ([], [])
