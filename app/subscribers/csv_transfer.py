"""Import and export subscribers as CSV. A row that cannot be used is skipped and reported.

An import writes a few hundred rows per transaction. If it is interrupted, it can be repeated: subscribers who
are already registered are skipped.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any, BinaryIO, NamedTuple

from sqlalchemy.exc import StatementError
from sqlmodel import col, select

from app.errors import Conflict, InvalidInput, PaperboyError
from app.storage.database import Database
from app.storage.database_errors import is_unavailable
from app.storage.models import Subscriber, SubscriberState
from app.subscribers import bulk, csv_format
from app.subscribers.csv_format import EXPORTED, ImportedSubscriber
from app.subscribers.preferences import Preferences
from app.subscribers.stored_interests import interests_of

IMPORT_BATCH = 500  # rows per transaction, so that other writers wait only a fraction of a second
EXPORT_BATCH = 500  # subscribers
MAX_LISTED = 1000  # rejected rows in a report; all are counted
MAX_CONFLICTS_LISTED = 500  # conflicts among them, so that a repeated import still lists the invalid rows
PREVIEWED = 10  # rows
MAX_EMAIL_CHARS = 320  # of what may be no address, in a report


class SkippedRow(NamedTuple):
    """A skipped row, numbered as in a spreadsheet: the first subscriber is in row 2."""

    row: int
    reason: str
    email: str = ""  # normalized, or as typed if it is invalid

    @property
    def without_address(self) -> str:
        """Return the reason without the address, which must not remain stored after its owner is erased."""
        has_address = "@" in self.email.strip("@")
        return self.reason.replace(self.email, "this address") if has_address else self.reason


@dataclass
class ImportReport:
    """The result of an import. In a preview, `added` counts the subscribers who would be added."""

    total: int = 0  # rows in the file
    rows: int = 0  # rows read so far
    added: int = 0
    rejected: int = 0
    registered: int = 0  # rejected rows whose address is registered or suppressed
    rejections: list[SkippedRow] = field(default_factory=list)  # the first skipped rows
    first: list[ImportedSubscriber] = field(default_factory=list)  # the first valid rows
    ignored_columns: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Return False if the import was stopped before the end of the file."""
        return self.rows == self.total

    def accept(self, new: ImportedSubscriber) -> None:
        """Count a subscriber who was added."""
        self.added += 1
        if len(self.first) < PREVIEWED:
            self.first.append(new)

    def reject(self, row: int, error: PaperboyError, email: str) -> None:
        """Count a skipped row, and list it if there is room."""
        is_conflict = isinstance(error, Conflict)
        self.rejected += 1
        self.registered += is_conflict
        most = MAX_LISTED if not is_conflict or self.registered <= MAX_CONFLICTS_LISTED else 0
        if len(self.rejections) < most:
            self.rejections.append(SkippedRow(row, str(error), email))


_Store = Callable[[Sequence[ImportedSubscriber]], list[bulk.Outcome]]


def import_file(
    db: Database,
    file: BinaryIO,
    defaults: Preferences,
    now: datetime,
    *,
    name: str = "the file",
    after_batch: Callable[[ImportReport], bool] = lambda _: True,
) -> ImportReport:
    """Add the subscribers in a CSV file. `defaults` applies to empty cells.

    After each transaction, `after_batch` gets the report. If it returns False, the import stops. Raise
    InvalidInput without adding anyone if the file is not a table of subscribers.
    """
    return _each_batch(file, defaults, now, name, lambda batch: _store(db, batch, now), after_batch)


def preview_file(db: Database, file: BinaryIO, defaults: Preferences, now: datetime) -> ImportReport:
    """Return the report that an import of the file would produce now. Nothing is stored."""
    earlier: dict[str, SubscriberState] = {}

    def find_conflicts(batch: Sequence[ImportedSubscriber]) -> list[bulk.Outcome]:
        with db.read() as session:
            states = bulk.states_by_address(session, batch)
            return bulk.find_conflicts(session, batch, states, earlier)

    return _each_batch(file, defaults, now, "the file", find_conflicts, lambda _: True)


def _each_batch(
    file: BinaryIO,
    defaults: Preferences,
    now: datetime,
    name: str,
    store: _Store,
    after_batch: Callable[[ImportReport], bool],
) -> ImportReport:
    """Parse the rows of a file, and pass the valid ones to `store` in batches."""
    contents = csv_format.survey(file, name)
    report = ImportReport(contents.rows, ignored_columns=contents.ignored_columns)
    accepted_rows: dict[str, int] = {}  # the row of each accepted address
    with closing(csv_format.read_rows(file, name)) as rows:
        while lines := list(islice(rows, IMPORT_BATCH)):
            outcomes: dict[int, ImportedSubscriber | PaperboyError] = {}
            for number, line in lines:
                try:
                    outcomes[number] = csv_format.parse_row(line, defaults, now)
                except PaperboyError as error:
                    outcomes[number] = error
            valid = {number: new for number, new in outcomes.items() if isinstance(new, ImportedSubscriber)}
            conflicts = dict(zip(valid, store(list(valid.values())), strict=True))
            for number, line in lines:
                error_or_new = conflicts.get(number) or outcomes[number]
                if isinstance(error_or_new, ImportedSubscriber):
                    accepted_rows[error_or_new.email] = number
                    report.accept(error_or_new)
                    continue
                email = valid[number].email if number in valid else (line["email"] or "").strip()
                if number in valid and (row := accepted_rows.get(email)):
                    error_or_new = InvalidInput(f"this row has the same address as row {row}")
                report.reject(number, error_or_new, email[:MAX_EMAIL_CHARS])
            report.rows += len(lines)
            if not after_batch(report):
                break
    return report


def _store(db: Database, batch: Sequence[ImportedSubscriber], now: datetime) -> list[bulk.Outcome]:
    """Add a batch in one transaction. If the database refuses the batch, add each row separately."""
    if not batch:
        return []
    try:
        with db.write() as session:
            return bulk.add_many(session, batch, now)
    except StatementError as error:
        if is_unavailable(error):
            raise
        return [_store_one(db, new, now) for new in batch]


def _store_one(db: Database, new: ImportedSubscriber, now: datetime) -> bulk.Outcome:
    try:
        with db.write() as session:
            bulk.add_one(session, new, now)
    except StatementError as error:
        if is_unavailable(error):
            raise
        return PaperboyError("the database refused this row: check its values")
    except PaperboyError as error:
        return error
    return None


def exported(db: Database) -> Iterator[dict[str, Any]]:
    """Yield the exported columns of each subscriber. Leave out erased subscribers."""
    last_id = 0
    while True:
        with db.read() as session:
            query = select(Subscriber).where(Subscriber.state != SubscriberState.ERASED)
            page = query.where(col(Subscriber.id) > last_id).order_by(col(Subscriber.id)).limit(EXPORT_BATCH)
            rows = session.exec(page).all()
            interests = interests_of(session, [row.id or 0 for row in rows])
        for row in rows:
            own = interests.get(row.id or 0, ())
            columns = row.model_dump(mode="json", include=set(EXPORTED))
            columns |= {
                "interests": [interest.text for interest in own],
                "weights": [interest.weight for interest in own],
                "quotas": [interest.quota for interest in own],
            }
            yield {name: columns[name] for name in EXPORTED}
        if not rows:
            return
        last_id = rows[-1].id or 0
