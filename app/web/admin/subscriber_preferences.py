"""Change a subscriber's preferences, with the form and the checks of the subscriber's own page."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Depends, Response

from app import clock, subscribers
from app.errors import Conflict
from app.storage import audit_log
from app.storage.models import Subscriber, SubscriberState
from app.web import forms
from app.web.admin.sign_in import Operator, Reader, Writer, back_to
from app.web.api.auth import Id
from app.web.forms import PreferencesForm
from app.web.request_bodies import FormRoute

router = APIRouter(include_in_schema=False, route_class=FormRoute)

PATH = "/admin/subscribers/{subscriber_id}/preferences"


@router.get(PATH)
def show_preferences(operator: Reader, subscriber_id: Id) -> Response:
    return _page(operator, subscriber_id)


@router.post(PATH)
def change_preferences(
    operator: Writer, subscriber_id: Id, form: Annotated[PreferencesForm, Depends(forms.preferences_form)]
) -> Response:
    """Replace the preferences. Record the names of those that changed. The subscriber is not notified."""
    now = clock.utcnow()
    with operator.app.db.write() as session:
        subscriber = subscribers.get_for_update(session, subscriber_id)
        _require_preferences(subscriber)
        before = subscribers.preferences_of(session, subscriber)
        problems = forms.save_preferences(session, subscriber_id, form, now)
        changed = subscribers.changed_fields(before, subscribers.preferences_of(session, subscriber))
        if changed:
            audit_log.record(
                session, operator.key.name, "subscriber.change", subscriber_id, now, changed=changed
            )
    if problems:
        return _page(operator, subscriber_id, replace(form, problems=problems), status=422)
    return back_to(f"/admin/subscribers/{subscriber_id}", "preferences")


def _page(
    operator: Operator, subscriber_id: int, form: PreferencesForm | None = None, *, status: int = 200
) -> Response:
    now = clock.utcnow()
    with operator.app.db.read() as session:
        subscriber = subscribers.get(session, subscriber_id)
        _require_preferences(subscriber)
        stored = subscribers.preferences_of(session, subscriber)
    return operator.page(
        "admin/subscriber_preferences.html", subscriber=subscriber,
        form=form or forms.filled_form(stored, operator.app.settings.max_interests),
        amounts=forms.AMOUNT_OPTIONS, zones=forms.zones(),
        suggestions=operator.request.app.state.suggestions.matching("", now, 40), status=status,
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
