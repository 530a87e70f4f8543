"""Merge two rows of the same paper, and undo a merge.

The surviving row receives the better value of each field and the listings and votes of the other row. The
absorbed row keeps its own fields and refers to the surviving row, so that an operator can undo the merge.
"""

from __future__ import annotations

from datetime import date, datetime

from sqlalchemy import func, update
from sqlmodel import Session, col, select

from app.errors import Conflict, NotFound
from app.papers import dedupe, field_precedence
from app.papers.field_precedence import Fields
from app.storage.database import advisory_lock
from app.storage.models import Listing, Merge, Paper, Source, VoteCount


def merge(session: Session, a: Paper, b: Paper, reason: str, now: datetime) -> None:
    """Merge two papers. The one with an arXiv id survives, else the one with a DOI, else the older one."""
    survivor, absorbed = sorted((a, b), key=lambda paper: (not paper.arxiv_id, not paper.doi, id_of(paper)))
    stored = read_fields(survivor)
    before = {
        "values": dict(stored.values),
        "versions": dict(stored.versions),
        "author_count": stored.author_count,
        "published_on": stored.published_on.isoformat() if stored.published_on else None,
        "withdrawn_at": survivor.withdrawn_at.isoformat() if survivor.withdrawn_at else None,
    }
    survivor_id, absorbed_id = id_of(survivor), id_of(absorbed)
    session.add(Merge(survivor_id=survivor_id, absorbed_id=absorbed_id, reason=reason, before=before, at=now))
    had_code = bool(survivor.code_url)
    write_fields(survivor, field_precedence.combine(stored, read_fields(absorbed)))
    if survivor.code_url and not had_code:
        survivor.code_found_at = absorbed.code_found_at or absorbed.created_at
    survivor.withdrawn_at = survivor.withdrawn_at or absorbed.withdrawn_at
    for day in (absorbed.first_listed_on, absorbed.last_listed_on):
        note_listing(survivor, day)
    survivor.updated_at = now
    absorbed.merged_into_id = survivor.id
    session.flush()
    for table in (Listing, VoteCount):
        of_absorbed = col(table.paper_id) == absorbed.id
        session.execute(update(table).where(of_absorbed).values(paper_id=survivor.id))


def undo_merge(session: Session, merge_id: int, now: datetime) -> None:
    """Separate two merged papers. They are never merged with each other again.

    Listings and votes are returned to the paper for which they were stored. A field that still has the value
    of the absorbed paper is reset to its value before the merge. Raise NotFound if there is no such merge,
    Conflict if it has already been undone.
    """
    advisory_lock(session, "archive")
    row = session.get(Merge, merge_id)
    if row is None:
        raise NotFound("There is no such merge.")
    if row.undone_at is not None:
        raise Conflict("This merge has been undone already.")
    absorbed = session.get_one(Paper, row.absorbed_id)
    absorbed.merged_into_id = None
    row.undone_at = now
    session.flush()
    for table in (Listing, VoteCount):
        originals = col(table.original_paper_id).in_(_with_absorbed(session, id_of(absorbed)))
        session.execute(update(table).where(originals).values(paper_id=absorbed.id))
    day, withdrawn = row.before["published_on"], row.before["withdrawn_at"]
    published_on = date.fromisoformat(day) if day else None
    before = Fields(row.before["values"], row.before["versions"], row.before["author_count"], published_on)
    paper: Paper | None = session.get_one(Paper, row.survivor_id)
    while paper is not None:
        write_fields(paper, _without_absorbed(read_fields(paper), read_fields(absorbed), before))
        if not paper.code_url:
            paper.code_found_at = None
        if paper.withdrawn_at == absorbed.withdrawn_at:
            paper.withdrawn_at = datetime.fromisoformat(withdrawn) if withdrawn else None
        paper.updated_at = now
        _update_listing_days(session, paper)
        paper = session.get(Paper, paper.merged_into_id) if paper.merged_into_id else None
    _update_listing_days(session, absorbed)


def id_of(row: Paper | Source) -> int:
    """Return the id of a row. Raise ValueError if the row has not been flushed."""
    if row.id is None:
        raise ValueError("the row has no id: flush the session first")
    return row.id


def was_unmerged(session: Session, a: Paper, b: Paper) -> bool:
    """Return whether an operator has undone a merge of these two papers."""
    ids = (id_of(a), id_of(b))
    undone = select(Merge.id).where(
        col(Merge.undone_at).is_not(None), col(Merge.survivor_id).in_(ids), col(Merge.absorbed_id).in_(ids)
    )
    return session.exec(undone).first() is not None


def read_fields(paper: Paper) -> Fields:
    """Return the fields of a row."""
    values = {name: getattr(paper, name) for name in field_precedence.FIELDS}
    return Fields(values, paper.versions, paper.author_count, paper.published_on)


def write_fields(paper: Paper, new: Fields) -> bool:
    """Set the fields that differ. Return whether subscribers can see a difference."""
    for name, value in new.values.items():
        if getattr(paper, name) != value:
            setattr(paper, name, value)
    if paper.versions != new.versions:
        paper.versions = dict(new.versions)
    if (paper.author_count, paper.published_on) != (new.author_count, new.published_on):
        paper.author_count, paper.published_on = new.author_count, new.published_on
    content_hash = field_precedence.content_hash(new)
    changed = paper.content_hash != content_hash
    if changed:
        paper.content_hash, paper.title_key = content_hash, dedupe.title_key(paper.title)
    return changed


def note_listing(paper: Paper, day: date | None) -> None:
    """Extend the paper's first and last listing days to include `day`."""
    if day is not None:
        if paper.first_listed_on is None or day < paper.first_listed_on:
            paper.first_listed_on = day
        if paper.last_listed_on is None or day > paper.last_listed_on:
            paper.last_listed_on = day


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
    return Fields(values, versions, authors, day)


def _with_absorbed(session: Session, paper_id: int) -> set[int]:
    """Return the id of a row and of all rows that it absorbed, directly or indirectly."""
    ids, new = {paper_id}, {paper_id}
    while new:
        children = session.exec(select(Paper.id).where(col(Paper.merged_into_id).in_(new)))
        new = {child for child in children if child is not None} - ids
        ids |= new
    return ids


def _update_listing_days(session: Session, paper: Paper) -> None:
    of_paper = col(Listing.original_paper_id).in_(_with_absorbed(session, id_of(paper)))
    days = select(func.min(Listing.listed_on), func.max(Listing.listed_on)).where(of_paper)
    paper.first_listed_on, paper.last_listed_on = session.exec(days).one()
