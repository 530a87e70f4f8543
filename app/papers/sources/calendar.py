"""PURE. The days on which sources have no papers, so that an empty day is not mistaken for a fault."""

from __future__ import annotations

from datetime import date, timedelta

from app.types import SourceKind

SATURDAY = 5
# Days without an arXiv announcement. arXiv publishes its calendar a year ahead: add each new year here.
ARXIV_HOLIDAYS = {
    date(2026, 11, 26): "Thanksgiving",
    date(2026, 12, 25): "Christmas",
    date(2026, 12, 29): "the winter break",
    date(2026, 12, 31): "New Year's Eve",
}


def no_papers_reason(kind: SourceKind, day: date) -> str:
    """Return a sentence that explains why a source has few or no papers on a day, otherwise ""."""
    weekend = day.weekday() >= SATURDAY
    if kind is SourceKind.HUGGINGFACE and weekend:
        return f"Hugging Face lists few or no papers on a {day:%A}."
    if kind in (SourceKind.ARXIV, SourceKind.ARXIV_FEED, SourceKind.ARXIV_OAI):
        if weekend:
            return f"arXiv announces no papers on a {day:%A}."
        if day in ARXIV_HOLIDAYS:
            return f"arXiv announces no papers on {day.day} {day:%B}: {ARXIV_HOLIDAYS[day]}."
    return ""


def announces(day: date) -> bool:
    """Return whether arXiv has an announcement with this date."""
    return not no_papers_reason(SourceKind.ARXIV_FEED, day)


def announcement_before(day: date) -> date:
    """Return the last day before `day` on which arXiv announced papers."""
    day -= timedelta(days=1)
    while not announces(day):
        day -= timedelta(days=1)
    return day
