"""Confirm or decline a sign-up, and confirm a change of address, behind signed links.

GET shows a page with a button. POST acts, and is idempotent.
"""

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, BackgroundTasks, Response
from fastapi.responses import RedirectResponse
from sqlmodel import Session

from app import clock, subscribers
from app.links import Purpose
from app.storage.models import AddressChange, Subscriber, SubscriberState
from app.web import background, feedback_overview
from app.web.forms import Text
from app.web.link_access import PRIVATE, SignedLink, allows, signed_path, subscriber_links
from app.web.request_bodies import FormRoute
from app.web.visitors import client_ip

router = APIRouter(include_in_schema=False, route_class=FormRoute)

LINKS_FOR = timedelta(days=1)  # after a confirmation, its page links to the preferences

Confirm = Annotated[SignedLink, allows(Purpose.CONFIRM)]
Decline = Annotated[SignedLink, allows(Purpose.DECLINE)]
ConfirmAddress = Annotated[SignedLink, allows(Purpose.ADDRESS)]


@router.get("/confirm/{token}")
def ask_confirm(link: Confirm) -> Response:
    """Show the sign-up and ask to confirm it. After a confirmation, show the next steps."""
    with link.db.read() as session:
        subscriber = subscribers.get(session, link.subscriber_id)
        if subscriber.state in (SubscriberState.ACTIVE, SubscriberState.PAUSED):
            return _confirmed_page(link, session, subscriber)
        if subscribers.is_declined(session, link.grant.argument):
            return _redirect_to_decline(link, subscriber)
        subscribers.require_not_suppressed(session, subscriber)
        choices = subscribers.pending_choices(session, link.subscriber_id, link.grant.argument or None)
        overview = feedback_overview.overview(session, link.subscriber_id)
    liked = choices.liked.usable if choices else 0
    return link.page(
        "confirm.html", subscriber=subscriber, preferences=choices.preferences if choices else None,
        liked=liked or len(overview.liked), consent=subscribers.CONSENT_TEXT,
    )  # fmt: skip


@router.post("/confirm/{token}")
def confirm(link: Confirm) -> Response:
    """Confirm the sign-up. Redirect, so that a reload shows the next steps."""
    ip, delivery_id = client_ip(link.request), link.grant.argument or None
    with link.db.write() as session:
        if subscribers.is_declined(session, link.grant.argument):
            subscriber = subscribers.get(session, link.subscriber_id)
            return _redirect_to_decline(link, subscriber)
        subscribers.confirm(session, link.subscriber_id, ip, clock.utcnow(), delivery_id)
    return RedirectResponse(link.request.url.path, status_code=303, headers=PRIVATE)


def _redirect_to_decline(link: SignedLink, subscriber: Subscriber) -> Response:
    """Redirect to the page that offers to allow sign-ups again."""
    path = signed_path(link.app, Purpose.DECLINE, subscriber, clock.utcnow(), link.grant.argument)
    return RedirectResponse(path, status_code=303, headers=PRIVATE)


def _confirmed_page(link: SignedLink, session: Session, subscriber: Subscriber) -> Response:
    now = clock.utcnow()
    is_first = subscribers.first_digest(session, subscriber, now) is None
    last = subscribers.last_confirmation(session, link.subscriber_id)
    is_another = last is not None and last.delivery_id != (link.grant.argument or None)
    is_recent = last is not None and now < last.at + LINKS_FOR  # later, others may have got this link
    return link.page(
        "confirmed.html", subscriber=subscriber, is_first=is_first, is_another=is_another,
        links=subscriber_links(link.request, subscriber, now) if is_recent else None,
    )  # fmt: skip


@router.get("/decline/{token}")
def ask_decline(link: Decline) -> Response:
    """Ask whether to decline the sign-up. If it has already been declined, offer to allow sign-ups again.

    If it has been confirmed, say that it is too late.
    """
    with link.db.read() as session:
        declined = subscribers.is_declined(session, link.grant.argument)
        state = subscribers.get(session, link.subscriber_id).state
    confirmed = "subscribed" if state in (SubscriberState.ACTIVE, SubscriberState.PAUSED) else ""
    return _decline_page(link, "before" if declined else confirmed)


@router.post("/decline/{token}")
def decline(link: Decline, action: Text = "") -> Response:
    """Decline the sign-up. With the action `allow`, allow mail for later sign-ups again."""
    with link.db.write() as session:
        if action == "allow":
            subscribers.allow_again(session, link.grant.argument)
            return _decline_page(link, "allowed")
        declined = subscribers.decline(
            session, link.subscriber_id, clock.utcnow(), link.grant.argument or None
        )
    return _decline_page(link, "declined" if declined else "subscribed")


def _decline_page(link: SignedLink, done: str) -> Response:
    return link.page("decline.html", done=done, days=subscribers.DECLINE_LASTS.days)


@router.get("/address/{token}")
def ask_address(link: ConfirmAddress) -> Response:
    with link.db.read() as session:
        change = subscribers.open_change(session, link.subscriber_id, link.grant.argument, clock.utcnow())
    return _address_page(link, change)


@router.post("/address/{token}")
def confirm_address(link: ConfirmAddress, later: BackgroundTasks, email: Text = "") -> Response:
    """Confirm a change of address from the old or the new address. The second confirmation completes it."""
    now = clock.utcnow()
    with link.db.write() as session:
        ids = link.subscriber_id, link.grant.argument
        change = subscribers.open_change(session, *ids, now)
        if change is None:
            return _address_page(link, None)
        subscriber = subscribers.get(session, change.subscriber_id)
        request_id = subscribers.confirm_change(session, *ids, email, client_ip(link.request), now)
    if request_id is not None:
        later.add_task(background.answer_form, link.request, request_id)
    links = subscriber_links(link.request, subscriber, now)
    return _address_page(link, change, done=True, preferences=links["preferences"])


def _address_page(
    link: SignedLink,
    change: AddressChange | None,
    *,
    done: bool = False,
    preferences: str = "",  # the path of the subscriber's preferences, after a change
) -> Response:
    is_new = change is not None and change.subscriber_id != link.subscriber_id
    is_approved = change is not None and change.approved_at is not None and not is_new and not done
    return link.page(
        "address.html", change=change, is_new=is_new, is_approved=is_approved, done=done,
        preferences=preferences, paused=background.is_paused(link.request),
    )  # fmt: skip
