"""Read and write the fields of a row, as its sources give them and as subscribers see them.

The columns hold what subscribers see. For each field that an operator has edited, `Paper.sourced` holds the
value from the sources. Polls continue to update that value, which also serves to recognize duplicates and to
revert the edit.
"""

from datetime import date
from typing import Any

from app.papers import field_precedence
from app.papers.field_precedence import Fields
from app.papers.title_normalization import title_end, title_key
from app.storage.models import Paper


def read_fields(paper: Paper) -> Fields:
    """Return the fields of a row as its sources give them, without an operator's edits."""
    sourced = paper.sourced or {}
    values = {name: sourced.get(name, getattr(paper, name)) for name in field_precedence.FIELDS}
    published_on = paper.published_on
    if "published_on" in sourced:
        published_on = _day(sourced["published_on"])
    author_count = sourced.get("author_count", paper.author_count)
    return Fields(values, paper.versions, author_count, published_on, paper.withdrawn_at)


def write_fields(paper: Paper, new: Fields) -> bool:
    """Set the fields that differ, except edited fields. Return whether subscribers can see a difference."""
    sourced = dict(paper.sourced or {})
    values = {**new.values, "author_count": new.author_count, "published_on": new.published_on}
    for name, value in values.items():
        if name in sourced:
            sourced[name] = value.isoformat() if isinstance(value, date) else value
        elif getattr(paper, name) != value:
            setattr(paper, name, value)
    if sourced != (paper.sourced or {}):
        paper.sourced = sourced
    if paper.versions != new.versions:
        paper.versions = dict(new.versions)
    if paper.withdrawn_at != new.withdrawn_at:
        paper.withdrawn_at = new.withdrawn_at
    return renew_hash(paper)


def renew_hash(paper: Paper) -> bool:
    """Update the content hash and the title key of a row. Return whether subscribers can see a difference."""
    values = {name: getattr(paper, name) for name in field_precedence.FIELDS}
    visible = Fields(values, paper.versions, paper.author_count, paper.published_on)
    content_hash = field_precedence.content_hash(visible)
    changed = paper.content_hash != content_hash
    if changed or paper.sourced:
        paper.content_hash, paper.title_key = content_hash, title_key(sourced_title(paper))
        paper.title_end = title_end(paper.title_key)
    return changed


def sourced_title(paper: Paper) -> str:
    """Return the title that the sources give. Duplicates are recognized by this title."""
    return str((paper.sourced or {}).get("title", paper.title))


def set_edit(paper: Paper, name: str, value: Any) -> None:
    """Set a field to the operator's value, which polls do not change. `authors` also sets `author_count`."""
    sourced = dict(paper.sourced or {})
    for column, edited in {
        name: value,
        **({"author_count": len(value)} if name == "authors" else {}),
    }.items():
        before = getattr(paper, column)
        sourced.setdefault(column, before.isoformat() if isinstance(before, date) else before)
        setattr(paper, column, edited)
    paper.sourced = sourced


def take_back_edit(paper: Paper, name: str) -> None:
    """Reset a field that an operator has edited to the value from the sources."""
    sourced = dict(paper.sourced or {})
    for column in (name, *(("author_count",) if name == "authors" else ())):
        if column in sourced:
            value = sourced.pop(column)
            setattr(paper, column, _day(value) if column == "published_on" else value)
    paper.sourced = sourced or None


def _day(stored: str | None) -> date | None:
    return date.fromisoformat(stored) if stored else None
