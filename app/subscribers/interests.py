"""The texts of interests, stored once however many readers share them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence

from sqlmodel import Session, col, delete, select

from app.db import insert_new
from app.models import Interest, Query
from app.records import Wish


def wishes(session: Session, ids: Collection[int]) -> dict[int, tuple[Wish, ...]]:
    """The interests of readers, each reader's in their own order; none at all for who has none."""
    found: dict[int, list[Wish]] = defaultdict(list)
    rows = session.exec(
        select(col(Interest.subscriber_id), col(Query.text), col(Interest.weight), col(Interest.quota))
        .join(Query, col(Query.id) == Interest.query_id)
        .where(col(Interest.subscriber_id).in_(ids))
        .order_by(col(Interest.subscriber_id), col(Interest.position))
    )
    for subscriber_id, text, weight, quota in rows:
        found[subscriber_id].append(Wish(text, weight, quota))
    return {subscriber_id: tuple(listed) for subscriber_id, listed in found.items()}


def store(session: Session, subscriber_id: int, wanted: Sequence[Wish]) -> None:
    """Make these the interests of a reader, in this order."""
    ids = _query_ids(session, [wish.text for wish in wanted])
    session.execute(delete(Interest).where(col(Interest.subscriber_id) == subscriber_id))
    for position, wish in enumerate(wanted):
        session.add(
            Interest(
                subscriber_id=subscriber_id,
                query_id=ids[wish.text],
                position=position,
                weight=wish.weight,
                quota=wish.quota,
            )
        )
    session.flush()


def _query_ids(session: Session, texts: Sequence[str]) -> dict[str, int]:
    # In order, so that two readers with the same new interests cannot wait for each other for ever.
    for text in sorted(texts):
        insert_new(session, Query, ["text"], text=text)
    rows = session.exec(select(Query.text, Query.id).where(col(Query.text).in_(texts)))
    return {text: identity for text, identity in rows if identity is not None}
