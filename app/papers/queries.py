"""Read papers from the archive for the other packages. Merged rows appear as one paper with all votes."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any, NamedTuple, cast

from sqlalchemy import ColumnElement, Row, Table, false, inspect
from sqlalchemy import select as sql_select
from sqlmodel import Session, col, func, or_, select
from sqlmodel.sql.expression import SelectOfScalar

from app.errors import NotFound
from app.storage.models import GeneratedSummary, Listing, Merge, Paper, PaperSnapshot, Source, VoteCount
from app.text import identifiers, sanitize
from app.types import PaperView, VoteSample

# SQLite allows at most 32,766 variables in a statement.
IDS_PER_STATEMENT = 5_000
ARXIV = "https://arxiv.org"
_PAPERS = cast("Table", inspect(Paper).local_table)
_REFERENCE = re.compile(r"(?:(?:arxiv|doi):?\s*)?\S+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PaperFilter:
    """A filter on papers. Without conditions, it accepts all papers that are neither withdrawn nor hidden."""

    day: date | None = None  # on which a source listed the paper
    source: str = ""  # the name of a source that listed the paper
    code: bool = False  # only papers with code

    def __bool__(self) -> bool:
        return bool(self.day or self.source or self.code)


class ListingView(NamedTuple):
    """A day on which a source listed a paper, the paper's rank on that day, and who submitted it there."""

    day: date
    source: str
    rank: int | None
    submitted_by: str


class UpdatedPaper(NamedTuple):
    """A paper that was withdrawn, or for which code was found, after it was first stored."""

    id: int
    title: str
    url: str
    code_url: str
    withdrawn_at: datetime | None
    code_found_at: datetime | None
    days: frozenset[date]  # on which digests with it were composed, in UTC
    merged_ids: frozenset[int]  # of the rows that were merged into it


class VoteRow(NamedTuple):
    """A row of vote counts, read-only."""

    paper_id: int
    source_id: int
    at: datetime
    upvotes: int
    comments: int
    stars: int


# A paper that subscribers and visitors may see.
PUBLIC = (col(Paper.withdrawn_at).is_(None), col(Paper.hidden_at).is_(None))
SEARCHABLE = (col(Paper.merged_into_id).is_(None), *PUBLIC)


@dataclass(frozen=True, slots=True)
class MergeHistory:
    """The merges that were undone, and the current ids of papers."""

    undone: Sequence[tuple[int, int, datetime, datetime | None]]  # survivor, absorbed, from, until
    current: Mapping[int, int]

    @classmethod
    def load(cls, session: Session, ids: Collection[int]) -> MergeHistory:
        """Load the history that papers with these ids may have."""
        columns = select(Merge.survivor_id, Merge.absorbed_id, Merge.at, Merge.undone_at)
        undone = session.exec(columns.where(col(Merge.undone_at).is_not(None))).all()
        parts = {paper_id for survivor, absorbed, *_ in undone for paper_id in (survivor, absorbed)}
        return cls(undone, canonical_ids(session, parts | set(ids)))

    def papers_at(self, paper_id: int, at: datetime) -> set[int]:
        """Return the current ids of the papers that had this id at a time.

        A digest of that time with a paper that was split since then contained all of them.
        """
        papers = {self.current.get(paper_id, paper_id)}
        parts = [
            (self.current.get(survivor, survivor), self.current.get(absorbed, absorbed))
            for survivor, absorbed, start, end in self.undone
            if start <= at and (end is None or at <= end)
        ]
        while more := {absorbed for survivor, absorbed in parts if survivor in papers} - papers:
            papers |= more
        return papers


def is_empty(session: Session) -> bool:
    """Return whether the archive contains no papers."""
    return session.exec(select(Paper.id).limit(1)).first() is None


def candidates(session: Session, since: date, until: date) -> list[PaperView]:
    """Return the papers that were listed on a day in [since, until] and are neither withdrawn nor hidden."""
    listed = select(Listing.paper_id).where(col(Listing.listed_on).between(since, until)).distinct()
    # Plain rows, because planning loads thousands of papers many times a day.
    papers = sql_select(_PAPERS).where(_PAPERS.c.id.in_(listed), *PUBLIC)
    return _views(session, session.connection().execute(papers.order_by(_PAPERS.c.id)).all())


def pinned(session: Session, at: datetime) -> list[PaperView]:
    """Return the papers that are pinned at a time."""
    papers = select(Paper).where(col(Paper.pinned_until) > at, col(Paper.pinned_at) <= at, *PUBLIC)
    unmerged = papers.where(col(Paper.merged_into_id).is_(None))
    return _views(session, session.exec(unmerged.order_by(col(Paper.id))).all())


def hidden(session: Session) -> set[int]:
    """Return the ids of the papers that operators have hidden, and of the rows merged into them."""
    of_papers = select(Paper.id).where(col(Paper.hidden_at).is_not(None), col(Paper.merged_into_id).is_(None))
    rows = of_papers.cte("hidden_row", recursive=True)
    merged = select(Paper.id).join(rows, col(Paper.merged_into_id) == rows.c.id)
    return {row.id for row in session.execute(sql_select(rows.union(merged).c.id))}


def paper_views(session: Session, ids: Collection[int]) -> list[PaperView]:
    """Return these papers by ascending id. A merged paper is replaced by the paper that absorbed it."""
    by_id = {paper.id or 0: paper for paper in papers(session, ids).values()}
    return _views(session, [by_id[paper_id] for paper_id in sorted(by_id)])


def in_given_order(session: Session, ids: Sequence[int]) -> list[PaperView]:
    """Return these papers in the given order. Merged, withdrawn and hidden papers are left out."""
    rows = {
        row.id: row
        for row in papers(session, ids).values()
        if row.withdrawn_at is None and row.hidden_at is None
    }
    views = {paper.id: paper for paper in _views(session, [*rows.values()])}
    return [views[paper_id] for paper_id in ids if paper_id in views]


def papers(session: Session, ids: Collection[int]) -> dict[int, Paper]:
    """Return the current row for each id, following merges. Ids that do not exist are left out."""
    canonical = canonical_ids(session, ids)
    rows = {row.id: row for row in _rows(session, select(Paper), Paper.id, sorted({*canonical.values()}))}
    return {paper_id: rows[canonical_id] for paper_id, canonical_id in canonical.items()}


def updated_papers(session: Session, since: datetime) -> list[UpdatedPaper]:
    """Return the papers that were withdrawn or got code since a time. Hidden ones are left out."""
    updated: dict[int, Paper] = {}
    not_hidden = col(Paper.merged_into_id).is_(None), col(Paper.hidden_at).is_(None)
    for at in (col(Paper.withdrawn_at), col(Paper.code_found_at)):
        rows = session.exec(select(Paper).where(at >= since, *not_hidden))
        updated |= {paper.id or 0: paper for paper in rows}
    root_of = {paper_id: paper_id for paper_id in updated}
    merged_ids = [*updated]
    while merged_ids:
        ids_and_targets = select(Paper.id, Paper.merged_into_id)
        rows_of_level = dict(_rows(session, ids_and_targets, Paper.merged_into_id, merged_ids))
        root_of |= {paper_id: root_of[target] for paper_id, target in rows_of_level.items()}
        merged_ids = [*rows_of_level]
    days = defaultdict[int, set[date]](set)
    snapshots = select(PaperSnapshot.paper_id, PaperSnapshot.created_at)
    for paper_id, at in _rows(session, snapshots, PaperSnapshot.paper_id, [*root_of]):
        days[root_of[paper_id]].add(at.date())
    merged = defaultdict[int, set[int]](set)
    for paper_id, root in root_of.items():
        merged[root].add(paper_id)
    return [
        UpdatedPaper(
            *(number, paper.title, page_url(paper), paper.code_url),
            *(paper.withdrawn_at, paper.code_found_at, frozenset(days[number]), frozenset(merged[number])),
        )
        for number, paper in sorted(updated.items())
    ]


def canonical_ids(session: Session, ids: Collection[int]) -> dict[int, int]:
    """Map each id to the id of the row into which the paper was merged, or to itself.

    Ids that do not exist are left out.
    """
    merged_into: dict[int, int | None] = {}
    unread = set(ids)
    while unread:
        targets = dict(_rows(session, select(Paper.id, Paper.merged_into_id), Paper.id, sorted(unread)))
        merged_into |= targets
        unread = {target for target in targets.values() if target is not None} - merged_into.keys()
    canonical = {}
    for paper_id in ids:
        if paper_id in merged_into:
            canonical[paper_id] = paper_id
            while (target := merged_into[canonical[paper_id]]) is not None:
                canonical[paper_id] = target
    return canonical


def earliest_unmerge(session: Session, ids: Collection[int]) -> datetime | None:
    """Return the time of the earliest merge into one of these papers that was later undone, or None."""
    history = MergeHistory.load(session, ())
    return min(
        (
            at
            for survivor, absorbed, at, _ in history.undone
            if history.current[survivor] in ids or history.current[absorbed] in ids
        ),
        default=None,
    )


def find_by_reference(session: Session, reference: str) -> int | None:
    """Return the id of the paper with an arXiv id, DOI or URL, or None if `reference` is none of these.

    Raise NotFound if the paper is not in the archive.
    """
    reference = sanitize.one_line(reference, sanitize.URL_CHARS)
    if not _REFERENCE.fullmatch(reference):
        return None
    doi, url = identifiers.doi(reference), sanitize.url(reference)
    # The last part of a path, as in huggingface.co/papers/2603.25746.
    last_part = re.split("[?#]", reference)[0].rstrip("/").rpartition("/")[2]
    arxiv_id = (
        identifiers.arxiv_id(reference)[0]
        or identifiers.arxiv_id(last_part)[0]
        or identifiers.arxiv_id_of_doi(doi)
    )
    if not (arxiv_id or doi or url):
        return None
    ids = select(Paper.id)
    if arxiv_id:
        ids = ids.where(Paper.arxiv_id == arxiv_id)
    else:
        ids = ids.where(Paper.doi == doi) if doi else ids.where(Paper.url == url)
    paper_id = session.exec(ids).first()
    if paper_id is None:
        raise NotFound(f"There is no paper {reference[:100]} in the archive.")
    return paper_id


def days(session: Session, limit: int = 30) -> list[tuple[date, int]]:
    """Return the latest days on which papers were listed, each with the number of papers."""
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


def _listing_days() -> SelectOfScalar[date]:
    """Select the day of every listing of a public paper."""
    days = select(col(Listing.listed_on)).join(Paper, col(Paper.id) == Listing.paper_id)
    return days.where(*PUBLIC)


def keywords(session: Session, since: date) -> Counter[str]:
    """Count the keywords, in lower case, of the papers listed on or after `since`."""
    rows = session.exec(select(Paper.keywords).where(col(Paper.last_listed_on) >= since, *PUBLIC))
    return Counter(" ".join(keyword.split()).lower() for words in rows for keyword in words)


def titles(session: Session, first: date, last: date, limit: int) -> Sequence[str]:
    """Return the newest `limit` titles of the papers that were last listed from `first` to `last`."""
    shown = *PUBLIC, col(Paper.merged_into_id).is_(None)
    days = col(Paper.last_listed_on) >= first, col(Paper.last_listed_on) <= last
    newest = select(Paper.title).where(*shown, *days).order_by(col(Paper.last_listed_on).desc())
    return session.exec(newest.order_by(col(Paper.id).desc()).limit(limit)).all()


def search(
    session: Session, text: str = "", *, day: date | None = None, source_id: int | None = None,
    hidden: bool | None = None, pinned: bool | None = None, pinned_at: datetime | None = None,
    limit: int = 50, before: int | None = None,
) -> list[PaperView]:  # fmt: skip
    """Return the papers whose title or abstract contains every word of `text`, by descending id.

    Hidden papers are included, unless `hidden` is False. `pinned_at` is the time for `pinned`. For the next
    page, pass the last id as `before`.
    """
    matching = select(Paper).where(col(Paper.merged_into_id).is_(None))
    if hidden is not None:
        is_shown = col(Paper.hidden_at).is_(None)
        matching = matching.where(~is_shown if hidden else is_shown)
    if pinned is not None and pinned_at:
        is_pinned = func.coalesce(col(Paper.pinned_until) > pinned_at, false())
        matching = matching.where(is_pinned if pinned else ~is_pinned)
    for word in text.split():
        matching = matching.where(
            or_(
                col(Paper.title).icontains(word, autoescape=True),
                col(Paper.abstract).icontains(word, autoescape=True),
            )
        )
    if day is not None or source_id is not None:
        listed = select(Listing.paper_id)
        listed = listed.where(Listing.listed_on == day) if day is not None else listed
        listed = listed.where(Listing.source_id == source_id) if source_id is not None else listed
        matching = matching.where(col(Paper.id).in_(listed))
    if before is not None:
        matching = matching.where(col(Paper.id) < before)
    return _views(session, session.exec(matching.order_by(col(Paper.id).desc()).limit(limit)).all())


def filter_ids(session: Session, only: PaperFilter, ids: Sequence[int]) -> list[int]:
    """Return those of `ids` whose papers pass a filter, in the given order."""
    passing = {*_rows(session, select(Paper.id).where(*_conditions(only)), Paper.id, ids)}
    return [paper_id for paper_id in ids if paper_id in passing]


def newest(session: Session, only: PaperFilter, limit: int, offset: int = 0) -> list[PaperView]:
    """Return the papers that pass a filter, most recently listed first."""
    return in_given_order(session, _newest_ids(session, only, limit, offset))


def _newest_ids(session: Session, only: PaperFilter, limit: int, offset: int = 0) -> list[int]:
    """Return ids by latest listing day, newest first. Papers without a listing come last.

    There may be millions of these, so each half is read in the order of an index.
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


def count(session: Session, only: PaperFilter) -> int:
    """Return the number of papers that pass a filter."""
    return session.exec(select(func.count()).select_from(Paper).where(*_conditions(only))).one()


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


def most_voted(session: Session, since: date, until: date, limit: int) -> tuple[list[int], int]:
    """Return the ids of the most voted papers listed in [since, until], and the number of papers listed."""
    listed = select(Listing.paper_id).where(col(Listing.listed_on).between(since, until)).distinct()
    ids = select(Paper.id).where(*_conditions(PaperFilter()), col(Paper.id).in_(listed))
    totals = {paper_id or 0: 0 for paper_id in session.exec(ids)}
    best = select(VoteCount.paper_id, func.max(VoteCount.upvotes)).where(col(VoteCount.paper_id).in_(ids))
    of_sources = best.group_by(col(VoteCount.paper_id), col(VoteCount.source_id))
    for paper_id, upvotes in session.exec(of_sources):
        if paper_id in totals:  # in PostgreSQL, each statement has its own snapshot
            totals[paper_id] += upvotes
    ranked = sorted(totals, key=lambda paper_id: (-totals[paper_id], paper_id))
    return ranked[:limit], len(ranked)


def days_between(session: Session, since: date, until: date) -> list[date]:
    """Return the days in [since, until] on which papers were listed."""
    return sorted(
        session.exec(_listing_days().where(col(Listing.listed_on).between(since, until)).distinct())
    )


def listings(session: Session, paper_id: int) -> list[ListingView]:
    """Return the listings of a paper, oldest first."""
    rows = (
        select(col(Listing.listed_on), col(Source.name), col(Listing.rank), col(Listing.submitted_by))
        .join(Source)
        .where(Listing.paper_id == paper_id)
    )
    ordered = rows.order_by(col(Listing.listed_on), col(Source.name))
    return [ListingView(*row) for row in session.exec(ordered)]


def sources_of_row(session: Session, row_id: int) -> list[tuple[int, str]]:
    """Return the ids and names of the sources whose listings and votes are stored under a row."""
    ids = {
        source_id
        for table in (Listing, VoteCount)
        for source_id in session.exec(select(table.source_id).where(table.original_paper_id == row_id))
    }
    names = select(col(Source.id), col(Source.name)).where(col(Source.id).in_(ids))
    return [(number or 0, name) for number, name in session.exec(names.order_by(col(Source.name)))]


def source_names(session: Session) -> list[str]:
    """Return the names of the sources that have listed a paper."""
    has_listed = select(Listing.id).where(Listing.source_id == Source.id).exists()
    return sorted(session.exec(select(Source.name).where(has_listed)))


def _views(session: Session, papers: Sequence[Paper | Row[Any]]) -> list[PaperView]:
    ids = [paper.id for paper in papers if paper.id is not None]
    votes: dict[int, list[VoteRow]] = defaultdict(list)
    # Plain rows are read because creating ORM objects would take most of the time.
    columns = select(*(getattr(VoteCount, name) for name in VoteRow._fields))
    by_time = columns.order_by(col(VoteCount.at), col(VoteCount.id))
    for row in _rows(session, by_time, VoteCount.paper_id, ids):
        votes[row.paper_id].append(VoteRow(*row))
    listings: dict[int, set[tuple[date, str]]] = defaultdict(set)
    names = dict(session.exec(select(Source.id, Source.name)).all())
    listed = select(col(Listing.paper_id), col(Listing.listed_on), col(Listing.source_id))
    for paper_id, day, source_id in _rows(session, listed, Listing.paper_id, ids):
        listings[paper_id].add((day, names[source_id]))
    without_tldr = [paper.id for paper in papers if paper.id is not None and not paper.tldr]
    with_text = select(GeneratedSummary).where(GeneratedSummary.text != "")
    generated = {
        row.paper_id: row for row in _rows(session, with_text, GeneratedSummary.paper_id, without_tldr)
    }
    return [
        _view(paper, votes[paper.id or 0], listings[paper.id or 0], generated.get(paper.id or 0))
        for paper in papers
    ]


def _view(
    paper: Paper | Row[Any],
    votes: Sequence[VoteRow],
    listings: Iterable[tuple[date, str]],
    generated: GeneratedSummary | None,
) -> PaperView:
    points = tuple(series(votes))
    days, sources = {day for day, _ in listings}, {name for _, name in listings}
    return PaperView(
        id=paper.id or 0,
        title=paper.title,
        abstract=paper.abstract,
        authors=tuple(paper.authors),
        author_count=paper.author_count,
        organization_names=tuple(paper.organization_names),
        categories=tuple(paper.categories),
        keywords=tuple(paper.keywords),
        tldr=generated.text if generated else paper.tldr,
        tldr_by=generated.model if generated else "",
        arxiv_id=paper.arxiv_id or "",
        url=page_url(paper),
        pdf_url=pdf_url(paper),
        code_url=paper.code_url,
        project_url=paper.project_url,
        published_on=paper.published_on,
        first_listed_on=paper.first_listed_on,
        last_listed_on=paper.last_listed_on,
        listed_on=tuple(sorted(days)),
        upvotes=points[-1].upvotes if points else 0,
        comments=sum({row.source_id: row.comments for row in votes}.values()),  # the latest from each source
        stars=max({row.source_id: row.stars for row in votes}.values(), default=0),
        votes=points,
        sources=tuple(sorted(sources)),
        hidden_at=paper.hidden_at,
        pinned_at=paper.pinned_at,
        pinned_until=paper.pinned_until,
    )


def pdf_url(paper: Paper | Row[Any]) -> str:
    """Return the link to a paper's PDF: for a paper on arXiv, the one there, unless it was edited."""
    if paper.arxiv_id and "pdf_url" not in (paper.sourced or {}):
        return f"{ARXIV}/pdf/{paper.arxiv_id}"
    return str(paper.pdf_url)


def page_url(paper: Paper | Row[Any]) -> str:
    """Return the link to a paper's page: for a paper on arXiv, the one there, unless it was edited."""
    if paper.arxiv_id and "url" not in (
        paper.sourced or {}
    ):  # so that sources cannot decide where links lead
        return f"{ARXIV}/abs/{paper.arxiv_id}"
    return paper.url or (f"https://doi.org/{paper.doi}" if paper.doi else "")


def as_of(paper: PaperView, at: datetime) -> PaperView:
    """Return a paper with its listings and votes as of an earlier time.

    If all votes are newer, the earliest count is used, because it is nearest to the true figure.
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


def series(votes: Sequence[VoteRow]) -> list[VoteSample]:
    """Return the total votes from all sources over time. `votes` must be ordered by time."""
    latest: dict[int, int] = {}  # by source
    points: list[VoteSample] = []
    for row in votes:
        latest[row.source_id] = max(row.upvotes, latest.get(row.source_id, 0))
        point = VoteSample(row.at, sum(latest.values()))
        if points and points[-1].at == row.at:
            points[-1] = point
        else:
            points.append(point)
    return points


def _rows(session: Session, statement: Any, column: Any, ids: Sequence[int]) -> Iterator[Any]:
    """Yield the results of a statement for the rows in which `column` is one of `ids`."""
    for start in range(0, len(ids), IDS_PER_STATEMENT):
        yield from session.exec(statement.where(col(column).in_(ids[start : start + IDS_PER_STATEMENT])))


def count_listed(session: Session, day: date) -> dict[int, int]:
    """Return, by source, how many papers it listed on a day."""
    rows = select(Listing.source_id, func.count()).where(Listing.listed_on == day)
    return dict(session.exec(rows.group_by(col(Listing.source_id))).all())


def listing_days(session: Session, source_id: int, since: date) -> list[date]:
    """Return the days since `since` on which a source listed papers, in order."""
    day = col(Listing.listed_on)
    days = session.execute(select(day).where(Listing.source_id == source_id, day >= since).distinct())
    return sorted(days.scalars())
