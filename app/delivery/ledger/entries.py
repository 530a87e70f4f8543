"""Into the ledger: mails to be sent, digests that were due and are none, and the papers promised so far."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, or_
from sqlmodel import Session, col, delete, insert, select

from app.delivery.ledger.signatures import NOT_AHEAD
from app.delivery.ledger.snapshots import paper_ids, store
from app.storage.database import insert_many_or_ignore, skew
from app.storage.models import Delivery, DigestContent
from app.storage.models import DeliveryState as State
from app.types import Digest, MailKind, Skip, SkippedEdition

AFTER_DAYS = "a"  # digests are named by days; other mails by their kind and a moment: confirm-2026…
LATEST = timedelta(days=10)
UNDELIVERED = (State.FAILED, State.SUPPRESSED, State.SKIPPED)


@dataclass(frozen=True, slots=True)
class Entry:
    """A mail to be sent from `due_at` on; or that a digest was due then, and why there is none."""

    subscriber_id: int
    edition: str
    due_at: datetime
    digest: Digest | Skip | None = None  # None: every kind but a digest
    kind: MailKind = MailKind.DIGEST
    give_up_at: datetime | None = None


def enter(session: Session, entries: Sequence[Entry], now: datetime) -> list[int | None]:
    """The ids of new rows, in this order. None: this reader has this edition already."""
    digests = [entry.digest for entry in entries if isinstance(entry.digest, Digest)]
    kept = iter(store(session, digests, now))
    says = [next(kept) if isinstance(entry.digest, Digest) else None for entry in entries]
    ids = insert_many_or_ignore(
        session, Delivery, ("subscriber_id", "edition"), [_row(entry, now) for entry in entries]
    )
    written = [
        {
            "delivery_id": number,
            "digest": digest,
            "signature_fingerprint": "" if entry.due_at > now else NOT_AHEAD,
        }
        for number, digest, entry in zip(ids, says, entries, strict=True)
        if number and digest
    ]
    if written:
        session.execute(insert(DigestContent), written)
    return ids


def enqueue(
    session: Session,
    *,
    subscriber_id: int,
    kind: MailKind,
    edition: str,
    due_at: datetime,
    now: datetime,
    digest: Digest | Skip | None = None,
    give_up_at: datetime | None = None,
) -> int | None:
    """Enter one mail, by the database's clock where it is due at once, and return its id.

    `now` is what this machine's clock shows, which may be wrong.
    """
    ahead = skew(session)
    due_at += ahead if due_at == now and kind is not MailKind.DIGEST else timedelta()
    return enter(session, [Entry(subscriber_id, edition, due_at, digest, kind, give_up_at)], now + ahead)[0]


def _row(entry: Entry, now: datetime) -> dict[str, Any]:
    skipped = entry.digest.reason if isinstance(entry.digest, Skip) else None
    return {
        "subscriber_id": entry.subscriber_id,
        "kind": entry.kind,
        "edition": entry.edition,
        "state": State.PENDING if skipped is None else State.SKIPPED,
        "reason": skipped or "",
        "due_at": entry.due_at,
        "created_at": now,
        "next_attempt_at": entry.due_at if skipped is None else None,
        "give_up_at": entry.give_up_at if skipped is None else None,
    }


def withdraw(session: Session, subscriber_id: int, now: datetime) -> None:
    """Take back what was planned for a reader ahead of its hour: it is as if it had not been planned."""
    ahead = (col(Delivery.due_at) > now, col(Delivery.attempts) == 0)
    theirs = (col(Delivery.subscriber_id) == subscriber_id, col(Delivery.kind) == MailKind.DIGEST)
    session.execute(delete(Delivery).where(*theirs, *ahead))


def skipped_since_last_digest(
    session: Session, subscriber_ids: Collection[int], since: datetime
) -> dict[int, tuple[SkippedEdition, ...]]:
    """What had nothing to bring since a moment, and since a reader's last digest; the oldest first."""
    digests = select(Delivery.subscriber_id, Delivery.edition, Delivery.reason, DigestContent.delivery_id)
    theirs = digests.outerjoin(DigestContent, col(DigestContent.delivery_id) == Delivery.id).where(
        col(Delivery.subscriber_id).in_(subscriber_ids),
        Delivery.kind == MailKind.DIGEST,
        *_editions_from(since),
        Delivery.due_at >= since,
    )
    found: dict[int, tuple[SkippedEdition, ...]] = {}
    for reader, edition, reason, made in session.execute(theirs.order_by(col(Delivery.due_at))):
        found[reader] = () if made else (*found.get(reader, ()), SkippedEdition(edition, reason))
    return found


def _editions_from(since: datetime) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    """Return the range of the index in which digests made or due since a moment are.

    A digest may be made a week after the day that names it, when the service was away; never later.
    """
    return col(Delivery.edition) >= (since - LATEST).date().isoformat(), col(Delivery.edition) < AFTER_DAYS


def paper_ids_promised(
    session: Session, subscriber_ids: Collection[int], since: datetime, until: datetime | None = None
) -> dict[int, set[int]]:
    """The papers that each reader has got, will get, or may have got, in digests made since a moment."""
    digests = select(Delivery.subscriber_id, DigestContent.digest).join(
        DigestContent, col(DigestContent.delivery_id) == Delivery.id
    )
    theirs = digests.where(
        col(Delivery.subscriber_id).in_(subscriber_ids),
        Delivery.kind == MailKind.DIGEST,
        *_editions_from(since),
        Delivery.created_at >= since,
        or_(col(Delivery.state).not_in(UNDELIVERED), col(Delivery.possibly_delivered)),
    )
    rows = session.exec(theirs if until is None else theirs.where(Delivery.created_at <= until))
    promised: dict[int, set[int]] = {subscriber_id: set() for subscriber_id in subscriber_ids}
    for subscriber_id, digest in rows:
        promised[subscriber_id].update(paper_ids(digest))
    return promised
