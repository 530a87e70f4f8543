"""subscribers why, and explain without a paper: show a subscriber's latest emails and events."""

from datetime import datetime

from app import clock, pipeline, subscribers
from app.cli import output
from app.delivery import ledger, suppression
from app.storage.models import Event, Subscriber, SubscriberState, Suppression
from app.subscribers import event_labels
from app.types import Skip

MAILS_SHOWN, EVENTS_SHOWN = 20, 10
_MAIL_FIELDS = {
    "id",
    "kind",
    "edition",
    "state",
    "reason",
    "subject",
    "attempts",
    "smtp_text",
    "due_at",
    "sent_at",
}
_EVENT_FIELDS = {"at", "kind", "delivery_id", "detail"}


def print_history(subscriber: str, *, as_json: bool) -> None:
    """Print a subscriber's state, the papers that they would get now, and their latest emails and events."""
    now = clock.utcnow()
    with output.open_application(needs_secret=False) as app:
        with app.db.read() as session:
            row = subscribers.find(session, subscriber)
            suppressed = suppression.get(session, row.email)
            mails = subscribers.mails(session, row.id or 0, MAILS_SHOWN)
            reasons = ledger.reasons_by_delivery(session, mails)
            events = subscribers.events(session, row.id or 0, EVENTS_SHOWN)
        (preview,) = pipeline.preview_due(app, now, [row.id or 0])
    would_get = (
        f"nothing: {preview.digest.reason}"
        if isinstance(preview.digest, Skip)
        else "; ".join(item.title for item in preview.digest.picks)
    )
    if as_json:
        output.print_json(
            {
                "id": row.id,
                "email": row.email,
                "state": row.state,
                "next_due_at": row.next_due_at,
                "suppressed": suppressed.reason if suppressed else None,
                "obstacle": _obstacle(row, suppressed) or None,
                "now": output.digest_object(preview.digest),
                "mails": [
                    mail.model_dump(mode="json", include=_MAIL_FIELDS) | {"reason": reasons[mail.id or 0]}
                    for mail in mails
                ],
                "events": [event.model_dump(mode="json", include=_EVENT_FIELDS) for event in events],
            }
        )
        return
    state = f"{row.state} until {output.format_time(row.paused_until)}" if row.paused_until else row.state
    facts = [("state", state), ("next digest", output.format_time(row.next_due_at))]
    if suppressed:
        since = output.format_time(suppressed.since)
        facts.append(("suppressed", f"since {since}: {suppressed.reason}"))
    if obstacle := _obstacle(row, suppressed):
        facts = [("now", f"nothing is sent: {obstacle}"), *facts, ("otherwise", would_get)]
    else:
        facts.append(("now", would_get))
    output.table([f"subscriber {row.id}", row.email], facts)
    rows = [(mail.due_at, mail.edition, mail.state, reasons[mail.id or 0] or mail.subject) for mail in mails]
    if rows:
        output.table(["due", "edition", "state", "reason or subject"], rows, title="\nEmails, newest first")
    if events:
        output.table(["at", "event", "detail"], map(_describe_event, events), title="\nEvents, newest first")


def _describe_event(event: Event) -> tuple[datetime, str, str]:
    detail = event_labels.name_detail(event.kind, event.detail)
    return event.at, event_labels.name_event(event.kind), detail


def _obstacle(row: Subscriber, suppressed: Suppression | None) -> str:
    """Return the reason why a subscriber gets no digests at all, or ""."""
    if suppressed:
        return f"the address is suppressed (to lift it: `paperboy suppressions lift {row.email} --reason …`)"
    return "" if row.state is SubscriberState.ACTIVE else f"the subscription is {row.state}"
