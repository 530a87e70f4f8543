"""A pool of connections to the relay. It opens connections while emails wait, reuses them and renews them.

The settings `smtp_connections` and `smtp_messages_per_connection` limit the number of connections, and the
number of emails over each.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import Protocol, Self

import aiosmtplib
import structlog

from app.delivery.send_result import SendOutcome, SendResult
from app.delivery.smtp import handshake
from app.delivery.smtp.connection import SmtpConnection
from app.delivery.smtp.fair_queue import FairQueue, QueuedMail
from app.delivery.smtp.timeouts import Timeouts
from app.mail.message import OutgoingMail
from app.settings import Settings, SmtpSecurity

# The number of emails that may wait in the queue. The limit is higher while a connection is idle, because all
# waiting emails are then for receivers that already use their maximum number of connections.
QUEUE_LIMIT, QUEUE_LIMIT_WHILE_IDLE = 200, 1000
log = structlog.get_logger(__name__)


class DeliveryTracker(Protocol):
    """The interface that approves emails for sending and records their results. No method may block."""

    def may_send(self, mail: OutgoingMail) -> bool:
        """Return whether to send the envelope. A later refusal by `commit` ends the connection."""

    def commit(self, mail: OutgoingMail) -> bool:
        """Return whether the body may be sent. If True, the caller sends it immediately."""

    def record(self, mail: OutgoingMail, result: SendResult) -> None:
        """Record the result. Called exactly once for each submitted email."""


class ConnectionPool:
    """The connections for one run. Use it as `async with ConnectionPool(settings, tracker) as pool`.

    The pool stops if the relay cannot be reached or refuses the sender, or if the tracker fails. Emails that
    have not been started when it stops get the result NOT_ATTEMPTED.
    """

    def __init__(
        self, settings: Settings, tracker: DeliveryTracker, timeouts: Timeouts | None = None
    ) -> None:
        self._settings = settings
        self._tracker = tracker
        self._timeouts = timeouts or Timeouts()
        self._queue = FairQueue()
        self._connections: set[SmtpConnection] = set()
        self._closing: set[SmtpConnection] = set()  # closed connections with open transports
        self._waiting_for_mail: dict[SmtpConnection, None] = {}  # longest-waiting first
        self._opening: set[asyncio.Task[None]] = set()
        self._max_connections = settings.smtp_connections
        self._tls: ssl.SSLContext | None = None
        self._unrecorded = 0  # submitted emails without a result
        self._queue_has_room = asyncio.Event()
        self._all_recorded = asyncio.Event()
        self._transport_closed = asyncio.Event()
        self._failure: BaseException | None = None
        self.stopped = False
        self.pipelining = True  # until the relay mishandles it

    async def __aenter__(self) -> Self:
        security = self._settings.relay_security
        if security != SmtpSecurity.NONE:
            self._tls = await asyncio.to_thread(handshake.tls_context, security)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.stop()
        try:
            await asyncio.gather(*self._opening, return_exceptions=True)
            if kind is None:
                await self._wait_until_closed()
        finally:
            for connection in list(self._connections):
                connection.abort()
            await self._wait_until_closed()

    async def _wait_until_closed(self) -> None:
        while self._connections or self._closing:
            self._transport_closed.clear()
            await self._transport_closed.wait()

    # --- called by the sender

    async def submit(self, mail: OutgoingMail) -> None:
        """Add an email to the queue. Wait while the queue is full."""
        while not (self.stopped or self._has_room(QUEUE_LIMIT)):
            self._queue_has_room.clear()
            await self._queue_has_room.wait()
        self._unrecorded += 1
        if self.stopped:
            self._record(mail, SendResult(SendOutcome.NOT_ATTEMPTED))
            return
        self._queue.add(mail)
        self._dispatch()

    async def drain(self) -> None:
        """Wait until every email has a result. Raise the first unexpected error, if any."""
        while self._unrecorded:
            self._all_recorded.clear()
            await self._all_recorded.wait()
        if self._failure:
            raise self._failure

    def stop(self, reason: str = "") -> None:
        """Start no new emails or connections. Emails in flight still await their replies."""
        if self.stopped:
            return
        self.stopped = True
        for task in self._opening:
            task.cancel()
        for mail in self._queue.clear():
            self._record(mail, SendResult(SendOutcome.NOT_ATTEMPTED, None, reason))
        for connection in list(self._connections):
            connection.stop()
        self._queue_has_room.set()

    def _has_room(self, limit: int) -> bool:
        return len(self._queue) < (QUEUE_LIMIT_WHILE_IDLE if self._waiting_for_mail else limit)

    # --- open connections, and give them emails

    def _dispatch(self) -> None:
        """Send the next email over an idle connection, a new one, or a busy one (after its current email)."""
        if self.stopped or not self._queue.can_supply(1):
            return
        idle = next((connection for connection in self._waiting_for_mail if connection.is_idle), None)
        if idle is None and len(self._connections) + len(self._opening) < self._max_connections:
            if self._queue.can_supply(len(self._opening) + 1):
                task = asyncio.create_task(self._open())
                self._opening.add(task)
                task.add_done_callback(self._on_opened)
            return
        waiting = idle or next(iter(self._waiting_for_mail), None)
        if waiting:
            waiting.resume()

    async def _open(self) -> None:
        transport, capabilities = await handshake.connect(self._settings, self._timeouts, self._tls)
        # Await nothing before the connection has its transport, so that it notices if the transport closes.
        max_mails = self._settings.smtp_messages_per_connection
        connection = SmtpConnection(transport, capabilities, self._timeouts, self, max_mails)
        connection.pipelines &= self.pipelining
        self._connections.add(connection)
        if self.stopped:
            connection.stop()
        else:
            connection.resume()

    def _on_opened(self, task: asyncio.Task[None]) -> None:
        self._opening.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, aiosmtplib.SMTPException | OSError):
            # Use only as many connections as the relay accepts. If it accepts none, stop the run.
            self._max_connections = len(self._connections) + len(self._opening)
            if not (self._max_connections or self.stopped):
                result = handshake.connect_error_result(error)
                # Logged once per run, because a test email has no ledger entry that shows the error.
                log.warning(
                    "no connection to the relay",
                    host=self._settings.smtp_host,
                    port=self._settings.smtp_port,
                    code=result.code,
                    error=result.text,
                )
                if queued := self._queue.take([]):
                    self._record(queued.mail, result)
                self.stop(result.text)
        elif error:
            self._fail(error)
        self._dispatch()  # the connection may already have closed while it counted as opening

    # --- called by connections

    def next_mail(self, connection: SmtpConnection) -> QueuedMail | None:
        """Return a connection's next email, or None. After None, `resume` is called once an email waits."""
        self._waiting_for_mail.pop(connection, None)
        while (queued := self._queue.take(connection.carried)) and not self._ask(
            self._tracker.may_send, queued.mail
        ):
            self.record(queued, connection, SendResult(SendOutcome.WITHDRAWN))
        if queued is None:
            self._waiting_for_mail[connection] = None
        if self._has_room(QUEUE_LIMIT // 2):  # only at half the limit, so that `submit` rarely wakes up
            self._queue_has_room.set()
        return queued

    def commit(self, mail: OutgoingMail) -> bool:
        """Return whether the body may be sent."""
        return self._ask(self._tracker.commit, mail)

    def _ask(self, question: Callable[[OutgoingMail], bool], mail: OutgoingMail) -> bool:
        """Call the tracker. If it raises an error, return False and stop the run."""
        try:
            return question(mail)
        except Exception as error:
            self._fail(error)
            return False

    def record(self, queued: QueuedMail, connection: SmtpConnection, result: SendResult) -> None:
        """Record the result of an email that a connection took."""
        self._queue.release(queued, connection.carried)
        self._record(queued.mail, result)
        if self._waiting_for_mail and len(self._queue):  # its next email may use another connection
            asyncio.get_running_loop().call_soon(self._dispatch)

    def retry_or_record(self, queued: QueuedMail, connection: SmtpConnection, result: SendResult) -> None:
        """Queue a provably unsent email once more. After a second failure, record `result`.

        If the pool has stopped, record NOT_ATTEMPTED instead.
        """
        if queued.is_retry or self.stopped:
            self.record(queued, connection, SendResult(SendOutcome.NOT_ATTEMPTED) if self.stopped else result)
            return
        self._queue.release(queued, connection.carried)
        queued.is_retry = True
        self._queue.put_back(queued)

    def disable_pipelining(self) -> None:
        """Send one command at a time from now on, over all connections."""
        self.pipelining = False
        for connection in self._connections:
            connection.pipelines = False

    def on_closed(self, connection: SmtpConnection) -> None:
        """Remove a closed connection, and replace it if emails are waiting."""
        self._connections.discard(connection)
        self._closing.add(connection)
        self._waiting_for_mail.pop(connection, None)
        self._dispatch()

    def on_transport_closed(self, connection: SmtpConnection) -> None:
        """Forget a connection whose transport is closed."""
        self._closing.discard(connection)
        self._transport_closed.set()

    def _record(self, mail: OutgoingMail, result: SendResult) -> None:
        self._unrecorded -= 1
        try:
            self._tracker.record(mail, result)
        except Exception as error:
            self._fail(error)
        if result.outcome is SendOutcome.SENDER_REJECTED:
            self.stop(result.text)
        if not self._unrecorded:
            self._all_recorded.set()

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        self.stop(str(error))


async def send_one(settings: Settings, mail: OutgoingMail) -> SendResult:
    """Send one email without a ledger entry, and return its result."""
    tracker = _SingleMailTracker()
    async with ConnectionPool(settings, tracker) as pool:
        await pool.submit(mail)
        await pool.drain()
    return tracker.result


class _SingleMailTracker:
    """The tracker for a single email without a ledger entry."""

    result = SendResult(SendOutcome.NOT_ATTEMPTED)

    def may_send(self, _mail: OutgoingMail) -> bool:
        return True

    def commit(self, _mail: OutgoingMail) -> bool:
        return True

    def record(self, _mail: OutgoingMail, result: SendResult) -> None:
        self.result = result
