"""Hide papers from digests and public pages, and take hidden and merged papers out of unsent digests.

Later polls do not add a hidden paper again.
"""

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy import update
from sqlmodel import Session, col

from app.delivery import ledger
from app.errors import Conflict
from app.papers import canonical_rows, merging
from app.storage.database import advisory_lock
from app.storage.models import Paper


def hide(session: Session, paper: Paper, now: datetime) -> int:
    """Hide a paper, and take it out of all unsent digests. Return the number of changed digests.

    Raise Conflict if it is already hidden.
    """
    advisory_lock(session, "archive")
    if paper.hidden_at:
        raise Conflict("the paper is already hidden")
    paper.hidden_at = paper.updated_at = now
    session.add(paper)
    session.flush()
    return ledger.leave_out(session, merging.with_absorbed(session, merging.id_of(paper)))


def leave_out_merged(session: Session, survivors: Iterable[Paper]) -> int:
    """Take papers that have absorbed others out of unsent digests. Return the number of changed digests.

    If one is hidden, take it out of all. Otherwise, take it out of those of subscribers who were or will be
    sent one of its rows in another digest.
    """
    # A survivor may have been merged into another one since.
    papers = {merging.id_of(paper): paper for paper in survivors if paper.merged_into_id is None}
    hidden, visible = list[set[int]](), list[set[int]]()
    for number, rows in canonical_rows.rows_by_paper(session, papers).items():
        (hidden if papers[number].hidden_at else visible).append(rows)
    return sum(ledger.leave_out(session, rows) for rows in hidden) + ledger.leave_out_repeated(
        session, visible
    )


def show(session: Session, paper: Paper, now: datetime) -> None:
    """Show a hidden paper and its merged rows again. Raise Conflict if it is not hidden."""
    advisory_lock(session, "archive")
    if paper.hidden_at is None:
        raise Conflict("the paper is not hidden")
    paper.hidden_at, paper.updated_at = None, now
    session.add(paper)
    # Show merged rows too, so that a row that is split off later is not hidden.
    rows = col(Paper.id).in_(merging.with_absorbed(session, merging.id_of(paper)))
    session.execute(update(Paper).where(rows).values(hidden_at=None))
