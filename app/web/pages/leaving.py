"""Pages to unsubscribe, to download one's data and to erase it. Each has its own signed link."""

from __future__ import annotations

import json
from typing import Annotated

from fastapi import APIRouter, Request, Response

from app import clock, subscribers
from app.links import Grant, Purpose
from app.storage.models import SubscriberState
from app.web.forms import Text
from app.web.link_access import PRIVATE, allows, masked_address, private_page
from app.web.request_bodies import FormRoute
from app.web.site_state import capacity, db

router = APIRouter(include_in_schema=False, route_class=FormRoute)

Unsubscribe = Annotated[Grant, allows(Purpose.UNSUBSCRIBE)]
Export = Annotated[Grant, allows(Purpose.EXPORT)]
Erase = Annotated[Grant, allows(Purpose.ERASE)]


@router.get("/unsubscribe/{token}")
def ask_unsubscribe(request: Request, grant: Unsubscribe) -> Response:
    """Ask whether to unsubscribe, or report that the subscriber has left. Old links work, too."""
    return _unsubscribe_page(request, grant)


@router.post("/unsubscribe/{token}")
def unsubscribe(request: Request, grant: Unsubscribe) -> Response:
    """Unsubscribe. The button and mail clients (RFC 8058) send this request. Its body is not read."""
    with db(request).write() as session:
        subscribers.unsubscribe(session, grant.subscriber_id, clock.utcnow())
    return _unsubscribe_page(request, grant)


def _unsubscribe_page(request: Request, grant: Grant) -> Response:
    with db(request).read() as session:
        subscriber = subscribers.get(session, grant.subscriber_id)
    done = subscriber.state in (SubscriberState.UNSUBSCRIBED, SubscriberState.ERASED)
    return private_page(request, "unsubscribe.html", done=done, masked_address=masked_address(subscriber))


@router.get("/export/{token}")
def ask_export(request: Request, grant: Export) -> Response:
    return private_page(request, "export.html")


@router.post("/export/{token}")
def export(request: Request, grant: Export) -> Response:
    with capacity(request).analyses.take(), db(request).read() as session:
        data = subscribers.export(session, grant.subscriber_id, clock.utcnow())
    name = {"Content-Disposition": 'attachment; filename="paperboy-export.json"'}
    content = json.dumps(data, indent=2, ensure_ascii=False)
    return Response(content, media_type="application/json", headers={**PRIVATE, **name})


@router.get("/erase/{token}")
def ask_erase(request: Request, grant: Erase) -> Response:
    """Ask whether to erase everything, or report that it has already been erased."""
    with db(request).read() as session:
        subscriber = subscribers.get(session, grant.subscriber_id)
    return private_page(
        request, "erase.html", done="before" if subscriber.state is SubscriberState.ERASED else ""
    )


@router.post("/erase/{token}")
def erase(request: Request, grant: Erase, keep_off: Text = "") -> Response:
    with db(request).write() as session:
        subscribers.erase(session, grant.subscriber_id, clock.utcnow(), suppress=keep_off == "yes")
    return private_page(request, "erase.html", done="now", suppressed=keep_off == "yes")
