"""Column types that store the same values on SQLite and on PostgreSQL."""

from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import BigInteger, DateTime, Dialect, Enum, Integer, LargeBinary, String
from sqlalchemy.types import TypeDecorator, TypeEngine

from app.storage import compressed_json

# SQLite autoincrements only keys declared INTEGER, but PostgreSQL's INTEGER has only 32 bits.
BigId = BigInteger().with_variant(Integer, "sqlite")


class UtcDateTime(TypeDecorator[datetime]):
    """A column type for aware datetimes, in UTC on every backend. Naive datetimes raise ValueError."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"the datetime {value} has no time zone: pass an aware datetime")
        value = value.astimezone(UTC)
        return value.replace(tzinfo=None) if dialect.name == "sqlite" else value

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class CompressedJson(TypeDecorator[Any]):
    """A column type for large JSON values. See `compressed_json`."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> bytes:
        return compressed_json.dump(value)

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> Any:
        return None if value is None else compressed_json.load(value)


def sqlite_timestamp(moment: datetime) -> str:
    """Return the text that SQLite stores for a datetime in UTC, for statements that bypass `UtcDateTime`."""
    return moment.isoformat(" ", "microseconds")[:26]


def enum_type(kind: type[StrEnum]) -> Enum:
    """Return a column type that stores the values of a StrEnum as text with a CHECK constraint."""
    return Enum(
        kind,
        native_enum=False,
        create_constraint=True,
        name=kind.__name__.lower(),
        length=20,
        values_callable=lambda members: [member.value for member in members],
    )


def bytewise_text(length: int) -> TypeEngine[str]:
    """Return a text type that compares byte by byte, so that an index can find texts by prefix."""
    return String(length).with_variant(String(length, collation="C"), "postgresql")
