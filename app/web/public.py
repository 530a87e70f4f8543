"""Pages for everybody: what this is, signing up, asking for one's link."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import structlog
from fastapi import APIRouter, BackgroundTasks, Depends, Request, Response
from fastapi.responses import RedirectResponse

from app import clock, pipeline, subscribers
from app.errors import TooManyRequests
from app.models import WhenEmpty
from app.pipeline import App
from app.records import Parsed
from app.subscribers import Recognised, SignUp
from app.web import forms, pasting, shelf
from app.web import preview as previews
from app.web.bodies import FormRoute
from app.web.capacity import Capacity
from app.web.conditional import public_page
from app.web.forms import Filled, Text, Texts
from app.web.pages import page
from app.web.preview import Preview
from app.web.security import PUBLIC_REFERRER, Limits, client_ip, same_site

router = APIRouter(include_in_schema=False, route_class=FormRoute)
log = structlog.get_logger(__name__)


@router.get("/")
def front(request: Request) -> Response:
    """What this is, how to get it, and what is in it today."""
    settings = request.app.state.paperboy.settings
    form = Filled(zone=settings.default_zone, hour=str(settings.default_hour))
    return public_page(request, ("/",), lambda: _front(request, form))


@router.get("/suggest")
def suggest(request: Request, q: str = "") -> list[str]:
    """Words to finish an interest with."""
    suggestions: shelf.Suggestions = request.app.state.suggestions
    return suggestions.matching(q[:60], clock.utcnow())


def sign_up_form(
    request: Request,
    email: Text = "",
    interest: Texts = [],  # noqa: B006 - FastAPI copies it
    cadence: Text = "",
    weekday: Text = "0",
    hour: Text = "",
    zone: Text = "",
    liked: Text = "",
) -> Filled:
    rows = forms.rows(interest)
    empty = WhenEmpty.SKIP if rows else WhenEmpty.TRENDING
    beyond = str(request.app.state.paperboy.settings.default_beyond)
    return Filled(email, rows, cadence, weekday, hour, zone, when_empty=empty, beyond=beyond, liked=liked)


@router.post("/subscribe", dependencies=[Depends(same_site)])
def subscribe(
    request: Request, form: Annotated[Filled, Depends(sign_up_form)], later: BackgroundTasks
) -> Response:
    """Whoever the address belongs to, and whether we know it or not, the answer is the same."""
    wanted = form.wanted()
    problems = forms.problems_of_address(form.email) | subscribers.problems(wanted)
    problems |= forms.problems_of_paste(form.liked)
    if problems:
        return _front(request, replace(form, problems=problems), status=422)
    app, ip = _counted(request, form.email)
    try:
        pasted = _read(request, form.liked)
    except TooManyRequests as error:
        return _busy(request, form, error.retry_after)
    with app.db.read() as session:
        found = subscribers.recognise(session, pasted.records)
    with app.db.write() as session:
        delivery_id = subscribers.sign_up(session, SignUp(form.email, wanted), ip, clock.utcnow())
    later.add_task(_keep, app, form.email, found)
    became = {"found": found, "rejections": pasted.rejections}
    return _on_its_way(request, later, delivery_id, "subscribed.html", **became)


@router.post("/preview", dependencies=[Depends(same_site)])
def preview(request: Request, form: Annotated[Filled, Depends(sign_up_form)], split: Text = "") -> Response:
    """What the interests would bring: for a script the preview alone, for everybody else the whole page."""
    form, shown = previews.asked(request, form, split)
    if "hx-request" not in request.headers:
        return _front(request, form, shown.status, shown)
    headers = PUBLIC_REFERRER | shown.headers
    return page(
        request, "preview.html", status=shown.status, headers=headers, form=form, preview=shown, at="/preview"
    )


@router.get("/preview")
def back_to_the_form() -> Response:
    """Without scripts a preview's address stands in the browser, and may be asked for by itself."""
    return RedirectResponse("/#join", status_code=303)


@router.get("/manage")
def manage(request: Request) -> Response:
    """Where to ask for the link to one's preferences."""
    return page(request, "manage.html", headers=PUBLIC_REFERRER, form=Filled())


@router.post("/manage", dependencies=[Depends(same_site)])
def mail_link(request: Request, later: BackgroundTasks, email: Text = "") -> Response:
    """The link goes to its owner's mailbox, if there is one; the page does not tell."""
    problems = forms.problems_of_address(email)
    if problems:
        form = Filled(email, problems=problems)
        return page(request, "manage.html", status=422, headers=PUBLIC_REFERRER, form=form)
    app, ip = _counted(request, email)
    with app.db.write() as session:
        delivery_id = subscribers.send_link(session, email, ip, clock.utcnow())
    return _on_its_way(request, later, delivery_id, "link_sent.html")


def hand_over(request: Request, delivery_ids: list[int]) -> None:
    """Send these mails now, unless as many others are being sent: then they go with the next tick."""
    limits: Capacity = request.app.state.capacity
    try:
        with limits.mails.take():
            send(request.app.state.paperboy, delivery_ids)
    except TooManyRequests:
        log.info("mails left to the next tick", deliveries=delivery_ids)


def send(app: App, delivery_ids: list[int]) -> None:
    """Hand these mails to the relay now. What does not go now goes with the next tick."""
    try:
        pipeline.send_pending(app, clock.utcnow(), ids=delivery_ids)
    except Exception:
        log.exception("mail not sent at once", deliveries=delivery_ids)


def _keep(app: App, email: str, liked: Recognised) -> None:
    """Keep the papers that were pasted with a sign-up; without them it is worth as much."""
    try:
        with app.db.write() as session:
            subscribers.keep_liked(session, email, liked, clock.utcnow())
    except Exception:
        log.exception("pasted papers not kept")


def _counted(request: Request, email: str) -> tuple[App, str]:
    """Count the request against every limit, before anything is written or mailed."""
    limits: Limits = request.app.state.limits
    ip = client_ip(request)
    limits.visitor(ip)
    limits.address(subscribers.normalise_address(email))
    return request.app.state.paperboy, ip


def _on_its_way(
    request: Request, later: BackgroundTasks, delivery_id: int | None, template: str, **values: Any
) -> Response:
    if delivery_id is not None:
        later.add_task(hand_over, request, [delivery_id])
    # The connection ends with the answer: a second request on it would wait for the mail to leave,
    # and so tell whether there was one.
    headers = {**PUBLIC_REFERRER, "Connection": "close"}
    return page(request, template, headers=headers, **values)


def _read(request: Request, liked: str) -> Parsed:
    """What was pasted. Who pasted nothing need not wait for others to be done."""
    if not liked.strip():
        return Parsed()
    limits: Limits = request.app.state.limits
    with limits.at_work():
        return pasting.parse(liked)


def _busy(request: Request, form: Filled, seconds: int) -> Response:
    """The form as it was: what was pasted cannot be read now, and nobody types it twice."""
    said = f"That was a lot at once: please wait {seconds} seconds, and send it again."
    answer = _front(request, replace(form, problems={"liked": said}), status=429)
    answer.headers["Retry-After"] = str(seconds)
    return answer


def _front(request: Request, form: Filled, status: int = 200, preview: Preview | None = None) -> Response:
    now = clock.utcnow()
    newest: shelf.Newest = request.app.state.newest
    shown = newest.of(now)
    words = request.app.state.suggestions.matching("", now, 40)
    return page(
        request, "front.html", status=status, headers=PUBLIC_REFERRER | (preview.headers if preview else {}),
        form=form, shown=shown, words=words, zones=forms.zones(), preview=preview,
    )  # fmt: skip
