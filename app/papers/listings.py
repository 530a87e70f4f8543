"""Query the days on which sources listed papers: neighbouring days, most upvoted papers, keywords, counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import date
from typing import NamedTuple

from sqlmodel import Session, col, func, select
from sqlmodel.sql.expression import SelectOfScalar

from app.papers.archive_lists import SEARCHABLE
from app.papers.paper_views import PUBLIC
from app.storage.models import Listing, Paper, Source, VoteCount


class ListingView(NamedTuple):
    """A day on which a source listed a paper, with the paper's rank on that day and its submitter."""

    day: date
    source: str
    rank: int | None
    submitted_by: str


def days(session: Session, limit: int = 30) -> list[tuple[date, int]]:
    """Return the last `limit` days on which papers were listed, newest first, with the paper counts."""
    count = func.count(col(Listing.paper_id).distinct())
    newest = select(col(Listing.listed_on), count).group_by(col(Listing.listed_on))
    return [
        (day, papers)
        for day, papers in session.exec(newest.order_by(col(Listing.listed_on).desc()).limit(limit))
    ]


def neighbouring_days(session: Session, day: date) -> tuple[date | None, date | None]:
    """Return the nearest days before and after `day` on which papers were listed."""
    listed = col(Listing.listed_on)
    before = session.exec(_listing_days().where(listed < day).order_by(listed.desc()).limit(1)).first()
    after = session.exec(_listing_days().where(listed > day).order_by(listed).limit(1)).first()
    return before, after


def days_between(session: Session, since: date, until: date) -> list[date]:
    """Return the days in [since, until] on which papers were listed."""
    return sorted(
        session.exec(_listing_days().where(col(Listing.listed_on).between(since, until)).distinct())
    )


def _listing_days() -> SelectOfScalar[date]:
    """Select the day of every listing of a public paper."""
    days = select(col(Listing.listed_on)).join(Paper, col(Paper.id) == Listing.paper_id)
    return days.where(*PUBLIC)


def of_paper(session: Session, paper_id: int) -> list[ListingView]:
    """Return the listings of a paper, oldest first."""
    rows = (
        select(col(Listing.listed_on), col(Source.name), col(Listing.rank), col(Listing.submitted_by))
        .join(Source)
        .where(Listing.paper_id == paper_id)
    )
    ordered = rows.order_by(col(Listing.listed_on), col(Source.name))
    return [ListingView(*row) for row in session.exec(ordered)]


def listing_days(session: Session, source_id: int, since: date) -> list[date]:
    """Return the days from `since` onwards on which a source listed papers, in order."""
    day = col(Listing.listed_on)
    days = session.execute(select(day).where(Listing.source_id == source_id, day >= since).distinct())
    return sorted(days.scalars())


def count_listed(session: Session, day: date) -> dict[int, int]:
    """Return the number of papers that each source listed on a day, keyed by source id."""
    rows = select(Listing.source_id, func.count()).where(Listing.listed_on == day)
    return dict(session.exec(rows.group_by(col(Listing.source_id))).all())


def rank_by_votes(session: Session, since: date, until: date) -> list[int]:
    """Return the ids of the papers listed in [since, until], most votes first."""
    listed = select(Listing.paper_id).where(col(Listing.listed_on).between(since, until)).distinct()
    ids = select(Paper.id).where(*SEARCHABLE, col(Paper.id).in_(listed))
    totals = {paper_id or 0: 0 for paper_id in session.exec(ids)}
    best = select(VoteCount.paper_id, func.max(VoteCount.upvotes)).where(col(VoteCount.paper_id).in_(ids))
    of_sources = best.group_by(col(VoteCount.paper_id), col(VoteCount.source_id))
    for paper_id, upvotes in session.exec(of_sources):
        if paper_id in totals:  # in PostgreSQL, the second query may see papers that the first did not
            totals[paper_id] += upvotes
    return sorted(totals, key=lambda paper_id: (-totals[paper_id], paper_id))


def keywords(session: Session, since: date) -> Counter[str]:
    """Count the keywords, in lower case, of the papers listed on or after `since`."""
    rows = session.exec(select(Paper.keywords).where(col(Paper.last_listed_on) >= since, *PUBLIC))
    return Counter(" ".join(keyword.split()).lower() for words in rows for keyword in words)


def titles(session: Session, first: date, last: date, limit: int) -> Sequence[str]:
    """Return the titles of the `limit` newest papers that were last listed in [first, last]."""
    shown = *PUBLIC, col(Paper.merged_into_id).is_(None)
    days = col(Paper.last_listed_on) >= first, col(Paper.last_listed_on) <= last
    newest = select(Paper.title).where(*shown, *days).order_by(col(Paper.last_listed_on).desc())
    return session.exec(newest.order_by(col(Paper.id).desc()).limit(limit)).all()


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
