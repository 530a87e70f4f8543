"""RenderedMail → RFC 5322 bytes. The same mail always gives the same bytes, and nobody's text makes a header.

Written by hand rather than by `email.message`, which folds a long List-Unsubscribe into encoded words,
draws its boundaries at random, and costs milliseconds a mail.

Bodies are quoted-printable (RFC 2045) of a stricter kind, so that nothing on the way has a reason to touch
them: no line begins with a dot or with "From ", none ends with white space, no two blanks stand together.
What DKIM calls the relaxed canonical form (RFC 6376, 3.4.4) is then the body itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.header import Header
from email.utils import format_datetime

from app.errors import DeliveryError
from app.types import OutgoingMail, RenderedMail

# Quoted-printable never holds "=_", so this cannot occur in a part.
BOUNDARY = "=_paperboy"
MAX_LINE = 998
QUOTED_CHARS = 75  # a line of quoted-printable may have 76: one is for the "=" that says that it goes on
_NOT_SAFE = re.compile(rb"[^ !-<>-~]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_ADDRESS = re.compile(r"[^\x00-\x20\x7f<>()\[\],;:\\\"@\s]+@[^\x00-\x20\x7f<>()\[\],;:\\\"@\s]+")
_PLAIN_PHRASE = re.compile(r"[A-Za-z0-9 !#$%&'*+/=?^_`{|}~-]+")


@dataclass(frozen=True, slots=True)
class Envelope:
    """Who writes to whom, and the names that bind the mail to its delivery."""

    delivery_id: int
    message_id: str
    return_path: str
    from_name: str
    from_address: str
    to_address: str
    date: datetime


def compose(mail: RenderedMail, envelope: Envelope) -> OutgoingMail:
    """The mail as it goes over the wire; DeliveryError when its addresses or headers cannot be written."""
    recipient = address(envelope.to_address)
    head = (
        sender(envelope.from_name, envelope.from_address)
        + header("To", recipient)
        + subject(mail.subject)
        + date(envelope.date)
        + header("Message-ID", envelope.message_id)
        + headers(mail.headers)
    )
    return OutgoingMail(
        delivery_id=envelope.delivery_id,
        message_id=envelope.message_id,
        subject=mail.subject,
        sender=address(envelope.return_path),
        recipient=recipient,
        data=head.encode() + b"\r\n" + _body(mail),
        needs_smtputf8=not recipient.isascii(),
        no_leading_dots=True,
    )


def sender(name: str, from_address: str) -> str:
    """The From header."""
    return header("From", f"{_phrase(name)} <{address(from_address)}>")


def subject(text: str) -> str:
    """The Subject header."""
    return header("Subject", _rfc2047("Subject", text))


def date(moment: datetime) -> str:
    """The Date header."""
    return header("Date", format_datetime(moment.astimezone(UTC)))


def headers(named: Mapping[str, str]) -> str:
    """Headers as they are named, and those that say what follows them."""
    content = {"MIME-Version": "1.0", "Content-Type": f'multipart/alternative; boundary="{BOUNDARY}"'}
    return "".join(header(name, value) for name, value in {**named, **content}.items())


def _body(mail: RenderedMail) -> bytes:
    plain, html = (quoted_printable(text) + b"\r\n" for text in (mail.text, mail.html))
    return part("plain") + plain + part("html") + html + END


def part(kind: str) -> bytes:
    """What stands before the quoted text of a part."""
    return (
        f"--{BOUNDARY}\r\n"
        f"Content-Type: text/{kind}; charset=utf-8\r\n"
        "Content-Transfer-Encoding: quoted-printable\r\n\r\n"
    ).encode()


END = f"--{BOUNDARY}--\r\n".encode()


def quoted_printable(text: str) -> bytes:
    """Text as lines of quoted-printable; the last is left open where the text does not end with a line."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return b"\r\n".join(_quoted_line(line.encode("utf-8", "replace")) for line in lines)


def quoted_printable_lines(text: str) -> bytes:
    """Text as whole lines of quoted-printable: fragments that follow each other are texts that do."""
    encoded = quoted_printable(text)
    return encoded if not encoded or encoded.endswith(b"\r\n") else encoded + SOFT_BREAK


SOFT_BREAK = b"=\r\n"


def _quoted_line(line: bytes) -> bytes:
    encoded = _NOT_SAFE.sub(lambda match: b"=%02X" % match[0][0], line).replace(b"  ", b" =20")
    rest = encoded[:-1] + b"=20" if encoded.endswith(b" ") else encoded
    done = []
    while rest := _guarded(rest):
        end = _cut(rest)
        done.append(rest[:end])
        rest = rest[end:]
    return SOFT_BREAK.join(done)


def _guarded(line: bytes) -> bytes:
    """What a relay or a mailbox file would read as its own, encoded."""
    if line.startswith((b".", b"From ")):
        return b"=%02X" % line[0] + line[1:]
    return line


def _cut(line: bytes) -> int:
    """Where a line must end, not within what stands for one byte."""
    if len(line) <= QUOTED_CHARS:
        return len(line)
    at = line.rfind(b"=", QUOTED_CHARS - 2, QUOTED_CHARS)
    return at if at > 0 else QUOTED_CHARS


def header(name: str, value: str) -> str:
    """One header line, folded only where an encoded word was. CR or LF of anybody's making is refused."""
    if _CONTROL.search(value.replace("\r\n ", " ")) or _CONTROL.search(name):
        raise DeliveryError(f"the header {name} holds a control character", permanent=True)
    line = f"{name}: {value}\r\n"
    if any(len(part) > MAX_LINE for part in line.encode().split(b"\r\n")):
        raise DeliveryError(f"the header {name} is too long", permanent=True)
    return line


def _rfc2047(name: str, text: str) -> str:
    """Text as RFC 2047 wants it: encoded where it is not ASCII, or would pass for something encoded."""
    if _CONTROL.search(text):
        raise DeliveryError(f"the header {name} holds a control character", permanent=True)
    if text.isascii() and "=?" not in text and len(text) < MAX_LINE - len(name) - 2:
        return text
    encoded = Header(text.encode("utf-8", "replace").decode(), "utf-8", header_name=name)
    return encoded.encode(linesep="\r\n")


def _phrase(name: str) -> str:
    if _PLAIN_PHRASE.fullmatch(name) and "=?" not in name:
        return name
    if name.isascii() and not _CONTROL.search(name) and "=?" not in name:
        return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return _rfc2047("From", name)


def address(text: str) -> str:
    """An address that can stand in a header and in the envelope; its domain in ASCII where it can be."""
    local, _, domain = text.rpartition("@")
    if not domain.isascii():
        try:
            domain = domain.encode("idna").decode()
        except UnicodeError:
            raise DeliveryError("the address has an impossible domain", permanent=True) from None
    address = f"{local}@{domain}"
    if not _ADDRESS.fullmatch(address) or len(address.encode()) > 320:
        raise DeliveryError("the address cannot be written to", permanent=True)
    return address
