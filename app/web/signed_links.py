"""What a signed link in a path allows, and the pages behind it, which nobody may keep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import Depends, Request, Response
from fastapi.responses import RedirectResponse

from app import clock
from app.application import Application
from app.errors import LinkForged, LinkReplaced
from app.links import Grant, Purpose
from app.storage.database import Database
from app.storage.models import Subscriber, SubscriberState
from app.web import templating

PRIVATE = {"Cache-Control": "no-store", "X-Robots-Tag": "noindex, nofollow"}
# What may be asked once more of a reader who is erased: it is done already.
_DONE_BY_ERASING = (Purpose.ERASE, Purpose.DECLINE, Purpose.UNSUBSCRIBE)


def granted(request: Request, purpose: Purpose, token: str) -> Grant:
    """Return what the link allows. Raise LinkForged, LinkExpired or LinkReplaced."""
    app: Application = request.app.state.paperboy
    grant = app.signer.verify(purpose, token, clock.utcnow())
    with app.db.read() as session:
        reader = session.get(Subscriber, grant.subscriber_id)
    if reader is None:
        raise LinkForged
    if reader.state is SubscriberState.ERASED and purpose in _DONE_BY_ERASING:
        return grant
    # Leaving must work from a mail of any age.
    if grant.epoch != reader.link_epoch and purpose is not Purpose.UNSUBSCRIBE:
        raise LinkReplaced
    return grant


def allows(purpose: Purpose) -> Any:
    """A dependency: the grant of the token in the path."""

    def grant_of(request: Request, token: str) -> Grant:
        return granted(request, purpose, token)

    return Depends(grant_of)


def page(
    request: Request,
    template: str,
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    **values: Any,
) -> Response:
    """A page that no cache and no search engine keeps."""
    return templating.page(request, template, status=status, headers={**(headers or {}), **PRIVATE}, **values)


def redirect_to_preferences(request: Request, said: str, rest: str = "", *, at: str = "") -> Response:
    """To the page that the form stood on, the preferences or one `at` them: loading it anew sends nothing."""
    where = f"/{Purpose.PREFERENCES}/{request.path_params['token']}{at}?said={said}{rest}"
    return RedirectResponse(where, status_code=303, headers=PRIVATE)


def db(request: Request) -> Database:
    app: Application = request.app.state.paperboy
    return app.db
