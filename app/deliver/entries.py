"""Into the ledger: mails to be sent, digests that were due and are none, and the papers promised so far."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from sqlalchemy import or_
from sqlmodel import Session, col, select

from app.db import insert_new
from app.models import Delivery, MailKind
from app.models import DeliveryState as State
from app.records import Digest

UNDELIVERED = (State.FAILED, State.SUPPRESSED, State.SKIPPED)


def enqueue(
    session: Session,
    *,
    subscriber_id: int,
    kind: MailKind,
    edition: str,
    due_at: datetime,
    now: datetime,
    digest: Digest | None = None,
    give_up_at: datetime | None = None,
) -> int | None:
    """A mail to be sent from `due_at` on. None: this reader has this edition already."""
    return insert_new(
        session,
        Delivery,
        ("subscriber_id", "edition"),
        subscriber_id=subscriber_id,
        kind=kind,
        edition=edition,
        state=State.PENDING,
        digest=asdict(digest) if digest else {},
        due_at=due_at,
        created_at=now,
        next_attempt_at=due_at,
        give_up_at=give_up_at,
    )


def skip(
    session: Session, *, subscriber_id: int, edition: str, reason: str, due_at: datetime, now: datetime
) -> int | None:
    """Write down that a digest was due and why there is none."""
    return insert_new(
        session,
        Delivery,
        ("subscriber_id", "edition"),
        subscriber_id=subscriber_id,
        kind=MailKind.DIGEST,
        edition=edition,
        state=State.SKIPPED,
        reason=reason,
        due_at=due_at,
        created_at=now,
    )


def papers_promised(
    session: Session, subscriber_ids: Collection[int], since: datetime, until: datetime | None = None
) -> dict[int, set[int]]:
    """The papers that each reader has got, will get, or may have got, in digests made since a moment."""
    theirs = select(Delivery.subscriber_id, Delivery.digest).where(
        col(Delivery.subscriber_id).in_(subscriber_ids),
        Delivery.kind == MailKind.DIGEST,
        Delivery.created_at >= since,
        or_(col(Delivery.state).not_in(UNDELIVERED), col(Delivery.maybe_delivered)),
    )
    rows = session.exec(theirs if until is None else theirs.where(Delivery.created_at <= until))
    promised: dict[int, set[int]] = {subscriber_id: set() for subscriber_id in subscriber_ids}
    for subscriber_id, digest in rows:
        promised[subscriber_id].update(_paper_ids(digest))
    return promised


def _paper_ids(digest: Mapping[str, Any]) -> Iterable[int]:
    return (pick["paper_id"] for section in digest.get("sections", ()) for pick in section["picks"])
