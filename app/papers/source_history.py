"""The polls of each source: their times, counts, first rejected rows and errors; which source is silent."""

from __future__ import annotations

import calendar
import itertools
import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import asdict
from datetime import date, datetime, timedelta

from sqlmodel import Session, col, delete, select

from app.papers import listings
from app.papers.merging import id_of
from app.storage.models import Source, SourcePoll
from app.types import IngestSummary

MAX_REJECTIONS = 20  # stored per poll; all are counted
HISTORY = timedelta(days=90)
MIN_DAYS = 5  # with papers, to know how often a source lists any
MIN_WEEKS = 3  # to know on which days of the week it does
USUAL_SHARE = 0.75  # of the Mondays, for Monday to be a day on which it does
HOLIDAYS = 1  # usual days that a source may always miss
GRACE, SHORTEST_SILENCE = timedelta(days=2), timedelta(days=3)  # for a source without usual days


def record(
    session: Session, source: Source, began: datetime, ended: datetime, summary: IngestSummary, error: str
) -> None:
    """Store the outcome of a poll."""
    rejections = [asdict(rejection) for rejection in summary.rejections[:MAX_REJECTIONS]]
    session.add(
        SourcePoll(
            source_id=id_of(source), started_at=began, ended_at=ended, counts=summary.counts(),
            rejections=rejections, error=error,
        )
    )  # fmt: skip


def latest(session: Session, source_id: int, limit: int) -> Sequence[SourcePoll]:
    """Return the last polls of a source, newest first."""
    of_source = select(SourcePoll).where(SourcePoll.source_id == source_id)
    return session.exec(of_source.order_by(col(SourcePoll.id).desc()).limit(limit)).all()


def prune(session: Session, before: datetime) -> int:
    """Delete the polls before a time, and return their number."""
    outdated = delete(SourcePoll).where(col(SourcePoll.started_at) < before)
    return session.execute(outdated).rowcount  # type: ignore[attr-defined, no-any-return]


def describe_silence(session: Session, source: Source, now: datetime) -> str:
    """Return since when a source has listed no paper, if that is unusual for it, or "".

    Its calendar is learned: the days of the week on which it usually lists papers. It is silent if it missed
    two of them in a row, and more than ever before. A source without such days is silent if its gap is longer
    than ever before, by two days.
    """
    days = listings.listing_days(session, source.id or 0, (now - HISTORY).date())
    if len(days) < MIN_DAYS:
        return ""
    gaps, gap = [*itertools.pairwise(days)], (days[-1], now.date())
    length = (gap[1] - gap[0]).days
    fact = f"has listed no paper since {days[-1]} ({length} days)"
    if usual := _usual_weekdays(days):
        missed = max(_count_missed(each, usual) for each in gaps)
        is_silent = _count_missed(gap, usual) > max(missed, HOLIDAYS)
        names = ", ".join(calendar.day_name[weekday] for weekday in sorted(usual))
        return f"{fact}; it usually does on {names}" if is_silent else ""
    longest = max(later - day for day, later in gaps)
    is_silent = timedelta(length) > max(longest + GRACE, SHORTEST_SILENCE)
    return f"{fact}; its longest gap before was {longest.days} days" if is_silent else ""


def _usual_weekdays(days: Sequence[date]) -> set[int]:
    """Return the days of the week on which papers were listed in most weeks. `days` must be ordered."""
    weeks = ((days[-1] - days[0]).days + 1) / 7
    counts = Counter(day.weekday() for day in days)
    if weeks < MIN_WEEKS:
        return set()
    return {weekday for weekday, number in counts.items() if number >= USUAL_SHARE * math.floor(weeks)}


def _count_missed(gap: tuple[date, date], usual: Collection[int]) -> int:
    """Return how many usual days lie between two days."""
    start, end = gap
    return sum(
        date.fromordinal(day).weekday() in usual for day in range(start.toordinal() + 1, end.toordinal())
    )
