"""PURE. Parse untrusted messages into MIME parts, in bounded time and memory.

The standard library's parser does not limit nesting, charsets or the length of headers. Notices often have
broken MIME, and may be hostile.
"""

from __future__ import annotations

import binascii
import quopri
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from app.text import characters

MAX_BYTES = 1024 * 1024  # enough, because a notice precedes the returned message
MAX_DEPTH, MAX_PARTS, MAX_HEADERS = 8, 60, 400
MAX_HEADER, MAX_TEXT = 4000, 64 * 1024  # characters

_FIELD = re.compile(rb"([!-9;-~]{1,80})[ \t]{0,20}:(.*)", re.DOTALL)
_ENCODED = re.compile(r"=\?([\w-]{1,40})(?:\*[\w-]{0,20})?\?([bq])\?([^?\s]{0,2000})\?=", re.IGNORECASE)
_BETWEEN_ENCODED = re.compile(r"(\?=)\s{1,100}(?==\?)")
_PARAMETER = re.compile(r'[;\s]\s{0,100}([\w-]{1,40})\s{0,20}=\s{0,20}(?:"([^"]{0,300})"|([^\s;"]{1,300}))')
# The charsets that are used in email. Some of Python's other codecs take quadratic time.
_CHARSET = re.compile(
    r"(utf|us-ascii|ascii|iso|latin|windows|cp|koi8|shift|sjis|x-sjis|euc|gb|big5|ks_c)[\w-]{0,30}",
    re.IGNORECASE,
)
_ISO_2022 = re.compile(rb"\x1b[$(][@BJ]")
_TAG = re.compile(
    r"<(?:style|script)\b[^<]{0,50000}</(?:style|script)\s{0,9}>|<[/!a-z][^<>]{0,2000}>", re.IGNORECASE
)
_LINE_TAG = re.compile(r"<(?:br|/p|/div|/tr|/h\d|/li)\b[^<>]{0,200}>", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Part:
    """A message, or one of its parts. Header names are in lower case and in their original order."""

    headers: dict[str, list[str]]
    body: bytes  # without transfer encoding; empty for a multipart
    parts: tuple[Part, ...] = ()
    kind: str = "text/plain"
    parameters: dict[str, str] = field(default_factory=dict)

    def header(self, name: str) -> str:
        """Return the decoded value of the first header with this name, or an empty string."""
        return next(iter(self.headers.get(name, ())), "")

    @property
    def text(self) -> str:
        """The body as plain text, at most MAX_TEXT characters."""
        decoded = _decode(self.body[: 4 * MAX_TEXT], self.parameters.get("charset", ""))[:MAX_TEXT]
        if self.kind != "text/html":
            return decoded
        # The result is only searched. It would not be safe to show as HTML.
        return characters.unescape_html(_TAG.sub(" ", _LINE_TAG.sub("\n", decoded)))

    def walk(self) -> Iterator[Part]:
        """Yield this part and all parts inside it, in order, except the parts of attached messages."""
        yield self
        if self.kind.startswith("multipart/"):
            for part in self.parts:
                yield from part.walk()


def parse(raw: bytes) -> Part:
    """Parse any bytes as a message, and ignore everything beyond the limits of this module."""
    text = raw[:MAX_BYTES].replace(b"\r\n", b"\n").replace(b"\r", b"\n").lstrip(b"\n")
    if text.startswith((b"From ", b">From ")):
        text = text.partition(b"\n")[2]
    return _Parser().parse(text, MAX_DEPTH)


class _Parser:
    """A parser for one message. It stops after MAX_PARTS parts."""

    def __init__(self) -> None:
        self._left = MAX_PARTS

    def parse(self, text: bytes, depth: int) -> Part:
        self._left -= 1
        headers, body = _split(text)
        content_type = next(iter(headers.get("content-type", ())), "")
        kind = "".join(re.split(r"[;\s]", content_type.strip().lower(), maxsplit=1)[:1]) or "text/plain"
        matches = reversed(_PARAMETER.findall(content_type))
        parameters = {name.lower(): (quoted or bare).strip() for name, quoted, bare in matches}
        inner: tuple[Part, ...] = ()
        if kind.startswith("multipart/") and depth:
            boundary = parameters.get("boundary", "").encode("utf-8", "replace")
            if not boundary:  # guess: use the first line that looks like a boundary
                lines = (line.strip() for line in body[:10_000].split(b"\n"))
                boundary = next((line[2:] for line in lines if line.startswith(b"--") and len(line) > 8), b"")
            inner = self._parse_all(_between(body, boundary), depth - 1) if boundary else ()
            # Without parts, treat the body as text.
            kind, body = (kind, b"") if inner else ("text/plain", body)
        else:
            encoding = next(iter(headers.get("content-transfer-encoding", ())), "").strip().lower()
            if encoding == "base64":
                body = _base64(body).replace(b"\r\n", b"\n")
            elif encoding == "quoted-printable":
                body = quopri.decodestring(body)
            if kind in ("message/rfc822", "message/global") and depth:
                inner = self._parse_all([body.lstrip(b"\n")], depth - 1)
        return Part(headers, body, inner, kind, parameters)

    def _parse_all(self, texts: list[bytes], depth: int) -> tuple[Part, ...]:
        return tuple(self.parse(text, depth) for text in texts[:MAX_PARTS] if self._left > 0)


def _split(text: bytes) -> tuple[dict[str, list[str]], bytes]:
    """Split a message into unfolded headers and body. The body begins at the first non-header line."""
    if text.startswith(b"\n"):
        return {}, text[1:]
    head, _, body = text.partition(b"\n\n")
    lines = head.split(b"\n")
    headers: dict[str, list[str]] = {}
    number = count = 0
    while number < len(lines):
        match = _FIELD.fullmatch(lines[number])
        if not match:
            return headers, b"\n".join(lines[number:]) + b"\n\n" + body
        value = [match[2]]
        number += 1
        while number < len(lines) and lines[number][:1] in (b" ", b"\t"):
            value.append(lines[number])
            number += 1
        count += 1
        if count <= MAX_HEADERS:
            decoded = decode_words(b"".join(value)[:MAX_HEADER].strip())
            headers.setdefault(match[1].decode("ascii").lower(), []).append(decoded)
    return headers, body


def decode_words(value: bytes) -> str:
    """Decode a header's value (RFC 2047) to one line. Malformed encoded words stay unchanged."""
    text = _BETWEEN_ENCODED.sub(r"\1", _decode(value, ""))
    return " ".join(_ENCODED.sub(_decode_word, text).split())


def _decode_word(match: re.Match[str]) -> str:
    charset, encoding, payload = match[1], match[2].lower(), match[3].encode("utf-8", "replace")
    if encoding == "b":
        return _decode(_base64(payload), charset)
    return _decode(quopri.decodestring(payload, header=True), charset)


def _between(body: bytes, boundary: bytes) -> list[bytes]:
    """Return the texts between boundary lines.

    White space around a boundary is ignored. The closing boundary may be missing.
    """
    sections: list[list[bytes]] = []
    mark, end = b"--" + boundary, b"--" + boundary + b"--"
    for line in body.split(b"\n"):
        bare = line.strip() if mark in line else b""
        if bare == mark:
            if len(sections) >= MAX_PARTS:
                break
            sections.append([])
        elif bare == end:
            break
        elif sections:
            sections[-1].append(line)
    return [b"\n".join(lines) for lines in sections]


def _base64(text: bytes) -> bytes:
    """Decode as much as possible. Ignore stray characters and an incomplete end."""
    digits = re.sub(rb"[^A-Za-z0-9+/]", b"", text)
    if len(digits) % 4 == 1:  # too few bits for another byte
        digits = digits[:-1]
    try:
        return binascii.a2b_base64(digits + b"=" * (-len(digits) % 4))
    except binascii.Error:
        return b""


def _decode(raw: bytes, charset: str) -> str:
    if not _CHARSET.fullmatch(charset) or (charset.lower() == "us-ascii" and _ISO_2022.search(raw)):
        charset = "iso-2022-jp" if _ISO_2022.search(raw) else "utf-8"
    try:
        return raw.decode(charset, "replace")
    except (LookupError, ValueError):
        return raw.decode("utf-8", "replace")
