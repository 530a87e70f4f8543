"""A mail server that stores messages byte for byte. It does not parse or change them."""

import socketserver
import threading
from dataclasses import dataclass
from types import TracebackType
from typing import Self, cast

HOST = "127.0.0.1"
TIMEOUT = 20.0  # seconds that a sender may be silent
_END = b"\r\n.\r\n"


@dataclass(frozen=True, slots=True)
class CapturedMail:
    """A message with its envelope, as received, except that dot-stuffing is undone."""

    sender: str
    recipient: str
    raw: bytes


class Sink:
    """An SMTP server with the usual extensions on a free local port. It runs while its context is open."""

    extensions = ("PIPELINING", "SIZE 10240000", "8BITMIME", "SMTPUTF8", "ENHANCEDSTATUSCODES")

    def __init__(self) -> None:
        self.received: list[CapturedMail] = []
        self._server = _Server(self)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def rejection_reply(self, _recipient: str) -> str:
        """Return the reply that rejects a recipient, or "" if it is accepted."""
        return ""

    def receive(self, mail: CapturedMail) -> None:
        """Store a message. This method runs in the thread of the connection."""
        self.received.append(mail)

    def __enter__(self) -> Self:
        self._server.server_bind()
        self._server.server_activate()
        options = {"poll_interval": 0.02}
        threading.Thread(target=self._server.serve_forever, kwargs=options, daemon=True).start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self, sink: Sink) -> None:
        super().__init__((HOST, 0), _SmtpHandler, bind_and_activate=False)
        self.sink = sink

    def handle_error(self, *_: object) -> None:
        """Ignore broken connections, because the sender reports them."""


class _SmtpHandler(socketserver.StreamRequestHandler):
    """One connection (RFC 5321), with or without pipelining (RFC 2920)."""

    timeout = TIMEOUT

    def handle(self) -> None:
        sink = cast("_Server", self.server).sink
        sender, recipients = "", list[str]()
        self._reply("220 sink ready")
        while line := self.rfile.readline(2000):
            verb, argument = line[:4].upper(), line.decode("utf-8", "replace").partition(":")[2]
            if verb == b"EHLO":
                self._reply(*(f"250-{extension}" for extension in ("sink", *sink.extensions)), "250 HELP")
            elif verb == b"MAIL":
                sender, recipients = _path(argument), []
                self._reply("250 2.1.0 ok")
            elif verb == b"RCPT":
                recipient = _path(argument)
                rejection = sink.rejection_reply(recipient)
                if not rejection:
                    recipients.append(recipient)
                self._reply(rejection or "250 2.1.5 ok")
            elif verb == b"DATA" and not recipients:
                self._reply("503 5.5.1 no recipients")
            elif verb == b"DATA":
                self._reply("354 go on")
                raw = self._read_data()
                for recipient in recipients:
                    sink.receive(CapturedMail(sender, recipient, raw))
                self._reply("250 2.0.0 kept")
            elif verb == b"QUIT":
                self._reply("221 2.0.0 bye")
                return
            else:
                self._reply("250 2.0.0 ok")

    def _read_data(self) -> bytes:
        """Read the message up to the final dot, and undo dot-stuffing. Keep bare CRs and LFs."""
        raw = bytearray(b"\r\n")
        while not raw.endswith(_END):
            line = self.rfile.readline()
            if not line:
                raise ConnectionResetError("the sender disconnected in the middle of an email")
            raw += line
        return bytes(raw[: 2 - len(_END)]).replace(b"\r\n.", b"\r\n")[2:]

    def _reply(self, *lines: str) -> None:
        self.wfile.write("".join(f"{line}\r\n" for line in lines).encode())


def _path(argument: str) -> str:
    """Return the address between the brackets of MAIL FROM:<…> or RCPT TO:<…>."""
    return argument.partition("<")[2].partition(">")[0]
