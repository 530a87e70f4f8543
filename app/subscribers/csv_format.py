"""Read and write subscribers as CSV: columns, cells and rows. This module does not use the database."""

import csv
import io
import math
import re
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import EnumType
from itertools import chain, zip_longest
from typing import Any, BinaryIO, TextIO
from zoneinfo import ZoneInfo

from app.errors import InvalidInput, InvalidPreference
from app.storage.models import SubscriberState
from app.subscribers import csv_opt_outs
from app.subscribers.address import normalize_address
from app.subscribers.pausing import LONGEST_PAUSE
from app.subscribers.preferences import Preferences, check
from app.subscribers.preferences import problems as problems_by_field
from app.text import dates
from app.text.in_words import count_of
from app.types import Cadence, EmptyDigestPolicy, Interest

SEPARATOR = ";"  # between interests, and between muted queries
MAX_COLUMNS = 200
MAX_ROW_CHARS = 1_000_000  # a longer row means an unclosed quotation mark, or a file that is not CSV
MAX_PROBLEMS = 10  # named for a row
EXTRA_CELLS = "\0"  # the key for cells beyond the last named column
EARLIEST_CONSENT = datetime(csv_opt_outs.EARLIEST_YEAR, 1, 1, tzinfo=UTC)
# Subscribers in any other state have left or have never confirmed.
IMPORTED_STATES = (SubscriberState.ACTIVE, SubscriberState.PAUSED)

_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # spreadsheets run such cells as formulas
_TOKEN = re.compile(r"([^\\;]*)(\\*)(;?)")


def split_list(cell: str) -> tuple[str, ...]:
    """Return the texts in a cell. A separator that belongs to a text has a backslash before it.

    Only backslashes before a separator have a meaning: two of them stand for one.
    """
    texts: list[list[str]] = [[]]
    for plain, backslashes, separator in _TOKEN.findall(cell):
        texts[-1] += (plain, backslashes[: len(backslashes) // 2] if separator else backslashes)
        if separator and len(backslashes) % 2:
            texts[-1].append(separator)
        elif separator:
            texts.append([])
    return tuple(text for parts in texts if (text := "".join(parts).strip()))


def join_list(texts: Iterable[str]) -> str:
    """Return the cell from which `split_list` reads these texts."""
    *others, last = [re.sub(r"(\\*);", r"\1\1\\;", text) for text in texts] or [""]
    closed = [re.sub(r"(\\+)$", r"\1\1", text) for text in others]
    return f"{SEPARATOR} ".join([*closed, last])


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
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


def _weekday(cell: str) -> int:
    if (number := dates.weekday(cell)) is None:
        raise ValueError(cell)
    return number


def _hour(cell: str) -> int:
    return int(re.sub(r"(?<=\d)(:00){1,2}$", "", cell))  # 8, 08:00 or 08:00:00


def _zone(cell: str) -> str:
    if (name := dates.find_zone(cell)) is None:
        raise ValueError(cell)
    return name


def _printable(cell: str) -> str:
    if not cell.isprintable():
        raise ValueError(cell)
    return cell


# The optional columns with preferences, and the function that parses each cell.
_PREFERENCES: dict[str, Callable[[str], Any]] = {
    "cadence": Cadence, "weekday": _weekday, "hour": _hour, "zone": _zone, "min_papers": int,
    "max_papers": int, "when_empty": EmptyDigestPolicy, "max_trending": int, "paper_updates": _yes_or_no,
    "muted": split_list,
}  # fmt: skip
_OTHERS: dict[str, Callable[[str], Any]] = {
    "weights": _weights, "quotas": _quotas, "state": SubscriberState,
    "paused_until": _moment, "consent_at": _moment, "consent_version": _printable,
}  # fmt: skip
_EXPECTED = {
    "hour": "a full hour, such as 8 or 08:00",
    "zone": "a time zone, such as Europe/Berlin",
    "weekday": "a day such as Monday, or a number from 0 (Monday) to 6",
    "weights": "numbers, separated by “;”",
    "quotas": "whole numbers from 1, separated by “;”",
    "paper_updates": "yes or no",
    "paused_until": "a time, such as 2026-11-27T00:00Z",
    "consent_at": "a time, such as 2026-11-20T08:00Z",
    "consent_version": "plain text, without control characters",
}
_SURPLUS = (
    "this row has more cells than the first line has columns: put quotation marks around cells that contain "
    "the separator"
)
COLUMNS = ("email", "interests", *_PREFERENCES, *_OTHERS)
EXPORTED = ("id", *COLUMNS, "created_at", "confirmed_at")
_READ_COLUMNS = frozenset({*COLUMNS, *csv_opt_outs.COLUMNS})
_LISTS = ("interests", "weights", "quotas", "muted")


@dataclass(frozen=True, slots=True)
class ImportedSubscriber:
    """A valid row: a subscriber to be added."""

    email: str  # normalized
    preferences: Preferences  # checked
    state: SubscriberState = SubscriberState.ACTIVE
    consent_at: datetime | None = None  # None: now
    consent_version: str = ""
    paused_until: datetime | None = None  # in the subscriber's time zone


@dataclass(frozen=True, slots=True)
class Contents:
    """The number of rows in a file, and the names of its columns that are not imported."""

    rows: int
    ignored_columns: tuple[str, ...]


class _Lines(Iterator[str]):
    """The lines of a file. Raise csv.Error if the lines since `begin_row` exceed MAX_ROW_CHARS."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._size = 0

    def begin_row(self) -> None:
        self._size = 0

    def __next__(self) -> str:
        line = self._file.readline(MAX_ROW_CHARS + 1)
        self._size += len(line)
        if self._size > MAX_ROW_CHARS:
            raise csv.Error("a row is too long, perhaps because a quotation mark is not closed")
        if not line:
            raise StopIteration
        return line


def survey(file: BinaryIO, name: str = "the file") -> Contents:
    """Read a whole file and count its rows.

    Raise InvalidInput if the file is not CSV in UTF-8, has no rows, or lacks or repeats a column.
    """
    rows = read_rows(file, name)
    _, columns = next(rows, (0, None))
    if columns is None:
        raise InvalidInput(f"{name} has no subscribers: add a row for each below the names of the columns")
    read = _READ_COLUMNS | {*EXPORTED, EXTRA_CELLS}
    ignored = tuple(column for column in columns if column and column not in read)
    return Contents(1 + sum(1 for _ in rows), ignored)


def read_rows(file: BinaryIO, name: str = "the file") -> Generator[tuple[int, dict[str, Any]]]:
    """Yield the number and the cells of each row in a CSV file. Empty rows are skipped but counted.

    The separator may be a comma, a semicolon or a tab. Raise InvalidInput like `survey`, but only when the
    faulty row is reached.
    """
    file.seek(0)
    text = io.TextIOWrapper(file, "utf-8-sig", newline="")  # spreadsheet programs write a byte order mark
    try:
        lines = _Lines(text)
        first = next(lines, "")
        separator = max(",;\t", key=first.count)
        reader = csv.reader(chain([first], lines), delimiter=separator, strict=True)
        headings = next(reader, [])
        exact_names = {heading.strip().lower() for heading in headings}
        columns = [_column_name(heading, exact_names) for heading in headings]
        _check_columns(columns, name)
        lines.begin_row()
        for number, cells in enumerate(reader, start=2):
            lines.begin_row()
            if any(map(str.strip, cells)):  # spreadsheet programs write rows of empty cells
                yield number, _name_cells(columns, cells)
    except UnicodeDecodeError:
        raise InvalidInput(f"{name} is not text in UTF-8: export it as CSV in UTF-8") from None
    except csv.Error as error:
        raise InvalidInput(f"{name} cannot be read as CSV: {error}") from None
    finally:
        with suppress(ValueError):  # the file is closed already
            text.detach()


def _column_name(heading: str, exact_names: Collection[str]) -> str:
    """Return the name of the column with this heading. Ignore the letter case of known names.

    Other spellings of them, such as “Max papers” or “E-Mail Address”, count if no column has the exact name.
    """
    name = heading.strip().lower()
    if name in EXPORTED:
        return name
    spelling = re.sub(r"[\s_-]+", "_", name).replace("e_mail", "email")
    spelling = "email" if spelling == "email_address" else spelling
    if spelling in EXPORTED and spelling not in exact_names:
        return spelling
    return csv_opt_outs.column_name(heading) or heading


def _name_cells(columns: Sequence[str], cells: Sequence[str]) -> dict[str, Any]:
    row: dict[str, Any] = dict(zip_longest(columns, cells[: len(columns)]))
    return row | {EXTRA_CELLS: cells[len(columns) :]} if len(cells) > len(columns) else row


def _check_columns(columns: Sequence[str], name: str) -> None:
    if not any(columns):
        raise InvalidInput(
            f"{name} is empty, or begins with an empty line: its first line must name the columns"
        )
    for required in ("email", "interests"):
        if required not in columns:
            if any("@" in column for column in columns):  # the first line is a person's
                raise InvalidInput(f"{name} has no column “{required}”: its first line must name the columns")
            headings = ", ".join(f"“{' '.join(column.split())[:40]}”" for column in columns[:10] if column)
            raise InvalidInput(
                f"{name} has no column “{required}”: add it, or rename a column to it. The columns in its "
                f"first line are {headings}"
            )
    for column in columns:
        if column in _READ_COLUMNS and columns.count(column) > 1:
            raise InvalidInput(
                f"{name} has several columns named “{column}” (in any spelling): remove or rename all but one"
            )
    if len(columns) > MAX_COLUMNS:
        raise InvalidInput(f"{name} has more than {MAX_COLUMNS} columns: remove those that are not imported")


def parse_row(row: Mapping[str, Any], defaults: Preferences, now: datetime) -> ImportedSubscriber:
    """Return the subscriber in a row. `defaults` applies to empty cells.

    A subscriber whose pause has ended since the export is active. Raise InvalidInput, whose message names
    all problems.
    """
    if EXTRA_CELLS in row:
        raise InvalidInput(_SURPLUS)
    if column := csv_opt_outs.find_opt_out(row):
        raise InvalidInput(
            f"{column} is “{row[column].strip()[:40]}”: this person gets no mail from the other service, so "
            "they are not imported. If they do, empty the cell. If the column says something else, rename or "
            "remove it",
            column,
        )
    cells = {name: _unescape((row.get(name) or "").strip()) for name in COLUMNS}
    cells["state"] = cells["state"] or SubscriberState.ACTIVE
    problems: dict[str, str] = {}  # by column, or `interests.0` for the first interest
    others = _parse(cells, _OTHERS, problems)
    preferences = _preferences(cells, others, defaults, problems)
    email = ""
    try:
        email = normalize_address(cells["email"])
    except InvalidInput as error:
        problems["email"] = str(error)
    problems = _problems_of_state(others, now) | problems
    if problems:
        raise InvalidInput(_as_one_message(problems))
    state, until = others.get("state", SubscriberState.ACTIVE), others.get("paused_until")
    if until and until <= now:
        state, until = SubscriberState.ACTIVE, None
    paused_until = until.astimezone(ZoneInfo(preferences.zone)) if until else None
    consent_version = others.get("consent_version", "")[:100]
    return ImportedSubscriber(
        email, preferences, state, others.get("consent_at"), consent_version, paused_until
    )


def _problems_of_state(values: Mapping[str, Any], now: datetime) -> dict[str, str]:
    """Return the problems with the state, the end of the pause and the time of consent, by column."""
    state, until, consent_at = (values.get(name) for name in ("state", "paused_until", "consent_at"))
    problems = {}
    if state and state not in IMPORTED_STATES:
        problems["state"] = f"the state is {state}: only active and paused subscribers are imported"
    if until and until > now + LONGEST_PAUSE:
        problems["paused_until"] = "paused_until is more than a year away"
    if until and state is SubscriberState.ACTIVE:
        problems["paused_until"] = "paused_until needs the state paused"
    if consent_at and consent_at > now:
        problems["consent_at"] = "consent_at is in the future"
    if consent_at and consent_at < EARLIEST_CONSENT:
        problems["consent_at"] = "consent_at is before 1990: if you do not know the time, empty the cell"
    return problems


def _preferences(
    cells: Mapping[str, str], others: Mapping[str, Any], defaults: Preferences, problems: dict[str, str]
) -> Preferences:
    """Return the preferences in a row. Add a problem for each invalid value."""
    texts = split_list(cells["interests"])
    for name in ("weights", "quotas"):
        if (count := len(others.get(name, ()))) > len(texts):
            given = count_of(count, name.removesuffix("s"))
            problems[name] = (
                f"there are {given} for {count_of(len(texts), 'interest')}: give at most one for each"
            )
    numbers = zip_longest(texts, *(others.get(name, ())[: len(texts)] for name in ("weights", "quotas")))
    interests = tuple(
        Interest(text, 1.0 if weight is None else weight, quota) for text, weight, quota in numbers
    )
    chosen = replace(defaults, interests=interests, **_parse(cells, _PREFERENCES, problems))
    if not interests and chosen.when_empty is EmptyDigestPolicy.SKIP:
        problems["interests"] = "there are no interests: add one, or set when_empty to trending"
    try:
        return check(chosen, before=chosen)  # an export may contain interests that are refused in forms
    except InvalidPreference:
        stored = [*texts, *chosen.muted]
        for field, problem in problems_by_field(chosen, stored=stored).items():
            # If the maximum cannot be read, the minimum is compared with the default.
            if field != "min_papers" or "max_papers" not in problems:
                column, _, place = field.partition(".")
                subject = f"the interest “{texts[int(place)][:40]}”" if place else column
                problems.setdefault(field, f"{subject}: {problem[:1].lower()}{problem[1:]}")
        return chosen


def _as_one_message(problems: Mapping[str, str]) -> str:
    """Join the problems of a row, in the order of the columns."""
    fields = sorted(problems, key=lambda field: COLUMNS.index(field.partition(".")[0]))
    if len(fields) == 1:
        return problems[fields[0]]
    texts = [f"{problems[field].removesuffix('.')}." for field in fields[:MAX_PROBLEMS]]
    more = len(fields) - len(texts)
    return " ".join([*texts, *([f"{count_of(more, 'more problem')}."] if more else [])])


def _parse(
    cells: Mapping[str, str], parsers: Mapping[str, Callable[[str], Any]], problems: dict[str, str]
) -> dict[str, Any]:
    """Parse the cells that have a parser. Leave out empty cells, and add a problem for invalid ones."""
    values = {}
    for name, parse in parsers.items():
        cell = cells[name]
        try:
            if cell:
                values[name] = parse(cell.lower() if isinstance(parse, EnumType) else cell)
        except (ValueError, OverflowError):
            expected = (
                " or ".join(parse) if isinstance(parse, EnumType) else _EXPECTED.get(name, "a whole number")
            )
            problems[name] = f"{name} must be {expected}, not “{cell[:40]}”"
    return values


def write_csv(rows: Iterable[Mapping[str, Any]], file: TextIO) -> None:
    """Write exported subscribers as CSV. Cells that a spreadsheet would run as formulas are escaped."""
    write_header(file)
    write_rows(rows, file)


def write_header(file: TextIO) -> None:
    """Write the line with the names of the columns."""
    csv.writer(file, lineterminator="\n").writerow(EXPORTED)


def write_rows(rows: Iterable[Mapping[str, Any]], file: TextIO) -> None:
    """Write the rows of exported subscribers, without the header."""
    writer = csv.writer(file, lineterminator="\n")
    for row in rows:
        cells = {**row, **{name: join_list(map(_cell, row[name])) for name in _LISTS}}
        if not any(row["quotas"]):
            cells["quotas"] = ""
        writer.writerow([_escape(_cell(cells[name])) for name in EXPORTED])


def _cell(value: object) -> str:
    """Return a value as text. A float has enough digits to read back the same value."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else repr(value).removesuffix(".0") if isinstance(value, float) else str(value)


def _escape(cell: str) -> str:
    return "'" + cell if cell.lstrip("'").startswith(_FORMULA) else cell


def _unescape(cell: str) -> str:
    return cell[1:] if cell.startswith("'") and cell.lstrip("'").startswith(_FORMULA) else cell
