"""The pages that a digest links to, except those for feedback and unsubscribing.

A digest may be forwarded, so these pages can only pause, resume or end the subscription. Other changes
require a link that is emailed on request.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, BackgroundTasks, Request, Response
from fastapi.responses import HTMLResponse

from app import clock, subscribers
from app.delivery import ledger
from app.errors import DigestDeleted, DigestNotSent, LinkForged
from app.links import Grant, Purpose
from app.storage.models import Delivery, SubscriberState
from app.web import background, forms
from app.web.link_access import PRIVATE, allows, masked_address, private_page, signed_path
from app.web.request_bodies import FormRoute
from app.web.security import MAIL_CSP
from app.web.site_state import application, db
from app.web.visitors import client_ip

router = APIRouter(include_in_schema=False, route_class=FormRoute)

View = Annotated[Grant, allows(Purpose.VIEW)]
Subscription = Annotated[Grant, allows(Purpose.SUBSCRIPTION)]


@router.get("/subscription/{token}")
def show_subscription(request: Request, grant: Subscription) -> Response:
    """Show the interests and the schedule. Forms pause digests, or request the link to change the rest."""
    now = clock.utcnow()
    with db(request).read() as session:
        subscriber = subscribers.get(session, grant.subscriber_id)
        preferences = subscribers.preferences_of(session, subscriber)
    return private_page(
        request, "your_subscription.html", subscriber=subscriber, preferences=preferences,
        is_over=subscriber.state not in (SubscriberState.ACTIVE, SubscriberState.PAUSED),
        masked_address=masked_address(subscriber),
        unsubscribe=signed_path(application(request), Purpose.UNSUBSCRIBE, subscriber, now),
        pause=signed_path(application(request), Purpose.PAUSE, subscriber, now),
        until=forms.pause_form(subscriber, now),
    )  # fmt: skip


@router.post("/subscription/{token}")
def mail_link(request: Request, grant: Subscription, later: BackgroundTasks) -> Response:
    """Email the subscriber the link to their preferences, as the form at /manage does."""
    with db(request).write() as session:
        subscriber = subscribers.get(session, grant.subscriber_id)
        stored = subscribers.request_link(session, subscriber.email, client_ip(request), clock.utcnow())
        masked = masked_address(subscriber)
    later.add_task(background.answer_form, request, stored)
    paused = background.is_paused(request)
    return private_page(request, "link_sent.html", masked_address=masked, paused=paused)


@router.get("/view/{token}")
def view(request: Request, grant: View) -> Response:
    """Show a digest in the browser, rendered from its stored content.

    Raise LinkForged if it is the email of another subscriber, DigestDeleted if it is no longer stored, or
    DigestNotSent if the subscriber may not read it.
    """
    app = application(request)
    with app.db.read() as session:
        delivery = session.get(Delivery, grant.argument)
        subscribers.get(session, grant.subscriber_id)
        if delivery is not None and delivery.subscriber_id != grant.subscriber_id:
            raise LinkForged
        mail = next(iter(ledger.mail_requests(session, [grant.argument], app.snapshots)), None)
        if not (mail and mail.digest and mail.digest.edition):
            raise DigestDeleted
        if delivery and not ledger.is_released(ledger.pauses(session), delivery, clock.utcnow()):
            raise DigestNotSent
    html = app.renderer.render(mail).html
    return HTMLResponse(html, headers={**PRIVATE, "Content-Security-Policy": MAIL_CSP})
