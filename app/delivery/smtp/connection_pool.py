"""The relay of the settings: connections that are opened as mails wait, kept, and renewed."""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import Callable
from typing import Protocol, cast

import aiosmtplib
import structlog

from app.delivery.smtp.connection import SmtpConnection, Timeouts
from app.delivery.smtp.fair_queue import STRICT_MESSAGES, FairQueue, ProviderQueue, QueuedMail
from app.delivery.smtp.protocol import ServerCapabilities, clean
from app.settings import Settings, SmtpSecurity
from app.types import OutgoingMail, SendOutcome, SendResult

# So many mails wait for a connection at most, or MANY while a connection waits for one that it may carry:
# then all that wait are for providers who have all the connections they may have.
FEW, MANY = 200, 1000
log = structlog.get_logger(__name__)

_SIZE_DIGITS = 20  # RFC 1870; Python refuses to read thousands of them


class DeliveryTracker(Protocol):
    """Who answers for the mails. All are called in the midst of sending, and so must not wait."""

    def may_leave(self, mail: OutgoingMail) -> bool:
        """Its envelope is about to be said. False: it need not. To say no later costs a connection."""

    def commit(self, mail: OutgoingMail) -> bool:
        """The body is about to leave. False: it must not."""

    def settle(self, mail: OutgoingMail, answer: SendResult) -> None:
        """What became of it: exactly once for every mail that was submitted."""


class ConnectionPool:
    """The relay, for one run. Used as `async with Relay(settings, book) as relay`.

    It stops by itself when nothing more can come of trying: the relay cannot be reached, or refuses
    us as a sender, or the book fails. What has not begun by then is settled as NOT_ATTEMPTED.
    """

    def __init__(self, settings: Settings, book: DeliveryTracker, patience: Timeouts | None = None) -> None:
        self._settings = settings
        self._book = book
        self.patience = patience or Timeouts()
        self._turns = FairQueue()
        self._rounds: set[_PooledConnection] = set()
        self._closing: set[_PooledConnection] = set()
        self._hungry: dict[
            _PooledConnection, None
        ] = {}  # those that asked in vain, the longest waiting first
        self._opening: set[asyncio.Task[None]] = set()
        self._most = settings.smtp_connections
        self._tls: ssl.SSLContext | None = None
        self._unsettled = 0
        self._room, self._done, self._gone = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._failure: BaseException | None = None
        self.stopped = False
        self.pipelining = True  # as long as the relay keeps the pace

    async def __aenter__(self) -> ConnectionPool:
        security = self._settings.relay_security
        if security != SmtpSecurity.NONE:
            self._tls = await asyncio.to_thread(tls_context, security)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.stop()
        try:
            await asyncio.gather(*self._opening, return_exceptions=True)
            if kind is None:
                await self._all_gone()
        finally:
            for round_ in list(self._rounds):
                round_.conversation.abort()
            await self._all_gone()

    async def _all_gone(self) -> None:
        while self._rounds or self._closing:
            self._gone.clear()
            await self._gone.wait()

    async def submit(self, mail: OutgoingMail) -> None:
        """Hand over one mail; waits while enough others wait."""
        while not (self.stopped or self._has_room(FEW)):
            self._room.clear()
            await self._room.wait()
        self._unsettled += 1
        if self.stopped:
            self._settle(mail, SendResult(SendOutcome.NOT_ATTEMPTED))
            return
        self._turns.add(mail)
        self._find_carrier()

    async def drain(self) -> None:
        """Wait until every mail is settled; raises what the book raised."""
        while self._unsettled:
            self._done.clear()
            await self._done.wait()
        if self._failure:
            raise self._failure

    def stop(self, why: str = "") -> None:
        """Begin nothing new: what waits is held, what is in flight gets its answer."""
        if self.stopped:
            return
        self.stopped = True
        for task in self._opening:
            task.cancel()
        for mail in self._turns.clear():
            self._settle(mail, SendResult(SendOutcome.NOT_ATTEMPTED, None, why))
        for round_ in list(self._rounds):
            round_.conversation.stop()
        self._room.set()

    def _has_room(self, few: int) -> bool:
        return len(self._turns) < (MANY if self._hungry else few)

    # --- carriers

    def _find_carrier(self) -> None:
        """Have what waits carried: by an idle connection, a new one, or behind another mail."""
        if self.stopped or not self._turns.free(1):
            return
        idle = next((one for one in self._hungry if one.conversation.is_idle), None)
        if idle is None and len(self._rounds) + len(self._opening) < self._most:
            if self._turns.free(len(self._opening) + 1):
                task = asyncio.create_task(self._open())
                self._opening.add(task)
                task.add_done_callback(self._opened)
            return
        hungry = idle or next(iter(self._hungry), None)
        if hungry:
            hungry.conversation.resume()

    async def _open(self) -> None:
        opened = await connect(self._settings, self.patience, self._tls)
        # From here to its protocol's first word nothing is awaited: its end would not be heard of.
        round_ = _PooledConnection(self, self._settings.smtp_messages_per_connection, opened)
        round_.conversation.pipelines &= self.pipelining
        self._rounds.add(round_)
        (round_.conversation.stop if self.stopped else round_.conversation.resume)()

    def _opened(self, task: asyncio.Task[None]) -> None:
        self._opening.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, aiosmtplib.SMTPException | OSError):
            self._turned_away(error)
        elif error:
            self._fail(error)
        self._find_carrier()  # what it carried may have ended already, when it still counted as being opened

    def _turned_away(self, error: BaseException) -> None:
        """The relay may want fewer connections than the settings. Without any the run is over."""
        self._most = len(self._rounds) + len(self._opening)
        if self._most or self.stopped:
            return
        answer = connect_error_result(error)
        # Once a run, and also for mails of which nobody keeps count: whoever waits for one cannot tell.
        log.warning(
            "no connection to the relay",
            host=self._settings.smtp_host,
            port=self._settings.smtp_port,
            code=answer.code,
            error=answer.text,
        )
        parcel = self._turns.take([])
        if parcel:
            self._settle(parcel.mail, answer)
        self.stop(answer.text)

    # --- what connections ask and tell

    def next_for(self, round_: _PooledConnection) -> QueuedMail | None:
        self._hungry.pop(round_, None)
        while (parcel := self._turns.take(round_.held)) and not self._says(self._book.may_leave, parcel.mail):
            self.settle(parcel, round_, SendResult(SendOutcome.WITHDRAWN))
        if parcel is None:
            self._hungry[round_] = None
        if self._has_room(FEW // 2):  # not at once: so that who submits is woken up once for many
            self._room.set()
        return parcel

    def commit(self, mail: OutgoingMail) -> bool:
        return self._says(self._book.commit, mail)

    def _says(self, asked: Callable[[OutgoingMail], bool], mail: OutgoingMail) -> bool:
        """A book that fails says no, and ends the run."""
        try:
            return asked(mail)
        except Exception as error:
            self._fail(error)
            return False

    def settle(self, parcel: QueuedMail, round_: _PooledConnection, answer: SendResult) -> None:
        self._turns.release(parcel, round_.held)
        self._settle(parcel.mail, answer)
        if self._hungry and len(self._turns):  # for whom the provider had no connection free till now
            asyncio.get_running_loop().call_soon(self._find_carrier)

    def give_back(self, parcel: QueuedMail, round_: _PooledConnection, answer: SendResult) -> None:
        if parcel.returned or self.stopped:
            self.settle(parcel, round_, SendResult(SendOutcome.NOT_ATTEMPTED) if self.stopped else answer)
            return
        self._turns.release(parcel, round_.held)
        parcel.returned = True
        self._turns.put_back(parcel)

    def ended(self, round_: _PooledConnection) -> None:
        self._rounds.discard(round_)
        self._closing.add(round_)
        self._hungry.pop(round_, None)
        self._find_carrier()

    def say_one_thing_at_a_time(self) -> None:
        self.pipelining = False
        for round_ in self._rounds:
            round_.conversation.pipelines = False

    def lost(self, round_: _PooledConnection) -> None:
        self._closing.discard(round_)
        self._gone.set()

    def _settle(self, mail: OutgoingMail, answer: SendResult) -> None:
        self._unsettled -= 1
        try:
            self._book.settle(mail, answer)
        except Exception as error:
            self._fail(error)
        if answer.outcome is SendOutcome.SENDER_REJECTED:
            self.stop(answer.text)
        if not self._unsettled:
            self._done.set()

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        self.stop(str(error))


class _PooledConnection:
    """What one connection has carried, and what it holds now."""

    def __init__(
        self, relay: ConnectionPool, most: int, opened: tuple[asyncio.Transport, ServerCapabilities]
    ) -> None:
        self._relay = relay
        self._left = most
        self._strict: Counter[ProviderQueue] = Counter()
        self.held: list[ProviderQueue] = []
        self.conversation = SmtpConnection(*opened, relay.patience, self)

    def is_over(self) -> bool:
        return self._left <= 0

    def take(self) -> QueuedMail | None:
        if self._left <= 0:
            return None
        parcel = self._relay.next_for(self)
        if parcel:
            self._left -= 1
            if parcel.family.strict:
                self._count_strict(parcel.family)
        return parcel

    def _count_strict(self, family: ProviderQueue) -> None:
        self._strict[family] += 1
        if self._strict[family] >= STRICT_MESSAGES:
            self._left = 0

    def commit(self, parcel: QueuedMail) -> bool:
        return self._relay.commit(parcel.mail)

    def settle(self, parcel: QueuedMail, answer: SendResult) -> None:
        self._relay.settle(parcel, self, answer)

    def give_back(self, parcel: QueuedMail, answer: SendResult) -> None:
        self._relay.give_back(parcel, self, answer)

    def misbehaved(self) -> None:
        self._relay.say_one_thing_at_a_time()

    def ended(self) -> None:
        self._relay.ended(self)

    def lost(self) -> None:
        self._relay.lost(self)


def tls_context(security: SmtpSecurity) -> ssl.SSLContext:
    """Made once a run: it reads every certificate authority of the system."""
    context = ssl.create_default_context()
    if security == SmtpSecurity.OPPORTUNISTIC:
        # It means: better encrypted to anybody than plain to everybody (RFC 7435).
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


async def connect(
    settings: Settings, patience: Timeouts, tls: ssl.SSLContext | None
) -> tuple[asyncio.Transport, ServerCapabilities]:
    """A connection on which EHLO, STARTTLS and AUTH are done, and what the relay announced."""
    client = await reach(settings, patience, tls)
    transport = cast("asyncio.Transport | None", client.transport)  # uvloop's have no common base
    if transport is None or transport.is_closing():
        client.close()
        raise aiosmtplib.SMTPServerDisconnected("the relay closed the connection")
    return transport, _offers_of(client)


async def reach(settings: Settings, patience: Timeouts, tls: ssl.SSLContext | None) -> aiosmtplib.SMTP:
    """The relay, greeted, over TLS and logged in as the settings want; SMTPException or OSError without."""
    security = settings.relay_security
    start_tls = {SmtpSecurity.STARTTLS: True, SmtpSecurity.OPPORTUNISTIC: None}.get(security, False)
    client = aiosmtplib.SMTP(
        hostname=settings.smtp_host,
        port=settings.smtp_port,
        username=settings.smtp_username or None,
        password=settings.smtp_password or None,
        local_hostname=settings.mail_domain,
        timeout=patience.mail,
        use_tls=security == SmtpSecurity.TLS,
        start_tls=start_tls,
        tls_context=tls,
    )
    try:
        await client.connect(timeout=patience.connect)
        if client.is_ehlo_or_helo_needed:
            await _greet(client)
    except BaseException:
        client.close()
        raise
    return client


async def _greet(client: aiosmtplib.SMTP) -> None:
    try:
        await client.ehlo()
    except aiosmtplib.SMTPHeloError:
        if not client.is_connected:
            raise
        await client.helo()


def _offers_of(client: aiosmtplib.SMTP) -> ServerCapabilities:
    size = client.esmtp_extensions.get("size")
    return ServerCapabilities(
        pipelining=client.supports_extension("pipelining"),
        smtputf8=client.supports_extension("smtputf8"),
        size=None if size is None else int(size) if size.isdecimal() and len(size) <= _SIZE_DIGITS else 0,
    )


def connect_error_result(error: BaseException) -> SendResult:
    """Before MAIL nothing is about the reader: 5xx is our fault, all else is the relay's bad hour."""
    words = clean(error.message if isinstance(error, aiosmtplib.SMTPException) else str(error)) or repr(error)
    if isinstance(error, aiosmtplib.SMTPResponseException):
        verdict = SendOutcome.SENDER_REJECTED if error.code >= 500 else SendOutcome.UNREACHABLE
        return SendResult(verdict, error.code, words)
    return SendResult(SendOutcome.UNREACHABLE, None, f"no connection: {words}")


async def send_one(settings: Settings, mail: OutgoingMail) -> SendResult:
    """Send one mail outside of any ledger; what was answered."""
    book = _Note()
    async with ConnectionPool(settings, book) as relay:
        await relay.submit(mail)
        await relay.drain()
    return book.answer


class _Note:
    """The book of a single mail."""

    answer = SendResult(SendOutcome.NOT_ATTEMPTED)

    def may_leave(self, _mail: OutgoingMail) -> bool:
        return True

    def commit(self, _mail: OutgoingMail) -> bool:
        return True

    def settle(self, _mail: OutgoingMail, answer: SendResult) -> None:
        self.answer = answer
