"""Record the changes that operators make, with the name of the API key they used, or `cli`.

Automatic pauses of all sending are recorded, too.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import func, update
from sqlmodel import Session, col, delete, select

from app.storage import figure_cache, idempotency_keys
from app.storage.database import execute_and_count
from app.storage.models import AuditEntry, SendingPause

PRUNING_BATCH = 5_000  # entries that one transaction deletes
ERASED = "erased"
SENDING_PAUSED = "sending.pause"
SENDING_RESUMED = "sending.resume"  # by an operator, who has seen the complaints: see app.bounces.rates
PAUSE_ENDED = "sending.pause_ended"  # by the import that began the pause, because it added nobody

# The words for each action, which complete a sentence that begins with the actor.
ACTIONS = {
    "delivery.confirm_arrival": "recorded an uncertain email as sent",
    "delivery.resend": "sent an uncertain email again",
    "digest.test": "sent a test digest",
    "edition.cancel": "cancelled the unsent emails of an edition",
    "edition.confirm_uncertain": "recorded uncertain emails as sent",
    "edition.hold": "held an edition until it is approved",
    "edition.resend_uncertain": "sent uncertain emails again",
    "edition.retry_failed": "sent failed digests again",
    "key.create": "created a key",
    "key.revoke": "revoked a key",
    "key.rotate": "replaced a key",
    "merge.undo": "undid a merge of papers",
    "model.train": "trained a model",
    "operator.sign_in": "signed in with a link from an email",
    "paper.edit": "edited a paper",
    "paper.hide": "hid a paper",
    "paper.merge": "merged papers",
    "paper.pin": "pinned a paper",
    "paper.reinstate": "reinstated a withdrawn paper",
    "paper.show": "showed a hidden paper again",
    "paper.split": "split a paper",
    "paper.unpin": "unpinned a paper",
    SENDING_PAUSED: "paused sending",
    PAUSE_ENDED: "ended the pause of an import that added nobody",
    SENDING_RESUMED: "resumed sending",
    "source.add": "added a source",
    "source.change": "changed a source",
    "source.pause": "paused a source",
    "source.refresh": "polled a source",
    "source.remove": "removed a source",
    "source.resume": "resumed a source",
    "subscriber.add": "added a subscriber",
    "subscriber.change": "changed a subscriber’s preferences",
    "subscriber.delete_feedback": "deleted a subscriber’s feedback",
    "subscriber.erase": "erased a subscriber",
    "subscriber.import": "imported subscribers",
    "subscriber.new-links": "sent a subscriber new links",
    "subscriber.pause": "paused a subscriber",
    "subscriber.replace_address": "changed a subscriber’s address",
    "subscriber.request_address": "asked to confirm a subscriber’s new address",
    "subscriber.resume": "resumed a subscriber",
    "subscriber.unsubscribe": "unsubscribed a subscriber",
    "suppression.add": "suppressed an address",
    "suppression.lift": "lifted a suppression",
    "webhook.add": "added a webhook",
    "webhook.change": "changed a webhook",
    "webhook.disable": "disabled a webhook",
    "webhook.enable": "enabled a webhook",
    "webhook.remove": "removed a webhook",
    "webhook.resend": "sent failed events of a webhook again",
    "webhook.rotate": "replaced the secret of a webhook",
    "webhook.test": "sent a test event to a webhook",
}

# Changes that affect no figure in `figure_cache`, such as signing in before an operator opens the overview.
_WITHOUT_FIGURES = ("key.", "model.", "operator.", "source.", "webhook.")

# The details that are times, in the ISO format with an offset.
_TIMES = ("pinned_until", "previously", "hidden_since")


def record(session: Session, actor: str, action: str, subject: object, now: datetime, **detail: Any) -> None:
    """Record a change in the transaction that makes it, so that both are committed or neither is.

    Also mark the request that makes the change as carried out, if it has an idempotency key. Raise Conflict
    if another attempt at this request has taken over, or ValueError if ACTIONS does not describe the action.
    After the commit, count figures again that the change may affect.
    """
    if action not in ACTIONS:
        raise ValueError(f"ACTIONS has no description of the action “{action}”: add one")
    idempotency_keys.note_change(session, str(subject))
    if not action.startswith(_WITHOUT_FIGURES):
        session.info[figure_cache.CHANGED] = True
    session.add(AuditEntry(at=now, actor=actor, action=action, subject=str(subject), detail=detail))


def describe(action: str) -> str:
    """Return the description of an action, or its name if only an earlier release recorded it."""
    return ACTIONS.get(action, action)


def describe_details(detail: Mapping[str, Any]) -> str:
    """Return the details of a change for display, with times to the minute. Leave out empty details."""
    values = {
        name.replace("_", " "): _describe_time(value) if name in _TIMES else _describe_value(value)
        for name, value in detail.items()
    }
    return ", ".join(f"{name}: {text}" for name, text in values.items() if text)


def _describe_value(value: Any) -> str:
    """Return a JSON value as text. The fields of an object follow their names."""
    if isinstance(value, Mapping):
        fields = {name.replace("_", " "): _describe_value(field) for name, field in value.items()}
        return ", ".join(f"{name} “{text}”" if text else f"no {name}" for name, text in fields.items())
    if isinstance(value, list):
        return ", ".join(map(_describe_value, value))
    return "" if value is None else str(value)


def _describe_time(value: str | None) -> str:
    return f"{datetime.fromisoformat(value).astimezone(UTC):%Y-%m-%d %H:%M} UTC" if value else ""


def last_time(session: Session, action: str, subject: str) -> datetime | None:
    """Return the time at which a change was last made, or None if it was never made."""
    conditions = col(AuditEntry.action) == action, col(AuditEntry.subject) == subject
    return session.exec(select(func.max(AuditEntry.at)).where(*conditions)).one()


def erase_details(session: Session, subscriber_id: int, address_hash: str) -> None:
    """Delete the details in entries about a subscriber, and the stored responses about the subscriber.

    Keep the actor, the action and the time.
    """
    of_subscriber = col(AuditEntry.action).startswith("subscriber.") | (
        col(AuditEntry.action) == "digest.test"
    )
    by_id = update(AuditEntry).where(col(AuditEntry.subject) == str(subscriber_id), of_subscriber)
    unsynced = {"synchronize_session": False}  # erasing a subscriber does not read the audit log
    session.execute(by_id.values(detail={}), execution_options=unsynced)
    idempotency_keys.erase_responses(session, str(subscriber_id), address_hash)
    by_hash = update(AuditEntry).where(col(AuditEntry.subject) == address_hash)
    session.execute(by_hash.values(subject=ERASED, detail={}), execution_options=unsynced)


def prune(session: Session, before: datetime) -> int:
    """Delete a batch of the entries before `before`, except those since the oldest current pause of sending.

    The doctor reads the latter. Return the number of entries; call this again until it is 0.
    """
    oldest_pause = session.exec(select(func.min(SendingPause.since))).one()
    before = min(before, oldest_pause or before)
    oldest = select(AuditEntry.id).where(AuditEntry.at < before).order_by(col(AuditEntry.at))
    batch = oldest.limit(PRUNING_BATCH)
    return execute_and_count(session, delete(AuditEntry).where(col(AuditEntry.id).in_(batch)))
