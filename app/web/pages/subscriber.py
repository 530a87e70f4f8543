"""What a signed link lets a reader do. GET shows a page with one button; POST acts, and twice is once."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date, datetime, time
from typing import Annotated
from zoneinfo import ZoneInfo

from fastapi import APIRouter, BackgroundTasks, Depends, Request, Response
from fastapi.responses import HTMLResponse
from sqlmodel import Session

from app import clock, subscribers
from app.application import Application
from app.delivery import ledger
from app.errors import InvalidPreference, LinkForged, NotFound
from app.links import Grant, Purpose, lifetime_in_words
from app.relevance import model_store
from app.storage.models import Delivery, Subscriber, SubscriberState
from app.web import forms, preview
from app.web.forms import PreferencesForm, Text, Texts
from app.web.pages import feedback, feeds, home
from app.web.preview import Preview
from app.web.request_bodies import FormRoute
from app.web.security import MAIL_CSP, client_ip
from app.web.signed_links import PRIVATE, allows, db, page, redirect_to_preferences
from app.web.work_limits import Capacity

router = APIRouter(include_in_schema=False, route_class=FormRoute)

TYPED_CHARS = 20  # of what is no day
SAID = {
    "saved": "Saved.",
    "followed": "You follow one more author: see your interests.",
    "paused": "Paused.",
    "resumed": "Your digests go on.",
    "back": "Welcome back: your digests go on.",
    "exporting": "We have sent you a mail with a link that downloads everything. "
    f"It works for {lifetime_in_words(Purpose.EXPORT)}. We send one such mail an hour.",
    "erasing": "We have sent you a mail with a link that erases everything. "
    f"It works for {lifetime_in_words(Purpose.ERASE)}. We send one such mail an hour.",
}


Confirm = Annotated[Grant, allows(Purpose.CONFIRM)]
Decline = Annotated[Grant, allows(Purpose.DECLINE)]
Unsubscribe = Annotated[Grant, allows(Purpose.UNSUBSCRIBE)]
Pause = Annotated[Grant, allows(Purpose.PAUSE)]
Change = Annotated[Grant, allows(Purpose.PREFERENCES)]
View = Annotated[Grant, allows(Purpose.VIEW)]
Export = Annotated[Grant, allows(Purpose.EXPORT)]
Erase = Annotated[Grant, allows(Purpose.ERASE)]


# --- joining


@router.get("/confirm/{token}")
def ask_confirm(request: Request, grant: Confirm) -> Response:
    with db(request).read() as session:
        reader = subscribers.get(session, grant.subscriber_id)
        choices = subscribers.pending_choices(session, grant.subscriber_id, grant.argument or None)
        learned, young = feedback.learned(session, grant.subscriber_id), model_store.papers_needed(session)
    liked = choices.liked.usable if choices else 0
    return page(
        request, "confirm.html", reader=reader, chosen=choices.preferences if choices else None,
        liked=liked or len(learned.liked), young=young, consent=subscribers.CONSENT_TEXT,
    )  # fmt: skip


@router.post("/confirm/{token}")
def confirm(request: Request, grant: Confirm) -> Response:
    now = clock.utcnow()
    with db(request).write() as session:
        reader = subscribers.confirm(
            session, grant.subscriber_id, client_ip(request), now, grant.argument or None
        )
    return page(request, "confirmed.html", reader=reader, links=_links(request, reader, now))


@router.get("/decline/{token}")
def ask_decline(request: Request, grant: Decline) -> Response:
    """Ask whether to decline; where that is done already, offer to allow sign-ups again."""
    with db(request).read() as session:
        declined = subscribers.is_declined(session, grant.argument)
    if declined:
        return _declining(request, "declined")
    return _declining(request, "")


@router.post("/decline/{token}")
def decline(request: Request, grant: Decline, action: Text = "") -> Response:
    """Decline the sign-up, or with the action `allow` let later ones reach the mailbox again."""
    with db(request).write() as session:
        if action == "allow":
            subscribers.allow_again(session, grant.argument)
            return _declining(request, "allowed")
        declined = subscribers.decline(session, grant.subscriber_id, clock.utcnow(), grant.argument or None)
    return _declining(request, "declined" if declined else "subscribed")


def _declining(request: Request, done: str) -> Response:
    return page(request, "decline.html", done=done, days=subscribers.DECLINE_LASTS.days)


# --- leaving


@router.get("/unsubscribe/{token}")
def ask_unsubscribe(request: Request, grant: Unsubscribe) -> Response:
    """Who has left already is told so, whichever mail the link is from."""
    return _leaving(request, grant)


@router.post("/unsubscribe/{token}")
def unsubscribe(request: Request, grant: Unsubscribe) -> Response:
    """The button, and the mail program's own (RFC 8058): the body is not even read."""
    with db(request).write() as session:
        subscribers.unsubscribe(session, grant.subscriber_id, clock.utcnow())
    return _leaving(request, grant)


def _leaving(request: Request, grant: Grant) -> Response:
    with db(request).read() as session:
        reader = subscribers.get(session, grant.subscriber_id)
    done = reader.state in (SubscriberState.UNSUBSCRIBED, SubscriberState.ERASED)
    return page(request, "unsubscribe.html", done=done, whose=_whose(reader))


def _whose(reader: Subscriber) -> str:
    """The address as its owner knows it again, and others hardly learn it: mails are forwarded."""
    name, _, domain = reader.email.rpartition("@")
    shown = name[: 1 if len(name) > 2 else 0]
    return "" if reader.state is SubscriberState.ERASED else f"{shown}…@{domain}"


@router.get("/export/{token}")
def ask_export(request: Request, grant: Export) -> Response:
    return page(request, "export.html")


@router.post("/export/{token}")
def export(request: Request, grant: Export) -> Response:
    capacity: Capacity = request.app.state.capacity
    with capacity.analyses.take(), db(request).read() as session:
        held = subscribers.export(session, grant.subscriber_id)
    name = {"Content-Disposition": 'attachment; filename="paperboy-export.json"'}
    content = json.dumps(held, indent=2, ensure_ascii=False)
    return Response(content, media_type="application/json", headers={**PRIVATE, **name})


@router.get("/erase/{token}")
def ask_erase(request: Request, grant: Erase) -> Response:
    return page(request, "erase.html", done=False)


@router.post("/erase/{token}")
def erase(request: Request, grant: Erase, keep_off: Text = "") -> Response:
    with db(request).write() as session:
        subscribers.erase(session, grant.subscriber_id, clock.utcnow(), suppress=keep_off == "yes")
    return page(request, "erase.html", done=True, kept_off=keep_off == "yes")


# --- staying


@router.get("/pause/{token}")
def ask_pause(request: Request, grant: Pause) -> Response:
    return _pausing(request, grant)


@router.post("/pause/{token}")
def pause(request: Request, grant: Pause, until: Text = "", action: Text = "") -> Response:
    try:
        with db(request).write() as session:
            _pause(session, grant.subscriber_id, until, action, clock.utcnow())
    except InvalidPreference as error:
        return _pausing(request, grant, problem=str(error), typed=until)
    return _pausing(request, grant, done=True)


@router.get("/preferences/{token}")
def preferences(request: Request, grant: Change, said: str = "") -> Response:
    of_papers = feedback.SAID.get(said, "")
    return _preferences(request, grant, said=SAID.get(said, ""), said_of_papers=of_papers)


def preferences_form(
    interest: Texts = [],  # noqa: B006 - FastAPI copies it
    weight: Texts = [],  # noqa: B006
    quota: Texts = [],  # noqa: B006
    cadence: Text = "",
    weekday: Text = "0",
    hour: Text = "",
    zone: Text = "",
    min_papers: Text = "",
    max_papers: Text = "",
    when_empty: Text = "",
    beyond: Text = "",
    muted: Text = "",
    had: Texts = [],  # noqa: B006
) -> PreferencesForm:
    rows, muted = forms.rows(interest, weight, quota), forms.lines(muted)
    chosen = (cadence, weekday, hour, zone, min_papers, max_papers, when_empty, beyond, muted)
    return PreferencesForm("", rows, *chosen, had=tuple(had))


@router.post("/preferences/{token}")
def change(
    request: Request, grant: Change, form: Annotated[PreferencesForm, Depends(preferences_form)]
) -> Response:
    with db(request).read() as session:
        stored = subscribers.preferences_of(session, subscribers.get(session, grant.subscriber_id))
    wanted = forms.merge_concurrent_changes(form, stored)
    if problems := subscribers.problems(wanted):
        return _preferences(request, grant, form=replace(form, problems=problems), status=422)
    with db(request).write() as session:
        subscribers.change(session, grant.subscriber_id, wanted, clock.utcnow())
    return redirect_to_preferences(request, "saved")


@router.get("/preferences/{token}/preview")
def look(request: Request, grant: Change) -> Response:
    """What the interests as they are stored would bring: the way there from elsewhere."""
    with db(request).read() as session:
        reader = subscribers.get(session, grant.subscriber_id)
        form = forms.filled(subscribers.preferences_of(session, reader))
    form, shown = preview.asked(request, form)
    return _preferences(request, grant, form=form, shown=shown)


@router.post("/preferences/{token}/preview")
def look_ahead(
    request: Request,
    grant: Change,
    form: Annotated[PreferencesForm, Depends(preferences_form)],
    split: Text = "",
) -> Response:
    """What they would bring as they stand in the form: for a script that alone, else the whole page."""
    form, shown = preview.asked(request, form, split)
    if "hx-request" not in request.headers:
        return _preferences(request, grant, form=form, shown=shown)
    at = request.url.path
    return page(
        request, "preview.html", status=shown.status, headers=shown.headers, form=form, preview=shown, at=at
    )


@router.post("/preferences/{token}/pause")
def pause_there(request: Request, grant: Change, until: Text = "", action: Text = "") -> Response:
    try:
        with db(request).write() as session:
            _pause(session, grant.subscriber_id, until, action, clock.utcnow())
    except InvalidPreference as error:
        return _preferences(request, grant, pause=(until, str(error)), status=422)
    return redirect_to_preferences(request, "resumed" if action == "resume" else "paused")


@router.post("/preferences/{token}/return")
def come_back(request: Request, grant: Change) -> Response:
    with db(request).write() as session:
        subscribers.resubscribe(session, grant.subscriber_id, client_ip(request), clock.utcnow())
    return redirect_to_preferences(request, "back")


@router.post("/preferences/{token}/links")
def renew_links(request: Request, grant: Change, later: BackgroundTasks) -> Response:
    """Make all links void. The new ones are mailed: whoever holds a leaked one must not see them here."""
    with db(request).write() as session:
        delivery_id = subscribers.new_links(session, grant.subscriber_id, clock.utcnow())
    _send_later(request, later, delivery_id)
    return page(request, "new_links.html")


@router.post("/preferences/{token}/export")
def mail_export(request: Request, grant: Change, later: BackgroundTasks) -> Response:
    with db(request).write() as session:
        delivery_id = subscribers.request_export(session, grant.subscriber_id, clock.utcnow())
    _send_later(request, later, delivery_id)
    return redirect_to_preferences(request, "exporting")


@router.post("/preferences/{token}/erase")
def mail_erasure(request: Request, grant: Change, later: BackgroundTasks) -> Response:
    with db(request).write() as session:
        delivery_id = subscribers.request_erasure(session, grant.subscriber_id, clock.utcnow())
    _send_later(request, later, delivery_id)
    return redirect_to_preferences(request, "erasing")


def _send_later(request: Request, later: BackgroundTasks, delivery_id: int | None) -> None:
    if delivery_id is not None:
        later.add_task(home.hand_over, request, [delivery_id])


# --- reading


@router.get("/view/{token}")
def view(request: Request, grant: View) -> Response:
    """One digest in the browser, exactly as it was mailed."""
    app: Application = request.app.state.paperboy
    with app.db.read() as session:
        delivery = session.get(Delivery, grant.argument)
        subscribers.get(session, grant.subscriber_id)
        if delivery is None or delivery.subscriber_id != grant.subscriber_id:
            raise LinkForged
        (letter,) = ledger.mail_requests(session, [delivery.id or 0], app.snapshots)
        if not (letter.digest and letter.digest.edition):
            raise NotFound("This digest is not kept any more.")
    html = app.renderer.render(letter).html
    return HTMLResponse(html, headers={**PRIVATE, "Content-Security-Policy": MAIL_CSP})


def _pause(session: Session, subscriber_id: int, until: str, action: str, now: datetime) -> Subscriber:
    if action == "resume":
        return subscribers.resume(session, subscriber_id, now)
    zone = ZoneInfo(subscribers.get(session, subscriber_id).zone)
    return subscribers.pause(session, subscriber_id, _midnight(until, zone), now)


def _midnight(day: str, zone: ZoneInfo) -> datetime | None:
    """When a day begins for a reader; None for no day at all."""
    if not day.strip():
        return None
    try:
        return datetime.combine(date.fromisoformat(day.strip()), time(0), zone)
    except ValueError:
        said = f"“{day.strip()[:TYPED_CHARS]}” is not a day. Write it as 2026-12-31: year, month, day."
        raise InvalidPreference(said, "until") from None


def _pausing(
    request: Request, grant: Grant, *, done: bool = False, typed: str = "", problem: str = ""
) -> Response:
    with db(request).read() as session:
        reader = subscribers.get(session, grant.subscriber_id)
    until = _break(reader, clock.utcnow(), typed, problem)
    return page(request, "pause.html", status=422 if problem else 200, reader=reader, done=done, until=until)


def _break(reader: Subscriber, now: datetime, typed: str = "", problem: str = "") -> forms.PauseForm:
    first, last = subscribers.pause_date_range(ZoneInfo(reader.zone), now)
    return forms.PauseForm(first, last, typed.strip()[:TYPED_CHARS], problem)


def _preferences(
    request: Request,
    grant: Grant,
    *,
    form: PreferencesForm | None = None,
    said: str = "",
    said_of_papers: str = "",
    pause: tuple[str, str] = ("", ""),  # as typed, and what is wrong with it
    shown: Preview | None = None,
    status: int = 200,
) -> Response:
    now = clock.utcnow()
    with db(request).read() as session:
        reader = subscribers.get(session, grant.subscriber_id)
        form = form or forms.filled(subscribers.preferences_of(session, reader))
        history = subscribers.history(session, grant.subscriber_id)
        kept = ledger.stored_digests(session, [delivery.id for delivery in history])
        learned, young = feedback.learned(session, grant.subscriber_id), model_store.papers_needed(session)
    return page(
        request, "preferences.html", status=shown.status if shown else status,
        headers=shown.headers if shown else None, preview=shown, reader=reader, form=form, said=said,
        learned=learned, young=young, said_of_papers=said_of_papers, until=_break(reader, now, *pause),
        links=_links(request, reader, now), zones=forms.zones(),
        token=request.path_params["token"],
        history=[
            (delivery, _view_link(request, delivery, reader) if delivery.id in kept else "")
            for delivery in history
        ],
        suggested=request.app.state.suggestions.matching("", now, 40),
    )  # fmt: skip


def _links(request: Request, reader: Subscriber, now: datetime) -> dict[str, str]:
    """Return the links beside the preferences. Those that download or erase everything are mailed instead."""
    app: Application = request.app.state.paperboy
    purposes = (Purpose.PREFERENCES, Purpose.UNSUBSCRIBE)
    links = {
        purpose.value: f"/{purpose}/{app.signer.token(purpose, reader.id or 0, now, epoch=reader.link_epoch)}"
        for purpose in purposes
    }
    return {**links, "feed": feeds.path_of(app, reader)}


def _view_link(request: Request, delivery: Delivery, reader: Subscriber) -> str:
    signer = request.app.state.paperboy.signer
    epoch, argument = reader.link_epoch, delivery.id or 0
    token = signer.token(Purpose.VIEW, reader.id or 0, delivery.created_at, epoch=epoch, argument=argument)
    return f"/{Purpose.VIEW}/{token}"
