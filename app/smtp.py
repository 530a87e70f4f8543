"""Connections to the relay: a pool that is kept, a pace for each recipient domain, and what answers mean."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from contextlib import suppress

import aiosmtplib

from app.records import Answer, Outgoing, Verdict
from app.refusals import classify
from app.settings import Settings, SmtpSecurity

CONNECT_TIMEOUT = 60.0
COMMAND_TIMEOUT = 300.0  # RFC 5321 4.5.3.2
# RFC 5321 wants ten minutes after the final dot: whoever waits less sends the mail twice.
DATA_TIMEOUT = 600.0

# Providers that count connections and messages from one sender over all their domains.
_FAMILIES = {
    **dict.fromkeys(("gmail.com", "googlemail.com", "google.com"), "google"),
    **dict.fromkeys(("outlook.com", "hotmail.com", "live.com", "msn.com", "windowslive.com"), "outlook"),
}
STRICT_CONNECTIONS, STRICT_MESSAGES, CONNECTIONS_PER_DOMAIN = 5, 50, 10

Commit = Callable[[Outgoing], Awaitable[bool]]


def family_of(recipient: str) -> str:
    """The provider whose patience a mail costs."""
    domain = recipient.rpartition("@")[2].lower()
    return _FAMILIES.get(domain, domain)


class Connection:
    """One connection, and how many mails it has carried to whom."""

    def __init__(self, client: aiosmtplib.SMTP) -> None:
        self.client = client
        self.carried: Counter[str] = Counter()

    def is_worn(self, family: str, most: int) -> bool:
        strict = family in _FAMILIES.values() and self.carried[family] >= STRICT_MESSAGES
        return strict or self.carried.total() >= most or not self.client.is_connected

    async def close(self) -> None:
        with suppress(aiosmtplib.SMTPException, OSError):
            if self.client.is_connected:
                await self.client.quit(timeout=5)
        self.client.close()


class Relay:
    """The relay of the settings, for one run. Used as `async with Relay(settings) as relay`.

    It stops by itself when nothing more can come of trying: the relay cannot be reached, or refuses
    us as a sender. What has not begun by then is answered HELD.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._slots = asyncio.Semaphore(settings.smtp_connections)
        self._paces: dict[str, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(CONNECTIONS_PER_DOMAIN)
        )
        for family in set(_FAMILIES.values()):
            self._paces[family] = asyncio.Semaphore(STRICT_CONNECTIONS)
        self._idle: list[Connection] = []
        self._live = 0  # open, or being opened
        self.stopped = False

    async def __aenter__(self) -> Relay:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(connection.close() for connection in self._idle))

    async def send(self, mail: Outgoing, commit: Commit) -> Answer:
        """Hand over one mail. `commit` is awaited just before DATA; when it says no, nothing is sent."""
        family = family_of(mail.recipient)
        async with self._paces[family]:
            connection = await self._connection(family)
            if isinstance(connection, Answer):
                return connection
            try:
                answer = await transact(connection.client, mail, commit)
            finally:
                connection.carried[family] += 1
                self._idle.append(connection)
                self._slots.release()
        self.stopped = self.stopped or answer.verdict is Verdict.OUR_FAULT
        return answer

    async def _connection(self, family: str) -> Connection | Answer:
        """A connection and a slot for it, or the answer that there is none."""
        while True:
            await self._slots.acquire()
            refusal = Answer(Verdict.HELD)
            if not self.stopped:
                try:
                    return await self._idle_or_new(family)
                except (aiosmtplib.SMTPException, OSError) as error:
                    if self._live:
                        continue  # the relay wants fewer connections: this slot is gone for the run
                    refusal = _refused_at_the_door(error)
                    self.stopped = True
            self._slots.release()
            return refusal

    async def _idle_or_new(self, family: str) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_worn(family, self._settings.smtp_messages_per_connection):
                return connection
            self._live -= 1
            await connection.close()
        self._live += 1
        try:
            return Connection(await connect(self._settings))
        except BaseException:
            self._live -= 1
            raise


async def connect(settings: Settings) -> aiosmtplib.SMTP:
    """A connection as the settings want it, greeted and logged in; SMTPException or OSError where there is none."""
    security = settings.smtp_security
    start_tls = {SmtpSecurity.STARTTLS: True, SmtpSecurity.OPPORTUNISTIC: None}.get(security, False)
    client = aiosmtplib.SMTP(
        hostname=settings.smtp_host,
        port=settings.smtp_port,
        username=settings.smtp_username or None,
        password=settings.smtp_password or None,
        local_hostname=settings.mail_domain,
        timeout=COMMAND_TIMEOUT,
        use_tls=security is SmtpSecurity.TLS,
        start_tls=start_tls,
        # Opportunistic means: better encrypted to anybody than plain to everybody (RFC 7435).
        validate_certs=security is not SmtpSecurity.OPPORTUNISTIC,
    )
    await client.connect(timeout=CONNECT_TIMEOUT)
    if client.is_ehlo_or_helo_needed:
        with suppress(aiosmtplib.SMTPHeloError):  # an old server: MAIL will say HELO instead
            await client.ehlo()
    return client


def _refused_at_the_door(error: Exception) -> Answer:
    """Before MAIL nothing is about the reader: 5xx is our fault, all else is the relay's bad hour."""
    if isinstance(error, aiosmtplib.SMTPResponseException):
        verdict = Verdict.OUR_FAULT if error.code >= 500 else Verdict.UNREACHABLE
        return Answer(verdict, error.code, _words(error))
    return Answer(Verdict.UNREACHABLE, None, f"no connection: {_words(error)}")


async def transact(client: aiosmtplib.SMTP, mail: Outgoing, commit: Commit) -> Answer:
    """MAIL, RCPT, commit, DATA. Until DATA a broken connection means unsent; from then on, uncertain."""
    if mail.needs_smtputf8 and not client.supports_extension("smtputf8"):
        return Answer(Verdict.UNSENDABLE, None, "the relay does not take addresses outside ASCII")
    broken = Verdict.DEFERRED
    try:
        await _envelope(client, mail)
        if not await commit(mail):
            await _reset(client)
            return Answer(Verdict.WITHDRAWN)
        broken = Verdict.UNCERTAIN
        response = await client.data(mail.data, timeout=DATA_TIMEOUT)
    except aiosmtplib.SMTPResponseException as error:
        await _reset(client, error.code)
        return Answer(_verdict(error), error.code, _words(error))
    except (aiosmtplib.SMTPException, OSError) as error:
        client.close()
        return Answer(broken, None, f"the connection broke: {_words(error)}")
    except BaseException:
        client.close()  # in the middle of a transaction: of no use to the next mail
        raise
    return Answer(Verdict.ACCEPTED, response.code, _clean(response.message))


async def _envelope(client: aiosmtplib.SMTP, mail: Outgoing) -> None:
    size = [f"SIZE={len(mail.data)}"] if client.supports_extension("size") else []
    options, encoding = (["SMTPUTF8"], "utf-8") if mail.needs_smtputf8 else ([], "ascii")
    await client.mail(mail.sender, options=[*size, *options], encoding=encoding)
    await client.rcpt(mail.recipient, encoding=encoding)


def _verdict(error: aiosmtplib.SMTPResponseException) -> Verdict:
    if error.code < 400 and not isinstance(error, aiosmtplib.SMTPDataError):
        return Verdict.DEFERRED  # an answer that the protocol does not know: nothing was sent
    verdict = classify(error.code, error.message)
    if verdict is Verdict.HARD and isinstance(error, aiosmtplib.SMTPSenderRefused):
        return Verdict.OUR_FAULT  # it is our own address that does not exist
    return verdict


async def _reset(client: aiosmtplib.SMTP, code: int = 0) -> None:
    """Make a refused connection fit for the next mail, or close it: 421 says that the relay will."""
    try:
        if code != 421 and client.is_connected:
            await client.rset()
            return
    except (aiosmtplib.SMTPException, OSError):
        pass
    client.close()


def _words(error: Exception) -> str:
    return _clean(error.message if isinstance(error, aiosmtplib.SMTPException) else str(error)) or repr(error)


def _clean(text: str) -> str:
    """A relay's words are foreign input: one line, of a length and of characters that a database takes."""
    return " ".join(text.encode("utf-8", "replace").decode().replace("\0", "").split())[:500]
