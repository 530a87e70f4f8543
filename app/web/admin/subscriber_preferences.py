"""Change a subscriber's preferences, with the form and the checks of the subscriber's own page."""

from typing import Annotated, Unpack

from fastapi import APIRouter, Depends, Response

from app import subscribers
from app.errors import Conflict
from app.storage.models import Subscriber, SubscriberState
from app.web import forms, paper_cards, preferences_merge
from app.web.admin.double_clicks import AdminRoute
from app.web.admin.sign_in import FormOutcome, Operator, Reader, Writer, back_to
from app.web.api.auth import Id
from app.web.forms import PreferencesForm

router = APIRouter(include_in_schema=False, route_class=AdminRoute)

PATH = "/admin/subscribers/{subscriber_id}/preferences"


@router.get(PATH)
def show_preferences(operator: Reader, subscriber_id: Id) -> Response:
    return _page(operator, subscriber_id)


@router.post(PATH)
def change_preferences(
    operator: Writer,
    subscriber_id: Id,
    form: Annotated[PreferencesForm, Depends(forms.preferences_form)],
) -> Response:
    """Store the changed preferences, and record their names. Do not notify the subscriber."""
    with operator.db.write() as session:
        subscriber = subscribers.get_for_update(session, subscriber_id)
        _require_preferences(subscriber)
        before = subscribers.preferences_of(session, subscriber)
        form, _ = preferences_merge.save(session, subscriber_id, form, operator.now)
        changed = subscribers.changed_fields(before, subscribers.preferences_of(session, subscriber))
        if changed:
            operator.record(session, "subscriber.change", subscriber_id, changed=changed)
    if form.is_refused:
        return _page(operator, subscriber_id, form, status=422)
    return back_to(f"/admin/subscribers/{subscriber_id}", "preferences")


def _page(
    operator: Operator,
    subscriber_id: int,
    form: PreferencesForm | None = None,
    **outcome: Unpack[FormOutcome],
) -> Response:
    with operator.db.read() as session:
        subscriber = subscribers.get(session, subscriber_id)
        _require_preferences(subscriber)
        stored = subscribers.preferences_of(session, subscriber)
    form = form or forms.filled_form(stored, operator.settings.max_interests)
    return operator.page(
        "admin/subscriber_preferences.html", subscriber=subscriber, form=form,
        amounts=forms.AMOUNT_OPTIONS, zones=forms.zones(),
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
