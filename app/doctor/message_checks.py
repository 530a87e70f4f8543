"""A mail as it was received: are its bytes what mailbox providers ask of a digest?"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email import message_from_bytes, policy
from email.message import EmailMessage
from email.utils import parseaddr, parsedate_to_datetime
from functools import cached_property
from html.parser import HTMLParser
from typing import cast

import dkim as verifier  # not by our own code: it would agree with itself

from app.doctor import tags
from app.doctor.findings import Finding, Level, well
from app.doctor.relay import LARGE_MAIL
from app.doctor.smtp_sink import ReceivedMail
from app.errors import LinkForged
from app.links import LinkSigner
from app.mail import dkim
from app.settings import Settings

LONGEST_LINE = 998  # octets, without CRLF (RFC 5322, 2.1.1)
LARGEST_HTML = 100_000  # Gmail hides what is above some 102 kB
ONCE = (
    "From", "To", "Subject", "Date", "Message-ID", "MIME-Version", "Content-Type", "List-Unsubscribe",
    "List-Unsubscribe-Post", "List-Id", "List-Help", "Feedback-ID", "Precedence",
)  # fmt: skip
SIGNED = {"from", "to", "subject", "date", "message-id", "list-unsubscribe", "list-unsubscribe-post"}
OURS = "undo what was changed in templates or code here; where nothing was, please report it with this line"


@dataclass(frozen=True)
class Mail:
    """What was received, and who was to have sent it."""

    taken: ReceivedMail
    settings: Settings
    signer: LinkSigner

    @cached_property
    def headers(self) -> list[tuple[str, str]]:
        """Names in lower case and values, unfolded."""
        head = re.sub(rb"\r\n(?=[ \t])", b"", self.taken.raw.partition(b"\r\n\r\n")[0])
        lines = (line.decode("utf-8", "replace").partition(":") for line in head.split(b"\r\n"))
        return [(name.strip().lower(), value.strip()) for name, _, value in lines]

    @cached_property
    def message(self) -> EmailMessage:
        return message_from_bytes(self.taken.raw, EmailMessage, policy=policy.default)

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name.lower()]

    def one(self, name: str) -> str:
        return next(iter(self.all(name)), "")

    def part(self, kind: str) -> str:
        """The text of a part; empty where there is none."""
        part = self.message.get_body((kind,))
        return cast("str", part.get_content()) if part else ""

    @property
    def way_out(self) -> str:
        """The link that a mail program asks to leave by."""
        links = re.findall(r"<(https?://[^>]*)>", self.one("List-Unsubscribe"))
        return links[0] if links else ""


@dataclass(frozen=True, slots=True)
class Fault:
    said: str
    fix: str = OURS
    level: Level = Level.ERROR


def look(mail: Mail) -> Iterator[Finding]:
    """All that can be seen of one mail."""
    for check, (faults, said) in _CHECKS.items():
        found = list(faults(mail))
        yield from (Finding(check, fault.level, fault.said, fault.fix) for fault in found)
        if not found:
            yield well(check, said(mail))


def _headers(mail: Mail) -> Iterator[Fault]:
    for name in ONCE:
        if (count := len(mail.all(name))) != 1:
            yield Fault(f"has {count} headers {name} instead of one" if count else f"has no header {name}")
    if parseaddr(mail.one("From"))[1] != mail.settings.from_address:
        yield Fault(f"is not from {mail.settings.from_address}, but “{mail.one('From')}”")
    if not mail.one("Message-ID").endswith(f"@{mail.settings.mail_domain}>"):
        yield Fault(f"has a Message-ID that is not of {mail.settings.mail_domain}: {mail.one('Message-ID')}")
    try:
        parsedate_to_datetime(mail.one("Date"))
    except ValueError:
        yield Fault(f"has a Date that is none: “{mail.one('Date')}”")


def _way_out(mail: Mail) -> Iterator[Fault]:
    """RFC 8058: one link by https, one by mailto, and the promise that one click is enough."""
    if not mail.way_out:
        yield Fault("List-Unsubscribe has no link to a page")
    elif not mail.way_out.startswith("https://"):
        fix = "set PAPERBOY_BASE_URL to an https:// address"
        yield Fault(
            "List-Unsubscribe has no https link: no mail program shows its button", fix, Level.WARNING
        )
    elif not mail.way_out.startswith(mail.settings.base_url + "/"):
        yield Fault(f"List-Unsubscribe leads elsewhere than to {mail.settings.base_url}: {mail.way_out}")
    if "<mailto:" not in mail.one("List-Unsubscribe"):
        yield Fault("List-Unsubscribe has no mailto link, which some mail programs want")
    if (promise := mail.one("List-Unsubscribe-Post")) != "List-Unsubscribe=One-Click":
        yield Fault(f"List-Unsubscribe-Post has to be “List-Unsubscribe=One-Click”, not “{promise}”")


def _signatures(mail: Mail) -> Iterator[Fault]:
    domain, keys = mail.settings.mail_domain, dkim.load(mail.settings.dkim_keys)
    made = {signed.get("s", ""): (index, signed) for index, signed in enumerate(_signed(mail))}
    for key in keys:
        index, signed = made.get(key.selector, (-1, {}))
        if index < 0:
            yield Fault(f"is not signed by the key {key.selector}")
        elif not _verifies(mail.taken.raw, index, key):
            yield Fault(
                f"has a signature by the key {key.selector} that does not verify: what is signed was changed"
            )
        else:
            yield from _covers(key.selector, signed, domain)


def _signed(mail: Mail) -> list[dict[str, str]]:
    return [tags.read(value) for value in mail.all("DKIM-Signature")]


def _verifies(raw: bytes, index: int, key: dkim.Key) -> bool:
    """By the public half of our own file, whatever is published: that is looked at elsewhere."""
    _, record = key.record("")

    def published(_name: bytes, timeout: int = 5) -> bytes:
        return record.encode()

    try:
        return bool(verifier.DKIM(raw).verify(index, dnsfunc=published))
    except verifier.DKIMException:
        return False


def _covers(selector: str, signed: dict[str, str], domain: str) -> Iterator[Fault]:
    covered = set(signed.get("h", "").lower().split(":"))
    if missing := sorted(SIGNED - covered):
        yield Fault(f"has a signature by the key {selector} that does not cover {', '.join(missing)}")
    if "l" in signed:
        yield Fault(f"has a signature by the key {selector} with a length (l=): anybody may add to the mail")
    if signed.get("d", "").lower() != domain.lower():
        yield Fault(
            f"has a signature by {selector} for {signed.get('d')}, which is not the From domain {domain}"
        )


def _return_path(mail: Mail) -> Iterator[Fault]:
    sender, domain = mail.taken.sender, mail.settings.mail_domain
    try:
        mail.signer.delivery_of(sender)
    except LinkForged:
        yield Fault(
            f"came from the return path “{sender}”, which is not one that we sign: bounces cannot be trusted"
        )
    if sender.rpartition("@")[2] != domain:
        yield Fault(f"came from the return path “{sender}”, which is not on {domain}: SPF does not help it")


def _parts(mail: Mail) -> Iterator[Fault]:
    kinds = [part.get_content_type() for part in mail.message.iter_parts()]
    if mail.message.get_content_type() != "multipart/alternative" or kinds != ["text/plain", "text/html"]:
        yield Fault(f"has the parts {', '.join(kinds) or 'none'} instead of text/plain and text/html")
    for kind, name in (("plain", "text"), ("html", "HTML")):
        if not (text := mail.part(kind)).strip():
            yield Fault(f"has an empty {name} part")
        elif not mail.way_out or mail.way_out not in text:
            yield Fault(f"has a {name} part without the link to unsubscribe")


def _lines(mail: Mail) -> Iterator[Fault]:
    raw = mail.taken.raw
    if re.search(rb"\r(?!\n)|(?<!\r)\n", raw):
        yield Fault("has a bare CR or LF: servers disagree on where such a line ends, and refuse it")
    longest = max(map(len, re.split(rb"\r?\n", raw)))
    if longest > LONGEST_LINE:
        yield Fault(f"has a line of {longest:,} octets, and {LONGEST_LINE} are the most")
    if not raw.isascii() or b"\0" in raw:
        yield Fault("has octets beyond ASCII, which are not encoded: not every server carries them")


def _size(mail: Mail) -> Iterator[Fault]:
    html, whole = len(mail.part("html").encode()), len(mail.taken.raw)
    if html >= LARGEST_HTML:
        yield Fault(f"has {html:,} bytes of HTML: Gmail hides what comes after some 102,000")
    if whole > LARGE_MAIL:
        yield Fault(f"has {whole:,} octets, more than the {LARGE_MAIL:,} that a relay is asked to take")


def _content(mail: Mail) -> Iterator[Fault]:
    loads = _Loads()
    loads.feed(mail.part("html"))
    for what in dict.fromkeys(loads.found):
        yield Fault(f"loads {what} when it is opened, which tells others that and where it is read")


class _Loads(HTMLParser):
    """What a mail program would fetch, or run: pictures, fonts, styles, scripts, frames."""

    _CSS = re.compile(r"url\(\s*['\"]?(?!data:)([^'\")\s]+)|@import\s+['\"]([^'\"]+)")
    _LOADED = ("src", "srcset", "background", "poster", "data")

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attrs}
        if tag in ("script", "iframe", "object", "embed"):
            self.found.append(f"<{tag}>")
        wanted = [named.get(name, "") for name in self._LOADED]
        wanted.append(named.get("href", "") if tag == "link" else "")
        self.found += [url for url in wanted if url and not url.startswith(("data:", "cid:"))]
        self.handle_data(named.get("style", ""))

    def handle_data(self, data: str) -> None:
        self.found += [url or imported for url, imported in self._CSS.findall(data)]

    def handle_comment(self, data: str) -> None:
        """Outlook reads what stands in its own kind of comment."""
        if data.startswith("[if"):
            inner = _Loads()
            inner.feed(data)
            self.found += inner.found


def _says_signed(mail: Mail) -> str:
    selectors = ", ".join(signed.get("s", "") for signed in _signed(mail))
    return f"signed by {selectors}, verified by dkimpy" if selectors else "not signed by us: no key is set"


def _says_size(mail: Mail) -> str:
    return f"{len(mail.taken.raw):,} octets, {len(mail.part('html').encode()):,} of HTML when decoded"


_CHECKS: dict[str, tuple[Callable[[Mail], Iterator[Fault]], Callable[[Mail], str]]] = {
    "mail headers": (_headers, lambda mail: f"each once, from {mail.one('From')}"),
    "mail unsubscribe": (_way_out, lambda mail: f"by one click at {mail.settings.base_url}, or by mail"),
    "mail signatures": (_signatures, _says_signed),
    "mail return path": (_return_path, lambda mail: f"{mail.taken.sender}, which only we can have made"),
    "mail parts": (_parts, lambda mail: "text and HTML, both with the link to unsubscribe"),
    "mail lines": (_lines, lambda mail: "ASCII that ends in CRLF, none longer than 998 octets"),
    "mail size": (_size, _says_size),
    "mail content": (_content, lambda mail: "loads nothing when it is opened: no picture, font or tracker"),
}
