"""The papers of the archive as the later stages see them: merged ones are one, votes are attached."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement
from sqlmodel import Session, col, func, or_, select
from sqlmodel.sql.expression import SelectOfScalar

from app.storage.models import GeneratedSummary, Listing, Merge, Paper, Source, VoteCount
from app.types import PaperView, VoteSample

# SQLite takes 32,766 variables in a statement; ids are asked for in slices well below.
SLICE = 5_000
ARXIV = "https://arxiv.org"


@dataclass(frozen=True, slots=True)
class PaperFilter:
    """Which papers are wanted; an empty one wants all that are not withdrawn."""

    day: date | None = None  # on which a source listed them
    source: str = ""  # by its name
    code: bool = False  # only those with code

    def __bool__(self) -> bool:
        return bool(self.day or self.source or self.code)


class Listed(NamedTuple):
    """Where and when a paper was listed, and at which place."""

    day: date
    source: str
    rank: int | None


class VoteRow(NamedTuple):
    """A row of votes, read and not to be changed."""

    paper_id: int
    source_id: int
    at: datetime
    upvotes: int
    comments: int


def is_empty(session: Session) -> bool:
    """Whether no paper was ever ingested."""
    return session.exec(select(Paper.id).limit(1)).first() is None


def candidates(session: Session, since: date, until: date) -> list[PaperView]:
    """The papers that a source listed on a day in [since, until], withdrawn ones left out."""
    listed = select(Listing.paper_id).where(col(Listing.listed_on).between(since, until)).distinct()
    papers = select(Paper).where(col(Paper.id).in_(listed), col(Paper.withdrawn_at).is_(None))
    return _views(session, session.exec(papers.order_by(col(Paper.id))).all())


def paper_views(session: Session, ids: Collection[int]) -> list[PaperView]:
    """These papers, by ascending id; an id that was merged away gives the paper that it is now."""
    found = {paper.id or 0: paper for paper in papers(session, ids).values()}
    return _views(session, [found[kept] for kept in sorted(found)])


def in_given_order(session: Session, ids: Sequence[int]) -> list[PaperView]:
    """These papers in this order; what was merged away or withdrawn meanwhile is left out."""
    shown = {row.id: row for row in papers(session, ids).values() if row.withdrawn_at is None}
    known = {paper.id: paper for paper in _views(session, [*shown.values()])}
    return [known[number] for number in ids if number in known]


def papers(session: Session, ids: Collection[int]) -> dict[int, Paper]:
    """Each paper as it is known today, by the id asked for. An id that does not exist is left out."""
    today = canonical_ids(session, ids)
    rows = {
        row.id: row
        for part in _slices(sorted(set(today.values())))
        for row in session.exec(select(Paper).where(col(Paper.id).in_(part)))
    }
    return {identity: rows[kept] for identity, kept in today.items()}


def canonical_ids(session: Session, ids: Collection[int]) -> dict[int, int]:
    """The id that each paper goes by today. An id that does not exist is left out."""
    found: dict[int, int | None] = {}
    open_ids = set(ids)
    while open_ids:
        rows = [
            row
            for part in _slices(sorted(open_ids))
            for row in session.exec(select(Paper.id, Paper.merged_into_id).where(col(Paper.id).in_(part)))
        ]
        found.update({identity: into for identity, into in rows if identity is not None})
        open_ids = {into for _, into in rows if into is not None} - found.keys()
    return {identity: _follow(found, identity) for identity in ids if identity in found}


def _follow(merged: dict[int, int | None], identity: int) -> int:
    while (into := merged[identity]) is not None:
        identity = into
    return identity


def earliest_unmerge(session: Session, ids: Collection[int]) -> datetime | None:
    """Since when one of these papers stood for another one, too, until an operator parted them again."""
    undone = session.exec(select(Merge.kept_id, Merge.at).where(col(Merge.undone_at).is_not(None))).all()
    today = canonical_ids(session, {kept for kept, _ in undone})
    return min((at for kept, at in undone if today[kept] in ids), default=None)


def days(session: Session, limit: int = 30) -> list[tuple[date, int]]:
    """The newest days on which papers were listed, with how many."""
    count = func.count(col(Listing.paper_id).distinct())
    newest = select(col(Listing.listed_on), count).group_by(col(Listing.listed_on))
    return [
        (day, papers)
        for day, papers in session.exec(newest.order_by(col(Listing.listed_on).desc()).limit(limit))
    ]


def neighbouring_days(session: Session, day: date) -> tuple[date | None, date | None]:
    """The nearest days before and after this one of which there are papers."""
    listed = col(Listing.listed_on)
    before = session.exec(_days_shown().where(listed < day).order_by(listed.desc()).limit(1)).first()
    after = session.exec(_days_shown().where(listed > day).order_by(listed).limit(1)).first()
    return before, after


def _days_shown() -> SelectOfScalar[date]:
    """A day for every listing of a paper that is not withdrawn."""
    shown = select(col(Listing.listed_on)).join(Paper, col(Paper.id) == Listing.paper_id)
    return shown.where(col(Paper.withdrawn_at).is_(None))


def keywords(session: Session, since: date) -> Counter[str]:
    """What the papers listed since then are said to be about, by how many of them are."""
    named = select(Paper.keywords).where(col(Paper.last_listed_on) >= since)
    return Counter(" ".join(keyword.split()).lower() for listed in session.exec(named) for keyword in listed)


def search(
    session: Session, text: str = "", *, day: date | None = None, source_id: int | None = None,
    limit: int = 50, before: int | None = None,
) -> list[PaperView]:  # fmt: skip
    """Papers, newest first, that hold every word of `text` in title or abstract; `before` pages on."""
    found = select(Paper).where(col(Paper.merged_into_id).is_(None))
    for word in text.split():
        found = found.where(
            or_(
                col(Paper.title).icontains(word, autoescape=True),
                col(Paper.abstract).icontains(word, autoescape=True),
            )
        )
    if day is not None or source_id is not None:
        listed = select(Listing.paper_id)
        listed = listed.where(Listing.listed_on == day) if day is not None else listed
        listed = listed.where(Listing.source_id == source_id) if source_id is not None else listed
        found = found.where(col(Paper.id).in_(listed))
    if before is not None:
        found = found.where(col(Paper.id) < before)
    return _views(session, session.exec(found.order_by(col(Paper.id).desc()).limit(limit)).all())


def passing(session: Session, only: PaperFilter, ids: Sequence[int]) -> list[int]:
    """Those of these papers that pass a filter, in their order."""
    passed = {
        number
        for part in _slices(ids)
        for number in session.exec(select(Paper.id).where(*_passes(only), col(Paper.id).in_(part)))
    }
    return [number for number in ids if number in passed]


def newest(session: Session, only: PaperFilter, limit: int, offset: int = 0) -> list[PaperView]:
    """The papers that pass a filter, those that were listed last first."""
    found = select(Paper.id).where(*_passes(only)).order_by(*_newest_first())
    return in_given_order(
        session, [number or 0 for number in session.exec(found.limit(limit).offset(offset))]
    )


def _newest_first() -> list[ColumnElement[Any]]:
    """By the day they were listed last; what no source listed comes at the end."""
    return [func.coalesce(Paper.last_listed_on, date.min).desc(), col(Paper.id).desc()]


def count(session: Session, only: PaperFilter) -> int:
    """How many papers pass a filter."""
    return session.exec(select(func.count()).select_from(Paper).where(*_passes(only))).one()


def _passes(only: PaperFilter) -> list[ColumnElement[bool]]:
    wanted: list[ColumnElement[bool]] = [
        col(Paper.merged_into_id).is_(None),
        col(Paper.withdrawn_at).is_(None),
    ]
    if only.code:
        wanted.append(col(Paper.code_url) != "")
    if only.day or only.source:
        listed = select(Listing.paper_id).join(Source)
        listed = listed.where(Listing.listed_on == only.day) if only.day else listed
        listed = listed.where(Source.name == only.source) if only.source else listed
        wanted.append(col(Paper.id).in_(listed))
    return wanted


def texts(session: Session, limit: int) -> list[PaperView]:
    """The newest papers with what an interest is matched against, and with nothing else."""
    names = ("id", "title", "abstract", "authors", "categories", "last_listed_on")
    kept = select(*(getattr(Paper, name) for name in names)).where(*_passes(PaperFilter()))
    rows = session.execute(kept.order_by(*_newest_first()).limit(limit))
    return [
        PaperView(
            number, title, abstract, authors=tuple(authors), categories=tuple(categories), last_listed_on=day
        )
        for number, title, abstract, authors, categories, day in rows
    ]


def most_voted(session: Session, since: date, until: date, limit: int) -> tuple[list[int], int]:
    """Of the papers listed in [since, until] those with the most votes, and how many papers those were."""
    listed = select(Listing.paper_id).where(col(Listing.listed_on).between(since, until)).distinct()
    ids = select(Paper.id).where(*_passes(PaperFilter()), col(Paper.id).in_(listed))
    figures = {number or 0: 0 for number in session.exec(ids)}
    best = select(VoteCount.paper_id, func.max(VoteCount.upvotes)).where(col(VoteCount.paper_id).in_(ids))
    for number, upvotes in session.exec(best.group_by(col(VoteCount.paper_id), col(VoteCount.source_id))):
        if number in figures:  # PostgreSQL answers each question as of its own moment
            figures[number] += upvotes
    ranked = sorted(figures, key=lambda number: (-figures[number], number))
    return ranked[:limit], len(ranked)


def days_between(session: Session, since: date, until: date) -> list[date]:
    """The days in [since, until] of which there are papers."""
    return sorted(session.exec(_days_shown().where(col(Listing.listed_on).between(since, until)).distinct()))


def listings(session: Session, paper_id: int) -> list[Listed]:
    """Where a paper was listed, and when, the first time first."""
    rows = (
        select(col(Listing.listed_on), col(Source.name), col(Listing.rank))
        .join(Source)
        .where(Listing.paper_id == paper_id)
    )
    ordered = rows.order_by(col(Listing.listed_on), col(Source.name))
    return [Listed(*row) for row in session.exec(ordered)]


def source_names(session: Session) -> list[str]:
    """The sources that have listed a paper."""
    return sorted(session.exec(select(Source.name).where(col(Source.id).in_(select(Listing.source_id)))))


def _views(session: Session, papers: Sequence[Paper]) -> list[PaperView]:
    ids = [paper.id for paper in papers if paper.id is not None]
    votes = _votes(session, ids)
    listings = _listings(session, ids)
    written = _written(session, [paper.id for paper in papers if paper.id is not None and not paper.tldr])
    return [
        _view(paper, votes[paper.id or 0], listings[paper.id or 0], written.get(paper.id or 0))
        for paper in papers
    ]


def _view(
    paper: Paper,
    votes: Sequence[VoteRow],
    listings: Iterable[tuple[date, str]],
    written: GeneratedSummary | None,
) -> PaperView:
    points = tuple(series(votes))
    days, sources = {day for day, _ in listings}, {name for _, name in listings}
    return PaperView(
        id=paper.id or 0,
        title=paper.title,
        abstract=paper.abstract,
        authors=tuple(paper.authors),
        author_count=paper.author_count,
        categories=tuple(paper.categories),
        keywords=tuple(paper.keywords),
        tldr=written.text if written else paper.tldr,
        tldr_by=written.model if written else "",
        arxiv_id=paper.arxiv_id or "",
        url=_address(paper),
        pdf_url=f"{ARXIV}/pdf/{paper.arxiv_id}" if paper.arxiv_id else paper.pdf_url,
        code_url=paper.code_url,
        project_url=paper.project_url,
        published_on=paper.published_on,
        first_listed_on=paper.first_listed_on,
        last_listed_on=paper.last_listed_on,
        listed_on=tuple(sorted(days)),
        upvotes=points[-1].upvotes if points else 0,
        comments=_latest_comments(votes),
        votes=points,
        sources=tuple(sorted(sources)),
    )


def as_of(paper: PaperView, at: datetime) -> PaperView:
    """A paper as it was listed, and what its votes were, at an earlier moment.

    Where no figure is as old, the first that is known serves: it is the nearest to what was true.
    """
    today = at.date()
    if paper.listed_on[-1:] <= (today,) and (not paper.votes or paper.votes[-1].at <= at):
        return paper
    days = tuple(day for day in paper.listed_on if day <= today)
    votes = tuple(point for point in paper.votes if point.at <= at) or paper.votes[:1]
    return replace(
        paper,
        listed_on=days,
        last_listed_on=days[-1] if days else None,
        votes=votes,
        upvotes=votes[-1].upvotes if votes else 0,
    )


def _address(paper: Paper) -> str:
    """Where to read about a paper: built from its id where it has one, so that no source decides."""
    if paper.arxiv_id:
        return f"{ARXIV}/abs/{paper.arxiv_id}"
    return paper.url or (f"https://doi.org/{paper.doi}" if paper.doi else "")


def series(votes: Sequence[VoteRow]) -> list[VoteSample]:
    """One curve from the votes of several sources, ordered by time: at each moment their sum."""
    now_of: dict[int, int] = {}
    points: list[VoteSample] = []
    for row in votes:
        now_of[row.source_id] = max(row.upvotes, now_of.get(row.source_id, 0))
        point = VoteSample(row.at, sum(now_of.values()))
        if points and points[-1].at == row.at:
            points[-1] = point
        else:
            points.append(point)
    return points


def _latest_comments(votes: Sequence[VoteRow]) -> int:
    return sum({row.source_id: row.comments for row in votes}.values())


def _votes(session: Session, ids: Sequence[int]) -> dict[int, list[VoteRow]]:
    found: dict[int, list[VoteRow]] = defaultdict(list)
    for part in _slices(ids):
        # As plain rows: there are many, and an object of the session for each is most of the work.
        rows = select(*(getattr(VoteCount, name) for name in VoteRow._fields))
        of_part = rows.where(col(VoteCount.paper_id).in_(part)).order_by(col(VoteCount.at), col(VoteCount.id))
        for row in session.execute(of_part):
            found[row.paper_id].append(VoteRow(*row))
    return found


def _listings(session: Session, ids: Sequence[int]) -> dict[int, set[tuple[date, str]]]:
    """On which days papers were listed, and by which sources."""
    found: dict[int, set[tuple[date, str]]] = defaultdict(set)
    names = dict(session.exec(select(Source.id, Source.name)).all())
    for part in _slices(ids):
        rows = select(col(Listing.paper_id), col(Listing.listed_on), col(Listing.source_id))
        for paper_id, day, source_id in session.exec(rows.where(col(Listing.paper_id).in_(part))):
            found[paper_id].add((day, names[source_id]))
    return found


def _written(session: Session, ids: Sequence[int]) -> dict[int, GeneratedSummary]:
    """What a language model wrote of these papers. One that has its source's own needs none."""
    return {
        row.paper_id: row
        for part in _slices(ids)
        for row in session.exec(
            select(GeneratedSummary).where(
                col(GeneratedSummary.paper_id).in_(part), GeneratedSummary.text != ""
            )
        )
    }


def _slices(ids: Sequence[int]) -> Iterable[Sequence[int]]:
    return (ids[start : start + SLICE] for start in range(0, len(ids), SLICE))
