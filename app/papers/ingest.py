"""Store records in the archive, and count each as new, merged, changed, unchanged or rejected.

Every record belongs to one row, its *identity*: the row with its arXiv id, or with its DOI, or with its title
if it has no id. If two identities turn out to be one paper, one row absorbs the other (`merged_into_id`).
Listings and votes belong to the paper (`paper_id`) and refer to their identity (`original_paper_id`), so that
a merge can be undone. Storing the same records again, in any order, does not change anything.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta
from functools import partial
from typing import Any

from sqlalchemy.exc import OperationalError, StatementError
from sqlmodel import Session

from app.papers import (
    dedupe,
    duplicate_candidates,
    field_precedence,
    merging,
    record_days,
    stored_fields,
    vote_history,
    withdrawals,
)
from app.papers.duplicate_candidates import MAX_SAME_TITLE, DuplicateCandidates, Row, identity_of
from app.papers.merging import id_of
from app.papers.stored_rows import StoredRows, identity_of_row
from app.papers.title_normalization import title_end, title_key
from app.storage.database import Database, advisory_lock
from app.storage.database_errors import exceeds_limit
from app.storage.inserts import insert_many, reserve_ids
from app.storage.models import Listing, Paper, Source, VoteCount
from app.types import IngestSummary, PaperRecord, ParseResult, Rejection, SourceKind

OnMerges = Callable[[Session, Sequence[Paper]], object]  # called with the papers that absorbed others

DATABASE_REJECTED = "the database refused the row"
NO_IDENTITY = "the row has no title, arXiv ID or DOI to identify a paper"
COMMON_TITLE = "too many papers have this title: an arXiv ID or DOI is needed to tell them apart"
NO_CHANGE, BETTER_LISTING, NEW_LISTING = 0, 1, 2
BATCH = 200  # records: storing them takes a few tens of milliseconds, during which all other writers wait


def find_existing(
    session: Session, source: Source, parsed: ParseResult, now: datetime
) -> list[tuple[PaperRecord, int | None]]:
    """Return each record of a poll with the days that would be stored, and its paper in the archive.

    The paper is given by its id, which is None if the paper is new.
    """
    matches = list[tuple[PaperRecord, int | None]]()
    for rows in _batches(parsed):
        batch = _Batch(session, source, now, True, duplicate_candidates.find(session, rows))
        batch.load(rows)
        matches += [
            (batch.with_corrected_days(record), batch.find_paper(number, record)) for number, record in rows
        ]
    return matches


def store_in_batches(
    db: Database,
    parsed: ParseResult,
    now: datetime,
    source_of: Callable[[Session], Source],
    finish: Callable[[Source], None] = lambda _source: None,
    *,
    on_merges: OnMerges = lambda _session, _survivors: None,
    polled: bool = False,
    origin: str = "",
    first_row: int = 1,
) -> IngestSummary:
    """Store parsed records, each batch in its own short transaction.

    Each transaction begins with a call to `source_of`, and the last one ends with a call to `finish`. If
    stored papers are merged, `on_merges` is called once in the same transaction. After a crash, the caller
    can store all records again, because storing a record twice changes nothing. Votes are dated `now` if
    `polled` is True. Otherwise they are dated the end of the day on which the file lists the paper, but no
    later than `now`. `origin` names the file or source in rejections. `first_row` is the row number of the
    first record.
    """
    summary = _parser_rejections(parsed)
    batches = _batches(parsed, first_row)
    for number, rows in enumerate(batches, 1):
        with db.read() as session:
            candidates = duplicate_candidates.find(session, rows)
        with db.write() as session:
            source = source_of(session)
            summary += _store_batch(_Batch(session, source, now, polled, candidates, on_merges), rows)
            if number == len(batches):
                finish(source)
    return summary.with_origin(origin)


def _parser_rejections(parsed: ParseResult) -> IngestSummary:
    rejected_rows = {rejection.row for rejection in parsed.rejections} - {None}
    return IngestSummary(len(rejected_rows), rejections=parsed.rejections)


def _batches(parsed: ParseResult, first_row: int = 1) -> Sequence[Sequence[Row]]:
    """Return at least one batch of numbered records. The numbers of rejected rows are skipped."""
    rejected_rows = {rejection.row for rejection in parsed.rejections}
    numbers = (number for number in itertools.count(first_row) if number not in rejected_rows)
    rows = list(zip(numbers, parsed.records, strict=False))
    return [rows[start : start + BATCH] for start in range(0, len(rows), BATCH)] or [[]]


def _store_batch(batch: _Batch, rows: Sequence[Row]) -> IngestSummary:
    advisory_lock(batch.session, "archive")  # otherwise, writers would miss each other's new papers
    batch.recent = duplicate_candidates.find_recent(batch.session, rows, batch.candidates.last_id)
    return _store_rows(batch, rows)


def _store_rows(batch: _Batch, rows: Sequence[Row]) -> IngestSummary:
    """Store all rows at once. If the database rejects a row, store each row separately."""
    try:
        with batch.session.begin_nested():
            return batch.store(rows)
    except (StatementError, OverflowError) as error:  # SQLite raises OverflowError if a number is too large
        if isinstance(error, OperationalError) and not exceeds_limit(error):
            raise  # not caused by the row: the disk is full, or the connection is lost
        if len(rows) == 1:
            batch.identities.pop(rows[0][0], None)
            detail = str(getattr(error, "orig", error))[:200]
            return IngestSummary(rows=1, rejections=(Rejection(DATABASE_REJECTED, rows[0][0], detail),))
    return sum((_store_rows(batch, [row]) for row in rows), IngestSummary())


@dataclass
class _Batch:
    """A batch of records, with all stored rows that it may change."""

    session: Session
    source: Source
    now: datetime
    polled: bool
    candidates: DuplicateCandidates
    on_merges: OnMerges = lambda _session, _survivors: None
    # Papers with similar titles that were stored since the candidates were found, by record number.
    recent: Mapping[int, Sequence[int]] = field(default_factory=dict)
    identities: dict[int, int] = field(default_factory=dict)  # row ids, by record number
    stored: StoredRows = field(init=False)
    # Listings and votes to insert after the rows of their papers.
    new_rows: list[Listing | VoteCount] = field(default_factory=list)
    survivors: list[Paper] = field(default_factory=list)  # papers that absorbed others
    # The fields that a poll returned for each row, by row id, combined from all records of the batch.
    polled_fields: dict[int, field_precedence.Fields] = field(default_factory=dict)
    reserved_ids: Iterator[int] = field(default_factory=lambda: iter(()))  # for new papers

    def store(self, rows: Sequence[Row]) -> IngestSummary:
        """Load the rows that the records may change, and store the records."""
        self.load(rows)
        rows = [(number, self.with_corrected_days(record)) for number, record in rows]
        if self.polled:
            self._combine_polled_fields(record for _, record in rows)
        plain, others = self._separate(rows)
        summary = self._insert(plain)
        summary += sum((self._store_one(*row) for row in others), IngestSummary(rows=len(others)))
        self._flush()
        if self.survivors:
            self.on_merges(self.session, self.survivors)
        return summary

    def _combine_polled_fields(self, records: Iterable[PaperRecord]) -> None:
        """Combine the fields that the poll returned for each stored row, and for the rows that absorbed it.

        A feed may list a paper twice, for example as an early view and in an issue. If each of its records
        replaced the value of the other, every poll would change the paper.
        """
        self.polled_fields.clear()
        for record in records:
            identity = self.stored.find(record)
            fields = self._fields_of(record)
            for paper in self.stored.chain(identity) if identity else ():
                other = self.polled_fields.setdefault(id_of(paper), fields)
                self.polled_fields[id_of(paper)] = field_precedence.combine(other, fields)

    def load(self, rows: Sequence[Row]) -> None:
        """Load the rows that the records may change."""
        self.new_rows.clear()
        self.survivors.clear()
        near = {key for number, _ in rows for key in self.candidates.by_number.get(number, ()) if key > 0}
        self.stored = StoredRows(self.session, self.source)
        self.stored.load([record for _, record in rows], near)

    def with_corrected_days(self, record: PaperRecord) -> PaperRecord:
        """Return a record with the days that are stored."""
        is_polled_feed = self.polled and self.source.kind is SourceKind.FEED
        return record_days.correct(record, self.now, self.stored.listing_days, is_polled_feed=is_polled_feed)

    def find_paper(self, number: int, record: PaperRecord) -> int | None:
        """Return the id of the stored paper that a record belongs to, or None if the paper is new."""
        row = self.stored.find(record) or (self.stored.by_doi.get(record.doi) if record.doi else None)
        if row is None:
            matches = (root for root, _ in self._same_titles(number, record))
            row = next(matches, None)
        return id_of(self.stored.root(row)) if row else None

    def _flush(self) -> None:
        """Insert all new rows, with one statement per table."""
        self.session.flush()
        for table in (Listing, VoteCount):
            rows = [row for row in self.new_rows if isinstance(row, table)]
            for row, row_id in zip(rows, reserve_ids(self.session, table, len(rows)), strict=True):
                row.id = row_id
        self.session.add_all(self.new_rows)
        self.new_rows.clear()
        self.session.flush()

    # --- new papers that share no id or title with any other

    def _separate(self, rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
        """Return the records that share no id or title with other records or rows, and all other records."""
        keys = {number: title_key(record.title) for number, record in rows}
        uses = Counter[str]()
        for number, record in rows:
            uses.update({f"arxiv {record.arxiv_id}", f"doi {record.doi}", f"title {keys[number]}"})
        plain, others = list[Row](), list[Row]()
        for number, record in rows:
            names = (("arxiv", record.arxiv_id), ("doi", record.doi), ("title", keys[number]))
            is_plain = (
                bool(record.title and any(value for _, value in names))
                and all(uses[f"{name} {value}"] == 1 for name, value in names if value)
                and record.arxiv_id not in self.stored.by_arxiv
                and record.doi not in self.stored.by_doi
                and not (keys[number] and keys[number] in self.stored.by_key)
                and self.candidates.by_number.get(number) == []
                and not self.recent.get(number)
            )
            (plain if is_plain else others).append((number, record))
        return plain, others

    def _insert(self, rows: Sequence[Row]) -> IngestSummary:
        """Insert new papers with their listings and votes, with one statement per table."""
        ids = list(itertools.islice(self._reserve_ids(), len(rows)))
        papers, listings, votes = [], [], []
        for paper_id, (number, record) in zip(ids, rows, strict=True):
            self.identities[number] = paper_id
            papers.append(self._new_row(paper_id, record))
            refs: dict[str, Any] = {
                "paper_id": paper_id,
                "original_paper_id": paper_id,
                "source_id": id_of(self.source),
            }
            if day := record.listed_on:
                rank = {"rank": record.rank, "submitted_by": record.submitted_by}
                listings.append(refs | {"listed_on": day} | rank)
            if record.upvotes is not None:
                votes.append(refs | {"at": self._time_of_votes(record)} | dict(_figures(record)))
        for table, values in ((Paper, papers), (Listing, listings), (VoteCount, votes)):
            insert_many(self.session, table, values)
        return IngestSummary(len(rows), papers_new=len(rows), listings=len(listings))

    def _reserve_ids(self) -> Iterator[int]:
        """Yield ids for new papers. Reserve as many at once as the batch may need."""
        while True:
            paper_id = next(self.reserved_ids, None)
            if paper_id is None:
                self.reserved_ids = reserve_ids(self.session, Paper, len(self.candidates.by_number) or 1)
                paper_id = next(self.reserved_ids)
            yield paper_id

    def _new_row(self, paper_id: int, record: PaperRecord) -> dict[str, Any]:
        """Return the columns of a new row. All other columns are null."""
        new = self._fields_of(record)
        key, day = title_key(record.title), record.listed_on
        return {
            **new.values,
            "id": paper_id,
            "arxiv_id": record.arxiv_id or None,
            "doi": record.doi if record.doi and record.doi not in self.stored.by_doi else None,
            "title_key": key,
            "title_end": title_end(key),
            "author_count": new.author_count,
            "published_on": new.published_on,
            "content_hash": field_precedence.content_hash(new),
            "versions": {**new.versions, **withdrawals.initial_version(record, self.source.kind)},
            "withdrawn_at": self.now if record.withdrawn else None,
            "first_listed_on": day,
            "last_listed_on": day,
            "created_at": self.now,
            "updated_at": self.now,
        }

    def _fields_of(self, record: PaperRecord) -> field_precedence.Fields:
        """Return the fields of a record. The versions of polled fields contain the id of the source."""
        source_id = self.source.id if self.polled else None  # None in a trial, too
        return field_precedence.from_record(record, self.source.kind, source_id)

    # --- storing one record

    def _store_one(self, number: int, record: PaperRecord) -> IngestSummary:
        if not (record.arxiv_id or record.doi or title_key(record.title)):
            return IngestSummary(rejections=(Rejection(NO_IDENTITY, number, record.title),))
        identity = self.stored.find(record)
        new = identity is None
        if identity is None:
            if not record.title:  # the source deleted a paper that is not in the archive
                return IngestSummary(unchanged=1)
            has_id = record.arxiv_id or record.doi
            if not has_id and len(self.stored.rows_without_id(record)) >= MAX_SAME_TITLE:
                return IngestSummary(rejections=(Rejection(COMMON_TITLE, number, record.title),))
            identity = self._create(record)
        other, reason = self._find_duplicate(identity, number, record, new=new)
        if other is not None:
            root = self.stored.root(identity)
            survivor, absorbed = merging.order(root, other)
            has_no_listings = new and absorbed is identity
            if has_no_listings:
                self.session.flush()
            else:
                self._flush()  # merging moves listings and votes with UPDATE statements
            merging.merge(self.session, root, other, reason, self.now, has_no_listings=has_no_listings)
            if not new:  # no digest contains a new row
                self.survivors.append(survivor)
        self.identities[number] = id_of(identity)
        changed = self._update_fields(identity, record)
        listing_change = self._add_listing(identity, record)
        votes_changed = self._add_votes(identity, record)
        listings = int(listing_change == NEW_LISTING)
        if other is not None:
            return IngestSummary(papers_merged=1, listings=listings)
        if new:
            return IngestSummary(papers_new=1, listings=listings)
        changed = changed or votes_changed or listing_change != NO_CHANGE
        return IngestSummary(changed=int(changed), unchanged=int(not changed), listings=listings)

    def _create(self, record: PaperRecord) -> Paper:
        paper = Paper(**self._new_row(next(self._reserve_ids()), record))
        self.session.add(paper)
        self.stored.add(paper)
        return paper

    def _find_duplicate(
        self, identity: Paper, number: int, record: PaperRecord, *, new: bool
    ) -> tuple[Paper | None, str]:
        """Return a paper that a row duplicates, with the reason, such as "same DOI", or else (None, "").

        If `new`, the row was just created, so also compare titles, and do not check for undone merges.
        """
        if record.doi and (same_doi := self.stored.by_doi.get(record.doi)) is not None:
            root, own_root = self.stored.root(same_doi), self.stored.root(identity)
            both_on_arxiv = root.arxiv_id and own_root.arxiv_id
            if (
                root is not own_root
                and not both_on_arxiv
                and (new or not merging.was_unmerged(self.session, own_root, root))
            ):
                return root, "same DOI"
        if not new:
            return None, ""
        for root, reason in self._same_titles(number, record):
            if root is not identity:
                return root, reason
        return None, ""

    def _same_titles(self, number: int, record: PaperRecord) -> Iterator[tuple[Paper, str]]:
        """Yield the papers that match a record's title, authors and abstract, each with the reason."""
        rows = self.stored.by_key.get(title_key(record.title), ())
        same_title = [id_of(row) for row in rows if not (row.arxiv_id and record.arxiv_id)]
        # Compare the candidates that were found before locking, and the rows stored since then.
        keys = self.candidates.by_number.get(number)
        if keys is None:  # the record seemed to be in the archive
            keys = duplicate_candidates.find_stored(self.session, [(number, record)])[number]
        near = [key if key > 0 else self.identities.get(-key, 0) for key in keys]
        recent = self.recent.get(number, ())
        record_identity = identity_of(record)
        for paper_id in dict.fromkeys([*same_title, *filter(None, near), *recent]):
            row = self.stored.get(paper_id)
            root = self.stored.root(row)
            if reason := dedupe.same_paper_reason(identity_of_row(row, root), record_identity):
                yield root, reason

    def _update_fields(self, identity: Paper, record: PaperRecord) -> bool:
        """Combine the record's fields with those of the row and of all rows that absorbed it.

        Return whether any row changed.
        """
        changed = False
        if record.doi and record.arxiv_id and not identity.doi and record.doi not in self.stored.by_doi:
            identity.doi = record.doi
            self.stored.by_doi[record.doi] = identity
            changed = True
        new = self._fields_of(record)
        for paper in self.stored.chain(identity):
            had_code = bool(paper.code_url)
            stored = stored_fields.read_fields(paper)
            polled = self.polled_fields.get(id_of(paper))  # None if the row or the merge is new
            combined = field_precedence.combine(stored, polled or new, is_poll=bool(polled))
            paper_changed = combined != stored and stored_fields.write_fields(paper, combined)
            paper_changed |= withdrawals.update(paper, record, self.source.kind, self.now)
            if paper.code_url and not had_code:
                paper.code_found_at = self.now
            if paper_changed:
                paper.updated_at = self.now
            changed = changed or paper_changed
        return changed

    def _add_listing(self, identity: Paper, record: PaperRecord) -> int:
        """Store the day on which the source listed the paper, with the paper's best rank on that day.

        Return NEW_LISTING, BETTER_LISTING or NO_CHANGE.
        """
        day = record.listed_on
        if day is None:
            return NO_CHANGE
        for paper in self.stored.chain(identity):
            merging.note_listing(paper, day)
        listing = self.stored.listings.get((id_of(identity), day))
        if listing is None:
            listing = Listing(
                paper_id=id_of(self.stored.root(identity)),
                original_paper_id=id_of(identity),
                source_id=id_of(self.source),
                listed_on=day,
                rank=record.rank,
                submitted_by=record.submitted_by,
            )
            self.new_rows.append(listing)
            self.stored.listings[id_of(identity), day] = listing
            return NEW_LISTING
        rank = min((rank for rank in (listing.rank, record.rank) if rank), default=None)
        by = listing.submitted_by or record.submitted_by
        if (rank, by) == (listing.rank, listing.submitted_by):
            return NO_CHANGE
        listing.rank, listing.submitted_by = rank, by
        return BETTER_LISTING

    def _add_votes(self, identity: Paper, record: PaperRecord) -> bool:
        """Add a record's upvotes, comments and stars to the votes of its row. Return whether they changed."""
        if record.upvotes is None:  # the source does not count votes, which is not the same as zero votes
            return False
        series = self.stored.votes.setdefault(id_of(identity), [])
        figures = tuple(_figures(record).values())
        new_row = partial(
            VoteCount,
            paper_id=id_of(self.stored.root(identity)),
            original_paper_id=id_of(identity),
            source_id=id_of(self.source),
        )
        change = vote_history.observe(series, self._time_of_votes(record), figures, new_row)
        self.new_rows += change.added
        for row in change.removed:
            if row in self.new_rows:
                self.new_rows.remove(row)
            else:
                self.session.delete(row)
        return change.changed

    def _time_of_votes(self, record: PaperRecord) -> datetime:
        if record.listed_on is None or self.polled:
            return self.now
        return min(self.now, datetime.combine(record.listed_on + timedelta(days=1), time(), UTC))


def _figures(record: PaperRecord) -> dict[str, int]:
    return {"upvotes": record.upvotes or 0, "comments": record.comments or 0, "stars": record.stars or 0}
