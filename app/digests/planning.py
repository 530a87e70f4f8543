"""Plan digests: write one delivery, or one skip with its reason, for everyone who is due now or soon.

Digests are composed a few minutes before they are due, so that they only have to be sent at the due time. The
edition, the earliest sending time and the time to give up are computed from the due time.
"""

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache, partial
from typing import Any, NamedTuple, cast

import structlog
from sqlalchemy import ColumnElement, Select, Table, bindparam, inspect, text
from sqlalchemy import select as sql_select
from sqlalchemy import update as sql_update
from sqlmodel import Session, col, func, or_, select
from sqlmodel.sql.expression import SelectOfScalar

from app import subscribers
from app.delivery import ledger
from app.delivery.ledger import Entry
from app.digests import clock_check, notes, paper_updates
from app.digests.builder import ComposeError, DigestBuilder, DigestContext, DigestGroup
from app.digests.digest_requests import DigestRequest, DueSubscriber
from app.digests.paper_updates import RecentUpdates
from app.papers import canonical_rows
from app.runtime import interpreter
from app.storage.database import has_changed, in_array
from app.storage.models import Subscriber, SubscriberState
from app.subscribers import schedule
from app.types import Cadence, Digest, Skip

JOB = "plan"
FAILED_PART = "digests"  # the part of a run that fails if a digest could not be composed
BATCH_SIZE = 500  # subscribers planned in one transaction
MANY = 4 * BATCH_SIZE  # due subscribers that make it worthwhile to load the papers in a second process
LONGEST_WAIT = timedelta(days=30)  # during a warm-up, subscribers who wait longer are treated equally
TRY_AGAIN = timedelta(hours=1)  # after planning failed for a subscriber

# Change all rows in one statement on PostgreSQL, where a statement takes longer than a change to a row.
_SET_NEXT_DUE = text("""
    UPDATE subscriber SET next_due_at = due.at
    FROM unnest(CAST(:ids AS bigint[]), CAST(:times AS timestamptz[])) AS due(id, at)
    WHERE subscriber.id = due.id AND subscriber.id = ANY(CAST(:ids AS bigint[]))
""")
_SUBSCRIBERS = cast("Table", inspect(Subscriber).local_table)
_SET_NEXT_DUE_OF_ONE = (
    sql_update(_SUBSCRIBERS)
    .where(_SUBSCRIBERS.c.id == bindparam("of_id"))
    .values(next_due_at=bindparam("at"))
)
_COLUMNS = [_SUBSCRIBERS.c[name] for name in DueSubscriber._fields]

log = structlog.get_logger(__name__)


def plan(context: DigestContext, now: datetime, ids: Collection[int] | None = None) -> Counter[str]:
    """Plan every digest that is due soon. Return the number of subscribers by outcome.

    If `ids` is given, plan only digests of these subscribers that are due already. The outcomes are
    "planned", "skipped", "planned_before" (by an earlier run) and "not_planned" (because of an error).
    Otherwise, also reschedule digests that a clock that was ahead has scheduled too late.

    Planning stops between two batches at shutdown. Raise ClockError if the time cannot be trusted. In both
    cases, subscribers who have not been planned yet stay due.
    """
    counts = Counter[str]()
    soon = _soon(context, now) if ids is None else now
    all_due = _due(soon, ids)
    with context.db.read() as session:
        is_far_ahead = ids is None and subscribers.is_anyone_due_far_ahead(session, now)
        if not (is_far_ahead or _is_anyone_due(session, all_due)):
            return counts
        clock_check.check_clock(session, now)
    if is_far_ahead:
        reschedule = partial(subscribers.reschedule_far_ahead, now=now)
        context.db.write_in_batches(reschedule, context.stopping)
    if ids is None:
        with context.db.write() as session:
            ledger.expire_before_next(session, soon)  # so that the next digests contain their papers
        # Subscribers whose previous digest is still being sent stay due until the next run.
        all_due = all_due.where(col(Subscriber.id).not_in(ledger.with_unsettled_digest(soon)))
        with context.db.read() as session:
            if not _is_anyone_due(session, all_due):
                return counts
    with interpreter.tuned_for_throughput():
        with context.db.read() as session:
            builder = DigestBuilder(context, session, now)
            recent = paper_updates.load(session, now)
        _match_ahead(context, builder, all_due)
        while not context.stopping.is_set() and (
            batch := _plan_batch(context, builder, recent, all_due, now, soon)
        ):
            counts += batch
            for callback in context.on_batch_planned if ids is None else ():
                callback()
            _match_ahead(context, builder, all_due)
    builder.close()
    return counts


def has_work(context: DigestContext, session: Session, now: datetime) -> bool:
    """Return whether a subscriber is due now or soon, or later than any schedule allows."""
    is_due = _is_anyone_due(session, _due(_soon(context, now)))
    return is_due or subscribers.is_anyone_due_far_ahead(session, now)


def are_many_due(context: DigestContext, session: Session, now: datetime) -> bool:
    """Return whether more than MANY subscribers are due now or soon."""
    return _is_anyone_due(session, _due(_soon(context, now)), besides=MANY)


def _is_anyone_due(session: Session, all_due: SelectOfScalar[Subscriber], besides: int = 0) -> bool:
    first = all_due.with_only_columns(col(Subscriber.id)).offset(besides).limit(1)
    return session.execute(first).first() is not None


def lateness(session: Session, now: datetime) -> timedelta:
    """Return how long the most overdue digest has been waiting to be composed; zero if none is overdue.

    Digests that could not be composed and will be tried again do not count.
    """
    oldest = session.exec(
        select(func.min(Subscriber.next_due_at)).where(
            Subscriber.state == SubscriberState.ACTIVE, col(Subscriber.next_due_at) <= now, _may_be_tried(now)
        )
    ).one()
    return now - oldest if oldest else timedelta()


def count_failed(session: Session, now: datetime) -> int:
    """Return the number of due digests that could not be composed, and will be tried again."""
    waiting = select(func.count()).where(
        Subscriber.state == SubscriberState.ACTIVE,
        col(Subscriber.plan_after) > now,
        col(Subscriber.next_due_at) <= col(Subscriber.plan_after),  # later, once an attempt has succeeded
    )
    return session.exec(waiting).one()


def _soon(context: DigestContext, now: datetime) -> datetime:
    """Return the time up to which digests are composed now."""
    return now + timedelta(minutes=context.settings.compose_ahead_minutes)


def _due(by: datetime, ids: Collection[int] | None = None) -> SelectOfScalar[Subscriber]:
    due = select(Subscriber).where(
        Subscriber.state == SubscriberState.ACTIVE, col(Subscriber.next_due_at) <= by, _may_be_tried(by)
    )
    due = due if ids is None else due.where(col(Subscriber.id).in_(ids))
    # Keep subscribers with the same newest interest together, so that the interest is matched and its cards
    # are composed only once. The newest interest is usually the rarest one. Commoner ones stay cached anyway.
    return due.order_by(col(Subscriber.next_due_at), col(Subscriber.newest_interest), col(Subscriber.id))


def _may_be_tried(by: datetime) -> ColumnElement[bool]:
    """Return the condition that planning did not fail for a subscriber in the last TRY_AGAIN."""
    return or_(col(Subscriber.plan_after).is_(None), col(Subscriber.plan_after) <= by)


def _match_ahead(context: DigestContext, builder: DigestBuilder, all_due: SelectOfScalar[Subscriber]) -> None:
    """Match the next batch's interests, feedback and muted words before locking any rows.

    Matching is slow, and would hold the locks for longer. This does nothing on SQLite, which locks no rows.
    """
    if not context.db.locks_rows:
        return
    with context.db.read() as session:
        rows = _load(session, all_due.with_only_columns(*_COLUMNS).limit(BATCH_SIZE))
        ids = [row.id for row in rows]
        interests = subscribers.interests_of(session, ids)
        feedback = subscribers.feedback_for_ranking(session, ids)
        groups = builder.by_window(session, rows)
    # An error that is suppressed here is raised again, and logged, when its subscriber is planned.
    for group in groups:
        windowed = group.builder
        with suppress(Exception):
            windowed.interests.match(itertools.chain(*(interests.get(row.id or 0, ()) for row in group.rows)))
        for row in group.rows:
            with suppress(Exception):
                windowed.profile_of(feedback.get(row.id or 0, ()))
            with suppress(Exception):
                windowed.interests.muted_papers(row.muted)


@dataclass(frozen=True, slots=True)
class DigestPreview:
    """The digest that a subscriber would receive, or the reason why there would be none."""

    subscriber_id: int
    email: str
    edition: str
    digest: Digest | Skip


def preview_due(context: DigestContext, now: datetime, ids: Iterable[int] | None) -> Iterator[DigestPreview]:
    """Yield the digests as of `now` of these subscribers (None: all who are due). Nothing is written."""
    with context.db.read() as session:
        builder = DigestBuilder(context, session, now)
        recent = paper_updates.load(session, now)
        ids = [row.id or 0 for row in session.exec(_due(now))] if ids is None else ids
    remaining = iter(ids)
    while batch := list(itertools.islice(remaining, BATCH_SIZE)):
        with context.db.read() as session:
            in_batch = select(Subscriber).where(in_array(session, col(Subscriber.id), batch))
            rows = session.exec(in_batch.order_by(col(Subscriber.id))).all()
            addresses = {row.id: row.email for row in rows}
            groups = [(group.builder, group.requests(session)) for group in builder.by_window(session, rows)]
            updates = paper_updates.for_digests(session, recent, [r for _, group in groups for r in group])
        for windowed, undated in groups:
            times = [due_times(request.subscriber, now) for request in undated]
            requests = [
                replace(request, following_due=due.following_due)
                for request, due in zip(undated, times, strict=True)
            ]
            for request, due, ranked in zip(requests, times, windowed.ranked(requests), strict=True):
                subscriber = request.subscriber
                digest = windowed.digest(subscriber, due.edition, ranked, updates.get(subscriber.id or 0, ()))
                yield DigestPreview(subscriber.id or 0, addresses[subscriber.id], due.edition, digest)


class DueTimes(NamedTuple):
    """An edition, the time at which it is due, and the due time of the next edition."""

    edition: str
    due: datetime
    following_due: datetime


def due_times(subscriber: Subscriber | DueSubscriber, by: datetime) -> DueTimes:
    """Return the times of a subscriber's latest edition due by `by` or, if none is, of the next one."""
    cadence = (subscriber.cadence, subscriber.weekday, subscriber.hour, subscriber.zone)
    return _due_times(*cadence, subscriber.next_due_at or by, by)


@lru_cache(maxsize=5_000)
def _due_times(cadence: Cadence, weekday: int, hour: int, zone: str, due: datetime, by: datetime) -> DueTimes:
    """Compute `due_times`. `due` is the time that the subscriber's row stores.

    Cached: time zone arithmetic is slow, and many subscribers have the same hour.
    """
    due = due if due > by else schedule.last_due(cadence, weekday, hour, zone, due, by)
    following_due = schedule.next_edition_due(cadence, weekday, hour, zone, due)
    return DueTimes(schedule.edition(zone, due), due, following_due)


def _plan_batch(
    context: DigestContext,
    builder: DigestBuilder,
    recent: RecentUpdates,
    all_due: SelectOfScalar[Subscriber],
    now: datetime,
    soon: datetime,
) -> Counter[str]:
    """Plan the next batch of subscribers, longest due first. Return an empty count if nobody is due.

    PostgreSQL locks their rows, and skips those that another process is planning. On SQLite, a lock would
    block every sender, so digests are composed without a lock. If the database has changed in the meantime,
    only the digests of unchanged subscribers are entered. The other subscribers stay due.
    """
    if context.db.locks_rows:
        with context.db.write() as session:
            requests, entries = _compose(session, builder, recent, all_due, soon)
            return _write_down(context, session, builder, recent, requests, entries, now, soon)
    with context.db.read_then_write() as session:
        requests, entries = _compose(session, builder, recent, all_due, soon)
        if not has_changed(session):
            return _write_down(context, session, builder, recent, requests, entries, now, soon)
    with context.db.write() as session:
        ids = [request.subscriber.id or 0 for request in requests]
        rows = _load(session, sql_select(*_COLUMNS).where(in_array(session, _SUBSCRIBERS.c.id, ids)))
        current = {
            request.subscriber.id: request
            for group in builder.by_window(session, rows)
            for request in group.requests(session)
        }
        # Leave out subscribers who changed their preferences, left, or were planned by another process.
        unchanged = [before for before in requests if before == current.get(before.subscriber.id)]
        unchanged_ids = {request.subscriber.id for request in unchanged}
        entries = [entry for entry in entries if entry.subscriber_id in unchanged_ids]
        return _write_down(context, session, builder, recent, unchanged, entries, now, soon)


def _load(session: Session, rows: Select[Any]) -> list[DueSubscriber]:
    return [*map(DueSubscriber._make, session.connection().execute(rows).all())]


def _compose(
    session: Session,
    builder: DigestBuilder,
    recent: RecentUpdates,
    all_due: SelectOfScalar[Subscriber],
    soon: datetime,
) -> tuple[list[DigestRequest], list[Entry]]:
    """Compose the next batch's digests, each for the subscriber's latest edition that is due.

    Log subscribers whose row is invalid or whose digest could not be composed, and enter nothing for them, so
    that they are tried again. At the last attempt before the next edition, enter a skip with the error.
    """
    batch = all_due.with_only_columns(*_COLUMNS).limit(BATCH_SIZE).with_for_update(skip_locked=True)
    all_requests, all_entries = list[DigestRequest](), list[Entry]()
    for group in builder.by_window(session, _load(session, batch)):
        requests, entries = _compose_group(session, group, recent, soon)
        all_requests += requests
        all_entries += entries
    return all_requests, all_entries


def _compose_group(
    session: Session, group: DigestGroup, recent: RecentUpdates, soon: datetime
) -> tuple[list[DigestRequest], list[Entry]]:
    builder, requests = group.builder, group.requests(session)
    due_requests, all_times = list[DigestRequest](), list[DueTimes]()
    for request in requests:
        subscriber = request.subscriber
        try:
            times = due_times(subscriber, soon)
            all_times.append(times)
        except Exception:
            log.exception("planning failed for a subscriber", subscriber=subscriber.id)
        else:
            due_requests.append(replace(request, following_due=times.following_due))
    entries = []
    added = {row.id or 0 for row in group.rows if row.consent_version == subscribers.CONSENT_GIVEN_ELSEWHERE}
    not_welcomed = ledger.awaiting_first_digest(session, added)
    updates = paper_updates.for_digests(session, recent, due_requests)
    editions = (
        (request.subscriber, times.edition) for request, times in zip(due_requests, all_times, strict=True)
    )
    digests = builder.digests(editions, builder.ranked(due_requests), updates)
    for request, digest, times in zip(due_requests, digests, all_times, strict=True):
        if request.subscriber.id in not_welcomed and isinstance(digest, Digest):
            digest = replace(digest, note=notes.join(builder.added_note, digest.note))
        number, give_up_at = request.subscriber.id or 0, times.following_due
        if isinstance(digest, ComposeError) and soon + TRY_AGAIN < give_up_at:
            continue
        entries.append(Entry(number, times.edition, times.due, digest, give_up_at=give_up_at))
    return requests, entries


def _write_down(
    context: DigestContext,
    session: Session,
    builder: DigestBuilder,
    recent: RecentUpdates,
    requests: Sequence[DigestRequest],
    entries: Sequence[Entry],
    now: datetime,
    soon: datetime,
) -> Counter[str]:
    """Enter the batch's digests in the ledger and set its subscribers' next due time.

    Hold new editions if they need approval, and the first digests of imported subscribers.
    """
    if context.settings.approve_editions:
        digests = (entry for entry in entries if isinstance(entry.digest, Digest))
        ledger.hold_new(session, {entry.edition for entry in digests}, now)
    first = ledger.first_digests_to_hold(session, [entry.subscriber_id for entry in entries])
    waiting_since: dict[int, datetime] = {}
    if ledger.is_limited(ledger.warm_up_of(context.settings), soon):
        planned = [entry.subscriber_id for entry in entries]
        undelivered = ledger.first_undelivered(session, planned, now - LONGEST_WAIT)
        waiting_since = {number: digest.due_at for number, digest in undelivered.items()}
    entries = [
        replace(entry, held=number in first, waiting_since=waiting_since.get(number))
        if (number := entry.subscriber_id) in first or number in waiting_since
        else entry
        for entry in entries
    ]
    outcomes = _enter(session, builder.encoder, entries, now)
    loaded = {paper.id for paper in builder.papers} | recent.current_id.keys()
    if hidden := canonical_rows.hidden(session) & loaded:  # hidden since the run began
        ledger.leave_out(session, hidden)
    following_due = {entry.subscriber_id: entry.give_up_at for entry in entries}
    numbers = [request.subscriber.id or 0 for request in requests]
    ids = [number for number in numbers if number in outcomes]
    times = [following_due[number] for number in ids]
    if len(ids) < len(numbers):
        failed = in_array(session, col(Subscriber.id), set(numbers) - set(ids))
        session.execute(sql_update(Subscriber).where(failed).values(plan_after=soon + TRY_AGAIN))
    if ids and session.get_bind().dialect.name == "postgresql":
        session.connection().execute(_SET_NEXT_DUE, {"ids": ids, "times": times})
    elif ids:
        rows = [{"of_id": number, "at": at} for number, at in zip(ids, times, strict=True)]
        session.connection().execute(_SET_NEXT_DUE_OF_ONE, rows)
    return Counter(outcomes.get(number, "not_planned") for number in numbers)


def _enter(
    session: Session, encoder: ledger.ItemEncoder, entries: Sequence[Entry], now: datetime
) -> dict[int, str]:
    """Enter digests in the ledger and return each subscriber's outcome, named as in the counts.

    If the database rejects an entry, enter all of them one by one. Log and leave out rejected entries.
    """
    if not entries:
        return {}
    try:
        with session.begin_nested():
            ids = ledger.add_entries(session, entries, now, encoder)
    except Exception:
        if len(entries) > 1:
            alone = (_enter(session, encoder, [entry], now) for entry in entries)
            return {number: outcome for outcomes in alone for number, outcome in outcomes.items()}
        failed = entries[0]
        log.exception(
            "planning failed for a subscriber", subscriber=failed.subscriber_id, edition=failed.edition
        )
        return {}
    outcomes: dict[int, str] = {}
    for entry, delivery_id in zip(entries, ids, strict=True):
        outcome = "skipped" if isinstance(entry.digest, Skip) else "planned"
        outcomes[entry.subscriber_id] = "planned_before" if delivery_id is None else outcome
    new = [delivery_id for delivery_id in ids if delivery_id is not None]
    log.info(
        "digests planned",
        editions=sorted({entry.edition for entry in entries}),
        deliveries=[min(new), max(new)] if new else [],
        outcomes=dict(Counter(outcomes.values())),
    )
    return outcomes
