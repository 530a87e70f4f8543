"""Records into the archive: each is new, merged, changed, unchanged or rejected, and counted as one of them.

Every record is known by a row of its own, its *identity*: the row with its arXiv id, or its DOI, or its
title where it has no id. Where two identities prove to be one paper, one row absorbs the other
(`merged_into_id`). What was seen hangs on the paper (`paper_id`) and remembers its identity
(`original_paper_id`), so that a merge can be undone. Storing the same records again, in any order, changes
nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from functools import partial

from sqlalchemy import or_
from sqlalchemy.exc import OperationalError, StatementError
from sqlmodel import Session, col, select

from app.papers import dedupe, merging, vote_history
from app.papers.duplicate_candidates import MOST_ALIKE, Row, TitleCache, ids_by_title, of_record
from app.papers.merging import id_of
from app.storage.database import Database, advisory_lock, in_array, reserve_ids
from app.storage.models import Listing, Paper, Source, VoteCount
from app.types import IngestSummary, PaperRecord, ParseResult, Rejection

REFUSED = "the database refused the row"
UNKNOWABLE = "the row has nothing to recognise a paper by"
COMMON = "too many papers have this title to tell this one from them without an arXiv id or a DOI"
BATCH = 50  # records: stored in some tens of milliseconds, for which all other writers wait


def store(
    session: Session,
    source: Source,
    parsed: ParseResult,
    now: datetime,
    *,
    polled: bool = False,
    origin: str = "",
) -> IngestSummary:
    """Put what was parsed into the archive, in the transaction of the session: for a few records."""
    titles, summary = TitleCache(), _rejected(parsed)
    for rows in _batches(parsed):
        candidates = titles.candidates(session, rows)
        summary += _store_batch(_Batch(session, source, now, polled, titles, candidates), rows)
    return summary.of(origin)


def store_in_batches(
    db: Database,
    parsed: ParseResult,
    now: datetime,
    source_of: Callable[[Session], Source],
    finish: Callable[[Source], None] = lambda _source: None,
    *,
    polled: bool = False,
    titles: TitleCache | None = None,
    origin: str = "",
) -> IngestSummary:
    """Put what was parsed into the archive, in a short transaction for each batch of records.

    `source_of` begins each transaction, and `finish` ends the last one. After a crash in between, what was
    parsed is stored again, which changes nothing in the batches that were stored. What was just `polled` is
    so now; what a file tells was so when the day of its listing ended. `origin` names the file or source in
    rejections.
    """
    titles, summary = titles or TitleCache(), _rejected(parsed)
    batches = _batches(parsed)
    for number, rows in enumerate(batches, 1):
        with db.read() as session:
            candidates = titles.candidates(session, rows)
        with db.write() as session:
            source = source_of(session)
            summary += _store_batch(_Batch(session, source, now, polled, titles, candidates), rows)
            if number == len(batches):
                finish(source)
    return summary.of(origin)


def _rejected(parsed: ParseResult) -> IngestSummary:
    refused = {rejection.row for rejection in parsed.rejections}
    return IngestSummary(len(refused - {None}), rejections=parsed.rejections)


def _batches(parsed: ParseResult) -> Sequence[Sequence[Row]]:
    """The records with their numbers, the rejected rows counted; one empty batch where there are none."""
    refused = {rejection.row for rejection in parsed.rejections}
    free = (number for number in itertools.count(1) if number not in refused)
    rows = list(zip(free, parsed.records, strict=False))
    return [rows[start : start + BATCH] for start in range(0, len(rows), BATCH)] or [[]]


def _store_batch(batch: _Batch, rows: Sequence[Row]) -> IngestSummary:
    advisory_lock(batch.session, "archive")  # two at once would each miss the paper that the other adds
    batch.titles.catch_up(batch.session)
    summary = _store_rows(batch, rows)
    for paper in batch.titled:
        batch.titles.add(id_of(paper), paper.title, with_id=bool(paper.arxiv_id))
    return summary


def _store_rows(batch: _Batch, rows: Sequence[Row]) -> IngestSummary:
    """Store all at once; when the database refuses one, each by itself, so that only that one is lost."""
    titled = len(batch.titled)
    try:
        with batch.session.begin_nested():
            return batch.store(rows)
    except OperationalError:  # no fault of the row: the disk is full, or the connection is lost
        raise
    except (StatementError, OverflowError) as error:  # the last is how SQLite refuses a number
        del batch.titled[titled:]
        if len(rows) == 1:
            batch.identities.pop(rows[0][0], None)
            told = Rejection(REFUSED, rows[0][0], str(getattr(error, "orig", error))[:200])
            return IngestSummary(rows=1, rejections=(told,))
    return sum((_store_rows(batch, [row]) for row in rows), IngestSummary())


@dataclass
class _Batch:
    """Some records, and everything that the archive knows and that they may touch."""

    session: Session
    source: Source
    now: datetime
    polled: bool
    titles: TitleCache
    candidates: Mapping[int, Sequence[int]]  # papers with near titles, by the record's number
    titled: list[Paper] = field(default_factory=list)  # rows with a new title
    identities: dict[int, int] = field(default_factory=dict)  # the ids of rows, by the record's number
    papers: dict[int, Paper] = field(default_factory=dict)
    by_arxiv: dict[str, Paper] = field(default_factory=dict)
    by_doi: dict[str, Paper] = field(default_factory=dict)
    by_key: dict[str, list[Paper]] = field(default_factory=dict)
    listings: dict[tuple[int, date], Listing] = field(default_factory=dict)
    votes: dict[int, list[VoteCount]] = field(default_factory=dict)
    seen: list[Listing | VoteCount] = field(
        default_factory=list
    )  # rows to insert after those of their papers
    reserved: Iterator[int] = field(default_factory=lambda: iter(()))  # ids of rows to come

    def store(self, rows: Sequence[Row]) -> IngestSummary:
        self._load([record for _, record in rows])
        self._load_candidates([number for number, _ in rows])
        summary = sum(
            (self._store_one(number, record) for number, record in rows), IngestSummary(rows=len(rows))
        )
        self._flush()
        return summary

    def _flush(self) -> None:
        """Insert all new rows, those of one table at once."""
        self.session.flush()
        for table in (Listing, VoteCount):
            rows = [row for row in self.seen if isinstance(row, table)]
            for row, row_id in zip(rows, reserve_ids(self.session, table, len(rows)), strict=True):
                row.id = row_id
        self.session.add_all(self.seen)
        self.seen.clear()
        self.session.flush()

    # --- what is known already

    def _load(self, records: Sequence[PaperRecord]) -> None:
        for known in (self.papers, self.by_arxiv, self.by_doi, self.by_key, self.listings, self.votes):
            known.clear()
        self.seen.clear()
        keys = {dedupe.title_key(record.title) for record in records}
        any_of = or_(
            col(Paper.arxiv_id).in_({record.arxiv_id for record in records if record.arxiv_id}),
            col(Paper.doi).in_({record.doi for record in records if record.doi}),
            col(Paper.id).in_(ids_by_title(self.session, keys)),
        )
        for paper in self.session.exec(select(Paper).where(any_of).order_by(col(Paper.id))):
            self._know(paper)
        mine = col(Listing.original_paper_id).in_(self.papers), Listing.source_id == self.source.id
        for listing in self.session.exec(select(Listing).where(*mine)):
            self.listings[listing.original_paper_id, listing.listed_on] = listing
        mine = col(VoteCount.original_paper_id).in_(self.papers), VoteCount.source_id == self.source.id
        for row in self.session.exec(select(VoteCount).where(*mine).order_by(col(VoteCount.at))):
            self.votes.setdefault(row.original_paper_id, []).append(row)

    def _load_candidates(self, numbers: Sequence[int]) -> None:
        """Read those that are not there yet, at once."""
        wanted = {key for number in numbers for key in self.candidates.get(number, ()) if key > 0}
        missing = wanted - self.papers.keys()
        if missing:
            for paper in self.session.exec(
                select(Paper).where(in_array(self.session, col(Paper.id), missing))
            ):
                self.papers[id_of(paper)] = paper

    def _know(self, paper: Paper) -> None:
        self.papers[id_of(paper)] = paper
        if paper.arxiv_id:
            self.by_arxiv[paper.arxiv_id] = paper
        if paper.doi:
            self.by_doi[paper.doi] = paper
        self.by_key.setdefault(paper.title_key, []).append(paper)

    def _get(self, paper_id: int) -> Paper:
        if paper_id not in self.papers:
            self.papers[paper_id] = self.session.get_one(Paper, paper_id)
        return self.papers[paper_id]

    def _chain(self, paper: Paper) -> list[Paper]:
        """The row itself, and those that it was merged into, up to the paper as people see it."""
        chain = [paper]
        while chain[-1].merged_into_id is not None:
            chain.append(self._get(chain[-1].merged_into_id))
        return chain

    def _root(self, paper: Paper) -> Paper:
        return self._chain(paper)[-1]

    # --- one record

    def _store_one(self, number: int, record: PaperRecord) -> IngestSummary:
        if not (record.arxiv_id or record.doi or dedupe.title_key(record.title)):
            return IngestSummary(rejections=(Rejection(UNKNOWABLE, number, record.title),))
        merged = False
        identity = self._identity(record)
        new = identity is None
        if identity is None:
            if self._is_common(record):
                return IngestSummary(rejections=(Rejection(COMMON, number, record.title),))
            identity = self._create(record)
            merged = self._recognise(identity, number, record)
        elif other := self._same_by_doi(identity, record):
            self._merge(identity, other, "same DOI")
            merged = True
        self.identities[number] = id_of(identity)
        changed = self._learn(identity, record)
        listed = self._list(identity, record)
        voted = self._vote(identity, record)
        outcome = _outcome(new=new, merged=merged, changed=changed or voted or listed != NO_CHANGE)
        return replace(outcome, listings=int(listed == NEW_LISTING))

    def _identity(self, record: PaperRecord) -> Paper | None:
        """The row that this record is known by."""
        if record.arxiv_id:
            return self.by_arxiv.get(record.arxiv_id)
        if record.doi:
            return self.by_doi.get(record.doi)
        told = of_record(record)
        rows = self._without_id(record)
        return next((row for row in rows if dedupe.same_paper_reason(_known(row, row), told)), None)

    def _without_id(self, record: PaperRecord) -> list[Paper]:
        """The rows with the record's title and no id."""
        rows = self.by_key.get(dedupe.title_key(record.title), ())
        return [row for row in rows if not (row.arxiv_id or row.doi)]

    def _is_common(self, record: PaperRecord) -> bool:
        """Whether a new row would be one more of too many that only differ in authors and abstract."""
        return not (record.arxiv_id or record.doi) and len(self._without_id(record)) >= MOST_ALIKE

    def _same_by_doi(self, identity: Paper, record: PaperRecord) -> Paper | None:
        """Another paper that has the record's DOI; never where both have an arXiv id of their own."""
        other = self.by_doi.get(record.doi) if record.doi else None
        if other is None:
            return None
        root, mine = self._root(other), self._root(identity)
        if (
            root is mine
            or (root.arxiv_id and mine.arxiv_id)
            or merging.was_unmerged(self.session, mine, root)
        ):
            return None
        return root

    def _create(self, record: PaperRecord) -> Paper:
        fields = dedupe.fields_of(record, self.source.kind)
        # All fields are given: pydantic takes longer to find out how to call a default's factory than
        # everything else that is done for a row.
        paper = Paper(
            id=self._reserve_id(),
            arxiv_id=record.arxiv_id or None,
            doi=record.doi if record.doi and record.doi not in self.by_doi else None,
            title_key=dedupe.title_key(record.title),
            author_count=fields.author_count,
            published_on=fields.published_on,
            content_hash=dedupe.content_hash(fields),
            versions=dict(fields.versions),
            created_at=self.now,
            updated_at=self.now,
            **fields.values,
        )
        self.session.add(paper)
        self._know(paper)
        self.titled.append(paper)
        return paper

    def _reserve_id(self) -> int:
        """Return the id of a new row. Its INSERT waits for the end of the batch, with all others."""
        reserved = next(self.reserved, None)
        if reserved is None:
            self.reserved = reserve_ids(self.session, Paper, len(self.candidates) or 1)
            reserved = next(self.reserved)
        return reserved

    def _recognise(self, identity: Paper, number: int, record: PaperRecord) -> bool:
        """Merge a new row with the paper that it proves to be, if there is one."""
        other, reason = self._same_by_doi(identity, record), "same DOI"
        if other is None:
            other, reason = self._same_by_title(identity, number, record)
        if other is None:
            return False
        self._merge(identity, other, reason)
        return True

    def _same_by_title(self, identity: Paper, number: int, record: PaperRecord) -> tuple[Paper | None, str]:
        rows = self.by_key[identity.title_key]
        alike = [id_of(row) for row in rows if not (row.arxiv_id and record.arxiv_id)]
        told = of_record(record)
        for paper_id in dict.fromkeys(alike + self._near(number, record)):
            row = self._get(paper_id)
            root = self._root(row)
            if root is identity:
                continue
            reason = dedupe.same_paper_reason(_known(row, root), told)
            if reason and not merging.was_unmerged(self.session, identity, root):
                return root, reason
        return None, ""

    def _near(self, number: int, record: PaperRecord) -> list[int]:
        """The rows with near titles: those that were found ahead, and those that came since."""
        found = self.candidates.get(number)
        if found is None:  # it seemed to be known
            self.titles.load_all(self.session)
            found = self.titles.near(record)
        ahead = (key if key > 0 else self.identities.get(-key) for key in found)
        return [key for key in ahead if key] + self.titles.near_recent(record)

    def _merge(self, a: Paper, b: Paper, reason: str) -> None:
        self._flush()  # what was seen of either moves in the database
        merging.merge(self.session, self._root(a), self._root(b), reason, self.now)

    def _learn(self, identity: Paper, record: PaperRecord) -> bool:
        """Fold what the record says into the row and into all that absorbed it."""
        changed = False
        if record.doi and record.arxiv_id and not identity.doi and record.doi not in self.by_doi:
            identity.doi = record.doi
            self.by_doi[record.doi] = identity
            changed = True
        told = dedupe.fields_of(record, self.source.kind)
        for paper in self._chain(identity):
            title = paper.title
            learned = merging.write(paper, dedupe.combine(merging.read(paper), told))
            if record.withdrawn and paper.withdrawn_at is None:
                paper.withdrawn_at, learned = self.now, True
            if learned:
                paper.updated_at = self.now
            if paper.title != title:
                self.titled.append(paper)
            changed = changed or learned
        return changed

    def _list(self, identity: Paper, record: PaperRecord) -> int:
        """Remember that the source showed it on a day, at its best place: NEW_LISTING, OLD or nothing."""
        day = record.listed_on
        if day is None:
            return NO_CHANGE
        for paper in self._chain(identity):
            merging.note_listing(paper, day)
        listing = self.listings.get((id_of(identity), day))
        if listing is None:
            listing = Listing(
                paper_id=id_of(self._root(identity)),
                original_paper_id=id_of(identity),
                source_id=id_of(self.source),
                listed_on=day,
                rank=record.rank,
                submitted_by=record.submitted_by,
            )
            self.seen.append(listing)
            self.listings[id_of(identity), day] = listing
            return NEW_LISTING
        rank = min((place for place in (listing.rank, record.rank) if place), default=None)
        by = listing.submitted_by or record.submitted_by
        if (rank, by) == (listing.rank, listing.submitted_by):
            return NO_CHANGE
        listing.rank, listing.submitted_by = rank, by
        return BETTER_LISTING

    def _vote(self, identity: Paper, record: PaperRecord) -> bool:
        """Add the figures to the series: the largest seen so far, a row where that changes."""
        if record.upvotes is None:  # a source without votes: zero would be a lie
            return False
        series = self.votes.setdefault(id_of(identity), [])
        at, counted = self._observed_at(record), (record.upvotes, record.comments or 0, record.stars or 0)
        new = partial(
            VoteCount,
            paper_id=id_of(self._root(identity)),
            original_paper_id=id_of(identity),
            source_id=id_of(self.source),
        )
        change = vote_history.observe(series, at, counted, new)
        self.seen += change.added
        for row in change.removed:
            if row in self.seen:
                self.seen.remove(row)
            else:
                self.session.delete(row)
        return change.changed

    def _observed_at(self, record: PaperRecord) -> datetime:
        if self.polled or record.listed_on is None:
            return self.now
        ended = datetime.combine(record.listed_on + timedelta(days=1), time(), UTC)
        return min(self.now, ended)


NO_CHANGE, BETTER_LISTING, NEW_LISTING = 0, 1, 2


def _outcome(*, new: bool, merged: bool, changed: bool) -> IngestSummary:
    if merged:
        return IngestSummary(papers_merged=1)
    if new:
        return IngestSummary(papers_new=1)
    return IngestSummary(changed=1) if changed else IngestSummary(unchanged=1)


def _known(row: Paper, root: Paper) -> dedupe.PaperIdentity:
    """A row as dedupe sees it: its own title, with all that is known of its paper."""
    return dedupe.PaperIdentity(
        row.title, root.arxiv_id or "", row.doi or "", row.abstract or root.abstract, tuple(root.authors)
    )
