"""Public pages: the front page, sign-up, and requests for a preferences link."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, BackgroundTasks, Depends, Query, Request, Response

from app import clock, subscribers
from app.errors import TooManyRequests
from app.papers import bibliography
from app.subscribers import SignUp
from app.text import dates
from app.types import EmptyDigestPolicy, ParseResult
from app.web import background, forms, paper_cards, pasted_papers
from app.web import preview as previews
from app.web.errors import please_wait, with_retry_after
from app.web.form_throttle import LONGEST_PAUSE, FormThrottle
from app.web.forms import PreferencesForm, Text, Texts
from app.web.http_cache import public_page
from app.web.preview import Preview
from app.web.request_bodies import FormRoute
from app.web.security import PUBLIC_REFERRER, same_site
from app.web.site_state import application, capacity, db
from app.web.templating import page
from app.web.visitors import client_ip, visitor

router = APIRouter(include_in_schema=False, route_class=FormRoute)


@router.get("/")
def front(request: Request, interest: Annotated[list[str], Query()] = []) -> Response:  # noqa: B006
    """Show the sign-up form and the newest papers. Links on other pages may prefill interests."""
    settings = application(request).settings
    rows = forms.interest_rows(interest)
    form = PreferencesForm(
        rows=rows, cadence=settings.default_cadence, hour=str(settings.default_hour),
        zone=settings.default_zone, max_interests=settings.max_interests,
    )  # fmt: skip
    if rows:
        capacity(request).visitors.pages.hit(visitor(request))
        return _front_page(request, form)
    return public_page(request, ("/",), lambda: _front_page(request, form))


@router.get("/suggest")
def suggest(request: Request, q: str = "") -> list[str]:
    """Return the keywords that can complete a partly typed interest."""
    return paper_cards.suggestions(request, q[:60])


def sign_up_form(
    request: Request,
    email: Text = "",
    interest: Texts = [],  # noqa: B006 - FastAPI copies it
    cadence: Text = "",
    weekday: Text = "0",
    hour: Text = "",
    zone: Text = "",
    liked: Text = "",
    confirmed_email: Text = "",
) -> PreferencesForm:
    rows = forms.interest_rows(interest)
    empty = EmptyDigestPolicy.SKIP if rows else EmptyDigestPolicy.TRENDING
    settings = application(request).settings
    return PreferencesForm(
        email, rows, cadence or settings.default_cadence, weekday, hour, zone, when_empty=empty,
        max_papers=str(settings.default_max_papers), max_trending=str(settings.default_max_trending),
        liked=liked, confirmed_email=confirmed_email, max_interests=settings.max_interests,
    )  # fmt: skip


@router.post("/subscribe", dependencies=[Depends(same_site)])
def subscribe(
    request: Request,
    form: Annotated[PreferencesForm, Depends(sign_up_form)],
    later: BackgroundTasks,
    proof: Text = "",
) -> Response:
    """Store a sign-up. The response and its timing are the same for known and unknown addresses."""
    preferences = form.to_preferences()
    problems = forms.email_problems(form)
    problems |= subscribers.problems(preferences, form.max_interests)
    problems |= forms.problems_of("liked", bibliography.check_size, form.liked)
    if problems:
        return _front_page(request, replace(form, problems=problems), status=422)
    if challenge_page := _challenge(request, "/subscribe", form.email, proof, forms.sign_up_fields(form)):
        return challenge_page
    app = application(request)
    pasted = ParseResult()
    try:
        if form.liked.strip():  # take a slot only if papers were pasted
            with capacity(request).pastes.take():
                pasted = pasted_papers.parse(form.liked)
    except TooManyRequests as error:
        problem = please_wait(error, "send the form again")
        response = _front_page(request, replace(form, problems={"liked": problem}), status=429)
        return with_retry_after(response, error)
    matched = subscribers.MatchedReferences()
    if pasted.records:
        with app.db.read() as session:
            model, base_url = app.models.current(session), app.settings.base_url
            matched = subscribers.match_references(session, pasted.records, model, base_url)
    with app.db.write() as session:
        sign_up = SignUp(form.email, preferences, matched)
        stored = subscribers.request_sign_up(session, sign_up, client_ip(request), clock.utcnow())
    result = {"matched": matched, "rejections": pasted.rejections, "days": subscribers.DECLINE_LASTS.days}
    return _accepted(request, later, stored, "subscribed.html", email=form.email.strip(), **result)


@router.post("/preview", dependencies=[Depends(same_site)])
def preview(
    request: Request,
    form: Annotated[PreferencesForm, Depends(sign_up_form)],
    split: Text = "",
    change: Text = "",
    add: Text = "",
) -> Response:
    """Preview the digest for a form. Return only the preview if htmx requests it, else the whole page."""
    form = forms.add_interest(form, add)
    form, result = previews.validate_and_preview(request, form, split, change)
    if "hx-request" not in request.headers:
        return _front_page(request, form, result.status, result)
    headers = PUBLIC_REFERRER | result.headers
    return page(
        request,
        "preview.html",
        status=result.status,
        headers=headers,
        form=form,
        preview=result,
        at="/preview",
    )


@router.get("/manage")
def manage(request: Request) -> Response:
    """Show the form for requesting the link to the preferences."""
    return page(request, "request_link.html", headers=PUBLIC_REFERRER, form=PreferencesForm())


@router.post("/manage", dependencies=[Depends(same_site)])
def send_link(
    request: Request, later: BackgroundTasks, email: Text = "", confirmed_email: Text = "", proof: Text = ""
) -> Response:
    """Email the link if the address is known. The response does not reveal whether it is."""
    form = PreferencesForm(email, confirmed_email=confirmed_email)
    if problems := forms.email_problems(form):
        form = replace(form, problems=problems)
        return page(request, "request_link.html", status=422, headers=PUBLIC_REFERRER, form=form)
    fields = [("email", email), ("confirmed_email", confirmed_email)]
    if challenge_page := _challenge(request, "/manage", email, proof, fields):
        return challenge_page
    with db(request).write() as session:
        stored = subscribers.request_link(session, email, client_ip(request), clock.utcnow())
    return _accepted(request, later, stored, "link_sent.html", email=email.strip())


def _challenge(
    request: Request, action: str, email: str, proof: str, fields: Sequence[tuple[str, str]]
) -> Response | None:
    """Count a form submission before anything is stored or sent. Return a challenge page if one is needed.

    The page submits the form again: by script after a proof of work, or by a button after a pause.
    """
    limits: FormThrottle = request.app.state.form_throttle
    address = subscribers.normalize_address(email)
    challenge = limits.admit(client_ip(request), address, proof, clock.utcnow())
    if challenge is None:
        return None
    wait = str(challenge.pause or round(LONGEST_PAUSE.total_seconds()))
    return page(
        request, "challenge.html", status=429, headers={**PUBLIC_REFERRER, "Retry-After": wait},
        action=action, challenge=challenge, fields=fields,
    )  # fmt: skip


def _accepted(
    request: Request, later: BackgroundTasks, request_id: int, template: str, **values: Any
) -> Response:
    later.add_task(background.answer_form, request, request_id)
    # Close the connection. A second request on it would wait until the email is sent. The delay would reveal
    # that there was an email.
    headers = {**PUBLIC_REFERRER, "Connection": "close"}
    paused = background.is_paused(request)
    return page(request, template, headers=headers, paused=paused, **values)


def _front_page(
    request: Request, form: PreferencesForm, status: int = 200, preview: Preview | None = None
) -> Response:
    listing, words = paper_cards.newest_day(request), paper_cards.suggestions(request, limit=40)
    return page(
        request, "home.html", status=status, headers=PUBLIC_REFERRER | (preview.headers if preview else {}),
        form=form, listing=listing, words=words, zones=forms.zones(), preview=preview,
        unlisted_zones=dates.unlisted_zones(),
    )  # fmt: skip
