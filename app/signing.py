"""What was composed ahead of its hour is signed ahead, so that it leaves at the pace of the network then."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta
from time import monotonic

import structlog
from sqlmodel import Session

from app import deliver, leases
from app.letters import Composer
from app.parts import App
from app.records import Letter

SHARD = 200
ENOUGH = timedelta(seconds=40)  # so that the next minute finds us ready to send
LASTING = timedelta(minutes=5)  # much longer than that
JOB = "sign"

log = structlog.get_logger(__name__)

Signed = tuple[int, str, str]  # the delivery, its signature, and the fingerprint of what that holds for


def sign_ahead(app: App, now: datetime) -> int:
    """Sign digests that wait for their hour; how many. What is not done in time is signed as it leaves.

    No two processes sign the same digest.
    """
    until = monotonic() + ENOUGH.total_seconds()
    signed = last = 0
    with _turn(app, now) as mine, ThreadPoolExecutor() as pool:
        while mine and not app.stopping.is_set() and monotonic() < until:
            ids, made = _sign_shard(app, pool, now, last)
            if not ids:
                break
            last, signed = ids[-1], signed + made
    return signed


def anything_unsigned(app: App, session: Session, now: datetime) -> bool:
    """Return whether `sign_ahead` has something to do."""
    return app.composer.signs and bool(deliver.lock_unsigned(session, now, after=0, limit=1))


@contextmanager
def _turn(app: App, now: datetime) -> Iterator[bool]:
    """Yield whether this process may sign: on SQLite one at a time, because it cannot lock rows."""
    with app.db.read() as session:
        waiting = anything_unsigned(app, session, now)
    if not waiting or app.db.locks_rows:
        yield waiting
        return
    with leases.turn(app.db, JOB, now, LASTING) as mine:
        yield mine


def _sign_shard(app: App, pool: ThreadPoolExecutor, now: datetime, last: int) -> tuple[list[int], int]:
    """Sign the digests after the one with the id `last`; their ids, and how many could be signed.

    The rows are locked meanwhile where the database can do so. SQLite would lock out every other writer.
    """
    with app.db.write() if app.db.locks_rows else app.db.read() as session:
        ids = deliver.lock_unsigned(session, now, after=last, limit=SHARD)
        signed = _signed(app, pool, deliver.letters(session, ids, app.cards))
        if app.db.locks_rows:
            deliver.keep_signatures(session, signed)
    if not app.db.locks_rows:
        with app.db.write() as session:
            deliver.keep_signatures(session, signed)
    return ids, len(signed)


def _signed(app: App, pool: ThreadPoolExecutor, letters: Sequence[Letter]) -> list[Signed]:
    made = pool.map(lambda letter: _sign(app.composer, letter), letters)
    return [one for one in made if one]


def _sign(composer: Composer, letter: Letter) -> Signed | None:
    try:
        return (letter.delivery_id, *composer.signature(composer.draft(letter)))
    except Exception:  # it is told, and counted, when it is to leave
        log.warning("this mail cannot be signed ahead", delivery=letter.delivery_id, exc_info=True)
        return None
