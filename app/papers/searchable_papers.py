"""Read the papers that have changed, and their searchable fields, for the search index."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import date, datetime
from typing import NamedTuple

from sqlalchemy import select as sql_select
from sqlmodel import Session, col, func, select

from app.papers import archive_lists
from app.storage.database import skew
from app.storage.models import Listing, Paper
from app.types import PaperView

_TEXT_COLUMNS = ("id", "title", "abstract", "authors", "organization_names", "categories", "last_listed_on")


class ArchiveMarks(NamedTuple):
    """Values that change whenever a paper is added or changed, or a listing is added."""

    changed_at: datetime | None  # the last change of a paper that is not dated in the future
    listing_id: int  # of the newest listing


class SearchablePaper(NamedTuple):
    """A paper with only its searchable fields."""

    view: PaperView
    with_code: bool
    listings: Sequence[tuple[date, int]]  # days and source ids


def marks(session: Session, now: datetime) -> ArchiveMarks:
    """Return the current marks of the archive. This is fast, because it reads only two index entries."""
    database_time = now + skew(session)  # changes of papers are dated by the database's clock
    changed_at = session.exec(
        select(func.max(Paper.updated_at)).where(Paper.updated_at <= database_time)
    ).one()
    return ArchiveMarks(changed_at, session.exec(select(func.max(Listing.id))).one() or 0)


def newest_id(session: Session) -> int:
    """Return the highest id of a paper, or 0."""
    return session.exec(select(func.max(Paper.id))).one() or 0


def changed_windows(session: Session, since: datetime | None, after_listing: int, size: int) -> set[int]:
    """Return the numbers of the windows with changes. Window n begins at paper id n × `size`.

    Changes are papers that changed or were merged at or after `since` (all papers, if `since` is None), and
    listings with ids above `after_listing`.
    """
    recently = [col(Paper.updated_at) >= since] if since else []
    window = col(Paper.id) // size
    changed = sql_select(window).where(*recently)
    survivors = select(Paper.id).where(*recently)
    absorbed = sql_select(window).where(col(Paper.merged_into_id).in_(survivors))
    listed = sql_select(col(Listing.paper_id) // size).where(col(Listing.id) > after_listing)
    windows = (changed, absorbed, listed)
    return {number for own in windows for number in session.execute(own.distinct()).scalars()}


def versions(session: Session, first: int, last: int) -> dict[int, str]:
    """Return the versions of the searchable papers with ids from `first` to `last`, keyed by id.

    A paper's version changes whenever any of its indexed data changes.
    """
    listings = select(func.count()).where(col(Listing.paper_id) == Paper.id).scalar_subquery()
    columns = sql_select(col(Paper.id), col(Paper.updated_at), col(Paper.last_listed_on), listings)
    rows = session.execute(columns.where(*archive_lists.SEARCHABLE, col(Paper.id).between(first, last)))
    return {number: f"{changed.isoformat()} {day} {count}" for number, changed, day, count in rows}


def load(session: Session, ids: Sequence[int]) -> list[SearchablePaper]:
    """Return the papers with these ids, except those that are not searchable."""
    listings: dict[int, list[tuple[date, int]]] = defaultdict(list)
    columns = sql_select(col(Listing.paper_id), col(Listing.listed_on), col(Listing.source_id))
    for paper_id, day, source_id in session.execute(columns.where(col(Listing.paper_id).in_(ids))):
        listings[paper_id].append((day, source_id))
    texts = sql_select(*(getattr(Paper, name) for name in (*_TEXT_COLUMNS, "code_url")))
    rows = session.execute(texts.where(*archive_lists.SEARCHABLE, col(Paper.id).in_(ids)))
    return [
        SearchablePaper(
            PaperView(
                row.id,
                row.title,
                row.abstract,
                authors=tuple(row.authors),
                organization_names=tuple(row.organization_names),
                categories=tuple(row.categories),
                last_listed_on=row.last_listed_on,
            ),
            bool(row.code_url),
            listings[row.id],
        )
        for row in rows
    ]
