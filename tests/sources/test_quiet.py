"""Silence is explained."""

from __future__ import annotations

from datetime import date

from app.records import SourceKind
from app.sources import quiet


def test_weekends_and_holidays_have_their_sentence() -> None:
    """A reader who wonders is told."""
    saturday, thanksgiving, friday = date(2026, 11, 21), date(2026, 11, 26), date(2026, 11, 20)
    assert "Saturday" in quiet.why(SourceKind.HUGGINGFACE, saturday)
    assert "Saturday" in quiet.why(SourceKind.ARXIV_FEED, saturday)
    assert quiet.why(SourceKind.ARXIV, thanksgiving) == (
        "arXiv announces no papers on 26 November: Thanksgiving."
    )
    assert quiet.why(SourceKind.HUGGINGFACE, thanksgiving) == ""
    assert quiet.why(SourceKind.ARXIV, friday) == ""
    assert quiet.why(SourceKind.FEED, saturday) == ""


def test_the_announcement_before() -> None:
    """Over a weekend, and over a holiday."""
    assert quiet.announcement_before(date(2026, 11, 23)) == date(2026, 11, 20)
    assert quiet.announcement_before(date(2026, 11, 27)) == date(2026, 11, 25)
