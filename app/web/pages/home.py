"""Pages for everybody: what this is, signing up, asking for one's link."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any

import structlog
from fastapi import APIRouter, BackgroundTasks, Depends, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse

from app import clock, pipeline, subscribers
from app.application import Application
from app.errors import TooManyRequests
from app.subscribers import SignUp
from app.types import EmptyDigestPolicy, ParseResult
from app.web import forms, paper_cards, pasted_papers
from app.web import preview as previews
from app.web.forms import PreferencesForm, Text, Texts
from app.web.http_cache import public_page
from app.web.preview import Preview
from app.web.proof_of_work import LONGEST_PAUSE, Admission, Challenge
from app.web.request_bodies import FormRoute
from app.web.security import PUBLIC_REFERRER, client_ip, same_site
from app.web.templating import page
from app.web.work_limits import Capacity

router = APIRouter(include_in_schema=False, route_class=FormRoute)
log = structlog.get_logger(__name__)

ANSWER_DELAY = 2.0  # seconds, in a service that strangers can reach
_RANDOM = random.SystemRandom()


@router.get("/")
def front(request: Request) -> Response:
    """What this is, how to get it, and what is in it today."""
    settings = request.app.state.paperboy.settings
    form = PreferencesForm(zone=settings.default_zone, hour=str(settings.default_hour))
    return public_page(request, ("/",), lambda: _front(request, form))


@router.get("/suggest")
def suggest(request: Request, q: str = "") -> list[str]:
    """Words to finish an interest with."""
    suggestions: paper_cards.Suggestions = request.app.state.suggestions
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
) -> PreferencesForm:
    rows = forms.rows(interest)
    empty = EmptyDigestPolicy.SKIP if rows else EmptyDigestPolicy.TRENDING
    beyond = str(request.app.state.paperboy.settings.default_beyond)
    return PreferencesForm(
        email, rows, cadence, weekday, hour, zone, when_empty=empty, beyond=beyond, liked=liked
    )


@router.post("/subscribe", dependencies=[Depends(same_site)])
def subscribe(
    request: Request,
    form: Annotated[PreferencesForm, Depends(sign_up_form)],
    later: BackgroundTasks,
    proof: Text = "",
) -> Response:
    """Store a sign-up. Whoever the address belongs to, the work and the response are the same."""
    wanted = form.wanted()
    problems = forms.problems_of_address(form.email) | subscribers.problems(wanted)
    problems |= forms.problems_of_paste(form.liked)
    if problems:
        return _front(request, replace(form, problems=problems), status=422)
    app, ip, now = request.app.state.paperboy, client_ip(request), clock.utcnow()
    if challenge := _challenge(request, ip, form.email, proof, now):
        return _ask_for_work(request, "/subscribe", challenge, forms.sign_up_fields(form))
    try:
        pasted = _read(request, form.liked)
    except TooManyRequests as error:
        return _busy(request, form, error.retry_after)
    with app.db.read() as session:
        found = subscribers.match_references(session, pasted.records)
    with app.db.write() as session:
        stored = subscribers.request_sign_up(session, SignUp(form.email, wanted, found), ip, now)
    became = {"found": found, "rejections": pasted.rejections, "days": subscribers.DECLINE_LASTS.days}
    return _on_its_way(request, later, stored, "subscribed.html", **became)


@router.post("/preview", dependencies=[Depends(same_site)])
def preview(
    request: Request, form: Annotated[PreferencesForm, Depends(sign_up_form)], split: Text = ""
) -> Response:
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
    return page(request, "manage.html", headers=PUBLIC_REFERRER, form=PreferencesForm())


@router.post("/manage", dependencies=[Depends(same_site)])
def mail_link(request: Request, later: BackgroundTasks, email: Text = "", proof: Text = "") -> Response:
    """The link goes to its owner's mailbox, if there is one; the page does not tell."""
    problems = forms.problems_of_address(email)
    if problems:
        form = PreferencesForm(email, problems=problems)
        return page(request, "manage.html", status=422, headers=PUBLIC_REFERRER, form=form)
    app, ip, now = request.app.state.paperboy, client_ip(request), clock.utcnow()
    if challenge := _challenge(request, ip, email, proof, now):
        return _ask_for_work(request, "/manage", challenge, [("email", email)])
    with app.db.write() as session:
        stored = subscribers.request_link(session, email, ip, now)
    return _on_its_way(request, later, stored, "link_sent.html")


def hand_over(request: Request, delivery_ids: list[int]) -> None:
    """Send these mails now, if there is room: see `_if_there_is_room`."""
    app: Application = request.app.state.paperboy
    _if_there_is_room(request, lambda: pipeline.send_pending(app, clock.utcnow(), ids=delivery_ids))


async def process(request: Request, request_id: int) -> None:
    """Process a stored form some seconds later, if there is room: see `_if_there_is_room`.

    Without the delay, the next request would wait while a mail leaves, and so tell that there was one.
    """
    app: Application = request.app.state.paperboy
    await asyncio.sleep(request.app.state.answer_delay * _RANDOM.uniform(0.5, 1.5))
    await run_in_threadpool(
        _if_there_is_room, request, lambda: pipeline.answer_requests(app, clock.utcnow(), [request_id])
    )


def _if_there_is_room(request: Request, send: Callable[[], object]) -> None:
    """Send mails, unless as many others do so already. What does not leave now leaves with the next tick."""
    capacity: Capacity = request.app.state.capacity
    try:
        with capacity.mails.take():
            send()
    except TooManyRequests:
        log.info("mails left to the next tick")
    except Exception:
        log.exception("mails not sent at once; the next tick tries again")


def _challenge(request: Request, ip: str, email: str, proof: str, now: datetime) -> Challenge | None:
    """Count the form, before anything is written or mailed; return what the visitor has to do first."""
    admission: Admission = request.app.state.admission
    return admission.admit(ip, subscribers.normalise_address(email), proof, now)


def _ask_for_work(
    request: Request, action: str, challenge: Challenge, fields: Sequence[tuple[str, str]]
) -> Response:
    """Return the form again, to be sent by a script after some work, or by hand after a pause."""
    wait = str(challenge.pause or round(LONGEST_PAUSE.total_seconds()))
    return page(
        request, "challenge.html", status=429, headers={**PUBLIC_REFERRER, "Retry-After": wait},
        action=action, challenge=challenge, fields=fields,
    )  # fmt: skip


def _on_its_way(
    request: Request, later: BackgroundTasks, request_id: int, template: str, **values: Any
) -> Response:
    later.add_task(process, request, request_id)
    # The connection ends with the answer: a second request on it would wait for the mail to leave,
    # and so tell whether there was one.
    headers = {**PUBLIC_REFERRER, "Connection": "close"}
    return page(request, template, headers=headers, **values)


def _read(request: Request, liked: str) -> ParseResult:
    """What was pasted. Who pasted nothing need not wait for others to be done."""
    if not liked.strip():
        return ParseResult()
    capacity: Capacity = request.app.state.capacity
    with capacity.pastes.take():
        return pasted_papers.parse(liked)


def _busy(request: Request, form: PreferencesForm, seconds: int) -> Response:
    """The form as it was: what was pasted cannot be read now, and nobody types it twice."""
    said = f"That was a lot at once: please wait {seconds} seconds, and send it again."
    answer = _front(request, replace(form, problems={"liked": said}), status=429)
    answer.headers["Retry-After"] = str(seconds)
    return answer


def _front(
    request: Request, form: PreferencesForm, status: int = 200, preview: Preview | None = None
) -> Response:
    now = clock.utcnow()
    newest: paper_cards.Newest = request.app.state.newest
    shown = newest.of(now)
    words = request.app.state.suggestions.matching("", now, 40)
    return page(
        request, "front.html", status=status, headers=PUBLIC_REFERRER | (preview.headers if preview else {}),
        form=form, shown=shown, words=words, zones=forms.zones(), preview=preview,
    )  # fmt: skip
