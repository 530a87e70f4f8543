"""Sign digests ahead, while they wait for their hour, so that they leave at the pace of the network then."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from time import monotonic

import structlog
from sqlmodel import Session

from app.delivery import ledger
from app.delivery.ledger import Signature
from app.delivery.sender import Sender
from app.mail.composer import Composer
from app.storage import locks
from app.types import MailRequest

SHARD = 200
ENOUGH = timedelta(seconds=40)  # so that the next minute finds us ready to send
LASTING = timedelta(minutes=5)  # much longer than that
JOB = "sign"

log = structlog.get_logger(__name__)


def sign_ahead(sender: Sender, now: datetime) -> int:
    """Sign digests that wait for their hour; return how many. The others are signed as they leave.

    No two processes sign the same digest.
    """
    until = monotonic() + ENOUGH.total_seconds()
    count = 0
    with _turn(sender, now) as mine, ThreadPoolExecutor() as pool:
        while mine and not sender.stopping.is_set() and monotonic() < until:
            signatures = _sign_shard(sender, pool, now)
            if not signatures:
                break
            count += sum(bool(signature.lines) for signature in signatures)
    return count


def anything_unsigned(sender: Sender, session: Session, now: datetime) -> bool:
    """Return whether `sign_ahead` has something to do."""
    return sender.composer.signs and bool(ledger.lock_unsigned(session, now, limit=1))


@contextmanager
def _turn(sender: Sender, now: datetime) -> Iterator[bool]:
    """Yield whether this process may sign: on SQLite one at a time, because it cannot lock rows."""
    with sender.db.read() as session:
        waiting = anything_unsigned(sender, session, now)
    if not waiting or sender.db.locks_rows:
        yield waiting
        return
    with locks.hold(sender.db, JOB, now, LASTING) as mine:
        yield mine


def _sign_shard(sender: Sender, pool: ThreadPoolExecutor, now: datetime) -> list[Signature]:
    """Sign the next digests. Those that have left or cannot be signed get an empty signature.

    The rows are locked meanwhile where the database can do so. SQLite would lock out every other writer.
    """
    with sender.db.write() if sender.db.locks_rows else sender.db.read() as session:
        unsigned = ledger.lock_unsigned(session, now, limit=SHARD)
        waiting = [number for number, waits in unsigned.items() if waits]
        signatures = list(
            pool.map(partial(_sign, sender.composer), ledger.letters(session, waiting, sender.snapshots))
        )
        signatures += [Signature(number) for number, waits in unsigned.items() if not waits]
        if sender.db.locks_rows:
            ledger.store_signatures(session, signatures)
    if not sender.db.locks_rows:
        with sender.db.write() as session:
            ledger.store_signatures(session, signatures)
    return signatures


def _sign(composer: Composer, letter: MailRequest) -> Signature:
    try:
        return Signature(letter.delivery_id, *composer.signature(composer.draft(letter)))
    except Exception:  # the delivery reports it when it is to leave
        log.warning("this mail cannot be signed ahead", delivery=letter.delivery_id, exc_info=True)
        return Signature(letter.delivery_id)
