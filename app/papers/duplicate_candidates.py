"""Which papers of the archive may be the same as new records: searched before the archive is locked.

To compare titles takes long where many are similar. So the candidates of a batch are found first, without
a transaction that writes. What others store in between is compared when the batch is stored.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import case, func, or_
from sqlmodel import Session, col, select

from app.papers import dedupe
from app.storage.models import Paper
from app.types import PaperRecord

MOST_ALIKE = 50  # papers of one title that are told apart by their authors and abstracts
NEAREST = 20  # papers of a kind that a record is compared with, the nearest titles first

Row = tuple[int, PaperRecord]  # with its number in what was parsed


@dataclass
class TitleCache:
    """The titles of the archive, for finding near ones. One may serve several batches, not several threads.

    A paper with an arXiv id can only ever be merged with rows that have none, so the many titles of
    rows with ids are read only when a record without one comes.
    """

    _without_id: dedupe.TitleIndex | None = None
    _with_id: dedupe.TitleIndex | None = None
    _last_id: int = 0  # of the rows that the indices know
    _recent: dict[bool, dedupe.TitleIndex] = field(default_factory=dict)  # rows that others have just added

    def candidates(self, session: Session, rows: Sequence[Row]) -> dict[int, list[int]]:
        """Find the papers with near titles, nearest first, for each record that seems to be new.

        A record of `rows` itself is named by its number, as a negative one.
        """
        new = list(_seemingly_new(session, rows))
        if not new:
            return {}
        self._load(session, with_id=any(not record.arxiv_id for _, record in new))
        found = {}
        with self._as_if_stored() as store:
            for number, record in new:
                found[number] = self.near(record)
                store(number, record)
        return found

    def near(self, record: PaperRecord) -> list[int]:
        """Return the papers with near titles, nearest first, as far as titles are loaded."""
        indices = (self._without_id,) if record.arxiv_id else (self._without_id, self._with_id)
        return [key for index in indices if index for key in index.near(record.title, NEAREST)]

    def load_all(self, session: Session) -> None:
        """Load what was not needed so far."""
        self._load(session, with_id=True)

    def near_recent(self, record: PaperRecord) -> list[int]:
        """Return the same of the rows that `catch_up` found."""
        kinds = (False,) if record.arxiv_id else (False, True)
        indices = (self._recent[kind] for kind in kinds if kind in self._recent)
        return [key for index in indices for key in index.near(record.title, NEAREST)]

    def catch_up(self, session: Session) -> None:
        """Learn the titles that others have stored since the last time."""
        self._recent = {}
        if self._without_id is None:
            return
        newer = select(Paper.id, Paper.title, Paper.arxiv_id).where(col(Paper.id) > self._last_id)
        for paper_id, title, arxiv_id in session.exec(newer):
            self._recent.setdefault(bool(arxiv_id), dedupe.TitleIndex()).add(paper_id or 0, title)
            self.add(paper_id or 0, title, with_id=bool(arxiv_id))

    def add(self, paper_id: int, title: str, *, with_id: bool) -> None:
        """Learn a title, or how it reads now."""
        index = self._with_id if with_id else self._without_id
        if index is not None:
            index.add(paper_id, title)
        self._last_id = max(self._last_id, paper_id)

    @contextmanager
    def _as_if_stored(self) -> Iterator[Callable[[int, PaperRecord], None]]:
        """Let the records of one batch be found by those after them, by their numbers."""
        added: list[tuple[dedupe.TitleIndex, int]] = []

        def store(number: int, record: PaperRecord) -> None:
            index = self._with_id if record.arxiv_id else self._without_id
            if index is not None:
                index.add(-number, record.title)
                added.append((index, -number))

        try:
            yield store
        finally:
            for index, key in added:
                index.remove(key)

    def _load(self, session: Session, *, with_id: bool) -> None:
        if self._without_id is None:
            self._last_id = session.exec(select(func.max(Paper.id))).one() or 0
            self._without_id = _index(session, with_id=False)
        if with_id and self._with_id is None:
            self._with_id = _index(session, with_id=True)


def _index(session: Session, *, with_id: bool) -> dedupe.TitleIndex:
    has_id = col(Paper.arxiv_id).is_not(None) if with_id else col(Paper.arxiv_id).is_(None)
    index = dedupe.TitleIndex()
    for paper_id, title in session.exec(select(Paper.id, Paper.title).where(has_id)):
        index.add(paper_id or 0, title)
    return index


def _seemingly_new(session: Session, rows: Sequence[Row]) -> Iterator[Row]:
    """Yield the records that no row of the archive is known by, each once."""
    known = _Known.of(session, [record for _, record in rows])
    for number, record in rows:
        if not known.has(record):
            known.add(record)
            yield number, record


@dataclass
class _Known:
    """What rows of the archive are known by, as far as some records are concerned."""

    arxiv_ids: set[str | None]
    dois: set[str | None]
    without_id: defaultdict[str, list[dedupe.PaperIdentity]]  # by the key of their titles

    @classmethod
    def of(cls, session: Session, records: Sequence[PaperRecord]) -> _Known:
        known = cls(
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
            known.without_id[dedupe.title_key(title)].append(row)
        return known

    def has(self, record: PaperRecord) -> bool:
        if record.arxiv_id:
            return record.arxiv_id in self.arxiv_ids
        if record.doi:
            return record.doi in self.dois
        rows = self.without_id.get(dedupe.title_key(record.title), ())
        return any(dedupe.same_paper_reason(row, of_record(record)) for row in rows)

    def add(self, record: PaperRecord) -> None:
        self.arxiv_ids.add(record.arxiv_id)
        self.dois.add(record.doi)
        if not (record.arxiv_id or record.doi):
            self.without_id[dedupe.title_key(record.title)].append(of_record(record))


def of_record(record: PaperRecord) -> dedupe.PaperIdentity:
    """Return a record as dedupe compares it."""
    return dedupe.PaperIdentity(record.title, record.arxiv_id, record.doi, record.abstract, record.authors)


def ids_by_title(session: Session, keys: Collection[str]) -> Sequence[int]:
    """Return the rows with these title keys: for each key the oldest MOST_ALIKE with an id, and without."""
    has_id = or_(col(Paper.arxiv_id).is_not(None), col(Paper.doi).is_not(None))
    same = (col(Paper.title_key), case((has_id, 1), else_=0))
    place = func.row_number().over(partition_by=same, order_by=col(Paper.id)).label("place")
    ranked = select(col(Paper.id), place).where(col(Paper.title_key).in_(keys)).subquery()
    return session.exec(select(ranked.c.id).where(ranked.c.place <= MOST_ALIKE)).all()


def _present(session: Session, column: Any, values: Collection[str]) -> set[str | None]:
    return set(session.exec(select(column).where(column.in_(values)))) if values else set()
