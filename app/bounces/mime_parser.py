"""PURE. Mails as strangers write them → their parts, in time and memory that no mail can stretch.

The standard library's parser trusts a mail's nesting, its charsets and the length of its headers. What is
read here is somebody's answer to a bulk mail: broken MIME is common, and hostile MIME is to be expected.
"""

from __future__ import annotations

import binascii
import quopri
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from app.text import characters

MAX_BYTES = 1024 * 1024  # a notice comes first, and the mail that it returns behind it
MAX_DEPTH, MAX_PARTS, MAX_HEADERS = 8, 60, 400
MAX_HEADER, MAX_TEXT = 4000, 64 * 1024  # characters

_FIELD = re.compile(rb"([!-9;-~]{1,80})[ \t]{0,20}:(.*)", re.DOTALL)
_ENCODED = re.compile(r"=\?([\w-]{1,40})(?:\*[\w-]{0,20})?\?([bq])\?([^?\s]{0,2000})\?=", re.IGNORECASE)
_BETWEEN_ENCODED = re.compile(r"(\?=)\s{1,100}(?==\?)")
_PARAMETER = re.compile(r'[;\s]\s{0,100}([\w-]{1,40})\s{0,20}=\s{0,20}(?:"([^"]{0,300})"|([^\s;"]{1,300}))')
# Of all that Python can decode, what mails are written in: some others take their time squared.
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
    """One part of a mail, or a whole one. Header names are in lower case, the order is the mail's."""

    headers: dict[str, list[str]]
    body: bytes  # transfer encoding undone; of a multipart, nothing
    parts: tuple[Part, ...] = ()
    kind: str = "text/plain"
    parameters: dict[str, str] = field(default_factory=dict)

    def header(self, name: str) -> str:
        """The first header of this name, decoded; empty where there is none."""
        return next(iter(self.headers.get(name, ())), "")

    @property
    def text(self) -> str:
        """The body as people read it, at most MAX_TEXT characters of it."""
        decoded = _decode(self.body[: 4 * MAX_TEXT], self.parameters.get("charset", ""))[:MAX_TEXT]
        return _plain(decoded) if self.kind == "text/html" else decoded

    def walk(self) -> Iterator[Part]:
        """This part and all below it, in their order, but nothing of an attached mail."""
        yield self
        if self.kind.startswith("multipart/"):
            for part in self.parts:
                yield from part.walk()


def read(raw: bytes) -> Part:
    """A mail, whatever the bytes are. What is beyond the limits of this module is not looked at."""
    text = raw[:MAX_BYTES].replace(b"\r\n", b"\n").replace(b"\r", b"\n").lstrip(b"\n")
    if text.startswith((b"From ", b">From ")):
        text = text.partition(b"\n")[2]
    return _Reader().read(text, MAX_DEPTH)


class _Reader:
    """Counts the parts of one mail."""

    def __init__(self) -> None:
        self._left = MAX_PARTS

    def read(self, text: bytes, depth: int) -> Part:
        self._left -= 1
        headers, body = _split(text)
        kind, parameters = _content_type(next(iter(headers.get("content-type", ())), ""))
        inner: tuple[Part, ...] = ()
        if kind.startswith("multipart/") and depth:
            boundary = parameters.get("boundary", "").encode("utf-8", "replace") or _likely_boundary(body)
            inner = self._all(_between(body, boundary), depth - 1) if boundary else ()
            # A boundary that never comes: what people read is the body itself.
            kind, body = (kind, b"") if inner else ("text/plain", body)
        else:
            body = _transferred(body, next(iter(headers.get("content-transfer-encoding", ())), ""))
            if kind in ("message/rfc822", "message/global") and depth:
                inner = self._all([body.lstrip(b"\n")], depth - 1)
        return Part(headers, body, inner, kind, parameters)

    def _all(self, texts: list[bytes], depth: int) -> tuple[Part, ...]:
        return tuple(self.read(text, depth) for text in texts[:MAX_PARTS] if self._left > 0)


def _split(text: bytes) -> tuple[dict[str, list[str]], bytes]:
    """Headers and body. Lines at the top that are no headers begin the body."""
    if text.startswith(b"\n"):
        return {}, text[1:]
    head, _, body = text.partition(b"\n\n")
    lines = head.split(b"\n")
    headers: dict[str, list[str]] = {}
    for number, (name, value) in enumerate(_fields(lines)):
        if not name:
            return headers, value + b"\n\n" + body
        if number < MAX_HEADERS:
            headers.setdefault(name, []).append(decode_words(value))
    return headers, body


def _fields(lines: list[bytes]) -> Iterator[tuple[str, bytes]]:
    """Each header unfolded; a nameless last one is what follows the first line that is no header."""
    number = 0
    while number < len(lines):
        found = _FIELD.fullmatch(lines[number])
        if not found:
            yield "", b"\n".join(lines[number:])
            return
        value = [found[2]]
        number += 1
        while number < len(lines) and lines[number][:1] in (b" ", b"\t"):
            value.append(lines[number])
            number += 1
        yield found[1].decode("ascii").lower(), b"".join(value)[:MAX_HEADER].strip()


def decode_words(value: bytes) -> str:
    """A header's value as people read it (RFC 2047), on one line; what cannot be decoded stays as it is."""
    text = _BETWEEN_ENCODED.sub(r"\1", _decode(value, ""))
    return " ".join(_ENCODED.sub(_decode_word, text).split())


def _decode_word(found: re.Match[str]) -> str:
    charset, how, written = found[1], found[2].lower(), found[3].encode("utf-8", "replace")
    if how == "b":
        return _decode(_base64(written), charset)
    return _decode(quopri.decodestring(written, header=True), charset)


def _content_type(value: str) -> tuple[str, dict[str, str]]:
    kind = "".join(re.split(r"[;\s]", value.strip().lower(), maxsplit=1)[:1]) or "text/plain"
    found = _PARAMETER.findall(value)
    return kind, {name.lower(): (quoted or bare).strip() for name, quoted, bare in reversed(found)}


def _between(body: bytes, boundary: bytes) -> list[bytes]:
    """What lies between the boundary's lines. Blanks around one do no harm, and the last may be missing."""
    found: list[list[bytes]] = []
    mark, end = b"--" + boundary, b"--" + boundary + b"--"
    for line in body.split(b"\n"):
        bare = line.strip() if mark in line else b""
        if bare == mark:
            if len(found) >= MAX_PARTS:
                break
            found.append([])
        elif bare == end:
            break
        elif found:
            found[-1].append(line)
    return [b"\n".join(lines) for lines in found]


def _likely_boundary(body: bytes) -> bytes:
    """Where a folded header was broken, its boundary stands in the first line that looks like one."""
    lines = (line.strip() for line in body[:10_000].split(b"\n"))
    return next((line[2:] for line in lines if line.startswith(b"--") and len(line) > 8), b"")


def _transferred(body: bytes, encoding: str) -> bytes:
    encoding = encoding.strip().lower()
    if encoding == "base64":
        return _base64(body).replace(b"\r\n", b"\n")
    if encoding == "quoted-printable":
        return quopri.decodestring(body)
    return body


def _base64(text: bytes) -> bytes:
    """As much as can be decoded: a cut or a stray character loses no more than it must."""
    letters = re.sub(rb"[^A-Za-z0-9+/]", b"", text)
    try:
        return binascii.a2b_base64(letters[: len(letters) // 4 * 4] + _rest(letters))
    except binascii.Error:
        return b""


def _rest(letters: bytes) -> bytes:
    rest = letters[len(letters) // 4 * 4 :]
    return rest + b"=" * (4 - len(rest)) if len(rest) > 1 else b""


def _decode(raw: bytes, charset: str) -> str:
    if not _CHARSET.fullmatch(charset) or (charset.lower() == "us-ascii" and _ISO_2022.search(raw)):
        charset = "iso-2022-jp" if _ISO_2022.search(raw) else "utf-8"
    try:
        return raw.decode(charset, "replace")
    except (LookupError, ValueError):
        return raw.decode("utf-8", "replace")


def _plain(markup: str) -> str:
    """HTML as its words, roughly: good enough to be searched, never shown as HTML."""
    return characters.unescape_html(_TAG.sub(" ", _LINE_TAG.sub("\n", markup)))
