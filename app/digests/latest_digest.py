"""Find the digest to send as a test: the one that a subscriber would get now, or else their last one."""

from datetime import datetime
from typing import NamedTuple

from sqlmodel import col, select

from app.delivery import ledger
from app.digests import planning
from app.digests.builder import DigestContext
from app.errors import Conflict, NotFound
from app.storage.models import Delivery, DeliveryState, DigestContent
from app.types import Digest


class LatestDigest(NamedTuple):
    """A digest. `reason` is empty if it would be sent now; otherwise, it says why none would be sent."""

    digest: Digest
    reason: str


def find_latest(context: DigestContext, now: datetime, subscriber_id: int) -> LatestDigest:
    """Return the digest that a subscriber would get now, or else the last one that was composed for them.

    Leave out digests that were cancelled. Raise NotFound if there is no such subscriber, and Conflict if
    there is neither digest.
    """
    preview = next(planning.preview_due(context, now, [subscriber_id]), None)
    if preview is None:
        raise NotFound("There is no such subscriber.")
    if isinstance(preview.digest, Digest):
        return LatestDigest(preview.digest, "")
    with context.db.read() as session:
        composed = select(DigestContent.delivery_id).join(Delivery)
        own = composed.where(Delivery.subscriber_id == subscriber_id, Delivery.state != DeliveryState.SKIPPED)
        newest = session.exec(own.order_by(col(Delivery.id).desc()).limit(1)).all()
        digests = ledger.restored_digests(session, newest, context.snapshots)
    for digest in digests.values():
        return LatestDigest(digest, preview.digest.reason)
    raise Conflict(f"there would be no digest: {preview.digest.reason}")
