"""Add emails and skipped digests to the ledger; find the papers and updates promised to subscribers.

A paper or update is *promised* if it is in a digest that was or will be sent, or may have arrived.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, LargeBinary, exists, false, func, or_, type_coerce
from sqlalchemy.orm import aliased
from sqlmodel import Session, col, delete, select
from sqlmodel.sql.expression import Select

from app.delivery.ledger.signatures import NOT_AHEAD
from app.delivery.ledger.snapshots import ItemEncoder, paper_updates, store
from app.storage import compressed_json
from app.storage.database import in_array, skew
from app.storage.inserts import insert_many, insert_many_or_ignore
from app.storage.models import Delivery, DigestContent, Event, Subscriber, SubscriberState
from app.storage.models import DeliveryState as State
from app.types import Digest, MailKind, PaperUpdate, Skip, SkippedEdition, UpdateKind

AFTER_DAYS = "a"  # sorts between the editions of digests (2026-…) and those of other emails (confirm-2026…)
A_DAY, MAX_EDITION_DELAY = timedelta(days=1), timedelta(days=10)
# Patterns in stored digests. They match only keys, because quotation marks in JSON strings are escaped.
_PAPERS, _UPDATES = re.compile(rb'"papers": ?\[([\d, ]*\d)\]'), b'"updates":'
MAX_ID = 2**63 - 1
# States in which a digest has not been delivered, unless it may have arrived.
UNDELIVERED = (State.FAILED, State.SUPPRESSED, State.SKIPPED)
CANCELLED = "cancelled by an operator"  # a reason


@dataclass(frozen=True, slots=True)
class Entry:
    """An email that is due at `due_at`, or the reason why no digest is sent at that time."""

    subscriber_id: int
    edition: str
    due_at: datetime
    digest: Digest | Skip | None = None  # None for all other kinds of mail
    kind: MailKind = MailKind.DIGEST
    give_up_at: datetime | None = None
    waiting_since: datetime | None = None  # see `first_undelivered`; only during a warm-up
    held: bool = False  # if True, do not send it before the pause of first digests ends


class UndeliveredDigest(NamedTuple):
    """The times at which a digest that was not delivered was due and was composed."""

    due_at: datetime
    created_at: datetime


def is_held() -> ColumnElement[bool]:
    """Return the condition that a digest waits for an operator and so has no time for its next attempt."""
    return (
        (col(Delivery.state) == State.PENDING)
        & (col(Delivery.kind) == MailKind.DIGEST)
        & col(Delivery.next_attempt_at).is_(None)
    )


def add_entries(
    session: Session, entries: Sequence[Entry], now: datetime, encoder: ItemEncoder | None = None
) -> list[int | None]:
    """Add entries and return their ids in order. An id is None if the subscriber already has this edition.

    Pass the same `encoder` with all entries whose digests share items.
    """
    digests = [entry.digest for entry in entries if isinstance(entry.digest, Digest)]
    stored = store(session, digests, now, encoder)
    rows: list[dict[str, Any]] = []
    for entry in entries:
        skipped = entry.digest.reason if isinstance(entry.digest, Skip) else None
        rows.append(
            {
                "subscriber_id": entry.subscriber_id,
                "kind": entry.kind,
                "edition": entry.edition,
                "state": State.PENDING if skipped is None else State.SKIPPED,
                "reason": skipped or "",
                "due_at": entry.due_at,
                "waiting_since": entry.waiting_since,
                "created_at": now,
                "next_attempt_at": entry.due_at if skipped is None and not entry.held else None,
                "give_up_at": entry.give_up_at if skipped is None else None,
            }
        )
    ids = insert_many_or_ignore(session, Delivery, ("subscriber_id", "edition"), rows)
    composed = [pair for pair in zip(ids, entries, strict=True) if isinstance(pair[1].digest, Digest)]
    contents = [
        {
            "delivery_id": delivery_id,
            "digest": content,
            "signature_fingerprint": "" if entry.due_at > now else NOT_AHEAD,
            "has_updates": "updates" in content,
        }
        for (delivery_id, entry), content in zip(composed, stored, strict=True)
        if delivery_id
    ]
    insert_many(session, DigestContent, contents)
    return ids


def enqueue(
    session: Session,
    *,
    subscriber_id: int,
    kind: MailKind,
    edition: str,
    due_at: datetime,
    now: datetime,
    digest: Digest | Skip | None = None,
    give_up_at: datetime | None = None,
) -> int | None:
    """Add one email and return its id, or None if the subscriber already has this edition.

    `now` is from this machine's clock, which may be wrong. So if the email is due now and is not a digest,
    its due time is converted to the database's clock.
    """
    ahead = skew(session)
    due_at += ahead if due_at == now and kind is not MailKind.DIGEST else timedelta()
    return add_entries(
        session, [Entry(subscriber_id, edition, due_at, digest, kind, give_up_at)], now + ahead
    )[0]


def withdraw(session: Session, subscriber_id: int, now: datetime) -> list[str]:
    """Delete a subscriber's planned digests that are not due yet and were never attempted.

    Keep cancelled ones and, because the clock may be behind, all that may have been delivered. Otherwise,
    planning would compose and send them again. Skipped editions are deleted as well. Return the editions of
    the deleted digests.
    """
    planned = delete(Delivery).where(
        col(Delivery.subscriber_id) == subscriber_id,
        col(Delivery.kind) == MailKind.DIGEST,
        col(Delivery.due_at) > now,
        col(Delivery.state).in_((State.PENDING, State.SKIPPED)),
        col(Delivery.attempts) == 0,
        ~col(Delivery.possibly_delivered),
        col(Delivery.reason) != CANCELLED,
    )
    deleted = session.execute(planned.returning(col(Delivery.edition), col(Delivery.state)))
    return [edition for edition, state in deleted if state is State.PENDING]


def awaiting_first_digest(
    session: Session, subscriber_ids: Collection[int], added_since: datetime | None = None
) -> set[int]:
    """Return the subscribers in `subscriber_ids` who were added and have not been sent a digest.

    If `added_since` is given, leave out those who were added before it, and those who have confirmed since.
    """
    of_subscribers = in_array(session, col(Event.subscriber_id), subscriber_ids)
    added_subscribers = select(Event.subscriber_id).where(of_subscribers, is_awaiting_first_digest())
    if added_since:
        later = aliased(Event)
        has_confirmed = exists().where(
            col(later.subscriber_id) == Event.subscriber_id,
            col(later.kind) == "confirmed",
            col(later.at) > Event.at,
        )
        added_subscribers = added_subscribers.where(Event.at >= added_since, ~has_confirmed)
    return {number for number in session.exec(added_subscribers) if number is not None}


def is_awaiting_first_digest() -> ColumnElement[bool]:
    """Return the condition that an event added or imported a subscriber who has not been sent a digest.

    A digest that will be sent counts as sent, unless it is held. Keep such an event, however old it is, until
    the subscriber leaves. Delete it before the first digest; otherwise, the subscriber is welcomed again.
    """
    has_left = exists().where(
        col(Subscriber.id) == Event.subscriber_id,
        col(Subscriber.state).in_((SubscriberState.UNSUBSCRIBED, SubscriberState.ERASED)),
    )
    has_digest = exists().where(
        col(Delivery.subscriber_id) == Event.subscriber_id,
        col(Delivery.kind) == MailKind.DIGEST,
        col(Delivery.state).not_in(UNDELIVERED),
        ~is_held(),
    )
    return (col(Event.kind) == "added") & ~has_left & ~has_digest


def skipped_since_last_digest(
    session: Session, subscriber_ids: Collection[int], since: datetime
) -> dict[int, tuple[SkippedEdition, ...]]:
    """Return, by subscriber, the editions skipped since the last digest, oldest first.

    Editions that were due before `since` do not count.
    """
    has_content = _has_content()
    digests = select(Delivery.subscriber_id, Delivery.edition, Delivery.reason, has_content).where(
        Delivery.kind == MailKind.DIGEST, *_due_from(since)
    )
    skipped: dict[int, tuple[SkippedEdition, ...]] = {}
    for subscriber, edition, reason, is_digest in _of_subscribers_with(
        ~has_content, session, digests, subscriber_ids
    ):
        skipped[subscriber] = (
            () if is_digest else (*skipped.get(subscriber, ()), SkippedEdition(edition, reason))
        )
    return skipped


def first_undelivered(
    session: Session, subscriber_ids: Collection[int], since: datetime, until: datetime | None = None
) -> dict[int, UndeliveredDigest]:
    """Return, by subscriber, the first undelivered digest since the last delivered one.

    Subscribers whose last digest was delivered are left out. Only digests that were due at or after
    `since` (and before `until`) count, and no skipped editions without a digest.
    """
    # For `in_`, PostgreSQL would also read the index of states, with all undelivered digests in the ledger.
    is_unsent = col(Delivery.state).not_in((State.CLAIMED, State.COMMITTING, State.SENT, State.UNCERTAIN))
    is_undelivered = is_unsent & ~col(Delivery.possibly_delivered)
    digests = select(Delivery.subscriber_id, Delivery.due_at, Delivery.created_at, is_undelivered).where(
        Delivery.kind == MailKind.DIGEST, *_due_from(since), _has_content()
    )
    digests = digests if until is None else digests.where(Delivery.due_at < until)
    undelivered: dict[int, UndeliveredDigest] = {}
    for subscriber, due_at, created_at, was_undelivered in _of_subscribers_with(
        is_undelivered, session, digests, subscriber_ids
    ):
        if was_undelivered:
            undelivered.setdefault(subscriber, UndeliveredDigest(due_at, created_at))
        else:
            undelivered.pop(subscriber, None)
    return undelivered


def _of_subscribers_with(
    condition: ColumnElement[bool],
    session: Session,
    digests: Select[*tuple[Any, ...]],
    subscriber_ids: Collection[int],
) -> Iterable[Any]:
    """Return the digests of those subscribers who have one that meets the condition, in order of due times.

    They are usually few, so the others' digests are neither sorted nor loaded.
    """
    number = col(Delivery.subscriber_id)
    matching = digests.where(in_array(session, number, subscriber_ids), condition)
    ids = set(session.scalars(matching.with_only_columns(number)))
    due = digests.where(in_array(session, number, ids)).order_by(col(Delivery.due_at))
    return session.execute(due) if ids else ()


def last_due_times(
    session: Session,
    subscriber_ids: Collection[int],
    since: datetime | None = None,
    until: datetime | None = None,
) -> dict[int, datetime]:
    """Return the due time of each subscriber's latest edition, sent or skipped, at or after `since`.

    Subscribers without such an edition are left out. Only editions that were due before `until` count.
    """
    last_due = select(Delivery.subscriber_id, func.max(Delivery.due_at)).where(
        in_array(session, col(Delivery.subscriber_id), subscriber_ids),
        Delivery.kind == MailKind.DIGEST,
        col(Delivery.edition) < AFTER_DAYS,
    )
    last_due = last_due if since is None else last_due.where(*_due_from(since))
    last_due = last_due if until is None else last_due.where(Delivery.due_at < until)
    return dict(session.execute(last_due.group_by(col(Delivery.subscriber_id))).all())


def _has_content() -> ColumnElement[bool]:
    """Return the condition that a delivery is a digest whose content is stored, and no skipped edition."""
    return exists().where(col(DigestContent.delivery_id) == Delivery.id)


def _due_from(since: datetime) -> tuple[ColumnElement[bool], ...]:
    """Return conditions for digests due at or after `since`, with a range of editions for the index.

    The edition is the subscriber's local day of the due time, which is within a day of the UTC day.
    """
    first_edition = (since - A_DAY).date().isoformat()
    return (
        col(Delivery.edition) >= first_edition,
        col(Delivery.edition) < AFTER_DAYS,
        col(Delivery.due_at) >= since,
    )


def editions_from(since: datetime) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    """Return conditions for a range of editions that contains all digests created since `since`.

    After an outage, a digest may be created up to a week after the day of its edition.
    """
    return col(Delivery.edition) >= (since - MAX_EDITION_DELAY).date().isoformat(), col(
        Delivery.edition
    ) < AFTER_DAYS


def paper_ids_promised(
    session: Session, subscriber_ids: Collection[int], since: datetime, until: datetime | None = None
) -> dict[int, dict[int, datetime]]:
    """Return, by subscriber, the ids of the papers in digests created at or after `since` (up to `until`).

    Each id is mapped to the time at which its digest was created. Digests that were not sent and will not be
    sent are left out, unless they may have arrived.
    """
    promising = promising_digests(session, subscriber_ids, since)
    promising = promising if until is None else promising.where(Delivery.created_at <= until)
    promised: dict[int, dict[int, datetime]] = {subscriber_id: {} for subscriber_id in subscriber_ids}
    for subscriber_id, created_at, stored in session.execute(promising):
        papers = papers_in(compressed_json.text_of(stored))
        promised[subscriber_id].update(dict.fromkeys(papers, created_at))
    return promised


def promising_digests(
    session: Session, subscriber_ids: Collection[int], since: datetime
) -> Select[int, datetime, bytes]:
    """Select subscriber, time and JSON of the digests that were or will be sent, or may have arrived."""
    content = type_coerce(col(DigestContent.digest), LargeBinary)
    columns = select(col(Delivery.subscriber_id), col(Delivery.created_at), content)
    digests = columns.join(DigestContent, col(DigestContent.delivery_id) == Delivery.id)
    return digests.where(
        in_array(session, col(Delivery.subscriber_id), subscriber_ids),
        Delivery.kind == MailKind.DIGEST,
        *editions_from(since),
        Delivery.created_at >= since,
        or_(col(Delivery.state).not_in(UNDELIVERED), col(Delivery.possibly_delivered)),
    )


class PromisedContent(NamedTuple):
    """The requested papers in a subscriber's digests, and all updates in these digests."""

    papers: set[int]
    updates: set[tuple[UpdateKind, int]]


def promised_content(
    session: Session, subscriber_ids: Collection[int], since: datetime, paper_ids: Set[int], days: Set[date]
) -> dict[int, PromisedContent]:
    """Return, by subscriber, the papers in `paper_ids` and all updates in digests dated `since` or later.

    `days` are the UTC days of digests that can contain one of the papers. The query skips all other digests
    without updates. Digests are searched as text, because decoding thousands of them would take seconds.
    Digests that will not be sent are left out, as in `paper_ids_promised`.
    """
    digests = promising_digests(session, subscriber_ids, since).where(
        or_(col(DigestContent.has_updates), was_created_on(days))
    )
    contents: dict[int, PromisedContent] = {}
    for subscriber_id, _, stored in session.execute(digests):
        text = compressed_json.text_of(stored)
        contained = set(papers_in(text))
        content = contents.setdefault(subscriber_id, PromisedContent(set(), set()))
        content.papers.update(contained & paper_ids)
        content.updates.update((item.kind, item.paper_id) for item in updates_in(text))
    return contents


def papers_in(text: bytes) -> Iterator[int]:
    """Yield the ids of the papers in a digest's JSON. Decoding the JSON would take several times as long."""
    listed = (int(number) for numbers in _PAPERS.findall(text) for number in numbers.split(b","))
    return (number for number in listed if number <= MAX_ID)


def updates_in(text: bytes) -> Sequence[PaperUpdate]:
    """Return the updates in a digest's JSON. It is decoded only if it has some."""
    if _UPDATES not in text:
        return []
    try:
        return paper_updates(compressed_json.load_text(text))[0]
    except (AttributeError, ValueError):  # unreadable; see `snapshots`
        return []


def was_created_on(days: Set[date]) -> ColumnElement[bool]:
    """Return the condition that a delivery was created on one of these UTC days."""
    created_at = col(Delivery.created_at)
    first_days = [day for day in sorted(days) if day - A_DAY not in days]
    last_days = [day for day in sorted(days) if day + A_DAY not in days]
    spans = (
        created_at.between(datetime.combine(first, time.min, UTC), datetime.combine(last, time.max, UTC))
        for first, last in zip(first_days, last_days, strict=True)
    )
    return or_(false(), *spans)
