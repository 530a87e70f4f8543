"""Find the papers that new records may duplicate, before the archive is locked.

Comparing titles is slow if many are similar. Therefore the candidates for a batch are found in advance,
outside any write transaction. Rows that other processes store in between are compared when the batch is
stored. Two indexes find titles by their beginnings and by their ends.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from sqlalchemy import case, func, or_, text
from sqlmodel import Session, col, select

from app.papers import dedupe
from app.papers.title_normalization import Title, title_key
from app.storage.database import in_array
from app.storage.models import Paper
from app.types import PaperRecord

MAX_SAME_TITLE = 50  # papers with the same title that are distinguished by their authors and abstracts
MAX_NEAR = 20  # nearest papers that a record is compared with
MAX_COMPARED = 300  # titles with the same beginning or end that a title is compared with

Row = tuple[int, PaperRecord]  # the number of a record in the parsed response, and the record

_AFTER_ALL = "\U0010ffff"
# Select the ids of the titles in each range, as JSON, because PostgreSQL and SQLite have no array function in
# common. The plus sign prevents both from using the index on ids.
_FIND = """
SELECT ranges.place, (
    SELECT {collect}(found.id) FROM (
        SELECT paper.id FROM paper {hint}
        WHERE paper.{column} >= ranges.low AND paper.{column} < ranges.high AND +paper.id > :after {condition}
        ORDER BY paper.{column} LIMIT :limit
    ) AS found
) AS ids
FROM ({ranges}) AS ranges
"""
_DIALECTS = {
    "sqlite": {
        "collect": "json_group_array",
        "ranges": "SELECT key AS place, value ->> 0 AS low, value ->> 1 AS high FROM json_each(:ranges)",
    },
    "postgresql": {
        "collect": "json_agg",
        "ranges": "SELECT place - 1 AS place, value ->> 0 AS low, value ->> 1 AS high "
        "FROM json_array_elements(CAST(:ranges AS json)) WITH ORDINALITY AS given (value, place)",
    },
}


@dataclass(frozen=True)
class DuplicateCandidates:
    """The papers with titles similar to those of records that seemed new, keyed by record number.

    The ids of stored papers come first, then the negated numbers of earlier records in the batch. Both are
    sorted by similarity, nearest first.
    """

    by_number: Mapping[int, Sequence[int]] = field(default_factory=dict)
    last_id: int = 0  # the highest id among the rows that were searched


def find(session: Session, rows: Sequence[Row]) -> DuplicateCandidates:
    """Return the papers that a batch of records may duplicate."""
    last_id = session.exec(select(func.max(Paper.id))).one() or 0
    identities = _Identities.load(session, [record for _, record in rows])
    new: list[Row] = []
    for number, record in rows:
        if not identities.has(record):
            identities.add(record)
            new.append((number, record))
    stored = find_stored(session, new)
    return DuplicateCandidates(
        {number: stored[number] + earlier for number, earlier in _earlier(new)}, last_id
    )


def find_recent(session: Session, rows: Sequence[Row], after: int) -> dict[int, list[int]]:
    """Return the ids of candidates that were stored after a search, keyed by record number.

    `after` is the highest id that was searched.
    """
    newest = session.exec(select(func.max(Paper.id))).one() or 0
    return find_stored(session, rows, after) if newest > after else {}


def find_stored(session: Session, rows: Sequence[Row], after: int = 0) -> dict[int, list[int]]:
    """Return the ids of stored papers with similar titles, nearest first, keyed by record number.

    A record with an arXiv id is compared only with papers without one.
    """
    titles = {number: Title(record.title) for number, record in rows}
    in_blocks: dict[int, set[int]] = {number: set() for number in titles}
    for has_id in (True, False):
        numbers = [number for number, record in rows if bool(record.arxiv_id) == has_id]
        for place, ids in _ids_in_ranges(session, [titles[number] for number in numbers], has_id, after):
            in_blocks[numbers[place]] |= ids
    stored = _load_titles(session, set().union(*in_blocks.values()))
    return {
        number: dedupe.nearest(titles[number], {key: stored[key] for key in ids}, MAX_NEAR) if ids else []
        for number, ids in in_blocks.items()
    }


def _earlier(rows: Sequence[Row]) -> list[tuple[int, list[int]]]:
    """Return each record's number with the negated numbers of the earlier records with similar titles."""
    titles: dict[bool, dict[int, Title]] = {True: {}, False: {}}  # keyed by “has an arXiv id”
    has_both = len({bool(record.arxiv_id) for _, record in rows}) > 1
    earlier = []
    for number, record in rows:
        has_id = bool(record.arxiv_id)
        title = Title(record.title) if has_both or not has_id else None
        if title is None:
            earlier.append((number, list[int]()))
            continue
        others = titles[False] if has_id else titles[False] | titles[True]
        earlier.append((number, dedupe.nearest(title, others, MAX_NEAR)))
        titles[has_id][-number] = title
    return earlier


def _ids_in_ranges(
    session: Session, titles: Sequence[Title], only_without_id: bool, after: int
) -> list[tuple[int, set[int]]]:
    """Return indices into `titles`, each with the ids of papers whose titles begin or end like that title."""
    results = []
    blocks = [dedupe.block_ranges(title) for title in titles]
    dialect = _DIALECTS[session.get_bind().dialect.name]
    for column, kind in (("title_key", 0), ("title_end", 1)):
        places = [place for place, block in enumerate(blocks) for _ in block[kind]]
        ranges = json.dumps([(prefix, prefix + _AFTER_ALL) for block in blocks for prefix in block[kind]])
        condition = "AND paper.arxiv_id IS NULL" if only_without_id else ""
        # Without a hint, SQLite would use the index on arXiv ids, in which all these rows have the key NULL.
        forced = only_without_id and dialect is _DIALECTS["sqlite"]
        hint = f"INDEXED BY ix_paper_{column}_without_id" if forced else ""
        statement = text(_FIND.format(column=column, condition=condition, hint=hint, **dialect))
        values = {"ranges": ranges, "after": after, "limit": MAX_COMPARED}
        for position, ids in session.execute(statement, values) if places else ():
            listed = json.loads(ids) if isinstance(ids, str) else ids
            if listed:
                results.append((places[position], set(listed)))
    return results


def _load_titles(session: Session, ids: Collection[int]) -> dict[int, Title]:
    """Return the titles of papers as given by their sources, without edits."""
    if not ids:
        return {}
    sourced = case((col(Paper.edited_at).is_not(None), col(Paper.sourced)))
    rows = session.exec(select(Paper.id, Paper.title, sourced).where(in_array(session, col(Paper.id), ids)))
    return {key or 0: Title((edited or {}).get("title", title)) for key, title, edited in rows}


@dataclass
class _Identities:
    """The ids and titles that records may share with stored rows."""

    arxiv_ids: set[str | None]
    dois: set[str | None]
    without_id: defaultdict[str, list[dedupe.PaperIdentity]]  # by title key

    @classmethod
    def load(cls, session: Session, records: Sequence[PaperRecord]) -> Self:
        identities = cls(
            _present(session, col(Paper.arxiv_id), {record.arxiv_id for record in records} - {""}),
            _present(session, col(Paper.doi), {record.doi for record in records} - {""}),
            defaultdict(list),
        )
        titles = {record.title for record in records if not (record.arxiv_id or record.doi)}
        ids = ids_by_title(session, {title_key(title) for title in titles}) if titles else ()
        columns = select(Paper.title, Paper.abstract, Paper.authors, Paper.url)
        without_id = col(Paper.arxiv_id).is_(None), col(Paper.doi).is_(None)
        same_title = columns.where(in_array(session, col(Paper.id), ids), *without_id)
        for title, abstract, authors, url in session.exec(same_title):
            row = dedupe.PaperIdentity(title, abstract=abstract, authors=tuple(authors), url=url)
            identities.without_id[title_key(title)].append(row)
        return identities

    def has(self, record: PaperRecord) -> bool:
        if record.arxiv_id:
            return record.arxiv_id in self.arxiv_ids
        if record.doi:
            return record.doi in self.dois
        rows = self.without_id.get(title_key(record.title), ())
        return any(dedupe.same_paper_reason(row, identity_of(record)) for row in rows)

    def add(self, record: PaperRecord) -> None:
        self.arxiv_ids.add(record.arxiv_id)
        self.dois.add(record.doi)
        if not (record.arxiv_id or record.doi):
            self.without_id[title_key(record.title)].append(identity_of(record))


def identity_of(record: PaperRecord) -> dedupe.PaperIdentity:
    """Return the fields of a record that are used for comparison."""
    return dedupe.PaperIdentity(
        record.title, record.arxiv_id, record.doi, record.abstract, record.authors, record.url
    )


def ids_by_title(session: Session, keys: Collection[str]) -> Sequence[int]:
    """Return the ids of papers with these title keys.

    For each key, return the MAX_SAME_TITLE oldest papers with an arXiv id or DOI, and as many with neither.
    """
    has_id = or_(col(Paper.arxiv_id).is_not(None), col(Paper.doi).is_not(None))
    same = (col(Paper.title_key), case((has_id, 1), else_=0))
    place = func.row_number().over(partition_by=same, order_by=col(Paper.id)).label("place")
    ranked = select(col(Paper.id), place).where(in_array(session, col(Paper.title_key), keys)).subquery()
    return session.exec(select(ranked.c.id).where(ranked.c.place <= MAX_SAME_TITLE)).all()


def _present(session: Session, column: Any, values: Collection[str]) -> set[str | None]:
    return set(session.exec(select(column).where(in_array(session, column, values)))) if values else set()
