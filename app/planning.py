"""The plan of a tick: everyone who is due gets one delivery, or one skip with its reason."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import structlog
from sqlmodel import Session, col, select
from sqlmodel.sql.expression import SelectOfScalar

from app import archive, cadence, deliver, subscribers
from app.desk import Desk, Order
from app.models import MailKind, Subscriber, SubscriberState
from app.parts import App
from app.ranking import Ranked
from app.records import Digest, Opinion, Skip, Wish

SHARD = 200  # readers planned in one transaction
TRY_AGAIN = timedelta(hours=1)

log = structlog.get_logger(__name__)


def plan(app: App, now: datetime) -> Counter[str]:
    """Plan every digest that is due at `now`: how many were planned, skipped, or planned before."""
    planned = Counter[str]()
    with app.db.read() as session:
        if not anyone_due(session, now):
            return planned
        desk = Desk(app, session, now)
    _match_ahead(app, desk, now)
    while shard := _plan_shard(app, desk, now):
        planned += shard
        _match_ahead(app, desk, now)
    return planned


def _match_ahead(app: App, desk: Desk, now: datetime) -> None:
    """Match what the next readers wish for while nothing is locked: it is the long part of planning."""
    with app.db.read() as session:
        ids = [reader.id for reader in session.exec(_due(now).limit(SHARD)) if reader.id is not None]
        wishes, opinions = subscribers.wishes(session, ids), subscribers.opinions(session, ids)
    # What goes wrong here goes wrong again, and is written down, when its reader is planned.
    with suppress(Exception):
        desk.prepare(itertools.chain(*wishes.values()))
    for said in opinions.values():
        with suppress(Exception):
            desk.liking(said)


def anyone_due(session: Session, now: datetime) -> bool:
    return session.exec(_due(now).limit(1)).first() is not None


def _due(now: datetime) -> SelectOfScalar[Subscriber]:
    due = select(Subscriber).where(
        Subscriber.state == SubscriberState.ACTIVE, col(Subscriber.next_due_at) <= now
    )
    return due.order_by(col(Subscriber.next_due_at), col(Subscriber.id))


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What a reader would get."""

    subscriber_id: int
    email: str
    edition: str
    digest: Digest | Skip


def foresee(app: App, now: datetime, ids: Collection[int] | None) -> list[Foreseen]:
    """What everyone who is due, or each of these readers, would get at `now`. Nothing is written."""
    wanted = _due(now) if ids is None else select(Subscriber).where(col(Subscriber.id).in_(ids))
    with app.db.read() as session:
        desk = Desk(app, session, now)
        wanted_by = orders(session, session.exec(wanted).all(), desk.oldest)
    foreseen = []
    shards = [wanted_by[start : start + SHARD] for start in range(0, len(wanted_by), SHARD)]
    for order, ranked in zip(wanted_by, itertools.chain.from_iterable(map(desk.ranked, shards)), strict=True):
        reader = order.reader
        edition = cadence.edition(reader.zone, newest_due(reader, now))
        digest = desk.digest(reader, edition, ranked)
        foreseen.append(Foreseen(reader.id or 0, reader.email, edition, digest))
    return foreseen


def orders(
    session: Session, readers: Iterable[Subscriber], since: datetime, until: datetime | None = None
) -> list[Order]:
    """What these readers want, what they had said by `until`, and what they were promised since `since`."""
    by_id = {reader.id or 0: reader for reader in readers}
    wishes, opinions = subscribers.wishes(session, by_id), subscribers.opinions(session, [*by_id])
    if until:
        opinions = {n: tuple(one for one in said if one.at <= until) for n, said in opinions.items()}
    already = promised(session, by_id, since, until)
    return [
        _order(reader, wishes.get(number, ()), opinions.get(number, ()), already[number])
        for number, reader in by_id.items()
    ]


def _order(
    reader: Subscriber, wishes: Sequence[Wish], opinions: Sequence[Opinion], already: frozenset[int]
) -> Order:
    """What a reader wants: none of the papers of which they said something, as they know those."""
    known = {one.paper_id for one in opinions if one.paper_id is not None}
    return Order(reader, wishes, opinions, already | known)


def newest_due(reader: Subscriber, now: datetime) -> datetime:
    """The newest moment at which a reader was due, or the next where that is to come."""
    due = reader.next_due_at or now
    if due > now:
        return due
    return cadence.last_due(reader.cadence, reader.weekday, reader.hour, reader.zone, due, now)


def _plan_shard(app: App, desk: Desk, now: datetime) -> Counter[str]:
    """Plan the readers who have been due the longest; locked, so that another process takes others."""
    planned = Counter[str]()
    with app.db.write() as session:
        readers = session.exec(_due(now).limit(SHARD).with_for_update(skip_locked=True)).all()
        ranked = desk.ranked(orders(session, readers, desk.oldest))
        following = []
        for reader, found in zip(readers, ranked, strict=True):
            try:
                with session.begin_nested():
                    word, due = _plan_one(session, desk, reader, found, now)
            except Exception:  # one reader's broken row must not stop everybody's mail
                log.exception("reader not planned", subscriber=reader.id)
                word, due = "not_planned", now + TRY_AGAIN
            planned[word] += 1
            following.append(due)
        for reader, due in zip(readers, following, strict=True):  # afterwards, so that one statement does it
            reader.next_due_at = due
    return planned


def _plan_one(
    session: Session, desk: Desk, reader: Subscriber, ranked: Ranked | Skip, now: datetime
) -> tuple[str, datetime]:
    """Write down what one reader gets for the newest edition that is due.

    The word for the statistics, and when the reader is due again.
    """
    due = newest_due(reader, now)
    following = cadence.next_due(reader.cadence, reader.weekday, reader.hour, reader.zone, now)
    edition = cadence.edition(reader.zone, due)
    row: dict[str, Any] = {"subscriber_id": reader.id or 0, "edition": edition, "due_at": due, "now": now}
    digest = desk.digest(reader, edition, ranked)
    if isinstance(digest, Skip):
        skipped = deliver.skip(session, **row, reason=digest.reason)
        return "skipped" if skipped else "planned_before", following
    planned = deliver.enqueue(session, **row, kind=MailKind.DIGEST, digest=digest, give_up_at=following)
    return "planned" if planned else "planned_before", following


def promised(
    session: Session, ids: Collection[int], since: datetime, until: datetime | None = None
) -> dict[int, frozenset[int]]:
    """What each reader was promised between two moments, by the ids that the papers go by today."""
    found = deliver.papers_promised(session, ids, since, until)
    today = archive.canonical(session, set().union(*found.values()))
    return {
        reader: frozenset(today.get(paper, paper) for paper in papers) for reader, papers in found.items()
    }
