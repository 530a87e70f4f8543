"""A mail server that keeps what it gets, byte for byte: nothing is parsed, mended or refused."""

from __future__ import annotations

import socketserver
import threading
from dataclasses import dataclass
from types import TracebackType
from typing import cast

HOST = "127.0.0.1"
PATIENCE = 20.0  # seconds that a sender may be silent
_END = b"\r\n.\r\n"


@dataclass(frozen=True, slots=True)
class ReceivedMail:
    """A mail as it came over the wire, with the envelope it came in; only the dots are unstuffed."""

    sender: str
    recipient: str
    raw: bytes


class Sink:
    """Listens on a free port of this machine, as long as it is a context; announces what good relays do."""

    announces = ("PIPELINING", "SIZE 10240000", "8BITMIME", "SMTPUTF8", "ENHANCEDSTATUSCODES")

    def __init__(self) -> None:
        self.taken: list[ReceivedMail] = []
        self._server = _Server(self)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def take(self, mail: ReceivedMail) -> None:
        """Called with each mail, in the thread of its connection."""
        self.taken.append(mail)

    def __enter__(self) -> Sink:
        self._server.server_bind()
        self._server.server_activate()
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}).start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self, sink: Sink) -> None:
        super().__init__((HOST, 0), _Conversation, bind_and_activate=False)
        self.sink = sink

    def handle_error(self, *_: object) -> None:
        """A sender that broke off knows more about it than we do."""


class _Conversation(socketserver.StreamRequestHandler):
    """One connection (RFC 5321), also with one that does not wait for the answers (RFC 2920)."""

    timeout = PATIENCE

    def handle(self) -> None:
        sink = cast("_Server", self.server).sink
        sender, recipients = "", list[str]()
        self._say("220 sink ready")
        while line := self.rfile.readline(2000):
            verb, argument = line[:4].upper(), line.decode("utf-8", "replace").partition(":")[2]
            if verb == b"EHLO":
                self._say(*(f"250-{each}" for each in ("sink", *sink.announces)), "250 HELP")
            elif verb == b"MAIL":
                sender, recipients = _path(argument), []
                self._say("250 2.1.0 ok")
            elif verb == b"RCPT":
                recipients.append(_path(argument))
                self._say("250 2.1.5 ok")
            elif verb == b"DATA":
                self._say("354 go on")
                raw = self._body()
                for recipient in recipients:
                    sink.take(ReceivedMail(sender, recipient, raw))
                self._say("250 2.0.0 kept")
            elif verb == b"QUIT":
                self._say("221 2.0.0 bye")
                return
            else:
                self._say("250 2.0.0 ok")

    def _body(self) -> bytes:
        """All up to the final dot, read by LF so that a bare one is kept as it came."""
        raw = bytearray(b"\r\n")
        while not raw.endswith(_END):
            more = self.rfile.readline()
            if not more:
                raise ConnectionResetError("the sender left in the middle of a mail")
            raw += more
        return bytes(raw[: 2 - len(_END)]).replace(b"\r\n.", b"\r\n")[2:]

    def _say(self, *lines: str) -> None:
        self.wfile.write("".join(f"{line}\r\n" for line in lines).encode())


def _path(argument: str) -> str:
    """The address between the brackets of MAIL FROM:<…> or RCPT TO:<…>."""
    return argument.partition("<")[2].partition(">")[0]
