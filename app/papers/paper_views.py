"""Papers as the other packages see them: merged rows appear as one paper with the votes from all sources."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import date, datetime
from typing import Any, NamedTuple, cast
from urllib.parse import quote

from sqlalchemy import Row, Table, inspect
from sqlalchemy import select as sql_select
from sqlmodel import Session, col, select

from app.papers import canonical_rows
from app.storage.database import in_array
from app.storage.models import GeneratedSummary, Listing, Paper, Source, VoteCount
from app.types import PaperView, VoteSample

ARXIV = "https://arxiv.org"
_SAFE_IN_DOI = "/:;()%"  # all other punctuation, such as "<" and "#", is encoded in a link
# Conditions for the papers that subscribers and visitors may see.
PUBLIC = (col(Paper.withdrawn_at).is_(None), col(Paper.hidden_at).is_(None))
_PAPERS = cast("Table", inspect(Paper).local_table)
# The columns that views use. Decoding the others would take a quarter of the time.
_COLUMNS = [
    _PAPERS.c[name]
    for name in (
        "id", "title", "abstract", "authors", "author_count", "organization_names", "categories", "keywords",
        "tldr", "arxiv_id", "doi", "url", "pdf_url", "code_url", "project_url", "sourced", "published_on",
        "first_listed_on", "last_listed_on", "hidden_at", "pinned_at", "pinned_until",
    )
]  # fmt: skip


class VoteRow(NamedTuple):
    """The columns of a `VoteCount` row that views use."""

    paper_id: int
    source_id: int
    at: datetime
    upvotes: int
    comments: int
    stars: int


def candidates(session: Session, since: date, until: date) -> list[PaperView]:
    """Return the papers that were listed on a day in [since, until] and are neither withdrawn nor hidden."""
    listed = select(Listing.paper_id).where(col(Listing.listed_on).between(since, until)).distinct()
    # Load plain rows instead of ORM objects, because planning loads thousands of papers many times a day.
    papers = sql_select(*_COLUMNS).where(_PAPERS.c.id.in_(listed), *PUBLIC)
    return views_of(session, session.connection().execute(papers.order_by(_PAPERS.c.id)).all())


def pinned(session: Session, at: datetime) -> list[PaperView]:
    """Return the papers that are pinned at the time `at`."""
    papers = select(Paper).where(col(Paper.pinned_until) > at, col(Paper.pinned_at) <= at, *PUBLIC)
    unmerged = papers.where(col(Paper.merged_into_id).is_(None))
    return views_of(session, session.exec(unmerged.order_by(col(Paper.id))).all())


def by_ids(session: Session, ids: Collection[int]) -> list[PaperView]:
    """Return the papers with these ids, sorted by id. Replace merged papers with those that absorbed them."""
    by_id = {paper.id or 0: paper for paper in canonical_rows.papers(session, ids).values()}
    return views_of(session, [by_id[paper_id] for paper_id in sorted(by_id)])


def in_given_order(session: Session, ids: Sequence[int]) -> list[PaperView]:
    """Return papers in the order of `ids`. Merged, withdrawn and hidden papers are left out."""
    rows = {
        row.id: row
        for row in canonical_rows.papers(session, ids).values()
        if row.withdrawn_at is None and row.hidden_at is None
    }
    views = {paper.id: paper for paper in views_of(session, [*rows.values()])}
    return [views[paper_id] for paper_id in ids if paper_id in views]


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


def views_of(session: Session, papers: Sequence[Paper | Row[Any]]) -> list[PaperView]:
    """Return the views of papers, with their votes, listings and summaries, in the given order."""
    ids = [paper.id for paper in papers if paper.id is not None]
    votes: dict[int, list[VoteRow]] = defaultdict(list)
    # Load plain rows, because creating ORM objects would take most of the time.
    columns = select(*(getattr(VoteCount, name) for name in VoteRow._fields))
    of_papers = columns.where(in_array(session, col(VoteCount.paper_id), ids))
    for row in session.exec(of_papers.order_by(col(VoteCount.at), col(VoteCount.id))):
        votes[row.paper_id].append(VoteRow._make(row))
    listings: dict[int, set[tuple[date, str, str]]] = defaultdict(set)  # day, source, submitter
    names = dict(session.exec(select(Source.id, Source.name)).all())
    columns = col(Listing.paper_id), col(Listing.listed_on), col(Listing.source_id), col(Listing.submitted_by)
    listed = select(*columns).where(in_array(session, col(Listing.paper_id), ids))
    for paper_id, day, source_id, submitted_by in session.exec(listed):
        listings[paper_id].add((day, names[source_id], submitted_by))
    without_tldr = [paper.id for paper in papers if paper.id is not None and not paper.tldr]
    with_text = select(GeneratedSummary).where(
        GeneratedSummary.text != "", in_array(session, col(GeneratedSummary.paper_id), without_tldr)
    )
    generated = {row.paper_id: row for row in session.exec(with_text)}
    return [
        _view(paper, votes[paper.id or 0], listings[paper.id or 0], generated.get(paper.id or 0))
        for paper in papers
    ]


def _view(
    paper: Paper | Row[Any],
    votes: Sequence[VoteRow],
    listings: Collection[tuple[date, str, str]],
    generated: GeneratedSummary | None,
) -> PaperView:
    points = tuple(series(votes))
    days, sources = {day for day, _, _ in listings}, {name for _, name, _ in listings}
    submitters = (submitted_by for _, _, submitted_by in sorted(listings) if submitted_by)
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
        tldr_is_edited="tldr" in (paper.sourced or {}),
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
        submitted_by=next(submitters, ""),
        hidden_at=paper.hidden_at,
        pinned_at=paper.pinned_at,
        pinned_until=paper.pinned_until,
    )


def pdf_url(paper: Paper | Row[Any]) -> str:
    """Return the link to a paper's PDF. Papers on arXiv link to arXiv unless an operator edited the link."""
    if paper.arxiv_id and "pdf_url" not in (paper.sourced or {}):
        return f"{ARXIV}/pdf/{paper.arxiv_id}"
    return str(paper.pdf_url)


def page_url(paper: Paper | Row[Any]) -> str:
    """Return the link to a paper's page. Papers on arXiv link to arXiv unless an operator edited the link."""
    # Build the link to arXiv from the id, so that a source cannot choose its target.
    if paper.arxiv_id and "url" not in (paper.sourced or {}):
        return f"{ARXIV}/abs/{paper.arxiv_id}"
    return paper.url or (f"https://doi.org/{quote(paper.doi, _SAFE_IN_DOI)}" if paper.doi else "")


def series(votes: Sequence[VoteRow]) -> list[VoteSample]:
    """Return the total votes from all sources over time. `votes` must be ordered by time."""
    latest: dict[int, int] = {}  # by source
    points: list[VoteSample] = []
    for row in votes:
        first_count = 0 if row.source_id in latest else row.upvotes
        latest[row.source_id] = max(row.upvotes, latest.get(row.source_id, 0))
        if points and points[-1].at == row.at:
            first_count += points.pop().newly_counted
        points.append(VoteSample(row.at, sum(latest.values()), first_count))
    return points
