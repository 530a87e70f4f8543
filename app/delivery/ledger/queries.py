"""What the ledger knows."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import func
from sqlmodel import Session, col, select

from app.delivery.ledger.claims import WAITING
from app.delivery.ledger.entries import AFTER_DAYS
from app.storage.database import in_array
from app.storage.models import Delivery, DigestContent
from app.storage.models import DeliveryState as State
from app.types import MailKind

DAY = timedelta(days=1)


def totals(session: Session) -> dict[State, int]:
    """Count all mails of the ledger by state. An index alone answers it."""
    state = col(Delivery.state)
    counted = session.exec(select(state, func.count()).group_by(state))
    return dict.fromkeys(State, 0) | {State(each): count for each, count in counted}


def editions(session: Session, limit: int, before: str | None = None) -> list[str]:
    """Return the names of the newest editions, in descending order.

    Each name is one step in the index. To go by DISTINCT would read every row of the ledger.
    """
    names: list[str] = []
    name = before if before is not None else AFTER_DAYS
    while len(names) < limit:
        earlier = select(func.max(Delivery.edition)).where(Delivery.edition < min(name, AFTER_DAYS))
        found = session.exec(earlier).one()
        if found is None:
            break
        names.append(name := found)
    return names


def counts(session: Session, names: Collection[str]) -> dict[str, dict[State, int]]:
    """Count the digests of each of these editions by state."""
    edition, state = col(Delivery.edition), col(Delivery.state)
    digests = select(edition, state, func.count()).where(
        in_array(session, edition, names), Delivery.kind == MailKind.DIGEST
    )
    found = {name: dict.fromkeys(State, 0) for name in names}
    for name, each, count in session.exec(digests.group_by(edition, state)):
        found[name][State(each)] = count
    return found


def of_late(session: Session, since: datetime) -> dict[State, int]:
    """Count the digests that were due since a moment by state."""
    state = col(Delivery.state)
    # Editions are local days, so the range in the index begins a day early; `due_at` is exact.
    digests = select(state, func.count()).where(
        Delivery.edition >= (since - DAY).date().isoformat(),
        Delivery.edition < AFTER_DAYS,
        Delivery.kind == MailKind.DIGEST,
        Delivery.due_at >= since,
    )
    counted = session.exec(digests.group_by(state))
    return dict.fromkeys(State, 0) | {State(each): count for each, count in counted}


class Waiting(NamedTuple):
    """The mails of a kind that are still to leave."""

    kind: MailKind
    mails: int
    next_attempt_at: datetime  # of the first of them


def waiting(session: Session) -> list[Waiting]:
    """What is to leave, or to be tried again, by kind. Mails of unknown fate that are held are left out."""
    first = func.min(Delivery.next_attempt_at)
    rows = select(Delivery.kind, func.count(), first).where(
        col(Delivery.state).in_(WAITING), col(Delivery.next_attempt_at).is_not(None)
    )
    counted = session.exec(rows.group_by(col(Delivery.kind)).order_by(col(Delivery.kind)))
    return [Waiting(MailKind(kind), mails, at) for kind, mails, at in counted if at]


def digests(session: Session, delivery_ids: Collection[int | None]) -> dict[int, dict[str, Any]]:
    """What digests say, as it is stored (see `cards`). Missing are mails that are none, and the forgotten."""
    named = in_array(session, col(DigestContent.delivery_id), delivery_ids)
    rows = session.exec(select(DigestContent.delivery_id, DigestContent.digest).where(named))
    return {number: dict(digest) for number, digest in rows}
