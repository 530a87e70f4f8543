"""Lists of the papers in the archive: filtered, searched by operators, or ranked by votes."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime

from sqlalchemy import ColumnElement, false
from sqlmodel import Session, and_, col, func, or_, select

from app.papers import paper_views
from app.papers.paper_views import PUBLIC
from app.papers.title_normalization import title_key
from app.storage.database import contains, in_array
from app.storage.models import Listing, Paper, Source, VoteCount
from app.types import PaperView

SEARCHABLE = (col(Paper.merged_into_id).is_(None), *PUBLIC)
# SEARCHABLE as a single condition, for queries by day. Given separate conditions, SQLite would use an index
# that contains nearly all papers.
IS_SEARCHABLE = and_(*SEARCHABLE).is_(True)


@dataclass(frozen=True, slots=True)
class PaperFilter:
    """A filter for papers. An empty filter accepts all papers that are neither withdrawn nor hidden."""

    day: date | None = None  # on which a source listed the paper
    source: str = ""  # the name of a source that listed the paper
    code: bool = False  # only papers with code

    def __bool__(self) -> bool:
        return bool(self.day or self.source or self.code)


def is_empty(session: Session) -> bool:
    """Return whether the archive contains no papers."""
    return session.exec(select(Paper.id).limit(1)).first() is None


def search(
    session: Session, text: str = "", *, day: date | None = None, source_id: int | None = None,
    hidden: bool | None = None, pinned: bool | None = None, pinned_at: datetime | None = None,
    limit: int = 50, before: int | None = None,
) -> list[PaperView]:  # fmt: skip
    """Return the papers whose title or abstract contains every word of `text`, by descending id.

    `day` and `source_id` select the papers that a source listed. If `hidden` is True, return only hidden
    papers; if it is False, only the others. In the same way, `pinned` selects papers that are or are not
    pinned at `pinned_at`, and is ignored without it. Withdrawn papers are included. Pass the last id as
    `before` to get the next page.
    """
    matching = select(Paper).where(col(Paper.merged_into_id).is_(None))
    if hidden is not None:
        is_shown = col(Paper.hidden_at).is_(None)
        matching = matching.where(~is_shown if hidden else is_shown)
    if pinned is not None and pinned_at:
        is_pinned = func.coalesce(col(Paper.pinned_until) > pinned_at, false())
        matching = matching.where(is_pinned if pinned else ~is_pinned)
    for word in text.split():
        columns = col(Paper.title), col(Paper.abstract)
        matching = matching.where(or_(*(contains(column, word) for column in columns)))
    if day is not None or source_id is not None:
        listed = select(Listing.paper_id)
        listed = listed.where(Listing.listed_on == day) if day is not None else listed
        listed = listed.where(Listing.source_id == source_id) if source_id is not None else listed
        matching = matching.where(col(Paper.id).in_(listed))
    if before is not None:
        matching = matching.where(col(Paper.id) < before)
    newest_first = matching.order_by(col(Paper.id).desc()).limit(limit)
    return paper_views.views_of(session, session.exec(newest_first).all())


def find_by_title(session: Session, title: str) -> int | None:
    """Return the id of the newest paper with this title, apart from punctuation and accents, or None."""
    ids = select(Paper.id).where(Paper.title_key == title_key(title), Paper.title_key != "", *SEARCHABLE)
    return session.exec(ids.order_by(col(Paper.id).desc())).first()


def newest(session: Session, only: PaperFilter, limit: int, offset: int = 0) -> list[PaperView]:
    """Return the papers that pass a filter, most recently listed first."""
    return paper_views.in_given_order(session, _newest_ids(session, only, limit, offset))


def _newest_ids(session: Session, only: PaperFilter, limit: int, offset: int = 0) -> list[int]:
    """Return the ids of papers, most recently listed first. Papers without a listing come last.

    Papers with a listing and papers without one are read by two queries, each in the order of an index,
    because there may be millions of papers without a listing.
    """
    passing = select(Paper.id).where(*_conditions(only))
    listed = passing.where(col(Paper.last_listed_on).is_not(None))
    by_day = listed.order_by(col(Paper.last_listed_on).desc(), col(Paper.id).desc())
    ids = [paper_id or 0 for paper_id in session.exec(by_day.limit(limit).offset(offset))]
    if len(ids) < limit:
        before = session.exec(select(func.count()).select_from(listed.subquery())).one()
        others = passing.where(col(Paper.last_listed_on).is_(None)).order_by(col(Paper.id).desc())
        others = others.limit(limit - len(ids)).offset(max(0, offset - before))
        ids += [paper_id or 0 for paper_id in session.exec(others)]
    return ids


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


def titles(session: Session, first: date, last: date, limit: int) -> Sequence[str]:
    """Return the titles of the `limit` newest papers that were last listed in [first, last]."""
    days = col(Paper.last_listed_on) >= first, col(Paper.last_listed_on) <= last
    newest = select(Paper.title).where(*SEARCHABLE, *days).order_by(col(Paper.last_listed_on).desc())
    return session.exec(newest.order_by(col(Paper.id).desc()).limit(limit)).all()


def keywords(session: Session, since: date) -> Counter[str]:
    """Count the keywords, in lower case, of the papers listed on or after `since`."""
    rows = session.exec(select(Paper.keywords).where(col(Paper.last_listed_on) >= since, *SEARCHABLE))
    return Counter(" ".join(keyword.split()).lower() for words in rows for keyword in words)


def count(session: Session, only: PaperFilter) -> int:
    return session.exec(select(func.count()).select_from(Paper).where(*_conditions(only))).one()


def filter_ids(session: Session, only: PaperFilter, ids: Sequence[int]) -> list[int]:
    """Return the ids of the papers that pass a filter, in the order of `ids`."""
    passing_ids = select(Paper.id).where(*_conditions(only), in_array(session, col(Paper.id), ids))
    passing = {*session.exec(passing_ids)}
    return [paper_id for paper_id in ids if paper_id in passing]


def _conditions(only: PaperFilter) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = [*SEARCHABLE]
    if only.code:
        conditions.append(col(Paper.code_url) != "")
    if only.day or only.source:
        listed = select(Listing.paper_id).join(Source)
        listed = listed.where(Listing.listed_on == only.day) if only.day else listed
        listed = listed.where(Source.name == only.source) if only.source else listed
        conditions.append(col(Paper.id).in_(listed))
    return conditions
