"""Two rows of the archive are one paper, and how that is taken back.

The row that stays takes the best of each field and all that was seen of the other; the other keeps its
own fields and points to it, so that an operator can part them again.
"""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

from sqlalchemy import ColumnElement, func, update
from sqlmodel import Session, col, select

from app.errors import Conflict, NotFound
from app.papers import dedupe
from app.storage.database import advisory_lock
from app.storage.models import Listing, Merge, Paper, Source, VoteCount


def merge(session: Session, a: Paper, b: Paper, reason: str, now: datetime) -> None:
    """One paper absorbs the other: the one with an arXiv id stays, or with a DOI, or the older."""
    kept, absorbed = sorted((a, b), key=lambda paper: (not paper.arxiv_id, not paper.doi, id_of(paper)))
    before = _snapshot(kept)
    done = Merge(kept_id=id_of(kept), absorbed_id=id_of(absorbed), reason=reason, before=before, at=now)
    session.add(done)
    write(kept, dedupe.combine(read(kept), read(absorbed)))
    kept.withdrawn_at = kept.withdrawn_at or absorbed.withdrawn_at
    for day in (absorbed.first_listed_on, absorbed.last_listed_on):
        note_listing(kept, day)
    kept.updated_at = now
    absorbed.merged_into_id = kept.id
    session.flush()
    for table in (Listing, VoteCount):
        _move(session, table, col(table.paper_id) == absorbed.id, id_of(kept))


def undo_merge(session: Session, merge_id: int, now: datetime) -> None:
    """Make two papers of one again. They are never merged again.

    What was seen goes back with its identity; a field that still is as the absorbed paper has it goes
    back to what it was before.
    """
    advisory_lock(session, "archive")
    done = session.get(Merge, merge_id)
    if done is None:
        raise NotFound("There is no such merge.")
    if done.undone_at is not None:
        raise Conflict("This merge has been undone already.")
    kept, absorbed = session.get_one(Paper, done.kept_id), session.get_one(Paper, done.absorbed_id)
    absorbed.merged_into_id = None
    done.undone_at = now
    session.flush()
    for table in (Listing, VoteCount):
        _move(
            session,
            table,
            col(table.original_paper_id).in_(_family(session, id_of(absorbed))),
            id_of(absorbed),
        )
    before = _restored(done.before)
    withdrawn = done.before["withdrawn_at"]
    paper: Paper | None = kept
    while paper is not None:
        write(paper, _without(read(paper), read(absorbed), before))
        if paper.withdrawn_at == absorbed.withdrawn_at:
            paper.withdrawn_at = datetime.fromisoformat(withdrawn) if withdrawn else None
        paper.updated_at = now
        _date_again(session, paper)
        paper = session.get(Paper, paper.merged_into_id) if paper.merged_into_id else None
    _date_again(session, absorbed)


def id_of(row: Paper | Source) -> int:
    if row.id is None:
        raise ValueError("the row was not flushed")
    return row.id


def was_unmerged(session: Session, a: Paper, b: Paper) -> bool:
    """Whether an operator took this merge back before."""
    ids = (id_of(a), id_of(b))
    undone = select(Merge.id).where(
        col(Merge.undone_at).is_not(None), col(Merge.kept_id).in_(ids), col(Merge.absorbed_id).in_(ids)
    )
    return session.exec(undone).first() is not None


def read(paper: Paper) -> dedupe.Fields:
    values = {name: getattr(paper, name) for name in dedupe.FIELDS}
    return dedupe.Fields(values, paper.versions, paper.author_count, paper.published_on)


def write(paper: Paper, fields: dedupe.Fields) -> bool:
    """Set what differs, and say whether people would see a difference."""
    for name, value in fields.values.items():
        if getattr(paper, name) != value:
            setattr(paper, name, value)
    if paper.versions != fields.versions:
        paper.versions = dict(fields.versions)
    if (paper.author_count, paper.published_on) != (fields.author_count, fields.published_on):
        paper.author_count, paper.published_on = fields.author_count, fields.published_on
    fresh = dedupe.content_hash(fields)
    changed = paper.content_hash != fresh
    if changed:
        paper.content_hash, paper.title_key = fresh, dedupe.title_key(paper.title)
    return changed


def note_listing(paper: Paper, day: date | None) -> None:
    if day is not None:
        if paper.first_listed_on is None or day < paper.first_listed_on:
            paper.first_listed_on = day
        if paper.last_listed_on is None or day > paper.last_listed_on:
            paper.last_listed_on = day


def _snapshot(paper: Paper) -> dict[str, Any]:
    fields = read(paper)
    published_on = fields.published_on.isoformat() if fields.published_on else None
    return {
        "values": dict(fields.values),
        "versions": dict(fields.versions),
        "author_count": fields.author_count,
        "published_on": published_on,
        "withdrawn_at": paper.withdrawn_at.isoformat() if paper.withdrawn_at else None,
    }


def _restored(before: dict[str, Any]) -> dedupe.Fields:
    day = before["published_on"]
    published_on = date.fromisoformat(day) if day else None
    return dedupe.Fields(before["values"], before["versions"], before["author_count"], published_on)


def _without(merged: dedupe.Fields, absorbed: dedupe.Fields, before: dedupe.Fields) -> dedupe.Fields:
    """The merged fields, with what came from the absorbed paper replaced by what was before."""
    values, versions = dict(merged.values), dict(merged.versions)
    for name in dedupe.FIELDS:
        theirs = absorbed.versions.get(name)
        if theirs and theirs == versions.get(name) and values[name] == absorbed.values[name]:
            values[name] = before.values[name]
            versions.pop(name)
            if name in before.versions:
                versions[name] = before.versions[name]
    authors = merged.author_count if merged.author_count != absorbed.author_count else before.author_count
    day = merged.published_on if merged.published_on != absorbed.published_on else before.published_on
    return dedupe.Fields(values, versions, authors, day)


def _family(session: Session, paper_id: int) -> set[int]:
    """The row and all that it absorbed, directly or not."""
    family, fresh = {paper_id}, {paper_id}
    while fresh:
        children = session.exec(select(Paper.id).where(col(Paper.merged_into_id).in_(fresh)))
        fresh = {child for child in children if child is not None} - family
        family |= fresh
    return family


def _move(
    session: Session, table: type[Listing] | type[VoteCount], rows: ColumnElement[bool], paper_id: int
) -> None:
    session.execute(update(table).where(rows).values(paper_id=paper_id))


def _date_again(session: Session, paper: Paper) -> None:
    seen = col(Listing.original_paper_id).in_(_family(session, id_of(paper)))
    days = select(func.min(Listing.listed_on), func.max(Listing.listed_on)).where(seen)
    paper.first_listed_on, paper.last_listed_on = session.exec(days).one()
