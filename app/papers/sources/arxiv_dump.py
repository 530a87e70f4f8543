"""PURE. arXiv's monthly metadata dump, a JSON-lines file."""

from collections.abc import Sequence
from email.utils import parsedate_to_datetime
from typing import Any


def is_row(row: dict[str, Any]) -> bool:
    """Return whether a row of a JSON-lines file is from the dump."""
    return "authors_parsed" in row


def as_paper(row: dict[str, Any]) -> dict[str, Any]:
    """Convert a row of the dump to a row of `jsonl`.

    The row gets no listing day, so that millions of earlier papers are not mistaken for new ones.
    """
    versions = row.get("versions")
    first = versions[0] if isinstance(versions, list) and versions else None
    categories = row.get("categories")
    return row | {
        "authors": [name for parts in _list(row["authors_parsed"]) if (name := author_name(_list(parts)))],
        "categories": categories.split() if isinstance(categories, str) else categories,
        "comment": row.get("comments"),
        "comments": None,  # the dump has the authors' comments here
        "published_on": _mail_date(first.get("created") if isinstance(first, dict) else None),
        "date": None,
        "listed_on": None,
    }


def author_name(parts: Sequence[Any]) -> str:
    """Return an author's full name from the surname, first names and suffix."""
    surname, first, suffix = ([part if isinstance(part, str) else "" for part in parts] + [""] * 3)[:3]
    return " ".join(filter(None, (first, surname, suffix)))


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _mail_date(value: object) -> str:
    """Return a date such as "Mon, 2 Apr 2007 19:18:42 GMT" as an ISO day, or ""."""
    try:
        return parsedate_to_datetime(value).date().isoformat() if isinstance(value, str) else ""
    except (ValueError, OverflowError):
        return ""
