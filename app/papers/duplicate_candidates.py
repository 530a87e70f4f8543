"""Find the papers that may be the same as new records, before the archive is locked.

Comparing titles takes long if many are similar. So the candidates of a batch are found first, outside of any
write transaction. Rows that other processes store in between are compared when the batch is stored.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import case, func, or_
from sqlmodel import Session, col, select

from app.papers import dedupe
from app.storage.models import Paper
from app.types import PaperRecord

MAX_SAME_TITLE = 50  # papers of one title that are told apart by their authors and abstracts
MAX_NEAR = 20  # papers with, and as many without an arXiv id, that a record is compared with, nearest first

Row = tuple[int, PaperRecord]  # a record with its number in the parsed answer


@dataclass
class TitleCache:
    """The titles of the archive, for finding near ones. It may serve several batches, but is not thread-safe.

    A paper with an arXiv id is only merged with rows that have none. So the titles of rows with arXiv ids are
    loaded only for records without one.
    """

    # By whether the rows have an arXiv id: those that are loaded, and those that the last `catch_up` added.
    _loaded: dict[bool, dedupe.TitleIndex] = field(default_factory=dict)
    _recent: dict[bool, dedupe.TitleIndex] = field(default_factory=dict)
    _last_id: int = 0  # of the loaded rows

    def candidates(self, session: Session, rows: Sequence[Row]) -> dict[int, list[int]]:
        """Find the papers with near titles, nearest first, for each record that seems to be new.

        A record of `rows` itself is given as its negated number.
        """
        identities = _Identities.load(session, [record for _, record in rows])
        new: list[Row] = []
        for number, record in rows:
            if not identities.has(record):
                identities.add(record)
                new.append((number, record))
        if not new:
            return {}
        self.load(session, with_id=any(not record.arxiv_id for _, record in new))
        candidates = {}
        indexed: list[
            tuple[dedupe.TitleIndex, int]
        ] = []  # meanwhile, so that later records find earlier ones
        try:
            for number, record in new:
                candidates[number] = self.find_near(record)
                if (with_id := bool(record.arxiv_id)) in self._loaded:
                    self._loaded[with_id].add(-number, record.title)
                    indexed.append((self._loaded[with_id], -number))
        finally:
            for index, key in indexed:
                index.remove(key)
        return candidates

    def find_near(self, record: PaperRecord, *, recent: bool = False) -> list[int]:
        """Return the papers with near titles, nearest first, among all that are loaded or the recent ones."""
        indices = self._recent if recent else self._loaded
        kinds = (False,) if record.arxiv_id else (False, True)
        return [
            key
            for kind in kinds
            if kind in indices
            for key in indices[kind].find_near(record.title, MAX_NEAR)
        ]

    def load(self, session: Session, *, with_id: bool) -> None:
        """Load the titles of rows without an arXiv id, and of those with one if asked to."""
        if not self._loaded:
            self._last_id = session.exec(select(func.max(Paper.id))).one() or 0
        for kind in (False, True) if with_id else (False,):
            if kind not in self._loaded:
                index = dedupe.TitleIndex()
                has_id = col(Paper.arxiv_id).is_not(None) if kind else col(Paper.arxiv_id).is_(None)
                for paper_id, title in session.exec(select(Paper.id, Paper.title).where(has_id)):
                    index.add(paper_id or 0, title)
                self._loaded[kind] = index

    def catch_up(self, session: Session) -> None:
        """Add the titles that other processes have stored since the last call."""
        self._recent = {}
        if not self._loaded:
            return
        newer = select(Paper.id, Paper.title, Paper.arxiv_id).where(col(Paper.id) > self._last_id)
        for paper_id, title, arxiv_id in session.exec(newer):
            self._recent.setdefault(bool(arxiv_id), dedupe.TitleIndex()).add(paper_id or 0, title)
            self.add(paper_id or 0, title, with_id=bool(arxiv_id))

    def add(self, paper_id: int, title: str, *, with_id: bool) -> None:
        """Add a title, or replace it."""
        if with_id in self._loaded:
            self._loaded[with_id].add(paper_id, title)
        self._last_id = max(self._last_id, paper_id)


@dataclass
class _Identities:
    """The ids and titles of the archive's rows that some records may have, too."""

    arxiv_ids: set[str | None]
    dois: set[str | None]
    without_id: defaultdict[str, list[dedupe.PaperIdentity]]  # by the key of their titles

    @classmethod
    def load(cls, session: Session, records: Sequence[PaperRecord]) -> _Identities:
        identities = cls(
            _present(session, col(Paper.arxiv_id), {record.arxiv_id for record in records} - {""}),
            _present(session, col(Paper.doi), {record.doi for record in records} - {""}),
            defaultdict(list),
        )
        titles = {record.title for record in records if not (record.arxiv_id or record.doi)}
        ids = ids_by_title(session, {dedupe.title_key(title) for title in titles}) if titles else ()
        columns = select(Paper.title, Paper.abstract, Paper.authors)
        without_id = col(Paper.arxiv_id).is_(None), col(Paper.doi).is_(None)
        for title, abstract, authors in session.exec(columns.where(col(Paper.id).in_(ids), *without_id)):
            row = dedupe.PaperIdentity(title, abstract=abstract, authors=tuple(authors))
            identities.without_id[dedupe.title_key(title)].append(row)
        return identities

    def has(self, record: PaperRecord) -> bool:
        if record.arxiv_id:
            return record.arxiv_id in self.arxiv_ids
        if record.doi:
            return record.doi in self.dois
        rows = self.without_id.get(dedupe.title_key(record.title), ())
        return any(dedupe.same_paper_reason(row, identity_of(record)) for row in rows)

    def add(self, record: PaperRecord) -> None:
        self.arxiv_ids.add(record.arxiv_id)
        self.dois.add(record.doi)
        if not (record.arxiv_id or record.doi):
            self.without_id[dedupe.title_key(record.title)].append(identity_of(record))


def identity_of(record: PaperRecord) -> dedupe.PaperIdentity:
    """Return the fields of a record by which it is compared."""
    return dedupe.PaperIdentity(record.title, record.arxiv_id, record.doi, record.abstract, record.authors)


def ids_by_title(session: Session, keys: Collection[str]) -> Sequence[int]:
    """Return the rows with these title keys: for each the MAX_SAME_TITLE oldest with an id, and without."""
    has_id = or_(col(Paper.arxiv_id).is_not(None), col(Paper.doi).is_not(None))
    same = (col(Paper.title_key), case((has_id, 1), else_=0))
    place = func.row_number().over(partition_by=same, order_by=col(Paper.id)).label("place")
    ranked = select(col(Paper.id), place).where(col(Paper.title_key).in_(keys)).subquery()
    return session.exec(select(ranked.c.id).where(ranked.c.place <= MAX_SAME_TITLE)).all()


def _present(session: Session, column: Any, values: Collection[str]) -> set[str | None]:
    return set(session.exec(select(column).where(column.in_(values)))) if values else set()
