"""Remove hidden and repeated papers from the digests that have been composed but not sent yet."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence, Set
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, LargeBinary, type_coerce
from sqlmodel import Session, col, func, select

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


def leave_out(session: Session, papers: Collection[int]) -> int:
    """Remove hidden papers and updates on them from all unsent digests, and return how many changed.

    A digest that contained no other paper is skipped. On PostgreSQL, digests that are being claimed do not
    change: see `leave_out_hidden`.
    """
    ids, count = _find_candidates(session, papers, _is_unsent()), 0
    for start in range(0, len(ids), BATCH):
        batch = in_array(session, col(Delivery.id), ids[start : start + BATCH]) & _is_unsent()
        count += len(_leave_out(session, papers, batch, skip_locked=True))
    return count


def leave_out_repeated(session: Session, merged: Sequence[Set[int]]) -> int:
    """Remove merged papers from unsent digests of subscribers who get them in another digest, too.

    `merged` has the ids of the rows of each paper. If only unsent digests contain a paper, the first one
    keeps it. A digest that contained no other paper is skipped. Return how many changed. Digests that are
    being sent do not change. Other digests are neither changed nor locked.
    """
    paper_id, created_at = col(PaperSnapshot.paper_id), PaperSnapshot.created_at
    dates = select(paper_id, func.min(created_at), func.max(created_at)).group_by(paper_id)
    dates = dates.where(in_array(session, paper_id, set[int]().union(*merged)))
    spans = {row: (first, last) for row, first, last in session.exec(dates)}
    # Usually, digests contain only one row of a paper, which no subscriber gets twice.
    papers = {row: min(rows) for rows in merged if len(rows & spans.keys()) > 1 for row in rows}
    if not papers:
        return 0
    first_uses, last_uses = zip(*(spans[row] for row in papers.keys() & spans.keys()), strict=True)
    # The clock may have been set back between a snapshot and a digest of the same day.
    repeated = _find_repeated(session, papers, min(first_uses) - A_DAY, max(last_uses) + A_DAY)
    ids, count = list(repeated), 0
    for start in range(0, len(ids), BATCH):
        batch = in_array(session, col(Delivery.id), ids[start : start + BATCH]) & _is_unsent()
        for delivery, content in _lock_digests(session, papers.keys(), batch, skip_locked=True):
            _remove(delivery, content, repeated[delivery.id or 0], ONLY_REPEATED)
            count += 1
    session.flush()
    return count


def _find_repeated(
    session: Session, papers: Mapping[int, int], since: datetime, until: datetime
) -> dict[int, set[int]]:
    """Return, by delivery, the rows in unsent digests whose subscriber gets the same paper in another one.

    `papers` maps each row to its paper. `since` and `until` limit the dates of digests that can contain it.
    """
    content = type_coerce(col(DigestContent.digest), LargeBinary)
    digests = select(col(Delivery.id), col(Delivery.subscriber_id), content).join(
        DigestContent, col(DigestContent.delivery_id) == Delivery.id
    )
    unsent = digests.where(_is_unsent(), col(Delivery.created_at).between(since, until))
    in_unsent = [
        (delivery_id or 0, subscriber_id, rows)
        for delivery_id, subscriber_id, stored in session.execute(unsent.execution_options(yield_per=BATCH))
        if (rows := _rows_in(stored, papers))
    ]
    subscriber_ids = {subscriber_id for _, subscriber_id, _ in in_unsent}
    others = promising_digests(session, subscriber_ids, since).where(~_is_unsent())
    received = {
        (subscriber_id, papers[row])
        for subscriber_id, _, stored in session.execute(others)
        for row in _rows_in(stored, papers)
    }
    repeated = defaultdict[int, set[int]](set)
    for delivery_id, subscriber_id, rows in sorted(in_unsent):
        for row in rows:
            if (subscriber_id, papers[row]) in received:
                repeated[delivery_id].add(row)
            received.add((subscriber_id, papers[row]))
    return repeated


def _rows_in(stored: bytes, rows: Collection[int]) -> list[int]:
    """Return the rows among `rows` that a stored digest contains, in its order."""
    return [row for row in dict.fromkeys(papers_in(compressed_json.text_of(stored))) if row in rows]


def _is_unsent() -> ColumnElement[bool]:
    """Return the condition that a delivery is a digest that has not been sent and may change."""
    return (
        col(Delivery.state).in_((State.PENDING, State.DEFERRED))
        & (col(Delivery.kind) == MailKind.DIGEST)
        & col(Delivery.possibly_delivered).is_(False)
    )


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
