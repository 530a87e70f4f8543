"""Edit, hide, reinstate, pin, merge and split papers, and list the digests that contain them."""

from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, Field
from sqlmodel import Session

from app.delivery import ledger
from app.digests import operator_changes
from app.digests.operator_changes import Editor
from app.papers import merging, pinning
from app.storage.models import DeliveryState
from app.web.api import papers, problems
from app.web.api.auth import Analysis, CanRead, CanWrite, Id
from app.web.api.etags import IfMatch, require_match
from app.web.api.papers import PaperDetail
from app.web.api.values import Day, Integer, RequestBody

router = APIRouter(prefix="/papers", tags=["papers"])

RowId = Annotated[Integer, Field(ge=1, lt=2**31)]
_NULL = "null reverts the edit: the field gets its value from the sources again."


class PaperChange(RequestBody):
    """The fields to edit. Polls do not change an edited field. null reverts an edit."""

    title: str | None = Field(None, examples=["Pigeons that Plan"], description=_NULL)
    abstract: str | None = Field(None, description=_NULL)
    tldr: str | None = Field(None, description=f"The summary in one sentence. {_NULL}")
    authors: list[str] | None = Field(
        None, examples=[["Mei Tanaka"]], description=f"All authors, in order. {_NULL}"
    )
    published_on: Day | None = Field(None, examples=["2026-11-20"], description=_NULL)
    url: str | None = Field(None, description=_NULL)
    pdf_url: str | None = Field(None, description=_NULL)
    code_url: str | None = Field(None, description=_NULL)
    project_url: str | None = Field(None, description=_NULL)


class HideRequest(RequestBody):
    """The reason for hiding a paper, for the audit log."""

    reason: str = Field("", max_length=500, examples=["its authors asked for it"])


class PinRequest(RequestBody):
    """The duration of a pin."""

    days: Annotated[Integer, Field(ge=1, le=pinning.MAX_PIN_DAYS)] = pinning.PIN_DAYS


class MergeRequest(RequestBody):
    """The paper with which to merge a paper."""

    paper_id: RowId


class SplitRequest(RequestBody):
    """The part to split off: a merged row, the DOI, or the listings of a source."""

    row_id: RowId | None = None
    doi: bool = False
    source_id: RowId | None = None


class SplitOut(BaseModel):
    """The two papers after a split."""

    paper: PaperDetail
    split_off: PaperDetail


class PaperDeliveryOut(BaseModel):
    """A digest that contains the paper, with the interest and the reason."""

    delivery_id: int
    subscriber_id: int
    edition: str
    state: DeliveryState
    interest: str
    reason: str


class PaperDeliveries(BaseModel):
    """The digests that contain the paper: their number by state, and the newest of them."""

    states: dict[str, int] = Field(examples=[{"sent": 132}])
    complete: bool = Field(description="False if there are too many digests to count them all.")
    newest: list[PaperDeliveryOut]


@router.patch("/{paper_id}", responses=problems.responses(404, 412))
def edit_paper(caller: CanWrite, paper_id: Id, body: PaperChange, if_match: IfMatch = None) -> PaperDetail:
    """Edit a paper. Digests that have already been composed keep the old text."""
    with caller.db.write() as session:
        editor = Editor(session, caller.key.name, caller.now)
        if if_match is not None:
            require_match(if_match, _detail(session, editor.lock(paper_id).id))
        return _detail(session, editor.edit(paper_id, body.model_dump(exclude_unset=True)).id)


@router.post("/{paper_id}/hide", responses=problems.responses(404, 409))
def hide_paper(caller: CanWrite, paper_id: Id, body: HideRequest | None = None) -> PaperDetail:
    """Hide a paper from digests and public pages. It is removed from digests that wait to be sent."""
    reason = body.reason if body else ""
    with caller.db.write() as session:
        hidden = _detail(session, Editor(session, caller.key.name, caller.now).hide(paper_id, reason).id)
    caller.clear_public_caches()
    return hidden


@router.post("/{paper_id}/show", responses=problems.responses(404, 409))
def show_paper(caller: CanWrite, paper_id: Id) -> PaperDetail:
    """Show a hidden paper again."""
    with caller.db.write() as session:
        return _detail(session, Editor(session, caller.key.name, caller.now).show(paper_id).id)


@router.post("/{paper_id}/reinstate", responses=problems.responses(404, 409))
def reinstate_paper(caller: CanWrite, paper_id: Id) -> PaperDetail:
    """Reinstate a withdrawn paper. Polls will not withdraw it again."""
    with caller.db.write() as session:
        return _detail(session, Editor(session, caller.key.name, caller.now).reinstate(paper_id).id)


@router.post("/{paper_id}/pin", responses=problems.responses(404, 409))
def pin_paper(caller: CanWrite, paper_id: Id, body: PinRequest | None = None) -> PaperDetail:
    """Put a paper first in the digests of the next few days.

    Subscribers receive the paper if it matches their interests or if they get trending papers. Nobody
    receives it twice.
    """
    days = body.days if body else pinning.PIN_DAYS
    with caller.db.write() as session:
        return _detail(session, Editor(session, caller.key.name, caller.now).pin(paper_id, days).id)


@router.post("/{paper_id}/unpin", responses=problems.responses(404, 409))
def unpin_paper(caller: CanWrite, paper_id: Id) -> PaperDetail:
    """Unpin a paper."""
    with caller.db.write() as session:
        return _detail(session, Editor(session, caller.key.name, caller.now).unpin(paper_id).id)


@router.post("/{paper_id}/merge", responses=problems.responses(404, 409))
def merge_papers(caller: CanWrite, paper_id: Id, body: MergeRequest) -> PaperDetail:
    """Merge a paper with another, and return the surviving one.

    Subscribers who received one of the papers do not receive the other.

    The paper with an arXiv ID survives; otherwise the one with a DOI; otherwise the older one. Each field
    gets the newest value from the sources of both papers. Edited values, listings and votes are kept.
    """
    with caller.db.write() as session:
        return _detail(
            session, Editor(session, caller.key.name, caller.now).merge(paper_id, body.paper_id).id
        )


@router.post("/{paper_id}/split", responses=problems.responses(404, 409))
def split_paper(caller: CanWrite, paper_id: Id, body: SplitRequest) -> SplitOut:
    """Split off a part that is another paper. The two papers are never merged automatically again.

    Everyone who has received the paper counts as having received both papers.
    """
    with caller.db.write() as session:
        row_id = operator_changes.get(session, paper_id).id
        part = Editor(session, caller.key.name, caller.now).split(paper_id, **body.model_dump())
        return SplitOut(paper=_detail(session, row_id), split_off=_detail(session, part.id))


@router.get("/{paper_id}/deliveries", responses=problems.responses(404))
def list_paper_deliveries(caller: CanRead, _slot: Analysis, paper_id: Id) -> PaperDeliveries:
    """Return the digests that contain a paper, with the subscribers and the reasons."""
    with caller.db.read() as session:
        row_id = merging.id_of(operator_changes.get(session, paper_id))
        history = ledger.paper_history(session, merging.with_absorbed(session, row_id))
    return PaperDeliveries(
        states={state.value: count for state, count in history.states.items()},
        complete=history.is_complete,
        newest=[PaperDeliveryOut(**each._asdict()) for each in history.newest],
    )


def _detail(session: Session, paper_id: int | None) -> PaperDetail:
    session.flush()
    session.expire_all()  # merging moves listings and votes with UPDATE statements
    return papers.detail(session, paper_id or 0)
