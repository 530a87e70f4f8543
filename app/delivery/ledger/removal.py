"""Remove a paper from the digests that have been composed but not sent yet."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from sqlmodel import Session, col, select

from app.delivery.ledger.signatures import NOT_AHEAD
from app.delivery.ledger.snapshots import COLUMNS, is_readable, paper_ids, paper_updates
from app.delivery.ledger.transitions import set_state
from app.storage.database import in_array
from app.storage.models import Delivery, DigestContent, PaperSnapshot
from app.storage.models import DeliveryState as State
from app.types import MailKind

NOTHING_LEFT = "an operator hid the only paper in it"
BATCH = 500  # digests that are read at once
# Digests that are being sent or may have arrived must not change.
_UNSENT = (State.PENDING, State.DEFERRED)


def leave_out(session: Session, papers: Collection[int]) -> int:
    """Remove papers and updates on them from all unsent digests. Return the number of changed digests.

    A digest that contained no other paper is skipped.
    """
    waiting = select(Delivery.id).where(
        col(Delivery.state).in_(_UNSENT),
        Delivery.kind == MailKind.DIGEST,
        col(Delivery.possibly_delivered).is_(False),
    )
    in_digests = select(PaperSnapshot.id).where(col(PaperSnapshot.paper_id).in_(papers))
    if session.exec(in_digests.limit(1)).first() is None:  # only updates can mention these papers
        with_updates = col(DigestContent.has_updates)
        waiting = waiting.join(DigestContent, col(DigestContent.delivery_id) == Delivery.id).where(
            with_updates
        )
    ids = session.exec(waiting.order_by(col(Delivery.id))).all()
    batches = (ids[start : start + BATCH] for start in range(0, len(ids), BATCH))
    return sum(_leave_out(session, set(papers), batch) for batch in batches)


def _leave_out(session: Session, papers: set[int], delivery_ids: Iterable[int | None]) -> int:
    """Remove papers from these deliveries. On PostgreSQL, skip deliveries that are being claimed."""
    joined = select(Delivery, DigestContent).join(
        DigestContent, col(DigestContent.delivery_id) == Delivery.id
    )
    chosen = joined.where(
        in_array(session, col(Delivery.id), [*delivery_ids]), col(Delivery.state).in_(_UNSENT)
    )
    changed = 0
    for delivery, content in session.exec(chosen.with_for_update(skip_locked=True)).all():
        if not isinstance(content.digest, dict) or papers.isdisjoint(_papers_of(content.digest)):
            continue
        changed += 1
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
