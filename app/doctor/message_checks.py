"""Check the bytes of a received digest against the requirements of mailbox providers."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from email import message_from_bytes, policy
from email.message import EmailMessage
from email.utils import parseaddr, parsedate_to_datetime
from functools import cached_property
from html.parser import HTMLParser
from typing import cast

import dkim as verifier  # an independent implementation, to find bugs in our own

from app.doctor.dns_lookup import parse_tags
from app.doctor.findings import Finding, error, ok, warning
from app.doctor.relay import LARGE_MAIL
from app.doctor.smtp_sink import CapturedMail
from app.errors import LinkForged
from app.links import LinkSigner
from app.mail import dkim
from app.settings import Settings

LONGEST_LINE = 998  # octets, without CRLF (RFC 5322, 2.1.1)
LARGEST_HTML = 100_000  # Gmail clips messages at about 102 kB
REQUIRED_HEADERS = (
    "From", "To", "Subject", "Date", "Message-ID", "MIME-Version", "Content-Type", "List-Unsubscribe",
    "List-Unsubscribe-Post", "List-Id", "List-Help", "Feedback-ID", "Precedence",
)  # fmt: skip
MUST_BE_SIGNED = {"from", "to", "subject", "date", "message-id", "list-unsubscribe", "list-unsubscribe-post"}
REPORT_BUG = "undo local changes to templates or code; if there are none, please report this line as a bug"


@dataclass(frozen=True)
class Mail:
    """A received message, with the settings and the signer of the service that sent it."""

    received: CapturedMail
    settings: Settings
    signer: LinkSigner

    @cached_property
    def headers(self) -> list[tuple[str, str]]:
        """The headers, each as its name in lower case and its unfolded value."""
        head = re.sub(rb"\r\n(?=[ \t])", b"", self.received.raw.partition(b"\r\n\r\n")[0])
        lines = (line.decode("utf-8", "replace").partition(":") for line in head.split(b"\r\n"))
        return [(name.strip().lower(), value.strip()) for name, _, value in lines]

    @cached_property
    def message(self) -> EmailMessage:
        return message_from_bytes(self.received.raw, EmailMessage, policy=policy.default)

    def header_values(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name.lower()]

    def header(self, name: str) -> str:
        """Return the value of the first header with this name, or an empty string."""
        return next(iter(self.header_values(name)), "")

    def part(self, kind: str) -> str:
        """Return the text of the `plain` or `html` part, or an empty string if it is missing."""
        part = self.message.get_body((kind,))
        return cast("str", part.get_content()) if part else ""

    @property
    def unsubscribe_url(self) -> str:
        """The first http(s) link of List-Unsubscribe, or an empty string."""
        links = re.findall(r"<(https?://[^>]*)>", self.header("List-Unsubscribe"))
        return links[0] if links else ""

    @property
    def unsubscribe_address(self) -> str:
        """The address of the mailto link of List-Unsubscribe, or an empty string."""
        addresses = re.findall(r"<mailto:([^>?]*)", self.header("List-Unsubscribe"))
        return addresses[0] if addresses else ""


def check(mail: Mail) -> Iterator[Finding]:
    """Run all checks. For each check, yield the problems that it found, or an OK finding."""
    selectors = ", ".join(tags.get("s", "") for tags in _signature_tags(mail))
    signed = f"signed by {selectors}, verified by dkimpy" if selectors else "not signed by us: no key is set"
    html = len(mail.part("html").encode())
    descriptions = {
        "mail headers": f"each required header is present once; From is {mail.header('From')}",
        "mail unsubscribe": f"by one click at {mail.settings.base_url} or by email",
        "mail signatures": signed,
        "mail return path": f"{mail.received.sender}, signed by us",
        "mail parts": "text and HTML, both with the unsubscribe link",
        "mail lines": "ASCII lines that end in CRLF and have at most 998 octets",
        "mail size": f"{len(mail.received.raw):,} octets; {html:,} bytes of HTML when decoded",
        "mail content": "the email loads no pictures, fonts or trackers when it is opened",
    }
    problems = [
        *_header_problems(mail),
        *_unsubscribe_problems(mail),
        *_signature_problems(mail),
        *_content_problems(mail),
        *_size_problems(mail),
    ]
    for name, description in descriptions.items():
        yield from [problem for problem in problems if problem.check == name] or [ok(name, description)]


def _problem(check_name: str, message: str) -> Finding:
    return error(f"mail {check_name}", message, REPORT_BUG)


def _header_problems(mail: Mail) -> Iterator[Finding]:
    domain, sender = mail.settings.mail_domain, mail.received.sender
    for name in REQUIRED_HEADERS:
        if (count := len(mail.header_values(name))) != 1:
            message = (
                f"the email has {count} {name} headers instead of one"
                if count
                else f"the email has no {name} header"
            )
            yield _problem("headers", message)
    if parseaddr(mail.header("From"))[1] != mail.settings.from_address:
        message = f"the email is from “{mail.header('From')}” instead of {mail.settings.from_address}"
        yield _problem("headers", message)
    if not mail.header("Message-ID").endswith(f"@{domain}>"):
        message = f"the email has a Message-ID that is not on {domain}: {mail.header('Message-ID')}"
        yield _problem("headers", message)
    try:
        parsedate_to_datetime(mail.header("Date"))
    except ValueError:
        yield _problem("headers", f"the email has an invalid Date: “{mail.header('Date')}”")
    try:
        mail.signer.delivery_of(sender)
    except LinkForged:
        message = f"we did not sign the return path “{sender}”, so bounces of the email cannot be recognized"
        yield _problem("return path", message)
    if sender.rpartition("@")[2] != domain:
        message = f"the return path “{sender}” is not on {domain}, so SPF does not count for DMARC"
        yield _problem("return path", message)


def _unsubscribe_problems(mail: Mail) -> Iterator[Finding]:
    """Check the unsubscribe headers (RFC 8058): an https link, a mailto link and List-Unsubscribe-Post."""
    if not mail.unsubscribe_url:
        yield _problem("unsubscribe", "List-Unsubscribe has no http link")
    elif not mail.unsubscribe_url.startswith("https://"):
        message = "List-Unsubscribe has no https link, so mail clients show no unsubscribe button"
        yield warning("mail unsubscribe", message, "set PAPERBOY_BASE_URL to an https:// address")
    elif not mail.unsubscribe_url.startswith(mail.settings.base_url + "/"):
        message = f"List-Unsubscribe does not link to {mail.settings.base_url}: {mail.unsubscribe_url}"
        yield _problem("unsubscribe", message)
    if "<mailto:" not in mail.header("List-Unsubscribe"):
        message = "List-Unsubscribe has no mailto link, which some mail clients need"
        yield _problem("unsubscribe", message)
    if (value := mail.header("List-Unsubscribe-Post")) != "List-Unsubscribe=One-Click":
        message = f"List-Unsubscribe-Post must be “List-Unsubscribe=One-Click”, not “{value}”"
        yield _problem("unsubscribe", message)


def _signature_problems(mail: Mail) -> Iterator[Finding]:
    domain = mail.settings.mail_domain
    signatures = {tags.get("s", ""): (index, tags) for index, tags in enumerate(_signature_tags(mail))}
    for key in dkim.load(mail.settings.dkim_keys):
        if key.selector not in signatures:
            yield _problem("signatures", f"the email is not signed by key {key.selector}")
            continue
        index, tags = signatures[key.selector]
        signature = f"signature by key {key.selector}"
        if not _verifies(mail.received.raw, index, key):
            yield _problem(
                "signatures", f"the email has an invalid {signature}: the signed content was changed"
            )
            continue
        if missing := sorted(MUST_BE_SIGNED - set(tags.get("h", "").lower().split(":"))):
            yield _problem(
                "signatures", f"the email has a {signature} that does not cover {', '.join(missing)}"
            )
        if "l" in tags:
            message = f"the email has a {signature} with a length (l=): anyone can append to the email"
            yield _problem("signatures", message)
        if tags.get("d", "").lower() != domain.lower():
            message = (
                f"the email has a {signature} for {tags.get('d')}, which is not the From domain {domain}"
            )
            yield _problem("signatures", message)


def _signature_tags(mail: Mail) -> list[dict[str, str]]:
    return [parse_tags(value) for value in mail.header_values("DKIM-Signature")]


def _verifies(raw: bytes, index: int, key: dkim.Key) -> bool:
    """Return whether a signature is valid for our own public key. `dkim_keys` checks the published key."""
    _, record = key.record("")

    def published(_name: bytes, timeout: int = 5) -> bytes:
        return record.encode()

    try:
        return bool(verifier.DKIM(raw).verify(index, dnsfunc=published))
    except verifier.DKIMException:
        return False


def _content_problems(mail: Mail) -> Iterator[Finding]:
    html = mail.part("html")
    kinds = [part.get_content_type() for part in mail.message.iter_parts()]
    if mail.message.get_content_type() != "multipart/alternative" or kinds != ["text/plain", "text/html"]:
        message = f"the email has the parts {', '.join(kinds) or 'none'} instead of text/plain and text/html"
        yield _problem("parts", message)
    for text, name in ((mail.part("plain"), "text"), (html, "HTML")):
        if not text.strip():
            yield _problem("parts", f"the email has an empty {name} part")
        elif not mail.unsubscribe_url or mail.unsubscribe_url not in text:
            yield _problem("parts", f"the email has a {name} part without the unsubscribe link")
    parser = _ExternalContentParser()
    parser.feed(html)
    for content in dict.fromkeys(parser.external):
        message = f"the email loads {content} when it is opened, which can be used for tracking"
        yield _problem("content", message)


def _size_problems(mail: Mail) -> Iterator[Finding]:
    raw, html_size = mail.received.raw, len(mail.part("html").encode())
    if re.search(rb"\r(?!\n)|(?<!\r)\n", raw):
        yield _problem("lines", "the email has a bare CR or LF: many servers refuse such lines")
    longest = max(map(len, re.split(rb"\r?\n", raw)))
    if longest > LONGEST_LINE:
        yield _problem("lines", f"the email has a line of {longest:,} octets; the limit is {LONGEST_LINE}")
    if not raw.isascii() or b"\0" in raw:
        yield _problem("lines", "the email has unencoded non-ASCII octets, which some servers do not accept")
    if html_size >= LARGEST_HTML:
        yield _problem(
            "size", f"the email has {html_size:,} bytes of HTML: Gmail clips an email at about 102,000"
        )
    if len(raw) > LARGE_MAIL:
        yield _problem(
            "size", f"the email has {len(raw):,} octets; relays are only checked for {LARGE_MAIL:,}"
        )


class _ExternalContentParser(HTMLParser):
    """A parser that collects content that mail programs fetch or run: pictures, fonts, scripts, frames."""

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
        """Parse the content of conditional comments, because Outlook renders it."""
        if data.startswith("[if"):
            inner = _ExternalContentParser()
            inner.feed(data)
            self.external += inner.external
