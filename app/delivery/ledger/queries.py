"""Queries on the ledger: totals by state, editions, waiting emails, stored digests."""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime, time, timedelta
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, func, union_all
from sqlalchemy import select as sql_select
from sqlmodel import Session, col, select

from app.delivery.ledger.claims import WAITING_STATES
from app.delivery.ledger.entries import AFTER_DAYS, is_held
from app.delivery.ledger.snapshots import SnapshotStore
from app.storage.database import in_array
from app.storage.models import Delivery, DigestContent
from app.storage.models import DeliveryState as State
from app.text import dates
from app.types import Digest, MailKind

DAY = timedelta(days=1)
EDITION_BEGINS = timedelta(hours=14)  # before 00:00 UTC, in the first time zone
EDITION_ENDS = timedelta(hours=36)  # from 00:00 UTC until the edition's day has ended in every time zone
# The numbers and the quoted words in a reason.
_VARYING = re.compile(r"\d+|“[^”]*”(?:, “[^”]*”)*")


def totals(session: Session) -> dict[State, int]:
    """Count all emails in the ledger by state. The query reads only an index."""
    state = col(Delivery.state)
    rows = session.exec(select(state, func.count()).group_by(state))
    return dict.fromkeys(State, 0) | {State(name): count for name, count in rows}


def editions(session: Session, limit: int | None = None, before: str | None = None) -> list[str]:
    """Return the `limit` newest editions, or the newest ones before `before`, in descending order.

    Each name takes one lookup in the index. DISTINCT would read every row of the ledger.
    """
    edition, newest = col(Delivery.edition), func.max(Delivery.edition)
    first = min(before, AFTER_DAYS) if before is not None else AFTER_DAYS
    names = sql_select(newest.label("name")).where(edition < first).cte(recursive=True)
    following = sql_select(newest).where(edition < names.c.name).scalar_subquery()
    names = names.union_all(sql_select(following).where(names.c.name.is_not(None)))
    listed = sql_select(names.c.name).where(names.c.name.is_not(None)).limit(limit)
    return list(session.scalars(listed))


def digest_totals_by_edition(session: Session, names: Collection[str]) -> dict[str, dict[State, int]]:
    """Count the digests of editions by state. The query reads only an index."""
    totals_by_edition = {name: dict.fromkeys(State, 0) for name in names}
    for name, state, count in _count_by_edition(session, in_array(session, col(Delivery.edition), names)):
        totals_by_edition[name][state] = count
    return totals_by_edition


def totals_of_other_mails(session: Session) -> dict[State, int]:
    """Count the emails that are not digests by state. The query reads only an index."""
    counts = Counter[State]()
    for _, state, count in _count_by_edition(session, col(Delivery.edition) >= AFTER_DAYS):
        counts[state] += count
    return counts


def _count_by_edition(session: Session, editions: ColumnElement[bool]) -> Iterator[tuple[str, State, int]]:
    """Yield edition, state and number of emails.

    In the index, the emails of a state without a next attempt, which are almost all, are sorted by edition.
    """
    name, state, next_attempt_at = col(Delivery.edition), col(Delivery.state), col(Delivery.next_attempt_at)
    counted = select(name, state, func.count()).where(editions, state.in_(State)).group_by(name, state)
    counts = Counter[tuple[str, State]]()
    parts = [counted.where(part) for part in (next_attempt_at.is_(None), next_attempt_at.is_not(None))]
    for edition, state_name, number in session.execute(union_all(*parts)):  # one statement, one snapshot
        counts[edition, State(state_name)] += number
    return ((edition, in_state, number) for (edition, in_state), number in counts.items())


def describe_lack_of_digests(edition: str, retention_days: int, now: datetime) -> str:
    """Return an error message for an edition without digests."""
    day = dates.day_in(edition)
    if day is None or day.isoformat() != edition:
        return f"there is no edition “{edition}”: an edition is a day, such as 2026-11-20"
    if now < datetime.combine(day, time(), UTC) + EDITION_ENDS:
        return f"no digest of the edition {edition} has been planned yet"
    if day < (now - timedelta(days=retention_days)).date():
        return f"any digests of the edition {edition} were deleted after {retention_days} days"
    return f"no digest was planned for the edition {edition}"


def digest_totals_since(session: Session, since: datetime) -> dict[State, int]:
    """Count the digests that were due at or after `since`, by state.

    An edition is a local day, which begins up to 14 hours before the UTC day. So the times of digests have to
    be read only for the two or three editions around `since`.
    """
    first, first_whole = (since - DAY).date().isoformat(), (since + EDITION_BEGINS + DAY).date().isoformat()
    edition, state = col(Delivery.edition), col(Delivery.state)
    digests = select(state, func.count()).where(
        edition >= first, edition < first_whole, Delivery.kind == MailKind.DIGEST, Delivery.due_at >= since
    )
    counts = Counter({State(name): count for name, count in session.exec(digests.group_by(state))})
    for _, in_state, count in _count_by_edition(session, (edition >= first_whole) & (edition < AFTER_DAYS)):
        counts[in_state] += count
    return {each: counts[each] for each in State}


class ReasonCount(NamedTuple):
    """The number of digests in a state for one reason, with "…" for the parts that differ between digests."""

    state: State
    reason: str
    digests: int


def commonest_reasons(session: Session, edition: str) -> list[ReasonCount]:
    """Return the ten commonest reasons why digests of an edition were not sent, with counts."""
    state, reason, count = col(Delivery.state), col(Delivery.reason), func.count()
    reasons = select(state, reason, count).where(
        Delivery.edition == edition, Delivery.kind == MailKind.DIGEST, Delivery.reason != ""
    )
    counts = Counter[tuple[State, str]]()
    texts = defaultdict[tuple[State, str], set[str]](set)
    for name, text, number in session.exec(reasons.group_by(state, reason)):
        group = State(name), _VARYING.sub("…", text)
        counts[group] += number
        texts[group].add(text)
    return [
        ReasonCount(name, min(texts[name, text]) if len(texts[name, text]) == 1 else text, number)
        for (name, text), number in counts.most_common(10)
    ]


def of_kind(kind: MailKind) -> ColumnElement[bool]:
    """Return the condition that an email is of a kind.

    Emails that are not digests are few, and found by their editions. Without the subquery, SQLite would
    read all emails in the order of a list.
    """
    is_of_kind = col(Delivery.kind) == kind
    others = sql_select(col(Delivery.id)).where(col(Delivery.edition) >= AFTER_DAYS)
    return is_of_kind if kind is MailKind.DIGEST else is_of_kind & col(Delivery.id).in_(others)


class WaitingMails(NamedTuple):
    """The number of emails of one kind that are still to be sent, and the earliest time for an attempt."""

    kind: MailKind
    mails: int
    next_attempt_at: datetime  # of the first email


def waiting_mails(session: Session) -> list[WaitingMails]:
    """Count emails to be sent or tried again, by kind. Leave out uncertain ones without a next attempt."""
    first = func.min(Delivery.next_attempt_at)
    waiting = select(Delivery.kind, func.count(), first).where(
        col(Delivery.state).in_(WAITING_STATES), col(Delivery.next_attempt_at).is_not(None)
    )
    rows = session.exec(waiting.group_by(col(Delivery.kind)).order_by(col(Delivery.kind)))
    return [WaitingMails(MailKind(kind), mails, at) for kind, mails, at in rows if at]


def any_sent(session: Session) -> bool:
    """Return whether any digest has been sent."""
    sent = select(Delivery.id).where(Delivery.state == State.SENT, Delivery.kind == MailKind.DIGEST)
    return session.exec(sent.limit(1)).first() is not None


def draw_waiting(session: Session, edition: str, size: int) -> Sequence[Delivery]:
    """Return up to `size` of an edition's unsent digests, drawn at random."""
    waiting = select(Delivery).where(
        Delivery.edition == edition,
        Delivery.kind == MailKind.DIGEST,
        col(Delivery.state).in_(WAITING_STATES),
        col(Delivery.next_attempt_at).is_not(None),
    )
    return session.exec(waiting.order_by(func.random()).limit(size)).all()


def count_held(session: Session, edition: str = "") -> int:
    """Count the held first digests, of all editions or of one."""
    of_edition = [col(Delivery.edition) == edition] if edition else []
    return session.exec(select(func.count()).select_from(Delivery).where(is_held(), *of_edition)).one()


def draw_held(session: Session, size: int) -> tuple[int, Sequence[Delivery]]:
    """Return the number of held first digests, and up to `size` of them, drawn at random."""
    drawn = select(Delivery).where(is_held()).order_by(func.random()).limit(size)
    return count_held(session), session.exec(drawn).all()


def stored_digests(session: Session, delivery_ids: Collection[int | None]) -> dict[int, dict[str, Any]]:
    """Return stored digests by delivery id (see `snapshots`). Omit deliveries without a stored digest."""
    selected = in_array(session, col(DigestContent.delivery_id), delivery_ids)
    rows = session.exec(select(DigestContent.delivery_id, DigestContent.digest).where(selected))
    return {delivery_id: dict(digest) for delivery_id, digest in rows}


def restored_digests(
    session: Session, delivery_ids: Collection[int | None], snapshots: SnapshotStore
) -> dict[int, Digest]:
    """Return digests as they were composed, by delivery id. Omit deliveries without a stored digest."""
    stored = stored_digests(session, delivery_ids)
    restored = snapshots.restore(session, list(stored.values()))
    return {delivery_id: each.digest for delivery_id, each in zip(stored, restored, strict=True)}
