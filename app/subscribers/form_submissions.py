"""Store submissions of the public forms until they are processed, and the choices made in a sign-up.

A sign-up's choices stay in its row until the owner of the address confirms them. After that, or once they can
no longer be confirmed, all personal data in the row except the hash of the mailbox is deleted.
"""

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime, timedelta
from typing import Any

import structlog
from sqlalchemy import ColumnElement, and_, exists, update
from sqlmodel import Session, col, delete, or_, select

from app.delivery import ledger
from app.storage.database import execute_and_count, in_array
from app.storage.models import Delivery, FormSubmission, RequestKind
from app.subscribers import declines, mailbox_limits
from app.subscribers.address import fold_address
from app.subscribers.feedback import MatchedReferences
from app.subscribers.preferences import Preferences
from app.types import Cadence, EmptyDigestPolicy, Interest, PaperRecord

log = structlog.get_logger(__name__)

GIVE_UP = timedelta(days=1)  # older submissions are no longer processed


@dataclass(frozen=True, slots=True)
class SignUp:
    """The sign-up form as a visitor filled it in."""

    email: str
    preferences: Preferences
    liked: MatchedReferences = field(default_factory=MatchedReferences)


@dataclass(frozen=True, slots=True)
class Choices:
    """The choices made in a sign-up, to be confirmed by the owner of the address."""

    preferences: Preferences
    liked: MatchedReferences = field(default_factory=MatchedReferences)


def mailbox_hash(email: str) -> str:
    """Return a hash that is the same for all spellings of an address, such as those with a `+tag`."""
    return hashlib.blake2b(fold_address(email).encode(), digest_size=16, person=b"mailbox").hexdigest()


# --- storing and processing submissions


def store(
    session: Session,
    kind: RequestKind,
    email: str,
    visitor: str,
    now: datetime,
    choices: Choices | None = None,
    subscriber_id: int | None = None,
) -> int:
    """Store a form submission and return the row's id. `email` must be normalized.

    `subscriber_id` is the subscriber who wants to change to this address.
    """
    row = FormSubmission(
        kind=kind, mailbox=mailbox_hash(email), email=email, visitor=visitor[:64], created_at=now,
        subscriber_id=subscriber_id,
    )  # fmt: skip
    if choices:
        row.preferences = asdict(choices.preferences)
        if choices.liked.usable:
            own = [
                {"title": record.title, "abstract": record.abstract, "authors": list(record.authors)}
                for record in choices.liked.own
            ]
            row.liked = {"papers": [number for number, _ in choices.liked.archived], "own": own}
    session.add(row)
    session.flush()
    return row.id or 0


def store_mail(session: Session, email: str, now: datetime, delivery_id: int) -> None:
    """Store an email about a new address that no form requested, so that it counts against the limits."""
    row = session.get_one(FormSubmission, store(session, RequestKind.ADDRESS, email, "", now))
    finish(row, now, delivery_id, None)


def unprocessed(session: Session, now: datetime) -> list[int]:
    """Return the ids of rows that are still to be processed, oldest first."""
    left = select(FormSubmission.id).where(
        col(FormSubmission.processed_at).is_(None), col(FormSubmission.created_at) > now - GIVE_UP
    )
    return [
        identity for identity in session.exec(left.order_by(col(FormSubmission.id))) if identity is not None
    ]


def take(session: Session, request_id: int) -> FormSubmission | None:
    """Lock and return an unprocessed row. Return None if there is no such row or it has been processed."""
    row = select(FormSubmission).where(
        col(FormSubmission.id) == request_id, col(FormSubmission.processed_at).is_(None)
    )
    return session.exec(row.with_for_update().execution_options(populate_existing=True)).one_or_none()


def finish(
    request: FormSubmission, now: datetime, delivery_id: int | None, subscriber_id: int | None
) -> None:
    """Mark a row as processed. Keep its choices only if an email can confirm them for `subscriber_id`."""
    request.processed_at, request.delivery_id = now, delivery_id
    request.email = request.visitor = ""
    request.subscriber_id = subscriber_id if delivery_id is not None else None
    if request.subscriber_id is None:
        request.preferences, request.liked = {}, {}


# --- choices awaiting confirmation


def by_delivery(session: Session, delivery_id: int) -> FormSubmission | None:
    """Return the submission that this email was sent in response to, or None."""
    return session.exec(select(FormSubmission).where(col(FormSubmission.delivery_id) == delivery_id)).first()


def find_open(session: Session, subscriber_id: int, delivery_id: int | None = None) -> FormSubmission | None:
    """Return the row that a confirmation can confirm, or None. Without `delivery_id`, use the newest."""
    rows = select(FormSubmission).where(col(FormSubmission.subscriber_id) == subscriber_id)
    if delivery_id is not None:
        rows = rows.where(col(FormSubmission.delivery_id) == delivery_id)
    return session.exec(rows.order_by(col(FormSubmission.id).desc())).first()


def newest_choices(session: Session, ids: Collection[int]) -> dict[int, Choices]:
    """Return the choices in each subscriber's newest unconfirmed sign-up, keyed by subscriber id."""
    rows = select(FormSubmission).where(in_array(session, col(FormSubmission.subscriber_id), ids))
    newest = {row.subscriber_id or 0: row for row in session.exec(rows.order_by(col(FormSubmission.id)))}
    return {number: choices for number, row in newest.items() if (choices := choices_of(row))}


def choices_of(request: FormSubmission) -> Choices | None:
    """Return the choices stored in a row, or None if it has none.

    Choices that this release cannot read are replaced by the defaults.
    """
    if not request.preferences:
        return None
    preferences = Preferences(**_readable(Preferences, request.preferences))
    archived = tuple((number, "") for number in request.liked.get("papers", ()))
    own = tuple(
        PaperRecord(title=paper["title"], abstract=paper["abstract"], authors=tuple(paper["authors"]))
        for paper in request.liked.get("own", ())
    )
    return Choices(preferences, MatchedReferences(archived, own))


def _interests(stored: Sequence[Mapping[str, Any]]) -> tuple[Interest, ...]:
    interests = []
    for each in stored:
        with suppress(ValueError, TypeError):
            interests.append(Interest(**_readable(Interest, each)))
    if left_out := len(stored) - len(interests):
        log.warning("a sign-up has interests that this release cannot read", number=left_out)
    return tuple(interests)


_PARSERS: Mapping[str, Callable[[Any], Any]] = {
    "cadence": Cadence, "when_empty": EmptyDigestPolicy, "muted": tuple, "interests": _interests
}  # fmt: skip


def _readable(kind: type[Preferences | Interest], stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stored values that this release can read. Log the names of unreadable values."""
    names = {each.name for each in fields(kind)}
    values = {}
    for name in names & stored.keys():
        with suppress(ValueError, TypeError):
            values[name] = _PARSERS[name](stored[name]) if name in _PARSERS else stored[name]
    if unknown := sorted(stored.keys() - values.keys()):
        log.warning(
            "a sign-up has choices that this release cannot read; their defaults are used",
            names=unknown,
            number=len(unknown),
        )
    return values


def close(session: Session, subscriber_id: int) -> None:
    """Delete the choices in a subscriber's open rows, because they were confirmed or never will be."""
    _close(session, col(FormSubmission.subscriber_id) == subscriber_id)


def export(session: Session, subscriber_id: int) -> list[dict[str, Any]]:
    """Return a subscriber's open rows as plain data."""
    rows = select(FormSubmission).where(col(FormSubmission.subscriber_id) == subscriber_id)
    columns = {"kind", "created_at", "preferences", "liked"}
    return [
        row.model_dump(mode="json", include=columns)
        for row in session.exec(rows.order_by(col(FormSubmission.id)))
    ]


def prune(session: Session, now: datetime, confirmable: timedelta) -> int:
    """Delete choices that can no longer be confirmed, and rows that no longer enforce a limit or a decline.

    Choices can be confirmed for `confirmable` after their email was created (see
    `ledger.is_recent_or_waiting`). A row that was not processed within `GIVE_UP` never will be, so all its
    personal data except the hash of the mailbox is deleted. Return the number of deleted rows.
    """
    since = now - confirmable
    has_recent_email = exists().where(
        col(Delivery.id) == FormSubmission.delivery_id, ledger.is_recent_or_waiting(since)
    )
    _close(session, (col(FormSubmission.created_at) < since) & ~has_recent_email)
    late = (col(FormSubmission.created_at) < now - GIVE_UP, col(FormSubmission.processed_at).is_(None))
    _close(session, and_(*late))
    useless = (
        col(FormSubmission.created_at) < now - mailbox_limits.HISTORY,
        or_(
            col(FormSubmission.declined_at).is_(None),
            col(FormSubmission.declined_at) < now - declines.DECLINE_LASTS,
        ),
    )
    return execute_and_count(session, delete(FormSubmission).where(*useless))


def _close(session: Session, which: ColumnElement[bool]) -> None:
    nothing: dict[str, Any] = {"email": "", "visitor": "", "preferences": {}, "liked": {}}
    session.execute(update(FormSubmission).where(which).values(subscriber_id=None, **nothing))
