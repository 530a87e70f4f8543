"""Insert rows, one or many at a time, and reserve their ids."""

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import (
    JSON,
    Column,
    ColumnElement,
    Connection,
    Dialect,
    LargeBinary,
    Table,
    Text,
    cast,
    func,
    inspect,
    literal,
    select,
    text,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import IntegrityError, StatementError
from sqlmodel import Session, SQLModel

from app.storage import compressed_json
from app.storage.column_types import CompressedJson
from app.storage.database import in_array


def insert_or_ignore(
    session: Session, table: type[SQLModel], unique: Sequence[str], **values: Any
) -> int | None:
    """Insert a row and return its id, or None if a row with the same unique columns already exists."""
    rows = inspect(table).local_table
    # Use the table instead of its class, because statements on classes take three times as long.
    insert = sqlite.insert if session.get_bind().dialect.name == "sqlite" else postgresql.insert
    statement = insert(rows).on_conflict_do_nothing(index_elements=unique).returning(*rows.primary_key)
    session.flush()
    identity: int | None = session.execute(statement, values).scalar()
    return identity


def insert_many(session: Session, table: type[SQLModel], values: Sequence[Mapping[str, Any]]) -> None:
    """Insert many rows, which must all have the same columns."""
    if values:
        session.flush()
        _insert_all(session.connection(), inspect(table).local_table, values)


def insert_many_or_ignore(
    session: Session, table: type[SQLModel], unique: Sequence[str], values: Sequence[Mapping[str, Any]]
) -> list[int | None]:
    """Insert many rows and return their ids, with None for each row that already exists.

    The rows must all have the same columns, and differ in the unique columns. The ids are reserved first: a
    statement that returned them would take ten times as long on SQLite.
    """
    if not values:
        return []
    rows = inspect(table).local_table
    key = rows.primary_key.columns[0]
    session.flush()
    ids = [*reserve_ids(session, table, len(values))]
    new = [{key.name: number, **row} for number, row in zip(ids, values, strict=True)]
    if _insert_all(session.connection(), rows, new, unique) == len(new):
        return [*ids]
    inserted = set(session.execute(select(key).where(in_array(session, key, ids))).scalars())
    return [number if number in inserted else None for number in ids]


@contextmanager
def storing_unique(session: Session, error: Exception) -> Iterator[None]:
    """Flush the changes of the block. Raise `error` if another row has the same unique value.

    Another transaction may have stored the value after this one had checked that it was free.
    """
    session.flush()
    try:
        with session.begin_nested():
            yield
    except IntegrityError as violation:
        if _is_duplicate(violation):
            raise error from None
        raise


def _is_duplicate(error: IntegrityError) -> bool:
    codes = sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY
    is_unique_violation = getattr(error.orig, "sqlstate", None) == "23505"
    return is_unique_violation or getattr(error.orig, "sqlite_errorcode", None) in codes


def _insert_all(
    connection: Connection, rows: Table, values: Sequence[Mapping[str, Any]], unique: Sequence[str] = ()
) -> int:
    """Insert rows, except those whose `unique` columns already exist. Return the number of inserted rows.

    On PostgreSQL, this is one statement with an array for each column, because executing a statement takes
    longer than inserting a row. On SQLite, the driver gets tuples, because SQLAlchemy takes longer to
    convert a row than SQLite takes to insert it.
    """
    dialect = connection.dialect
    if dialect.name == "sqlite":
        columns = [column for column in rows.c if column.name in values[0] or column.default is not None]
        insert = sqlite.insert(rows)
        insert = insert.on_conflict_do_nothing(index_elements=unique) if unique else insert
        statement = insert.compile(dialect=dialect, column_keys=[column.name for column in columns])
        try:
            by_column = [_sqlite_values(column, values, dialect) for column in columns]
        except (OverflowError, TypeError, ValueError) as error:  # report it as SQLAlchemy does
            raise StatementError(str(error), str(statement), None, error) from error
        return connection.exec_driver_sql(str(statement), [*zip(*by_column, strict=True)]).rowcount
    columns = [rows.c[name] for name in values[0]]
    arrays = (_unnested(column, [row[column.name] for row in values]) for column in columns)
    selected = postgresql.insert(rows).from_select(columns, select(*arrays))
    selected = selected.on_conflict_do_nothing(index_elements=unique) if unique else selected
    return connection.execute(selected).rowcount


def _unnested(column: Column[Any], values: Sequence[Any]) -> ColumnElement[Any]:
    """Return an expression that turns a column's values into rows.

    JSON is sent as text, because PostgreSQL would read an array of lists as a two-dimensional array.
    """
    if isinstance(column.type, CompressedJson):
        return func.unnest(literal([*map(compressed_json.dump, values)], postgresql.ARRAY(LargeBinary)))
    if isinstance(column.type, JSON):
        texts = [json.dumps(value) for value in values]
        return cast(func.unnest(literal(texts, postgresql.ARRAY(Text))), column.type)
    return func.unnest(literal(values, postgresql.ARRAY(column.type)))


def _sqlite_values(column: Column[Any], rows: Sequence[Mapping[str, Any]], dialect: Dialect) -> list[Any]:
    """Return a column's values, or its default, as SQLite stores them. Convert equal values only once."""
    values: list[Any]
    if column.name in rows[0]:
        values = [row[column.name] for row in rows]
    else:
        default: Any = column.default
        values = [default.arg(None) if default.is_callable else default.arg for _ in rows]
    convert = column.type.dialect_impl(dialect).bind_processor(dialect)
    if convert is None:
        return values
    if isinstance(column.type, JSON | CompressedJson):  # not hashable
        return [*map(convert, values)]
    converted = {value: convert(value) for value in {*values}}
    return [converted[value] for value in values]


def reserve_ids(session: Session, table: type[SQLModel], count: int) -> Iterator[int]:
    """Return `count` ids for new rows, so that rows that refer to each other can be inserted in bulk.

    On SQLite, this needs a `write` session, and the ids are reserved until its transaction ends.
    """
    if not count:
        return iter(())
    key = inspect(table).local_table.primary_key.columns[0]
    if session.get_bind().dialect.name == "sqlite":
        skipped = last_id(session.connection(), key.table.name)
        last = max(session.execute(select(func.max(key))).scalar() or 0, skipped)
        return iter(range(last + 1, last + 1 + count))
    sequence = func.pg_get_serial_sequence(key.table.name, key.name)
    ids = select(func.nextval(sequence)).select_from(func.generate_series(1, count))
    return iter(session.execute(ids).scalars().all())


def last_id(connection: Connection, table: str) -> int:
    """Return the last id of a table's sequence, or 0. Without AUTOINCREMENT, rows may have higher ids.

    On SQLite, sqlite_sequence stores the highest id that was ever used (with AUTOINCREMENT), or the last id
    to skip after a restore.
    """
    if connection.dialect.name == "sqlite":
        last = text("SELECT seq FROM sqlite_sequence WHERE name = :table")
    else:
        last = text("SELECT pg_sequence_last_value(pg_get_serial_sequence(:table, 'id'))")
    return connection.execute(last, {"table": table}).scalar() or 0


def set_last_id(connection: Connection, table: str, last: int) -> None:
    """Set the last id of a table's sequence, at least 1, so that the next row gets a higher one.

    On SQLite, `reserve_ids` reads this row for tables without AUTOINCREMENT, too, such as that of papers.
    """
    values = {"table": table, "last": last}
    if connection.dialect.name == "sqlite":
        connection.execute(text("DELETE FROM sqlite_sequence WHERE name = :table"), values)
        connection.execute(text("INSERT INTO sqlite_sequence (name, seq) VALUES (:table, :last)"), values)
    else:
        connection.execute(text("SELECT setval(pg_get_serial_sequence(:table, 'id'), :last)"), values)
