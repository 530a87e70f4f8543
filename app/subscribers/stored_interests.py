"""Store subscribers' interests. Each distinct text is stored once for all subscribers who share it."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import cast

from sqlalchemy import Table, inspect
from sqlalchemy import select as sql_select
from sqlalchemy import update as sql_update
from sqlmodel import Session, col, delete, exists, func, insert, select

from app.storage.database import execute_and_count, in_array
from app.storage.inserts import insert_many_or_ignore
from app.storage.models import InterestQuery, InterestRow, Subscriber
from app.types import Interest

MAX_CACHED_INTERESTS = 20_000
_ROWS, _QUERIES, _SUBSCRIBERS = (
    cast("Table", inspect(model).local_table) for model in (InterestRow, InterestQuery, Subscriber)
)


def interests_of(session: Session, ids: Collection[int]) -> dict[int, tuple[Interest, ...]]:
    """Return the interests of each subscriber who has any, in the order that the subscriber chose."""
    by_subscriber: dict[int, list[Interest]] = defaultdict(list)
    interests = (
        sql_select(_ROWS.c.subscriber_id, _QUERIES.c.text, _ROWS.c.weight, _ROWS.c.quota)
        .join(_QUERIES, _QUERIES.c.id == _ROWS.c.query_id)
        .where(in_array(session, _ROWS.c.subscriber_id, ids))
        .order_by(_ROWS.c.subscriber_id, _ROWS.c.position)
    )
    for subscriber_id, text, weight, quota in session.connection().execute(interests).all():
        by_subscriber[subscriber_id].append(_interest(text, weight, quota))
    return {subscriber_id: tuple(own) for subscriber_id, own in by_subscriber.items()}


_interest = lru_cache(maxsize=MAX_CACHED_INTERESTS)(Interest)  # a new object takes four times as long


def store(session: Session, subscriber_id: int, interests: Sequence[Interest]) -> None:
    """Replace a subscriber's interests, and keep their order. Delete texts that are no longer used."""
    before = session.exec(
        select(InterestRow.query_id).where(InterestRow.subscriber_id == subscriber_id)
    ).all()
    ids = _query_ids(session, [interest.text for interest in interests])
    session.execute(delete(InterestRow).where(col(InterestRow.subscriber_id) == subscriber_id))
    session.add_all(
        InterestRow(
            subscriber_id=subscriber_id,
            query_id=ids[interest.text],
            position=position,
            weight=interest.weight,
            quota=interest.quota,
        )
        for position, interest in enumerate(interests)
    )
    session.flush()
    note_newest(session, [subscriber_id])
    if dropped := set(before) - set(ids.values()):
        forget_unused_queries(session, dropped)


def store_new(session: Session, interests: Mapping[int, Sequence[Interest]]) -> None:
    """Store the interests of new subscribers, keyed by their ids. Use `store` for existing subscribers."""
    ids = _query_ids(session, [interest.text for chosen in interests.values() for interest in chosen])
    rows = [
        {
            "subscriber_id": subscriber_id,
            "query_id": ids[interest.text],
            "position": position,
            "weight": interest.weight,
            "quota": interest.quota,
        }
        for subscriber_id, chosen in interests.items()
        for position, interest in enumerate(chosen)
    ]
    if rows:
        session.execute(insert(InterestRow), rows)
        note_newest(session, interests.keys())


def note_newest(session: Session, ids: Collection[int]) -> None:
    """Update `Subscriber.newest_interest` for these subscribers after their interests have changed."""
    newest = sql_select(func.coalesce(func.max(_ROWS.c.query_id), 0))
    own = newest.where(_ROWS.c.subscriber_id == _SUBSCRIBERS.c.id).scalar_subquery()
    changed = sql_update(_SUBSCRIBERS).where(in_array(session, _SUBSCRIBERS.c.id, ids))
    session.connection().execute(changed.values(newest_interest=own))


def forget_unused_queries(session: Session, ids: Collection[int] | None = None) -> int:
    """Delete the texts that no subscriber uses. If `ids` is given, delete only those among them.

    A text that another transaction is about to use is locked (see `_query_ids`) and is not deleted. Return
    the number of deleted texts.
    """
    unused = ~exists().where(col(InterestRow.query_id) == InterestQuery.id)
    candidates = select(col(InterestQuery.id)).where(unused)
    if ids is not None:
        candidates = candidates.where(in_array(session, col(InterestQuery.id), ids))
    locked = session.exec(candidates.with_for_update(skip_locked=True)).all()
    if not locked:
        return 0
    # Check `unused` again: a subscriber may have started to use a text between the search and the lock.
    statement = delete(InterestQuery).where(in_array(session, col(InterestQuery.id), locked), unused)
    return execute_and_count(session, statement.execution_options(synchronize_session=False))


def _query_ids(session: Session, texts: Sequence[str]) -> dict[str, int]:
    """Store new texts, lock all of them against deletion, and return their ids.

    Texts are locked in sorted order, so two transactions with the same new texts cannot deadlock.
    """
    ids: dict[str, int] = {}
    while missing := sorted(set(texts) - ids.keys()):
        insert_many_or_ignore(session, InterestQuery, ["text"], [{"text": text} for text in missing])
        rows = (
            select(InterestQuery.text, col(InterestQuery.id))
            .where(in_array(session, col(InterestQuery.text), missing))
            .order_by(InterestQuery.text)
        )
        locked = session.exec(rows.with_for_update(read=True, key_share=True))
        ids |= {text: identity or 0 for text, identity in locked}
    return ids
