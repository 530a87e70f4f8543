"""What was composed ahead of its hour is signed ahead, so that it leaves at the pace of the network then."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from time import monotonic

import structlog

from app import deliver
from app.letters import Composer
from app.parts import App
from app.records import Letter

SHARD = 200
ENOUGH = timedelta(seconds=40)  # so that the next minute finds us ready to send

log = structlog.get_logger(__name__)

Signed = tuple[int, str, str]  # the delivery, its signature, and the fingerprint of what that holds for


def sign_ahead(app: App, now: datetime) -> int:
    """Sign digests that wait for their hour; how many. What is not done in time is signed as it leaves."""
    if not app.composer.signs:
        return 0
    until = monotonic() + ENOUGH.total_seconds()
    with app.db.read() as session:
        ids = deliver.unsigned(session, now)
    signed = 0
    with ThreadPoolExecutor() as pool:
        for start in range(0, len(ids), SHARD):
            if app.stopping.is_set() or monotonic() > until:
                break
            signed += _sign_shard(app, pool, ids[start : start + SHARD])
    return signed


def _sign_shard(app: App, pool: ThreadPoolExecutor, ids: Sequence[int]) -> int:
    with app.db.read() as session:
        letters = deliver.letters(session, ids, app.cards)
    made = pool.map(lambda letter: _sign(app.composer, letter), letters)
    signed = [one for one in made if one]
    with app.db.write() as session:
        deliver.keep_signatures(session, signed)
    return len(signed)


def _sign(composer: Composer, letter: Letter) -> Signed | None:
    try:
        return (letter.delivery_id, *composer.signature(composer.draft(letter)))
    except Exception:  # it is told, and counted, when it is to leave
        log.warning("this mail cannot be signed ahead", delivery=letter.delivery_id, exc_info=True)
        return None
