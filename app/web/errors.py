"""What went wrong, as a status and a page: never a stack trace, always a way on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.routing import Match

from app.errors import (
    Conflict,
    InvalidInput,
    LinkExpired,
    LinkForged,
    LinkReplaced,
    NotFound,
    NotReady,
    PaperboyError,
    SourceError,
    TooManyRequests,
)
from app.papers import bibliography
from app.storage.database import is_unavailable
from app.web import request_bodies, security
from app.web.templating import page

METHODS = ("DELETE", "GET", "PATCH", "POST", "PUT")
_STATUS: dict[type[PaperboyError], int] = {
    InvalidInput: 422,
    NotFound: 404,
    Conflict: 409,
    LinkExpired: 410,
    LinkForged: 403,
    TooManyRequests: 429,
    SourceError: 502,
    NotReady: 503,
}
UNAVAILABLE = (OperationalError, InterfaceError, PoolTimeout)


@dataclass(frozen=True, slots=True)
class ErrorPage:
    """What a person reads, and where they may go from here."""

    title: str
    text: str
    offer_link: bool = False  # asking for a fresh link would help


_FORGED = ErrorPage(
    "This link does not work",
    "It is not complete, or it was made for something else. If you copied it out of a mail, "
    "copy all of it; or ask for a fresh link.",
    offer_link=True,
)
_REPLACED = ErrorPage(
    "This link does not work any more",
    "It was replaced by newer links, or what it was for has ended. Open the link in our newest mail, or ask "
    "for a fresh one.",
    offer_link=True,
)
_TROUBLES = {
    400: ErrorPage("That could not be understood", "Please change it, and try again."),
    403: ErrorPage("That is not allowed", "Please open the page itself and try again from there."),
    404: ErrorPage("There is no such page", "The address may be mistyped, or the page was never here."),
    405: ErrorPage("That cannot be done here", "The page is there, but not for this kind of request."),
    409: ErrorPage(
        "That cannot be done now", "It was done already, or something has changed since this page was opened."
    ),
    410: ErrorPage(
        "This link has expired",
        "Links that change something work for a limited time, so that an old mail in the wrong hands "
        "cannot be used against you. Ask for a fresh one, and we mail it to you.",
        offer_link=True,
    ),
    413: ErrorPage(
        "That is too much at once",
        f"What is pasted may have {bibliography.MOST_BYTES // 1000} kB, and a file "
        f"{bibliography.MOST_FILE_BYTES // 1000} kB. Please go back and send less. Nothing was changed.",
    ),
    422: ErrorPage("Something in that request could not be used", "Please go back and look it over."),
    429: ErrorPage(
        "That was a lot at once",
        "Only so many requests are taken in a while, so that there is room for everybody, and mailboxes stay "
        "safe. Please wait a little, and try again.",
    ),
    500: ErrorPage(
        "Something went wrong on our side", "It has been noted. Please try again in a little while."
    ),
    503: ErrorPage(
        "The archive is being read; a moment, please",
        "After a start that takes some seconds. Please try again in a moment.",
    ),
}


RETRY_AFTER = 10  # seconds, where the database is busy

log = structlog.get_logger(__name__)


def status_of(error: PaperboyError) -> int:
    """The HTTP status of an error that Paperboy knows about."""
    return next((_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS), 500)


def headers_of(request: Request, error: HTTPException) -> Mapping[str, str]:
    """Return the headers of an HTTP error. Allow lists every method of the path, not those of one route."""
    headers = dict(error.headers or {})
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = ", ".join(method for method in METHODS if _takes(request, method))
    return headers


def _takes(request: Request, method: str) -> bool:
    scope = {**request.scope, "method": method}
    return any(route.matches(scope)[0] is Match.FULL for route in request.app.routes)


def install(site: FastAPI) -> None:
    """Give every error of the web pages a page of its own."""
    site.add_exception_handler(PaperboyError, _known)
    site.add_exception_handler(HTTPException, _refused)
    site.add_exception_handler(RequestValidationError, _unreadable)
    for kind in UNAVAILABLE:
        site.add_exception_handler(kind, _busy)
    site.add_exception_handler(Exception, _unknown)


def _known(request: Request, error: Exception) -> Response:
    assert isinstance(error, PaperboyError)  # noqa: S101 - what it was registered for
    extra = {}
    if isinstance(error, (TooManyRequests, NotReady)):
        extra = {"Retry-After": str(error.retry_after)}
    said = str(error) if isinstance(error, (InvalidInput, NotFound, Conflict)) else ""
    if isinstance(error, LinkForged):
        return _respond(request, 403, trouble=_FORGED)
    if isinstance(error, LinkReplaced):
        return _respond(request, 410, trouble=_REPLACED)
    return _respond(request, status_of(error), said, extra)


def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101
    plain = error.detail == HTTPStatus(error.status_code).phrase
    said = "" if plain else str(error.detail)
    return _respond(request, error.status_code, said, headers_of(request, error))


def _unreadable(request: Request, _error: Exception) -> Response:
    return _respond(request, 422)


def _busy(request: Request, error: Exception) -> Response:
    """Return a page that offers to send the same form again."""
    if not is_unavailable(error):
        raise error
    log.error("database unavailable", path=request.url.path, error=str(getattr(error, "orig", error)))
    # The page has a form: with no-referrer, a browser would hide its Origin. No other site sees the address.
    headers = {"Retry-After": str(RETRY_AFTER), "Referrer-Policy": "same-origin", "Cache-Control": "no-store"}
    form = request_bodies.parsed(request) or FormData()
    fields = [(name, value) for name, value in form.multi_items() if isinstance(value, str)]
    return page(
        request, "busy.html", status=503, headers=headers, method=request.method, fields=fields,
        file_lost=any(getattr(value, "filename", "") for value in form.values()),
    )  # fmt: skip


def _unknown(request: Request, _error: Exception) -> Response:
    # This page is made outside of the middleware, which would have added the headers.
    return _respond(request, 500, headers=security.headers(request.app.state.paperboy.settings))


def _respond(
    request: Request,
    status: int,
    said: str = "",
    headers: Mapping[str, str] | None = None,
    trouble: ErrorPage | None = None,
) -> Response:
    trouble = trouble or _TROUBLES.get(status) or ErrorPage(HTTPStatus(status).phrase, "")
    return page(
        request, "error.html", status=status, headers=headers, trouble=trouble, said=said, number=status
    )
