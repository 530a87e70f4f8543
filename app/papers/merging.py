"""Merge two rows of the same paper, and undo a merge.

The surviving row receives the better value of each field and the listings and votes of the other row. The
absorbed row keeps its own fields and refers to the surviving row, so that an operator can undo the merge.
"""

from collections.abc import Collection
from datetime import date, datetime

from sqlalchemy import func, or_, update
from sqlmodel import Session, col, select

from app.errors import Conflict, NotFound
from app.papers import canonical_rows, field_precedence, pictures, stored_fields
from app.papers.field_precedence import WITHDRAWAL, Fields
from app.papers.stored_fields import read_fields, write_fields
from app.storage.database import advisory_lock
from app.storage.models import Listing, Merge, Paper, Source, VoteCount

BY_HAND = "by an operator"
_PIN = ("pinned_at", "pinned_until")  # taken from the row whose pin ends later


def order(a: Paper, b: Paper) -> list[Paper]:
    """Return the paper that survives a merge, then the paper that it absorbs.

    Prefer the paper with an arXiv id, then the paper with a DOI, then the older paper.
    """
    return sorted((a, b), key=lambda paper: (not paper.arxiv_id, not paper.doi, id_of(paper)))


def order_distinct(paper: Paper, other: Paper) -> list[Paper]:
    """Return two papers like `order`. Raise Conflict if they are already one paper."""
    if paper.id == other.id:
        raise Conflict("there is nothing to merge: both are already the same paper")
    return order(paper, other)


def merge(
    session: Session, a: Paper, b: Paper, reason: str, now: datetime, *, has_no_listings: bool = False
) -> None:
    """Merge two papers: the first in `order` absorbs the other. Store the reason with the merge.

    Pass `has_no_listings` if the absorbed row is new and has no listings or votes. The caller must hold the
    lock "archive".
    """
    survivor, absorbed = order(a, b)
    stored = read_fields(survivor)
    before = {
        "values": dict(stored.values),
        "versions": dict(stored.versions),
        "author_count": stored.author_count,
        "published_on": stored.published_on.isoformat() if stored.published_on else None,
        **{name: _text(getattr(survivor, name)) for name in ("withdrawn_at", "hidden_at", *_PIN)},
        "sourced": survivor.sourced,
    }
    survivor_id, absorbed_id = id_of(survivor), id_of(absorbed)
    session.add(Merge(survivor_id=survivor_id, absorbed_id=absorbed_id, reason=reason, before=before, at=now))
    had_code = bool(survivor.code_url)
    write_fields(survivor, field_precedence.combine(stored, read_fields(absorbed)))
    _take_over_edits(survivor, absorbed)
    survivor.hidden_at = survivor.hidden_at or absorbed.hidden_at
    ends = survivor.pinned_until, absorbed.pinned_until
    if ends[1] and (ends[0] is None or ends[0] < ends[1]):
        survivor.pinned_at, survivor.pinned_until = absorbed.pinned_at, absorbed.pinned_until
    if survivor.code_url and not had_code:
        survivor.code_found_at = absorbed.code_found_at or absorbed.created_at
    for day in (absorbed.first_listed_on, absorbed.last_listed_on):
        note_listing(survivor, day)
    survivor.updated_at = now
    absorbed.merged_into_id = survivor.id
    if has_no_listings:
        return
    session.flush()
    for table in (Listing, VoteCount):
        of_absorbed = col(table.paper_id) == absorbed.id
        session.execute(update(table).where(of_absorbed).values(paper_id=survivor.id))
    pictures.take_over(session, survivor, absorbed)


def undo_merge(session: Session, merge_id: int, now: datetime) -> None:
    """Separate two merged papers. Polls will not merge them with each other again.

    Listings and votes are returned to the paper for which they were stored. A field that still has the value
    of the absorbed paper is reset to its value before the merge. Raise NotFound if there is no such merge,
    Conflict if it has already been undone.
    """
    advisory_lock(session, "archive")
    row = session.get(Merge, merge_id)
    if row is None:
        raise NotFound("There is no such merge.")
    if row.undone_at is not None:
        raise Conflict("This merge has already been undone.")
    absorbed = session.get_one(Paper, row.absorbed_id)
    absorbed.merged_into_id = None
    row.undone_at = now
    session.flush()
    for table in (Listing, VoteCount):
        originals = col(table.original_paper_id).in_(with_absorbed(session, id_of(absorbed)))
        session.execute(update(table).where(originals).values(paper_id=absorbed.id))
    merge: Merge | None = row
    hidden_at = None
    while merge is not None:
        paper = session.get_one(Paper, merge.survivor_id)
        hidden_at = paper.hidden_at
        remove_absorbed(session, paper, absorbed, merge)
        paper.updated_at = now
        update_listing_days(session, paper)
        own = select(Merge).where(Merge.absorbed_id == paper.id, col(Merge.undone_at).is_(None))
        merge = session.exec(own).first()
    absorbed.hidden_at = absorbed.hidden_at or hidden_at  # an operator may have hidden the merged paper
    absorbed.updated_at = now
    update_listing_days(session, absorbed)


def remove_absorbed(session: Session, paper: Paper, absorbed: Paper, merge: Merge) -> None:
    """Reset each value that `paper` took from `absorbed`, directly or through a row that it absorbed.

    It gets its value from before `merge`, combined with those of the rows that it still absorbs.
    """
    rest = session.exec(select(Paper).where(Paper.merged_into_id == paper.id).order_by(col(Paper.id))).all()
    day = merge.before["published_on"]
    published_on = date.fromisoformat(day) if day else None
    before = Fields(
        merge.before["values"],
        merge.before["versions"],
        merge.before["author_count"],
        published_on,
        _time(merge.before.get("withdrawn_at")),
    )
    edited = set(merge.before.get("sourced") or {})
    for row in rest:
        before = field_precedence.combine(before, read_fields(row))
        edited |= {name for name in row.sourced or {} if getattr(row, name) == getattr(absorbed, name)}
    _give_back_edits(paper, absorbed, edited)
    write_fields(paper, _without_absorbed(read_fields(paper), read_fields(absorbed), before))
    for names in (("hidden_at",), _PIN):
        of_absorbed = [getattr(absorbed, name) for name in names]
        if any(of_absorbed) and [getattr(paper, name) for name in names] == of_absorbed:
            own = [_time(merge.before.get(name)) for name in names]
            of_rest = ([getattr(row, name) for name in names] for row in rest)
            for name, value in zip(names, next(filter(any, (own, *of_rest)), own), strict=True):
                setattr(paper, name, value)
    if not paper.code_url:
        paper.code_found_at = None


def merge_by_hand(session: Session, paper: Paper, other: Paper, now: datetime) -> Paper:
    """Merge two papers that an operator says are the same, and return the surviving paper.

    Raise Conflict if they are already one paper.
    """
    advisory_lock(session, "archive")
    survivor, absorbed = order_distinct(paper, other)
    merge(session, survivor, absorbed, BY_HAND, now)
    return survivor


def id_of(row: Paper | Source) -> int:
    """Return the id of a row. Raise ValueError if the row has not been flushed."""
    if row.id is None:
        raise ValueError("the row has no id: flush the session first")
    return row.id


def was_unmerged(session: Session, a: Paper, b: Paper) -> bool:
    """Return whether an operator has separated these two papers, or rows that were merged into them."""
    ids, others = with_absorbed(session, id_of(a)), with_absorbed(session, id_of(b))
    survivor, absorbed = col(Merge.survivor_id), col(Merge.absorbed_id)
    separated = or_(survivor.in_(ids) & absorbed.in_(others), survivor.in_(others) & absorbed.in_(ids))
    undone = select(Merge.id).where(col(Merge.undone_at).is_not(None), separated)
    return session.exec(undone).first() is not None


def with_absorbed(session: Session, paper_id: int) -> set[int]:
    """Return the id of a row and of all rows that it absorbed, directly or indirectly."""
    return canonical_rows.rows_by_paper(session, [paper_id])[paper_id]


def update_listing_days(session: Session, paper: Paper) -> None:
    """Set the paper's first and last listing days to the first and last days of its listings."""
    of_paper = col(Listing.original_paper_id).in_(with_absorbed(session, id_of(paper)))
    days = select(func.min(Listing.listed_on), func.max(Listing.listed_on)).where(of_paper)
    paper.first_listed_on, paper.last_listed_on = session.exec(days).one()


def note_listing(paper: Paper, day: date | None) -> None:
    """Extend the paper's first and last listing days to include `day`."""
    if day is not None:
        if paper.first_listed_on is None or day < paper.first_listed_on:
            paper.first_listed_on = day
        if paper.last_listed_on is None or day > paper.last_listed_on:
            paper.last_listed_on = day


def _text(at: datetime | None) -> str | None:
    return at.isoformat() if at else None


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _take_over_edits(survivor: Paper, absorbed: Paper) -> None:
    """Apply the absorbed row's edits to the survivor's fields that are not edited."""
    own = survivor.sourced or {}
    for name in absorbed.sourced or {}:
        if name not in own:
            stored_fields.set_edit(survivor, name, getattr(absorbed, name))
    stored_fields.renew_hash(survivor)
    survivor.edited_at = survivor.edited_at or absorbed.edited_at


def _give_back_edits(paper: Paper, absorbed: Paper, own: Collection[str]) -> None:
    """Revert the edits that came from the absorbed row. `own` names the fields edited before the merge."""
    for name in absorbed.sourced or {}:
        if name not in own and getattr(paper, name) == getattr(absorbed, name):
            stored_fields.take_back_edit(paper, name)
    paper.edited_at = paper.edited_at if paper.sourced else None


def _without_absorbed(merged: Fields, absorbed: Fields, before: Fields) -> Fields:
    """Replace the values that came from the absorbed paper with the values from before the merge."""
    values, versions = dict(merged.values), dict(merged.versions)
    for name in field_precedence.FIELDS:
        version = absorbed.versions.get(name)
        if version and version == versions.get(name) and values[name] == absorbed.values[name]:
            values[name] = before.values[name]
            versions.pop(name)
            if name in before.versions:
                versions[name] = before.versions[name]
    authors = merged.author_count if merged.author_count != absorbed.author_count else before.author_count
    day = merged.published_on if merged.published_on != absorbed.published_on else before.published_on
    withdrawals = [(each.versions.get(WITHDRAWAL), each.withdrawn_at) for each in (merged, absorbed, before)]
    statement, withdrawn_at = withdrawals[2] if withdrawals[0] == withdrawals[1] else withdrawals[0]
    versions.pop(WITHDRAWAL, None)
    if statement:
        versions[WITHDRAWAL] = statement
    return Fields(values, versions, authors, day, withdrawn_at)
