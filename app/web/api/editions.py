"""Editions: list them, reconcile them with the ledger, pause, resume or cancel them, or pause all sending."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field
from sqlmodel import Session

from app.delivery import ledger
from app.digests import reconciliation
from app.errors import NotFound
from app.storage import audit_log
from app.storage.models import Delivery, DeliveryState
from app.types import MailKind
from app.web.api import problems
from app.web.api.auth import Caller, CanRead, CanSend
from app.web.api.etags import IfMatch, Versioned, require_match
from app.web.api.pagination import Page, Paging, cut
from app.web.api.values import FROM_URL, EditionDay, Representation, RequestBody

router = APIRouter(tags=["editions"])

Name = Annotated[
    EditionDay, Path(examples=["2026-11-20"], json_schema_extra={"pattern": r"^\d{4}-\d\d-\d\d$"})
]
PausedEdition = Annotated[str, Path(max_length=40, examples=["2026-11-20"])]  # 0.1.0 accepted any text
SampleSize = Annotated[int, Query(ge=1, le=50), FROM_URL]


class States(BaseModel):
    """The number of emails in each state."""

    pending: int
    claimed: int
    committing: int
    sent: int = Field(examples=[990])
    deferred: int
    failed: int
    suppressed: int
    uncertain: int
    skipped: int


class ReconciliationOut(States):
    """The reconciliation of due digests with the ledger: due + surplus = all states + unplanned + missing.

    `due` is counted from the subscribers and their cadences, not from the ledger.
    """

    due: int = Field(examples=[1000], description="Digests that were due according to subscribers' cadences.")
    unplanned: int = Field(description="Digests that are due but not planned yet.")
    missing: int = Field(description="Digests that were due but were never planned.")
    surplus: int = Field(description="Digests in the ledger that were not due.")
    unknown_zone: int = Field(
        description="Active subscribers who are not counted, because this server does not know their zone."
    )
    consistent: bool = Field(
        description="True if no digest is missing or surplus, and all time zones are known."
    )


class PauseOut(Representation):
    """A pause of sending."""

    edition: str = Field(
        examples=["2026-11-20"],
        description="An edition, `*` for all emails, or `first digests` for those of imported subscribers.",
    )
    reason: str
    since: datetime


class EditionOut(BaseModel):
    """The digests for a local day, including those of weekly subscribers."""

    edition: str = Field(examples=["2026-11-20"])
    digests: States
    paused: PauseOut | None = None


class ReasonOut(BaseModel):
    """The number of digests in a state for one reason."""

    state: DeliveryState
    reason: str = Field(examples=["no new papers"])
    digests: int = Field(examples=[12])


class Edition(Versioned):
    """The digests for a local day, reconciled with the subscribers who were due."""

    edition: str = Field(examples=["2026-11-20"])
    reconciliation: ReconciliationOut
    reasons: list[ReasonOut] = Field(description="The reasons why digests were not sent, most common first.")
    paused: PauseOut | None = None


class WaitingOut(BaseModel):
    """The unsent emails of one kind, such as confirmations. Digests are not included."""

    kind: MailKind = Field(examples=[MailKind.CONFIRM])
    mails: int = Field(examples=[2])
    next_attempt_at: datetime = Field(
        description="The time at which the first of these emails is sent, unless all sending is `paused`."
    )


class Pauses(Versioned):
    """The pauses of sending: the fields of `Sending` that its ETag covers."""

    paused: bool
    pauses: list[PauseOut]


class Sending(Pauses):
    """The status of sending: pauses, reconciliation of recent editions, and unsent emails."""

    UNVERSIONED = frozenset({"reconciliation", "reconciled_at", "deliveries", "others"})

    reconciliation: ReconciliationOut = Field(
        description="The reconciliation of the editions of yesterday, today and tomorrow (UTC)."
    )
    reconciled_at: datetime = Field(
        description="The time of the oldest count in `reconciliation`. With over 10,000 subscribers, it may "
        "be up to ten minutes ago."
    )
    deliveries: States = Field(
        description="All emails in the ledger, of every kind. The digests of editions that are more than "
        "three days old may have been counted up to an hour ago."
    )
    others: list[WaitingOut]


class SampledDigest(BaseModel):
    """A digest that waits to be sent. `GET /deliveries/{id}` returns the whole digest."""

    delivery_id: int
    subscriber_id: int
    due_at: datetime
    titles: list[str] = Field(examples=[["Attention Is All You Need"]])


class FirstDigests(BaseModel):
    """First digests of added or imported subscribers that are held until an operator releases them."""

    held: int
    sample: list[SampledDigest]


class Resent(BaseModel):
    """The number of emails that will be sent again."""

    resent: int


class Confirmed(BaseModel):
    """The number of emails that were recorded as sent."""

    confirmed: int


class Retried(BaseModel):
    """The number of emails that will be sent again."""

    retried: int


class PauseRequest(RequestBody):
    """The reason for a pause, which other operators can see."""

    reason: str = Field(min_length=3, max_length=500, examples=["the relay signs with a wrong key"])


@router.get("/editions")
def list_editions(caller: CanRead, window: Paging) -> Page[EditionOut]:
    """List the editions, newest first, with the number of digests in each state.

    The numbers of editions that are more than three days old may be up to an hour old.
    """
    with caller.db.read() as session:
        names = ledger.editions(session, window.limit + 1, window.after)
        page, cursor = cut(names, window, str)
        counted = caller.app.edition_totals.count(session, page, caller.now)
        pauses = {pause.edition: PauseOut.model_validate(pause) for pause in ledger.pauses(session)}
    items = [
        EditionOut(edition=name, digests=_states(counted[name]), paused=pauses.get(name)) for name in page
    ]
    return Page(items=items, next_cursor=cursor)


@router.get("/editions/{edition}", responses=problems.responses(404))
def get_edition(caller: CanRead, edition: Name) -> Edition:
    """Return an edition and its reconciliation. Its digests are deleted after the retention period."""
    with caller.db.read() as session:
        current = _read_edition(caller, session, edition)
    if current is None:
        raise NotFound(ledger.describe_lack_of_digests(edition, caller.settings.retention_days, caller.now))
    return current


def _read_edition(caller: Caller, session: Session, edition: str) -> Edition | None:
    pauses = [PauseOut.model_validate(pause) for pause in ledger.pauses(session) if pause.edition == edition]
    is_expired = edition < (caller.now - timedelta(days=caller.settings.retention_days)).date().isoformat()
    counted = reconciliation.reconcile(session, caller.now, edition)
    if (is_expired or not counted.due) and not counted.states and not pauses:
        return None
    reasons = [ReasonOut(**each._asdict()) for each in ledger.commonest_reasons(session, edition)]
    paused = pauses[0] if pauses else None
    return Edition(
        edition=edition, reconciliation=_reconciliation_out(counted), reasons=reasons, paused=paused
    )


@router.get("/editions/{edition}/sample")
def draw_sample(caller: CanRead, edition: Name, size: SampleSize = 5) -> list[SampledDigest]:
    """Draw a sample of an edition's waiting digests, for review before it is approved or resumed."""
    with caller.db.read() as session:
        return _samples(caller, session, ledger.draw_waiting(session, edition, size))


def _samples(caller: Caller, session: Session, rows: Sequence[Delivery]) -> list[SampledDigest]:
    digests = ledger.restored_digests(session, [row.id for row in rows], caller.app.snapshots)
    return [
        SampledDigest(
            delivery_id=row.id or 0,
            subscriber_id=row.subscriber_id,
            due_at=row.due_at,
            titles=[item.title for item in digest.picks],
        )
        for row in rows
        if (digest := digests.get(row.id or 0))
    ]


@router.post("/editions/{edition}/pause", status_code=204)
def pause_edition(caller: CanSend, edition: Name, body: PauseRequest) -> None:
    """Stop sending an edition until it is resumed.

    It may be one that has not been planned yet, from yesterday to 60 days ahead. If it is already paused, the
    reason is added to that of the pause.
    """
    with caller.db.write() as session:
        ledger.pause_edition(session, edition, body.reason, caller.now)
        caller.record(session, audit_log.SENDING_PAUSED, edition, reason=body.reason)


@router.post("/editions/{edition}/hold", status_code=204, responses=problems.responses(409))
def hold_edition(caller: CanSend, edition: Name) -> None:
    """Hold an upcoming edition until it is approved (`POST /editions/{edition}/resume`)."""
    with caller.db.write() as session:
        ledger.hold(session, edition, caller.now)
        caller.record(session, "edition.hold", edition)


@router.post("/editions/{edition}/resume", status_code=204, responses=problems.responses(404, 412))
def resume_edition(caller: CanSend, edition: PausedEdition, if_match: IfMatch = None) -> None:
    """Resume sending an edition, or approve it if it awaits approval.

    With `If-Match`, this happens only if the edition has not changed since the client read it.
    """
    with caller.db.write() as session:
        ledger.lock_pause(session, edition)
        _require_version(caller, session, edition, if_match)
        end_pause(session, caller, edition)


@router.post("/editions/{edition}/resend-uncertain", responses=problems.responses(412))
def resend_uncertain(caller: CanSend, edition: Name, if_match: IfMatch = None) -> Resent:
    """Send all uncertain digests of an edition again, with the same Message-IDs and bytes.

    Some subscribers may receive their digest twice. Digests whose content was lost in a restore are not sent.
    With `If-Match`, this happens only if the edition has not changed since the client read it.
    """
    with caller.db.write() as session:
        _require_version(caller, session, edition, if_match)
        resent = ledger.resend_uncertain(session, edition, caller.now)
        caller.record(session, "edition.resend_uncertain", edition, resent=resent)
    return Resent(resent=resent)


@router.post("/editions/{edition}/confirm-uncertain", responses=problems.responses(412))
def confirm_uncertain(caller: CanSend, edition: Name, if_match: IfMatch = None) -> Confirmed:
    """Record all uncertain digests of an edition as sent, because they arrived. They are not sent again.

    With `If-Match`, this happens only if the edition has not changed since the client read it.
    """
    with caller.db.write() as session:
        _require_version(caller, session, edition, if_match)
        confirmed = ledger.confirm_uncertain(session, edition, caller.now)
        caller.record(session, "edition.confirm_uncertain", edition, confirmed=confirmed)
    return Confirmed(confirmed=confirmed)


@router.post("/editions/{edition}/retry-failed")
def retry_failed(caller: CanSend, edition: Name) -> Retried:
    """Send the failed digests of an edition again, except to subscribers who have a later digest.

    A digest stays failed if it may have arrived, if its subscriber gets no more digests, or if a later digest
    of the same subscriber is due, was or will be sent, or has failed, too. Therefore, nobody receives a paper
    twice.
    """
    with caller.db.write() as session:
        retried = ledger.retry_failed(session, edition, caller.now)
        caller.record(session, "edition.retry_failed", edition, retried=retried)
    return Retried(retried=retried)


@router.post("/editions/{edition}/cancel", responses=problems.responses(404, 412))
def cancel_edition(caller: CanSend, edition: Name, if_match: IfMatch = None) -> Edition:
    """Cancel all unsent emails of an edition. The papers may appear in the next digests.

    Emails that are being sent may still arrive, but are not tried again. Digests that have not been composed
    yet are still sent when they are due. To prevent that, pause the edition.
    """
    get_edition(caller, edition)  # raises NotFound before anything is logged
    with caller.db.write() as session:
        _require_version(caller, session, edition, if_match)
        cancelled = ledger.cancel(session, edition)
        caller.record(session, "edition.cancel", edition, ended=cancelled)
    return get_edition(caller, edition)


@router.get("/sending")
def get_sending(caller: CanRead) -> Sending:
    """Return the status of sending: pauses, reconciliation of recent editions, and unsent emails.

    The ETag covers only the pauses.
    """
    with caller.db.read() as session:
        return _read_sending(caller, session)


def _read_sending(caller: Caller, session: Session) -> Sending:
    pauses = dict(_read_pauses(session))
    recent = reconciliation.reconcile_recent(session, caller.now, caller.figures)
    waiting = ledger.waiting_mails(session)
    mails = _states(caller.app.edition_totals.count_all(session, caller.now))
    others = [WaitingOut(**group._asdict()) for group in waiting if group.kind is not MailKind.DIGEST]
    return Sending(
        **pauses,
        reconciliation=_reconciliation_out(recent),
        reconciled_at=caller.figures.oldest or caller.now,
        deliveries=mails,
        others=others,
    )


def _read_pauses(session: Session) -> Pauses:
    pauses = [PauseOut.model_validate(pause) for pause in ledger.pauses(session)]
    return Pauses(paused=any(pause.edition == ledger.ALL_EDITIONS for pause in pauses), pauses=pauses)


@router.post("/sending/pause", status_code=204)
def pause_sending(caller: CanSend, body: PauseRequest) -> None:
    """Pause all sending. Due digests are still composed, and wait until sending is resumed.

    If it is already paused, the reason is added to that of the pause.
    """
    with caller.db.write() as session:
        ledger.pause(session, body.reason, caller.now)
        caller.record(session, audit_log.SENDING_PAUSED, ledger.ALL_EDITIONS, reason=body.reason)


@router.post("/sending/resume", status_code=204, responses=problems.responses(404, 412))
def resume_sending(caller: CanSend, if_match: IfMatch = None) -> None:
    """Resume sending. Editions that were paused individually remain paused.

    With `If-Match`, this happens only if the pauses have not changed since the client read `GET /sending`.
    """
    with caller.db.write() as session:
        ledger.lock_pause(session, ledger.ALL_EDITIONS)
        require_match(if_match, _read_pauses(session))
        end_pause(session, caller, ledger.ALL_EDITIONS)


@router.get("/sending/first-digests")
def draw_first_digests(caller: CanRead, size: SampleSize = 5) -> FirstDigests:
    """Count the first digests that are held after an import, and draw some of them for review."""
    with caller.db.read() as session:
        count, rows = ledger.draw_held(session, size)
        return FirstDigests(held=count, sample=_samples(caller, session, rows))


@router.post("/sending/first-digests/resume", status_code=204, responses=problems.responses(404))
def resume_first_digests(caller: CanSend) -> None:
    """Send the first digests that are held after an import, and stop holding further ones."""
    with caller.db.write() as session:
        end_pause(session, caller, ledger.FIRST_DIGESTS)


def end_pause(session: Session, caller: Caller, edition: str) -> None:
    """Resume an edition or another scope. Raise NotFound if it is not paused."""
    if not ledger.resume(session, caller.now, edition):
        raise NotFound(
            "there is no such pause: all sending, first digests and each edition are paused separately"
        )
    caller.record(session, audit_log.SENDING_RESUMED, edition)


def _require_version(caller: Caller, session: Session, edition: str, if_match: str | None) -> None:
    """Raise PreconditionFailed if If-Match is set, and the edition has another version."""
    if if_match is not None:
        require_match(if_match, _read_edition(caller, session, edition))


def _reconciliation_out(counted: reconciliation.Reconciliation) -> ReconciliationOut:
    return ReconciliationOut.model_validate(counted.as_dict())


def _states(counted: Mapping[DeliveryState, int]) -> States:
    return States.model_validate({state.value: number for state, number in counted.items()})
