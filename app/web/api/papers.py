"""Papers: search the archive, get a paper, list merges and undo them."""

from collections.abc import Sequence
from datetime import date, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from sqlmodel import Session, col, select

from app.errors import InvalidInput, NotFound
from app.papers import archive_lists, editing, listings, merging, paper_views
from app.storage.models import Listing, Merge, Paper, Source, VoteCount
from app.text import identifiers
from app.types import PaperView
from app.web.api import problems
from app.web.api.auth import AnyId, CanRead, CanWrite, Id
from app.web.api.etags import Versioned
from app.web.api.pagination import Page, Paging, cut, newest_first
from app.web.api.values import Day, UrlBoolean

router = APIRouter(tags=["papers"])


class PaperOut(BaseModel):
    """A paper as shown in digests. Merged rows form one paper, whose votes are the sum over its sources."""

    id: int
    title: str
    abstract: str
    authors: list[str]
    author_count: int
    organization: str = Field(
        examples=["NVIDIA"], description="The organization, if a source names one; otherwise empty."
    )
    categories: list[str]
    keywords: list[str]
    tldr: str
    tldr_by: str = Field(
        description="The language model that wrote the summary; empty if a source or an operator did."
    )
    arxiv_id: str = Field(examples=["2511.01234"])
    url: str
    pdf_url: str
    code_url: str
    project_url: str
    published_on: date | None
    first_listed_on: date | None
    last_listed_on: date | None
    upvotes: int
    comments: int
    sources: list[str] = Field(examples=[["arxiv", "huggingface"]])
    hidden_at: datetime | None = Field(
        description="When an operator hid the paper. Hidden papers are not sent or shown on public pages."
    )
    pinned_until: datetime | None = Field(description="Until this time, the paper comes first in digests.")


class ListingOut(BaseModel):
    """A day on which a source listed the paper."""

    source: str
    listed_on: date
    rank: int | None
    submitted_by: str


class VotesOut(BaseModel):
    """The votes for a paper at a source, at a point in time."""

    source: str
    at: datetime
    upvotes: int
    comments: int
    stars: int


class MergeOut(BaseModel):
    """Two rows that were merged into one paper."""

    id: int
    survivor_id: int
    survivor_title: str
    absorbed_id: int
    absorbed_title: str
    reason: str = Field(examples=["the same title"])
    at: datetime
    undone_at: datetime | None


class SourceName(BaseModel):
    """A source that lists the paper."""

    id: int
    name: str


class RowOut(BaseModel):
    """One of the rows that form the paper. It has the data for one identifier, such as an arXiv ID."""

    id: int
    title: str
    arxiv_id: str
    doi: str
    sources: list[SourceName]


class PaperDetail(PaperOut, Versioned):
    """A paper with its listings, its votes over time, and the rows merged into it."""

    doi: str
    edited_fields: list[str] = Field(
        examples=[["title"]], description="The fields that an operator has edited. Polls do not change them."
    )
    rows: list[RowOut] = Field(description="The rows that form the paper, beginning with its own.")
    withdrawn_at: datetime | None
    listings: list[ListingOut]
    votes: list[VotesOut]
    merges: list[MergeOut]


@router.get("/papers", responses=problems.responses(404))
def list_papers(
    caller: CanRead,
    window: Paging,
    q: Annotated[
        str, Query(max_length=300, description="Words that must all occur in the title or abstract.")
    ] = "",
    arxiv_id: Annotated[
        str | None,
        Query(
            max_length=40,
            examples=["2511.01234"],
            description="Only this paper. A version, such as `v2`, is ignored. It cannot be combined with "
            "`q`, `source_id`, `day`, `hidden` or `pinned`.",
        ),
    ] = None,
    source_id: AnyId = None,
    day: Annotated[Day | None, Query(description="Only papers listed on this day.")] = None,
    hidden: UrlBoolean | None = None,
    pinned: UrlBoolean | None = None,
) -> Page[PaperOut]:
    """List the papers, most recently added first. Hidden papers are included unless `hidden` is false."""
    filters = {"q": q or None, "source_id": source_id, "day": day, "hidden": hidden, "pinned": pinned}
    others = " or ".join(f"“{name}”" for name, value in filters.items() if value is not None)
    if arxiv_id is not None and others:
        raise InvalidInput(f"“arxiv_id” cannot be combined with {others}", "arxiv_id")
    with caller.db.read() as session:
        if arxiv_id is not None:
            unversioned = identifiers.arxiv_id(arxiv_id)[0]
            ids = session.exec(select(Paper.id).where(Paper.arxiv_id == unversioned)).all()
            views = paper_views.by_ids(session, [paper_id for paper_id in ids if paper_id])
            return Page(items=[_to_out(paper) for paper in views])
        papers = archive_lists.search(
            session, q, day=day, source_id=source_id, hidden=hidden,
            pinned_at=caller.now, pinned=pinned, limit=window.limit + 1, before=window.after_id,
        )  # fmt: skip
    page, cursor = cut(papers, window, lambda paper: paper.id)
    return Page(items=[_to_out(paper) for paper in page], next_cursor=cursor)


@router.get("/papers/{paper_id}", responses=problems.responses(404))
def get_paper(caller: CanRead, paper_id: Id) -> PaperDetail:
    """Return a paper. If `paper_id` is the ID of a merged row, return the paper that contains the row."""
    with caller.db.read() as session:
        return detail(session, paper_id)


def detail(session: Session, paper_id: int) -> PaperDetail:
    """Return a paper with its listings, votes and merges. Raise NotFound if there is no such paper."""
    views = paper_views.by_ids(session, [paper_id])
    if not views:
        raise NotFound(f"there is no paper {paper_id}")
    row = session.get_one(Paper, views[0].id)
    absorbed = select(Merge).where(Merge.survivor_id == row.id).order_by(col(Merge.id))
    return PaperDetail(
        **_to_out(views[0]).model_dump(),
        doi=row.doi or "",
        withdrawn_at=row.withdrawn_at,
        edited_fields=editing.edited_fields(row),
        rows=_rows(session, views[0].id),
        listings=[
            ListingOut(**listing)
            for listing in _with_source(session, Listing, row.id, Listing.listed_on, Source.name)
        ],
        votes=[VotesOut(**votes) for votes in _with_source(session, VoteCount, row.id, VoteCount.at)],
        merges=_merges(session, session.exec(absorbed).all()),
    )


@router.get("/merges")
def list_merges(caller: CanRead, window: Paging, undone: UrlBoolean | None = None) -> Page[MergeOut]:
    """List the merges, newest first."""
    statement = select(Merge)
    if undone is not None:
        is_open = col(Merge.undone_at).is_(None)
        statement = statement.where(~is_open if undone else is_open)
    with caller.db.read() as session:
        rows, cursor = newest_first(session, statement, col(Merge.id), window)
        return Page(items=_merges(session, rows), next_cursor=cursor)


@router.post("/merges/{merge_id}/undo", responses=problems.responses(404, 409))
def undo_merge(caller: CanWrite, merge_id: Id) -> MergeOut:
    """Undo a merge. Both papers get their listings and votes back.

    The two papers are never merged automatically again.
    """
    with caller.db.write() as session:
        merging.undo_merge(session, merge_id, caller.now)
        caller.record(session, "merge.undo", merge_id)
        return _merges(session, [session.get_one(Merge, merge_id)])[0]


def _rows(session: Session, paper_id: int) -> list[RowOut]:
    """Return the rows of a paper, beginning with its own."""
    ids = merging.with_absorbed(session, paper_id)
    rows = session.exec(select(Paper).where(col(Paper.id).in_(ids)).order_by(col(Paper.id))).all()
    return [
        RowOut(
            id=row.id or 0,
            title=row.title,
            arxiv_id=row.arxiv_id or "",
            doi=row.doi or "",
            sources=[
                SourceName(id=source_id, name=name)
                for source_id, name in listings.sources_of_row(session, row.id or 0)
            ],
        )
        for row in sorted(rows, key=lambda row: row.id != paper_id)
    ]


def _to_out(paper: PaperView) -> PaperOut:
    return PaperOut.model_validate(paper, from_attributes=True)


def _with_source(session: Session, kind: Any, paper_id: int | None, *order: Any) -> list[dict[str, Any]]:
    """Return the rows of a paper with the names of their sources, sorted by `order` and then by id."""
    rows = session.exec(
        select(kind, Source.name)
        .join(Source, col(Source.id) == kind.source_id)
        .where(kind.paper_id == paper_id)
        .order_by(*order, kind.id)
    )
    return [{"source": name, **row.model_dump()} for row, name in rows]


def _merges(session: Session, rows: Sequence[Merge]) -> list[MergeOut]:
    ids = {paper_id for row in rows for paper_id in (row.survivor_id, row.absorbed_id)}
    titles = dict(session.exec(select(Paper.id, Paper.title).where(col(Paper.id).in_(ids))).all())
    return [
        MergeOut(
            survivor_title=titles[row.survivor_id], absorbed_title=titles[row.absorbed_id], **row.model_dump()
        )
        for row in rows
    ]
