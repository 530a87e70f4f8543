"""PURE. The days on which sources have no papers, and the submission windows of arXiv's announcements.

The calendar explains an empty day, so that it is not mistaken for a fault.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from app.types import SourceKind

SATURDAY = 5
_EASTERN = ZoneInfo("America/New_York")
ARXIV_CUTOFF = time(14, 0)  # submissions up to this time are in that evening's announcement
# Days without an arXiv announcement. arXiv publishes its calendar a year ahead: add each new year here.
ARXIV_HOLIDAYS = {
    date(2026, 11, 26): "Thanksgiving",
    date(2026, 12, 25): "Christmas",
    date(2026, 12, 29): "the winter break",
    date(2026, 12, 31): "New Year's Eve",
}


def no_papers_reason(kind: SourceKind, day: date) -> str:
    """Return why a source has few or no papers on a day, without a full stop, or "" for other days."""
    weekend = day.weekday() >= SATURDAY
    if kind is SourceKind.HUGGINGFACE and weekend:
        return f"Hugging Face lists few or no papers on a {day:%A}"
    if kind in (SourceKind.ARXIV, SourceKind.ARXIV_FEED, SourceKind.ARXIV_OAI):
        if weekend:
            return f"arXiv announces no papers on a {day:%A}"
        if day in ARXIV_HOLIDAYS:
            return f"arXiv announces no papers on {day.day} {day:%B}: {ARXIV_HOLIDAYS[day]}"
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


def submission_window(day: date) -> tuple[datetime, datetime]:
    """Return the beginning and end of the period in which the papers announced on `day` were submitted."""
    return _cutoff(announcement_before(day)), _cutoff(day)


def _cutoff(day: date) -> datetime:
    """Return the deadline for the announcement of `day`: 14:00 in New York on the last weekday before it."""
    closing = day - timedelta(days=1)
    while closing.weekday() >= SATURDAY:
        closing -= timedelta(days=1)
    return datetime.combine(closing, ARXIV_CUTOFF, _EASTERN).astimezone(UTC)
