"""Edit the fields of a paper. An edited field keeps the operator's value (see `stored_fields`)."""

from collections.abc import Iterable, Mapping
from datetime import date, datetime
from typing import Any

from sqlmodel import Session

from app.errors import InvalidInput
from app.papers import paper_views, stored_fields
from app.storage.database import advisory_lock
from app.storage.models import Paper
from app.text import sanitize

TEXTS = {"title": sanitize.TITLE_CHARS, "abstract": sanitize.ABSTRACT_CHARS, "tldr": 1_000}  # characters
LINKS = ("url", "pdf_url", "code_url", "project_url")
EDITABLE = (*TEXTS, "authors", "published_on", *LINKS)
MAX_AUTHORS, MAX_NAME = 1_000, 200


def edit(session: Session, paper: Paper, changes: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """Set fields of a paper. None reverts an edit: the field gets its value from the sources again.

    A field that already has the value is not marked as edited, so polls can still change it. Return the old
    values of the fields whose value or edited mark changed. Raise InvalidInput for an invalid field or value.
    """
    advisory_lock(session, "archive")
    if unknown := [name for name in changes if name not in EDITABLE]:
        raise InvalidInput(f"“{unknown[0][:40]}” cannot be edited: choose one of {', '.join(EDITABLE)}")
    cleaned = {name: None if value is None else _clean(name, value) for name, value in changes.items()}
    session.refresh(paper)
    old_values = shown_values(paper, cleaned)
    edited_before = edited_fields(paper)
    for name, value in cleaned.items():
        if value is None:
            stored_fields.take_back_edit(paper, name)
        elif name in edited_before or not _has_value(paper, name, value):
            stored_fields.set_edit(paper, name, value)
    changed_edits = {*edited_before} ^ {*edited_fields(paper)}
    old_values = {
        name: value
        for name, value in old_values.items()
        if name in changed_edits or value != _shown(paper, name)
    }
    if old_values:
        paper.edited_at = now if paper.sourced else None
    if stored_fields.renew_hash(paper):
        paper.updated_at = now
    session.add(paper)
    return old_values


def shown_values(paper: Paper, names: Iterable[str]) -> dict[str, Any]:
    """Return the values of fields as subscribers see them, as JSON types."""
    return {name: _shown(paper, name) for name in names}


def edited_fields(paper: Paper) -> list[str]:
    """Return the names of the fields that an operator has edited."""
    return [name for name in EDITABLE if name in (paper.sourced or {})]


def _shown(paper: Paper, name: str) -> Any:
    """Return the value of a field as subscribers see it. Links to arXiv are not stored but computed."""
    if name in ("url", "pdf_url"):
        return paper_views.page_url(paper) if name == "url" else paper_views.pdf_url(paper)
    value = getattr(paper, name)
    return value.isoformat() if isinstance(value, date) else value


def _has_value(paper: Paper, name: str, value: Any) -> bool:
    """Return whether subscribers already see a value."""
    if name == "authors":
        return bool(paper.authors == value and paper.author_count == len(value))
    return bool(_shown(paper, name) == (value.isoformat() if isinstance(value, date) else value))


def _clean(name: str, value: Any) -> Any:
    """Return a value in its stored form. Raise InvalidInput if it is invalid for the field."""
    if name == "authors":
        return _clean_authors(value)
    if name == "published_on":
        try:
            return date.fromisoformat(str(value))
        except ValueError:
            raise InvalidInput("a day must have the form 2026-11-20", name) from None
    text = str(value).strip()
    if name in LINKS:
        if text and not sanitize.url(text):
            raise InvalidInput("a link must begin with http:// or https://", name)
        return sanitize.url(text)
    if len(text) > TEXTS[name]:
        raise InvalidInput(f"this field can have at most {TEXTS[name]} characters", name)
    cleaned = sanitize.one_line(text, TEXTS[name])
    if name == "title" and not cleaned:
        raise InvalidInput("a paper needs a title", name)
    return cleaned


def _clean_authors(value: Any) -> list[str]:
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        raise InvalidInput("the authors must be a list of names", "authors")
    names = [sanitize.one_line(name, MAX_NAME) for name in value]
    if len(names) > MAX_AUTHORS or not all(names):
        raise InvalidInput(f"there can be at most {MAX_AUTHORS} authors, each with a name", "authors")
    return names
