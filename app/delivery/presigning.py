"""Sign digests before they are due, so that signing does not slow down sending."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
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

BATCH_SIZE = 200
TIME_LIMIT = timedelta(seconds=40)  # so that this process can send in the next minute
LOCK_LIFETIME = timedelta(minutes=5)  # much longer than TIME_LIMIT
JOB = "sign"

log = structlog.get_logger(__name__)


def sign_ahead(sender: Sender, now: datetime) -> int:
    """Sign digests that are not due yet, for up to TIME_LIMIT. Return the number of signed digests.

    Digests that are due before their turn are signed when they are sent. No two processes sign the same
    digest.
    """
    deadline = monotonic() + TIME_LIMIT.total_seconds()
    with sender.db.read() as session:
        if not has_unsigned(sender, session, now):
            return 0
    sender.drop_old_cards(now)
    # SQLite cannot lock rows, so only one process at a time may sign.
    lock = nullcontext(True) if sender.db.locks_rows else locks.hold(sender.db, JOB, now, LOCK_LIFETIME)
    count = 0
    with lock as may_sign, ThreadPoolExecutor() as pool:
        while may_sign and not sender.stopping.is_set() and monotonic() < deadline:
            # A write transaction locks only these rows on PostgreSQL. On SQLite, it would block writers.
            with sender.db.write() if sender.db.locks_rows else sender.db.read() as session:
                unsigned = ledger.lock_unsigned(session, now, limit=BATCH_SIZE)
                waiting_ids = [delivery_id for delivery_id, waits in unsigned.items() if waits]
                before = {} if sender.db.locks_rows else ledger.encoded_digests(session, waiting_ids)
                requests = ledger.mail_requests(session, waiting_ids, sender.snapshots)
                signatures = list(pool.map(partial(_sign, sender.composer), requests))
                # Digests that are no longer waiting get an empty signature.
                signatures += [Signature(delivery_id) for delivery_id, waits in unsigned.items() if not waits]
                if sender.db.locks_rows:
                    ledger.store_signatures(session, signatures)
            if not sender.db.locks_rows:
                with sender.db.write() as session:
                    # A digest from which a hidden paper was removed in the meantime is signed again.
                    current = ledger.encoded_digests(session, waiting_ids)
                    changed = {number for number in waiting_ids if current.get(number) != before.get(number)}
                    signatures = [each for each in signatures if each.delivery_id not in changed]
                    ledger.store_signatures(session, signatures)
            if not unsigned:
                break
            count += sum(bool(signature.lines) for signature in signatures)
    return count


def has_unsigned(sender: Sender, session: Session, now: datetime, besides: int = 0) -> bool:
    """Return whether `sign_ahead` has more than `besides` digests to process."""
    return sender.composer.signs and len(ledger.lock_unsigned(session, now, limit=besides + 1)) > besides


def _sign(composer: Composer, request: MailRequest) -> Signature:
    try:
        return Signature(request.delivery_id, *composer.signature(composer.draft(request)))
    except Exception:  # the error is recorded when the email is composed again for sending
        log.warning(
            "an email could not be signed ahead",
            delivery=request.delivery_id,
            edition=request.edition,
            exc_info=True,
        )
        return Signature(request.delivery_id)
