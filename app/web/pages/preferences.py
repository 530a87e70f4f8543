"""Preferences and pauses, behind signed links.

GET shows a page with a button. POST acts, and is idempotent.
"""

from collections.abc import Callable, Sequence
from datetime import date, datetime, time
from typing import Annotated
from zoneinfo import ZoneInfo

from fastapi import APIRouter, BackgroundTasks, Depends, Query, Response
from sqlmodel import Session

from app import clock, pipeline, subscribers
from app.delivery import ledger
from app.errors import InvalidAddress, InvalidPreference
from app.links import LIFETIMES, Purpose, lifetime_in_words
from app.relevance.suggestions import InterestReader
from app.storage.models import DeliveryState, Subscriber
from app.types import Feedback
from app.web import (
    background,
    digest_history,
    feedback_overview,
    forms,
    paper_cards,
    preferences_merge,
    preview,
)
from app.web.forms import PreferencesForm, Text
from app.web.link_access import SignedLink, allows, subscriber_links
from app.web.preview import Preview
from app.web.request_bodies import FormRoute
from app.web.site_state import capacity
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
ANNOUNCE_MAIL = ("exporting", "address", "erasing")
# Shown instead of these messages while all sending is paused.
WAITING = (
    "This service has paused all email for now. You’ll get the email with the link when sending resumes. You "
    "don’t need to request it again."
)


Pause = Annotated[SignedLink, allows(Purpose.PAUSE)]
Change = Annotated[SignedLink, allows(Purpose.PREFERENCES)]


@router.get("/pause/{token}")
def ask_pause(link: Pause, done: str = "") -> Response:
    return _pause_page(link, done=done == "resumed")


@router.post("/pause/{token}")
def pause(link: Pause, until: Text = "", action: Text = "") -> Response:
    try:
        _pause(link, until, action)
    except InvalidPreference as error:
        return _pause_page(link, problem=str(error), typed=until)
    return link.redirect_to_itself("resumed" if action == "resume" else "")


@router.get("/preferences/{token}")
def preferences(link: Change, done: str = "", elsewhere: Annotated[Sequence[str], Query()] = ()) -> Response:
    """Show the preferences. After a redirect, `done` names the message to show.

    `elsewhere` names the fields that were changed elsewhere, for example in another window, and kept.
    """
    message, feedback_message = MESSAGES.get(done, ""), feedback_overview.MESSAGES.get(done, "")
    if done in ANNOUNCE_MAIL and background.is_paused(link.request):
        message = WAITING
    if labels := [label for name, label in forms.LABELS.items() if name in elsewhere]:
        names = ", ".join(labels)
        message += f" These were changed elsewhere after you opened the page, and were kept: {names}."
    return _preferences_page(link, message=message.lstrip(), feedback_message=feedback_message)


@router.post("/preferences/{token}")
def change(link: Change, form: Annotated[PreferencesForm, Depends(forms.preferences_form)]) -> Response:
    with link.db.write() as session:
        form, elsewhere = preferences_merge.save(session, link.subscriber_id, form, clock.utcnow())
    if form.is_refused:
        return _preferences_page(link, form=form, status=422)
    return link.redirect_to_preferences("saved", "".join(f"&elsewhere={name}" for name in elsewhere))


def _stored_form(link: SignedLink, session: Session, subscriber: Subscriber) -> PreferencesForm:
    chosen = subscribers.preferences_of(session, subscriber)
    return forms.filled_form(chosen, link.app.settings.max_interests)


@router.get("/preferences/{token}/preview")
def preview_stored(link: Change) -> Response:
    """Preview the digest for the stored preferences. Other pages link here."""
    with link.db.read() as session:
        subscriber = subscribers.get(session, link.subscriber_id)
        form = _stored_form(link, session, subscriber)
    form, digest_preview = _preview(link, form)
    return _preferences_page(link, form=form, digest_preview=digest_preview)


@router.post("/preferences/{token}/preview")
def preview_form(
    link: Change,
    form: Annotated[PreferencesForm, Depends(forms.preferences_form)],
    split: Text = "",
    change: Text = "",
) -> Response:
    """Preview the digest for a form. Return only the preview if htmx requests it, else the whole page."""
    form, digest_preview = _preview(link, form, split, change)
    if "hx-request" not in link.request.headers:
        return _preferences_page(link, form=form, digest_preview=digest_preview)
    return link.page(
        "preview.html", status=digest_preview.status, headers=digest_preview.headers,
        form=form, preview=digest_preview, at=link.request.url.path,
    )  # fmt: skip


def _preview(
    link: SignedLink, form: PreferencesForm, split: str = "", change: str = ""
) -> tuple[PreferencesForm, Preview]:
    """Return the validated form, and its preview with the subscriber's feedback."""

    def load_feedback() -> Sequence[Feedback]:
        with link.db.read() as session:
            feedback = subscribers.feedback_for_ranking(session, [link.subscriber_id])
        return feedback.get(link.subscriber_id, ())

    return preview.validate_and_preview(link.request, form, split, change, load_feedback)


@router.post("/preferences/{token}/pause")
def pause_from_preferences(link: Change, until: Text = "", action: Text = "") -> Response:
    try:
        _pause(link, until, action)
    except InvalidPreference as error:
        return _preferences_page(link, pause=(until, str(error)), status=422)
    return link.redirect_to_preferences("resumed" if action == "resume" else "paused")


@router.post("/preferences/{token}/first")
def send_first_digest(link: Change, later: BackgroundTasks) -> Response:
    """Send a new subscriber's first digest now. The ledger prevents a second digest on the same day."""
    capacity(link.request).visitors.first_digests.hit(visitor(link.request))
    with capacity(link.request).previews.take():
        delivery = pipeline.plan_first(link.app, link.subscriber_id, clock.utcnow())
    if delivery is None:
        return link.redirect_to_preferences("due")
    if delivery.state in ledger.UNDELIVERED:
        return link.redirect_to_preferences("none")
    if delivery.state is not DeliveryState.PENDING or delivery.due_at > delivery.created_at:
        return link.redirect_to_preferences("later")
    with link.db.read() as session:
        if ledger.hold_reason(ledger.pauses(session), delivery):
            return link.redirect_to_preferences("held")
    later.add_task(background.send_mails, link.request, [delivery.id or 0])
    return link.redirect_to_preferences("first")


@router.post("/preferences/{token}/return")
def resubscribe(link: Change) -> Response:
    with link.db.write() as session:
        subscribers.resubscribe(session, link.subscriber_id, client_ip(link.request), clock.utcnow())
    return link.redirect_to_preferences("back")


@router.post("/preferences/{token}/address")
def mail_address_change(link: Change, later: BackgroundTasks, email: Text = "") -> Response:
    """Ask the owner of the old address to confirm. Do not reveal whether the new address is registered."""
    try:
        _mail_later(
            link, later, lambda session, number, now: subscribers.request_change(session, number, email, now)
        )
    except InvalidAddress as error:
        return _preferences_page(link, address=(email, str(error)), status=422)
    return link.redirect_to_preferences("address")


@router.post("/preferences/{token}/links")
def renew_links(link: Change, later: BackgroundTasks) -> Response:
    """Replace all links. Email the new ones, so that the holder of a leaked link does not see them."""
    _mail_later(link, later, subscribers.new_links)
    return link.page("new_links.html", paused=background.is_paused(link.request))


@router.post("/preferences/{token}/export")
def mail_export(link: Change, later: BackgroundTasks) -> Response:
    _mail_later(link, later, subscribers.request_export)
    return link.redirect_to_preferences("exporting")


@router.post("/preferences/{token}/erase")
def mail_erasure(link: Change, later: BackgroundTasks) -> Response:
    _mail_later(link, later, subscribers.request_erasure)
    return link.redirect_to_preferences("erasing")


def _mail_later(
    link: SignedLink, later: BackgroundTasks, request_mail: Callable[[Session, int, datetime], int | None]
) -> None:
    """Store an email to the subscriber, and send it after the response.

    `request_mail` returns the id of the delivery, or None if no email is due.
    """
    with link.db.write() as session:
        delivery_id = request_mail(session, link.subscriber_id, clock.utcnow())
    if delivery_id is not None:
        later.add_task(background.send_mails, link.request, [delivery_id])


# --- shared


def _pause(link: SignedLink, until: str, action: str) -> None:
    """Pause until a day, or indefinitely if `until` is empty. With the action `resume`, end the pause.

    Raise InvalidPreference if `until` is not a date, is in the past or is more than a year away.
    """
    until = until.strip()
    with link.db.write() as session:
        if action == "resume":
            subscribers.resume(session, link.subscriber_id, clock.utcnow())
            return
        zone = ZoneInfo(subscribers.get(session, link.subscriber_id).zone)
        try:
            midnight = datetime.combine(date.fromisoformat(until), time(0), zone) if until else None
        except ValueError:
            typed = until[: forms.MAX_DATE_CHARS]
            problem = f"“{typed}” is not a date. Write year, month and day as in 2026-12-31."
            raise InvalidPreference(problem, "until") from None
        subscribers.pause(session, link.subscriber_id, midnight, clock.utcnow())


def _pause_page(link: SignedLink, *, done: bool = False, typed: str = "", problem: str = "") -> Response:
    with link.db.read() as session:
        subscriber = subscribers.get(session, link.subscriber_id)
    until = forms.pause_form(subscriber, clock.utcnow(), typed, problem)
    return link.page(
        "pause.html", status=422 if problem else 200, subscriber=subscriber, done=done, until=until
    )


def _preferences_page(
    link: SignedLink,
    *,
    form: PreferencesForm | None = None,
    message: str = "",
    feedback_message: str = "",
    pause: tuple[str, str] = ("", ""),  # end date as typed, and its error
    address: tuple[str, str] = ("", ""),  # new address as typed, and its error
    digest_preview: Preview | None = None,
    status: int = 200,
) -> Response:
    app = link.app
    now = clock.utcnow()
    with app.db.read() as session:
        subscriber = subscribers.get(session, link.subscriber_id)
        lacks_interests = subscribers.lacks_interests(subscribers.preferences_of(session, subscriber))
        form = form or _stored_form(link, session, subscriber)
        history = digest_history.latest(session, app, subscriber, now)
        is_first = subscribers.first_digest(session, subscriber, now) is None
        overview = feedback_overview.overview(session, link.subscriber_id)
        new_address = subscribers.new_address(session, link.subscriber_id, now)
        interest_reader = InterestReader(app.models.current(session))
        # The number of parts for which there is room if one interest is split.
        max_parts = form.max_interests - len(form.rows) + 1
    return link.page(
        "preferences.html", status=digest_preview.status if digest_preview else status,
        headers=digest_preview.headers if digest_preview else {}, preview=digest_preview,
        subscriber=subscriber, is_first=is_first, form=form, message=message,
        feedback_message=feedback_message,
        hints=list(filter(None, (interest_reader.hint(row.text).limited_to(max_parts) for row in form.rows))),
        address=address, new_address=new_address,
        feedback=overview, until=forms.pause_form(subscriber, now, *pause),
        links=subscriber_links(link.request, subscriber, now), zones=forms.zones(),
        amounts=forms.AMOUNT_OPTIONS, retention_days=app.settings.retention_days,
        lacks_interests=lacks_interests,
        history=history, unfolded=digest_history.UNFOLDED,
        # A page with a preview must not become too large. Scripts fetch suggestions for what is typed.
        suggestions=[] if digest_preview else paper_cards.suggestions(link.request, limit=40),
    )  # fmt: skip
