"""The demo's mail server. It accepts mail for the subscribers and stores it for the inbox."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from email import message_from_bytes, policy
from email.message import EmailMessage
from email.utils import parsedate_to_datetime
from typing import cast

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

HOST = "127.0.0.1"
MAX_BYTES = 10 * 1024 * 1024


class _FreePortController(Controller):
    """A controller on a free port. The base class would probe its server at port 0."""

    def _trigger_server(self) -> None:
        assert isinstance(self.server, asyncio.Server)  # noqa: S101 - the server is running
        self.port = self.server.sockets[0].getsockname()[1]
        super()._trigger_server()  # type: ignore[no-untyped-call]


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


class DemoMailServer:
    """An SMTP server on a free local port. It runs during its `with` block.

    It refuses mail to `unknown` addresses permanently, and the first email to each `greylisted` address
    temporarily, as many real servers do.
    """

    def __init__(self, unknown: Collection[str] = (), greylisted: Collection[str] = ()) -> None:
        self.mails: list[ReceivedMail] = []
        self._unknown = frozenset(unknown)
        self._greylisted = set(greylisted)
        self._controller = _FreePortController(self, hostname=HOST, port=0, data_size_limit=MAX_BYTES)

    def __enter__(self) -> DemoMailServer:
        self._controller.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._controller.stop()

    @property
    def port(self) -> int:
        """Return the port that the system chose."""
        return self._controller.port

    def mail(self, number: int) -> ReceivedMail | None:
        """Return an email by its number, counted from 1 in the order of arrival."""
        return self.mails[number - 1] if 0 < number <= len(self.mails) else None

    # aiosmtpd calls the following two methods by these names, in its own thread.

    async def handle_RCPT(  # noqa: N802
        self, _server: SMTP, _session: Session, envelope: Envelope, address: str, _options: list[str]
    ) -> str:
        if address in self._unknown:
            return "550 5.1.1 No such mailbox"
        if address in self._greylisted:
            self._greylisted.remove(address)
            return "451 4.7.1 Greylisted, please try again later"
        envelope.rcpt_tos.append(address)
        return "250 2.1.5 OK"

    async def handle_DATA(self, _server: SMTP, _session: Session, envelope: Envelope) -> str:  # noqa: N802
        raw = cast("bytes", envelope.content)
        message = message_from_bytes(raw, EmailMessage, policy=policy.default)
        for recipient in envelope.rcpt_tos:
            number = len(self.mails) + 1
            self.mails.append(ReceivedMail(number, envelope.mail_from or "", recipient, raw, message))
        return f"250 2.0.0 Kept as {len(self.mails)}"
