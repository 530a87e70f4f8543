"""Test the arXiv calendar, which explains days without papers."""

from __future__ import annotations

from datetime import date

from app.papers.sources import calendar
from app.types import SourceKind


def test_weekends_and_holidays() -> None:
    """The reason is part of a sentence that readers and operators see."""
    saturday, thanksgiving, friday = date(2026, 11, 21), date(2026, 11, 26), date(2026, 11, 20)
    assert "Saturday" in calendar.no_papers_reason(SourceKind.HUGGINGFACE, saturday)
    assert "Saturday" in calendar.no_papers_reason(SourceKind.ARXIV_FEED, saturday)
    assert calendar.no_papers_reason(SourceKind.ARXIV, thanksgiving) == (
        "arXiv announces no papers on 26 November: Thanksgiving"
    )
    assert calendar.no_papers_reason(SourceKind.HUGGINGFACE, thanksgiving) == ""
    assert calendar.no_papers_reason(SourceKind.ARXIV, friday) == ""
    assert calendar.no_papers_reason(SourceKind.FEED, saturday) == ""


def test_previous_announcement() -> None:
    """Weekends and holidays are skipped."""
    assert calendar.announcement_before(date(2026, 11, 23)) == date(2026, 11, 20)
    assert calendar.announcement_before(date(2026, 11, 27)) == date(2026, 11, 25)
