"""Query the days on which sources listed papers."""

from datetime import date

from sqlmodel import Session, col, func, select
from sqlmodel.sql.expression import SelectOfScalar

from app.papers.paper_views import PUBLIC
from app.storage.models import Listing, Paper


def latest(session: Session, limit: int = 30) -> list[tuple[date, int]]:
    """Return the last `limit` days on which papers were listed, newest first, with the paper counts."""
    count = func.count(col(Listing.paper_id).distinct())
    newest = select(col(Listing.listed_on), count).group_by(col(Listing.listed_on))
    return [
        (day, papers)
        for day, papers in session.exec(newest.order_by(col(Listing.listed_on).desc()).limit(limit))
    ]


def neighbours(session: Session, day: date) -> tuple[date | None, date | None]:
    """Return the nearest days before and after `day` on which papers were listed."""
    listed = col(Listing.listed_on)
    before = session.exec(_of_public_papers().where(listed < day).order_by(listed.desc()).limit(1)).first()
    after = session.exec(_of_public_papers().where(listed > day).order_by(listed).limit(1)).first()
    return before, after


def between(session: Session, since: date, until: date) -> list[date]:
    """Return the days in [since, until] on which papers were listed."""
    return sorted(
        session.exec(_of_public_papers().where(col(Listing.listed_on).between(since, until)).distinct())
    )


def of_source(session: Session, source_id: int, since: date) -> list[date]:
    """Return the days from `since` onwards on which a source listed papers, in order."""
    day = col(Listing.listed_on)
    days = session.execute(select(day).where(Listing.source_id == source_id, day >= since).distinct())
    return sorted(days.scalars())


def count_by_source(session: Session, day: date) -> dict[int, int]:
    """Return the number of papers that each source listed on a day, keyed by source id."""
    rows = select(Listing.source_id, func.count()).where(Listing.listed_on == day)
    return dict(session.exec(rows.group_by(col(Listing.source_id))).all())


def _of_public_papers() -> SelectOfScalar[date]:
    days = select(col(Listing.listed_on)).join(Paper, col(Paper.id) == Listing.paper_id)
    return days.where(*PUBLIC)
