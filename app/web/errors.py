"""Map errors to an HTTP status and an error page."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus

import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse, RedirectResponse
from sqlalchemy.exc import DataError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.routing import Match

from app.errors import (
    AddressSuppressed,
    Conflict,
    DigestDeleted,
    DigestNotSent,
    InvalidInput,
    LinkExpired,
    LinkForged,
    LinkOfTest,
    LinkReplaced,
    NotFound,
    NotReady,
    PaperboyError,
    PreconditionFailed,
    SourceError,
    TooManyRequests,
)
from app.papers import bibliography
from app.storage.database_errors import is_outage, is_unavailable
from app.text.in_words import count_of
from app.web import request_bodies, security
from app.web.site_state import application
from app.web.templating import page

METHODS = ("DELETE", "GET", "PATCH", "POST", "PUT")
_STATUS: dict[type[PaperboyError], int] = {
    InvalidInput: 422,
    NotFound: 404,
    DigestDeleted: 410,
    Conflict: 409,
    PreconditionFailed: 412,
    LinkExpired: 410,
    LinkForged: 403,
    TooManyRequests: 429,
    SourceError: 502,
    NotReady: 503,
}
UNAVAILABLE = (OperationalError, InterfaceError, PoolTimeout)


@dataclass(frozen=True, slots=True)
class ErrorPage:
    """The text of an error page."""

    title: str
    text: str
    offer_link: bool = False  # whether the page offers to request a new link
    offer_search: bool = False  # whether the page links to the search


_PAGES_OF_ERRORS: dict[type[PaperboyError], ErrorPage] = {
    AddressSuppressed: ErrorPage(
        "Mail to this address is blocked",
        "We can’t send you any emails. Please contact us, and we’ll lift the block.",
    ),
    LinkForged: ErrorPage(
        "This link does not work",
        "It is incomplete, or it is meant for another page. If you copied it from an email, make sure that "
        "you copied all of it, or request a new link.",
        offer_link=True,
    ),
    LinkOfTest: ErrorPage(
        "This link is from a test email",
        "A test email does not belong to a subscriber, so its links do nothing. The same links work in the "
        "digests of subscribers.",
    ),
    LinkReplaced: ErrorPage(
        "This link no longer works",
        "It was replaced by a newer link, or it is no longer needed. Open the link in our latest email, or "
        "request a new one.",
        offer_link=True,
    ),
    DigestDeleted: ErrorPage(
        "This digest is no longer stored",
        "Digests are deleted after a while. You can find their papers with the search.",
        offer_search=True,
    ),
    DigestNotSent: ErrorPage(
        "This digest has not been sent",
        "The operator of this service may still release it. Then you get it by email.",
    ),
    NotReady: ErrorPage(
        "The search is not ready yet",
        "Its index is being built. Please try again in a minute. All other pages work.",
    ),
}
_PAGES = {
    400: ErrorPage("We couldn’t understand this request", "Please change it and try again."),
    403: ErrorPage("This is not allowed", "Please open the page itself and try again from there."),
    404: ErrorPage("Page not found", "Please check the address for typing errors."),
    405: ErrorPage("This can’t be done here", "The page exists, but not for this kind of request."),
    409: ErrorPage(
        "This can’t be done now",
        "It has already been done, or something has changed since you opened this page.",
    ),
    410: ErrorPage(
        "This link has expired",
        "To protect you, links that change something work for a limited time only. Request a new one and "
        "we’ll send it to you by email.",
        offer_link=True,
    ),
    413: ErrorPage(
        "This is too much at once",
        f"Pasted text can be up to {bibliography.MAX_BYTES // 1000} kB, and a file up to "
        f"{bibliography.MAX_FILE_BYTES // 1000} kB. Please go back and send less. Nothing was changed.",
    ),
    422: ErrorPage("Something in this request is not valid", "Please go back and check it."),
    429: ErrorPage(
        "Too many requests",
        "We limit requests so that the service stays available and nobody gets unwanted emails.",
    ),
    500: ErrorPage(
        "Something went wrong on our side", "We have logged the error. Please try again in a little while."
    ),
    503: ErrorPage("We can’t do this right now", "Nothing was changed."),
}


RETRY_AFTER = 10  # seconds, if the database is busy or unreachable

log = structlog.get_logger(__name__)


def wait_in_words(seconds: int) -> str:
    """Format a waiting time, such as "1 second", "40 seconds" or "3 minutes"."""
    return count_of(seconds, "second") if seconds <= 90 else count_of(math.ceil(seconds / 60), "minute")


def please_wait(error: TooManyRequests, then: str) -> str:
    """Return the advice for a visitor whose form was refused: how long to wait, and what to do then."""
    return f"Too many requests. Please wait {wait_in_words(error.retry_after)}, then {then}."


def with_retry_after(response: Response, error: TooManyRequests) -> Response:
    """Set the Retry-After header of a response to the time to wait, and return the response."""
    response.headers["Retry-After"] = str(error.retry_after)
    return response


def status_of(error: PaperboyError) -> int:
    """Return the HTTP status of one of Paperboy's own errors."""
    return next((_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS), 500)


def headers_of(request: Request, error: HTTPException) -> Mapping[str, str]:
    """Return the headers for an HTTP error. The Allow header lists the methods of all matching routes."""
    headers = dict(error.headers or {})
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        path = request.scope["path"]
        headers["Allow"] = ", ".join(method for method in METHODS if _has_route(request, method, path))
    return headers


def _has_route(request: Request, method: str, path: str) -> bool:
    scope = {**request.scope, "method": method, "path": path}
    return any(route.matches(scope)[0] is Match.FULL for route in request.app.routes)


def nearest_page(request: Request, path: str) -> str:
    """Return the path if it answers GET, otherwise its nearest parent, or the home page if no parent does."""
    while path and not _has_route(request, "GET", path):
        path = path.rpartition("/")[0]
    return path or "/"


def log_refused_value(request: Request, error: DataError) -> None:
    """Log that PostgreSQL cannot store a value of a request.

    Log neither values, which may be addresses, nor the path itself, which may contain a signed link.
    """
    path = getattr(request.scope.get("route"), "path", "")
    kind = type(error.orig).__name__
    log.warning("the database refused a value", path=path, error=kind, statement=error.statement)


def install(site: FastAPI) -> None:
    """Register the error pages."""
    for kind in (PaperboyError, HTTPException, RequestValidationError, DataError):
        site.add_exception_handler(kind, request_error)
    for unavailable in UNAVAILABLE:
        site.add_exception_handler(unavailable, _database_error)
    site.add_exception_handler(Exception, _unexpected_error)


def request_error(request: Request, error: Exception) -> Response:
    """Return the page of an error that the request caused."""
    match error:
        case PaperboyError():
            error_page = _PAGES_OF_ERRORS.get(type(error))
            has_detail = error_page is None and isinstance(error, (InvalidInput, NotFound, Conflict))
            detail = str(error) if has_detail else ""
            headers = None
            if isinstance(error, (TooManyRequests, NotReady)):
                headers = {"Retry-After": str(error.retry_after)}
            if isinstance(error, TooManyRequests) and request_bodies.parsed(request):
                return _busy(request, 429, error.retry_after, "Too many requests")
            if isinstance(error, TooManyRequests):
                detail = please_wait(error, "try again").removeprefix("Too many requests. ")
            return _respond(request, status_of(error), detail, headers, error_page)
        case HTTPException(status_code=HTTPStatus.METHOD_NOT_ALLOWED) if request.method == "GET":
            # Someone opened the address of a form's response: in a restored tab, from a bookmark, or with
            # Enter in the address bar.
            to = nearest_page(request, request.url.path)
            return RedirectResponse(to, status_code=303, headers={"Cache-Control": "no-store"})
        case HTTPException():
            is_default = error.detail == HTTPStatus(error.status_code).phrase
            detail = "" if is_default else str(error.detail)
            return _respond(request, error.status_code, detail, headers_of(request, error))
        case DataError():
            log_refused_value(request, error)
    return _respond(request, 422)


def _database_error(request: Request, error: Exception) -> Response:
    if not is_unavailable(error):
        raise error
    log.error("database unavailable", path=request.url.path, error=str(getattr(error, "orig", error)))
    title = "The service can’t use its database" if is_outage(error) else "The service is busy"
    return _busy(request, 503, RETRY_AFTER, title)


def _busy(request: Request, status: int, retry_after: int, title: str) -> Response:
    """Return a page with a button that submits the same form again, or text if the route returns text."""
    # With no-referrer, browsers would not send the Origin of the form. Other sites still get no referrer.
    headers = {"Retry-After": str(retry_after), "Referrer-Policy": "same-origin", "Cache-Control": "no-store"}
    if getattr(request.scope.get("route"), "response_class", None) is PlainTextResponse:
        return PlainTextResponse(f"{title}.\n", status, headers)
    form = request_bodies.parsed(request) or FormData()
    fields = [(name, value) for name, value in form.multi_items() if isinstance(value, str)]
    values = {
        "status_code": status,
        "title": title,
        "wait": wait_in_words(retry_after),
        "method": request.method,
    }
    return page(
        request, "busy.html", status=status, headers=headers, **values, fields=fields,
        file_lost=any(getattr(value, "filename", "") for value in form.values()),
    )  # fmt: skip


def _unexpected_error(request: Request, _error: Exception) -> Response:
    # This response bypasses the middleware that adds these headers to all other responses.
    return _respond(request, 500, headers=security.headers(application(request).settings))


def _respond(
    request: Request,
    status: int,
    detail: str = "",
    headers: Mapping[str, str] | None = None,
    error_page: ErrorPage | None = None,
) -> Response:
    error = error_page or _PAGES.get(status) or ErrorPage(HTTPStatus(status).phrase, "")
    if operator := getattr(request.state, "operator", None):  # signed in to the admin pages
        if status == HTTPStatus.NOT_FOUND and request.method == "POST":
            error = _PAGES[HTTPStatus.CONFLICT]  # the operator typed no address
        if status == HTTPStatus.CONFLICT and detail:
            error = replace(error, text="")  # the detail says what has changed
        return page(
            request, "admin/error.html", status=status, headers={**(headers or {}), **security.ADMIN_PAGE},
            error=error, detail=detail, operator=operator, message="", problem="",
        )  # fmt: skip
    return page(
        request, "error.html", status=status, headers=headers, error=error, detail=detail, code=status
    )
