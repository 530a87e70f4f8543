"""Find the digests that contain a paper."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

from sqlalchemy import func
from sqlmodel import Session, col, select

from app.delivery.ledger.snapshots import items_of, shared_reasons
from app.storage.models import Delivery, DigestContent, PaperSnapshot
from app.storage.models import DeliveryState as State
from app.types import MailKind

MAX_READ = 20_000  # digests: reading them takes about a second
MAX_RETURNED = 20
DAY = timedelta(days=1)


class PaperDelivery(NamedTuple):
    """A digest that contains a paper, with the interest that the paper matches and the reason."""

    delivery_id: int
    subscriber_id: int
    edition: str
    state: State
    interest: str
    reason: str | int  # the id of a shared reason until its text is loaded


@dataclass(frozen=True, slots=True)
class PaperHistory:
    """The digests that contain a paper: their number by state, and the newest digests."""

    states: dict[State, int]
    newest: tuple[PaperDelivery, ...]
    is_complete: bool  # False if there were too many digests to read all of them


def paper_history(session: Session, papers: Collection[int]) -> PaperHistory:
    """Return the digests that contain a paper. `papers` are the ids of its row and of rows merged into it.

    Only digests from the days between the paper's first and last snapshot are read, because the others cannot
    contain it.
    """
    created = col(PaperSnapshot.created_at)
    days = select(func.min(created), func.max(created)).where(col(PaperSnapshot.paper_id).in_(papers))
    first, last = session.exec(days).one()
    if first is None:
        return PaperHistory({}, (), True)
    columns = (Delivery.id, Delivery.subscriber_id, Delivery.edition, Delivery.state, DigestContent.digest)
    digests = (
        select(*columns)  # type: ignore[call-overload]
        .join(DigestContent, col(DigestContent.delivery_id) == Delivery.id)
        .where(
            Delivery.kind == MailKind.DIGEST,
            col(Delivery.created_at) >= first,
            col(Delivery.created_at) <= last + DAY,
        )
        .order_by(col(Delivery.id).desc())
        .limit(MAX_READ)
    )
    states, newest, read = Counter[State](), list[PaperDelivery](), 0
    for number, subscriber, edition, state, digest in session.exec(digests):
        read += 1
        for interest, reason in items_of(digest, papers)[:1]:
            states[State(state)] += 1
            newest.append(PaperDelivery(number, subscriber, edition, State(state), interest, reason))
    del newest[MAX_RETURNED:]
    texts = shared_reasons(session, (delivery.reason for delivery in newest))
    deliveries = [
        delivery._replace(reason=texts.get(delivery.reason, str(delivery.reason))) for delivery in newest
    ]
    return PaperHistory(dict(states), tuple(deliveries), read < MAX_READ)
