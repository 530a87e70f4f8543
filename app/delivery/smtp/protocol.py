"""PURE. SMTP as bytes: what is said of a mail, and what a relay's bytes say."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from app.types import OutgoingMail


@dataclass(frozen=True, slots=True)
class ServerCapabilities:
    """What the relay announced. `size` is the largest mail in bytes, 0: any; None: it did not say."""

    pipelining: bool = False
    smtputf8: bool = False
    size: int | None = None


class Reply(NamedTuple):
    """One answer of the relay, its lines joined."""

    code: int
    text: bytes

    def words(self) -> str:
        return clean(self.text.decode("utf-8", "replace"))


# How the lines of a reply begin: its last one, whose code counts, and those before it.
_LAST_LINES = {b"%d%s" % (code, end): code for code in range(200, 600) for end in (b" ", b"\r", b"")}
_OTHER_LINES = {b"%d-" % code for code in range(200, 600)}


class ReplyParser:
    """Bytes as they come in, any pieces of them, cut into replies."""

    LONGEST_LINE, MOST_LINES = 4096, 100  # RFC 5321 allows 512 octets; these only bound the memory

    def __init__(self) -> None:
        self._rest = b""
        self._lines: list[bytes] = []
        self.garbled = False  # what came last was no SMTP

    @property
    def has_more(self) -> bool:
        """Whether anything came after the replies that were given out."""
        return bool(self._rest or self._lines or self.garbled)

    def feed(self, data: bytes) -> list[Reply]:
        """The replies that are complete by now. After `garbled` nothing more is read."""
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        replies = []
        for line in lines:
            code = _LAST_LINES.get(line[:4])
            if len(line) > self.LONGEST_LINE or (code is None and line[:4] not in _OTHER_LINES):
                self.garbled = True
                break
            words = line[4:].strip()
            if code is None:
                self._lines.append(words)
            elif self._lines:
                replies.append(Reply(code, b" ".join([*self._lines, words])))
                self._lines.clear()
            else:
                replies.append(Reply(code, words))
        if len(self._rest) > self.LONGEST_LINE or len(self._lines) > self.MOST_LINES:
            self.garbled = True
        return replies


_ADDRESS = re.compile(r'("[^"\\\x00-\x1f\x7f]*"|[^\s<>"\x00-\x1f\x7f]+)@[^\s<>"\x00-\x1f\x7f]+')


class Unsendable(Exception):
    """This relay cannot carry this mail."""


def envelope(mail: OutgoingMail, offers: ServerCapabilities) -> tuple[bytes, bytes]:
    """The MAIL and RCPT commands."""
    size = len(mail.data)
    if offers.size and size > offers.size:
        raise Unsendable(f"the mail has {size} bytes, and the relay takes {offers.size} at most")
    if mail.needs_smtputf8 and not offers.smtputf8:
        raise Unsendable("the relay does not take addresses outside ASCII")
    if not _ADDRESS.fullmatch(mail.recipient):
        raise Unsendable("this address cannot be said in SMTP")
    options = f" SIZE={size}" if offers.size is not None else ""
    if mail.needs_smtputf8:
        options += " SMTPUTF8"
    try:
        encoding = "utf-8" if mail.needs_smtputf8 else "ascii"
        return (
            f"MAIL FROM:<{mail.sender}>{options}\r\n".encode(encoding),
            f"RCPT TO:<{mail.recipient}>\r\n".encode(encoding),
        )
    except UnicodeEncodeError:
        raise Unsendable("this address has letters outside ASCII") from None


def dot_stuffed(mail: OutgoingMail) -> bytes:
    """The body as DATA wants it, all but the final dot."""
    data = mail.data
    if not mail.no_leading_dots:
        if b"\r\n." in data:
            data = data.replace(b"\r\n.", b"\r\n..")
        if data.startswith(b"."):
            data = b"." + data
    return data if data.endswith(b"\r\n") else data + b"\r\n"


def clean(text: str) -> str:
    """A relay's words are foreign input: one line of a length and of characters that a database takes, and
    that no terminal obeys."""
    if not text.isprintable():
        whole = text.encode("utf-8", "replace").decode()
        text = "".join(char if char.isprintable() else " " for char in whole)
    return " ".join(text.split())[:500]
