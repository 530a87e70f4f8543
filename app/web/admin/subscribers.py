"""Find subscribers, show their digests and the reasons for skipped digests, and act for subscribers."""

from collections.abc import Collection
from typing import NamedTuple, Unpack

from fastapi import APIRouter, Response
from fastapi.responses import HTMLResponse, PlainTextResponse
from pydantic import ValidationError
from sqlmodel import col, select

from app import pipeline
from app.delivery import ledger, suppression
from app.digests.explanation_text import list_scores
from app.digests.explanation_types import Explanation
from app.errors import Conflict, InvalidAddress, InvalidInput, NotFound, TooManyRequests
from app.storage.models import Delivery, Event, SubscriberState
from app.subscribers import ABSOLUTE_MAX_INTERESTS
from app.web import security
from app.web.admin.double_clicks import AdminRoute
from app.web.admin.pagination import Position, page_at
from app.web.admin.sign_in import (
    FormOutcome,
    Operator,
    ProspectiveSender,
    ProspectiveWriter,
    Reader,
    Sender,
    Writer,
    back_to,
    refusal,
)
from app.web.api import digests, suppressions
from app.web.api import subscribers as api
from app.web.api.auth import Id
from app.web.api.pagination import window_of
from app.web.errors import please_wait, with_retry_after
from app.web.forms import Text

router = APIRouter(include_in_schema=False, route_class=AdminRoute)

PATH = "/admin/subscribers"
SUBSCRIBERS_SHOWN, MAILS_SHOWN, EVENTS_SHOWN = 50, 30, 30
MESSAGES = {
    "added": "Added. To change the schedule or the number of papers, choose “Change the preferences”.",
    "invited": "Added. They get an email with a link to confirm. Digests start after that.",
    "paused": "Paused until the subscriber resumes.",
    "resumed": "Digests have resumed.",
    "unsubscribed": "Unsubscribed. They can sign up again themselves.",
    "lifted": "The address is no longer suppressed.",
    "links": "The earlier links no longer work. New ones will be sent {timing.mails}.",
    "tested": "The test digest was handed to the relay.",
    "preferences": "The preferences are saved. They apply from the next digest on.",
    "address": "The old address gets a link to confirm the change. After that, the new address gets one.",
    "moved": "The address was changed.",
    "erased": "Erased, except a hash of the address: it gets no more mail, and nobody can sign up with it.",
    "confirmed": "The email is recorded as sent.",
    "resent": "The email will be sent again {timing.mails}.",
}


# Problems with values that the API would refuse, keyed by field of the form that adds a subscriber.
FIELD_PROBLEMS = {
    "email": "The address can have at most 320 characters.",
    "interests": (
        f"There can be at most {ABSOLUTE_MAX_INTERESTS} interests, one per line, with at most 1,000 "
        "characters each."
    ),
    "consent": "Say how and when the person gave consent, in 3 to 500 characters.",
}


class Positions(NamedTuple):
    """The positions in the lists of emails and events on a subscriber's page."""

    mails: str = ""
    events: str = ""


@router.get(PATH)
def list_subscribers(
    operator: Reader, search: str = "", state: str = "", cursor: str | None = None, done: str = ""
) -> Response:
    return _subscribers_page(operator, search, state, cursor, message=MESSAGES.get(done, ""))


@router.post(PATH)
def add_subscriber(operator: Writer, email: Text = "", interests: Text = "", consent: Text = "") -> Response:
    """Add a subscriber who gave consent elsewhere. Without the `send` scope, ask them to confirm."""
    typed = {"email": email, "interests": interests, "consent": consent}
    try:
        rows = [{"text": text} for text in _lines(interests)]
        body = api.NewSubscriber.model_validate(
            {"email": email.strip(), "consent": consent.strip(), "interests": rows}
        )
        added = api.add_subscriber(operator, body)
    except ValidationError as error:
        field = str(error.errors()[0]["loc"][0])
        return _subscribers_page(operator, typed=typed, problem=FIELD_PROBLEMS[field], status=422)
    except (InvalidInput, Conflict, TooManyRequests) as error:
        outcome = refusal(error, "add them again")
        field, _, place = (getattr(error, "field", None) or "").partition(".")
        if field == "interests" and not rows:
            outcome["problem"] = "Enter at least one interest."
        elif field == "interests" and place:
            outcome["problem"] = f"“{rows[int(place)]['text']}”: {error}"
        return _subscribers_page(operator, typed=typed, **outcome)
    return back_to(f"{PATH}/{added.id}", "added" if operator.may("send") else "invited")


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _subscribers_page(
    operator: Operator,
    search: str = "",
    state: str = "",
    cursor: str | None = None,
    *,
    typed: dict[str, str] | None = None,
    **outcome: Unpack[FormOutcome],
) -> Response:
    window = window_of(SUBSCRIBERS_SHOWN, cursor)
    with_state = SubscriberState(state) if state in set(SubscriberState) else None
    listed = api.list_subscribers(operator, window, with_state, search=search[:320] or None)
    return operator.page(
        "admin/subscribers.html", subscribers=listed.items, search=search, state=state,
        states=SubscriberState, next_cursor=listed.next_cursor,
        typed=typed or {"email": "", "interests": "", "consent": ""}, **outcome,
    )  # fmt: skip


@router.get(PATH + "/{subscriber_id}")
def show_subscriber(
    operator: Reader,
    subscriber_id: Id,
    paper: str = "",
    done: str = "",
    mails: Position = "",
    events: Position = "",
) -> Response:
    """Show a subscriber. If `paper` is given, explain why they did or did not get it.

    `mails` and `events` are positions in the lists of emails and events.
    """
    explanation = problem = None
    if paper.strip():
        try:
            with operator.capacity.analyses.take():
                explanation = pipeline.explain(operator.app, operator.now, str(subscriber_id), paper.strip())
        except (InvalidInput, NotFound) as error:
            problem = str(error)
    return _page(
        operator, subscriber_id, message=MESSAGES.get(done, ""), problem=problem or "",
        paper=paper, explanation=explanation, at=Positions(mails, events),
    )  # fmt: skip


@router.get(PATH + "/{subscriber_id}/preview")
def preview_digest(operator: Reader, subscriber_id: Id) -> Response:
    """Show the digest that the subscriber would get now, or why there would be none."""
    preview = _preview(operator, subscriber_id)
    email = api.get_subscriber(operator, subscriber_id).email
    return operator.page(
        "admin/subscriber_preview.html", headers=security.FRAMING_PAGE, preview=preview,
        subscriber_id=subscriber_id, email=email,
    )  # fmt: skip


@router.get(PATH + "/{subscriber_id}/preview/html")
def show_preview_html(operator: Reader, subscriber_id: Id) -> Response:
    """Return the HTML part of the digest, or why there is none, for the frame on the page of the preview."""
    headers = security.ADMIN_PAGE | security.FRAMED_MAIL
    try:
        preview = _preview(operator, subscriber_id)
    except TooManyRequests as error:
        text = please_wait(error, "reload the page")
        return with_retry_after(PlainTextResponse(text, 429, headers), error)
    if preview.skipped:  # since the page was shown
        return PlainTextResponse(f"There would be no digest now: {preview.skipped}.", headers=headers)
    return HTMLResponse(preview.html, headers=headers)


def _preview(operator: Operator, subscriber_id: int) -> digests.PreviewResponse:
    with operator.capacity.analyses.take():
        return digests.preview_for_subscriber(operator, subscriber_id, None)


@router.post(PATH + "/{subscriber_id}/test")
def send_test(operator: Sender, subscriber_id: Id, to: Text = "") -> Response:
    """Send the digest that the subscriber would get now, or else the last one, to the given address."""
    try:
        with operator.capacity.analyses.take():
            body = digests.Recipient(to=to[:320])
            outcome = digests.send_test(operator, subscriber_id, body, None)
    except (InvalidAddress, Conflict, TooManyRequests) as error:
        return _page(operator, subscriber_id, to=to[:320], **refusal(error, "send the test again"))
    if outcome.code is None or outcome.code >= 400:
        problem = f"The relay did not accept the test digest: {outcome.code or ''} {outcome.reply}"
        return _page(operator, subscriber_id, problem=problem, to=to[:320], status=502)
    return back_to(f"{PATH}/{subscriber_id}", "tested")


@router.post(PATH + "/{subscriber_id}/pause")
def pause(operator: Writer, subscriber_id: Id) -> Response:
    api.pause_subscriber(operator, subscriber_id, api.Pausing())
    return back_to(f"{PATH}/{subscriber_id}", "paused")


@router.post(PATH + "/{subscriber_id}/resume")
def resume(operator: Sender, subscriber_id: Id) -> Response:
    api.resume_subscriber(operator, subscriber_id)
    return back_to(f"{PATH}/{subscriber_id}", "resumed")


@router.get(PATH + "/{subscriber_id}/unsubscribe")
def ask_unsubscription(operator: ProspectiveWriter, subscriber_id: Id) -> Response:
    """Ask before a subscriber is unsubscribed."""
    return _confirmation_page(
        operator,
        subscriber_id,
        "Unsubscribe {email}?",
        "The subscriber gets no more digests. Only the subscriber can undo this. Operators can’t. To "
        "stop digests for a while, pause the subscription instead.",
        states={*SubscriberState} - {SubscriberState.UNSUBSCRIBED, SubscriberState.ERASED},
        confirm="Unsubscribe",
    )


@router.post(PATH + "/{subscriber_id}/unsubscribe")
def unsubscribe(operator: Writer, subscriber_id: Id) -> Response:
    api.unsubscribe_subscriber(operator, subscriber_id)
    return back_to(f"{PATH}/{subscriber_id}", "unsubscribed")


@router.post(PATH + "/{subscriber_id}/lift")
def lift_suppression(operator: Sender, subscriber_id: Id) -> Response:
    """Lift the suppression of the subscriber's address."""
    email = api.get_subscriber(operator, subscriber_id).email
    try:
        body = suppressions.Lifting(email=email, reason=operator.reason(""))
        suppressions.lift_suppression(operator, body)
    except (InvalidAddress, NotFound) as error:
        return _page(operator, subscriber_id, problem=str(error), status=409)
    return back_to(f"{PATH}/{subscriber_id}", "lifted")


@router.get(PATH + "/{subscriber_id}/new-links")
def ask_new_links(operator: ProspectiveSender, subscriber_id: Id) -> Response:
    """Ask before the links of a subscriber are replaced."""
    return _confirmation_page(
        operator,
        subscriber_id,
        "Send new links to {email}?",
        "The subscriber gets an email with new links. The links in all earlier emails stop working, except "
        "those to unsubscribe, and so do the addresses of the subscriber’s feed.",
        states={*SubscriberState} - {SubscriberState.PENDING, SubscriberState.ERASED},
        confirm="Send new links",
    )


@router.post(PATH + "/{subscriber_id}/new-links")
def mail_new_links(operator: Sender, subscriber_id: Id) -> Response:
    try:
        api.make_new_links(operator, subscriber_id)
    except Conflict as error:
        return _page(operator, subscriber_id, problem=str(error), status=409)
    return back_to(f"{PATH}/{subscriber_id}", "links")


@router.post(PATH + "/{subscriber_id}/address")
def change_address(operator: Writer, subscriber_id: Id, email: Text = "", confirmed: Text = "") -> Response:
    """Send links to confirm a new address, or change it at once if it was `confirmed` elsewhere."""
    try:
        body = api.SubscriberPatch(email=email.strip(), email_confirmed=bool(confirmed))
        api.change_subscriber(operator, subscriber_id, body)
    except ValidationError:
        problem = "This address is too long."
        return _page(operator, subscriber_id, problem=problem, new_address=email[:320], status=422)
    except (InvalidInput, Conflict, TooManyRequests) as error:
        outcome = refusal(error, "change the address again")
        return _page(operator, subscriber_id, new_address=email[:320], **outcome)
    return back_to(f"{PATH}/{subscriber_id}", "moved" if confirmed else "address")


@router.post(PATH + "/{subscriber_id}/erase")
def erase(operator: Writer, subscriber_id: Id, sure: Text = "") -> Response:
    """Erase a subscriber if the confirmation box is checked."""
    if sure != "yes":
        problem = "Check the box to erase this subscriber. This cannot be undone."
        return _page(operator, subscriber_id, problem=problem, status=422)
    api.erase_subscriber(operator, subscriber_id)
    return back_to(PATH, "erased")


def _confirmation_page(
    operator: Operator,
    subscriber_id: int,
    question: str,
    consequences: str,
    *,
    states: Collection[SubscriberState],
    confirm: str,
) -> Response:
    """Ask before an action on a subscriber, whose address replaces `{email}` in the question.

    Raise Conflict if the subscriber is not in one of the `states` that allow the action.
    """
    subscriber = api.get_subscriber(operator, subscriber_id)
    if subscriber.state not in states:
        raise Conflict(f"This subscriber’s state is now “{subscriber.state}”, which rules out this action.")
    return operator.confirmation_page(
        question.format(email=subscriber.email),
        consequences,
        confirm=confirm,
        section=PATH,
        back=f"{PATH}/{subscriber_id}",
        facts={"State": subscriber.state},
    )


def _page(
    operator: Operator,
    subscriber_id: int,
    *,
    paper: str = "",
    explanation: Explanation | None = None,
    new_address: str = "",
    to: str = "",
    at: Positions = Positions(),
    **outcome: Unpack[FormOutcome],
) -> Response:
    subscriber = api.get_subscriber(operator, subscriber_id)
    with operator.db.read() as session:
        suppressed = suppression.get(session, subscriber.email) if subscriber.email else None
        own = select(Delivery).where(Delivery.subscriber_id == subscriber_id)
        mails = page_at(session, own, col(Delivery.id), MAILS_SHOWN, at.mails)
        reasons = ledger.reasons_by_delivery(session, mails.rows)
        happened = select(Event).where(Event.subscriber_id == subscriber_id)
        events = page_at(session, happened, col(Event.id), EVENTS_SHOWN, at.events)
    return operator.page(
        "admin/subscriber.html", subscriber=subscriber, mails=mails, reasons=reasons, events=events, at=at,
        suppressed=suppressed, paper=paper, explanation=explanation,
        scores=[*list_scores(explanation)] if explanation else [], new_address=new_address, to=to, **outcome,
    )  # fmt: skip
