"""Query listings: those of a paper, and the sources that they come from."""

from datetime import date
from typing import NamedTuple

from sqlmodel import Session, col, select

from app.storage.models import Listing, Source, VoteCount


class ListingView(NamedTuple):
    """A day on which a source listed a paper, with the paper's rank on that day and its submitter."""

    day: date
    source: str
    rank: int | None
    submitted_by: str


def of_paper(session: Session, paper_id: int) -> list[ListingView]:
    """Return the listings of a paper, oldest first."""
    rows = (
        select(col(Listing.listed_on), col(Source.name), col(Listing.rank), col(Listing.submitted_by))
        .join(Source)
        .where(Listing.paper_id == paper_id)
    )
    ordered = rows.order_by(col(Listing.listed_on), col(Source.name))
    return [ListingView(*row) for row in session.exec(ordered)]


def source_names(session: Session) -> list[str]:
    """Return the names of the sources that have listed a paper."""
    has_listed = select(Listing.id).where(Listing.source_id == Source.id).exists()
    return sorted(session.exec(select(Source.name).where(has_listed)))


def sources_of_row(session: Session, row_id: int) -> list[tuple[int, str]]:
    """Return the ids and names of the sources whose listings and votes are stored under a row."""
    ids = {
        source_id
        for table in (Listing, VoteCount)
        for source_id in session.exec(select(table.source_id).where(table.original_paper_id == row_id))
    }
    names = select(col(Source.id), col(Source.name)).where(col(Source.id).in_(ids))
    return [(number or 0, name) for number, name in session.exec(names.order_by(col(Source.name)))]
