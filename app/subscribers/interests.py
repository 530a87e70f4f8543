"""The texts of interests, stored once however many readers share them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence

from sqlmodel import Session, col, delete, exists, select

from app.db import insert_new, one_of
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
    """Make these the interests of a reader, in this order. What nobody wants any more is deleted."""
    before = session.exec(select(Interest.query_id).where(Interest.subscriber_id == subscriber_id)).all()
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
    if dropped := set(before) - set(ids.values()):
        forget_unused_queries(session, dropped)


def forget_unused_queries(session: Session, ids: Collection[int] | None = None) -> int:
    """Delete the texts of interests that no reader has, of all or of these, and return how many.

    A text that another transaction is about to use is locked by it (see `_query_ids`), and stays.
    """
    unused = ~exists().where(col(Interest.query_id) == Query.id)
    candidates = select(col(Query.id)).where(unused)
    if ids is not None:
        candidates = candidates.where(one_of(session, col(Query.id), ids))
    locked = session.exec(candidates.with_for_update(skip_locked=True)).all()
    if not locked:
        return 0
    # Asked once more: somebody may have begun to use one between the search and the lock.
    gone = delete(Query).where(one_of(session, col(Query.id), locked), unused)
    return session.execute(gone, execution_options={"synchronize_session": False}).rowcount  # type: ignore[attr-defined, no-any-return]


def _query_ids(session: Session, texts: Sequence[str]) -> dict[str, int]:
    """Return the ids of texts, stored where they are new, and locked: nobody deletes them meanwhile.

    In order, so that two readers with the same new interests cannot wait for each other for ever.
    """
    ids: dict[str, int] = {}
    while missing := sorted(set(texts) - ids.keys()):
        for text in missing:
            insert_new(session, Query, ["text"], text=text)
        rows = select(Query.text, col(Query.id)).where(col(Query.text).in_(missing)).order_by(Query.text)
        locked = session.exec(rows.with_for_update(read=True, key_share=True))
        ids |= {text: identity or 0 for text, identity in locked}
    return ids
