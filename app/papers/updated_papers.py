"""Papers that were withdrawn, or for which code was found, and the days of the digests with them."""

from collections import defaultdict
from datetime import date, datetime
from typing import NamedTuple

from sqlmodel import Session, col, select

from app.papers.paper_views import page_url
from app.storage.database import in_array
from app.storage.models import Paper, PaperSnapshot


class UpdatedPaper(NamedTuple):
    """A paper that was withdrawn, or for which code was found, and the days on which it was sent."""

    id: int
    title: str
    url: str
    code_url: str
    withdrawn_at: datetime | None
    code_found_at: datetime | None
    days: frozenset[date]  # UTC days on which digests with the paper were composed
    merged_ids: frozenset[int]  # ids of the paper and of the rows that were merged into it


def changed_since(session: Session, since: datetime) -> list[UpdatedPaper]:
    """Return the papers that were withdrawn or for which code was found at or after `since`.

    Omit hidden papers.
    """
    updated: dict[int, Paper] = {}
    not_hidden = col(Paper.merged_into_id).is_(None), col(Paper.hidden_at).is_(None)
    for at in (col(Paper.withdrawn_at), col(Paper.code_found_at)):
        rows = session.exec(select(Paper).where(at >= since, *not_hidden))
        updated |= {paper.id or 0: paper for paper in rows}
    root_of = {paper_id: paper_id for paper_id in updated}
    merged_ids = [*updated]
    while merged_ids:
        of_level = in_array(session, col(Paper.merged_into_id), merged_ids)
        level = session.exec(select(Paper.id, Paper.merged_into_id).where(of_level)).all()
        root_of |= {paper_id or 0: root_of[target or 0] for paper_id, target in level}
        merged_ids = [paper_id or 0 for paper_id, _ in level]
    days = defaultdict[int, set[date]](set)
    of_papers = in_array(session, col(PaperSnapshot.paper_id), root_of)
    snapshots = select(PaperSnapshot.paper_id, PaperSnapshot.created_at).where(of_papers)
    for paper_id, created_at in session.exec(snapshots):
        days[root_of[paper_id]].add(created_at.date())
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
