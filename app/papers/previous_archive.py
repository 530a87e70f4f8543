"""Copy what has changed in the archive since a backup from the database that the restored one replaces."""

from collections.abc import Collection
from typing import cast

from sqlalchemy import Table, delete, func, inspect, or_, select, update
from sqlmodel import Session, col
from sqlmodel import select as select_rows

from app.storage.database import in_array
from app.storage.inserts import insert_many
from app.storage.models import Listing, Merge, Paper, Source, VoteCount

BATCH = 1000  # rows

_PAPERS = cast("Table", inspect(Paper).local_table)


def copy_since(session: Session, previous: Session) -> None:
    """Copy the papers that were added, merged or split since the backup, with their listings and votes.

    Papers keep their ids, because digests refer to them. All other papers stay as they were in the backup.
    Listings and votes from sources that were added since are left out.
    """
    newest = session.scalar(select(func.max(_PAPERS.c.id))) or 0
    merges = {merge.id: merge for merge in session.exec(select_rows(Merge))}
    changed = [
        merge
        for merge in previous.exec(select_rows(Merge).order_by(col(Merge.id)))
        if merge.id not in merges or merges[merge.id].undone_at != merge.undone_at
    ]
    ids = with_merged(
        previous, {paper_id for merge in changed for paper_id in (merge.survivor_id, merge.absorbed_id)}
    )
    copy_papers(session, previous, newest, ids)
    copy_listings(session, previous, newest, ids)
    for merge in changed:
        if merge.id in merges:
            merges[merge.id].undone_at = merge.undone_at
        else:
            session.add(Merge(**merge.model_dump(exclude={"id"})))
    session.flush()


def with_merged(previous: Session, ids: Collection[int]) -> set[int]:
    """Return the ids of rows, of those that they absorbed, and of those into which they were merged."""
    row_id, survivor_id = _PAPERS.c.id, _PAPERS.c.merged_into_id
    related, new = set(ids), set(ids)
    while new:
        touches_new = or_(in_array(previous, row_id, new), in_array(previous, survivor_id, new))
        rows = previous.execute(select(row_id, survivor_id).where(touches_new, survivor_id.is_not(None)))
        new = {paper_id for row in rows for paper_id in row} - related
        related |= new
    return related


def copy_papers(session: Session, previous: Session, newest: int, ids: Collection[int]) -> None:
    """Insert the papers with ids above `newest`, and overwrite those in `ids`."""
    is_copied = or_(_PAPERS.c.id > newest, in_array(previous, _PAPERS.c.id, ids))
    rows = [row._asdict() for row in previous.execute(select(_PAPERS).where(is_copied))]
    for column in (_PAPERS.c.arxiv_id, _PAPERS.c.doi):  # unique, and possibly moved to another row by a split
        values = [row[column.name] for row in rows if row[column.name]]
        session.execute(update(_PAPERS).where(in_array(session, column, values)).values({column: None}))
    new = [row for row in rows if row["id"] > newest]
    for start in range(0, len(new), BATCH):
        # A row may have been merged into a later row, so this column is filled at the end.
        insert_many(session, Paper, [{**row, "merged_into_id": None} for row in new[start : start + BATCH]])
    for row in rows:
        if row["id"] <= newest or row["merged_into_id"]:
            session.execute(update(_PAPERS).where(_PAPERS.c.id == row["id"]).values(row))


def copy_listings(session: Session, previous: Session, newest: int, ids: Collection[int]) -> None:
    """Copy the listings and votes of papers with ids above `newest`, and replace those of papers in `ids`."""
    sources = session.scalars(select(col(Source.id))).all()
    for model in (Listing, VoteCount):
        table = cast("Table", inspect(model).local_table)
        paper_id = table.c.original_paper_id
        session.execute(delete(table).where(in_array(session, paper_id, ids)))
        columns = [column for column in table.c if not column.primary_key]
        is_copied = or_(paper_id > newest, in_array(previous, paper_id, ids))
        of_sources = in_array(previous, table.c.source_id, sources)
        result = previous.execute(select(*columns).where(is_copied, of_sources))
        for rows in result.partitions(BATCH):
            insert_many(session, model, [row._asdict() for row in rows])
