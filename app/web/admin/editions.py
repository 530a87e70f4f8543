"""The editions: the outcomes of each day's digests with the reasons, and the actions of operators."""

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Unpack
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Response
from sqlmodel import Session, col, select

from app import subscribers
from app.delivery import ledger
from app.digests import reconciliation
from app.errors import Conflict, InvalidInput, NotFound
from app.storage.models import Delivery, DeliveryState
from app.text.in_words import count_of
from app.types import MailKind
from app.web.admin import remedies
from app.web.admin.double_clicks import AdminRoute
from app.web.admin.sign_in import FormOutcome, Operator, ProspectiveSender, Reader, Sender, back_to
from app.web.api import editions
from app.web.api.pagination import newest_first, window_of
from app.web.form_versions import version_of
from app.web.forms import Text

router = APIRouter(include_in_schema=False, route_class=AdminRoute)

EDITIONS_SHOWN, MAILS_SHOWN = 30, 50
RELOAD_AFTER = 10  # seconds
IN_TROUBLE = (DeliveryState.FAILED, DeliveryState.UNCERTAIN, DeliveryState.DEFERRED)
MESSAGES = {
    "paused": "Paused. Emails that are being sent still go out.",
    "all_paused": "Paused, including confirmations and links. Emails that are being sent still go out.",
    "first": remedies.FIRST_RELEASED,
    "held": "The edition will wait until an operator approves it.",
    "resumed": "Resumed. " + remedies.WAITING,
    "released": "The edition is no longer held.",
    "cancelled": "All unsent emails of this edition are cancelled.",
    "all_resent": (
        "Emails that will be sent again {timing.mails}: {count}. Emails whose content was lost in a restore "
        "stay uncertain."
    ),
    "retried": "Failed digests that will be sent again {timing.mails}: {count}.",
    "confirmed": "The email is recorded as sent.",
    "all_confirmed": "Emails that were recorded as sent: {count}.",
    "resent": "The email will be sent again {timing.mails}.",
}


@router.get("/admin/editions")
def list_editions(operator: Reader, cursor: str | None = None, done: str = "") -> Response:
    return _editions_page(operator, cursor, message=MESSAGES.get(done, ""))


@router.post("/admin/editions")
def hold_edition(operator: Sender, edition: Text = "") -> Response:
    """Hold an upcoming edition until it is approved."""
    name = edition.strip()[:40]
    try:
        editions.hold_edition(operator, name)
    except (InvalidInput, Conflict) as error:
        return _editions_page(operator, problem=str(error), typed=name, status=422)
    return back_to("/admin/editions", "held")


def _editions_page(
    operator: Operator, cursor: str | None = None, *, typed: str = "", **outcome: Unpack[FormOutcome]
) -> Response:
    window = window_of(EDITIONS_SHOWN, cursor)
    listed = editions.list_editions(operator, window)
    sending = editions.get_sending(operator)
    paused = {pause.edition for pause in sending.pauses} - {ledger.ALL_EDITIONS, ledger.FIRST_DIGESTS}
    first = editions.draw_first_digests(operator)
    with operator.db.read() as session:
        coming = paused - ledger.planned_editions(session, paused)
        addresses = subscribers.addresses_of(session, [each.subscriber_id for each in first.sample])
    return operator.page(
        "admin/editions.html", editions=listed.items, sending=sending, next_cursor=listed.next_cursor,
        typed=typed, approve_all=operator.settings.approve_editions,
        awaits_approval=ledger.AWAITS_APPROVAL, first=first, addresses=addresses,
        holds_first=any(pause.edition == ledger.FIRST_DIGESTS for pause in sending.pauses),
        coming=[pause for pause in sending.pauses if pause.edition in coming], version_of=version_of,
        **outcome,
    )  # fmt: skip


@router.get("/admin/editions/{edition}")
def show_edition(
    operator: Reader, edition: editions.Name, done: str = "", count: int = 0, reload: str = ""
) -> Response:
    """Show an edition. `count` is the number of emails that the action `done` changed.

    The page reloads while emails are being sent. No input is lost, because the page has no text fields.
    """
    message = MESSAGES.get(done, "").replace("{count}", f"{count:,}")
    with operator.db.read() as session:
        if ledger.is_paused(session, edition):
            message = message.replace("{timing.mails}", "when this edition is resumed")
    return _edition_page(operator, edition, reloads=not reload, message=message)


def _edition_page(
    operator: Operator, edition: str, *, reloads: bool = False, **outcome: Unpack[FormOutcome]
) -> Response:
    """Show an edition: its states, the most common reasons, and the emails with problems."""
    current = editions.get_edition(operator, edition)
    troubled = select(Delivery).where(
        Delivery.edition == edition, Delivery.kind == MailKind.DIGEST, col(Delivery.state).in_(IN_TROUBLE)
    )
    with operator.db.read() as session:
        mails = session.exec(troubled.order_by(col(Delivery.id).desc()).limit(MAILS_SHOWN)).all()
    is_sending = current.reconciliation.claimed or current.reconciliation.committing
    sample = editions.draw_sample(operator, edition) if current.paused else []
    with operator.db.read() as session:
        ids = [*(mail.subscriber_id for mail in mails), *(digest.subscriber_id for digest in sample)]
        addresses = subscribers.addresses_of(session, ids)
        held = ledger.count_held(session, edition)
        can_retry = current.reconciliation.failed and ledger.has_retryable(session, edition, operator.now)
        pauses = [pause for pause in ledger.pauses(session) if pause.edition == ledger.ALL_EDITIONS]
    return operator.page(
        "admin/edition.html", edition=current, mails=mails, sample=sample, addresses=addresses, held=held,
        can_retry=can_retry, meanings=reconciliation.MEANINGS, pauses_of_all=pauses, version_of=version_of,
        awaits_approval=current.paused is not None and ledger.awaits_approval(current.paused.reason),
        reload_after=RELOAD_AFTER if is_sending and reloads else 0, **outcome,
    )  # fmt: skip


@router.get("/admin/editions/{edition}/readers")
def list_readers(
    operator: Reader,
    edition: editions.Name,
    state: Annotated[list[str] | None, Query()] = None,
    cursor: str | None = None,
) -> Response:
    """List the subscribers whose digests of an edition are in the given states, with the reasons."""
    states = [each for each in DeliveryState if each in (state or ())]
    digests = select(Delivery).where(Delivery.edition == edition, Delivery.kind == MailKind.DIGEST)
    if states:
        digests = digests.where(col(Delivery.state).in_(states))
    with operator.db.read() as session:
        window = window_of(MAILS_SHOWN, cursor)
        rows, following = newest_first(session, digests, col(Delivery.id), window)
        reasons = ledger.reasons_by_delivery(session, rows)
        addresses = subscribers.addresses_of(session, [row.subscriber_id for row in rows])
    return operator.page(
        "admin/edition_readers.html", edition=edition, rows=rows, reasons=reasons, states=states,
        addresses=addresses, known=list(DeliveryState), meanings=reconciliation.MEANINGS,
        next_cursor=following, query=urlencode([("state", each.value) for each in states]),
    )  # fmt: skip


@router.post("/admin/editions/{edition}/pause")
def pause_edition(operator: Sender, edition: editions.Name, reason: Text = "") -> Response:
    body = editions.PauseRequest(reason=operator.reason(reason))
    editions.pause_edition(operator, edition, body)
    return back_to(f"/admin/editions/{edition}", "paused")


@router.post("/admin/editions/{edition}/resume")
def resume_edition(operator: Sender, edition: editions.PausedEdition, pause: Text = "") -> Response:
    """Resume an edition, unless its pause has another reason than the page showed."""
    remedies.end_pause(operator, edition, pause)
    with operator.db.read() as session:
        if not ledger.planned_editions(session, [edition]):  # the edition has no page yet
            return back_to("/admin/editions", "released")
    return back_to(f"/admin/editions/{edition}", "resumed")


@router.get("/admin/editions/{edition}/resend-uncertain")
def ask_resending(operator: ProspectiveSender, edition: editions.Name) -> Response:
    """Ask before all uncertain emails of an edition are sent again."""
    return _ask_about_uncertain(
        operator, edition, f"Send all uncertain emails of {edition} again?",
        "These emails may have arrived. Subscribers whose email did arrive may get it twice. The second "
        "copy has the same Message-ID, but not all mail clients hide it.",
        "Send them again",
    )  # fmt: skip


@router.get("/admin/editions/{edition}/confirm-uncertain")
def ask_confirmation(operator: ProspectiveSender, edition: editions.Name) -> Response:
    """Ask before all uncertain emails of an edition are recorded as arrived."""
    return _ask_about_uncertain(
        operator, edition, f"Record all uncertain emails of {edition} as arrived?",
        "These emails will not be sent again. Subscribers whose email did not arrive will not get its "
        "papers.",
        "Record them as arrived",
    )  # fmt: skip


def _ask_about_uncertain(
    operator: Operator, edition: str, question: str, consequences: str, confirm: str
) -> Response:
    with operator.db.read() as session:
        uncertain = ledger.uncertain_ids(session, edition)
    if not uncertain:
        raise NotFound(f"The edition {edition} has no uncertain emails.")
    return operator.confirmation_page(
        question, consequences, confirm=confirm, section="/admin/editions",
        back=f"/admin/editions/{edition}", facts={"Uncertain": count_of(len(uncertain), "email")},
        fields={"uncertain": version_of(str(uncertain))},
    )  # fmt: skip


@router.post("/admin/editions/{edition}/resend-uncertain")
def resend_uncertain(operator: Sender, edition: editions.Name, uncertain: Text = "") -> Response:
    resend = ledger.resend_uncertain
    return _settle_uncertain(operator, edition, uncertain, "resent", "edition.resend_uncertain", resend)


@router.post("/admin/editions/{edition}/confirm-uncertain")
def confirm_uncertain(operator: Sender, edition: editions.Name, uncertain: Text = "") -> Response:
    confirm = ledger.confirm_uncertain
    return _settle_uncertain(operator, edition, uncertain, "confirmed", "edition.confirm_uncertain", confirm)


def _settle_uncertain(
    operator: Operator, edition: str, version: str, done: str, action: str,
    settle: Callable[[Session, str, datetime], int],
) -> Response:  # fmt: skip
    """Settle the uncertain emails about which the operator was asked, unless they have changed since."""
    with operator.db.write() as session:
        if is_current := version == version_of(str(ledger.uncertain_ids(session, edition))):
            count = settle(session, edition, operator.now)
            operator.record(session, action, edition, **{done: count})
    if not is_current:
        problem = (
            "The uncertain emails of this edition have changed since you were asked. Nothing was done. Check "
            "the list, then choose the action again."
        )
        return _edition_page(operator, edition, problem=problem, status=409)
    return back_to(f"/admin/editions/{edition}", f"all_{done}", count=count)


@router.post("/admin/editions/{edition}/retry-failed")
def retry_failed(operator: Sender, edition: editions.Name) -> Response:
    count = editions.retry_failed(operator, edition).retried
    return back_to(f"/admin/editions/{edition}", "retried", count=count)


@router.get("/admin/editions/{edition}/cancel")
def ask_cancellation(operator: ProspectiveSender, edition: editions.Name) -> Response:
    """Ask before the unsent emails of an edition are cancelled."""
    editions.get_edition(operator, edition)  # raises NotFound
    with operator.db.read() as session:
        unsent = ledger.count_cancellable(session, edition)
    return operator.confirmation_page(
        f"Cancel the unsent emails of {edition}?",
        "Subscribers whose digest of this edition has not been sent get none. The papers may appear in their "
        "next digests. Emails that are being sent may still arrive. Digests that have not been composed yet "
        "are still sent when they are due. To prevent that, pause the edition.",
        confirm="Cancel all unsent emails",
        section="/admin/editions",
        back=f"/admin/editions/{edition}",
        facts={"Unsent": count_of(unsent, "email")},
    )


@router.post("/admin/editions/{edition}/cancel")
def cancel_edition(operator: Sender, edition: editions.Name) -> Response:
    editions.cancel_edition(operator, edition)
    return back_to(f"/admin/editions/{edition}", "cancelled")


@router.post("/admin/sending/pause")
def pause_sending(operator: Sender, reason: Text = "") -> Response:
    body = editions.PauseRequest(reason=operator.reason(reason))
    editions.pause_sending(operator, body)
    return back_to("/admin/editions", "all_paused")


@router.post("/admin/sending/first-digests/resume")
def resume_first_digests(operator: Sender) -> Response:
    editions.resume_first_digests(operator)
    return back_to("/admin/editions", "first")


@router.post("/admin/sending/resume")
def resume_sending(operator: Sender, pause: Text = "") -> Response:
    """Resume all sending, unless the pause has another reason than the page showed."""
    remedies.end_pause(operator, ledger.ALL_EDITIONS, pause)
    return back_to("/admin/editions", "resumed")
