"""Verify signed links in paths, and respond with pages that must not be cached."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fastapi import Depends, Request, Response
from fastapi.responses import RedirectResponse

from app import clock, subscribers
from app.application import Application
from app.errors import LinkForged, LinkOfTest, LinkReplaced
from app.links import Grant, Purpose
from app.storage.database import Database
from app.storage.models import Subscriber, SubscriberState
from app.text.domains import readable_address
from app.web import templating
from app.web.site_state import application, db

PRIVATE = {"Cache-Control": "no-store", "X-Robots-Tag": "noindex, nofollow"}
# Links that still work for an erased subscriber. The erasure has already done what the first three ask for.
# The link to confirm a new address belongs to the pending sign-up with that address, and using it erases the
# sign-up.
_DONE_BY_ERASING = (Purpose.ERASE, Purpose.DECLINE, Purpose.UNSUBSCRIBE, Purpose.ADDRESS)


def granted(request: Request, purpose: Purpose, token: str) -> Grant:
    """Return the grant of a signed link. Raise LinkForged, LinkOfTest, LinkExpired or LinkReplaced."""
    grant = application(request).signer.verify(purpose, token, clock.utcnow())
    with db(request).read() as session:
        subscriber = session.get(Subscriber, grant.subscriber_id)
        # After a decline, the confirmation link leads to the page that explains the decline.
        is_declined = purpose is Purpose.CONFIRM and subscribers.is_declined(session, grant.argument)
    if subscriber is None:
        raise LinkForged if grant.subscriber_id else LinkOfTest
    if grant.is_older_than(subscriber.created_at):
        raise LinkReplaced
    if subscriber.state is SubscriberState.ERASED and (purpose in _DONE_BY_ERASING or is_declined):
        return grant
    # The unsubscribe links in all emails work, however old they are.
    if grant.epoch != subscriber.link_epoch and purpose is not Purpose.UNSUBSCRIBE:
        raise LinkReplaced
    return grant


@dataclass(frozen=True, slots=True)
class SignedLink:
    """A request with a valid signed link."""

    request: Request
    grant: Grant
    token: str

    @property
    def app(self) -> Application:
        return application(self.request)

    @property
    def db(self) -> Database:
        return self.app.db

    @property
    def subscriber_id(self) -> int:
        return self.grant.subscriber_id

    def page(self, template: str, *, headers: Mapping[str, str] = {}, **values: Any) -> Response:
        """Render a page, which has the link's `token`, with headers that forbid caching and indexing."""
        values["token"] = self.token
        return templating.page(self.request, template, headers={**headers, **PRIVATE}, **values)

    def redirect_to_itself(self, message: str) -> Response:
        """Redirect to the page of the link, so that browsers can go back to it.

        `message` names the message to show there, if any.
        """
        done = f"?done={message}" if message else ""
        return RedirectResponse(self.request.url.path + done, status_code=303, headers=PRIVATE)

    def redirect_to_preferences(self, message: str, rest: str = "", *, at: str = "") -> Response:
        """Redirect to the preferences, or to the page `at` below them. A reload does not resend the form.

        `message` names the message to show there. `rest` is appended to the URL.
        """
        path = f"/{Purpose.PREFERENCES}/{self.token}{at}?done={message}{rest}"
        return RedirectResponse(path, status_code=303, headers=PRIVATE)


def allows(purpose: Purpose) -> Any:
    """Return a dependency that verifies the token in the path and returns the signed link."""

    def verified(request: Request, token: str) -> SignedLink:
        return SignedLink(request, granted(request, purpose, token), token)

    return Depends(verified)


def feed_path(app: Application, subscriber: Subscriber) -> str:
    """Return the path of a subscriber's own feed. It changes only when their links are replaced."""
    return signed_path(app, Purpose.FEED, subscriber, subscriber.created_at)


def signed_path(
    app: Application, purpose: Purpose, subscriber: Subscriber, at: datetime, argument: int = 0
) -> str:
    """Return the path of a signed link for a subscriber, issued at `at`."""
    token = app.signer.token(purpose, subscriber.id or 0, at, epoch=subscriber.link_epoch, argument=argument)
    return f"/{purpose}/{token}"


def subscriber_links(request: Request, subscriber: Subscriber, now: datetime) -> dict[str, str]:
    """Return the paths of a subscriber's own pages. Links to download or erase data are only emailed."""
    app = application(request)
    return {
        "preferences": signed_path(app, Purpose.PREFERENCES, subscriber, now),
        "unsubscribe": signed_path(app, Purpose.UNSUBSCRIBE, subscriber, now),
        "feed": feed_path(app, subscriber),
    }


def masked_address(subscriber: Subscriber) -> str:
    """Return an address with most of its local part hidden, because emails get forwarded.

    Return "" if the subscriber was erased.
    """
    if subscriber.state is SubscriberState.ERASED:
        return ""
    name, _, domain = subscriber.email.rpartition("@")
    return readable_address(f"{name[:1] if len(name) > 2 else ''}…@{domain}")
