"""The exceptions that Paperboy raises deliberately. An exception's docstring is its default message.

PaperboyError
├── InvalidInput            unusable input; the message says what to change
│   ├── InvalidInterest
│   ├── InvalidAddress
│   ├── InvalidPreference
│   └── InvalidSettings     raised at startup
├── NotFound
│   └── DigestDeleted       its retention period has passed, or the email never was a digest
├── Conflict                the request contradicts the current state
│   ├── DigestNotSent       it is held, not due yet, cancelled or given up
│   └── AddressSuppressed   the subscriber must not be sent any mail
├── PreconditionFailed      the request is for a version other than the current one
├── LinkError               a signed link that does not work
│   ├── LinkForged
│   │   └── LinkOfTest      from a test email
│   └── LinkExpired         its lifetime has passed
│       └── LinkReplaced    the subscriber's link epoch has changed, or the link is older than its subscriber
├── TooManyRequests         carries retry_after, in seconds
├── NotReady                data for the response is still being loaded; carries retry_after, in seconds
├── SchemaError             the database belongs to another release
├── ClockError              the clocks disagree, so planning would go wrong
├── CorruptModel            a stored model cannot be read; the last good one is used instead
├── DamagedIndex            the search index cannot be read; it is rebuilt
├── SourceError             an entire source could not be read; carries retry_at and status
│   └── UnreadableResponse  its response has the wrong format
├── ParsingTooExpensive     parsing exceeds the time or memory limit
├── MailboxError            the bounce mailbox cannot be read
│   └── UnreadableMail      the server cannot return one of its emails
├── DeliveryError           this email cannot be composed; carries permanent=
├── JournalError            the sender cannot write its journal: no more mail is sent
└── Stopping                the service is stopping: work in progress is abandoned
"""

from datetime import datetime


class PaperboyError(Exception):
    """An expected error occurred."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (self.__doc__ or "").strip())


class InvalidInput(PaperboyError):
    """The input cannot be used."""

    def __init__(self, message: str | None = None, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class InvalidInterest(InvalidInput):
    """This interest cannot be searched for."""


class InvalidAddress(InvalidInput):
    """This is not an email address that email can be sent to."""


class InvalidPreference(InvalidInput):
    """This preference cannot be used."""


class InvalidSettings(InvalidInput):
    """The configuration cannot be used."""


class NotFound(PaperboyError):
    """There is no such thing."""


class DigestDeleted(NotFound):
    """This digest is no longer stored."""


class Conflict(PaperboyError):
    """This request contradicts the current state."""

    def __init__(self, message: str | None = None, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class DigestNotSent(Conflict):
    """This digest has not been sent."""


class AddressSuppressed(Conflict):
    """Mail to this address is blocked."""


class PreconditionFailed(PaperboyError):
    """This resource has changed since you read it: read it again, then decide."""


class LinkError(PaperboyError):
    """This link does not work."""


class LinkForged(LinkError):
    """This link is invalid or was made for another purpose."""


class LinkOfTest(LinkForged):
    """This link is from a test email, which does not belong to a subscriber."""


class LinkExpired(LinkError):
    """This link has expired."""


class LinkReplaced(LinkExpired):
    """This link was replaced by a newer one, or is no longer needed."""


class TooManyRequests(PaperboyError):
    """Too many requests: please try again later."""

    def __init__(self, retry_after: int) -> None:
        super().__init__()
        self.retry_after = retry_after


class NotReady(PaperboyError):
    """The search index is being built. Please try again in a moment."""

    retry_after = 10


class ClockError(PaperboyError):
    """The clocks of this machine and the database disagree, so nothing is planned."""


class SchemaError(PaperboyError):
    """The database belongs to another release."""


class CorruptModel(PaperboyError):
    """The stored model is incomplete or has an unsupported format."""


class DamagedIndex(PaperboyError):
    """The search index on disk cannot be read."""


class SourceError(PaperboyError):
    """The source could not be read."""

    def __init__(
        self, message: str | None = None, retry_at: datetime | None = None, status: int | None = None
    ) -> None:
        super().__init__(message)
        self.retry_at = retry_at  # send no request before this time; None if the source sets no time
        self.status = status  # of the HTTP response, or None if it is unknown


class UnreadableResponse(SourceError):
    """The source's response has the wrong format."""


class ParsingTooExpensive(PaperboyError):
    """Parsing this input takes more time or memory than allowed."""


class MailboxError(PaperboyError):
    """The bounce mailbox cannot be read."""


class UnreadableMail(MailboxError):
    """The server of the bounce mailbox cannot return this email."""


class DeliveryError(PaperboyError):
    """This email cannot be composed."""

    def __init__(self, message: str, *, permanent: bool) -> None:
        super().__init__(message)
        self.permanent = permanent


class JournalError(PaperboyError):
    """The sender's journal cannot be written."""


class Stopping(PaperboyError):
    """The service is stopping."""
