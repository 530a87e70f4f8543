"""Pages to unsubscribe, to download one's data and to erase it. Each has its own signed link."""

import json
from typing import Annotated

from fastapi import APIRouter, Response

from app import clock, subscribers
from app.links import Purpose
from app.storage.models import SubscriberState
from app.web.forms import Text
from app.web.link_access import PRIVATE, SignedLink, allows, masked_address
from app.web.request_bodies import FormRoute
from app.web.site_state import capacity

router = APIRouter(include_in_schema=False, route_class=FormRoute)

Unsubscribe = Annotated[SignedLink, allows(Purpose.UNSUBSCRIBE)]
Export = Annotated[SignedLink, allows(Purpose.EXPORT)]
Erase = Annotated[SignedLink, allows(Purpose.ERASE)]


@router.get("/unsubscribe/{token}")
def ask_unsubscribe(link: Unsubscribe) -> Response:
    """Ask whether to unsubscribe, or report that the subscriber has left. Old links work, too."""
    return _unsubscribe_page(link)


@router.post("/unsubscribe/{token}")
def unsubscribe(link: Unsubscribe) -> Response:
    """Unsubscribe. The button and mail clients send this request. Its body is not read.

    Answer with a page: RFC 8058 forbids redirects.
    """
    with link.db.write() as session:
        subscribers.unsubscribe(session, link.subscriber_id, clock.utcnow())
    return _unsubscribe_page(link)


def _unsubscribe_page(link: SignedLink) -> Response:
    with link.db.read() as session:
        subscriber = subscribers.get(session, link.subscriber_id)
    done = subscriber.state in (SubscriberState.UNSUBSCRIBED, SubscriberState.ERASED)
    return link.page(
        "unsubscribe.html", done=done, masked_address=masked_address(subscriber),
        retention_days=link.app.settings.retention_days,
    )  # fmt: skip


@router.get("/export/{token}")
def ask_export(link: Export) -> Response:
    return link.page("export.html")


@router.post("/export/{token}")
def export(link: Export) -> Response:
    with capacity(link.request).analyses.take(), link.db.read() as session:
        data = subscribers.export(session, link.subscriber_id, clock.utcnow())
    name = {"Content-Disposition": 'attachment; filename="paperboy-export.json"'}
    content = json.dumps(data, indent=2, ensure_ascii=False)
    return Response(content, media_type="application/json", headers={**PRIVATE, **name})


@router.get("/erase/{token}")
def ask_erase(link: Erase) -> Response:
    """Ask whether to erase everything, or report that it has already been erased."""
    with link.db.read() as session:
        subscriber = subscribers.get(session, link.subscriber_id)
    return link.page("erase.html", done="before" if subscriber.state is SubscriberState.ERASED else "")


@router.post("/erase/{token}")
def erase(link: Erase, keep_off: Text = "") -> Response:
    with link.db.write() as session:
        subscribers.erase(session, link.subscriber_id, clock.utcnow(), suppress=keep_off == "yes")
    return link.page("erase.html", done="now", suppressed=keep_off == "yes")
