"""Remove hidden and repeated papers from the digests that have been composed but not sent yet."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement
from sqlmodel import Session, col, func, or_, select

from app.delivery.ledger.entries import papers_in, promising_digests
from app.delivery.ledger.signatures import NOT_AHEAD
from app.delivery.ledger.snapshots import A_DAY, COLUMNS, is_readable, paper_ids, paper_updates
from app.delivery.ledger.transitions import set_state
from app.papers import canonical_rows
from app.storage import compressed_json
from app.storage.database import in_array
from app.storage.models import Delivery, DigestContent, Paper, PaperSnapshot
from app.storage.models import DeliveryState as State
from app.types import MailKind

NOTHING_LEFT = "an operator hid the only paper in it"
ONLY_REPEATED = "the only paper in it is in another digest"
BATCH = 500  # digests that are read at once
# Digests that are being sent or may have arrived must not change.
_UNSENT = (State.PENDING, State.DEFERRED)


def leave_out(session: Session, papers: Collection[int]) -> int:
    """Remove hidden papers and updates on them from all unsent digests, and return how many changed.

    A digest that contained no other paper is skipped. On PostgreSQL, digests that are being claimed do not
    change: see `leave_out_hidden`.
    """
    batches = _unsent_digests(session, papers)
    return sum(len(_leave_out(session, papers, batch, skip_locked=True)) for batch in batches)


def leave_out_repeated(session: Session, papers: Set[int]) -> int:
    """Remove a merged paper from unsent digests of subscribers who get it in another digest, too.

    `papers` are the ids of its rows, the last of which has just been merged. If only unsent digests contain
    the paper, the first one keeps it. A digest that contained no other paper is skipped. Return how many
    changed. Digests that are being sent do not change.
    """
    created = select(func.min(PaperSnapshot.created_at))
    since = session.exec(created.where(in_array(session, col(PaperSnapshot.paper_id), papers))).one()
    if since is None:  # no digest contains it
        return 0
    receivers, count = set[int](), 0
    for batch in _unsent_digests(session, papers):
        digests = _lock_digests(session, papers, batch, skip_locked=True)
        subscriber_ids = {delivery.subscriber_id for delivery, _ in digests}
        receivers |= _receivers(session, papers, subscriber_ids, since)
        for delivery, content in digests:
            contained = [number for number in paper_ids(content.digest) if number in papers]
            repeated = contained if delivery.subscriber_id in receivers else contained[1:]
            if contained:
                receivers.add(delivery.subscriber_id)
            if repeated:
                _remove(delivery, content, repeated, ONLY_REPEATED)
                count += 1
    session.flush()
    return count


def _receivers(
    session: Session, papers: Set[int], subscriber_ids: Collection[int], since: datetime
) -> set[int]:
    """Return the subscribers who were sent one of the papers since `since`, or are being sent it."""
    digests = promising_digests(session, subscriber_ids, since).where(
        or_(col(Delivery.state).not_in(_UNSENT), col(Delivery.possibly_delivered))
    )
    return {
        subscriber_id
        for subscriber_id, _, stored in session.execute(digests)
        if not papers.isdisjoint(papers_in(compressed_json.text_of(stored)))
    }


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


def _unsent_digests(session: Session, papers: Collection[int]) -> Iterator[ColumnElement[bool]]:
    """Yield a condition for each batch of unsent digests that may contain one of the papers, oldest first.

    All `papers` must be hidden, or rows of one paper.
    """
    unsent = col(Delivery.state).in_(_UNSENT)
    ids = _find_candidates(session, papers, unsent)
    for start in range(0, len(ids), BATCH):
        yield in_array(session, col(Delivery.id), ids[start : start + BATCH]) & unsent


def _find_candidates(
    session: Session, papers: Collection[int], condition: ColumnElement[bool]
) -> Sequence[int | None]:
    """Return the ids of the digests that meet a condition, may contain one of the papers and may change.

    All `papers` must be hidden, or rows of one paper.
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
    digests = _lock_digests(session, papers, condition, skip_locked=skip_locked)
    for delivery, content in digests:
        _remove(delivery, content, papers, NOTHING_LEFT)
    session.flush()
    return [delivery for delivery, _ in digests]


def _lock_digests(
    session: Session, papers: Collection[int], condition: ColumnElement[bool], *, skip_locked: bool
) -> list[tuple[Delivery, DigestContent]]:
    """Lock the deliveries that meet a condition, and return those with one of the papers, oldest first."""
    joined = select(Delivery, DigestContent).join(
        DigestContent, col(DigestContent.delivery_id) == Delivery.id
    )
    chosen = joined.where(condition).order_by(col(Delivery.id)).with_for_update(skip_locked=skip_locked)
    return [
        (delivery, content)
        for delivery, content in session.exec(chosen)
        if isinstance(content.digest, dict) and not _papers_of(content.digest).isdisjoint(papers)
    ]


def _remove(delivery: Delivery, content: DigestContent, papers: Collection[int], reason: str) -> None:
    """Remove papers from a digest. If it contained no others, skip it for this reason."""
    content.digest = _without(content.digest, papers)
    content.signature = ""
    # A digest that is to be signed ahead is signed again. Others are signed when they are sent.
    content.signature_fingerprint = NOT_AHEAD if content.signature_fingerprint == NOT_AHEAD else ""
    if not paper_ids(content.digest):
        set_state(delivery, State.SKIPPED, reason)


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
