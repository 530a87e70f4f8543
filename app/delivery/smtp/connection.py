"""One connection to the relay. With PIPELINING, each email takes one round trip.

aiosmtplib performs EHLO, STARTTLS and AUTH; then `SmtpConnection` takes over its transport. If the relay
offers PIPELINING (RFC 2920), one write carries a body, its final dot, and MAIL, RCPT and DATA for the next
email; the replies arrive together. A body is sent only after the replies to its MAIL, RCPT and DATA and to
the previous body, and after the tracker has committed it. So at most one email is in flight. CHUNKING would
save nothing: a body waits for the reply to RCPT anyway, and these bodies have no dots to stuff.

Nothing blocks here: all code runs when a reply or an email arrives, or when a timeout expires. The
transport's buffer contains at most one email, so flow control is not needed.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING

from app.delivery.receivers import STRICT_MESSAGES
from app.delivery.send_result import SendOutcome, SendResult
from app.delivery.smtp.fair_queue import QueuedMail, ReceiverQueue
from app.delivery.smtp.protocol import (
    Reply,
    ReplyParser,
    ServerCapabilities,
    Unsendable,
    dot_stuffed,
    envelope_commands,
    printable_line,
)
from app.delivery.smtp.responses import Phase, classify
from app.delivery.smtp.timeouts import Timeouts

if TYPE_CHECKING:
    from app.delivery.smtp.connection_pool import ConnectionPool


class PendingReply(StrEnum):
    """A command, or a part of DATA, to which the relay has not replied yet."""

    RSET = "RSET"
    MAIL = "MAIL"
    RCPT = "RCPT"
    DATA = "DATA"
    BODY = "the final dot"
    DOT = "the lone dot"
    QUIT = "QUIT"


class SmtpConnection(asyncio.Protocol):
    """An SMTP session after EHLO, up to the reply to QUIT. It takes its emails from the pool.

    An email is first `_next` (its envelope is being sent), then `_in_flight` (its body is being sent or
    awaits a reply), and then its result is recorded. With PIPELINING, both may be set at the same time.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        capabilities: ServerCapabilities,
        timeouts: Timeouts,
        pool: ConnectionPool,
        max_mails: int,
    ) -> None:
        self._transport = transport
        self._capabilities = capabilities
        self._timeouts = timeouts
        self._pool = pool
        self._mails_left = max_mails
        self._strict_counts: Counter[ReceiverQueue] = Counter()
        self.carried: list[ReceiverQueue] = []  # the queue of each email being carried: see FairQueue
        self.pipelines = capabilities.pipelining
        self._loop = asyncio.get_running_loop()
        self._parser = ReplyParser()
        self._pending: deque[PendingReply] = deque()
        self._unsent: deque[tuple[PendingReply, bytes]] = deque()  # commands to send later if not pipelining
        self._next: QueuedMail | None = None
        self._next_refusal: SendResult | None = None
        self._sender_refused = False
        self._in_flight: QueuedMail | None = None
        self._has_served = False  # an email was accepted or refused
        self._is_last = False  # no more emails may be started
        self._closed = False
        self._more_replies = False  # arrived together with the reply that is being handled
        self._deadline = 0.0
        self._unsent_bytes = 0  # bytes of the body that the transport still buffers
        self._timer: asyncio.TimerHandle | None = None
        self._expected: dict[PendingReply, tuple[Callable[[Reply], None], float]] = {
            PendingReply.RSET: (partial(self._on_end, PendingReply.RSET), timeouts.mail),
            PendingReply.MAIL: (partial(self._on_envelope, PendingReply.MAIL), timeouts.mail),
            PendingReply.RCPT: (partial(self._on_envelope, PendingReply.RCPT), timeouts.rcpt),
            PendingReply.DATA: (self._on_data, timeouts.data),
            PendingReply.BODY: (self._on_body, timeouts.end),
            PendingReply.DOT: (partial(self._on_end, PendingReply.DOT), timeouts.end),
            PendingReply.QUIT: (partial(self._on_end, PendingReply.QUIT), timeouts.quit),
        }  # the handler of each reply, and the seconds to wait for it
        transport.set_protocol(self)

    # --- called by the pool

    def resume(self) -> None:
        """Start the next email. Called when an email is waiting."""
        if self._closed or self._is_last or self._next:
            return
        if self.pipelines or not self._pending:
            self._write(self._begin())

    def stop(self) -> None:
        """Send no more emails. Close the connection now or, if one is in flight, after the reply to it."""
        self._is_last = True
        if not (self._closed or self._in_flight):
            self._leave()

    def abort(self) -> None:
        """Close now. An email whose body was sent becomes uncertain if it has no reply yet."""
        self._close("the sender was stopped", SendResult(SendOutcome.NOT_ATTEMPTED))

    @property
    def is_idle(self) -> bool:
        return not self._pending

    # --- commands

    def _begin(self) -> bytes:
        """Return the commands for the next email, QUIT if the limit is reached, or nothing."""
        if self._is_last:
            return b""
        while self._mails_left > 0 and (queued := self._pool.next_mail(self)) is not None:
            self._mails_left -= 1
            if queued.queue.is_strict:
                self._strict_counts[queued.queue] += 1
                if self._strict_counts[queued.queue] >= STRICT_MESSAGES:
                    self._mails_left = 0
            try:
                mail, rcpt = envelope_commands(queued.mail, self._capabilities)
            except Unsendable as error:
                self._pool.record(queued, self, SendResult(SendOutcome.UNSENDABLE, None, str(error)))
                continue
            self._next = queued
            if self.pipelines:
                self._pending.extend((PendingReply.MAIL, PendingReply.RCPT, PendingReply.DATA))
                return mail + rcpt + b"DATA\r\n"
            self._pending.append(PendingReply.MAIL)
            self._unsent.extend(((PendingReply.RCPT, rcpt), (PendingReply.DATA, b"DATA\r\n")))
            return mail
        return self._quit() if self._mails_left <= 0 else b""

    def _quit(self) -> bytes:
        self._is_last = True
        self._pending.append(PendingReply.QUIT)
        return b"QUIT\r\n"

    def _send_body(self) -> None:
        """Commit the email and send its body. Only this step cannot be undone."""
        queued = self._next
        if queued is None or self._transport.is_closing():
            return
        # Any further reply would answer a command that the relay cannot have read yet.
        if self._more_replies or self._parser.has_more:
            self._protocol_error()
            return
        committed = self._pool.commit(queued.mail)
        if self._closed:
            return
        if not committed:  # after 354, only closing the connection prevents delivery
            self._close("withdrawn", SendResult(SendOutcome.WITHDRAWN))
            return
        self._next, self._in_flight = None, queued
        self._pending.append(PendingReply.BODY)
        following = self._begin() if self.pipelines else b""
        self._transport.writelines((dot_stuffed(queued.mail), b".\r\n" + following))

    def _write(self, data: bytes) -> None:
        if data and not self._closed:
            self._transport.write(data)
            self._start_timeout()

    # --- replies

    def data_received(self, data: bytes) -> None:
        """Handle the replies in `data`. Called by asyncio."""
        if self._closed:
            return
        replies = self._parser.feed(data)
        for place, reply in enumerate(replies, 1):
            self._more_replies = place < len(replies)
            if self._pending:
                self._expected[self._pending.popleft()][0](reply)
            elif reply.code == 421:
                self._close("the relay closes the connection")
            else:
                self._protocol_error()
            if self._closed:
                return
        if self._parser.is_invalid:
            self._close("the relay does not speak SMTP")
        elif replies:
            self._start_timeout()

    def _on_envelope(self, command: PendingReply, reply: Reply) -> None:
        """Handle the reply to MAIL or RCPT. A refusal is recorded when the transaction is over."""
        if self._next_refusal is not None:  # RCPT was pipelined after a MAIL that was refused
            return
        if reply.code < 300:
            if self._unsent:
                next_command, line = self._unsent.popleft()
                self._pending.append(next_command)
                self._transport.write(line)
        elif reply.code < 400:
            self._protocol_error()
        elif reply.code == 421 and command is PendingReply.MAIL:  # concerns this connection, not this email
            self._close("", _refusal(reply, self._next), may_retry=self._has_served)
        else:
            self._next_refusal = _refusal(reply, self._next, command)
            self._sender_refused = command is PendingReply.MAIL
            if reply.code == 421:
                self._close("")
            elif self._unsent:
                self._unsent.clear()
                self._record_refusal()
                self._reset()

    def _on_data(self, reply: Reply) -> None:
        if self._next_refusal is None and 300 <= reply.code < 400:
            self._send_body()
        elif reply.code < 300:
            self._protocol_error()
        elif reply.code < 400 and self._sender_refused:
            self._close("the relay accepts emails whose sender it refused")
        elif reply.code < 400:
            # End DATA with an empty body, because the relay refused the envelope (RFC 2920, 3.1).
            self._pending.append(PendingReply.DOT)
            self._transport.write(b".\r\n")
            self._record_refusal()
            if self.pipelines:
                self._write(self._begin())
        else:
            self._next_refusal = self._next_refusal or _refusal(reply, self._next)
            self._record_refusal()
            if reply.code == 421:
                self._close("")
            self._reset()

    def _record_refusal(self) -> None:
        queued, refusal = self._next, self._next_refusal
        self._next = self._next_refusal = None
        self._has_served = True
        if queued and refusal:
            self._pool.record(queued, self, refusal)

    def _reset(self) -> None:
        if self._closed:
            return
        if self._is_last:
            self._leave()
            return
        self._pending.append(PendingReply.RSET)
        self._transport.write(b"RSET\r\n" + (self._begin() if self.pipelines else b""))

    def _on_body(self, reply: Reply) -> None:
        if 300 <= reply.code < 400:
            self._protocol_error()
            return
        accepted = SendResult(SendOutcome.ACCEPTED, reply.code, reply.text()) if reply.code < 300 else None
        result = accepted or _refusal(reply, self._in_flight)
        queued, self._in_flight = self._in_flight, None
        self._has_served = True
        if queued:
            self._pool.record(queued, self, result)
        if reply.code == 421:
            self._close("", result, may_retry=True)
        elif not self._closed:
            self._go_on()

    def _on_end(self, command: PendingReply, reply: Reply) -> None:
        """Handle the reply to RSET or the lone dot, which end a transaction, or to QUIT."""
        if command is PendingReply.QUIT:
            self._close("")  # SMTP has ended, so TLS does not need a close alert
        elif command is PendingReply.RSET and reply.code >= 300:
            self._close("the relay refused RSET", may_retry=True)
        elif reply.code == 421:
            self._close("", _refusal(reply, self._next), may_retry=True)
        else:
            self._go_on()

    def _go_on(self) -> None:
        if self._is_last:
            self._leave()
        elif not self._pending:
            self._write(self._begin())

    # --- the end of the connection

    def _leave(self) -> None:
        """Send QUIT if no replies are pending; otherwise close. No body may be in flight."""
        if self._pending or self._next:
            if not (self._pending and self._pending[-1] is PendingReply.QUIT):
                self._close("stopped", SendResult(SendOutcome.NOT_ATTEMPTED))
        else:
            self._write(self._quit())

    def _protocol_error(self) -> None:
        """Close the connection after an unexpected reply, and stop pipelining."""
        pipelined = self.pipelines
        self._pool.disable_pipelining()
        self._close("the relay sent an unexpected reply", may_retry=pipelined)

    def connection_lost(self, error: Exception | None) -> None:
        """Handle the closing of the transport. Called by asyncio."""
        cause = printable_line(str(error or "")) or "the relay closed it"
        self._close(f"the connection broke: {cause}", may_retry=self._has_served)
        self._pool.on_transport_closed(self)

    def _close(self, reason: str, unsent: SendResult | None = None, *, may_retry: bool = False) -> None:
        """Close the connection and record the results of its emails.

        The email in flight becomes uncertain. The next email is provably unsent, because at most its envelope
        was sent. If the next email did not cause the closing (`may_retry`), another connection may send it.
        Otherwise, its result is its refusal, `unsent` or DEFERRED.
        """
        if self._closed:
            return
        self._closed = True
        self._stop_timer()
        self._transport.abort()
        if self._in_flight:
            may_retry = True  # the connection ended because of the email in flight
            self._pool.record(self._in_flight, self, SendResult(SendOutcome.UNCERTAIN, None, reason))
        if self._next:
            result = self._next_refusal or unsent or SendResult(SendOutcome.DEFERRED, None, reason)
            if may_retry and self._next_refusal is None:
                self._pool.retry_or_record(self._next, self, result)
            else:
                self._pool.record(self._next, self, result)
        self._in_flight = self._next = None
        self._pool.on_closed(self)

    # --- timeouts

    def _start_timeout(self) -> None:
        if not self._pending:
            return
        command = self._pending[0]
        self._unsent_bytes = self._transport.get_write_buffer_size() if command is PendingReply.BODY else 0
        timeout = self._timeouts.block if self._unsent_bytes else self._expected[command][1]
        self._deadline = self._loop.time() + timeout
        if self._timer is None or self._timer.when() > self._deadline:
            self._stop_timer()
            self._timer = self._loop.call_at(self._deadline, self._check_deadline)

    def _stop_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _check_deadline(self) -> None:
        """Close the connection after the deadline. There is one timer per connection, not one per command."""
        self._timer = None
        if not self._pending:
            return
        if self._loop.time() >= self._deadline:
            unsent_bytes = self._unsent_bytes
            if self._pending[0] is PendingReply.BODY and unsent_bytes:
                unsent_bytes = self._transport.get_write_buffer_size()
            if unsent_bytes == self._unsent_bytes:
                if len(self._pending) > 1 and self.pipelines and not self._in_flight:
                    self._pool.disable_pipelining()  # the relay may have lost pipelined commands
                self._close(f"the relay did not answer {self._pending[0]} in time")
                return
            # More of the body was sent. The timeout `end` starts when the whole body has been sent.
            self._unsent_bytes = unsent_bytes
            self._deadline = self._loop.time() + (
                self._timeouts.block if unsent_bytes else self._timeouts.end
            )
        self._timer = self._loop.call_at(self._deadline, self._check_deadline)


def _refusal(reply: Reply, queued: QueuedMail | None, command: PendingReply | None = None) -> SendResult:
    text = reply.text()
    verdict = classify(
        reply.code,
        text,
        sender=queued.mail.sender if queued else "",
        recipient=queued.mail.recipient if queued else "",
        phase=Phase.MAIL if command is PendingReply.MAIL else Phase.UNKNOWN,
        needs_smtputf8=bool(queued and queued.mail.needs_smtputf8),
    )
    return SendResult(verdict, reply.code, text)
