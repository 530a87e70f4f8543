"""Queries on the ledger: totals by state, editions, waiting emails, stored digests."""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, time, timedelta
from typing import Any, NamedTuple

from sqlalchemy import func
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
EDITION_ENDS = timedelta(hours=36)  # from 00:00 UTC until the edition's day has ended in every time zone
# The numbers and the quoted words in a reason.
_VARYING = re.compile(r"\d+|“[^”]*”(?:, “[^”]*”)*")


def totals(session: Session) -> dict[State, int]:
    """Count all emails in the ledger by state. The query reads only an index."""
    state = col(Delivery.state)
    rows = session.exec(select(state, func.count()).group_by(state))
    return dict.fromkeys(State, 0) | {State(name): count for name, count in rows}


def editions(session: Session, limit: int, before: str | None = None) -> list[str]:
    """Return the `limit` newest editions, or the newest ones before `before`, in descending order.

    Each name takes one lookup in the index. DISTINCT would read every row of the ledger.
    """
    names: list[str] = []
    name = before if before is not None else AFTER_DAYS
    while len(names) < limit:
        earlier = select(func.max(Delivery.edition)).where(Delivery.edition < min(name, AFTER_DAYS))
        newest = session.exec(earlier).one()
        if newest is None:
            break
        names.append(name := newest)
    return names


def digest_totals_by_edition(session: Session, names: Collection[str]) -> dict[str, dict[State, int]]:
    edition, state = col(Delivery.edition), col(Delivery.state)
    digests = select(edition, state, func.count()).where(
        in_array(session, edition, names), Delivery.kind == MailKind.DIGEST
    )
    totals_by_edition = {name: dict.fromkeys(State, 0) for name in names}
    for name, state_name, count in session.exec(digests.group_by(edition, state)):
        totals_by_edition[name][State(state_name)] = count
    return totals_by_edition


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
    """Count the digests that were due at or after `since`, by state."""
    state = col(Delivery.state)
    # Editions are local days, so the range in the index begins a day early. `due_at` is exact.
    digests = select(state, func.count()).where(
        Delivery.edition >= (since - DAY).date().isoformat(),
        Delivery.edition < AFTER_DAYS,
        Delivery.kind == MailKind.DIGEST,
        Delivery.due_at >= since,
    )
    rows = session.exec(digests.group_by(state))
    return dict.fromkeys(State, 0) | {State(name): count for name, count in rows}


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
