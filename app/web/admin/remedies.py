"""The buttons of the overview. Each calls the API operation that resolves a finding."""

from collections.abc import Callable
from typing import NamedTuple

from fastapi import BackgroundTasks

from app.delivery import ledger
from app.doctor.findings import RemedyAction
from app.errors import Conflict, NotFound
from app.storage.api_keys import Scope
from app.web.api import editions, keys, relevance_models, sources, webhooks
from app.web.api.auth import Caller
from app.web.form_versions import version_of


class Click(NamedTuple):
    """The arguments of a button's action: who pressed it, and the subject of the finding.

    `pause` is the version of the reason for a pause that the page showed.
    """

    operator: Caller
    subject: str
    later: BackgroundTasks
    pause: str

    @property
    def number(self) -> int:
        """Return the subject as an id. Raise NotFound if it is not an id."""
        if not (self.subject.isdecimal() and len(self.subject) < 10):
            raise NotFound("this button refers to something that does not exist: reload the page")
        return int(self.subject)


class Button(NamedTuple):
    """A button: its label, the scope that it needs, the message after it was pressed, and its action.

    If `press` returns a `keys.CreatedKey`, the page shows the key. `advice` is shown above the button instead
    of the finding's fix, which names a command with the same effect. If `advice` is None, the fix is shown.
    """

    label: str
    scope: Scope
    message: str
    press: Callable[[Click], object]
    advice: str | None = None


def end_pause(caller: Caller, scope: str, version: str) -> None:
    """Resume all sending or an edition. Raise NotFound if it is not paused.

    Raise Conflict if `version` is not "", and the reason for the pause has another version.
    """
    with caller.db.write() as session:
        reason = ledger.lock_pause(session, scope)
        if version and reason and version_of(reason) != version:
            raise Conflict(
                "Sending is still paused: the reason has changed since you opened the page. It is now: "
                f"{reason}. Open the page again, and resume if this no longer applies."
            )
        editions.end_pause(session, caller, scope)


FIRST_RELEASED = (
    "First digests are no longer held. Those that are due will be sent {timing.mails}, and the others "
    "when they are due, except to subscribers whose next digest is composed before that: they get only that "
    "one."
)
WAITING = (
    "Emails that are due will be sent {timing.mails}, and the others when they are due. Emails that the "
    "relay deferred will be sent at their next attempt."
)
AFTER_THE_REASON = "Resume sending when the reason no longer applies."
SAMPLE_FIRST = "Look at a sample first."
BUTTONS = {
    RemedyAction.POLL_SOURCE: Button(
        "Poll it now",
        Scope.WRITE,
        "The source is being polled. Reload the page in a moment to see the result.",
        lambda on: sources.refresh_source(on.operator, on.number, on.later),
    ),
    RemedyAction.RESUME_SOURCE: Button(
        "Resume it",
        Scope.WRITE,
        "Resumed. The source will be polled {timing.polls}.",
        lambda on: sources.resume_source(on.operator, on.number),
        "",
    ),
    RemedyAction.RESUME_SENDING: Button(
        "Resume all sending",
        Scope.SEND,
        "Sending is resumed. " + WAITING,
        lambda on: end_pause(on.operator, ledger.ALL_EDITIONS, on.pause),
        AFTER_THE_REASON,
    ),
    RemedyAction.SEND_FIRST_DIGESTS: Button(
        "Stop holding them",
        Scope.SEND,
        FIRST_RELEASED,
        lambda on: editions.resume_first_digests(on.operator),
        "Look at their digests first.",
    ),
    RemedyAction.RESUME_EDITION: Button(
        "Resume this edition",
        Scope.SEND,
        "The edition is resumed. " + WAITING,
        lambda on: end_pause(on.operator, on.subject, on.pause),
        AFTER_THE_REASON,
    ),
    RemedyAction.APPROVE_EDITION: Button(
        "Approve and send",
        Scope.SEND,
        "The edition is approved.",
        lambda on: end_pause(on.operator, on.subject, on.pause),
        SAMPLE_FIRST,
    ),
    RemedyAction.RETRY_FAILED: Button(
        "Send them again",
        Scope.SEND,
        "Failed digests will be sent again {timing.mails}, except those that may have arrived and those "
        "whose subscribers have a later digest or get no more digests.",
        lambda on: editions.retry_failed(on.operator, on.subject),
        "Look at the reasons on the edition’s page first.",
    ),
    RemedyAction.REPLACE_KEY: Button(
        "Replace it",
        Scope.WRITE,
        "",
        lambda on: keys.rotate_key(on.operator, on.number),
        "If the key is no longer used, revoke it on the Keys page.",
    ),
    RemedyAction.REVOKE_KEY: Button(
        "Revoke it",
        Scope.WRITE,
        "The key is revoked.",
        lambda on: keys.revoke_key(on.operator, on.number),
        "If the key is still used, create a new one.",
    ),
    RemedyAction.ENABLE_WEBHOOK: Button(
        "Enable it",
        Scope.WRITE,
        "The webhook is enabled.",
        lambda on: webhooks.change_webhook(on.operator, on.number, webhooks.WebhookChange(enabled=True)),
        "First find out why it failed.",
    ),
    RemedyAction.TRAIN_MODEL: Button(
        "Train a model",
        Scope.WRITE,
        "A model is being trained. The Runs page shows the result.",
        lambda on: relevance_models.train(on.operator, on.later),
        "",
    ),
}
