"""A mail server of the demo's own: it takes every mail for the readers, and hands it out to be looked at."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from email import message_from_bytes, policy
from email.message import EmailMessage
from email.utils import parsedate_to_datetime
from typing import cast

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

HOST = "127.0.0.1"
MAX_BYTES = 10 * 1024 * 1024


class _OnAFreePort(Controller):
    """aiosmtpd asks its server whether it answers, and would ask at port 0 without this."""

    def _trigger_server(self) -> None:
        assert isinstance(self.server, asyncio.Server)  # noqa: S101 - it listens already
        self.port = self.server.sockets[0].getsockname()[1]
        super()._trigger_server()  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class ReceivedMail:
    """A mail as it arrived."""

    number: int
    sender: str  # of the envelope
    recipient: str
    raw: bytes
    message: EmailMessage

    @property
    def subject(self) -> str:
        return str(self.message["Subject"])

    @property
    def date(self) -> str:
        return str(self.message["Date"])

    @property
    def day(self) -> str:
        """Tue 31 Mar 2026, by its own Date header."""
        sent = parsedate_to_datetime(self.date)
        return f"{sent:%a} {sent.day} {sent:%b %Y}"

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


class Postbox:
    """Takes mail on a free port of this machine. `unknown` addresses are refused for good; `greylisted`
    ones are put off the first time, as many real servers do with senders that they do not know."""

    def __init__(self, unknown: Collection[str] = (), greylisted: Collection[str] = ()) -> None:
        self.letters: list[ReceivedMail] = []
        self._unknown = frozenset(unknown)
        self._to_put_off = set(greylisted)
        self._controller = _OnAFreePort(self, hostname=HOST, port=0, data_size_limit=MAX_BYTES)

    def __enter__(self) -> Postbox:
        self._controller.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._controller.stop()

    @property
    def port(self) -> int:
        """The port that the system chose, once it is started."""
        return self._controller.port

    def letter(self, number: int) -> ReceivedMail | None:
        """The letter with this number; they are numbered from 1 as they come."""
        return self.letters[number - 1] if 0 < number <= len(self.letters) else None

    # The two hooks below are called by aiosmtpd, by these names, in its own thread.

    async def handle_RCPT(  # noqa: N802
        self, _server: SMTP, _session: Session, envelope: Envelope, address: str, _options: list[str]
    ) -> str:
        if address in self._unknown:
            return "550 5.1.1 There is no mailbox of that name"
        if address in self._to_put_off:
            self._to_put_off.remove(address)
            return "451 4.7.1 Greylisted, please come back in a while"
        envelope.rcpt_tos.append(address)
        return "250 2.1.5 OK"

    async def handle_DATA(self, _server: SMTP, _session: Session, envelope: Envelope) -> str:  # noqa: N802
        raw = cast("bytes", envelope.content)
        message = message_from_bytes(raw, EmailMessage, policy=policy.default)
        for recipient in envelope.rcpt_tos:
            number = len(self.letters) + 1
            self.letters.append(ReceivedMail(number, envelope.mail_from or "", recipient, raw, message))
        return f"250 2.0.0 Kept as {len(self.letters)}"
