"""A real SMTP server on a free port that collects emails and can be told to refuse or disconnect."""

from __future__ import annotations

import asyncio
import email
import email.policy
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from email.message import EmailMessage
from weakref import WeakSet

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

STAGES = ("connect", "mail", "rcpt", "data", "end")


@dataclass(frozen=True)
class Received:
    """An email as received over SMTP, with dot-stuffing removed."""

    sender: str
    recipient: str
    data: bytes

    def parsed(self) -> EmailMessage:
        return email.message_from_bytes(self.data, policy=email.policy.default)  # type: ignore[return-value]


@dataclass
class _Rule:
    stage: str
    reply: str  # empty: drop the connection
    to: str | None
    times: int
    first: Callable[[], object] = lambda: None


class MailServer:
    """Use as a context manager or through the fixture `mail_server`.

    With `tls`, it offers STARTTLS, or uses TLS from the first byte (`tls_at_once`).
    """

    def __init__(
        self, password: str | None = None, tls: ssl.SSLContext | None = None, *, tls_at_once: bool = False
    ) -> None:
        self.port = 0
        self.messages: list[Received] = []  # emails that got the reply 250
        self.swallowed: list[Received] = []  # emails that got another reply after their content, or none
        self.connections = 0
        self.encrypted = 0  # number of emails received over TLS
        self.password = password
        self.passwords: list[str] = []  # the passwords that clients sent
        self.tls = tls
        self.tls_at_once = tls_at_once
        self.connections_left = 10**6
        self.offers_smtputf8 = True
        self.offers_pipelining = True
        self._rules: list[_Rule] = []
        self._arrived = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self._sessions: WeakSet[_Server] = WeakSet()  # also stop those of closed connections

    def reply(
        self,
        stage: str,
        reply: str,
        *,
        to: str | None = None,
        times: int = 10**6,
        first: Callable[[], object] = lambda: None,
    ) -> None:
        """Call `first` and send `reply` the next `times` times that a stage (see STAGES) is reached.

        If `to` is given, only commands for this recipient count.
        """
        assert stage in STAGES
        self._rules.append(_Rule(stage, reply, to, times, first))

    def drop(
        self,
        stage: str,
        *,
        to: str | None = None,
        times: int = 10**6,
        first: Callable[[], object] = lambda: None,
    ) -> None:
        """Call `first` and close the connection, instead of replying. The parameters are those of `reply`."""
        self.reply(stage, "", to=to, times=times, first=first)

    def allow_connections(self, most: int) -> None:
        """Accept this many further connections, and answer all others with 421."""
        self.connections_left = most

    def wait_for(self, count: int) -> list[Received]:
        """Wait for `count` emails and return them. Some emails are sent in the background."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: len(self.messages) >= count, 20), (
                "the emails did not arrive"
            )
            return list(self.messages)

    def clear_rules(self) -> None:
        """Remove all rules, so that the server accepts everything again."""
        self._rules.clear()

    def __enter__(self) -> MailServer:
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _listen(self) -> None:
        at_once = self.tls if self.tls_at_once else None
        self._server = await self._loop.create_server(self._session, "127.0.0.1", 0, ssl=at_once)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        self._server.close()
        for session in list(self._sessions):
            if session.transport:
                session.transport.abort()
        await asyncio.sleep(0)
        pending = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)

    def _session(self) -> SMTP:
        self.connections += 1
        auth = {"auth_required": True, "auth_require_tls": False, "authenticator": self._authenticate}
        starttls = {"tls_context": None if self.tls_at_once else self.tls}
        session = _Server(self, **starttls, **(auth if self.password else {}))
        self._sessions.add(session)
        return session

    def _authenticate(self, *args: object) -> AuthResult:
        data = args[-1]
        assert isinstance(data, LoginPassword)
        self.passwords.append(data.password.decode())
        return AuthResult(success=self.passwords[-1] == self.password, handled=False)

    def rule_for(self, stage: str, recipient: str) -> _Rule | None:
        for rule in self._rules:
            if rule.stage == stage and rule.times > 0 and rule.to in (None, recipient):
                rule.times -= 1
                return rule
        return None

    async def handle_EHLO(  # noqa: N802
        self, server: _Server, session: Session, envelope: Envelope, hostname: str, responses: list[str]
    ) -> list[str]:
        session.host_name = hostname
        return [*responses[:-1], *["250-PIPELINING"][: self.offers_pipelining], responses[-1]]

    async def handle_DATA(self, server: _Server, session: Session, envelope: Envelope) -> str:  # noqa: N802
        received = Received(envelope.mail_from or "", envelope.rcpt_tos[0], bytes(envelope.content or b""))
        if await server.misbehaves("end", received.recipient):
            self.swallowed.append(received)
            raise _AnsweredAlready
        with self._arrived:
            self.messages.append(received)
            self.encrypted += server.transport.get_extra_info("sslcontext") is not None
            self._arrived.notify_all()
        return "250 2.0.0 taken"


class _AnsweredAlready(Exception):
    pass


class _Server(SMTP):  # type: ignore[misc]
    def __init__(self, owner: MailServer, **kwargs: object) -> None:
        super().__init__(
            owner, hostname="mail.test", enable_SMTPUTF8=owner.offers_smtputf8, loop=owner._loop, **kwargs
        )
        self._owner = owner

    async def misbehaves(self, stage: str, recipient: str = "") -> bool:
        rule = self._owner.rule_for(stage, recipient)
        if rule is None:
            return False
        rule.first()
        if not rule.reply:
            self.transport.abort()
            return True
        await self.push(rule.reply)
        if rule.reply.startswith("421") or stage == "connect":
            self.transport.close()
        return True

    async def _handle_client(self) -> None:
        self._owner.connections_left -= 1
        if self._owner.connections_left < 0:
            self._owner.reply("connect", "421 4.3.2 too many connections", times=1)
        if not await self.misbehaves("connect"):
            await super()._handle_client()

    async def smtp_MAIL(self, arg: str) -> None:  # noqa: N802
        if not await self.misbehaves("mail"):
            await super().smtp_MAIL(arg)

    async def smtp_RCPT(self, arg: str) -> None:  # noqa: N802
        recipient = arg.partition("<")[2].partition(">")[0]
        if not await self.misbehaves("rcpt", recipient):
            await super().smtp_RCPT(arg)

    async def smtp_DATA(self, arg: str) -> None:  # noqa: N802
        if not await self.misbehaves("data", next(iter(self.envelope.rcpt_tos), "")):
            try:
                await super().smtp_DATA(arg)
            except _AnsweredAlready:
                self._set_post_data_state()

    async def handle_exception(self, error: Exception) -> str:
        if isinstance(error, ConnectionError):
            raise asyncio.CancelledError
        return await super().handle_exception(error)
