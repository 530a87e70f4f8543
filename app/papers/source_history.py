"""The polls of each source: their times, counts, first rejected rows and errors; which source is silent."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timedelta

from sqlmodel import Session, col, delete, select

from app.papers import listings
from app.papers.merging import id_of
from app.storage.models import Source, SourcePoll
from app.types import IngestSummary

MAX_REJECTIONS = 20  # stored per poll; all are counted
# A source is silent if it lists nothing for longer than it ever did in HISTORY, and a GRACE.
HISTORY, GRACE, SHORTEST_SILENCE = timedelta(days=90), timedelta(days=2), timedelta(days=3)
MIN_DAYS = 5  # with papers, to know how often a source lists any


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
    """Return since when a source has listed no paper, if that is longer than in recent weeks, or ""."""
    days = listings.listing_days(session, source.id or 0, (now - HISTORY).date())
    if len(days) < MIN_DAYS:
        return ""
    longest = max(later - day for day, later in itertools.pairwise(days))
    since = now.date() - days[-1]
    if since <= max(longest + GRACE, SHORTEST_SILENCE):
        return ""
    return (
        f"has listed no paper since {days[-1]} ({since.days} days); "
        f"its longest gap before was {longest.days} days"
    )
