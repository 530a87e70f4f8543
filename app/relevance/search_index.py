"""A version of the search index: a tantivy index of the texts, and an SQLite file with the papers' records.

A version belongs to one model and contains a copy of it. On each machine, one process writes, and any number
of processes read. Texts are committed before records, and a paper without a record is not a candidate. So a
writer that is killed leaves a usable index. The next writer indexes the last papers again, or deletes their
texts if the papers are gone.
"""

import errno
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Self

import numpy as np
import tantivy

from app.errors import CorruptModel, DamagedIndex
from app.papers.searchable_papers import SearchablePaper
from app.relevance import search_index_fields, search_index_folder, search_index_records
from app.relevance.model import RelevanceModel
from app.relevance.search_index_records import PaperRecords
from app.text.tokenizer import stem_all, without_stopwords

WRITER_BYTES = 60_000_000  # memory for new documents before they are written
PAPERS_PER_COMMIT = 20_000
_NO_DAMAGE = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_READONLY)
_EXHAUSTED = (errno.ENOSPC, errno.EMFILE, errno.ENFILE)  # disk space or file descriptors
_DISK_FULL = os.strerror(errno.ENOSPC)
_TABLES = """
CREATE TABLE IF NOT EXISTS paper (id INTEGER PRIMARY KEY, version TEXT NOT NULL, record BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS state (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class IndexedPaper:
    paper: SearchablePaper
    version: str  # changes whenever the paper must be indexed again


@dataclass(frozen=True, slots=True)
class Hits:
    """Papers that a query finds in the index, best first, and the number of papers that match it."""

    ids: Sequence[int]
    total: int  # 0 if they were not counted


def _connect(version: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(version / "papers.db", check_same_thread=False, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    return connection


def _open_texts(version: Path) -> tantivy.Index:
    index = tantivy.Index(search_index_fields.schema(), path=str(version / "texts"))
    search_index_fields.register_tokenizer(index)
    return index


def read_state(version: Path) -> dict[str, str]:
    """Return the state that `IndexWriter.set_state` stored, or {} if it cannot be read."""
    try:
        connection = sqlite3.connect(f"{(version / 'papers.db').absolute().as_uri()}?mode=ro", uri=True)
        with closing(connection):
            return dict(connection.execute("SELECT name, value FROM state"))
    except sqlite3.DatabaseError:
        return {}


def read_model(version: Path) -> RelevanceModel:
    """Return a version's copy of its model. Raise DamagedIndex if it cannot be read."""
    with _damage_reported():
        return RelevanceModel.decode((version / "model.npz").read_bytes())


class IndexWriter:
    """A writer for a version of the index. Only one may exist at a time; hold the folder's lock."""

    def __init__(self, version: Path, model: RelevanceModel) -> None:
        """Open a version, or create it. Raise DamagedIndex if it cannot be read."""
        self.version, self._model = version, model
        (version / "texts").mkdir(parents=True, exist_ok=True)
        copy = version / "model.npz"
        if not copy.exists():
            copy.with_suffix(".new").write_bytes(model.encode(compressed=False))
            copy.with_suffix(".new").replace(copy)
        with _damage_reported():
            self._texts = _open_texts(version)
            self._writer = self._texts.writer(WRITER_BYTES, 1)
            self._records = _connect(version)
            self._records.executescript(_TABLES)
            self._records.execute("BEGIN IMMEDIATE")
        self._uncommitted = 0
        self.indexed = 0  # papers since the writer was opened

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.commit()
            else:
                self._writer.rollback()
        finally:
            self._writer.wait_merging_threads()
            self._records.close()  # this also rolls back

    def put(self, papers: Sequence[IndexedPaper]) -> None:
        """Index papers, replacing their earlier entries."""
        model = self._model
        views = [indexed.paper.view for indexed in papers]
        written = [(stem_all(view.title), stem_all(view.abstract)) for view in views]
        folded = [
            model.abbreviations.document(
                view.title, view.abstract, (without_stopwords(title), without_stopwords(abstract))
            )
            for view, (title, abstract) in zip(views, written, strict=True)
        ]
        vectors = model.space.vectors(folded) if model.space else np.zeros((len(papers), 0))
        self._delete_texts([view.id for view in views])
        rows = []
        for indexed, stems, terms, vector in zip(papers, written, folded, vectors, strict=True):
            view = indexed.paper.view
            self._writer.add_document(search_index_fields.document(indexed.paper, stems, terms, model))
            rows.append((view.id, indexed.version, search_index_records.encode(view, terms, vector)))
        self._records.executemany("INSERT OR REPLACE INTO paper VALUES (?, ?, ?)", rows)
        self.indexed += len(papers)
        self._uncommitted += len(papers)
        if self._uncommitted >= PAPERS_PER_COMMIT:
            self.commit()

    def delete(self, ids: Sequence[int]) -> None:
        """Remove papers. Ids that are not in the index are ignored."""
        self._delete_texts(ids)
        self._records.executemany("DELETE FROM paper WHERE id = ?", [(paper_id,) for paper_id in ids])
        self._uncommitted += len(ids)

    def _delete_texts(self, ids: Sequence[int]) -> None:
        # Deletion by term does not match numeric fields (tantivy 0.27).
        self._writer.delete_documents_by_query(tantivy.Query.term_set_query(self._texts.schema, "id", [*ids]))

    def versions(self, first: int, last: int) -> dict[int, str]:
        """Return the versions of the indexed papers with ids from `first` to `last`, by id.

        The version of a paper is empty if a writer that was killed left only its text, or only its record.
        """
        with _damage_reported():
            select = "SELECT id, version FROM paper WHERE id BETWEEN ? AND ?"
            records = dict(self._records.execute(select, (first, last)))
            texts = self._committed_texts(first, last)
        return {
            number: records[number] if number in records and number in texts else ""
            for number in records.keys() | texts
        }

    def _committed_texts(self, first: int, last: int) -> set[int]:
        searcher = self._texts.searcher()
        between = tantivy.Query.range_query(self._texts.schema, "id", tantivy.FieldType.Unsigned, first, last)
        limit = max(1, min(searcher.num_docs, last - first + 1))
        hits = searcher.search(between, limit, count=False).hits
        return {int(number or 0) for number in searcher.fast_field_values("id", [doc for _, doc in hits])}

    def count(self) -> int:
        """Return the number of indexed papers."""
        (count,) = self._records.execute("SELECT count(*) FROM paper").fetchone()
        return int(count)

    def state(self) -> dict[str, str]:
        """Return the state that `set_state` stored."""
        return dict(self._records.execute("SELECT name, value FROM state"))

    def set_state(self, **notes: str) -> None:
        """Store facts about the index. Readers see them after the next commit."""
        self._records.executemany("INSERT OR REPLACE INTO state VALUES (?, ?)", [*notes.items()])

    def commit(self) -> None:
        """Make all changes visible to readers, the texts before the records."""
        if self._uncommitted:
            self._writer.commit()
            self._uncommitted = 0
        self._records.commit()
        self._records.execute("BEGIN IMMEDIATE")


class IndexReader:
    """A reader for a version of the index, as of the last `refresh`. Thread-safe."""

    def __init__(self, version: Path, model: RelevanceModel) -> None:
        """Open a version that belongs to this model. Raise DamagedIndex if it cannot be read."""
        self.version, self.model = version, model
        self._dimensions = model.space.projection.shape[1] if model.space else 0
        with _damage_reported():
            search_index_folder.hold(version, self)
            self._texts = _open_texts(version)
            self._texts.config_reader("manual")
            self._records = _connect(version)
        self.schema = self._texts.schema
        self._lock = Lock()  # guards the connection
        self._generation = -1
        self.refresh()

    def refresh(self) -> bool:
        """Load the latest commit. Return False if it is already loaded."""
        with self._lock, _damage_reported():
            (generation,) = self._records.execute("PRAGMA data_version").fetchone()
            if generation == self._generation:
                return False
            self._texts.reload()
            self._searcher = self._texts.searcher()
            self._generation = generation
            self.snapshot = object()  # identifies the state that searches see
            self.state: Mapping[str, str] = dict(self._records.execute("SELECT name, value FROM state"))
            return True

    @property
    def is_complete(self) -> bool:
        """Return whether the whole archive has been indexed once."""
        return "compared_at" in self.state

    @property
    def papers(self) -> int:
        """Return the number of indexed papers."""
        return int(self._searcher.num_docs)

    def find(self, query: tantivy.Query, limit: int, *, count: bool = False, newest: bool = False) -> Hits:
        """Return the best or the newest papers for a query and, if `count` is True, the number of matches."""
        order = "newest" if newest else None
        with _damage_reported():
            searcher = self._searcher
            result = searcher.search(query, limit, count=count, order_by_field=order)
            ids = searcher.fast_field_values("id", [address for _, address in result.hits])
        total = getattr(result, "count", None) or 0  # the type stub lacks `count`
        return Hits([int(paper_id or 0) for paper_id in ids], total)

    def papers_with(self, field_name: str, term: str) -> int:
        """Return the number of papers with a term in a field. Recently removed papers may be included."""
        return int(self._searcher.doc_freq(field_name, term))

    def records(self, ids: Iterable[int]) -> tuple[list[int], PaperRecords]:
        """Return the ids of the papers that have a record, in ascending order, and the records."""
        with self._lock, _damage_reported():
            rows = self._records.execute(
                "SELECT id, record FROM paper WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id",
                (json.dumps(sorted(set(ids))),),
            ).fetchall()
        return [paper_id for paper_id, _ in rows], PaperRecords.decode(
            [record for _, record in rows], self._dimensions
        )


@contextmanager
def _damage_reported() -> Iterator[None]:
    """Convert errors of the libraries to DamagedIndex, unless a resource is exhausted or locked."""
    try:
        yield
    except (sqlite3.DatabaseError, CorruptModel, ValueError, OSError) as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF
        if code in _NO_DAMAGE or getattr(error, "errno", None) in _EXHAUSTED or _DISK_FULL in str(error):
            raise
        raise DamagedIndex(f"The search index cannot be read: {error}") from error
    except BaseException as error:
        if type(error).__name__ == "PanicException":  # tantivy panics on a damaged file
            raise DamagedIndex(f"The search index cannot be read: {error}") from error
        raise
