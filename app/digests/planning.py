"""Plan digests: write one delivery, or one skip with its reason, for everyone who is due now or soon.

Digests are composed some minutes before they are due, so that only sending is left for the due time. The
edition, the earliest time of sending and the time of giving up are computed from the due time.
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
from app.types import Digest, Skip

SHARD = 250  # readers planned in one transaction
TRY_AGAIN = timedelta(hours=1)  # after a reader could not be planned
CLOCKS_MAY_DIFFER = timedelta(minutes=1)
CLOCK_MAY_GO_BACK = timedelta(days=1)
LAST_MAILS = 100  # the newest rows of the ledger, whose times are compared with the clock

log = structlog.get_logger(__name__)


def plan(context: DigestContext, now: datetime) -> Counter[str]:
    """Plan every digest that is due soon; count those planned, skipped, planned before and not planned.

    Stops between two shards at shutdown. Raises ClockError if the time cannot be trusted. In both cases, the
    readers not yet planned stay due.
    """
    counts = Counter[str]()
    with context.db.read() as session:
        if not anyone_due(context, session, now):
            return counts
        check_clock(session, now)
        builder = DigestBuilder(context, session, now)
    soon = _soon(context, now)
    _match_ahead(context, builder, soon)
    while not context.stopping.is_set() and (shard := _plan_shard(context, builder, now, soon)):
        counts += shard
        for callback in context.when_planned:
            callback()
        _match_ahead(context, builder, soon)
    return counts


def check_clock(session: Session, now: datetime) -> None:
    """Raise ClockError if the database's clock or the times in the ledger contradict this machine's clock.

    Planning on a wrong day is hard to undo: it sends tomorrow's digests and gives up those of today.
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
    """Return True if a reader is due now or soon."""
    return session.execute(_ids_due(_soon(context, now)).limit(1)).first() is not None


def _soon(context: DigestContext, now: datetime) -> datetime:
    """Return the time up to which digests are composed now."""
    return now + timedelta(minutes=context.settings.compose_ahead_minutes)


def _due(by: datetime) -> SelectOfScalar[Subscriber]:
    due = select(Subscriber).where(
        Subscriber.state == SubscriberState.ACTIVE, col(Subscriber.next_due_at) <= by
    )
    return due.order_by(col(Subscriber.next_due_at), col(Subscriber.id))


def _ids_due(by: datetime) -> Select[tuple[int]]:
    return _due(by).with_only_columns(col(Subscriber.id))


def _match_ahead(context: DigestContext, builder: DigestBuilder, soon: datetime) -> None:
    """Match the interests of the next shard while nothing is locked: this is the slow part of planning."""
    with context.db.read() as session:
        due = _due(soon).with_only_columns(col(Subscriber.id), col(Subscriber.muted)).limit(SHARD)
        muted = {row.id: row.muted for row in session.execute(due)}
        interests = subscribers.interests_of(session, muted)
        feedback = subscribers.feedback_for_ranking(session, muted)
    # An error that is suppressed here is raised again, and logged, when its reader is planned.
    with suppress(Exception):
        builder.match_interests(itertools.chain(*interests.values()))
    for feedback_of_reader in feedback.values():
        with suppress(Exception):
            builder.profile_of(feedback_of_reader)
    for texts in muted.values():
        with suppress(Exception):
            builder.muted_papers(texts)


@dataclass(frozen=True, slots=True)
class DigestPreview:
    """Hold the digest that a reader would get."""

    subscriber_id: int
    email: str
    edition: str
    digest: Digest | Skip


def preview_due(context: DigestContext, now: datetime, ids: Collection[int] | None) -> list[DigestPreview]:
    """Return the digests that these readers, or all who are due, would get at `now`. Nothing is written."""
    readers = _due(now) if ids is None else select(Subscriber).where(col(Subscriber.id).in_(ids))
    with context.db.read() as session:
        builder = DigestBuilder(context, session, now)
        since = builder.earliest_possible_delivery
        requests = digest_requests(session, session.exec(readers).all(), since)
    previews = []
    shards = [requests[start : start + SHARD] for start in range(0, len(requests), SHARD)]
    ranked_papers = itertools.chain.from_iterable(map(builder.ranked, shards))
    for request, ranked in zip(requests, ranked_papers, strict=True):
        reader = request.reader
        edition = schedule.edition(reader.zone, newest_due(reader, now))
        digest = builder.digest(reader, edition, ranked)
        previews.append(DigestPreview(reader.id or 0, reader.email, edition, digest))
    return previews


def digest_requests(
    session: Session, readers: Iterable[Subscriber], since: datetime, until: datetime | None = None
) -> list[DigestRequest]:
    """Load the interests, the feedback up to `until`, and the papers promised since `since`, of each reader.

    Papers that a reader gave feedback on are not sent either: the reader knows them.
    """
    by_id = {reader.id or 0: reader for reader in readers}
    interests = subscribers.interests_of(session, by_id)
    feedback = subscribers.feedback_for_ranking(session, [*by_id])
    if until:
        feedback = {n: tuple(item for item in items if item.at <= until) for n, items in feedback.items()}
    promised = already_promised(session, by_id, since, until)
    skipped = ledger.skipped_since_last_digest(session, by_id, since)
    rated = {
        n: {item.paper_id for item in items if item.paper_id is not None} for n, items in feedback.items()
    }
    return [
        DigestRequest(
            reader,
            interests.get(number, ()),
            feedback.get(number, ()),
            promised[number] | rated.get(number, set()),
            skipped.get(number, ()),
        )
        for number, reader in by_id.items()
    ]


def newest_due(reader: Subscriber, by: datetime) -> datetime:
    """Return the latest time up to `by` at which a reader was due, or the next one if none has come yet."""
    due = reader.next_due_at or by
    if due > by:
        return due
    return schedule.last_due(reader.cadence, reader.weekday, reader.hour, reader.zone, due, by)


@dataclass(frozen=True, slots=True)
class _DueReader:
    """Hold a reader whose digest is due."""

    request: DigestRequest
    due: datetime
    following_due: datetime  # when the digest after this one is due
    edition: str


@dataclass(frozen=True, slots=True)
class _Shard:
    """Hold the readers planned together, and the ledger entries of those who could be planned."""

    requests: Sequence[DigestRequest]
    due_readers: Mapping[int, _DueReader]
    entries: Sequence[Entry]


def _plan_shard(
    context: DigestContext, builder: DigestBuilder, now: datetime, soon: datetime
) -> Counter[str]:
    """Plan the readers who have been due the longest; count nothing if there are none or others plan them.

    On PostgreSQL their rows are locked meanwhile. On SQLite a lock would block every sender: there, digests
    are composed first and then entered for the readers who have not changed since. The others stay due.
    """
    if context.db.locks_rows:
        with context.db.write() as session:
            return _write_down(session, _compose(session, builder, soon), now, soon)
    with context.db.read() as session:
        composed = _compose(session, builder, soon)
    with context.db.write() as session:
        return _write_down(session, _without_changed(session, builder, composed), now, soon)


def _compose(session: Session, builder: DigestBuilder, soon: datetime) -> _Shard:
    readers = session.exec(_due(soon).limit(SHARD).with_for_update(skip_locked=True)).all()
    requests = digest_requests(session, readers, builder.earliest_possible_delivery)
    due_readers = list(_due_readers(requests, soon))
    by_id = {due_reader.request.reader.id or 0: due_reader for due_reader in due_readers}
    return _Shard(requests, by_id, _entries(builder, due_readers))


def _without_changed(session: Session, builder: DigestBuilder, shard: _Shard) -> _Shard:
    """Leave out the readers who changed their preferences, left, or were planned by another process."""
    readers = session.exec(select(Subscriber).where(in_array(session, col(Subscriber.id), _ids(shard)))).all()
    requests = digest_requests(session, readers, builder.earliest_possible_delivery)
    current = {request.reader.id: request for request in requests}
    unchanged = [request for request in shard.requests if _is_same(request, current.get(request.reader.id))]
    ids = {request.reader.id for request in unchanged}
    entries = [entry for entry in shard.entries if entry.subscriber_id in ids]
    return _Shard(unchanged, shard.due_readers, entries)


def _ids(shard: _Shard) -> list[int]:
    return [request.reader.id or 0 for request in shard.requests]


def _is_same(before: DigestRequest, after: DigestRequest | None) -> bool:
    if after is None or before.reader.model_dump() != after.reader.model_dump():
        return False
    return replace(before, reader=after.reader) == after


def _write_down(session: Session, shard: _Shard, now: datetime, soon: datetime) -> Counter[str]:
    """Enter the shard's digests in the ledger and move its readers to their next due time."""
    outcomes, due_readers = _enter(session, shard.entries, now), shard.due_readers
    next_due = [
        {
            "id": number,
            "next_due_at": due_readers[number].following_due if number in outcomes else soon + TRY_AGAIN,
        }
        for number in _ids(shard)
    ]
    if next_due:
        session.execute(update(Subscriber), next_due)
    return Counter(outcomes.get(number, "not_planned") for number in _ids(shard))


def _due_readers(requests: Iterable[DigestRequest], soon: datetime) -> Iterator[_DueReader]:
    """Yield the edition and due times of each reader. Log and leave out readers whose row is invalid."""
    for request in requests:
        reader = request.reader
        try:
            due = newest_due(reader, soon)
            following_due = schedule.next_due(reader.cadence, reader.weekday, reader.hour, reader.zone, due)
            edition = schedule.edition(reader.zone, due)
            yield _DueReader(replace(request, following_due=following_due), due, following_due, edition)
        except Exception:
            log.exception("reader not planned", subscriber=reader.id)


def _entries(builder: DigestBuilder, due_readers: Sequence[_DueReader]) -> list[Entry]:
    """Compose each reader's digest for the latest edition that is due."""
    ranked = builder.ranked([due_reader.request for due_reader in due_readers])
    return [_entry(builder, *pair) for pair in zip(due_readers, ranked, strict=True)]


def _entry(builder: DigestBuilder, due_reader: _DueReader, ranked: Ranked | Skip) -> Entry:
    reader, edition = due_reader.request.reader, due_reader.edition
    digest = builder.digest(reader, edition, ranked)
    return Entry(reader.id or 0, edition, due_reader.due, digest, give_up_at=due_reader.following_due)


def _enter(session: Session, entries: Sequence[Entry], now: datetime) -> dict[int, str]:
    """Enter digests in the ledger and return each reader's outcome, as it is counted.

    Entries that the database rejects are logged and left out; the others are entered one by one.
    """
    if not entries:
        return {}
    try:
        with session.begin_nested():
            ids = ledger.add_entries(session, entries, now)
    except Exception:
        if len(entries) > 1:
            return {n: outcome for entry in entries for n, outcome in _enter(session, [entry], now).items()}
        log.exception("reader not planned", subscriber=entries[0].subscriber_id)
        return {}
    return {entry.subscriber_id: _outcome(entry, n) for entry, n in zip(entries, ids, strict=True)}


def _outcome(entry: Entry, delivery_id: int | None) -> str:
    if delivery_id is None:
        return "planned_before"
    return "skipped" if isinstance(entry.digest, Skip) else "planned"


def already_promised(
    session: Session, ids: Collection[int], since: datetime, until: datetime | None = None
) -> dict[int, frozenset[int]]:
    """Return the papers in each reader's deliveries between two times, by their current ids."""
    promised = ledger.paper_ids_promised(session, ids, since, until)
    current = queries.canonical_ids(session, set().union(*promised.values()))
    return {
        reader: frozenset(current.get(paper, paper) for paper in papers)
        for reader, papers in promised.items()
    }
