"""Preferences and pauses, behind signed links.

GET shows a page with a button. POST acts, and is idempotent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date, datetime, time
from typing import Annotated
from zoneinfo import ZoneInfo

from fastapi import APIRouter, BackgroundTasks, Depends, Request, Response
from sqlmodel import Session

from app import clock, pipeline, subscribers
from app.delivery import ledger
from app.errors import InvalidAddress, InvalidPreference
from app.links import LIFETIMES, Grant, Purpose, lifetime_in_words
from app.relevance.suggestions import InterestReader
from app.storage.models import DeliveryState, Subscriber
from app.types import Feedback
from app.web import background, digest_history, feedback_overview, forms, preview
from app.web.forms import PreferencesForm, Text
from app.web.link_access import allows, private_page, redirect_to_preferences, subscriber_links
from app.web.preview import Preview
from app.web.request_bodies import FormRoute
from app.web.site_state import application, capacity, db
from app.web.visitors import client_ip, visitor

router = APIRouter(include_in_schema=False, route_class=FormRoute)

# Messages shown after a redirect to the preferences, keyed by the name in the URL.
MESSAGES = {
    "saved": "Saved.",
    "followed": "You now follow one more author. See your interests.",
    "held": "Your first digest is ready. It waits until the operator of this service releases it.",
    "first": "Your first digest is on its way. “Your digests” below shows its state.",
    "later": "Your first digest has been sent or is scheduled. “Your digests” below shows its state.",
    "due": "Your first digest is scheduled. “Your digests” below shows it as soon as it is composed.",
    "none": "There is no digest today. “Your digests” below says why. The next one is due at your next "
    "scheduled time.",
    "paused": "Paused.",
    "resumed": "Your digests have resumed.",
    "back": "Welcome back. You are subscribed again.",
    "exporting": "We sent you an email with a link to download your data. "
    f"It works for {lifetime_in_words(LIFETIMES[Purpose.EXPORT])}. We send this email at most once an hour.",
    "address": "We send an email to your current address, at most once an hour. Press the button in it, "
    "then the one in the email to your new address. Each works for "
    f"{lifetime_in_words(LIFETIMES[Purpose.ADDRESS])}.",
    "erasing": "We sent you an email with a link to erase your data. "
    f"It works for {lifetime_in_words(LIFETIMES[Purpose.ERASE])}. We send this email at most once an hour.",
}


Pause = Annotated[Grant, allows(Purpose.PAUSE)]
Change = Annotated[Grant, allows(Purpose.PREFERENCES)]


@router.get("/pause/{token}")
def ask_pause(request: Request, grant: Pause) -> Response:
    return _pause_page(request, grant)


@router.post("/pause/{token}")
def pause(request: Request, grant: Pause, until: Text = "", action: Text = "") -> Response:
    try:
        _pause(request, grant.subscriber_id, until, action)
    except InvalidPreference as error:
        return _pause_page(request, grant, problem=str(error), typed=until)
    return _pause_page(request, grant, done=True)


@router.get("/preferences/{token}")
def preferences(request: Request, grant: Change, done: str = "") -> Response:
    """Show the preferences. After a redirect, `done` names the message to show."""
    message, feedback_message = MESSAGES.get(done, ""), feedback_overview.MESSAGES.get(done, "")
    return _preferences_page(request, grant, message=message, feedback_message=feedback_message)


@router.post("/preferences/{token}")
def change(
    request: Request, grant: Change, form: Annotated[PreferencesForm, Depends(forms.preferences_form)]
) -> Response:
    with db(request).write() as session:
        problems = forms.save_preferences(session, grant.subscriber_id, form, clock.utcnow())
    if problems:
        return _preferences_page(request, grant, form=replace(form, problems=problems), status=422)
    return redirect_to_preferences(request, "saved")


def _stored_form(request: Request, session: Session, subscriber: Subscriber) -> PreferencesForm:
    chosen = subscribers.preferences_of(session, subscriber)
    return forms.filled_form(chosen, application(request).settings.max_interests)


@router.get("/preferences/{token}/preview")
def preview_stored(request: Request, grant: Change) -> Response:
    """Preview the digest for the stored preferences. Other pages link here."""
    with db(request).read() as session:
        subscriber = subscribers.get(session, grant.subscriber_id)
        form = _stored_form(request, session, subscriber)
    form, digest_preview = _preview(request, grant, form)
    return _preferences_page(request, grant, form=form, digest_preview=digest_preview)


@router.post("/preferences/{token}/preview")
def preview_form(
    request: Request,
    grant: Change,
    form: Annotated[PreferencesForm, Depends(forms.preferences_form)],
    split: Text = "",
    change: Text = "",
) -> Response:
    """Preview the digest for a form. Return only the preview if htmx requests it, else the whole page."""
    form, digest_preview = _preview(request, grant, form, split, change)
    if "hx-request" not in request.headers:
        return _preferences_page(request, grant, form=form, digest_preview=digest_preview)
    return private_page(
        request, "preview.html", status=digest_preview.status, headers=digest_preview.headers,
        form=form, preview=digest_preview, at=request.url.path,
    )  # fmt: skip


def _preview(
    request: Request, grant: Grant, form: PreferencesForm, split: str = "", change: str = ""
) -> tuple[PreferencesForm, Preview]:
    """Return the validated form, and its preview with the subscriber's feedback."""

    def load_feedback() -> Sequence[Feedback]:
        with db(request).read() as session:
            feedback = subscribers.feedback_for_ranking(session, [grant.subscriber_id])
        return feedback.get(grant.subscriber_id, ())

    return preview.validate_and_preview(request, form, split, change, load_feedback)


@router.post("/preferences/{token}/pause")
def pause_from_preferences(request: Request, grant: Change, until: Text = "", action: Text = "") -> Response:
    try:
        _pause(request, grant.subscriber_id, until, action)
    except InvalidPreference as error:
        return _preferences_page(request, grant, pause=(until, str(error)), status=422)
    return redirect_to_preferences(request, "resumed" if action == "resume" else "paused")


@router.post("/preferences/{token}/first")
def send_first_digest(request: Request, grant: Change, later: BackgroundTasks) -> Response:
    """Send a new subscriber's first digest now. The ledger prevents a second digest on the same day."""
    capacity(request).visitors.first_digests.hit(visitor(request))
    with capacity(request).previews.take():
        delivery = pipeline.plan_first(application(request), grant.subscriber_id, clock.utcnow())
    if delivery is None:
        return redirect_to_preferences(request, "due")
    if delivery.state in ledger.UNDELIVERED:
        return redirect_to_preferences(request, "none")
    if delivery.state is not DeliveryState.PENDING or delivery.due_at > delivery.created_at:
        return redirect_to_preferences(request, "later")
    with db(request).read() as session:
        if ledger.hold_reason(ledger.pauses(session), delivery):
            return redirect_to_preferences(request, "held")
    later.add_task(background.send_mails, request, [delivery.id or 0])
    return redirect_to_preferences(request, "first")


@router.post("/preferences/{token}/return")
def resubscribe(request: Request, grant: Change) -> Response:
    with db(request).write() as session:
        subscribers.resubscribe(session, grant.subscriber_id, client_ip(request), clock.utcnow())
    return redirect_to_preferences(request, "back")


@router.post("/preferences/{token}/address")
def mail_address_change(
    request: Request, grant: Change, later: BackgroundTasks, email: Text = ""
) -> Response:
    """Ask the owner of the old address to confirm. Do not reveal whether the new address is registered."""
    try:
        _mail_later(
            request,
            grant,
            later,
            lambda session, number, now: subscribers.request_change(session, number, email, now),
        )
    except InvalidAddress as error:
        return _preferences_page(request, grant, address=(email, str(error)), status=422)
    return redirect_to_preferences(request, "address")


@router.post("/preferences/{token}/links")
def renew_links(request: Request, grant: Change, later: BackgroundTasks) -> Response:
    """Replace all links. Email the new ones, so that the holder of a leaked link does not see them."""
    _mail_later(request, grant, later, subscribers.new_links)
    with db(request).read() as session:
        is_paused = ledger.is_paused(session)
    return private_page(request, "new_links.html", is_paused=is_paused)


@router.post("/preferences/{token}/export")
def mail_export(request: Request, grant: Change, later: BackgroundTasks) -> Response:
    _mail_later(request, grant, later, subscribers.request_export)
    return redirect_to_preferences(request, "exporting")


@router.post("/preferences/{token}/erase")
def mail_erasure(request: Request, grant: Change, later: BackgroundTasks) -> Response:
    _mail_later(request, grant, later, subscribers.request_erasure)
    return redirect_to_preferences(request, "erasing")


def _mail_later(
    request: Request,
    grant: Grant,
    later: BackgroundTasks,
    request_mail: Callable[[Session, int, datetime], int | None],
) -> None:
    """Store an email to the subscriber, and send it after the response.

    `request_mail` returns the id of the delivery, or None if no email is due.
    """
    with db(request).write() as session:
        delivery_id = request_mail(session, grant.subscriber_id, clock.utcnow())
    if delivery_id is not None:
        later.add_task(background.send_mails, request, [delivery_id])


# --- shared


def _pause(request: Request, subscriber_id: int, until: str, action: str) -> None:
    """Pause until a day, or indefinitely if `until` is empty. With the action `resume`, end the pause.

    Raise InvalidPreference if `until` is not a date, is in the past or is more than a year away.
    """
    until = until.strip()
    with db(request).write() as session:
        if action == "resume":
            subscribers.resume(session, subscriber_id, clock.utcnow())
            return
        zone = ZoneInfo(subscribers.get(session, subscriber_id).zone)
        try:
            midnight = datetime.combine(date.fromisoformat(until), time(0), zone) if until else None
        except ValueError:
            typed = until[: forms.MAX_DATE_CHARS]
            problem = f"“{typed}” is not a date. Write year, month and day as in 2026-12-31."
            raise InvalidPreference(problem, "until") from None
        subscribers.pause(session, subscriber_id, midnight, clock.utcnow())


def _pause_page(
    request: Request, grant: Grant, *, done: bool = False, typed: str = "", problem: str = ""
) -> Response:
    with db(request).read() as session:
        subscriber = subscribers.get(session, grant.subscriber_id)
    until = forms.pause_form(subscriber, clock.utcnow(), typed, problem)
    return private_page(
        request, "pause.html", status=422 if problem else 200, subscriber=subscriber, done=done, until=until
    )


def _preferences_page(
    request: Request,
    grant: Grant,
    *,
    form: PreferencesForm | None = None,
    message: str = "",
    feedback_message: str = "",
    pause: tuple[str, str] = ("", ""),  # end date as typed, and its error
    address: tuple[str, str] = ("", ""),  # new address as typed, and its error
    digest_preview: Preview | None = None,
    status: int = 200,
) -> Response:
    app = application(request)
    now = clock.utcnow()
    with app.db.read() as session:
        subscriber = subscribers.get(session, grant.subscriber_id)
        form = form or _stored_form(request, session, subscriber)
        history = digest_history.latest(session, app, subscriber, now)
        is_first = subscribers.first_digest(session, subscriber, now) is None
        overview = feedback_overview.overview(session, grant.subscriber_id)
        new_address = subscribers.new_address(session, grant.subscriber_id, now)
        interest_reader = InterestReader(app.models.current(session))
        # The number of parts for which there is room if one interest is split.
        max_parts = form.max_interests - len(form.rows) + 1
    return private_page(
        request, "preferences.html", status=digest_preview.status if digest_preview else status,
        headers=digest_preview.headers if digest_preview else None, preview=digest_preview,
        subscriber=subscriber, is_first=is_first, form=form, message=message,
        feedback_message=feedback_message,
        hints=list(filter(None, (interest_reader.hint(row.text).limited_to(max_parts) for row in form.rows))),
        address=address, new_address=new_address,
        feedback=overview, until=forms.pause_form(subscriber, now, *pause),
        links=subscriber_links(request, subscriber, now), zones=forms.zones(),
        token=request.path_params["token"],
        amounts=forms.AMOUNT_OPTIONS,
        history=history, unfolded=digest_history.UNFOLDED,
        # A page with a preview must not become too large. Scripts fetch suggestions for what is typed.
        suggestions=[] if digest_preview else request.app.state.suggestions.matching("", now, 40),
    )  # fmt: skip
