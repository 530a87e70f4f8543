"""Import and export subscribers as CSV. A row that cannot be used is skipped and reported."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import EnumType
from typing import Any, TextIO

from sqlmodel import Session, col, select

from app.errors import InvalidInput, PaperboyError
from app.storage.database import Database
from app.storage.models import Subscriber, SubscriberState
from app.subscribers.account import pause
from app.subscribers.preferences import Preferences
from app.subscribers.signup import CONSENT_GIVEN_ELSEWHERE, add
from app.subscribers.stored_interests import interests_of
from app.types import Cadence, EmptyDigestPolicy, Interest

SEPARATOR = ";"  # between interests, and between muted queries
EXPORT_BATCH = 500  # subscribers
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # spreadsheets run such cells as formulas
EXTRA_CELLS = "\0"  # the column of cells beyond the last one with a name
# With any other state, the owner of the address has left, or never confirmed.
IMPORTED_STATES = (SubscriberState.ACTIVE, SubscriberState.PAUSED)


def _split(cell: str) -> tuple[str, ...]:
    return tuple(text for part in cell.split(SEPARATOR) if (text := part.strip()))


def _weights(cell: str) -> tuple[float | None, ...]:
    weights = tuple(float(part) if part.strip() else None for part in cell.split(SEPARATOR))
    if not all(weight is None or math.isfinite(weight) for weight in weights):
        raise ValueError(cell)
    return weights


def _quotas(cell: str) -> tuple[int | None, ...]:
    quotas = tuple(int(part) if part.strip() else None for part in cell.split(SEPARATOR))
    if any(quota is not None and quota < 1 for quota in quotas):
        raise ValueError(cell)
    return quotas


def _yes_or_no(cell: str) -> bool:
    if cell.lower() not in ("yes", "no", "true", "false"):
        raise ValueError(cell)
    return cell.lower() in ("yes", "true")


def _moment(cell: str) -> datetime:
    moment = datetime.fromisoformat(cell)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


# The optional columns with preferences, and the function that parses each cell.
_PREFERENCES: dict[str, Callable[[str], Any]] = {
    "cadence": Cadence, "weekday": int, "hour": int, "zone": str, "min_papers": int, "max_papers": int,
    "when_empty": EmptyDigestPolicy, "max_trending": int, "paper_updates": _yes_or_no, "muted": _split,
}  # fmt: skip
_OTHERS: dict[str, Callable[[str], Any]] = {
    "weights": _weights, "quotas": _quotas, "state": SubscriberState,
    "consent_at": _moment, "consent_version": str,
}  # fmt: skip
_EXPECTED = {
    "weights": "numbers, separated by “;”",
    "quotas": "whole numbers from 1, separated by “;”",
    "paper_updates": "yes or no",
    "consent_at": "a time, such as 2026-11-20T08:00Z",
}
COLUMNS = ("email", "interests", *_PREFERENCES, *_OTHERS)
EXPORTED = ("id", *COLUMNS, "created_at", "confirmed_at")
_LISTS = ("interests", "weights", "quotas", "muted")


@dataclass
class ImportReport:
    """The result of an import. Rows are counted as in a spreadsheet: the first subscriber is in row 2."""

    added: int = 0
    rejected: list[tuple[int, str]] = field(default_factory=list)  # the number of the row, and the reason
    ignored_columns: list[str] = field(default_factory=list)


def read_csv(content: bytes, name: str = "the file") -> list[dict[str, str]]:
    """Return the rows of a CSV file. The separator may be a comma, a semicolon or a tab.

    Raise InvalidInput if it is not CSV in UTF-8, or has no rows, or lacks a required column.
    """
    try:
        text = content.decode("utf-8-sig")  # spreadsheet programs write a byte order mark
        separator = max(",;\t", key=text.partition("\n")[0].count)
        rows = list(
            csv.DictReader(
                io.StringIO(text, newline=""), restkey=EXTRA_CELLS, delimiter=separator, strict=True
            )
        )
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput(f"{name} cannot be read as CSV in UTF-8: {error}") from None
    if not rows or not {"email", "interests"} <= set(rows[0]):
        raise InvalidInput(
            f"{name} needs a first line with the column names (email and interests at least), and one line "
            "per subscriber"
        )
    return rows


def import_rows(
    db: Database, rows: Iterable[Mapping[str, str]], defaults: Preferences, now: datetime
) -> ImportReport:
    """Add each row's subscriber in a transaction of its own. `defaults` holds for empty cells."""
    report = ImportReport()
    for number, row in enumerate(rows, start=2):
        if number == 2:
            report.ignored_columns = [name for name in row if name and name not in (*EXPORTED, EXTRA_CELLS)]
        try:
            with db.write() as session:
                _add(session, row, defaults, now)
            report.added += 1
        except PaperboyError as error:
            report.rejected.append((number, str(error)))
    return report


def _add(session: Session, row: Mapping[str, Any], defaults: Preferences, now: datetime) -> None:
    if EXTRA_CELLS in row:
        raise InvalidInput("this row has more cells than the first line has columns")
    cells = {name: _unescape((cell or "").strip()) for name, cell in row.items()}
    others = _parse(cells, _OTHERS)
    state = others.get("state", SubscriberState.ACTIVE)
    if state not in IMPORTED_STATES:
        raise InvalidInput(f"the state is {state}: only active and paused subscribers are imported", "state")
    interests = _interests(_split(cells["interests"]), others.get("weights", ()), others.get("quotas", ()))
    preferences = replace(defaults, interests=interests, **_parse(cells, _PREFERENCES))
    subscriber_id = add(session, cells["email"], preferences, now)
    if consent_at := others.get("consent_at"):
        subscriber = session.get_one(Subscriber, subscriber_id)
        if consent_at > now:
            raise InvalidInput("consent_at is in the future", "consent_at")
        subscriber.consent_at = consent_at
        subscriber.consent_version = others.get("consent_version", CONSENT_GIVEN_ELSEWHERE)[:100]
        session.add(subscriber)
    if state is SubscriberState.PAUSED:
        pause(session, subscriber_id, None, now)


def _interests(
    texts: Sequence[str], weights: Sequence[float | None], quotas: Sequence[int | None]
) -> tuple[Interest, ...]:
    """Return interests with the weights and quotas in the same order. A missing weight is 1."""
    for name, numbers in (("weights", weights), ("quotas", quotas)):
        if len(numbers) > len(texts):
            raise InvalidInput(f"there are {len(numbers)} {name} for {len(texts)} interests", name)
    interests = []
    for index, text in enumerate(texts):
        weight = weights[index] if index < len(weights) else None
        quota = quotas[index] if index < len(quotas) else None
        interests.append(Interest(text, weight if weight is not None else 1.0, quota))
    return tuple(interests)


def _parse(cells: Mapping[str, str], parsers: Mapping[str, Callable[[str], Any]]) -> dict[str, Any]:
    """Parse the cells that have a parser. Empty cells are left out. Raise InvalidInput for wrong ones."""
    values = {}
    for name, parse in parsers.items():
        cell = cells.get(name, "")
        try:
            if cell:
                values[name] = parse(cell)
        except ValueError:
            text = (
                " or ".join(parse) if isinstance(parse, EnumType) else _EXPECTED.get(name, "a whole number")
            )
            raise InvalidInput(f"{name} must be {text}, not “{cell[:40]}”", field=name) from None
    return values


def _escape(cell: str) -> str:
    return "'" + cell if cell.startswith(_FORMULA) else cell


def _unescape(cell: str) -> str:
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(_FORMULA) else cell


def exported(db: Database) -> Iterator[dict[str, Any]]:
    """Yield the columns of all subscribers except erased ones."""
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


def write_csv(rows: Iterable[dict[str, Any]], file: TextIO) -> None:
    """Write exported subscribers as CSV. Cells that a spreadsheet would run as formulas are escaped."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(EXPORTED)
    for row in rows:
        cells = row | {name: f"{SEPARATOR} ".join(map(_cell, row[name])) for name in _LISTS}
        if not any(row["quotas"]):
            cells["quotas"] = ""
        writer.writerow([_escape(_cell(cells[name])) for name in EXPORTED])


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
