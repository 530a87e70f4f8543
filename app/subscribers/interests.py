"""The texts of interests, stored once however many readers share them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence

from sqlmodel import Session, col, delete, exists, select

from app.storage.database import in_array, insert_or_ignore
from app.storage.models import InterestQuery, InterestRow
from app.types import Interest


def interests_of(session: Session, ids: Collection[int]) -> dict[int, tuple[Interest, ...]]:
    """The interests of readers, each reader's in their own order; none at all for who has none."""
    found: dict[int, list[Interest]] = defaultdict(list)
    rows = session.exec(
        select(
            col(InterestRow.subscriber_id),
            col(InterestQuery.text),
            col(InterestRow.weight),
            col(InterestRow.quota),
        )
        .join(InterestQuery, col(InterestQuery.id) == InterestRow.query_id)
        .where(col(InterestRow.subscriber_id).in_(ids))
        .order_by(col(InterestRow.subscriber_id), col(InterestRow.position))
    )
    for subscriber_id, text, weight, quota in rows:
        found[subscriber_id].append(Interest(text, weight, quota))
    return {subscriber_id: tuple(listed) for subscriber_id, listed in found.items()}


def store(session: Session, subscriber_id: int, wanted: Sequence[Interest]) -> None:
    """Make these the interests of a reader, in this order. What nobody wants any more is deleted."""
    before = session.exec(
        select(InterestRow.query_id).where(InterestRow.subscriber_id == subscriber_id)
    ).all()
    ids = _query_ids(session, [wish.text for wish in wanted])
    session.execute(delete(InterestRow).where(col(InterestRow.subscriber_id) == subscriber_id))
    for position, wish in enumerate(wanted):
        session.add(
            InterestRow(
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
    unused = ~exists().where(col(InterestRow.query_id) == InterestQuery.id)
    candidates = select(col(InterestQuery.id)).where(unused)
    if ids is not None:
        candidates = candidates.where(in_array(session, col(InterestQuery.id), ids))
    locked = session.exec(candidates.with_for_update(skip_locked=True)).all()
    if not locked:
        return 0
    # Asked once more: somebody may have begun to use one between the search and the lock.
    gone = delete(InterestQuery).where(in_array(session, col(InterestQuery.id), locked), unused)
    return session.execute(gone, execution_options={"synchronize_session": False}).rowcount  # type: ignore[attr-defined, no-any-return]


def _query_ids(session: Session, texts: Sequence[str]) -> dict[str, int]:
    """Return the ids of texts, stored where they are new, and locked: nobody deletes them meanwhile.

    In order, so that two readers with the same new interests cannot wait for each other for ever.
    """
    ids: dict[str, int] = {}
    while missing := sorted(set(texts) - ids.keys()):
        for text in missing:
            insert_or_ignore(session, InterestQuery, ["text"], text=text)
        rows = (
            select(InterestQuery.text, col(InterestQuery.id))
            .where(col(InterestQuery.text).in_(missing))
            .order_by(InterestQuery.text)
        )
        locked = session.exec(rows.with_for_update(read=True, key_share=True))
        ids |= {text: identity or 0 for text, identity in locked}
    return ids
