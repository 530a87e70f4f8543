"""What the ledger knows."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import func
from sqlmodel import Session, col, select

from app.db import one_of
from app.deliver.claims import WAITING
from app.models import Contents, Delivery, MailKind
from app.models import DeliveryState as State


def balance(session: Session, edition: str | None = None) -> dict[str, int | bool]:
    """The conservation law: every digest that was due is in exactly one state, and is counted once."""
    digests = select(Delivery).where(Delivery.kind == MailKind.DIGEST)
    if edition is not None:
        digests = digests.where(Delivery.edition == edition)
    rows = digests.subquery()
    readers = select(func.count()).select_from(
        select(rows.c.subscriber_id, rows.c.edition).distinct().subquery()
    )
    by_state = select(rows.c.state, func.count(), readers.scalar_subquery()).group_by(rows.c.state)
    counted = session.exec(by_state).all()
    states = {state.value: 0 for state in State} | {State(state).value: n for state, n, _ in counted}
    due = counted[0][2] if counted else 0
    return {"due": due, **states, "holds": due == sum(states.values())}


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
    named = one_of(session, col(Contents.delivery_id), delivery_ids)
    rows = session.exec(select(Contents.delivery_id, Contents.digest).where(named))
    return {number: dict(digest) for number, digest in rows}
