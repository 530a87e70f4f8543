"""Split a paper that is really two papers, and record these as different, so that polls do not merge them.

Subscribers who were sent the paper before it was split count as having been sent both papers (see
`canonical_rows.MergeHistory`).
"""

from datetime import datetime

from sqlalchemy import update
from sqlmodel import Session, col, select

from app.errors import Conflict, NotFound
from app.papers import listings, merging, stored_fields
from app.papers.merging import id_of
from app.storage.database import advisory_lock
from app.storage.inserts import reserve_ids
from app.storage.models import Listing, Merge, Paper, Source, VoteCount

REASON = "one paper, until an operator split it"


def split_row(session: Session, paper: Paper, row_id: int, now: datetime) -> Paper:
    """Separate a row from `paper`, and return it. Raise NotFound if it was not merged into `paper`."""
    advisory_lock(session, "archive")
    row = session.get(Paper, row_id)
    if row is None or row is paper or row_id not in merging.with_absorbed(session, id_of(paper)):
        raise NotFound(f"row {row_id} was not merged into paper {paper.id}")
    merge = select(Merge.id).where(Merge.absorbed_id == row_id, col(Merge.undone_at).is_(None))
    merging.undo_merge(session, session.exec(merge).one() or 0, now)
    return row


def split_doi(session: Session, paper: Paper, now: datetime) -> Paper:
    """Move the DOI of a paper to a new paper, and return the new paper.

    Raise Conflict if the paper does not have both an arXiv id and a DOI.
    """
    advisory_lock(session, "archive")
    if not (paper.arxiv_id and paper.doi):
        raise Conflict("only a paper with both an arXiv ID and a DOI can be split by DOI")
    doi, paper.doi = paper.doi, None
    session.flush()  # before the new paper is inserted, because a DOI is unique
    return _separate(session, [paper], doi, now)


def split_source(session: Session, paper: Paper, source_id: int, now: datetime) -> Paper:
    """Move the listings and votes of a source to a paper of their own, and return that paper.

    Records without an arXiv id or DOI are recognized by their titles, so records from two sources may be two
    papers. Raise NotFound if the source does not list the paper. Raise Conflict if it lists the paper by an
    arXiv id or DOI, or if its listings belong to the paper's own row and no other source lists that row.
    """
    advisory_lock(session, "archive")
    ids = merging.with_absorbed(session, id_of(paper))
    rows = select(Paper).where(col(Paper.id).in_(ids), *_WITHOUT_ID).order_by(col(Paper.id))
    listing = next((row for row in session.exec(rows) if source_id in _sources_of(session, id_of(row))), None)
    if listing is None:
        named = session.exec(select(Source.name).where(Source.id == source_id)).first()
        if named and source_id in {source for number in ids for source in _sources_of(session, number)}:
            raise Conflict(
                f"“{named}” lists this paper by its arXiv ID or DOI, so its listings cannot be split off: "
                "split off a merged row or the DOI instead"
            )
        raise NotFound(f"source {source_id} does not list this paper")
    if _sources_of(session, id_of(listing)) == {source_id}:
        if listing is paper:
            if len(ids) > 1:
                raise Conflict("other rows were merged into this row: split off a merged row instead")
            raise Conflict("no other source lists this paper, so there is nothing to split")
        return split_row(session, paper, id_of(listing), now)
    chain = [listing]
    while chain[-1].merged_into_id is not None:
        chain.append(session.get_one(Paper, chain[-1].merged_into_id))
    new = _separate(session, chain, None, now)
    for table in (Listing, VoteCount):
        of_source = col(table.original_paper_id) == listing.id, col(table.source_id) == source_id
        session.execute(update(table).where(*of_source).values(paper_id=new.id, original_paper_id=new.id))
    for changed in (*chain, new):
        merging.update_listing_days(session, changed)
    return new


_WITHOUT_ID = (col(Paper.arxiv_id).is_(None), col(Paper.doi).is_(None))


def _sources_of(session: Session, row_id: int) -> set[int]:
    """Return the ids of the sources whose listings and votes are stored under a row."""
    return {source_id for source_id, _ in listings.sources_of_row(session, row_id)}


def _separate(session: Session, chain: list[Paper], doi: str | None, now: datetime) -> Paper:
    """Insert a copy of the first row of `chain` as a new paper. Record that it differs from every row.

    Clear the versions of the fields of both papers, so that the next record of a paper replaces its fields.
    """
    row, root = chain[0], chain[-1]
    fields = stored_fields.read_fields(row)
    new = Paper(
        id=next(reserve_ids(session, Paper, 1)), doi=doi, title_key=row.title_key, title_end=row.title_end,
        author_count=fields.author_count, content_hash="", versions={},
        published_on=fields.published_on, hidden_at=root.hidden_at, withdrawn_at=row.withdrawn_at,
        created_at=now, updated_at=now, **fields.values,
    )  # fmt: skip
    stored_fields.renew_hash(new)
    session.add(new)
    session.flush()
    for other in chain:
        other.versions, other.updated_at = {}, now
        session.add(
            Merge(
                survivor_id=id_of(other), absorbed_id=id_of(new), reason=REASON, before={},
                at=row.created_at, undone_at=now,
            )
        )  # fmt: skip
    session.flush()
    return new
