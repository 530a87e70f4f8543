"""Confirm or decline a sign-up, and confirm a change of address, behind signed links.

GET shows a page with a button. POST acts, and is idempotent.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, BackgroundTasks, Request, Response
from fastapi.responses import RedirectResponse
from sqlmodel import Session

from app import clock, subscribers
from app.links import Grant, Purpose
from app.storage.models import AddressChange, Subscriber, SubscriberState
from app.web import background, feedback_overview
from app.web.forms import Text
from app.web.link_access import PRIVATE, allows, private_page, signed_path, subscriber_links
from app.web.request_bodies import FormRoute
from app.web.site_state import application, db
from app.web.visitors import client_ip

router = APIRouter(include_in_schema=False, route_class=FormRoute)

LINKS_FOR = timedelta(days=1)  # after a confirmation, its page links to the preferences

Confirm = Annotated[Grant, allows(Purpose.CONFIRM)]
Decline = Annotated[Grant, allows(Purpose.DECLINE)]
ConfirmAddress = Annotated[Grant, allows(Purpose.ADDRESS)]


@router.get("/confirm/{token}")
def ask_confirm(request: Request, grant: Confirm) -> Response:
    """Show the sign-up and ask to confirm it. After a confirmation, show the next steps."""
    with db(request).read() as session:
        subscriber = subscribers.get(session, grant.subscriber_id)
        if subscriber.state in (SubscriberState.ACTIVE, SubscriberState.PAUSED):
            return _confirmed_page(request, session, subscriber, grant)
        if subscribers.is_declined(session, grant.argument):
            return _redirect_to_decline(request, subscriber, grant)
        subscribers.require_not_suppressed(session, subscriber)
        choices = subscribers.pending_choices(session, grant.subscriber_id, grant.argument or None)
        overview = feedback_overview.overview(session, grant.subscriber_id)
    liked = choices.liked.usable if choices else 0
    return private_page(
        request, "confirm.html", subscriber=subscriber, preferences=choices.preferences if choices else None,
        liked=liked or len(overview.liked), consent=subscribers.CONSENT_TEXT,
    )  # fmt: skip


@router.post("/confirm/{token}")
def confirm(request: Request, grant: Confirm) -> Response:
    """Confirm the sign-up. Redirect, so that a reload shows the next steps."""
    ip, delivery_id = client_ip(request), grant.argument or None
    with db(request).write() as session:
        if subscribers.is_declined(session, grant.argument):
            subscriber = subscribers.get(session, grant.subscriber_id)
            return _redirect_to_decline(request, subscriber, grant)
        subscribers.confirm(session, grant.subscriber_id, ip, clock.utcnow(), delivery_id)
    return RedirectResponse(request.url.path, status_code=303, headers=PRIVATE)


def _redirect_to_decline(request: Request, subscriber: Subscriber, grant: Grant) -> Response:
    """Redirect to the page that offers to allow sign-ups again."""
    path = signed_path(application(request), Purpose.DECLINE, subscriber, clock.utcnow(), grant.argument)
    return RedirectResponse(path, status_code=303, headers=PRIVATE)


def _confirmed_page(request: Request, session: Session, subscriber: Subscriber, grant: Grant) -> Response:
    now = clock.utcnow()
    is_first = subscribers.first_digest(session, subscriber, now) is None
    last = subscribers.last_confirmation(session, grant.subscriber_id)
    is_another = last is not None and last.delivery_id != (grant.argument or None)
    is_recent = last is not None and now < last.at + LINKS_FOR  # later, others may have got this link
    return private_page(
        request, "confirmed.html", subscriber=subscriber, is_first=is_first, is_another=is_another,
        links=subscriber_links(request, subscriber, now) if is_recent else None,
    )  # fmt: skip


@router.get("/decline/{token}")
def ask_decline(request: Request, grant: Decline) -> Response:
    """Ask whether to decline the sign-up. If it has already been declined, offer to allow sign-ups again."""
    with db(request).read() as session:
        declined = subscribers.is_declined(session, grant.argument)
    return _decline_page(request, "before" if declined else "")


@router.post("/decline/{token}")
def decline(request: Request, grant: Decline, action: Text = "") -> Response:
    """Decline the sign-up. With the action `allow`, allow mail for later sign-ups again."""
    with db(request).write() as session:
        if action == "allow":
            subscribers.allow_again(session, grant.argument)
            return _decline_page(request, "allowed")
        declined = subscribers.decline(session, grant.subscriber_id, clock.utcnow(), grant.argument or None)
    return _decline_page(request, "declined" if declined else "subscribed")


def _decline_page(request: Request, done: str) -> Response:
    return private_page(request, "decline.html", done=done, days=subscribers.DECLINE_LASTS.days)


@router.get("/address/{token}")
def ask_address(request: Request, grant: ConfirmAddress) -> Response:
    with db(request).read() as session:
        change = subscribers.open_change(session, grant.subscriber_id, grant.argument, clock.utcnow())
    return _address_page(request, grant, change)


@router.post("/address/{token}")
def confirm_address(
    request: Request, grant: ConfirmAddress, later: BackgroundTasks, email: Text = ""
) -> Response:
    """Confirm a change of address from the old or the new address. The second confirmation completes it."""
    now = clock.utcnow()
    with db(request).write() as session:
        link = grant.subscriber_id, grant.argument
        change = subscribers.open_change(session, *link, now)
        if change is None:
            return _address_page(request, grant, None)
        subscriber = subscribers.get(session, change.subscriber_id)
        request_id = subscribers.confirm_change(session, *link, email, client_ip(request), now)
    if request_id is not None:
        later.add_task(background.answer_form, request, request_id)
    links = subscriber_links(request, subscriber, now)
    return _address_page(request, grant, change, done=True, preferences=links["preferences"])


def _address_page(
    request: Request,
    grant: Grant,
    change: AddressChange | None,
    *,
    done: bool = False,
    preferences: str = "",  # the path of the subscriber's preferences, after a change
) -> Response:
    is_new = change is not None and change.subscriber_id != grant.subscriber_id
    is_approved = change is not None and change.approved_at is not None and not is_new and not done
    return private_page(
        request, "address.html", change=change, is_new=is_new, is_approved=is_approved, done=done,
        preferences=preferences,
    )  # fmt: skip
