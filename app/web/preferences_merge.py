"""Store a preferences form, merged with what has changed since it was opened.

The subscriber may have changed preferences in another window or through links in an email, and an operator
may have changed them as well. A preference that was not changed in the form keeps its stored value. If a
preference was changed both in the form and elsewhere, nothing is stored until the form is submitted again.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlmodel import Session

from app import subscribers
from app.relevance.query_language import comparison_key
from app.subscribers import Preferences
from app.web import form_versions, forms
from app.web.forms import LABELS, PreferencesForm

# The fields of Preferences, keyed by the fields of the form.
_PREFERENCES = {name: "interests" if name == "rows" else name for name in LABELS}


def save(
    session: Session, subscriber_id: int, form: PreferencesForm, now: datetime
) -> tuple[PreferencesForm, list[str]]:
    """Store a form. Return it, and the names of the fields that were changed elsewhere since it was opened.

    If the form has errors or conflicts with these changes, store nothing, and return the form with the reason
    and with the current values of all fields that were not changed in it. The row is locked, so that words
    muted and authors followed at the same time are not overwritten.
    """
    stored = subscribers.preferences_of(session, subscribers.get_for_update(session, subscriber_id))
    current = forms.filled_form(stored, form.max_interests)
    if not form.original_texts and not form.versions:  # the original contents of the form are unknown
        form = replace(form, original_texts=current.original_texts)
    versions = form_versions.versions_of(_without_additions(current, form).values)
    seen = versions | form.versions
    edits = form_versions.edits(form.values, seen)
    merged_form = _merge(current, form, edits)
    chosen = merged_form.to_preferences()
    merged = replace(stored, **{_PREFERENCES[name]: getattr(chosen, _PREFERENCES[name]) for name in edits})
    differing = _differing_fields(merged, stored)
    if conflicts := [name for name in edits if name in differing and versions[name] != seen[name]]:
        conflict = form_versions.describe_conflicts(LABELS[name] for name in conflicts)
        conflict += " Interests and muted words added elsewhere are kept."
        return replace(merged_form, conflict=conflict), []
    if problems := subscribers.problems(merged, current.max_interests, current.original_texts):
        return replace(merged_form, problems=problems), []
    subscribers.change(session, subscriber_id, merged, now)
    differing = _differing_fields(form.to_preferences(), stored)
    return form, [name for name in differing if current.versions[name] != seen[name]]


def _merge(current: PreferencesForm, form: PreferencesForm, edits: Mapping[str, str]) -> PreferencesForm:
    """Return the current form with the typed values of `edits`.

    Edited interests and muted words are followed by those that were added elsewhere since `form` was opened.
    """
    typed: dict[str, Any] = {name: getattr(form, name) for name in edits}
    if "rows" in edits:
        in_form = {*map(comparison_key, [*form.original_texts, *(row.text for row in form.rows)])}
        added_rows = (row for row in current.rows if comparison_key(row.text) not in in_form)
        typed["rows"] = (*form.rows, *added_rows)
    if "muted" in edits:
        lines = form.muted.splitlines()
        in_form = {*map(comparison_key, [*form.original_texts, *lines])}
        added = [text for text in current.muted.splitlines() if comparison_key(text) not in in_form]
        typed["muted"] = "\n".join([*lines, *added])
    return replace(current, **typed)


def _without_additions(current: PreferencesForm, form: PreferencesForm) -> PreferencesForm:
    """Return the current form without the interests and muted words that were not in `form` originally."""
    original = {*map(comparison_key, form.original_texts)}
    rows = tuple(row for row in current.rows if comparison_key(row.text) in original)
    muted = "\n".join(text for text in current.muted.splitlines() if comparison_key(text) in original)
    return replace(current, rows=rows, muted=muted)


def _differing_fields(preferences: Preferences, stored: Preferences) -> list[str]:
    """Return the names of the form's fields whose values differ, ignoring how they were typed."""
    one, other = subscribers.normalize_preferences(preferences), subscribers.normalize_preferences(stored)
    return [name for name, field in _PREFERENCES.items() if getattr(one, field) != getattr(other, field)]
