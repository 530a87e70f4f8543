"""The stored rows that a batch of records may change, indexed by arXiv id, DOI and title."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any, TypeVar

from sqlmodel import Session, col, select

from app.papers import dedupe, stored_fields
from app.papers.duplicate_candidates import identity_of, ids_by_title
from app.papers.merging import id_of
from app.papers.title_normalization import title_key
from app.storage.database import in_array
from app.storage.models import Listing, Paper, Source, VoteCount
from app.types import PaperRecord

_Table = TypeVar("_Table", Paper, Listing, VoteCount)


@dataclass
class StoredRows:
    """The rows of papers, and their listings and votes from one source."""

    session: Session
    source: Source
    papers: dict[int, Paper] = field(default_factory=dict)
    by_arxiv: dict[str, Paper] = field(default_factory=dict)
    by_doi: dict[str, Paper] = field(default_factory=dict)
    by_key: dict[str, list[Paper]] = field(default_factory=dict)  # by `title_key`
    listings: dict[tuple[int, date], Listing] = field(default_factory=dict)
    votes: dict[int, list[VoteCount]] = field(default_factory=dict)

    def load(self, records: Sequence[PaperRecord], others: Collection[int]) -> None:
        """Load the rows that records may change, and the papers whose ids are in `others`."""
        for paper in self._select(Paper, self._known_ids(records)):
            self.add(paper)
        source_id = self.source.id  # None in a trial
        for listing in self._select(Listing, self.papers, Listing.source_id == source_id):
            self.listings[listing.original_paper_id, listing.listed_on] = listing
        votes = self._select(VoteCount, self.papers, VoteCount.source_id == source_id)
        for row in sorted(votes, key=lambda row: row.at):
            self.votes.setdefault(row.original_paper_id, []).append(row)
        for paper in self._select(Paper, set(others) - self.papers.keys()):
            self.papers[id_of(paper)] = paper

    def add(self, paper: Paper) -> None:
        """Index a loaded or new row by its keys."""
        self.papers[id_of(paper)] = paper
        if paper.arxiv_id:
            self.by_arxiv[paper.arxiv_id] = paper
        if paper.doi:
            self.by_doi[paper.doi] = paper
        self.by_key.setdefault(paper.title_key, []).append(paper)

    def get(self, paper_id: int) -> Paper:
        """Return a row. Load it if necessary."""
        if paper_id not in self.papers:
            self.papers[paper_id] = self.session.get_one(Paper, paper_id)
        return self.papers[paper_id]

    def chain(self, paper: Paper) -> list[Paper]:
        """Return the row and the rows that it was merged into, up to the paper that subscribers see."""
        chain = [paper]
        while chain[-1].merged_into_id is not None:
            chain.append(self.get(chain[-1].merged_into_id))
        return chain

    def root(self, paper: Paper) -> Paper:
        """Return the paper that subscribers see for a row."""
        return self.chain(paper)[-1]

    def find(self, record: PaperRecord) -> Paper | None:
        """Return the row to which a record belongs (its identity), or None if there is none."""
        if record.arxiv_id:
            return self.by_arxiv.get(record.arxiv_id)
        if record.doi:
            return self.by_doi.get(record.doi)
        identity = identity_of(record)
        same = [
            row
            for row in self.rows_without_id(record)
            if dedupe.same_paper_reason(identity_of_row(row, row), identity)
        ]
        # Prefer a row that this source lists, because an operator may have split it off.
        listed = {paper_id for paper_id, _ in self.listings} | self.votes.keys()
        return min(same, key=lambda row: row.id not in listed, default=None)

    def listing_days(self, record: PaperRecord) -> list[date]:
        """Return the days on which the source has listed the row to which a record belongs."""
        row = self.find(record)
        return [day for paper_id, day in self.listings if row and paper_id == row.id]

    def rows_without_id(self, record: PaperRecord) -> list[Paper]:
        """Return the rows that have the record's title but no id."""
        rows = self.by_key.get(title_key(record.title), ())
        return [row for row in rows if not (row.arxiv_id or row.doi)]

    def _known_ids(self, records: Sequence[PaperRecord]) -> set[int]:
        """Return the ids of the rows that share an arXiv id, a DOI or a title with a record."""
        keys = {title_key(record.title) for record in records}
        ids = set(ids_by_title(self.session, keys))
        for column, values in (
            (Paper.arxiv_id, {record.arxiv_id for record in records} - {""}),
            (Paper.doi, {record.doi for record in records} - {""}),
        ):
            if values:
                same = in_array(self.session, col(column), values)
                ids |= {paper_id or 0 for paper_id in self.session.exec(select(Paper.id).where(same))}
        return ids

    def _select(self, table: type[_Table], paper_ids: Collection[int], *conditions: Any) -> Sequence[_Table]:
        """Return the rows of these papers in a table, ordered by id."""
        if not paper_ids:
            return ()
        key: Any = getattr(table, "original_paper_id", None) or Paper.id
        of_papers = in_array(self.session, key, paper_ids)
        return self.session.exec(select(table).where(of_papers, *conditions).order_by(col(table.id))).all()


def identity_of_row(row: Paper, root: Paper) -> dedupe.PaperIdentity:
    """Return the fields that identify a row: its title, DOI and link, and its paper's arXiv id and authors.

    Use the abstract of its paper only if the row has none.
    """
    own, paper = stored_fields.read_fields(row).values, stored_fields.read_fields(root).values
    return dedupe.PaperIdentity(
        own["title"],
        root.arxiv_id or "",
        row.doi or "",
        own["abstract"] or paper["abstract"],
        tuple(paper["authors"]),
        own["url"],
    )
