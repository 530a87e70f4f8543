"""PURE. Encode SMTP commands and message bodies, and parse the relay's replies."""

import re
from dataclasses import dataclass
from typing import NamedTuple

from app.mail.message import OutgoingMail


@dataclass(frozen=True, slots=True)
class ServerCapabilities:
    """The extensions that the relay announced.

    `size` is the maximum size of an email in bytes. 0 means no fixed limit, and None that SIZE is missing.
    """

    pipelining: bool = False
    smtputf8: bool = False
    size: int | None = None


class Reply(NamedTuple):
    """One reply from the relay, with its lines joined."""

    code: int
    raw_text: bytes

    def text(self) -> str:
        return printable_line(self.raw_text.decode("utf-8", "replace"))


# The first four bytes of a reply's last line, mapped to the reply's code, and those of its other lines.
_LAST_LINES = {b"%d%s" % (code, end): code for code in range(200, 600) for end in (b" ", b"\r", b"")}
_OTHER_LINES = {b"%d-" % code for code in range(200, 600)}


class ReplyParser:
    """An incremental parser of replies."""

    LONGEST_LINE, MAX_LINES = 4096, 100  # RFC 5321 allows 512 octets; these limits only bound memory use

    def __init__(self) -> None:
        self._rest = b""
        self._lines: list[bytes] = []
        self.is_invalid = False  # the last bytes received were not SMTP

    @property
    def has_more(self) -> bool:
        """True if bytes arrived after the replies that `feed` returned."""
        return bool(self._rest or self._lines or self.is_invalid)

    def feed(self, data: bytes) -> list[Reply]:
        """Return the replies that `data` completes. Invalid input sets `is_invalid` and ends parsing."""
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        replies = []
        for line in lines:
            code = _LAST_LINES.get(line[:4])
            if len(line) > self.LONGEST_LINE or (code is None and line[:4] not in _OTHER_LINES):
                self.is_invalid = True
                break
            text = line[4:].strip()
            if code is None:
                self._lines.append(text)
            elif self._lines:
                replies.append(Reply(code, b" ".join([*self._lines, text])))
                self._lines.clear()
            else:
                replies.append(Reply(code, text))
        if len(self._rest) > self.LONGEST_LINE or len(self._lines) > self.MAX_LINES:
            self.is_invalid = True
        return replies


_ADDRESS = re.compile(r'("[^"\\\x00-\x1f\x7f]*"|[^\s<>"\x00-\x1f\x7f]+)@[^\s<>"\x00-\x1f\x7f]+')


class Unsendable(Exception):
    """The relay cannot carry this email."""


def envelope_commands(mail: OutgoingMail, capabilities: ServerCapabilities) -> tuple[bytes, bytes]:
    """Return the MAIL and RCPT commands. Raise Unsendable if the relay cannot carry the email."""
    size = len(mail.data)
    if capabilities.size and size > capabilities.size:
        raise Unsendable(f"the email has {size} bytes, but the relay accepts at most {capabilities.size}")
    if mail.needs_smtputf8 and not capabilities.smtputf8:
        raise Unsendable("the relay does not accept addresses outside ASCII before the @ (SMTPUTF8)")
    if not _ADDRESS.fullmatch(mail.recipient):
        raise Unsendable("the address is not valid in SMTP")
    options = f" SIZE={size}" if capabilities.size is not None else ""
    if mail.needs_smtputf8:
        options += " SMTPUTF8"
    try:
        encoding = "utf-8" if mail.needs_smtputf8 else "ascii"
        return (
            f"MAIL FROM:<{mail.sender}>{options}\r\n".encode(encoding),
            f"RCPT TO:<{mail.recipient}>\r\n".encode(encoding),
        )
    except UnicodeEncodeError:
        raise Unsendable("the address contains characters outside ASCII") from None


def dot_stuffed(mail: OutgoingMail) -> bytes:
    """Return the body, dot-stuffed for DATA (RFC 5321, 4.5.2), without the final dot."""
    data = mail.data
    if not mail.no_leading_dots:
        if b"\r\n." in data:
            data = data.replace(b"\r\n.", b"\r\n..")
        if data.startswith(b"."):
            data = b"." + data
    return data if data.endswith(b"\r\n") else data + b"\r\n"


def printable_line(text: str) -> str:
    """Return untrusted text from a relay as one line of at most 500 printable characters."""
    if not text.isprintable():
        encodable = text.encode("utf-8", "replace").decode()
        text = "".join(char if char.isprintable() else " " for char in encodable)
    return " ".join(text.split())[:500]
