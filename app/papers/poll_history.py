"""Record the polls of each source: times, counts, first rejected rows, errors."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime

from sqlmodel import Session, col, delete, select

from app.papers.merging import id_of
from app.storage.database import execute_and_count
from app.storage.models import Source, SourcePoll
from app.types import IngestSummary

MAX_REJECTIONS = 20  # stored per poll; all are counted


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


def successful(session: Session, source_id: int, since: datetime) -> Sequence[datetime]:
    """Return the times of a source's successful polls from `since` onwards, in order."""
    began = col(SourcePoll.started_at)
    polls = select(began).where(SourcePoll.source_id == source_id, SourcePoll.error == "", began >= since)
    return session.exec(polls.order_by(began)).all()


def prune(session: Session, before: datetime) -> int:
    """Delete the polls that began before a time, and return their number."""
    outdated = delete(SourcePoll).where(col(SourcePoll.started_at) < before)
    return execute_and_count(session, outdated)
