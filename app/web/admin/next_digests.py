"""Show the digests that all active subscribers would get now."""

from fastapi import APIRouter, Response
from sqlalchemy import func
from sqlmodel import col, select

from app import pipeline
from app.storage.models import Subscriber, SubscriberState
from app.web.admin.double_clicks import AdminRoute
from app.web.admin.sign_in import Reader
from app.web.api.pagination import newest_first, window_of

router = APIRouter(include_in_schema=False, route_class=AdminRoute)

PREVIEWS_SHOWN = 20  # per page; building a page takes a second


@router.get("/admin/subscribers/next")
def show_next_digests(operator: Reader, due: str = "", cursor: str | None = None) -> Response:
    """Show the digests that all active (or all due) subscribers would get now, newest subscriber first."""
    active = select(Subscriber).where(Subscriber.state == SubscriberState.ACTIVE)
    if due:
        active = active.where(col(Subscriber.next_due_at) <= operator.now)
    with operator.db.read() as session:
        count = session.exec(select(func.count()).select_from(active.subquery())).one()
        window = window_of(PREVIEWS_SHOWN, cursor)
        rows, following = newest_first(session, active, col(Subscriber.id), window)
    with operator.capacity.analyses.take():
        previews = [*pipeline.preview_due(operator.app, operator.now, [row.id or 0 for row in rows])]
    previews.sort(key=lambda preview: preview.subscriber_id, reverse=True)
    return operator.page(
        "admin/next_digests.html", previews=previews, count=count, due=bool(due), next_cursor=following
    )
