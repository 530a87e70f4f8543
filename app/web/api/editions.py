"""Editions, the balance of each, and the brake: one edition or all can be paused, and one cancelled."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import BaseModel, Field

from app.delivery import ledger
from app.digests import reconciliation
from app.errors import NotFound
from app.storage import audit_log
from app.storage.models import DeliveryState, SendingPause
from app.types import MailKind
from app.web.api import problems
from app.web.api.auth import CanRead, CanSend, Now, Paperboy
from app.web.api.pagination import Page, Paging, cut

router = APIRouter(tags=["editions"])

Name = Annotated[str, Path(pattern=r"^\d{4}-(\d\d-\d\d|W\d\d)$", examples=["2026-11-20"])]


class States(BaseModel):
    """Mails by the one state that each is in."""

    pending: int
    claimed: int
    committing: int
    sent: int = Field(examples=[990])
    deferred: int
    failed: int
    suppressed: int
    uncertain: int
    skipped: int


class Balance(States):
    """Who was due, and what the ledger holds: due + surplus = all states + unplanned + missing.

    `due` is counted from the subscribers and their cadences, not from the ledger.
    """

    due: int = Field(examples=[1000], description="Digests that were due, by subscribers and cadence.")
    unplanned: int = Field(description="Due, and not in the ledger yet: planning has not reached them.")
    missing: int = Field(description="Due, and not in the ledger, although planning has passed them.")
    surplus: int = Field(description="In the ledger, although nobody was due.")
    holds: bool = Field(description="Nothing is missing, and nothing is surplus.")


class PauseOut(BaseModel):
    """Something that is held back."""

    edition: str = Field(examples=["2026-11-20"], description="One edition, or * for everything.")
    reason: str
    since: datetime


class EditionOut(BaseModel):
    """The digests of a local day (2026-11-20) or week (2026-W47)."""

    edition: str = Field(examples=["2026-11-20"])
    digests: States
    paused: PauseOut | None = None


class Edition(BaseModel):
    """The digests of a local day, compared with who was due."""

    edition: str = Field(examples=["2026-11-20"])
    balance: Balance
    paused: PauseOut | None = None


class WaitingOut(BaseModel):
    """Mails that are no digests, and are still to leave: confirmations, and links that were asked for."""

    kind: MailKind = Field(examples=[MailKind.CONFIRM])
    mails: int = Field(examples=[2])
    next_attempt_at: datetime = Field(description="When the first of them is tried.")


class Sending(BaseModel):
    """Whether mails leave, the balance of the editions of these days, and what waits besides digests."""

    paused: bool
    pauses: list[PauseOut]
    balance: Balance = Field(description="Of the editions of yesterday, today and tomorrow (UTC).")
    deliveries: States = Field(description="All mails of every kind in the ledger.")
    others: list[WaitingOut]


class Reason(BaseModel):
    """Why sending is stopped: whoever finds it stopped reads this."""

    reason: str = Field(min_length=3, max_length=500, examples=["the relay signs with a wrong key"])


@router.get("/editions")
def list_editions(app: Paperboy, _key: CanRead, window: Paging) -> Page[EditionOut]:
    """The editions in descending order of their names, with their digests by state."""
    with app.db.read() as session:
        names = ledger.editions(session, window.limit + 1, window.after)
        shown, cursor = cut(names, window, str)
        counted = ledger.digest_totals_by_edition(session, shown)
        pauses = {pause.edition: _pause(pause) for pause in ledger.pauses(session)}
    items = [
        EditionOut(edition=name, digests=_states(counted[name]), paused=pauses.get(name)) for name in shown
    ]
    return Page(items=items, next_cursor=cursor)


@router.get("/editions/{edition}", responses=problems.responses(404))
def get_edition(app: Paperboy, _key: CanRead, now: Now, edition: Name) -> Edition:
    """One edition, compared with who was due for it. Digests older than the retention are not there."""
    with app.db.read() as session:
        pauses = [_pause(pause) for pause in ledger.pauses(session) if pause.edition == edition]
        forgotten = edition < (now - timedelta(days=app.settings.retention_days)).date().isoformat()
        counted = reconciliation.reconcile(session, now, edition)
    if (forgotten or not counted.due) and not counted.states and not pauses:
        raise NotFound(f"no digest of the edition {edition} was ever due")
    paused = pauses[0] if pauses else None
    return Edition(edition=edition, balance=_balance(counted), paused=paused)


@router.post("/editions/{edition}/pause", status_code=204)
def pause_edition(app: Paperboy, key: CanSend, now: Now, edition: Name, wanted: Reason) -> None:
    """Let no mail of this edition leave, whether it exists already or not."""
    _pause_it(app, key.name, now, edition, wanted.reason)


@router.post("/editions/{edition}/resume", status_code=204, responses=problems.responses(404))
def resume_edition(app: Paperboy, key: CanSend, now: Now, edition: Name) -> None:
    """Let the mails of this edition leave again."""
    _resume_it(app, key.name, now, edition)


@router.post("/editions/{edition}/cancel", responses=problems.responses(404))
def cancel_edition(app: Paperboy, key: CanSend, now: Now, edition: Name) -> Edition:
    """End every mail of this edition that has not left; its papers may come with the reader's next digest.

    What is in flight gets its answer. Readers whose digest is not composed yet still get theirs, when their
    hour comes: to hold those back, pause the edition.
    """
    get_edition(app, key, now, edition)  # or there is none, and nothing to be noted
    with app.db.write() as session:
        ended = ledger.cancel(session, edition)
        audit_log.record(session, key.name, "edition.cancel", edition, now, ended=ended)
    return get_edition(app, key, now, edition)


@router.get("/sending")
def get_sending(app: Paperboy, _key: CanRead, now: Now) -> Sending:
    """Whether mails leave, what is held back, the balance of these days' editions, and what else waits."""
    with app.db.read() as session:
        pauses = [_pause(pause) for pause in ledger.pauses(session)]
        balance, waiting = (
            _balance(reconciliation.reconcile_recent(session, now)),
            ledger.waiting_mails(session),
        )
        mails = _states(ledger.totals(session))
    others = [WaitingOut(**each._asdict()) for each in waiting if each.kind is not MailKind.DIGEST]
    everything = any(pause.edition == ledger.ALL_EDITIONS for pause in pauses)
    return Sending(paused=everything, pauses=pauses, balance=balance, deliveries=mails, others=others)


@router.post("/sending/pause", status_code=204)
def pause_sending(app: Paperboy, key: CanSend, now: Now, wanted: Reason) -> None:
    """Let no mail leave at all. What is due is composed and waits."""
    _pause_it(app, key.name, now, ledger.ALL_EDITIONS, wanted.reason)


@router.post("/sending/resume", status_code=204, responses=problems.responses(404))
def resume_sending(app: Paperboy, key: CanSend, now: Now) -> None:
    """Let mails leave again. An edition that was paused by itself stays so."""
    _resume_it(app, key.name, now, ledger.ALL_EDITIONS)


def _pause_it(app: Paperboy, actor: str, now: datetime, edition: str, reason: str) -> None:
    with app.db.write() as session:
        ledger.pause(session, reason, now, edition)
        audit_log.record(session, actor, "sending.pause", edition, now, reason=reason)


def _resume_it(app: Paperboy, actor: str, now: datetime, edition: str) -> None:
    with app.db.write() as session:
        if not ledger.resume(session, edition):
            raise NotFound("this is not paused")
        audit_log.record(session, actor, "sending.resume", edition, now)


def _balance(counted: reconciliation.Reconciliation) -> Balance:
    return Balance.model_validate(counted.as_dict())


def _states(counted: Mapping[DeliveryState, int]) -> States:
    return States.model_validate({state.value: number for state, number in counted.items()})


def _pause(row: SendingPause) -> PauseOut:
    return PauseOut.model_validate(row.model_dump())
