"""The pages that a digest links to, except those for feedback and unsubscribing.

A digest may be forwarded, so these pages can only pause, resume or end the subscription. Other changes
require a link that is emailed on request.
"""

from typing import Annotated

from fastapi import APIRouter, BackgroundTasks, Response
from fastapi.responses import HTMLResponse

from app import clock, subscribers
from app.delivery import ledger, suppression
from app.errors import DigestDeleted, DigestNotSent, LinkForged
from app.links import Purpose
from app.storage.models import Delivery, SubscriberState
from app.web import background, forms
from app.web.link_access import PRIVATE, SignedLink, allows, masked_address, signed_path
from app.web.request_bodies import FormRoute
from app.web.security import MAIL_CSP
from app.web.visitors import client_ip

router = APIRouter(include_in_schema=False, route_class=FormRoute)

View = Annotated[SignedLink, allows(Purpose.VIEW)]
Subscription = Annotated[SignedLink, allows(Purpose.SUBSCRIPTION)]


@router.get("/subscription/{token}")
def show_subscription(link: Subscription) -> Response:
    """Show the interests and the schedule. Forms pause digests, or request the link to change the rest."""
    now = clock.utcnow()
    with link.db.read() as session:
        subscriber = subscribers.get(session, link.subscriber_id)
        preferences = subscribers.preferences_of(session, subscriber)
        is_suppressed = suppression.is_suppressed(session, subscriber.email)
    return link.page(
        "your_subscription.html", subscriber=subscriber, preferences=preferences,
        is_over=subscriber.state not in (SubscriberState.ACTIVE, SubscriberState.PAUSED),
        is_suppressed=is_suppressed, masked_address=masked_address(subscriber),
        unsubscribe=signed_path(link.app, Purpose.UNSUBSCRIBE, subscriber, now),
        pause=signed_path(link.app, Purpose.PAUSE, subscriber, now),
        until=forms.pause_form(subscriber, now),
    )  # fmt: skip


@router.post("/subscription/{token}")
def mail_link(link: Subscription, later: BackgroundTasks) -> Response:
    """Email the subscriber the link to their preferences, as the form at /manage does.

    Unlike that form, say if mail to the address is blocked: the signed link proves who the subscriber is.
    """
    with link.db.write() as session:
        subscriber = subscribers.get(session, link.subscriber_id)
        subscribers.require_not_suppressed(session, subscriber)
        stored = subscribers.request_link(session, subscriber.email, client_ip(link.request), clock.utcnow())
        masked = masked_address(subscriber)
    later.add_task(background.answer_form, link.request, stored)
    paused = background.is_paused(link.request)
    return link.page("link_sent.html", masked_address=masked, paused=paused)


@router.get("/view/{token}")
def view(link: View) -> Response:
    """Show a digest in the browser, rendered from its stored content.

    Raise LinkForged if it is the email of another subscriber, DigestDeleted if it is no longer stored, or
    DigestNotSent if the subscriber may not read it.
    """
    app = link.app
    with app.db.read() as session:
        delivery = session.get(Delivery, link.grant.argument)
        subscribers.get(session, link.subscriber_id)
        if delivery is not None and delivery.subscriber_id != link.subscriber_id:
            raise LinkForged
        mail = next(iter(ledger.mail_requests(session, [link.grant.argument], app.snapshots)), None)
        if not (mail and mail.digest and mail.digest.edition):
            raise DigestDeleted
        if delivery and not ledger.is_released(ledger.pauses(session), delivery, clock.utcnow()):
            raise DigestNotSent
    html = app.renderer.render(mail).html
    return HTMLResponse(html, headers={**PRIVATE, "Content-Security-Policy": MAIL_CSP})
