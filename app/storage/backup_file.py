"""Back up the tables and journals to one file, which can be restored to SQLite or PostgreSQL.

Sessions, rate limits, workers, jobs and tables that an operator added are left out. A backup is a ZIP archive
with these members:

    manifest.json          the release, schema revision and time, rows and SHA-256 of each table, and last ids
    tables/NAME.jsonl      the rows of a table: a JSON array of the column names, then one array per row
    journals/NAME.journal  the senders' journals, with results that may not be in the tables yet
"""

import base64
import hashlib
import itertools
import json
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import IO, Any

from sqlalchemy import (
    Column,
    ForeignKeyConstraint,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    TableClause,
    bindparam,
    delete,
    exists,
    func,
    insert,
    inspect,
    select,
    text,
    update,
)  # fmt: skip
from sqlalchemy import types as column_types
from sqlalchemy.engine import Connection
from sqlmodel import SQLModel

from app.errors import InvalidInput
from app.storage import schema
from app.storage.database import Database, lift_timeouts, storable
from app.storage.inserts import last_id, set_last_id

FORMAT = 1
DAMAGED = (zipfile.BadZipFile, zlib.error, KeyError, TypeError, ValueError, EOFError, NotImplementedError)
BATCH = 1000  # rows
ABANDONED_SECONDS = 86_400  # after which the file of an unfinished backup is deleted
EVERYTHING = "*"  # the edition of a pause that holds all emails
# These tables are useless in another database: sessions and jobs belong to running processes. So do locks,
# but their rows also store what has been completed, such as the report of a day.
EXCLUDED = ("alembic_version", "admin_session", "rate_limit", "worker")
# Links and bounces refer to the ids of these rows, so no id is reused, not even those that a restore skipped.
SEQUENCES = ("delivery", "paper_snapshot", "paper")
JOBS = "procrastinate_"  # the prefix of the job tables


@dataclass(frozen=True, slots=True)
class TableEntry:
    rows: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """The description of a backup."""

    created_at: datetime
    revision: str
    release: str
    tables: Mapping[str, TableEntry]
    journals: tuple[str, ...] = ()
    format: int = field(default=FORMAT)
    last_ids: Mapping[str, int] = field(default_factory=dict)  # of the sequences; rows may have higher ids
    tables_left_out: tuple[str, ...] = ()  # because an operator added them

    @property
    def rows(self) -> int:
        return sum(table.rows for table in self.tables.values())


def default_path(now: datetime) -> Path:
    """Return the path of a new file in var/backups/."""
    names = (f"paperboy-{now:%Y%m%dT%H%M%SZ}{suffix}.zip" for suffix in ("", "-2", "-3"))
    paths = [Path("var/backups") / name for name in names]
    return next((path for path in paths if not path.exists()), paths[0])


def check_target(target: Path) -> None:
    """Create the folder of a new backup. Raise InvalidInput if the file exists or cannot be created."""
    if target.exists():
        raise InvalidInput(f"{target} already exists: choose another name")
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"cannot create {target.parent}: {error.strerror}") from None
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise InvalidInput(f"{target.parent} cannot be written to: choose another folder")


def write(db: Database, target: Path, journals: Path, now: datetime, release: str) -> Manifest:
    """Write a backup while the service is running. All tables are read from one snapshot.

    The file, which `check_target` has checked, appears only when it is complete. Only its owner can read it.
    """
    for abandoned in target.parent.glob(".paperboy-*.zip.*.partial"):  # left by a killed process
        with suppress(FileNotFoundError):
            if now.timestamp() - abandoned.stat().st_mtime > ABANDONED_SECONDS:
                abandoned.unlink()
    unfinished = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        with (
            _private(unfinished) as file,
            zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=5) as archive,
        ):
            with _snapshot(db) as connection:
                present = {table.name: table for table in _tables(connection)}
                left_out = tuple(sorted(present.keys() - SQLModel.metadata.tables.keys()))
                tables = {
                    name: _write_table(archive, connection, table)
                    for name, table in present.items()
                    if name not in left_out
                }
                last_ids = {name: last for name in SEQUENCES if (last := last_id(connection, name))}
            # After the tables, so that an email sent in between is at least in a journal.
            names = tuple(_write_journals(archive, journals))
            manifest = Manifest(
                now, schema.revisions(db)[0] or "base", release, tables, names,
                last_ids=last_ids, tables_left_out=left_out,
            )  # fmt: skip
            archive.writestr("manifest.json", json.dumps(asdict(manifest), default=str, indent=1))
        unfinished.rename(target)
    finally:
        unfinished.unlink(missing_ok=True)
    return manifest


def read_manifest(source: Path) -> Manifest:
    """Return the description of a backup, after checking all of its checksums.

    Raise InvalidInput if the file is not a backup, is damaged, or was made by an unsupported release.
    """
    try:
        with zipfile.ZipFile(source) as archive:
            stored = json.loads(archive.read("manifest.json"))
            tables = {name: TableEntry(**entry) for name, entry in stored["tables"].items()}
            for name, entry in tables.items():
                with archive.open(_member(name)) as lines:
                    digest = hashlib.sha256()
                    for chunk in iter(partial(lines.read, 1 << 20), b""):
                        digest.update(chunk)
                    if digest.hexdigest() != entry.sha256:
                        raise InvalidInput(
                            f"{source} is damaged (table {name} has a different checksum): use another copy"
                        )
            manifest = Manifest(
                datetime.fromisoformat(stored["created_at"]), stored["revision"], stored["release"], tables,
                tuple(stored["journals"]), stored["format"], stored.get("last_ids", {}),
            )  # fmt: skip
            for name in manifest.journals:
                archive.read(f"journals/{name}")  # raises BadZipFile if the journal is damaged
    except DAMAGED as error:
        raise InvalidInput(f"{source} is not a complete backup ({error}): use another copy") from None
    if manifest.format != FORMAT or manifest.revision not in schema.known_revisions():
        raise InvalidInput(
            f"{source} was made by release {manifest.release}, which this release cannot read: "
            "install that release or a newer one"
        )
    return manifest


def load(url: str, source: Path, manifest: Manifest, pause_reason: str, now: datetime) -> None:
    """Load a backup into an empty database, in one transaction, with all sending paused.

    The database gets the backup's schema. The caller must migrate it afterwards.
    """
    schema.migrate(url, manifest.revision)
    db = Database(url)
    try:
        with db.write() as session, zipfile.ZipFile(source) as archive:
            connection = session.connection()
            lift_timeouts(connection)
            for table in _tables(connection):
                if table.name in manifest.tables:
                    _load_table(connection, table, archive)
            for name, last in manifest.last_ids.items():
                set_last_id(connection, name, max(last, last_id(connection, name)))
            _pause(connection, pause_reason, now)
    finally:
        db.dispose()


def is_empty(db: Database) -> bool:
    """Return whether a database has no tables, or no rows that a backup would contain."""
    with db.engine.connect() as connection:
        names = filter(_is_included, inspect(connection).get_table_names())
        return not any(connection.scalar(select(exists().select_from(TableClause(name)))) for name in names)


def pause_reason(db: Database) -> str | None:
    """Return why all sending is paused, or None. The database may be at an older revision."""
    pauses = text("SELECT reason FROM sending_pause WHERE edition = :edition")
    with db.engine.connect() as connection:
        if not inspect(connection).has_table("sending_pause"):
            return None
        reason: str | None = connection.scalar(pauses, {"edition": EVERYTHING})
        return reason


def differing_tables(db: Database, source: Path, manifest: Manifest) -> list[str]:
    """Return the tables that are missing or whose rows differ from a backup's. Ignore the pauses of sending.

    The order of rows and columns does not matter: databases sort text differently.
    """
    with zipfile.ZipFile(source) as archive, _snapshot(db) as connection:
        tables = {table.name: table for table in _tables(connection)}
        return [
            name
            for name in manifest.tables
            if name != "sending_pause"
            and (
                name not in tables
                or _fingerprint(_stored_rows(archive, name))
                != _fingerprint(_own_rows(connection, tables[name]))
            )
        ]


def restore_journals(source: Path, manifest: Manifest, folder: Path) -> None:
    """Write the journals of a backup to a folder, which must not contain any."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with zipfile.ZipFile(source) as archive:
        for name in manifest.journals:
            (folder / Path(name).name).write_bytes(archive.read(f"journals/{name}"))


def _pause(connection: Connection, reason: str, now: datetime) -> None:
    """Pause all sending. Reflect the table, because its columns depend on the backup's revision."""
    tables = MetaData()
    tables.reflect(connection, only=["sending_pause"])
    pauses = tables.tables["sending_pause"]
    connection.execute(delete(pauses).where(pauses.c.edition == EVERYTHING))
    connection.execute(insert(pauses).values(edition=EVERYTHING, reason=reason, since=now))


@contextmanager
def _private(path: Path) -> Iterator[IO[bytes]]:
    """Yield a new file that only its owner can read. Flush it to disk at the end of the block."""
    with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600), "w+b") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def _snapshot(db: Database) -> Iterator[Connection]:
    """Yield a connection whose queries all see the database as it is now."""
    with db.engine.connect() as connection:
        if connection.dialect.name == "postgresql":
            connection = connection.execution_options(isolation_level="REPEATABLE READ")
            lift_timeouts(connection)
        connection.execute(
            text("SELECT 1 FROM alembic_version")
        )  # SQLite's snapshot begins with the first read
        yield connection


def _is_included(table_name: str) -> bool:
    return table_name not in EXCLUDED and not table_name.startswith(JOBS)


def _tables(connection: Connection) -> Sequence[Table]:
    """Return the tables of a backup, in the order in which foreign keys allow inserting their rows.

    They have no indexes, checks or defaults, because reading those takes half the time of a reflection.
    """
    inspector, metadata = inspect(connection), MetaData()
    names = [name for name in inspector.get_table_names() if _is_included(name)]
    if not names:
        return []  # an empty filter would select all tables
    columns = inspector.get_multi_columns(filter_names=names)
    keys = inspector.get_multi_pk_constraint(filter_names=names)
    references = inspector.get_multi_foreign_keys(filter_names=names)
    for table in columns:
        for column in columns[table]:
            if isinstance(column["type"], column_types.JSON):
                # By default, None is stored as the JSON value null.
                column["type"].none_as_null = column["nullable"]
        Table(
            table[1],
            metadata,
            *(Column(column["name"], column["type"]) for column in columns[table]),
            PrimaryKeyConstraint(*keys[table]["constrained_columns"]),
            *(
                ForeignKeyConstraint(
                    key["constrained_columns"],
                    [f"{key['referred_table']}.{column}" for column in key["referred_columns"]],
                )
                for key in references[table]
                if key["referred_schema"] is None and key["referred_table"] in names
            ),
        )
    return metadata.sorted_tables


def _write_table(archive: zipfile.ZipFile, connection: Connection, table: Table) -> TableEntry:
    digest, count = hashlib.sha256(), 0
    result = connection.execution_options(yield_per=BATCH).execute(select(table).order_by(*table.primary_key))
    with archive.open(_member(table.name), "w", force_zip64=True) as file:
        for row in itertools.chain([list(result.keys())], result):
            # A database of an earlier release may contain texts that PostgreSQL cannot store.
            line = json.dumps(storable([*row]), default=_encode, separators=(",", ":")).encode() + b"\n"
            digest.update(line)
            file.write(line)
            count += 1
    return TableEntry(count - 1, digest.hexdigest())


def _stored_rows(archive: zipfile.ZipFile, name: str) -> Iterator[dict[str, Any]]:
    with archive.open(_member(name)) as file:
        columns = json.loads(file.readline())
        for line in file:
            yield dict(zip(columns, json.loads(line), strict=True))


def _own_rows(connection: Connection, table: Table) -> Iterator[dict[str, Any]]:
    result = connection.execution_options(yield_per=BATCH).execute(select(table))
    yield from map(dict, result.mappings())


def _fingerprint(rows: Iterator[dict[str, Any]]) -> tuple[int, int]:
    """Return the number of rows and the sum of their hashes."""
    count = total = 0
    for row in rows:
        line = json.dumps(row, default=_encode, sort_keys=True).encode()
        total += int.from_bytes(hashlib.sha256(line).digest(), "big")
        count += 1
    return count, total


def _load_table(connection: Connection, table: Table, archive: zipfile.ZipFile) -> None:
    key, later = table.primary_key.columns.values()[0], list[dict[str, Any]]()
    own = [
        column.name for column in table.columns if any(fk.column.table is table for fk in column.foreign_keys)
    ]
    with archive.open(_member(table.name)) as file:
        columns = [table.columns[name] for name in json.loads(file.readline())]
        decoders = [_decoder(column.type) for column in columns]
        while lines := list(itertools.islice(file, BATCH)):
            rows = [
                {
                    column.name: value if value is None else decode(value)
                    for column, decode, value in zip(columns, decoders, json.loads(line), strict=True)
                }
                for line in lines
            ]
            # A row may refer to a later row of the same table, so these columns are filled at the end.
            later += [
                {"row": row[key.name], **{name: row[name] for name in own}}
                for row in rows
                if any(row[name] is not None for name in own)
            ]
            connection.execute(insert(table), [row | dict.fromkeys(own) for row in rows])
    if later:
        values: dict[str, Any] = {name: bindparam(name) for name in own}
        connection.execute(update(table).where(key == bindparam("row")).values(values), later)
    if connection.dialect.name == "postgresql" and isinstance(key.type, column_types.Integer):
        sequence = select(func.pg_get_serial_sequence(table.name, key.name)).scalar_subquery()
        # A key without a sequence refers to another table, so there is nothing to set.
        connection.execute(
            select(func.setval(sequence, func.max(key))).select_from(table).having(sequence.is_not(None))
        )


def _write_journals(archive: zipfile.ZipFile, folder: Path) -> Iterator[str]:
    for path in sorted(folder.glob("*.journal")):
        with suppress(FileNotFoundError):  # its sender has just exited: all results are in the database
            archive.writestr(f"journals/{path.name}", path.read_bytes())
            yield path.name


def _member(table: str) -> str:
    return f"tables/{table}.jsonl"


def _encode(value: object) -> str:
    """Return a value as text if JSON lacks its type. Times are in UTC."""
    match value:
        case datetime():
            return (value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)).isoformat()
        case date():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode()
    raise TypeError(f"a backup cannot store {type(value)}")


def _decoder(kind: column_types.TypeEngine[Any]) -> Callable[[Any], Any]:
    match kind:
        case column_types.DateTime():
            return lambda value: datetime.fromisoformat(value).replace(tzinfo=UTC)
        case column_types.Date():
            return date.fromisoformat
        case column_types.LargeBinary():
            return base64.b64decode
    return lambda value: value
