"""What comes back is read: from the mailbox, the folder and webhooks; each notice is settled by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from datetime import datetime, timedelta
from typing import Protocol

import structlog
from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import Session

from app import bounces, leases, refusals, runs, subscribers
from app.bounces import Kind, Notice, Whose, prose
from app.errors import MailboxError
from app.parts import App
from app.records import Rejection
from app.tokens import Signer

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


class Box(Protocol):
    """Where mails wait to be read: a mailbox or a folder, open."""

    name: str

    def waiting(self, most: int) -> Sequence[str]: ...
    def raw(self, name: str) -> bytes | None: ...
    def remove(self, names: Sequence[str]) -> None: ...
    def keep(self, names: Sequence[str]) -> None: ...


def read(app: App, now: datetime) -> Counter[str]:
    """Read what waits in the mailbox and in the folder of the settings, where they name any.

    A mail is removed when what it tells is written down, never before. Only one process reads at a time;
    nothing is recorded of a moment at which nothing was waiting.
    """
    if not (app.settings.bounce_mailbox or app.settings.bounce_folder):
        return Counter()
    with leases.turn(app.db, JOB, now, LASTING) as mine, ExitStack() as open_boxes:
        faults: list[tuple[str, Exception]] = []
        boxes = list(_opened(app, now, open_boxes, faults)) if mine else []
        if not (faults or any(names for _, names in boxes)):
            return Counter()
        with runs.recorded(app.db, JOB, now) as run:
            for name, fault in faults:
                run.fail(name, fault)
            for box, names in boxes:
                _empty(app, now, box, names, run)
    return run.counts


def _opened(
    app: App, now: datetime, open_boxes: ExitStack, faults: list[tuple[str, Exception]]
) -> Iterator[tuple[Box, Sequence[str]]]:
    """Each box with what waits in it. One that cannot be opened does not keep the other from being read."""
    for box in _boxes(app, now):
        try:
            opened = open_boxes.enter_context(box)
            yield opened, opened.waiting(MOST)
        except (MailboxError, OSError) as error:
            if not app.stopping.is_set():  # which cuts the connection
                faults.append((getattr(box, "name", ""), error))


def _boxes(app: App, now: datetime) -> Iterator[AbstractContextManager[Box]]:
    if app.settings.bounce_mailbox:
        yield bounces.Mailbox(app.settings.bounce_mailbox, stopping=app.stopping)
    if app.settings.bounce_folder:
        yield bounces.Folder(app.settings.bounce_folder, now)


def _empty(app: App, now: datetime, box: Box, names: Sequence[str], run: runs.Recording) -> None:
    try:
        for start in range(0, len(names), AT_ONCE):
            if app.stopping.is_set():
                return
            _empty_some(app, now, box, names[start : start + AT_ONCE], run)
    except (MailboxError, OSError) as error:
        if not app.stopping.is_set():
            run.fail(box.name, error)


def _empty_some(app: App, now: datetime, box: Box, names: Sequence[str], run: runs.Recording) -> None:
    """Settle each mail in a transaction of its own; then remove those that are settled, and keep the rest."""
    settled: list[str] = []
    kept: list[str] = []
    for name in names:
        raw = box.raw(name)
        if raw is None:  # it is asked for again the next time, and keeps no other from being read
            run.add({"unread": 1})
            run.reject([Rejection("it was not handed over", detail=f"{box.name}: {name}")])
            continue
        counts = _settled(app, raw, now, run)
        recognised = not counts.keys() & {UNKNOWN, UNCLAIMED, "broken"}
        (settled if recognised else kept).append(name)
        run.add({"mails": 1, **counts})
    box.remove(settled)
    box.keep(kept)


def _settled(app: App, raw: bytes, now: datetime, run: runs.Recording) -> Counter[str]:
    """What a mail came to. One that breaks what reads it is kept, and does not stop the others."""
    try:
        counts, rejections = settle(app, bounces.read_mail(raw), now)
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
    return prose.ADDRESS.sub("…", f"{error!r:.300}")


def settle(app: App, notices: Sequence[Notice], now: datetime) -> tuple[Counter[str], list[Rejection]]:
    """Draw the consequences of notices in one transaction: what they were, and those that are nobody's."""
    counts: Counter[str] = Counter()
    rejections = []
    with app.db.write() as session:
        for notice, whose in _claimed(session, app.signer, notices):
            outcome = _settle_one(session, notice, whose, now)
            counts[outcome] += 1
            if outcome == UNCLAIMED:
                said = prose.ADDRESS.sub("…", f"{notice.said:.300}")
                rejections.append(Rejection("nobody's", detail=f"{_masked(notice.recipient)}: {said}"))
    return counts, rejections


def _masked(address: str) -> str:
    """Return an address without its local part: the record of a run outlives a reader's erasure."""
    return f"…@{address.rpartition('@')[2]}" if "@" in address else "…"


def _claimed(
    session: Session, signer: Signer, notices: Sequence[Notice]
) -> Iterator[tuple[Notice, Whose | None]]:
    """Each delivery with the one notice that counts for it; and what is nobody's."""
    ours: dict[int, list[tuple[Notice, Whose]]] = {}
    for notice in notices:
        whose = None if notice.kind in _NOTHING_FOLLOWS else bounces.whose(session, signer, notice)
        if whose is None:
            yield notice, None
        else:
            ours.setdefault(whose.delivery_id, []).append((notice, whose))
    for claims in ours.values():
        yield min(claims, key=_closeness)


def _closeness(claim: tuple[Notice, Whose]) -> tuple[bool, bool]:
    """One mail of ours, several notices: their address forwards to several. Theirs counts, or the mildest."""
    notice, whose = claim
    return notice.recipient.lower() != whose.email.lower(), notice.hard is True


def _settle_one(session: Session, notice: Notice, whose: Whose | None, now: datetime) -> str:
    if notice.kind in _NOTHING_FOLLOWS:
        return _NOTHING_FOLLOWS[notice.kind]
    if whose is None:
        return UNCLAIMED
    about = (session, whose.delivery_id, whose.subscriber_id, notice.said or notice.reason.value, now)
    if notice.kind in (Kind.COMPLAINT, Kind.OPT_OUT):
        opts_out = notice.kind is Kind.OPT_OUT
        if not (bounces.opted_out if opts_out else bounces.complained)(*about):
            return "known"  # they may have come back since
        subscribers.unsubscribe(session, whose.subscriber_id, now)
        return "opt_outs" if opts_out else "complaints"
    if notice.hard:
        return "hard" if bounces.bounced(*about) else "known"
    if notice.reason in refusals.NOT_THE_READERS:
        return "not_the_readers" if bounces.refused_us(*about) else "known"
    return "soft" if bounces.bounced_softly(*about) else "known"
