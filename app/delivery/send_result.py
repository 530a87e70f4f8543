"""PURE. The result of an attempt to send an email to the relay."""

from enum import StrEnum
from typing import NamedTuple


class SendOutcome(StrEnum):
    """The outcome of one attempt to send an email to the relay."""

    ACCEPTED = "accepted"
    DEFERRED = "deferred"  # a temporary refusal, or the connection broke before the body was sent
    THROTTLED = "throttled"  # a temporary refusal of all our emails by the receiver
    HARD_BOUNCE = "hard_bounce"  # the mailbox does not exist
    SOFT_BOUNCE = "soft_bounce"  # this email was refused, because of its recipient; the address may be valid
    MAILBOX_FULL = "mailbox_full"  # also a soft bounce
    SENDER_REJECTED = "sender_rejected"  # the relay refuses us as a sender, for any recipient
    SENDER_REJECTION_SUSPECTED = "sender_rejection_suspected"  # may be about us, or this recipient or email
    CONTENT_REFUSED = "content_refused"  # about this email or us, so it does not count against the address
    UNCERTAIN = "uncertain"  # the connection broke after we began to send the body
    UNREACHABLE = "unreachable"  # no connection to the relay was possible
    UNSENDABLE = "unsendable"  # the email cannot be composed, or this relay cannot carry it
    WITHDRAWN = "withdrawn"  # no longer sendable when its turn came
    NOT_ATTEMPTED = "not_attempted"  # the run stopped before its turn


class SendResult(NamedTuple):
    """The outcome of an attempt, with the relay's reply."""

    outcome: SendOutcome
    code: int | None = None
    text: str = ""
