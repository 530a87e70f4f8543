"""Store a preferences form, merged with what has changed since it was opened.

The subscriber may have changed preferences in another window or through links in an email, and an operator
may have changed them as well. A preference that was not changed in the form keeps its stored value. If a
preference was changed both in the form and elsewhere, nothing is stored until the form is submitted again.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from sqlmodel import Session

from app import subscribers
from app.subscribers import Preferences
from app.web import form_versions, forms
from app.web.forms import LABELS, PreferencesForm


def save(
    session: Session, subscriber_id: int, form: PreferencesForm, now: datetime
) -> tuple[PreferencesForm, list[str]]:
    """Store a form. Return it, and the names of the fields that were changed elsewhere since it was opened.

    If the form has errors or conflicts with these changes, store nothing, and return it with the reason. The
    row is locked, so that words muted and authors followed at the same time are not overwritten.
    """
    stored = subscribers.preferences_of(session, subscribers.get_for_update(session, subscriber_id))
    current = _without_additions(stored, form)
    form = replace(form, versions=form_versions.versions_of(current.values) | form.versions)
    edits = form_versions.edits(form.values, form.versions)
    if conflicts := form_versions.conflicts(edits, current.values, form.versions):
        conflict = form_versions.describe_conflicts(LABELS[name] for name in conflicts)
        return replace(form, versions=form.versions | conflicts, conflict=conflict), []
    unchanged = {name: getattr(current, name) for name in LABELS if name not in edits}
    merged = with_additions(replace(form, **unchanged).to_preferences(), stored, form)
    most = max(form.max_interests, len(stored.interests))
    texts = [*(interest.text for interest in stored.interests), *stored.muted]
    if problems := subscribers.problems(merged, most, texts):
        return replace(form, problems=problems), []
    subscribers.change(session, subscriber_id, merged, now)
    values = forms.filled_form(stored, most).values
    changed = form_versions.edits(values, form.versions)
    differing = form_versions.edits(values, form_versions.versions_of(form.values))
    return form, [name for name in LABELS if name in changed and name in differing]


def with_additions(preferences: Preferences, stored: Preferences, form: PreferencesForm) -> Preferences:
    """Return preferences, plus the interests and muted words that were added since `form` was opened."""
    if not form.original_texts:  # the original contents of the form are unknown
        return preferences
    in_form = {*form.original_texts, *(item.text for item in preferences.interests), *preferences.muted}
    interests = (item for item in stored.interests if item.text not in in_form)
    muted = (text for text in stored.muted if text not in in_form)
    return replace(
        preferences,
        interests=(*preferences.interests, *interests),
        muted=(*preferences.muted, *muted),
    )


def _without_additions(stored: Preferences, form: PreferencesForm) -> PreferencesForm:
    """Return the form for stored preferences, without what `with_additions` adds to `form`."""
    had = {*form.original_texts} or {*stored.muted, *(interest.text for interest in stored.interests)}
    interests = tuple(interest for interest in stored.interests if interest.text in had)
    muted = tuple(text for text in stored.muted if text in had)
    return forms.filled_form(replace(stored, interests=interests, muted=muted), form.max_interests)
