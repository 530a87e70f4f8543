"""Check the bytes of a received digest against what mailbox providers require."""

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

import dkim as verifier  # an independent implementation, so that our own bugs are found

from app.doctor.dns_lookup import parse_tags
from app.doctor.findings import Finding, Level, ok
from app.doctor.relay import LARGE_MAIL
from app.doctor.smtp_sink import CapturedMail
from app.errors import LinkForged
from app.links import LinkSigner
from app.mail import dkim
from app.settings import Settings

LONGEST_LINE = 998  # octets, without CRLF (RFC 5322, 2.1.1)
LARGEST_HTML = 100_000  # Gmail clips a mail at about 102 kB
REQUIRED_HEADERS = (
    "From", "To", "Subject", "Date", "Message-ID", "MIME-Version", "Content-Type", "List-Unsubscribe",
    "List-Unsubscribe-Post", "List-Id", "List-Help", "Feedback-ID", "Precedence",
)  # fmt: skip
MUST_BE_SIGNED = {"from", "to", "subject", "date", "message-id", "list-unsubscribe", "list-unsubscribe-post"}
REPORT_BUG = "undo local changes of templates or code; if there are none, please report this line as a bug"


@dataclass(frozen=True)
class Mail:
    """A received mail, with the settings and the signer of the service that sent it."""

    received: CapturedMail
    settings: Settings
    signer: LinkSigner

    @cached_property
    def headers(self) -> list[tuple[str, str]]:
        """Pairs of name, in lower case, and unfolded value."""
        head = re.sub(rb"\r\n(?=[ \t])", b"", self.received.raw.partition(b"\r\n\r\n")[0])
        lines = (line.decode("utf-8", "replace").partition(":") for line in head.split(b"\r\n"))
        return [(name.strip().lower(), value.strip()) for name, _, value in lines]

    @cached_property
    def message(self) -> EmailMessage:
        return message_from_bytes(self.received.raw, EmailMessage, policy=policy.default)

    def header_values(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name.lower()]

    def header(self, name: str) -> str:
        """Return the first header of this name, or an empty string."""
        return next(iter(self.header_values(name)), "")

    def part(self, kind: str) -> str:
        """Return the text of a part, or an empty string."""
        part = self.message.get_body((kind,))
        return cast("str", part.get_content()) if part else ""

    @property
    def unsubscribe_url(self) -> str:
        """The first http(s) link of List-Unsubscribe, or an empty string."""
        links = re.findall(r"<(https?://[^>]*)>", self.header("List-Unsubscribe"))
        return links[0] if links else ""


@dataclass(frozen=True, slots=True)
class MessageProblem:
    """A fault of the mail, and how to fix it."""

    message: str
    fix: str = REPORT_BUG
    level: Level = Level.ERROR


def check(mail: Mail) -> Iterator[Finding]:
    """Run every check. Each yields its problems, or one finding that describes the mail."""
    for name, (find_problems, describe) in _CHECKS.items():
        problems = list(find_problems(mail))
        yield from (Finding(name, problem.level, problem.message, problem.fix) for problem in problems)
        if not problems:
            yield ok(name, describe(mail))


def _headers(mail: Mail) -> Iterator[MessageProblem]:
    for name in REQUIRED_HEADERS:
        if (count := len(mail.header_values(name))) != 1:
            yield MessageProblem(
                f"has {count} {name} headers instead of one" if count else f"has no {name} header"
            )
    if parseaddr(mail.header("From"))[1] != mail.settings.from_address:
        yield MessageProblem(f"is from “{mail.header('From')}” instead of {mail.settings.from_address}")
    if not mail.header("Message-ID").endswith(f"@{mail.settings.mail_domain}>"):
        yield MessageProblem(
            f"has a Message-ID that is not on {mail.settings.mail_domain}: {mail.header('Message-ID')}"
        )
    try:
        parsedate_to_datetime(mail.header("Date"))
    except ValueError:
        yield MessageProblem(f"has an invalid Date: “{mail.header('Date')}”")


def _unsubscribe(mail: Mail) -> Iterator[MessageProblem]:
    """Check the headers of RFC 8058: an https link, a mailto link and List-Unsubscribe-Post."""
    if not mail.unsubscribe_url:
        yield MessageProblem("List-Unsubscribe has no http link")
    elif not mail.unsubscribe_url.startswith("https://"):
        fix = "set PAPERBOY_BASE_URL to an https:// address"
        yield MessageProblem(
            "List-Unsubscribe has no https link, so mail programs show no unsubscribe button",
            fix,
            Level.WARNING,
        )
    elif not mail.unsubscribe_url.startswith(mail.settings.base_url + "/"):
        yield MessageProblem(
            f"List-Unsubscribe does not link to {mail.settings.base_url}: {mail.unsubscribe_url}"
        )
    if "<mailto:" not in mail.header("List-Unsubscribe"):
        yield MessageProblem("List-Unsubscribe has no mailto link, which some mail programs need")
    if (value := mail.header("List-Unsubscribe-Post")) != "List-Unsubscribe=One-Click":
        yield MessageProblem(f"List-Unsubscribe-Post must be “List-Unsubscribe=One-Click”, not “{value}”")


def _signatures(mail: Mail) -> Iterator[MessageProblem]:
    domain, keys = mail.settings.mail_domain, dkim.load(mail.settings.dkim_keys)
    signatures = {tags.get("s", ""): (index, tags) for index, tags in enumerate(_signature_tags(mail))}
    for key in keys:
        index, tags = signatures.get(key.selector, (-1, {}))
        if index < 0:
            yield MessageProblem(f"is not signed by key {key.selector}")
        elif not _verifies(mail.received.raw, index, key):
            yield MessageProblem(
                f"has an invalid signature by key {key.selector}: the signed content was changed"
            )
        else:
            yield from _coverage(key.selector, tags, domain)


def _signature_tags(mail: Mail) -> list[dict[str, str]]:
    return [parse_tags(value) for value in mail.header_values("DKIM-Signature")]


def _verifies(raw: bytes, index: int, key: dkim.Key) -> bool:
    """Verify a signature with our own public key. `dns_records` checks the published one."""
    _, record = key.record("")

    def published(_name: bytes, timeout: int = 5) -> bytes:
        return record.encode()

    try:
        return bool(verifier.DKIM(raw).verify(index, dnsfunc=published))
    except verifier.DKIMException:
        return False


def _coverage(selector: str, tags: dict[str, str], domain: str) -> Iterator[MessageProblem]:
    covered = set(tags.get("h", "").lower().split(":"))
    if missing := sorted(MUST_BE_SIGNED - covered):
        yield MessageProblem(f"has a signature by key {selector} that does not cover {', '.join(missing)}")
    if "l" in tags:
        yield MessageProblem(
            f"has a signature by key {selector} with a length (l=): anyone can append to the mail"
        )
    if tags.get("d", "").lower() != domain.lower():
        yield MessageProblem(
            f"has a signature by key {selector} for {tags.get('d')}, which is not the From domain {domain}"
        )


def _return_path(mail: Mail) -> Iterator[MessageProblem]:
    sender, domain = mail.received.sender, mail.settings.mail_domain
    try:
        mail.signer.delivery_of(sender)
    except LinkForged:
        yield MessageProblem(
            f"has the return path “{sender}”, which is not signed by us: its bounces cannot be assigned"
        )
    if sender.rpartition("@")[2] != domain:
        yield MessageProblem(
            f"has the return path “{sender}”, which is not on {domain}: SPF does not count for DMARC"
        )


def _parts(mail: Mail) -> Iterator[MessageProblem]:
    kinds = [part.get_content_type() for part in mail.message.iter_parts()]
    if mail.message.get_content_type() != "multipart/alternative" or kinds != ["text/plain", "text/html"]:
        yield MessageProblem(
            f"has the parts {', '.join(kinds) or 'none'} instead of text/plain and text/html"
        )
    for kind, name in (("plain", "text"), ("html", "HTML")):
        if not (text := mail.part(kind)).strip():
            yield MessageProblem(f"has an empty {name} part")
        elif not mail.unsubscribe_url or mail.unsubscribe_url not in text:
            yield MessageProblem(f"has a {name} part without the unsubscribe link")


def _lines(mail: Mail) -> Iterator[MessageProblem]:
    raw = mail.received.raw
    if re.search(rb"\r(?!\n)|(?<!\r)\n", raw):
        yield MessageProblem("has a bare CR or LF: many servers refuse such lines")
    longest = max(map(len, re.split(rb"\r?\n", raw)))
    if longest > LONGEST_LINE:
        yield MessageProblem(f"has a line of {longest:,} octets; the limit is {LONGEST_LINE}")
    if not raw.isascii() or b"\0" in raw:
        yield MessageProblem("has unencoded non-ASCII octets, which some servers do not accept")


def _size(mail: Mail) -> Iterator[MessageProblem]:
    html, whole = len(mail.part("html").encode()), len(mail.received.raw)
    if html >= LARGEST_HTML:
        yield MessageProblem(f"has {html:,} bytes of HTML: Gmail clips a mail at about 102,000")
    if whole > LARGE_MAIL:
        yield MessageProblem(f"has {whole:,} octets; relays are only checked for {LARGE_MAIL:,}")


def _content(mail: Mail) -> Iterator[MessageProblem]:
    parser = _ExternalContentParser()
    parser.feed(mail.part("html"))
    for content in dict.fromkeys(parser.external):
        yield MessageProblem(f"loads {content} when it is opened, which can be used to track the reader")


class _ExternalContentParser(HTMLParser):
    """Collects what a mail program would fetch or run: pictures, fonts, styles, scripts, frames."""

    _CSS = re.compile(r"url\(\s*['\"]?(?!data:)([^'\")\s]+)|@import\s+['\"]([^'\"]+)")
    _URL_ATTRIBUTES = ("src", "srcset", "background", "poster", "data")

    def __init__(self) -> None:
        super().__init__()
        self.external: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        if tag in ("script", "iframe", "object", "embed"):
            self.external.append(f"<{tag}>")
        urls = [attributes.get(name, "") for name in self._URL_ATTRIBUTES]
        urls.append(attributes.get("href", "") if tag == "link" else "")
        self.external += [url for url in urls if url and not url.startswith(("data:", "cid:"))]
        self.handle_data(attributes.get("style", ""))

    def handle_data(self, data: str) -> None:
        self.external += [url or imported for url, imported in self._CSS.findall(data)]

    def handle_comment(self, data: str) -> None:
        """Parse conditional comments, which Outlook renders."""
        if data.startswith("[if"):
            inner = _ExternalContentParser()
            inner.feed(data)
            self.external += inner.external


def _describe_signatures(mail: Mail) -> str:
    selectors = ", ".join(tags.get("s", "") for tags in _signature_tags(mail))
    return f"signed by {selectors}, verified by dkimpy" if selectors else "not signed by us: no key is set"


def _describe_size(mail: Mail) -> str:
    return (
        f"{len(mail.received.raw):,} octets; {len(mail.part('html').encode()):,} bytes of HTML when decoded"
    )


_CHECKS: dict[str, tuple[Callable[[Mail], Iterator[MessageProblem]], Callable[[Mail], str]]] = {
    "mail headers": (_headers, lambda mail: f"each is present once; From is {mail.header('From')}"),
    "mail unsubscribe": (_unsubscribe, lambda mail: f"by one click at {mail.settings.base_url} or by mail"),
    "mail signatures": (_signatures, _describe_signatures),
    "mail return path": (_return_path, lambda mail: f"{mail.received.sender}, signed by us"),
    "mail parts": (_parts, lambda mail: "text and HTML, both with the unsubscribe link"),
    "mail lines": (_lines, lambda mail: "ASCII lines that end in CRLF and have at most 998 octets"),
    "mail size": (_size, _describe_size),
    "mail content": (
        _content,
        lambda mail: "loads nothing when it is opened: no pictures, fonts or trackers",
    ),
}
