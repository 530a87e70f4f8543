"""Sign in to the admin pages with a key or an emailed link; check the scope and form token of each request.

The cookie has SameSite=Strict, so browsers never send it with requests that other sites cause. Other sites
can therefore neither submit forms nor measure the compressed size of pages that contain a text of theirs.
After a link on another site, operators get a page with a button that opens the same address, from our site.
"""

import hmac
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, TypedDict, Unpack
from urllib.parse import urlencode

import structlog
from fastapi import APIRouter, BackgroundTasks, Depends, FastAPI, HTTPException, Request, Response
from fastapi.params import Security
from fastapi.responses import RedirectResponse
from fastapi.security import SecurityScopes

from app import clock
from app.application import Application
from app.delivery import ledger
from app.doctor import operator_mail
from app.errors import PaperboyError, TooManyRequests
from app.storage import admin_sessions, api_keys, audit_log, sign_in_links
from app.storage.api_keys import ApiKeyIdentity, Scope
from app.storage.figure_cache import MAX_AGE, FigureReader
from app.text.in_words import sentence
from app.types import OperatorReport, ReportSection
from app.web import errors, templating
from app.web.admin.double_clicks import AdminRoute
from app.web.admin.timing import Timing
from app.web.api import auth
from app.web.capacity import Capacity
from app.web.errors import please_wait
from app.web.forms import Text
from app.web.security import ADMIN_PAGE, same_site
from app.web.site_state import application, capacity, db
from app.web.visitors import visitor

router = APIRouter(include_in_schema=False, route_class=AdminRoute)

COOKIE = "paperboy_admin"
HOME = "/admin"
KEY_LIFETIME = timedelta(days=1)  # lifetime of the key that a sign-in link creates
FORM_LOST = (
    "You were signed out before you pressed the button, so nothing was changed. Sign in, then do it again."
)

log = structlog.get_logger(__name__)


class SignInNeeded(Exception):
    """The request has no session, or the session has ended."""


class FormOutcome(TypedDict, total=False):
    """The result of a form, shown on the next page, and the status of the response.

    `message` may contain fields of `Timing`, such as `{timing.polls}`.
    """

    message: str
    problem: str
    status: int
    headers: Mapping[str, str]


def refusal(error: Exception, then: str) -> FormOutcome:
    """Return the outcome of a form that was refused. `then` says what to do after waiting, if that helps."""
    if isinstance(error, TooManyRequests):
        headers = {"Retry-After": str(error.retry_after)}
        return {"problem": please_wait(error, then), "status": 429, "headers": headers}
    return {"problem": str(error), "status": 422}


@dataclass(frozen=True, slots=True)
class Operator(auth.Caller):
    """An operator's request. The operator is a caller of the functions of the API."""

    request: Request
    form_token: str  # the operator's forms must contain it
    form_id: str  # differs each time that a page is shown, see `double_clicks`

    def may(self, scope: str) -> bool:
        return scope in self.key.scopes

    def reason(self, typed: str) -> str:
        """Return the typed reason for a change, or the name of the key if the reason is too short."""
        reason = typed.strip()[:500]
        return reason if len(reason) > 2 else f"by {self.key.name}"

    def page(self, template: str, *, headers: Mapping[str, str] = {}, **values: Any) -> Response:
        """Render an admin page. `values` are the template's variables and the fields of `FormOutcome`."""
        return _admin_page(self.request, template, self, headers=headers, **values)

    def confirmation_page(
        self,
        question: str,
        consequences: str,
        *,
        confirm: str,
        section: str,
        back: str,
        facts: Mapping[str, str],
        fields: Mapping[str, str] = {},
    ) -> Response:
        """Ask the operator to confirm an action that cannot be undone, and say what it does.

        The button, labeled `confirm`, sends a form to the path of the request. `section` is the path of the
        section of the admin pages, and `back` the page to which “Go back” leads. `facts` describes what the
        action is about. `fields` are hidden fields of the form. Code in `consequences` is between backticks.
        """
        return self.page(
            "admin/confirmation.html", question=question, consequences=consequences, confirm=confirm,
            section=section, back=back, facts=facts, fields=fields, action=self.request.url.path,
        )  # fmt: skip


def _find_session(request: Request, now: datetime) -> tuple[ApiKeyIdentity, bool] | None:
    """Return the result of `admin_sessions.find` for the cookie of a request."""
    app = application(request)
    secret = request.cookies.get(COOKIE, "")
    idle = timedelta(minutes=app.settings.admin_idle_minutes)
    longest = timedelta(hours=app.settings.admin_session_hours)
    with app.db.read() as session:
        return admin_sessions.find(session, secret, now, idle, longest) if secret else None


def is_signed_in(request: Request) -> bool:
    return _find_session(request, clock.utcnow()) is not None


def _recognize(request: Request, key: ApiKeyIdentity, now: datetime) -> Operator:
    """Return the operator of a request with a session, and store it for error pages."""
    secret = request.cookies[COOKIE]
    token, form_id = admin_sessions.form_token(secret), secrets.token_urlsafe(9)
    app = application(request)
    figures = FigureReader(app.db.figures, MAX_AGE)
    operator = Operator(app, capacity(request), key, now, figures, request, token, form_id)
    request.state.operator = operator
    return operator


def _operator(request: Request, needed: SecurityScopes) -> Operator:
    """Return the operator who sent a request.

    Raise SignInNeeded if there is no session, or HTTPException (403) if the key lacks the scope.
    """
    now = clock.utcnow()
    opened = _find_session(request, now)
    if opened is None:
        raise SignInNeeded
    key, is_stale = opened
    operator = _recognize(request, key, now)
    if not key.scopes.issuperset(needed.scopes):
        raise HTTPException(
            403,
            f"Your key “{key.name}” lacks the “{needed.scope_str}” scope. Sign in with a key that has it.",
        )
    if is_stale:
        with operator.db.write() as session:
            admin_sessions.touch(session, request.cookies[COOKIE], now)
    auth.note_use(operator.app, key, now)
    return operator


async def _admitted(operator: Annotated[Operator, Depends(_operator)]) -> AsyncIterator[Operator]:
    """Yield the operator while holding a slot of the API."""
    with operator.capacity.api.take():
        yield operator


def check_form_token(operator: Operator, form_token: str) -> None:
    """Raise HTTPException (403) if a form is not from the operator's session."""
    if not hmac.compare_digest(form_token.encode(), operator.form_token.encode()):
        raise HTTPException(403, "This form is from another session. Go back, reload the page and try again.")


def _submitted(operator: Annotated[Operator, Depends(_admitted)], form_token: Text = "") -> Operator:
    """Return the operator who submitted a form. Raise HTTPException (403) if it is not from their session."""
    check_form_token(operator, form_token)
    return operator


def _viewing(*scopes: Scope) -> Any:
    return Security(_admitted, scopes=[scope.value for scope in scopes], scope="function")


def _submitting(*scopes: Scope) -> Any:
    return Security(_submitted, scopes=[scope.value for scope in scopes], scope="function")


Reader = Annotated[Operator, _viewing(Scope.READ)]
Writer = Annotated[Operator, _submitting(Scope.WRITE)]  # a Writer or a Sender has submitted a form
Sender = Annotated[Operator, _submitting(Scope.SEND)]
# These operators view a page that asks before an action.
ProspectiveWriter = Annotated[Operator, _viewing(Scope.WRITE)]
ProspectiveSender = Annotated[Operator, _viewing(Scope.SEND)]
# Importing needs both scopes, because the subscribers are active at once. An `Importer` only views a page.
Importer = Annotated[Operator, _viewing(Scope.WRITE, Scope.SEND)]
ImportSubmitter = Annotated[Operator, _submitting(Scope.WRITE, Scope.SEND)]


def _admin_page(
    request: Request, template: str, operator: Operator | None, *, status: int = 200, problem: str = "",
    message: str = "", headers: Mapping[str, str] = {}, **values: Any,
) -> Response:  # fmt: skip
    """Render an admin page, which browsers must not store."""
    timing: Timing = request.app.state.timing
    if "{timing.mails}" in message and operator:
        with operator.db.read() as session:
            timing = timing.while_paused() if ledger.is_paused(session) else timing
    message = message.format(timing=timing)
    values |= {"operator": operator, "problem": sentence(problem), "message": message}
    return templating.page(request, template, status=status, headers={**ADMIN_PAGE, **headers}, **values)


def back_to(path: str, done: str = "", **query: object) -> Response:
    """Redirect to a page after a form, so that a reload does not submit it again.

    `done` names the message to show there.
    """
    query |= {"done": done} if done else {}
    address = f"{path}?{urlencode(query)}" if query else path
    return RedirectResponse(address, status_code=303, headers=ADMIN_PAGE)


def _sign_in_page(request: Request, to: str, *, email: str = "", **outcome: Unpack[FormOutcome]) -> Response:
    """Return the sign-in page. Never show the typed key."""
    by_mail = bool(application(request).settings.admin_addresses)
    return _admin_page(request, "admin/sign_in.html", None, to=to, email=email, by_mail=by_mail, **outcome)


@router.get("/admin/sign-in")
def ask_key(request: Request, to: str = HOME, done: str = "") -> Response:
    return _sign_in_page(request, _local(to), problem=FORM_LOST if done == "lost" else "")


@router.post("/admin/sign-in", dependencies=[Depends(same_site)])
def sign_in(request: Request, key: Text = "", to: Text = HOME) -> Response:
    """Open a session. Like the API, refuse requests from a network that sent too many wrong keys."""
    app = application(request)
    now = clock.utcnow()
    try:
        caller = auth.authenticate(request, key.strip(), now)
    except TooManyRequests as error:
        return _sign_in_page(request, _local(to), **refusal(error, "sign in again"))
    if caller is None or Scope.READ not in caller.scopes:
        problem = "This key is unknown, revoked or expired. Copy the whole key, or use another one."
        if caller:
            problem = "This key lacks the “read” scope. Sign in with a key that has it."
        return _sign_in_page(request, _local(to), problem=problem, status=403)
    with app.db.write() as session:
        secret = admin_sessions.create(session, caller, now)
    auth.note_use(app, caller, now)
    return _with_cookie(app, back_to(_local(to)), secret)


@router.post("/admin/sign-in/link", dependencies=[Depends(same_site)])
def mail_link(request: Request, later: BackgroundTasks, email: Text = "") -> Response:
    """Send a link to an operator. The response does not reveal whether the address is an operator's."""
    app, limits = application(request), capacity(request)
    try:
        limits.visitors.sign_in_links.hit(visitor(request))
        limits.mails.check()
    except TooManyRequests as error:
        return _sign_in_page(request, HOME, email=email[:320], **refusal(error, "ask for the link again"))
    address = next(
        (each for each in app.settings.admin_addresses if each.lower() == email.strip().lower()), ""
    )
    if address:
        later.add_task(_mail_link, app, limits, address)
    message = (
        "If this is an operator’s address, a link is on its way. If you already have an unused link that "
        "still works, no other is sent: use that one. Its email says how long it works."
    )
    return _sign_in_page(request, HOME, message=message)


def _mail_link(app: Application, limits: Capacity, address: str) -> None:
    """Email a link if a slot is free, because emails must not occupy all threads that serve requests."""
    try:
        with limits.mails.take():
            _send_link(app, address, clock.utcnow())
    except PaperboyError as error:
        log.warning("no sign-in link was sent", reason=str(error))


def _send_link(app: Application, address: str, now: datetime) -> None:
    with app.db.write() as session:
        link = sign_in_links.create(session, address, now)
    if link is None:
        return
    row, token = link
    text = (
        f"This link works once, until {row.expires_at:%Y-%m-%d %H:%M} UTC. If you did not ask for it, ignore "
        "this email."
    )
    section = ReportSection("Sign in", (text,))
    report = OperatorReport(
        f"Sign in to {app.settings.site_name}", (section,), f"{HOME}/sign-in/{token}", "Sign in"
    )
    try:
        operator_mail.send(app, [operator_mail.OperatorEmail(address, report)], now)
    except Exception:
        with app.db.write() as session:  # otherwise, no other link would be sent while this one works
            api_keys.revoke_by_id(session, row.id or 0, now)
        raise


@router.get("/admin/sign-in/{token}")
def confirm_link(request: Request, token: str) -> Response:
    """Show a button instead of signing in at once, because mail scanners open links."""
    return _admin_page(request, "admin/sign_in_link.html", None, token=token[:100])


@router.post("/admin/sign-in/{token}", dependencies=[Depends(same_site)])
def use_link(request: Request, token: str) -> Response:
    """Open a session with a link from an email, which works only once."""
    now = clock.utcnow()
    try:
        link = auth.authenticate(request, token, now)
    except TooManyRequests as error:
        return _sign_in_page(request, HOME, **refusal(error, "open the link again"))
    if link is None:
        problem = "This link has already been used or has expired. Request another one."
        return _sign_in_page(request, HOME, problem=problem, status=403)
    with db(request).write() as session:
        operator = sign_in_links.redeem(session, token, now, now + KEY_LIFETIME)
        if operator is None:
            raise HTTPException(404)
        secret = admin_sessions.create(session, operator, now)
        audit_log.record(session, operator.name, "operator.sign_in", operator.name, now)
    return _with_cookie(application(request), back_to(HOME), secret)


@router.post("/admin/sign-out", dependencies=[Depends(same_site)])
def sign_out(request: Request) -> Response:
    with db(request).write() as session:
        admin_sessions.close(session, request.cookies.get(COOKIE, ""))
    response = back_to(f"{HOME}/sign-in")
    response.delete_cookie(COOKIE, path=HOME)
    return response


def _with_cookie(app: Application, response: Response, secret: str) -> Response:
    response.set_cookie(
        COOKIE, secret, path=HOME, httponly=True, samesite="strict",
        secure=app.settings.base_url.startswith("https://"),
    )  # fmt: skip
    return response


def _local(path: str) -> str:
    """Return the path if it is below the admin pages, otherwise the path of the overview."""
    is_ours = path.startswith(f"{HOME}/") and path.isprintable() and "\\" not in path
    return path if is_ours else HOME


def install(site: FastAPI) -> None:
    """Register the responses to requests without a session, and to requests that match no route."""
    site.add_exception_handler(SignInNeeded, _to_sign_in)
    for status in (404, 405):
        site.add_exception_handler(status, _no_page)


def _no_page(request: Request, error: Exception) -> Response:
    """Return an error page. At /admin and below, it has the menu if the operator is signed in.

    If a request matches no route, `_operator` has not been called.
    """
    is_admin = f"{request.url.path}/".startswith(f"{HOME}/")
    if is_admin and not hasattr(request.state, "operator"):
        with suppress(*errors.UNAVAILABLE):
            if opened := _find_session(request, now := clock.utcnow()):
                _recognize(request, opened[0], now)
    return errors.request_error(request, error)


def _to_sign_in(request: Request, _error: Exception) -> Response:
    """Redirect to the sign-in page, unless a link on another site is why there is no cookie.

    After such a link, the page opens only on a click, because the other site has chosen its address. After a
    form, the page says that nothing was changed, and signing in leads back to the page of the form, or to its
    nearest parent if the form was on the response to another form.
    """
    if request.method != "GET":
        # Without the query, which may name the message of an earlier action.
        _, _, form_path = request.headers.get("referer", "").partition("?")[0].partition(HOME)
        return back_to(f"{HOME}/sign-in", "lost", to=errors.nearest_page(request, HOME + form_path))
    query = request.url.query
    address = request.url.path + (f"?{query}" if query else "")
    if request.headers.get("sec-fetch-site") == "cross-site":
        return _admin_page(request, "admin/cross_site_link.html", None, status=403, address=address)
    return back_to(f"{HOME}/sign-in", to=address)
