"""The plan of a tick: everyone who is due, or will be soon, gets one delivery, or one skip with its reason.

Digests are composed some minutes before their hour, so that at the hour they only have to leave. All that
depends on the moment (the edition, when it may leave, when it is given up) goes by the hour itself.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import structlog
from sqlalchemy import Select
from sqlmodel import Session, col, select, update
from sqlmodel.sql.expression import SelectOfScalar

from app import subscribers
from app.delivery import ledger
from app.delivery.ledger import Entry
from app.digests.builder import DigestBuilder, DigestContext, DigestRequest
from app.digests.ranking import Ranked
from app.errors import ClockError
from app.papers import queries
from app.storage.database import in_array, skew
from app.storage.models import Delivery, Subscriber, SubscriberState
from app.subscribers import schedule
from app.types import Digest, Feedback, Interest, Skip, SkippedEdition

SHARD = 250  # readers planned in one transaction
TRY_AGAIN = timedelta(hours=1)
CLOCKS_MAY_DIFFER = timedelta(minutes=1)
CLOCK_MAY_GO_BACK = timedelta(days=1)
LAST_MAILS = 100  # of the ledger, that tell how late it was

log = structlog.get_logger(__name__)


def plan(context: DigestContext, now: datetime) -> Counter[str]:
    """Plan every digest that is due soon: how many were planned, skipped, or planned before.

    Stop between two shards when the service is to end. Raise ClockError when the time cannot be trusted. In
    both cases, whoever is due stays due.
    """
    planned = Counter[str]()
    with context.db.read() as session:
        if not anyone_due(context, session, now):
            return planned
        check_clock(session, now)
        desk = DigestBuilder(context, session, now)
    soon = _soon(context, now)
    _match_ahead(context, desk, soon)
    while not context.stopping.is_set() and (shard := _plan_shard(context, desk, now, soon)):
        planned += shard
        for tell in context.when_planned:
            tell()
        _match_ahead(context, desk, soon)
    return planned


def check_clock(session: Session, now: datetime) -> None:
    """Raise ClockError where this machine's clock, or the ledger's history, contradicts the time.

    A plan of a wrong day is hard to take back: it sends tomorrow's digests, and gives up those of today.
    """
    ahead = skew(session)
    if abs(ahead) > CLOCKS_MAY_DIFFER:
        raise ClockError(
            f"this machine's clock and the database's differ by {abs(ahead).total_seconds():.0f} seconds: "
            "nothing is planned until both are right (is NTP running?)"
        )
    last = session.exec(select(Delivery.created_at).order_by(col(Delivery.id).desc()).limit(LAST_MAILS)).all()
    newest = max(last, default=now)
    if newest - now > CLOCK_MAY_GO_BACK:
        raise ClockError(
            f"it is {now:%Y-%m-%d %H:%M} UTC by the clock, but a mail was composed at "
            f"{newest:%Y-%m-%d %H:%M}: nothing is planned until the clock is right, or has caught up"
        )


def anyone_due(context: DigestContext, session: Session, now: datetime) -> bool:
    """Whether there is anything to plan at this moment."""
    return session.execute(_ids_due(_soon(context, now)).limit(1)).first() is not None


def _soon(context: DigestContext, now: datetime) -> datetime:
    """Up to when digests are composed now."""
    return now + timedelta(minutes=context.settings.compose_ahead_minutes)


def _due(by: datetime) -> SelectOfScalar[Subscriber]:
    due = select(Subscriber).where(
        Subscriber.state == SubscriberState.ACTIVE, col(Subscriber.next_due_at) <= by
    )
    return due.order_by(col(Subscriber.next_due_at), col(Subscriber.id))


def _ids_due(by: datetime) -> Select[tuple[int]]:
    return _due(by).with_only_columns(col(Subscriber.id))


def _match_ahead(context: DigestContext, desk: DigestBuilder, soon: datetime) -> None:
    """Match what the next readers wish for while nothing is locked: it is the long part of planning."""
    with context.db.read() as session:
        due = _due(soon).with_only_columns(col(Subscriber.id), col(Subscriber.muted)).limit(SHARD)
        muted = {row.id: row.muted for row in session.execute(due)}
        wishes, opinions = (
            subscribers.interests_of(session, muted),
            subscribers.feedback_for_ranking(session, muted),
        )
    # What goes wrong here goes wrong again, and is written down, when its reader is planned.
    with suppress(Exception):
        desk.prepare(itertools.chain(*wishes.values()))
    for said in opinions.values():
        with suppress(Exception):
            desk.liking(said)
    for texts in muted.values():
        with suppress(Exception):
            desk.kept_out(texts)


@dataclass(frozen=True, slots=True)
class DigestPreview:
    """What a reader would get."""

    subscriber_id: int
    email: str
    edition: str
    digest: Digest | Skip


def preview_due(context: DigestContext, now: datetime, ids: Collection[int] | None) -> list[DigestPreview]:
    """What everyone who is due, or each of these readers, would get at `now`. Nothing is written."""
    wanted = _due(now) if ids is None else select(Subscriber).where(col(Subscriber.id).in_(ids))
    with context.db.read() as session:
        desk = DigestBuilder(context, session, now)
        wanted_by = digest_requests(session, session.exec(wanted).all(), desk.oldest)
    foreseen = []
    shards = [wanted_by[start : start + SHARD] for start in range(0, len(wanted_by), SHARD)]
    for order, ranked in zip(wanted_by, itertools.chain.from_iterable(map(desk.ranked, shards)), strict=True):
        reader = order.reader
        edition = schedule.edition(reader.zone, newest_due(reader, now))
        digest = desk.digest(reader, edition, ranked)
        foreseen.append(DigestPreview(reader.id or 0, reader.email, edition, digest))
    return foreseen


def digest_requests(
    session: Session, readers: Iterable[Subscriber], since: datetime, until: datetime | None = None
) -> list[DigestRequest]:
    """What these readers want, what they had said by `until`, and what they were promised since `since`."""
    by_id = {reader.id or 0: reader for reader in readers}
    wishes, opinions = (
        subscribers.interests_of(session, by_id),
        subscribers.feedback_for_ranking(session, [*by_id]),
    )
    if until:
        opinions = {n: tuple(one for one in said if one.at <= until) for n, said in opinions.items()}
    already, silences = (
        already_promised(session, by_id, since, until),
        ledger.skipped_since_last_digest(session, by_id, since),
    )
    return [
        _order(
            reader,
            wishes.get(number, ()),
            opinions.get(number, ()),
            already[number],
            silences.get(number, ()),
        )
        for number, reader in by_id.items()
    ]


def _order(
    reader: Subscriber,
    wishes: Sequence[Interest],
    opinions: Sequence[Feedback],
    already: frozenset[int],
    silences: Sequence[SkippedEdition],
) -> DigestRequest:
    """What a reader wants: none of the papers of which they said something, as they know those."""
    known = {one.paper_id for one in opinions if one.paper_id is not None}
    return DigestRequest(reader, wishes, opinions, already | known, silences)


def newest_due(reader: Subscriber, by: datetime) -> datetime:
    """The newest moment up to `by` at which a reader was due, or the next where that is to come."""
    due = reader.next_due_at or by
    if due > by:
        return due
    return schedule.last_due(reader.cadence, reader.weekday, reader.hour, reader.zone, due, by)


@dataclass(frozen=True, slots=True)
class _DueReader:
    """A reader whose digest is due."""

    order: DigestRequest
    due: datetime
    following: datetime  # when the next one is
    edition: str


@dataclass(frozen=True, slots=True)
class _Shard:
    """Readers who are due, and what those get whose row makes sense."""

    orders: Sequence[DigestRequest]
    turns: Mapping[int, _DueReader]
    entries: Sequence[Entry]


def _plan_shard(context: DigestContext, desk: DigestBuilder, now: datetime, soon: datetime) -> Counter[str]:
    """Plan the readers who have been due the longest; empty when there are none, or others plan them.

    On PostgreSQL their rows are locked meanwhile. SQLite would lock out every sender: there digests are
    composed first, and entered for those readers about whom nothing has changed. The others are still due.
    """
    if context.db.locks_rows:
        with context.db.write() as session:
            return _write_down(session, _compose(session, desk, soon), now, soon)
    with context.db.read() as session:
        composed = _compose(session, desk, soon)
    with context.db.write() as session:
        return _write_down(session, _without_changed(session, desk, composed), now, soon)


def _compose(session: Session, desk: DigestBuilder, soon: datetime) -> _Shard:
    readers = session.exec(_due(soon).limit(SHARD).with_for_update(skip_locked=True)).all()
    found = digest_requests(session, readers, desk.oldest)
    turns = list(_turns(found, soon))
    return _Shard(found, {turn.order.reader.id or 0: turn for turn in turns}, _entries(desk, turns))


def _without_changed(session: Session, desk: DigestBuilder, shard: _Shard) -> _Shard:
    """Leave out the readers who changed what they want, left, or were planned by another process."""
    readers = session.exec(select(Subscriber).where(in_array(session, col(Subscriber.id), _ids(shard)))).all()
    today = {order.reader.id: order for order in digest_requests(session, readers, desk.oldest)}
    same = [order for order in shard.orders if _is_same(order, today.get(order.reader.id))]
    ids = {order.reader.id for order in same}
    return _Shard(same, shard.turns, [entry for entry in shard.entries if entry.subscriber_id in ids])


def _ids(shard: _Shard) -> list[int]:
    return [order.reader.id or 0 for order in shard.orders]


def _is_same(before: DigestRequest, after: DigestRequest | None) -> bool:
    if after is None or before.reader.model_dump() != after.reader.model_dump():
        return False
    return replace(before, reader=after.reader) == after


def _write_down(session: Session, shard: _Shard, now: datetime, soon: datetime) -> Counter[str]:
    words, turns = _enter(session, shard.entries, now), shard.turns
    again = [
        {"id": number, "next_due_at": turns[number].following if number in words else soon + TRY_AGAIN}
        for number in _ids(shard)
    ]
    if again:
        session.execute(update(Subscriber), again)
    return Counter(words.get(number, "not_planned") for number in _ids(shard))


def _turns(found: Iterable[DigestRequest], soon: datetime) -> Iterator[_DueReader]:
    """A reader's own row that makes no sense is written down, and costs nobody else anything."""
    for order in found:
        reader = order.reader
        try:
            due = newest_due(reader, soon)
            following = schedule.next_due(reader.cadence, reader.weekday, reader.hour, reader.zone, due)
            edition = schedule.edition(reader.zone, due)
            yield _DueReader(replace(order, following=following), due, following, edition)
        except Exception:
            log.exception("reader not planned", subscriber=reader.id)


def _entries(desk: DigestBuilder, turns: Sequence[_DueReader]) -> list[Entry]:
    """What each reader gets for the newest edition that is due."""
    ranked = desk.ranked([turn.order for turn in turns])
    return [_entry(desk, turn, found) for turn, found in zip(turns, ranked, strict=True)]


def _entry(desk: DigestBuilder, turn: _DueReader, ranked: Ranked | Skip) -> Entry:
    reader = turn.order.reader
    digest = desk.digest(reader, turn.edition, ranked)
    return Entry(reader.id or 0, turn.edition, turn.due, digest, give_up_at=turn.following)


def _enter(session: Session, entries: Sequence[Entry], now: datetime) -> dict[int, str]:
    """Write down what readers get: the word for the statistics, but for whom the database refuses."""
    if not entries:
        return {}
    try:
        with session.begin_nested():
            ids = ledger.add_entries(session, entries, now)
    except Exception:
        if len(entries) > 1:
            return {n: word for entry in entries for n, word in _enter(session, [entry], now).items()}
        log.exception("reader not planned", subscriber=entries[0].subscriber_id)
        return {}
    return {entry.subscriber_id: _word(entry, n) for entry, n in zip(entries, ids, strict=True)}


def _word(entry: Entry, number: int | None) -> str:
    if number is None:
        return "planned_before"
    return "skipped" if isinstance(entry.digest, Skip) else "planned"


def already_promised(
    session: Session, ids: Collection[int], since: datetime, until: datetime | None = None
) -> dict[int, frozenset[int]]:
    """What each reader was promised between two moments, by the ids that the papers go by today."""
    found = ledger.paper_ids_promised(session, ids, since, until)
    today = queries.canonical_ids(session, set().union(*found.values()))
    return {
        reader: frozenset(today.get(paper, paper) for paper in papers) for reader, papers in found.items()
    }
