"""Remove hidden papers from the digests that have been composed but not sent yet."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement
from sqlmodel import Session, col, func, select

from app.delivery.ledger.signatures import NOT_AHEAD
from app.delivery.ledger.snapshots import A_DAY, COLUMNS, is_readable, paper_ids, paper_updates
from app.delivery.ledger.transitions import set_state
from app.papers import canonical_rows
from app.storage.database import in_array
from app.storage.models import Delivery, DigestContent, Paper, PaperSnapshot
from app.storage.models import DeliveryState as State
from app.types import MailKind

NOTHING_LEFT = "an operator hid the only paper in it"
BATCH = 500  # digests that are read at once
# Digests that are being sent or may have arrived must not change.
_UNSENT = (State.PENDING, State.DEFERRED)


def leave_out(session: Session, papers: Collection[int]) -> int:
    """Remove hidden papers and updates on them from all unsent digests, and return how many changed.

    A digest that contained no other paper is skipped. On PostgreSQL, digests that are being claimed do not
    change: see `leave_out_hidden`.
    """
    unsent = col(Delivery.state).in_(_UNSENT)
    ids = _find_candidates(session, papers, unsent)
    batches = (ids[start : start + BATCH] for start in range(0, len(ids), BATCH))
    in_batches = (in_array(session, col(Delivery.id), batch) & unsent for batch in batches)
    return sum(len(_leave_out(session, papers, batch, skip_locked=True)) for batch in in_batches)


def leave_out_hidden(session: Session, claimed_ids: Collection[int]) -> list[int]:
    """Remove hidden papers from digests that have just been claimed. Return the ids of the skipped digests.

    `leave_out` does not change digests that were being sent or had failed when a paper was hidden. If such a
    digest is sent again, it is claimed again. Must be called in the same transaction as the claim.
    """
    hidden = canonical_rows.hidden(session)
    claimed = in_array(session, col(Delivery.id), claimed_ids)
    ids = _find_candidates(session, hidden, claimed) if hidden else []
    if not ids:
        return []
    # Wait for a process that signs these digests ahead.
    changed = _leave_out(session, hidden, in_array(session, col(Delivery.id), ids), skip_locked=False)
    return [delivery.id or 0 for delivery in changed if delivery.state is State.SKIPPED]


def _find_candidates(
    session: Session, papers: Collection[int], condition: ColumnElement[bool]
) -> Sequence[int | None]:
    """Return the ids of the digests that meet a condition, may contain one of the papers and may change.

    All `papers` must be hidden.
    """
    digests = select(Delivery.id).where(
        condition, Delivery.kind == MailKind.DIGEST, col(Delivery.possibly_delivered).is_(False)
    )
    oldest = session.execute(digests.with_only_columns(func.min(col(Delivery.created_at)))).scalar()
    if oldest is None:
        return []
    since = oldest - A_DAY  # the digests of a day share snapshots
    # Digests composed after a paper was hidden, or merged into a hidden one, do not contain it.
    changed = in_array(session, col(Paper.id), papers), col(Paper.updated_at) >= since
    if session.exec(select(Paper.id).where(*changed).limit(1)).first() is None:
        return []
    in_digests = select(PaperSnapshot.id).where(
        in_array(session, col(PaperSnapshot.paper_id), papers), col(PaperSnapshot.created_at) >= since
    )
    if session.exec(in_digests.limit(1)).first() is None:  # only updates can mention these papers
        with_updates = col(DigestContent.has_updates)
        digests = digests.join(DigestContent, col(DigestContent.delivery_id) == Delivery.id).where(
            with_updates
        )
    return session.exec(digests.order_by(col(Delivery.id))).all()


def _leave_out(
    session: Session, papers: Collection[int], condition: ColumnElement[bool], *, skip_locked: bool
) -> list[Delivery]:
    """Remove papers from the deliveries that meet a condition. Return the changed deliveries."""
    joined = select(Delivery, DigestContent).join(
        DigestContent, col(DigestContent.delivery_id) == Delivery.id
    )
    chosen = joined.where(condition).with_for_update(skip_locked=skip_locked)
    changed = []
    for delivery, content in session.exec(chosen).all():
        if not isinstance(content.digest, dict) or _papers_of(content.digest).isdisjoint(papers):
            continue
        changed.append(delivery)
        content.digest = _without(content.digest, papers)
        content.signature = ""
        # A digest that is to be signed ahead is signed again. Others are signed when they are sent.
        content.signature_fingerprint = NOT_AHEAD if content.signature_fingerprint == NOT_AHEAD else ""
        if not paper_ids(content.digest):
            set_state(delivery, State.SKIPPED, NOTHING_LEFT)
    session.flush()
    return changed


def _papers_of(stored: Mapping[str, Any]) -> set[int]:
    """Return the ids of the papers in a stored digest, and of the papers in its updates."""
    return {*paper_ids(stored), *(item.paper_id for item in paper_updates(stored)[0])}


def _without(stored: Mapping[str, Any], papers: Collection[int]) -> dict[str, Any]:
    """Return a stored digest without the items of some papers, and without sections that become empty."""
    if "updates" in stored:
        stored = {**stored, "updates": _updates_without(stored["updates"], papers)}
    sections = stored.get("sections")
    if not isinstance(sections, list):
        return dict(stored)
    remaining = []
    for section in sections:
        if not is_readable(section):
            remaining.append(section)
            continue
        left = [place for place, paper in enumerate(section["papers"]) if paper not in papers]
        if left:
            columns = {name: [section[name][place] for place in left] for name in COLUMNS}
            remaining.append({**section, **columns})
    return {**stored, "sections": remaining}


def _updates_without(stored: Any, papers: Collection[int]) -> Any:
    """Return stored updates without those on some papers. Keep unreadable items."""
    if not isinstance(stored, list):
        return stored
    return [item for item in stored if _papers_of({"updates": [item]}).isdisjoint(papers)]
