"""What went wrong, as a status and a page: never a stack trace, always a way on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from app import bibliography
from app.errors import (
    Conflict,
    InvalidInput,
    LinkExpired,
    LinkForged,
    NotFound,
    NotReady,
    PaperboyError,
    SourceError,
    TooManyRequests,
)
from app.web import security
from app.web.pages import page

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


@dataclass(frozen=True, slots=True)
class Trouble:
    """What a person reads, and where they may go from here."""

    title: str
    text: str
    offer_link: bool = False  # asking for a fresh link would help


_FORGED = Trouble(
    "This link does not work",
    "It is not complete, or it was made for something else. If you copied it out of a mail, "
    "copy all of it; or ask for a fresh link.",
    offer_link=True,
)
_TROUBLES = {
    400: Trouble("That could not be understood", "Please change it, and try again."),
    403: Trouble("That is not allowed", "Please open the page itself and try again from there."),
    404: Trouble("There is no such page", "The address may be mistyped, or the page was never here."),
    405: Trouble("That cannot be done here", "The page is there, but not for this kind of request."),
    409: Trouble("That does not fit any more", "Something has changed since this page was opened."),
    410: Trouble(
        "This link has expired",
        "Links that change something work for a limited time, so that an old mail in the wrong hands "
        "cannot be used against you. A fresh one is on its way as soon as you ask for it.",
        offer_link=True,
    ),
    413: Trouble(
        "That is too much at once",
        f"What is pasted may have {bibliography.MOST_BYTES // 1000} kB, and a file "
        f"{bibliography.MOST_FILE_BYTES // 1000} kB. Please go back and send less. Nothing was changed.",
    ),
    422: Trouble("Something in that request could not be used", "Please go back and look it over."),
    429: Trouble(
        "That was a lot at once",
        "Only so many requests are taken in a while, so that there is room for everybody, and mailboxes stay "
        "safe. Please wait a little, and try again.",
    ),
    500: Trouble(
        "Something went wrong on our side", "It has been noted. Please try again in a little while."
    ),
    503: Trouble(
        "The archive is being read; a moment, please",
        "After a start that takes some seconds. Please try again in a moment.",
    ),
}


def status_of(error: PaperboyError) -> int:
    """The HTTP status of an error that Paperboy knows about."""
    return next((_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS), 500)


def install(site: FastAPI) -> None:
    """Give every error of the web pages a page of its own."""
    site.add_exception_handler(PaperboyError, _known)
    site.add_exception_handler(HTTPException, _refused)
    site.add_exception_handler(RequestValidationError, _unreadable)
    site.add_exception_handler(Exception, _unknown)


def _known(request: Request, error: Exception) -> Response:
    assert isinstance(error, PaperboyError)  # noqa: S101 - what it was registered for
    extra = {}
    if isinstance(error, (TooManyRequests, NotReady)):
        extra = {"Retry-After": str(error.retry_after)}
    said = str(error) if isinstance(error, (InvalidInput, NotFound, Conflict)) else ""
    if isinstance(error, LinkForged):
        return _respond(request, 403, trouble=_FORGED)
    return _respond(request, status_of(error), said, extra)


def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101
    plain = error.detail == HTTPStatus(error.status_code).phrase
    return _respond(request, error.status_code, "" if plain else str(error.detail), error.headers or {})


def _unreadable(request: Request, _error: Exception) -> Response:
    return _respond(request, 422)


def _unknown(request: Request, _error: Exception) -> Response:
    # This page is made outside of the middleware, which would have added the headers.
    return _respond(request, 500, headers=security.headers(request.app.state.paperboy.settings))


def _respond(
    request: Request,
    status: int,
    said: str = "",
    headers: Mapping[str, str] | None = None,
    trouble: Trouble | None = None,
) -> Response:
    trouble = trouble or _TROUBLES.get(status) or Trouble(HTTPStatus(status).phrase, "")
    return page(
        request, "error.html", status=status, headers=headers, trouble=trouble, said=said, number=status
    )
