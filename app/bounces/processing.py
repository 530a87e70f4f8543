"""What comes back is read: from the mailbox, the folder and webhooks; each notice is settled by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from threading import Event
from typing import Protocol

import structlog
from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import Session

from app import bounces, subscribers
from app.bounces import BouncedDelivery, Kind, Notice
from app.delivery.smtp import responses
from app.errors import MailboxError
from app.links import LinkSigner
from app.settings import Settings
from app.storage import job_runs, locks
from app.storage.database import Database
from app.text import sanitize
from app.types import Rejection

JOB = "bounces"
LASTING = timedelta(minutes=30)  # much longer than MOST mails take
MOST, AT_ONCE = 1000, 50  # mails a run, and until what was settled is removed
# A notice that is none of ours is shown and kept; what is none at all is kept for a person to look at.
UNCLAIMED, UNKNOWN = "unclaimed", "unknown"
_NOTHING_FOLLOWS = {
    Kind.DELAYED: "delayed",
    Kind.DELIVERED: "delivered",
    Kind.VACATION: "automatic_answers",
    Kind.REPORT: "reports",
    Kind.UNKNOWN: UNKNOWN,
}

log = structlog.get_logger(__name__)


class NoticeSource(Protocol):
    """Where mails wait to be read: a mailbox or a folder, open."""

    name: str

    def waiting(self, most: int) -> Sequence[str]: ...
    def raw(self, name: str) -> bytes | None: ...
    def remove(self, names: Sequence[str]) -> None: ...
    def keep(self, names: Sequence[str]) -> None: ...


@dataclass(frozen=True)
class BounceContext:
    """What processing notices uses."""

    db: Database
    settings: Settings
    signer: LinkSigner
    stopping: Event  # set when the process is to end: nothing new is begun


def read(context: BounceContext, now: datetime) -> Counter[str]:
    """Read what waits in the mailbox and in the folder of the settings, where they name any.

    A mail is removed when what it tells is written down, never before. Only one process reads at a time;
    nothing is recorded of a moment at which nothing was waiting.
    """
    if not (context.settings.bounce_mailbox or context.settings.bounce_folder):
        return Counter()
    with locks.hold(context.db, JOB, now, LASTING) as mine, ExitStack() as open_boxes:
        faults: list[tuple[str, Exception]] = []
        boxes = list(_opened(context, now, open_boxes, faults)) if mine else []
        if not (faults or any(names for _, names in boxes)):
            return Counter()
        with job_runs.record(context.db, JOB, now) as run:
            for name, fault in faults:
                run.fail(name, fault)
            for box, names in boxes:
                _empty(context, now, box, names, run)
    return run.counts


def _opened(
    context: BounceContext, now: datetime, open_boxes: ExitStack, faults: list[tuple[str, Exception]]
) -> Iterator[tuple[NoticeSource, Sequence[str]]]:
    """Each box with what waits in it. One that cannot be opened does not keep the other from being read."""
    for box in _boxes(context, now):
        try:
            opened = open_boxes.enter_context(box)
            yield opened, opened.waiting(MOST)
        except (MailboxError, OSError) as error:
            if not context.stopping.is_set():  # which cuts the connection
                faults.append((getattr(box, "name", ""), error))


def _boxes(context: BounceContext, now: datetime) -> Iterator[AbstractContextManager[NoticeSource]]:
    if context.settings.bounce_mailbox:
        yield bounces.Mailbox(context.settings.bounce_mailbox, stopping=context.stopping)
    if context.settings.bounce_folder:
        yield bounces.Folder(context.settings.bounce_folder, now)


def _empty(
    context: BounceContext,
    now: datetime,
    box: NoticeSource,
    names: Sequence[str],
    run: job_runs.JobRunRecorder,
) -> None:
    try:
        for start in range(0, len(names), AT_ONCE):
            if context.stopping.is_set():
                return
            _empty_some(context, now, box, names[start : start + AT_ONCE], run)
    except (MailboxError, OSError) as error:
        if not context.stopping.is_set():
            run.fail(box.name, error)


def _empty_some(
    context: BounceContext,
    now: datetime,
    box: NoticeSource,
    names: Sequence[str],
    run: job_runs.JobRunRecorder,
) -> None:
    """Settle each mail in a transaction of its own; then remove those that are settled, and keep the rest."""
    settled: list[str] = []
    kept: list[str] = []
    for name in names:
        raw = box.raw(name)
        if raw is None:  # it is asked for again the next time, and keeps no other from being read
            run.add({"unread": 1})
            run.reject([Rejection("it was not handed over", detail=f"{box.name}: {name}")])
            continue
        counts = _settled(context, raw, now, run)
        recognised = not counts.keys() & {UNKNOWN, UNCLAIMED, "broken"}
        (settled if recognised else kept).append(name)
        run.add({"mails": 1, **counts})
    box.remove(settled)
    box.keep(kept)


def _settled(context: BounceContext, raw: bytes, now: datetime, run: job_runs.JobRunRecorder) -> Counter[str]:
    """What a mail came to. One that breaks what reads it is kept, and does not stop the others."""
    try:
        counts, rejections = apply(context, bounces.parse_mail(raw), now)
    except SQLAlchemyError:
        raise  # no mail's fault: the next one would fare no better
    except Exception as error:
        log.exception("a mail in the mailbox of bounces could not be read")
        counts, rejections = (
            Counter(broken=1),
            [Rejection("it could not be read", detail=_without_addresses(error))],
        )
    run.reject(rejections)
    return counts


def _without_addresses(error: Exception) -> str:
    return sanitize.redact_addresses(f"{error!r:.300}")


def apply(
    context: BounceContext, notices: Sequence[Notice], now: datetime
) -> tuple[Counter[str], list[Rejection]]:
    """Draw the consequences of notices in one transaction: what they were, and those that are nobody's."""
    counts: Counter[str] = Counter()
    rejections = []
    with context.db.write() as session:
        for notice, whose in _claimed(session, context.signer, notices):
            outcome = _settle_one(session, notice, whose, now)
            counts[outcome] += 1
            if outcome == UNCLAIMED:
                said = sanitize.redact_addresses(f"{notice.said:.300}")
                rejections.append(Rejection("nobody's", detail=f"{_masked(notice.recipient)}: {said}"))
    return counts, rejections


def _masked(address: str) -> str:
    """Return an address without its local part: the record of a run outlives a reader's erasure."""
    return f"…@{address.rpartition('@')[2]}" if "@" in address else "…"


def _claimed(
    session: Session, signer: LinkSigner, notices: Sequence[Notice]
) -> Iterator[tuple[Notice, BouncedDelivery | None]]:
    """Each delivery with the one notice that counts for it; and what is nobody's."""
    ours: dict[int, list[tuple[Notice, BouncedDelivery]]] = {}
    for notice in notices:
        whose = None if notice.kind in _NOTHING_FOLLOWS else bounces.find_delivery(session, signer, notice)
        if whose is None:
            yield notice, None
        else:
            ours.setdefault(whose.delivery_id, []).append((notice, whose))
    for claims in ours.values():
        yield min(claims, key=_closeness)


def _closeness(claim: tuple[Notice, BouncedDelivery]) -> tuple[bool, bool]:
    """One mail of ours, several notices: their address forwards to several. Theirs counts, or the mildest."""
    notice, whose = claim
    return notice.recipient.lower() != whose.email.lower(), notice.hard is True


def _settle_one(session: Session, notice: Notice, whose: BouncedDelivery | None, now: datetime) -> str:
    if notice.kind in _NOTHING_FOLLOWS:
        return _NOTHING_FOLLOWS[notice.kind]
    if whose is None:
        return UNCLAIMED
    about = (session, whose.delivery_id, whose.subscriber_id, notice.said or notice.reason.value, now)
    if notice.kind in (Kind.COMPLAINT, Kind.OPT_OUT):
        opts_out = notice.kind is Kind.OPT_OUT
        if not (bounces.record_opt_out if opts_out else bounces.record_complaint)(*about):
            return "known"  # they may have come back since
        subscribers.unsubscribe(session, whose.subscriber_id, now)
        return "opt_outs" if opts_out else "complaints"
    if notice.hard:
        return "hard" if bounces.record_hard(*about) else "known"
    if notice.reason in responses.NOT_ABOUT_RECIPIENT:
        return "not_the_readers" if bounces.record_sender_rejection(*about) else "known"
    return "soft" if bounces.record_soft(*about) else "known"
