"""The demo's mail server. It accepts mail for the subscribers and stores it for the inbox."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from email import message_from_bytes, policy
from email.message import EmailMessage
from email.utils import parsedate_to_datetime
from threading import Lock
from typing import cast

from app.doctor.smtp_sink import CapturedMail, Sink


@dataclass(frozen=True)
class ReceivedMail:
    number: int
    sender: str  # from the envelope
    recipient: str
    raw: bytes
    message: EmailMessage

    @property
    def subject(self) -> str:
        return str(self.message["Subject"])

    @property
    def sent_at(self) -> datetime:
        """Return the time in the Date header."""
        return parsedate_to_datetime(str(self.message["Date"]))

    @property
    def text(self) -> str:
        return self._body("plain")

    @property
    def html(self) -> str:
        return self._body("html")

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        return tuple((name, str(value)) for name, value in self.message.items())

    def _body(self, kind: str) -> str:
        part = self.message.get_body((kind,))
        return cast("str", part.get_content()) if part else ""


class DemoMailServer(Sink):
    """An SMTP server on a free local port. It runs during its `with` block.

    It refuses mail to `unknown` addresses permanently, and the first email to each `greylisted` address
    temporarily, as many real servers do.
    """

    def __init__(self, unknown: Collection[str] = (), greylisted: Collection[str] = ()) -> None:
        super().__init__()
        self.mails: list[ReceivedMail] = []
        self._lock = Lock()  # each connection has a thread of its own
        self._unknown = frozenset(unknown)
        self._greylisted = set(greylisted)

    def mail(self, number: int) -> ReceivedMail | None:
        """Return an email by its number, counted from 1 in the order of arrival."""
        return self.mails[number - 1] if 0 < number <= len(self.mails) else None

    def rejection_reply(self, recipient: str) -> str:
        if recipient in self._unknown:
            return "550 5.1.1 No such mailbox"
        with self._lock:
            is_greylisted = recipient in self._greylisted
            self._greylisted.discard(recipient)
        if is_greylisted:
            return "451 4.7.1 Greylisted, please try again later"
        return ""

    def receive(self, mail: CapturedMail) -> None:
        message = message_from_bytes(mail.raw, EmailMessage, policy=policy.default)
        with self._lock:
            number = len(self.mails) + 1
            self.mails.append(ReceivedMail(number, mail.sender, mail.recipient, mail.raw, message))
