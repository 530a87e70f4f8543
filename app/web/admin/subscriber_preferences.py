"""Change a subscriber's preferences, with the form and the checks of the subscriber's own page.

What the subscriber or another operator changed since the form was shown stays, unless this operator changed
the same preference and saves the form twice.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Unpack

from fastapi import APIRouter, Depends, Form, Response

from app import subscribers
from app.errors import Conflict
from app.storage.models import Subscriber, SubscriberState
from app.subscribers import Preferences
from app.subscribers.event_labels import PREFERENCES
from app.web import forms, paper_cards
from app.web.admin import form_versions
from app.web.admin.double_clicks import AdminRoute
from app.web.admin.sign_in import FormOutcome, Operator, Reader, Writer, back_to
from app.web.api.auth import Id
from app.web.forms import PreferencesForm

router = APIRouter(include_in_schema=False, route_class=AdminRoute)

PATH = "/admin/subscribers/{subscriber_id}/preferences"
LABELS = {"rows" if name == "interests" else name: label for name, label in PREFERENCES.items()}


@router.get(PATH)
def show_preferences(operator: Reader, subscriber_id: Id) -> Response:
    return _page(operator, subscriber_id)


@router.post(PATH)
def change_preferences(
    operator: Writer,
    subscriber_id: Id,
    form: Annotated[PreferencesForm, Depends(forms.preferences_form)],
    seen: Annotated[list[str] | None, Form()] = None,
) -> Response:
    """Store the preferences that the operator changed, and record their names. Do not notify the subscriber.

    `seen` contains the versions of the values that the page showed. If a preference that the operator changed
    has another value by now, refuse the form once.
    """
    with operator.db.write() as session:
        subscriber = subscribers.get_for_update(session, subscriber_id)
        _require_preferences(subscriber)
        before = subscribers.preferences_of(session, subscriber)
        current = _without_additions(before, form, operator.settings.max_interests)
        stored = _values(current)
        versions = {**form_versions.versions_of(stored), **form_versions.parse(seen)}
        edits = form_versions.edits(_values(form), versions)
        conflicts = form_versions.conflicts(edits, stored, versions)
        unchanged = {name: getattr(current, name) for name in LABELS if name not in edits}
        problems = (
            {} if conflicts
            else forms.save_preferences(session, subscriber_id, replace(form, **unchanged), operator.now)
        )  # fmt: skip
        changed = subscribers.changed_fields(before, subscribers.preferences_of(session, subscriber))
        if changed:
            operator.record(session, "subscriber.change", subscriber_id, changed=changed)
    if conflicts:
        problem = form_versions.describe_conflicts(LABELS[name] for name in conflicts)
        return _page(operator, subscriber_id, form, versions | conflicts, problem=problem, status=422)
    if problems:
        return _page(operator, subscriber_id, replace(form, problems=problems), versions, status=422)
    return back_to(f"/admin/subscribers/{subscriber_id}", "preferences")


def _without_additions(stored: Preferences, form: PreferencesForm, max_interests: int) -> PreferencesForm:
    """Return the form for the stored preferences.

    Leave out interests and muted words that were added after `form` was opened.
    `forms.save_preferences` keeps these texts.
    """
    had = {*form.original_texts} or {*stored.muted, *(interest.text for interest in stored.interests)}
    interests = tuple(interest for interest in stored.interests if interest.text in had)
    muted = tuple(text for text in stored.muted if text in had)
    return forms.filled_form(replace(stored, interests=interests, muted=muted), max_interests)


def _values(form: PreferencesForm) -> dict[str, str]:
    return {name: str(getattr(form, name)) for name in LABELS}


def _page(
    operator: Operator,
    subscriber_id: int,
    form: PreferencesForm | None = None,
    versions: dict[str, str] | None = None,
    **outcome: Unpack[FormOutcome],
) -> Response:
    with operator.db.read() as session:
        subscriber = subscribers.get(session, subscriber_id)
        _require_preferences(subscriber)
        stored = subscribers.preferences_of(session, subscriber)
    form = form or forms.filled_form(stored, operator.settings.max_interests)
    return operator.page(
        "admin/subscriber_preferences.html", subscriber=subscriber, form=form,
        versions=versions or form_versions.versions_of(_values(form)), amounts=forms.AMOUNT_OPTIONS,
        zones=forms.zones(),
        suggestions=paper_cards.suggestions(operator.request, limit=40), **outcome,
    )  # fmt: skip


def _require_preferences(subscriber: Subscriber) -> None:
    """Raise Conflict if the subscriber was erased, or has not confirmed the sign-up.

    Confirming would replace a change with the choices of the sign-up.
    """
    if subscriber.state is SubscriberState.PENDING:
        raise Conflict(
            "This subscriber has not confirmed the sign-up yet. You can change the preferences after that."
        )
    if subscriber.state is SubscriberState.ERASED:
        raise Conflict("This subscriber was erased.")
