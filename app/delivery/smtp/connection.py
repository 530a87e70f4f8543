"""One connection to the relay: mail after mail goes over it, a round trip each where the relay allows.

aiosmtplib has said EHLO, STARTTLS and AUTH; then its transport is handed over to `Conversation`. Where
PIPELINING is announced, one write carries a body, its final dot and the next MAIL, RCPT and DATA
(RFC 2920); the answers come together. A body leaves only after all three were answered, the mail before
it was answered too, and the ledger said yes: so there is never more than one mail in flight. CHUNKING
would save nothing: a body waits for the answer to RCPT anyway, and ours have no dots to stuff.

Nothing waits in here: everything happens when an answer, a mail or the end of a patience arrives. At
most one mail is in the transport's buffer, so that its flow control needs no further care.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from app.delivery.smtp.fair_queue import QueuedMail
from app.delivery.smtp.protocol import (
    Reply,
    ReplyParser,
    ServerCapabilities,
    Unsendable,
    clean,
    dot_stuffed,
    envelope,
)
from app.delivery.smtp.responses import classify
from app.types import SendOutcome, SendResult


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds to wait for the relay (RFC 5321, 4.5.3.2). Who waits less than `end` sends mails twice."""

    connect: float = 300.0  # until it greets
    mail: float = 300.0
    rcpt: float = 300.0
    data: float = 120.0
    block: float = 180.0  # for the connection to take more of a body
    end: float = 600.0  # after the final dot
    quit: float = 5.0


class Round(Protocol):
    """Where a conversation gets its mails, and where it tells what became of them."""

    def is_over(self) -> bool:
        """Whether this connection has carried all it may."""

    def take(self) -> QueuedMail | None:
        """The next mail; None: there is none now, `Conversation.resume` is called when there is."""

    def commit(self, parcel: QueuedMail) -> bool: ...
    def settle(self, parcel: QueuedMail, answer: SendResult) -> None: ...
    def give_back(self, parcel: QueuedMail, answer: SendResult) -> None:
        """It never left, and not for its own sake: another connection may try, else this is its answer."""

    def misbehaved(self) -> None:
        """The relay answers what was not asked, or in a wrong order."""

    def ended(self) -> None:
        """Nothing more goes over this connection."""

    def lost(self) -> None:
        """Its transport is closed, and nothing more comes from it."""


class PendingReply(StrEnum):
    """What the relay still owes an answer to."""

    RSET = "RSET"
    MAIL = "MAIL"
    RCPT = "RCPT"
    DATA = "DATA"
    BODY = "the final dot"
    DOT = "the lone dot"
    QUIT = "QUIT"


class SmtpConnection(asyncio.Protocol):
    """The protocol of one connection, from EHLO's answer to QUIT's."""

    def __init__(
        self, transport: asyncio.Transport, offers: ServerCapabilities, patience: Timeouts, round_: Round
    ) -> None:
        self._transport = transport
        self._offers = offers
        self.pipelines = offers.pipelining
        self._patience = patience
        self._round = round_
        self._loop = asyncio.get_running_loop()
        self._replies = ReplyParser()
        self._awaited: deque[PendingReply] = deque()
        self._unsaid: deque[tuple[PendingReply, bytes]] = deque()  # where commands go one at a time
        self._announced: QueuedMail | None = None  # its envelope was said, or is being said
        self._refusal: SendResult | None = None  # of the announced
        self._refused_sender = False
        self._in_flight: QueuedMail | None = None  # its body was sent, or is being sent
        self._has_served = False
        self._is_last = False  # nothing may begin any more
        self._closed = False
        self._unread = False  # more had come by the time of the answer that is looked at
        self._deadline = 0.0
        self._left = 0  # bytes of the body that wait to leave
        self._watch: asyncio.TimerHandle | None = None
        self._on: dict[PendingReply, Callable[[Reply], None]] = {
            PendingReply.RSET: self._on_reset,
            PendingReply.MAIL: self._on_mail,
            PendingReply.RCPT: self._on_rcpt,
            PendingReply.DATA: self._on_data,
            PendingReply.BODY: self._on_body,
            PendingReply.DOT: self._on_dot,
            PendingReply.QUIT: self._on_quit,
        }
        self._limits = {
            PendingReply.RSET: patience.mail,
            PendingReply.MAIL: patience.mail,
            PendingReply.RCPT: patience.rcpt,
            PendingReply.DATA: patience.data,
            PendingReply.BODY: patience.end,
            PendingReply.DOT: patience.end,
            PendingReply.QUIT: patience.quit,
        }
        transport.set_protocol(self)

    # --- what the relay's pool tells it

    def resume(self) -> None:
        """There is a mail."""
        if self._closed or self._is_last or self._announced:
            return
        if self.pipelines or not self._awaited:
            self._write(self._begin())

    def stop(self) -> None:
        """Begin nothing more. A body that left gets its answer; then this ends."""
        self._is_last = True
        if not (self._closed or self._in_flight):
            self._leave()

    def abort(self) -> None:
        """End now. Whether a body that left arrived is not known then."""
        self._break("the sender was ended", SendResult(SendOutcome.NOT_ATTEMPTED))

    @property
    def is_idle(self) -> bool:
        return not self._awaited

    # --- what is said

    def _begin(self) -> bytes:
        """The commands for the next mail, if there is one and this connection may carry it."""
        if self._is_last:
            return b""
        taken = self._take()
        if taken is None:
            return self._quit() if self._round.is_over() else b""
        self._announced, mail, rcpt = taken
        if self.pipelines:
            self._awaited.extend((PendingReply.MAIL, PendingReply.RCPT, PendingReply.DATA))
            return mail + rcpt + b"DATA\r\n"
        self._awaited.append(PendingReply.MAIL)
        self._unsaid.extend(((PendingReply.RCPT, rcpt), (PendingReply.DATA, b"DATA\r\n")))
        return mail

    def _take(self) -> tuple[QueuedMail, bytes, bytes] | None:
        while (parcel := self._round.take()) is not None:
            try:
                return parcel, *envelope(parcel.mail, self._offers)
            except Unsendable as error:
                self._round.settle(parcel, SendResult(SendOutcome.UNSENDABLE, None, str(error)))
        return None

    def _quit(self) -> bytes:
        self._is_last = True
        self._awaited.append(PendingReply.QUIT)
        return b"QUIT\r\n"

    def _send_body(self) -> None:
        """The one step that cannot be taken back."""
        parcel = self._announced
        if parcel is None or self._transport.is_closing():
            return
        if self._unread or self._replies.has_more:  # it answers already what it cannot have read
            self._out_of_pace()
            return
        may_leave = self._round.commit(parcel)
        if self._closed:
            return
        if not may_leave:  # after 354 there is no other way back than to close
            self._break("withdrawn", SendResult(SendOutcome.WITHDRAWN))
            return
        self._announced, self._in_flight = None, parcel
        self._awaited.append(PendingReply.BODY)
        behind = self._begin() if self.pipelines else b""
        self._transport.writelines((dot_stuffed(parcel.mail), b".\r\n" + behind))

    def _say_more(self) -> None:
        if self._unsaid:
            ask, line = self._unsaid.popleft()
            self._awaited.append(ask)
            self._transport.write(line)

    def _write(self, data: bytes) -> None:
        if data and not self._closed:
            self._transport.write(data)
            self._be_patient()

    # --- what is answered

    def data_received(self, data: bytes) -> None:
        if self._closed:
            return
        replies = self._replies.feed(data)
        for place, reply in enumerate(replies, 1):
            self._unread = place < len(replies)
            if self._awaited:
                self._on[self._awaited.popleft()](reply)
            elif reply.code == 421:
                self._break("the relay closes the connection")
            else:
                self._out_of_pace()
            if self._closed:
                return
        if self._replies.garbled:
            self._break("the relay does not speak SMTP")
        elif replies:
            self._be_patient()

    def _on_mail(self, reply: Reply) -> None:
        if reply.code == 421:  # about this connection, not about this mail
            self._break("", _refusal(reply), blameless=self._has_served)
        elif self._is_taken(reply, PendingReply.MAIL):
            self._say_more()

    def _on_rcpt(self, reply: Reply) -> None:
        if self._refusal is None and self._is_taken(reply, PendingReply.RCPT):
            self._say_more()

    def _is_taken(self, reply: Reply, ask: PendingReply) -> bool:
        """Whether the envelope stands so far; a refusal is kept until its transaction is over."""
        if reply.code < 300:
            return True
        if reply.code < 400:
            self._out_of_pace()
            return False
        self._refusal = _refusal(reply, ask)
        self._refused_sender = ask is PendingReply.MAIL
        if reply.code == 421:
            self._break("")
        elif self._unsaid:
            self._unsaid.clear()
            self._settle_refused()
            self._reset()
        return False

    def _on_data(self, reply: Reply) -> None:
        if self._refusal is None and 300 <= reply.code < 400:
            self._send_body()
        elif reply.code < 300:
            self._out_of_pace()
        elif reply.code < 400:
            self._end_empty()
        else:
            self._refusal = self._refusal or _refusal(reply)
            self._settle_refused()
            if reply.code == 421:
                self._break("")
            self._reset()

    def _end_empty(self) -> None:
        """The relay wants a body although it refused the envelope: a lone dot ends it (RFC 2920, 3.1)."""
        if self._refused_sender:
            self._break("the relay takes a mail whose sender it refused")
            return
        self._awaited.append(PendingReply.DOT)
        self._transport.write(b".\r\n")
        self._settle_refused()
        if self.pipelines:
            self._write(self._begin())

    def _settle_refused(self) -> None:
        parcel, answer = self._announced, self._refusal
        self._announced = self._refusal = None
        self._has_served = True
        if parcel and answer:
            self._round.settle(parcel, answer)

    def _reset(self) -> None:
        if self._closed:
            return
        if self._is_last:
            self._leave()
            return
        self._awaited.append(PendingReply.RSET)
        self._transport.write(b"RSET\r\n" + (self._begin() if self.pipelines else b""))

    def _on_reset(self, reply: Reply) -> None:
        if reply.code >= 300:
            self._break("the relay cannot begin anew", blameless=True)
        else:
            self._go_on()

    def _on_dot(self, reply: Reply) -> None:
        if reply.code == 421:
            self._break("", _refusal(reply), blameless=True)
        else:
            self._go_on()

    def _on_body(self, reply: Reply) -> None:
        if 300 <= reply.code < 400:
            self._out_of_pace()
            return
        taken = reply.code < 300
        answer = SendResult(SendOutcome.ACCEPTED, reply.code, reply.words()) if taken else _refusal(reply)
        parcel, self._in_flight = self._in_flight, None
        self._has_served = True
        if parcel:
            self._round.settle(parcel, answer)
        if reply.code == 421:
            self._break("", answer, blameless=True)
        elif not self._closed:
            self._go_on()

    def _on_quit(self, _reply: Reply) -> None:
        self._closed = True
        self._stop_watching()
        self._transport.abort()  # all is said: TLS has no need to say goodbye, too
        self._round.ended()

    def _go_on(self) -> None:
        if self._is_last:
            self._leave()
        elif not self._awaited:
            self._write(self._begin())

    # --- how it ends

    def _leave(self) -> None:
        """Nothing is in flight and nothing may begin: say goodbye, or, within an envelope, go."""
        if self._awaited or self._announced:
            if not (self._awaited and self._awaited[-1] is PendingReply.QUIT):
                self._break("stopped", SendResult(SendOutcome.NOT_ATTEMPTED))
        else:
            self._write(self._quit())

    def _out_of_pace(self) -> None:
        pipelined = self.pipelines
        self._round.misbehaved()
        self._break("the relay answers what was not asked", blameless=pipelined)

    def connection_lost(self, error: Exception | None) -> None:
        words = clean(str(error or "")) or "the relay closed it"
        self._break(f"the connection broke: {words}", blameless=self._has_served)
        self._round.lost()

    def _break(self, words: str, unsent: SendResult | None = None, *, blameless: bool = False) -> None:
        """This connection is of no more use. What it held is judged by what can have left.

        A mail whose envelope only was said is provably unsent: `unsent` is its answer, and another
        connection may try it where the relay did not end this one for that mail's sake (`blameless`).
        """
        if self._closed:
            return
        self._closed = True
        self._stop_watching()
        self._transport.abort()
        if self._in_flight:
            blameless = True  # whatever happened was about the mail before
            self._round.settle(self._in_flight, SendResult(SendOutcome.UNCERTAIN, None, words))
        if self._announced:
            answer = self._refusal or unsent or SendResult(SendOutcome.DEFERRED, None, words)
            retry = blameless and self._refusal is None
            (self._round.give_back if retry else self._round.settle)(self._announced, answer)
        self._in_flight = self._announced = None
        self._round.ended()

    # --- patience

    def _be_patient(self) -> None:
        """From now on the relay has so long for its next answer."""
        if not self._awaited:
            return
        ask = self._awaited[0]
        self._left = self._transport.get_write_buffer_size() if ask is PendingReply.BODY else 0
        patience = self._patience.block if self._left else self._limits[ask]
        self._deadline = self._loop.time() + patience
        if self._watch is None or self._watch.when() > self._deadline:
            self._stop_watching()
            self._watch = self._loop.call_at(self._deadline, self._look)

    def _stop_watching(self) -> None:
        if self._watch:
            self._watch.cancel()
            self._watch = None

    def _look(self) -> None:
        """One timer a connection, not one a command: what it waits for has mostly come long ago."""
        self._watch = None
        if not self._awaited:
            return
        if self._loop.time() >= self._deadline and not self._has_more_time():
            self._lose_patience()
            return
        self._watch = self._loop.call_at(self._deadline, self._look)

    def _has_more_time(self) -> bool:
        """Ten minutes count from when the body has left; while it leaves, each block has its own time."""
        if self._awaited[0] is not PendingReply.BODY or self._left == 0:
            return False
        left = self._transport.get_write_buffer_size()
        if left == self._left:
            return False
        self._left = left
        self._deadline = self._loop.time() + (self._patience.block if left else self._patience.end)
        return True

    def _lose_patience(self) -> None:
        ask = self._awaited[0]
        if len(self._awaited) > 1 and self.pipelines and not self._in_flight:
            self._round.misbehaved()  # it may have lost what was said ahead
        self._break(f"the relay did not answer {ask} in time")


def _refusal(reply: Reply, ask: PendingReply | None = None) -> SendResult:
    words = reply.words()
    verdict = classify(reply.code, words)
    if verdict is SendOutcome.HARD_BOUNCE and ask is PendingReply.MAIL:
        verdict = SendOutcome.SENDER_REJECTED  # it is our own address that does not exist
    return SendResult(verdict, reply.code, words)
