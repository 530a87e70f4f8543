"""The ledger: every email to every subscriber, with its state."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from sqlmodel import Session, col, select

from app import pipeline
from app.delivery import ledger
from app.errors import NotFound
from app.storage.models import Delivery, DeliveryState, Subscriber
from app.types import MailKind
from app.web.api import problems
from app.web.api.auth import AnyId, CanRead, CanSend, DeliveryId
from app.web.api.pagination import Page, Paging, newest_first
from app.web.api.values import Representation

router = APIRouter(prefix="/deliveries", tags=["deliveries"])


class DeliveryOut(Representation):
    """An email to a subscriber. It is in exactly one state at a time."""

    id: int
    subscriber_id: int
    kind: MailKind
    edition: str = Field(examples=["2026-11-20"])
    state: DeliveryState
    reason: str = Field(description="The reason why the email was not sent, or why it is held back.")
    subject: str
    message_id: str
    attempts: int = Field(examples=[1])
    next_attempt_at: datetime | None
    give_up_at: datetime | None = Field(
        description="The time after which the email is no longer sent. Removed from sent emails at night."
    )
    smtp_code: int | None = Field(examples=[250])
    smtp_text: str = Field(examples=["2.0.0 Ok: queued"])
    due_at: datetime
    created_at: datetime
    sent_at: datetime | None


class DeliveryDetail(DeliveryOut):
    """An email with the content of its digest, as composed."""

    digest: dict[str, Any]


class RenderedDelivery(BaseModel):
    """A digest, rendered as an email."""

    subject: str
    html: str
    text: str


@router.get("")
def list_deliveries(
    caller: CanRead,
    window: Paging,
    state: DeliveryState | None = None,
    kind: MailKind | None = None,
    edition: Annotated[str | None, Query(max_length=40, examples=["2026-11-20"])] = None,
    subscriber_id: AnyId = None,
) -> Page[DeliveryOut]:
    """List the emails, newest first."""
    listed = select(Delivery) if kind is None else select(Delivery).where(ledger.of_kind(kind))
    with caller.db.read() as session:
        rows, cursor = newest_first(
            session,
            listed,
            col(Delivery.id),
            window,
            state=state,
            edition=edition,
            subscriber_id=subscriber_id,
        )
        return Page(items=_to_out(session, rows), next_cursor=cursor)


@router.get("/{delivery_id}", responses=problems.responses(404))
def get_delivery(caller: CanRead, delivery_id: DeliveryId) -> DeliveryDetail:
    """Return an email with the content of its digest."""
    with caller.db.read() as session:
        [row] = _to_out(session, [_get(session, delivery_id)])
        digest = ledger.restored_digests(session, [delivery_id], caller.app.snapshots).get(delivery_id)
    return DeliveryDetail(**row.model_dump(), digest=digest.as_dict() if digest else {})


@router.get("/{delivery_id}/mail", responses=problems.responses(404))
def render_delivery(caller: CanRead, delivery_id: DeliveryId) -> RenderedDelivery:
    """Return a digest as it is sent, as HTML and as text. The subscriber's personal links do not work."""
    with caller.db.read() as session:
        row = _get(session, delivery_id)
        digest = ledger.restored_digests(session, [delivery_id], caller.app.snapshots).get(delivery_id)
        email = session.get_one(Subscriber, row.subscriber_id).email
    if digest is None:
        raise NotFound(f"the delivery {delivery_id} has no digest to show")
    mail = pipeline.render_digest(caller.app, digest, email, caller.now)
    return RenderedDelivery(subject=mail.subject, html=mail.html, text=mail.text)


@router.post("/{delivery_id}/resend", responses=problems.responses(404, 409))
def resend_delivery(caller: CanSend, delivery_id: DeliveryId) -> DeliveryOut:
    """Send an uncertain email again, with the same Message-ID and the same bytes.

    The sender or the relay failed while the email was being sent, so the subscriber may already have it.
    """
    with caller.db.write() as session:
        ledger.resend(session, delivery_id, caller.now)
        caller.record(session, "delivery.resend", delivery_id)
        return _to_out(session, [session.get_one(Delivery, delivery_id)])[0]


@router.post("/{delivery_id}/confirm-arrival", responses=problems.responses(404, 409))
def confirm_arrival(caller: CanSend, delivery_id: DeliveryId) -> DeliveryOut:
    """Record an uncertain email as sent, because the subscriber has it. It is not sent again."""
    with caller.db.write() as session:
        ledger.confirm_arrival(session, delivery_id, caller.now)
        caller.record(session, "delivery.confirm_arrival", delivery_id)
        return _to_out(session, [session.get_one(Delivery, delivery_id)])[0]


def _get(session: Session, delivery_id: int) -> Delivery:
    row = session.get(Delivery, delivery_id)
    if row is None:
        raise NotFound(f"there is no delivery {delivery_id}")
    return row


def _to_out(session: Session, rows: Sequence[Delivery]) -> list[DeliveryOut]:
    reasons = ledger.reasons_by_delivery(session, rows)
    return [DeliveryOut.model_validate(row.model_dump() | {"reason": reasons[row.id or 0]}) for row in rows]
