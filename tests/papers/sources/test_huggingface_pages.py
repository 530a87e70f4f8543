"""Test saved search pages, which have titles without ids and dates without years."""

from datetime import date

import pytest

from app.errors import UnreadableResponse
from app.papers.sources import huggingface_pages
from tests.papers.sources.responses import PAGE

TODAY = date(2026, 11, 20)


def test_titles_and_abstracts() -> None:
    """One paper has its last lines, one has lost them, one has an abstract in two paragraphs."""
    parsed = huggingface_pages.parse(PAGE, today=TODAY)
    assert [record.title for record in parsed.records] == [
        "Pigeons That Plan: Part I",
        "Owls at Noon Without Any Last Lines",
        "A Heron's Abstract in Two Pieces",
    ]
    assert [record.author_count for record in parsed.records] == [4, 0, 1]
    assert parsed.records[0].comments == 3
    assert "goes on where" in parsed.records[2].abstract


def test_year_from_the_page() -> None:
    """The page leaves out the current year, so 2024 is the year before it."""
    first, _, third = huggingface_pages.parse(PAGE, today=TODAY).records
    assert first.listed_on == date(2025, 11, 3)
    assert first.published_on == date(2025, 1, 24)
    assert third.published_on == date(2024, 11, 25)


def test_date_without_any_year() -> None:
    """It is never a day in the future."""
    undated = PAGE.replace(", 2024", "")
    assert huggingface_pages.parse(undated, today=TODAY).records[0].listed_on == date(2026, 11, 3)
    assert huggingface_pages.parse(undated, today=date(2026, 11, 2)).records[0].listed_on == date(2025, 11, 3)


def test_given_day() -> None:
    """The operator knows when the page was saved."""
    day = date(2024, 3, 11)
    assert {record.listed_on for record in huggingface_pages.parse(PAGE, day, today=TODAY).records} == {day}


def test_title_without_abstract() -> None:
    """The page was cut off in the middle of a paper."""
    cut = PAGE[: PAGE.index("Owls are said")]
    parsed = huggingface_pages.parse(cut, today=TODAY)
    assert len(parsed.records) == 1
    assert [(r.reason, r.row) for r in parsed.rejections] == [("the title has no abstract", 2)]


@pytest.mark.parametrize("text", ["", "Some other text\n\nwith paragraphs", "<html></html>"])
def test_other_page(text: str) -> None:
    """Paragraphs alone do not make a search page."""
    with pytest.raises(UnreadableResponse):
        huggingface_pages.parse(text, today=TODAY)
