"""Find the current row of a paper, given a merged row, an arXiv id, a DOI or a URL."""

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from sqlalchemy import ColumnElement, Select, func
from sqlalchemy import select as sql_select
from sqlmodel import Session, col, select

from app.errors import NotFound
from app.storage.database import in_array
from app.storage.models import Merge, Paper
from app.text import identifiers, sanitize

MERGES_READ = 50  # merges that are read first
_REFERENCE = re.compile(r"(?:(?:arxiv|doi):?\s*)?\S+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class MergeHistory:
    """The merges that were undone, and the current id of each paper (see `canonical_ids`)."""

    undone: Sequence[tuple[int, int, datetime, datetime | None]]  # survivor, absorbed, from, until
    current: Mapping[int, int]

    @classmethod
    def load(cls, session: Session, ids: Collection[int]) -> Self:
        """Load all undone merges, and the current ids of the papers with these ids."""
        columns = select(Merge.survivor_id, Merge.absorbed_id, Merge.at, Merge.undone_at)
        undone = session.exec(columns.where(col(Merge.undone_at).is_not(None))).all()
        parts = {paper_id for survivor, absorbed, *_ in undone for paper_id in (survivor, absorbed)}
        return cls(undone, canonical_ids(session, parts | set(ids)))

    def papers_at(self, paper_id: int, at: datetime) -> set[int]:
        """Return the current ids of the papers that an id referred to at the time `at`.

        A digest that contained a paper before it was split counts as containing all its parts.
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


def canonical_ids(session: Session, ids: Collection[int]) -> dict[int, int]:
    """Map each id to the id of the paper into which its row was merged, or to itself.

    Ids that do not exist are left out.
    """
    merged_into: dict[int, int | None] = {}
    unread = set(ids)
    while unread:
        rows = select(Paper.id, Paper.merged_into_id).where(in_array(session, col(Paper.id), unread))
        targets = {paper_id or 0: target for paper_id, target in session.exec(rows)}
        merged_into |= targets
        unread = {target for target in targets.values() if target is not None} - merged_into.keys()
    canonical = {}
    for paper_id in ids:
        if paper_id in merged_into:
            canonical[paper_id] = paper_id
            while (target := merged_into[canonical[paper_id]]) is not None:
                canonical[paper_id] = target
    return canonical


def papers(session: Session, ids: Collection[int]) -> dict[int, Paper]:
    """Return the current row for each id, following merges. Ids that do not exist are left out."""
    canonical = canonical_ids(session, ids)
    current = select(Paper).where(in_array(session, col(Paper.id), {*canonical.values()}))
    rows = {row.id: row for row in session.exec(current)}
    return {paper_id: rows[canonical_id] for paper_id, canonical_id in canonical.items()}


def original_ids(session: Session, ids: Collection[int]) -> dict[int, int]:
    """Map the id of each current row to the smallest id among it and all rows merged into it.

    The current row of a paper may change with each merge, but its smallest id only with a rare one.
    """
    current: Select[int | None, int | None] = sql_select(
        col(Paper.id).label("current"), col(Paper.id).label("id")
    )
    rows = current.where(in_array(session, col(Paper.id), ids)).cte("row", recursive=True)
    merged = sql_select(rows.c.current, col(Paper.id)).join(rows, col(Paper.merged_into_id) == rows.c.id)
    rows = rows.union(merged)
    smallest = sql_select(rows.c.current, func.min(rows.c.id)).group_by(rows.c.current)
    return dict(session.execute(smallest).all())


def unhidden_paper(session: Session, paper_id: int) -> Paper:
    """Return the current row of a paper. Raise NotFound if there is none, or if an operator has hidden it."""
    paper = papers(session, [paper_id]).get(paper_id)
    if paper is None or paper.hidden_at:
        raise NotFound("This paper is no longer in the archive.")
    return paper


def hidden(session: Session) -> set[int]:
    """Return the ids of the papers that operators have hidden, and of the rows merged into them."""
    is_hidden = col(Paper.hidden_at).is_not(None) & col(Paper.merged_into_id).is_(None)
    return set[int]().union(*_rows_by_paper(session, is_hidden).values())


def absorbed_since(session: Session, since: datetime) -> set[int]:
    """Return the ids of the rows absorbed at or after `since`, and of the rows merged into them.

    Read the merges from the newest back to the first that was not undone and is older.
    """
    columns = sql_select(col(Merge.id), col(Merge.absorbed_id), col(Merge.at), col(Merge.undone_at))
    newest, limit = columns.order_by(col(Merge.id).desc()), MERGES_READ
    absorbed, rows = set[int](), session.execute(newest.limit(limit)).all()
    while rows:
        valid = [row for row in rows if row.undone_at is None]
        absorbed |= {row.absorbed_id for row in valid if row.at >= since}
        is_last = len(rows) < limit or any(row.at < since for row in valid)
        limit *= 4  # a few queries suffice for thousands of merges
        older = newest.where(col(Merge.id) < rows[-1].id).limit(limit)
        rows = [] if is_last else session.execute(older).all()
    return set[int]().union(*rows_by_paper(session, absorbed).values())


def rows_by_paper(session: Session, ids: Collection[int]) -> dict[int, set[int]]:
    """Map each id to the ids of its row and of all rows that it absorbed, directly or indirectly.

    Ids that do not exist are left out.
    """
    return _rows_by_paper(session, in_array(session, col(Paper.id), ids)) if ids else {}


def _rows_by_paper(session: Session, condition: ColumnElement[bool]) -> dict[int, set[int]]:
    """Return `rows_by_paper` of the papers that meet a condition."""
    paper_id: ColumnElement[Any] = col(Paper.id).label("paper_id")
    rows = sql_select(paper_id, col(Paper.id)).where(condition).cte("row", recursive=True)
    absorbed = sql_select(rows.c.paper_id, col(Paper.id)).join(rows, col(Paper.merged_into_id) == rows.c.id)
    by_paper = defaultdict[int, set[int]](set)
    for number, row_id in session.execute(sql_select(rows.union(absorbed))):
        by_paper[number].add(row_id)
    return by_paper


def earliest_undone_merge(session: Session, ids: Collection[int]) -> datetime | None:
    """Return the time of the earliest undone merge that involved one of these papers, or None."""
    history = MergeHistory.load(session, ())
    return min(
        (
            at
            for survivor, absorbed, at, _ in history.undone
            if history.current[survivor] in ids or history.current[absorbed] in ids
        ),
        default=None,
    )


def find_by_reference(session: Session, reference: str, base_url: str) -> int | None:
    """Return the id of the row with an arXiv id, DOI or URL. The row may have been merged into another.

    The URL may be the paper's own, or that of its page below `base_url`. Return None if `reference` is none
    of these. Raise NotFound if there is no such row.
    """
    reference = sanitize.one_line(reference, sanitize.URL_CHARS)
    if not _REFERENCE.fullmatch(reference):
        return None
    number = identifiers.id_of_paper_page(reference, base_url)
    doi, url = identifiers.doi(reference), sanitize.url(reference)
    # The last part of a path, as in huggingface.co/papers/2603.25746.
    last_part = re.split("[?#]", reference)[0].rstrip("/").rpartition("/")[2]
    arxiv_id = (
        identifiers.arxiv_id(reference)[0]
        or identifiers.arxiv_id(last_part)[0]
        or identifiers.arxiv_id_of_doi(doi)
    )
    if not (number or arxiv_id or doi or url):
        return None
    ids = select(Paper.id)
    if number:
        ids = ids.where(Paper.id == number)
    elif arxiv_id:
        ids = ids.where(Paper.arxiv_id == arxiv_id)
    else:
        ids = ids.where(Paper.doi == doi) if doi else ids.where(Paper.url == url)
    paper_id = session.exec(ids).first()
    if paper_id is None:
        raise NotFound(f"There is no paper {reference[:100]} in the archive.")
    return paper_id
