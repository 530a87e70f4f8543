"""The audit log: changes by operators, the newest first."""

from fastapi import APIRouter, Response
from sqlmodel import col, select

from app import subscribers
from app.delivery import ledger
from app.storage import audit_log
from app.storage.models import AuditEntry
from app.web.admin.double_clicks import AdminRoute
from app.web.admin.pagination import Position, page_at
from app.web.admin.sign_in import Reader

router = APIRouter(include_in_schema=False, route_class=AdminRoute)

CHANGES_SHOWN = 50


@router.get("/admin/changes")
def list_changes(operator: Reader, at: Position = "", actor: str = "") -> Response:
    statement = select(AuditEntry)
    if actor:
        statement = statement.where(AuditEntry.actor == actor)
    with operator.db.read() as session:
        listed = page_at(session, statement, col(AuditEntry.id), CHANGES_SHOWN, at)
        numbers = [int(change.subject) for change in listed.rows if _is_about_subscriber(change)]
        addresses = subscribers.addresses_of(session, numbers)
    return operator.page(
        "admin/changes.html", listed=listed, actor=actor, describe=audit_log.describe,
        describe_details=audit_log.describe_details, all_editions=ledger.ALL_EDITIONS, addresses=addresses,
        is_about_subscriber=_is_about_subscriber,
    )  # fmt: skip


def _is_about_subscriber(change: AuditEntry) -> bool:
    """Return True if the subject of a change is the id of a subscriber."""
    is_about_one = change.action.startswith("subscriber.") or change.action == "digest.test"
    return is_about_one and change.action != "subscriber.import" and change.subject.isdigit()
