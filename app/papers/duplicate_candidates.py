"""Find the papers that new records may duplicate, before the archive is locked.

Comparing titles is slow if many are similar. Therefore the candidates for a batch are found in advance,
outside any write transaction. Rows that other processes store in between are compared when the batch is
stored.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import case, func, or_
from sqlmodel import Session, col, select

from app.papers import dedupe
from app.papers.stored_fields import sourced_title
from app.storage.models import Paper
from app.types import PaperRecord

MAX_SAME_TITLE = 50  # papers with the same title that are distinguished by their authors and abstracts
MAX_NEAR = 20  # nearest papers with an arXiv id that a record is compared with, and as many without

Row = tuple[int, PaperRecord]  # the number of a record in the parsed response, and the record


@dataclass
class TitleCache:
    """An index of the titles in the archive, reusable for several batches, but not thread-safe.

    A paper with an arXiv id is merged only with rows that have none. Therefore the titles of rows with arXiv
    ids are loaded only for records without one.
    """

    # Keyed by whether rows have an arXiv id: all loaded rows, and those that the last `catch_up` added.
    _loaded: dict[bool, dedupe.TitleIndex] = field(default_factory=dict)
    _recent: dict[bool, dedupe.TitleIndex] = field(default_factory=dict)
    _last_id: int = 0  # the highest id among the loaded rows

    def candidates(self, session: Session, rows: Sequence[Row]) -> dict[int, list[int]]:
        """Return the ids of papers with similar titles, nearest first, for each record that seems to be new.

        A candidate that is itself a record in `rows` is represented by its negated number.
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
        ] = []  # temporarily, so that later records find earlier ones
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
        """Return the keys of similar titles, nearest first. With `recent`, search only the recent titles."""
        indices = self._recent if recent else self._loaded
        kinds = (False,) if record.arxiv_id else (False, True)
        return [
            key
            for kind in kinds
            if kind in indices
            for key in indices[kind].find_near(record.title, MAX_NEAR)
        ]

    def load(self, session: Session, *, with_id: bool) -> None:
        """Load the titles of rows without an arXiv id, and with `with_id` also those of rows with one."""
        if not self._loaded:
            self._last_id = session.exec(select(func.max(Paper.id))).one() or 0
        for kind in (False, True) if with_id else (False,):
            if kind not in self._loaded:
                index = dedupe.TitleIndex()
                has_id = col(Paper.arxiv_id).is_not(None) if kind else col(Paper.arxiv_id).is_(None)
                for paper_id, title in session.exec(select(Paper.id, Paper.title).where(has_id)):
                    index.add(paper_id or 0, title)
                edited = select(Paper).where(has_id, col(Paper.edited_at).is_not(None))
                for paper in session.exec(edited):
                    index.add(paper.id or 0, sourced_title(paper))
                self._loaded[kind] = index

    def catch_up(self, session: Session) -> None:
        """Add the titles that other processes have stored since the titles were loaded or last updated."""
        self._recent = {}
        if not self._loaded:
            return
        newer = select(Paper.id, Paper.title, Paper.arxiv_id).where(col(Paper.id) > self._last_id)
        for paper_id, title, arxiv_id in session.exec(newer):
            self._recent.setdefault(bool(arxiv_id), dedupe.TitleIndex()).add(paper_id or 0, title)
            self.add(paper_id or 0, title, with_id=bool(arxiv_id))

    def add(self, paper_id: int, title: str, *, with_id: bool) -> None:
        """Add or replace a title."""
        if with_id in self._loaded:
            self._loaded[with_id].add(paper_id, title)
        self._last_id = max(self._last_id, paper_id)


@dataclass
class _Identities:
    """The ids and titles of stored rows that some records may share."""

    arxiv_ids: set[str | None]
    dois: set[str | None]
    without_id: defaultdict[str, list[dedupe.PaperIdentity]]  # by title key

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
    """Return the fields of a record that are used for comparison."""
    return dedupe.PaperIdentity(record.title, record.arxiv_id, record.doi, record.abstract, record.authors)


def ids_by_title(session: Session, keys: Collection[str]) -> Sequence[int]:
    """Return the ids of papers with these title keys.

    For each key, these are the MAX_SAME_TITLE oldest papers with an arXiv id or DOI, and as many without.
    """
    has_id = or_(col(Paper.arxiv_id).is_not(None), col(Paper.doi).is_not(None))
    same = (col(Paper.title_key), case((has_id, 1), else_=0))
    place = func.row_number().over(partition_by=same, order_by=col(Paper.id)).label("place")
    ranked = select(col(Paper.id), place).where(col(Paper.title_key).in_(keys)).subquery()
    return session.exec(select(ranked.c.id).where(ranked.c.place <= MAX_SAME_TITLE)).all()


def _present(session: Session, column: Any, values: Collection[str]) -> set[str | None]:
    return set(session.exec(select(column).where(column.in_(values)))) if values else set()
