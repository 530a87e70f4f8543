"""What the ledger knows."""

from __future__ import annotations

from sqlalchemy import func
from sqlmodel import Session, select

from app.models import Delivery, MailKind
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
