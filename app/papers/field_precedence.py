"""PURE. Decide which record supplies each field of a paper, and compute the content hash of a paper."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from app.types import PaperRecord, SourceKind

FIELDS = (
    "title",
    "abstract",
    "authors",
    "organization_names",
    "categories",
    "keywords",
    "tldr",
    "url",
    "pdf_url",
    "code_url",
    "project_url",
    "thumbnail_url",
)
WITHDRAWAL = "withdrawn"  # the name of the newest statement on withdrawal in `versions`: see `withdrawals`
SECOND_HAND = (SourceKind.PAGE, SourceKind.FEED)  # these garble formulas, so they only fill empty fields
_SOURCE_RANK = {
    SourceKind.PAGE: 0,
    SourceKind.FEED: 1,
    SourceKind.JSONL: 2,
    SourceKind.HUGGINGFACE: 3,
    SourceKind.ARXIV_FEED: 4,
    SourceKind.ARXIV: 5,
    SourceKind.ARXIV_OAI: 5,
}


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of a paper that records may change, and the version of each."""

    values: Mapping[str, Any]
    versions: Mapping[str, str]
    author_count: int = 0
    published_on: date | None = None
    withdrawn_at: datetime | None = None


def from_record(record: PaperRecord, kind: SourceKind, polled_source_id: int | None = None) -> Fields:
    """Return the fields of a record, each with a version derived from its date and kind of source.

    For a polled record, pass the id of its source. Its values take precedence over those of a file of the
    same kind and day.
    """
    values = {name: getattr(record, name) for name in FIELDS}
    values = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
    as_of = day_of(record)
    version = f"{0 if kind in SECOND_HAND else 1}.{as_of.isoformat()}.{_SOURCE_RANK[kind]}"
    if polled_source_id is not None:
        version += f".{polled_source_id:09d}"  # padded, because versions are compared as text
    versions = {name: version for name, value in values.items() if value}
    return Fields(values, versions, max(record.author_count, len(record.authors)), record.published_on)


def day_of(record: PaperRecord) -> date:
    """Return the day of a record's values, or the earliest possible day if the record has none."""
    return record.as_of or record.listed_on or record.published_on or date.min


def combine(a: Fields, b: Fields, *, is_poll: bool = False) -> Fields:
    """Combine two sets of fields. For each field, the newer non-empty value is used.

    If `is_poll`, `b` comes from the current poll and replaces a value of `a` with the same version, because
    the same source returned that value before. Otherwise, ties are broken by comparing the values, so the
    result does not depend on the order in which several sets are combined. The larger author count and the
    earlier publication date are used. The newer statement on withdrawal decides whether the paper is
    withdrawn.
    """
    values, versions = {}, {}
    for name in FIELDS:
        is_later = is_poll and name in b.versions and a.versions.get(name) == b.versions[name]
        newer = b if is_later or _is_superseded(a, b, name) else a
        values[name] = newer.values[name]
        if name in newer.versions:
            versions[name] = newer.versions[name]
    statement = max(each.versions.get(WITHDRAWAL, "") for each in (a, b))
    if statement:
        versions[WITHDRAWAL] = statement
    newest = [each for each in (a, b) if each.versions.get(WITHDRAWAL, "") == statement]
    withdrawn_at = min((each.withdrawn_at for each in newest if each.withdrawn_at), default=None)
    day = min((day for day in (a.published_on, b.published_on) if day), default=None)
    return Fields(values, versions, max(a.author_count, b.author_count), day, withdrawn_at)


def _is_superseded(a: Fields, b: Fields, name: str) -> bool:
    """Return whether the value of `b` takes precedence over that of `a`, or both values are the same."""
    versions = a.versions.get(name, ""), b.versions.get(name, "")
    if versions[0] != versions[1]:
        return versions[0] < versions[1]
    values = a.values[name], b.values[name]
    if values[0] == values[1]:
        return True
    first, second = (json.dumps(value) if value else "" for value in values)
    return first <= second


def content_hash(fields: Fields) -> str:
    """Return a hash of what subscribers see.

    Empty fields are left out, so adding a column does not change existing hashes.
    """
    filled = {name: value for name, value in fields.values.items() if value}
    filled |= {"author_count": fields.author_count, "published_on": str(fields.published_on)}
    return hashlib.sha256(json.dumps(filled, sort_keys=True).encode()).hexdigest()
