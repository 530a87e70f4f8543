"""Everything Paperboy raises on purpose.

PaperboyError
├── InvalidInput            what somebody gave us cannot be used; the message says what to change
│   ├── InvalidInterest
│   ├── InvalidAddress
│   ├── InvalidPreference
│   └── InvalidSettings     refused at start
├── NotFound
├── Conflict                the request contradicts what is already so
├── LinkError               a signed link that grants nothing
│   ├── LinkForged
│   └── LinkExpired         its time is over
│       └── LinkReplaced    all links of its reader were replaced
├── TooManyRequests         carries retry_after, in seconds
├── NotReady                what answers is still being made; carries retry_after, in seconds
├── ClockError              the clocks disagree: what is planned would be wrong
├── CorruptModel            what was learned cannot be read; the last good model is used instead
├── SourceError             an upstream as a whole could not be read; carries retry_at
│   └── UnreadableAnswer    it answered with something that is not what it should be
├── ParsingTooExpensive     to read this takes more time or memory than it may
├── MailboxError            what comes back cannot be read
├── DeliveryError           this mail cannot be made; carries permanent=
├── JournalError            a sender cannot write down what it begins: nothing more leaves
└── Stopping                the service is to end: what is under way is given up
"""

from __future__ import annotations

from datetime import datetime


class PaperboyError(Exception):
    """Something went wrong that Paperboy knows about."""

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
    """This is not an e-mail address that mail can be sent to."""


class InvalidPreference(InvalidInput):
    """This preference cannot be used."""


class InvalidSettings(InvalidInput):
    """The configuration cannot be used."""


class NotFound(PaperboyError):
    """There is no such thing."""


class Conflict(PaperboyError):
    """This contradicts what is already so."""


class LinkError(PaperboyError):
    """This link grants nothing."""


class LinkForged(LinkError):
    """This link is not one of ours, or was made for something else."""


class LinkExpired(LinkError):
    """This link has expired."""


class LinkReplaced(LinkExpired):
    """This link was replaced by newer ones, or what it was for has ended."""


class TooManyRequests(PaperboyError):
    """Too many requests: please try again later."""

    def __init__(self, retry_after: int) -> None:
        super().__init__()
        self.retry_after = retry_after


class NotReady(PaperboyError):
    """The archive is still being read."""

    retry_after = 10


class ClockError(PaperboyError):
    """The clocks disagree, so nothing is planned."""


class CorruptModel(PaperboyError):
    """This is not a whole model of the format that is read here."""


class SourceError(PaperboyError):
    """The source could not be read."""

    def __init__(self, message: str | None = None, retry_at: datetime | None = None) -> None:
        super().__init__(message)
        self.retry_at = retry_at


class UnreadableAnswer(SourceError):
    """The source answered with something that is not what it should be."""


class ParsingTooExpensive(PaperboyError):
    """To read this takes more time or memory than it may."""


class MailboxError(PaperboyError):
    """The mailbox that bounces arrive in cannot be read."""


class DeliveryError(PaperboyError):
    """This mail cannot be made."""

    def __init__(self, message: str, *, permanent: bool) -> None:
        super().__init__(message)
        self.permanent = permanent


class JournalError(PaperboyError):
    """What is about to be sent cannot be written down."""


class Stopping(PaperboyError):
    """The service is stopping."""
