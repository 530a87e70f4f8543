"""Rows for tests that begin with an archive and readers already there."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

from sqlmodel import Session, select

from app.application import Application
from app.delivery import ledger
from app.papers import dedupe
from app.storage.database import insert_or_ignore
from app.storage.models import (
    Delivery,
    InterestQuery,
    InterestRow,
    Listing,
    Paper,
    Source,
    Subscriber,
    SubscriberState,
    VoteCount,
)
from app.types import Cadence, Digest, SourceKind


def source(session: Session, now: datetime, name: str = "Hugging Face Daily Papers") -> Source:
    """A source that was never polled."""
    row = Source(name=name, kind=SourceKind.HUGGINGFACE, created_at=now)
    session.add(row)
    session.flush()
    return row


def paper(
    session: Session, of: Source, title: str, listed_on: date, now: datetime, upvotes: int = 10, **fields: Any
) -> int:
    """A paper with a listing and votes; its id."""
    row = Paper(
        title=title,
        title_key=dedupe.title_key(title),
        content_hash="",
        first_listed_on=listed_on,
        last_listed_on=listed_on,
        created_at=now,
        updated_at=now,
        **fields,
    )
    session.add(row)
    session.flush()
    at = {"paper_id": row.id, "original_paper_id": row.id, "source_id": of.id}
    session.add(Listing(**at, listed_on=listed_on))
    session.add(VoteCount(**at, at=now, upvotes=upvotes))
    session.flush()
    return row.id or 0


def archive(session: Session, count: int, now: datetime, first: int = 0) -> None:
    """Papers that no source listed, enough to learn from: each has "zebrafish" in its title."""
    for number in range(first, first + count):
        title = f"Zebrafish number {number}"
        session.add(Paper(title=title, title_key=title, content_hash="", created_at=now, updated_at=now))
    session.flush()


def digest(app: Application, delivery: Delivery) -> Digest:
    """What a delivery shows, as it was composed."""
    with app.db.read() as session:
        kept = ledger.stored_digests(session, [delivery.id])
        return app.snapshots.restore(session, list(kept.values()))[0].digest


def reader(session: Session, email: str, interests: list[str], next_due_at: datetime, **fields: Any) -> int:
    """An active daily reader in UTC at eight; their id."""
    wanted = {"state": SubscriberState.ACTIVE, "cadence": Cadence.DAILY, "hour": 8, "zone": "UTC"} | fields
    row = Subscriber(
        email=email, next_due_at=next_due_at, created_at=next_due_at, confirmed_at=next_due_at, **wanted
    )
    session.add(row)
    session.flush()
    for position, text in enumerate(interests):
        insert_or_ignore(session, InterestQuery, ["text"], text=text)
        query = session.exec(select(InterestQuery).where(InterestQuery.text == text)).one()
        session.add(InterestRow(subscriber_id=row.id, query_id=query.id, position=position))
    session.flush()
    return row.id or 0
