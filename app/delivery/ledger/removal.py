"""Remove hidden and repeated papers from the digests that have been composed but not sent yet."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence, Set
from datetime import UTC, date, datetime, time
from typing import Any

from sqlalchemy import ColumnElement, LargeBinary, Select, case, type_coerce
from sqlalchemy import select as sql_select
from sqlmodel import Session, col, func, select

from app.delivery.ledger.entries import is_held, papers_in, promising_digests, updates_in, was_created_on
from app.delivery.ledger.signatures import NOT_AHEAD
from app.delivery.ledger.snapshots import A_DAY, COLUMNS, is_readable, paper_ids, paper_updates
from app.delivery.ledger.transitions import set_state
from app.papers import canonical_rows
from app.storage import compressed_json
from app.storage.database import in_array, utc_day
from app.storage.models import Delivery, DigestContent, Paper, PaperSnapshot
from app.storage.models import DeliveryState as State
from app.types import MailKind

NOTHING_LEFT = "an operator hid the only paper in it"
ONLY_REPEATED = "the only paper in it is in another digest"
BATCH = 500  # digests that are read at once


def leave_out(session: Session, papers: Collection[int]) -> int:
    """Remove hidden papers and updates on them from all unsent digests, and return how many changed.

    A digest that contained no other paper is skipped. On PostgreSQL, digests that are being claimed do not
    change: see `leave_out_of_claimed`. Digests without these papers are neither changed nor locked.
    """
    if not (since := _snapshots_since(session, _is_unsent())):
        return 0
    removals = dict.fromkeys(_find_mentions(session, papers, since, _is_unsent()), papers)
    return len(_remove_all(session, removals, _is_unsent(), NOTHING_LEFT, skip_locked=True))


def leave_out_repeated(session: Session, merged: Sequence[Set[int]]) -> int:
    """Remove merged papers from unsent digests of subscribers who get them in another digest, too.

    `merged` has the ids of the rows of each paper. If only unsent digests contain a paper, the first one
    that is not held keeps it. A digest that contained no other paper is skipped. Return how many changed.
    Digests that are being sent or have failed do not change: see `leave_out_of_claimed`. Digests without
    these papers are neither changed nor locked.
    """
    removals = _find_repeated(session, merged, _is_unsent())
    return len(_remove_all(session, removals, _is_unsent(), ONLY_REPEATED, skip_locked=True))


def leave_out_of_claimed(session: Session, claimed_ids: Collection[int]) -> list[int]:
    """Remove hidden and repeated papers from digests that have just been claimed.

    Return the ids of the digests that are skipped, because no paper is left in them. Papers may have been
    hidden or merged while such a digest was being composed or sent, or after it had failed. If it is sent
    again, it is claimed again. Must be called in the same transaction as the claim.
    """
    claimed = in_array(session, col(Delivery.id), claimed_ids) & _may_change()
    if not (since := _snapshots_since(session, claimed)):
        return []
    hidden = canonical_rows.hidden(session)
    removals = dict.fromkeys(_find_mentions(session, hidden, since, claimed) if hidden else (), hidden)
    # Wait for a process that signs these digests ahead.
    changed = _remove_all(session, removals, claimed, NOTHING_LEFT, skip_locked=False)
    if merged := _merged_since(session, since):
        repeated = _find_repeated(session, merged, claimed)
        changed += _remove_all(session, repeated, claimed, ONLY_REPEATED, skip_locked=False)
    return [delivery.id or 0 for delivery in changed if delivery.state is State.SKIPPED]


def _may_change() -> ColumnElement[bool]:
    """Return the condition that a delivery is a digest that cannot have arrived."""
    return (col(Delivery.kind) == MailKind.DIGEST) & col(Delivery.possibly_delivered).is_(False)


def _is_unsent() -> ColumnElement[bool]:
    """Return the condition that a delivery is a digest that waits to be sent and may change."""
    return col(Delivery.state).in_((State.PENDING, State.DEFERRED)) & _may_change()


def _snapshots_since(session: Session, condition: ColumnElement[bool]) -> datetime | None:
    """Return a time before which no snapshot in the digests that meet a condition was stored.

    The digests of a day share snapshots. Return None if no digest meets the condition.
    """
    oldest = session.execute(select(func.min(col(Delivery.created_at))).where(condition)).scalar()
    return oldest and oldest - A_DAY


def _merged_since(session: Session, since: datetime) -> list[set[int]]:
    """Return the rows of each paper that absorbed a row since `since`, if digests contain the absorbed row.

    Digests composed after a merge do not repeat the merged paper.
    """
    absorbed = canonical_rows.absorbed_since(session, since)
    if not absorbed:
        return []
    in_digests = select(PaperSnapshot.paper_id).where(
        in_array(session, col(PaperSnapshot.paper_id), absorbed)
    )
    roots = canonical_rows.canonical_ids(session, session.exec(in_digests.distinct()).all())
    return [*canonical_rows.rows_by_paper(session, {*roots.values()}).values()]


def _find_mentions(
    session: Session, papers: Collection[int], since: datetime, condition: ColumnElement[bool]
) -> list[int]:
    """Return the ids of the digests that meet a condition and contain one of the papers or an update on it.

    All `papers` must be hidden. `since` is the `_snapshots_since` of these digests.
    """
    # Digests composed after a paper was hidden, or merged into a hidden one, do not contain it.
    changed = in_array(session, col(Paper.id), papers), col(Paper.updated_at) >= since
    if session.exec(select(Paper.id).where(*changed).limit(1)).first() is None:
        return []
    digests = _contents().where(condition)
    in_digests = select(PaperSnapshot.id).where(
        in_array(session, col(PaperSnapshot.paper_id), papers), col(PaperSnapshot.created_at) >= since
    )
    if session.exec(in_digests.limit(1)).first() is None:  # only updates can mention these papers
        digests = digests.where(col(DigestContent.has_updates))
    return [
        delivery_id
        for delivery_id, _, stored in session.execute(digests.execution_options(yield_per=BATCH))
        if _mentions(compressed_json.text_of(stored), papers)
    ]


def _mentions(text: bytes, papers: Collection[int]) -> bool:
    """Return whether a digest's JSON contains one of the papers, or an update on one."""
    return any(number in papers for number in papers_in(text)) or any(
        update.paper_id in papers for update in updates_in(text)
    )


def _find_repeated(
    session: Session, merged: Sequence[Set[int]], condition: ColumnElement[bool]
) -> dict[int, set[int]]:
    """Return, by delivery, the rows to leave out because the subscriber gets another row of their paper.

    `merged` has the ids of the rows of each paper. Only deliveries that meet the condition are changed. A
    digest that was sent, or that another sender has claimed, keeps the paper. Otherwise, the one with the
    lower id does, so that two senders that claim them at the same time agree, but not one that is held,
    because it may never be sent. If a claim is given back in between, both may leave the paper out. Within a
    digest, the first row stays.
    """
    days_by_row = _digest_days(session, set[int]().union(*merged))
    # Usually, digests contain only one row of a paper, which no subscriber gets twice.
    papers = {row: min(rows) for rows in merged if len(rows & days_by_row.keys()) > 1 for row in rows}
    if not papers:
        return {}
    days = set[date]().union(*(days_by_row.get(row, ()) for row in papers))
    digests = _contents().add_columns(is_held()).where(condition, was_created_on(days))
    uses = [
        (1 + held, delivery_id, subscriber_id, rows, True)
        for delivery_id, subscriber_id, stored, held in session.execute(
            digests.execution_options(yield_per=BATCH)
        )
        if (rows := _rows_in(stored, papers))
    ]
    if not uses:
        return {}
    subscriber_ids = {subscriber_id for _, _, subscriber_id, *_ in uses}
    # Most digests of a subscriber were created on other days. Decompressing those of a year takes a second.
    to_check = {papers[row] for *_, rows, _ in uses for row in rows}
    days = set[date]().union(
        *(days_by_row.get(row, ()) for row, paper in papers.items() if paper in to_check)
    )
    since = datetime.combine(min(days), time.min, UTC)
    others = promising_digests(session, subscriber_ids, since).where(~condition, was_created_on(days))
    order = case((is_held(), 2), (_is_unsent(), 1), else_=0)
    uses += [
        (place, delivery_id, subscriber_id, _rows_in(stored, papers), False)
        for subscriber_id, _, stored, place, delivery_id in session.execute(
            others.add_columns(order, col(Delivery.id))
        )
    ]
    received = set[tuple[int, int]]()
    repeated = defaultdict[int, set[int]](set)
    for _, delivery_id, subscriber_id, rows, may_change in sorted(uses):
        for row in rows:
            if may_change and (subscriber_id, papers[row]) in received:
                repeated[delivery_id].add(row)
            received.add((subscriber_id, papers[row]))
    return repeated


def _digest_days(session: Session, rows: Collection[int]) -> dict[int, set[date]]:
    """Return, by row, the UTC days of the digests that can contain it. Rows without digests are left out.

    A digest uses only snapshots of its own UTC day, even if the clock was set back on that day.
    """
    paper_id, day = col(PaperSnapshot.paper_id), utc_day(session, PaperSnapshot.created_at)
    days = defaultdict[int, set[date]](set)
    of_rows = sql_select(paper_id, day).where(in_array(session, paper_id, rows)).distinct()
    for row, day_of_row in session.execute(of_rows):
        days[row].add(date.fromisoformat(str(day_of_row)))
    return days


def _contents() -> Select[*tuple[Any, ...]]:
    """Select the delivery id, the subscriber id and the JSON of each digest."""
    content = type_coerce(col(DigestContent.digest), LargeBinary)
    return sql_select(col(Delivery.id), col(Delivery.subscriber_id), content).join(
        DigestContent, col(DigestContent.delivery_id) == Delivery.id
    )


def _rows_in(stored: bytes, rows: Collection[int]) -> list[int]:
    """Return the rows among `rows` that a stored digest contains, in its order."""
    return [row for row in dict.fromkeys(papers_in(compressed_json.text_of(stored))) if row in rows]


def _remove_all(
    session: Session,
    removals: Mapping[int, Collection[int]],
    condition: ColumnElement[bool],
    reason: str,
    *,
    skip_locked: bool,
) -> list[Delivery]:
    """Remove papers from deliveries that meet a condition. Return the changed deliveries, oldest first.

    `removals` has the papers by delivery. A digest that contained no others is skipped for this reason.
    """
    joined = select(Delivery, DigestContent).join(
        DigestContent, col(DigestContent.delivery_id) == Delivery.id
    )
    ids, changed = sorted(removals), list[Delivery]()
    for start in range(0, len(ids), BATCH):
        batch = in_array(session, col(Delivery.id), ids[start : start + BATCH]) & condition
        chosen = joined.where(batch).order_by(col(Delivery.id)).with_for_update(skip_locked=skip_locked)
        for delivery, content in session.exec(chosen):
            papers = removals[delivery.id or 0]
            if isinstance(content.digest, dict) and not _papers_of(content.digest).isdisjoint(papers):
                _remove(delivery, content, papers, reason)
                changed.append(delivery)
    session.flush()
    return changed


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
