"""A subscriber's latest digests as the preferences page shows them."""

from datetime import datetime
from typing import NamedTuple

from sqlmodel import Session

from app import subscribers
from app.application import Application
from app.delivery import ledger
from app.links import Purpose
from app.storage.models import Delivery, DeliveryState, Subscriber
from app.web.link_access import signed_path

UNFOLDED = 5  # digests that the preferences page shows at once
LISTED = 14  # digests, including those that the page shows on request
_OUTCOMES = {
    DeliveryState.PENDING: "about to be sent",
    DeliveryState.CLAIMED: "being sent",
    DeliveryState.COMMITTING: "being sent",
    DeliveryState.SENT: "sent",
    DeliveryState.DEFERRED: "delayed by your mail server",
    DeliveryState.FAILED: "could not be delivered",
    DeliveryState.SUPPRESSED: "not sent: mail to this address is blocked",
    DeliveryState.UNCERTAIN: "sent, but your mail server did not confirm it",
    DeliveryState.SKIPPED: "skipped",
}


class HistoryEntry(NamedTuple):
    """A digest that was sent or waits, or the reason why there was none."""

    due_at: datetime
    title: str
    path: str  # of its page; empty if the subscriber may not read it
    outcome: str


def latest(session: Session, app: Application, subscriber: Subscriber, now: datetime) -> list[HistoryEntry]:
    """Return a subscriber's latest digests, including skipped ones, newest first."""
    history = subscribers.history(session, subscriber.id or 0, LISTED)
    stored, pauses = ledger.stored_digests(session, [row.id for row in history]), ledger.pauses(session)
    digests = []
    for row in history:
        is_released = ledger.is_released(pauses, row, now)
        is_held = not is_released and bool(ledger.hold_reason(pauses, row))
        is_digest = row.id in stored and row.state is not DeliveryState.SKIPPED
        path = ""
        if is_digest and is_released:
            path = signed_path(app, Purpose.VIEW, subscriber, row.created_at, row.id or 0)
        title = (row.subject or "Digest") if is_digest else "No digest"
        digests.append(HistoryEntry(row.due_at, title, path, _describe_outcome(row, is_held=is_held)))
    return digests


def _describe_outcome(delivery: Delivery, *, is_held: bool) -> str:
    if is_held:
        return "waits until the operator of this service releases it"
    words = _OUTCOMES[delivery.state]
    # Subscribers see why a digest was skipped. Only the operator sees the relay's response.
    return f"{words}: {delivery.reason}" if delivery.state is DeliveryState.SKIPPED else words
