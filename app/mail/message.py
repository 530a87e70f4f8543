"""Convert a RenderedMail to RFC 5322 bytes. The same input always produces the same bytes.

Texts cannot inject headers. `email.message` is not used: it folds a long List-Unsubscribe into encoded words,
chooses random boundaries, and takes milliseconds per message.

Bodies use a stricter form of quoted-printable (RFC 2045), so that servers do not change them in transit.
Lines do not begin with a dot or "From ", do not end with white space, and do not contain consecutive spaces.
Such a body is its own relaxed canonical form (RFC 6376, 3.4.4), which DKIM hashes.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.header import Header
from email.utils import format_datetime, quote
from functools import lru_cache
from typing import NamedTuple

from app.errors import DeliveryError
from app.text import domains
from app.types import RenderedMail

# Quoted-printable never contains "=_", so this cannot occur in a part.
BOUNDARY = "=_paperboy"
MAX_LINE = 998
QUOTED_CHARS = 75  # per line; the limit of 76 (RFC 2045) includes the "=" of a soft line break
_NOT_SAFE = re.compile(rb"[^\n !-<>-~]+")
# An encoded line that is short enough, and whose first and last characters need no encoding.
_FITS = re.compile(rb"(?!From |\.)(?:[^\n]{0,%d}[^ \n])?" % (QUOTED_CHARS - 1))
MAX_CACHED_RUNS = 5_000  # of bytes that are encoded: mostly single letters with accents, and quotation marks
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_ADDRESS = re.compile(r"[^\x00-\x20\x7f<>()\[\],;:\\\"@\s]+@[^\x00-\x20\x7f<>()\[\],;:\\\"@\s]+")
_PLAIN_PHRASE = re.compile(r"[A-Za-z0-9 !#$%&'*+/=?^_`{|}~-]+")


@dataclass(frozen=True, slots=True)
class Envelope:
    """The addresses and the date of a message, and the IDs that link it to its delivery."""

    delivery_id: int
    message_id: str
    return_path: str
    from_name: str
    from_address: str
    to_address: str
    date: datetime


class OutgoingMail(NamedTuple):
    """An email as bytes, with its envelope."""

    delivery_id: int
    message_id: str
    subject: str
    sender: str  # the signed return path
    recipient: str
    data: bytes  # lines end in CRLF
    needs_smtputf8: bool = False
    no_leading_dots: bool = False  # True if `data` needs no dot-stuffing; checking takes 20 µs


def compose(mail: RenderedMail, envelope: Envelope) -> OutgoingMail:
    """Return the message to send. Raise DeliveryError if an address or a header is invalid."""
    recipient = address(envelope.to_address)
    plain, html = (quoted_printable(text) + b"\r\n" for text in (mail.text, mail.html))
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
        data=b"".join([head.encode(), b"\r\n", part("plain"), plain, part("html"), html, END]),
        needs_smtputf8=not recipient.isascii(),
        no_leading_dots=True,
    )


def sender(name: str, from_address: str) -> str:
    """Return the From header."""
    if _PLAIN_PHRASE.fullmatch(name) and "=?" not in name:
        phrase = name
    elif name.isascii() and not _CONTROL.search(name) and "=?" not in name:
        phrase = f'"{quote(name)}"'
    else:
        phrase = _rfc2047("From", name)
    return header("From", f"{phrase} <{address(from_address)}>")


def subject(text: str) -> str:
    """Return the Subject header."""
    return header("Subject", _rfc2047("Subject", text))


def date(moment: datetime) -> str:
    """Return the Date header."""
    return header("Date", format_datetime(moment.astimezone(UTC)))


def headers(fields: Mapping[str, str]) -> str:
    """Return these headers, followed by MIME-Version and Content-Type."""
    content = {"MIME-Version": "1.0", "Content-Type": f'multipart/alternative; boundary="{BOUNDARY}"'}
    return "".join(header(name, value) for name, value in {**fields, **content}.items())


def part(kind: str) -> bytes:
    """Return the boundary and the headers that begin a body part."""
    return (
        f"--{BOUNDARY}\r\n"
        f"Content-Type: text/{kind}; charset=utf-8\r\n"
        "Content-Transfer-Encoding: quoted-printable\r\n\r\n"
    ).encode()


END = f"--{BOUNDARY}--\r\n".encode()


def quoted_printable(text: str) -> bytes:
    """Encode text as quoted-printable. The result ends with a line break only if the text does."""
    unix = text.replace("\r\n", "\n").replace("\r", "\n").encode("utf-8", "replace")
    lines = _NOT_SAFE.sub(_encoded, unix).replace(b"  ", b" =20").split(b"\n")
    return b"\r\n".join([line if _FITS.fullmatch(line) else _broken(line) for line in lines])


def quoted_printable_lines(text: str) -> bytes:
    """Encode text as whole lines of quoted-printable, so that encoded fragments can be concatenated."""
    encoded = quoted_printable(text)
    return encoded if not encoded or encoded.endswith(b"\r\n") else encoded + SOFT_BREAK


SOFT_BREAK = b"=\r\n"


def _broken(line: bytes) -> bytes:
    """Return an encoded line with soft line breaks. Encode its first and last characters if needed."""
    rest = line[:-1] + b"=20" if line.endswith(b" ") else line
    lines = []
    while rest:
        if rest.startswith((b".", b"From ")):  # SMTP or an mbox file would misread it
            rest = b"=%02X" % rest[0] + rest[1:]
        end = len(rest)
        if end > QUOTED_CHARS:  # break the line, but not within an encoded byte
            at = rest.rfind(b"=", QUOTED_CHARS - 2, QUOTED_CHARS)
            end = at if at > 0 else QUOTED_CHARS
        lines.append(rest[:end])
        rest = rest[end:]
    return SOFT_BREAK.join(lines)


def _encoded(match: re.Match[bytes]) -> bytes:
    return _encoded_bytes(match[0])


@lru_cache(MAX_CACHED_RUNS)
def _encoded_bytes(run: bytes) -> bytes:
    return b"".join(b"=%02X" % byte for byte in run)


def header(name: str, value: str) -> str:
    """Return one header. `value` may be folded, but only between encoded words.

    Raise DeliveryError for control characters and overlong lines.
    """
    if _CONTROL.search(value.replace("\r\n ", " ")) or _CONTROL.search(name):
        raise DeliveryError(f"the header {name} contains a control character", permanent=True)
    line = f"{name}: {value}\r\n"
    if any(len(part) > MAX_LINE for part in line.encode().split(b"\r\n")):
        raise DeliveryError(f"the header {name} is too long", permanent=True)
    return line


def _rfc2047(name: str, text: str) -> str:
    """Encode text as in RFC 2047 if it is not ASCII, is too long, or looks like an encoded word."""
    if _CONTROL.search(text):
        raise DeliveryError(f"the header {name} contains a control character", permanent=True)
    if text.isascii() and "=?" not in text and len(text) < MAX_LINE - len(name) - 2:
        return text
    encoded = Header(text.encode("utf-8", "replace").decode(), "utf-8", header_name=name)
    return encoded.encode(linesep="\r\n")


def address(text: str) -> str:
    """Return an address with its domain in ASCII. Raise DeliveryError if the address is invalid."""
    local, _, domain = text.rpartition("@")
    if not domain.isascii():
        try:
            domain = domains.to_ascii(domain)
        except UnicodeError:
            raise DeliveryError("the address has an invalid domain", permanent=True) from None
    address = f"{local}@{domain}"
    if not _ADDRESS.fullmatch(address) or len(address.encode()) > 320:
        raise DeliveryError("the address is malformed or longer than 320 bytes", permanent=True)
    return address
