"""Compose an OutgoingMail from a MailRequest: join fragments that were encoded once, and sign the result."""

import binascii
import importlib.metadata
import itertools
import platform
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from functools import cache, lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import escape

from app import links, text, types
from app.errors import DeliveryError, InvalidSettings
from app.links import LinkSigner, Purpose
from app.mail import bulk_headers, dkim, message, render, subject_and_preview, template_folders
from app.mail.fragments import EncodedSection, Fragments, Line, Shell, Subject, TemplatePieces
from app.mail.message import SOFT_BREAK, OutgoingMail
from app.mail.render import Renderer
from app.mail.subject_and_preview import PREVIEW_TITLES
from app.mail.text_limits import LIMIT_STEPS, MAX_HTML_BYTES
from app.relevance import query_language, query_rewriting
from app.settings import Settings
from app.text.domains import readable_address
from app.types import Digest, MailKind, MailRequest, OperatorReport

# The tokens in a digest: one shared by the links in all cards, and one for each link in the footer. All but
# the last identify only the subscriber; VIEW also identifies the delivery.
_SUBSCRIBER_TOKENS = (Purpose.FEEDBACK, Purpose.SUBSCRIPTION, Purpose.UNSUBSCRIBE)
_SUBSCRIBER_LINKS = [(purpose, 0) for purpose in _SUBSCRIBER_TOKENS]
_TOKENS = [*(purpose.value for purpose in _SUBSCRIBER_TOKENS), Purpose.VIEW.value]
_PREVIEW_TITLES = [f"preview_title{number}" for number in range(PREVIEW_TITLES)]
_BEFORE_TEXT, _BEFORE_HTML = message.part("plain"), b"\r\n" + message.part("html")
_AFTER_HTML = b"\r\n" + message.END
_PLAIN_ADDRESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+@-]{1,70}")  # one line, unchanged by encoding
# The settings and the code that the contents of messages depend on. A signature that was made in advance is
# valid only while they are unchanged. Tests check that none is missing.
SIGNED_SETTINGS = (
    "base_url", "site_name", "from_address", "contact_address", "postal_address", "bounce_mailbox",
    "bounce_folder", "confirm_link_days", "preferences_link_days", "templates_dir",
)  # fmt: skip
SIGNED_CODE = [
    *sorted(Path(__file__).parent.glob("*.py")),
    *sorted(Path(text.__path__[0]).glob("*.py")),
    *(Path(str(module.__file__)) for module in (links, query_language, query_rewriting, types)),
]


class BodyParts(NamedTuple):
    """The text and HTML parts of a digest, and the values that its headers need."""

    shell: Shell
    subject: Subject
    unsubscribe: bytes  # the token
    paper_count: int
    text: list[bytes]
    html: list[bytes]


class Draft(NamedTuple):
    """A composed message, in pieces that are not joined yet."""

    request: MailRequest
    message_id: str
    subject: str
    sender: str
    recipient: str
    head: bytes
    body: list[bytes]
    left_out: int  # items that could not be read or rendered
    signature: bytes = b""  # made in advance and still valid, or empty

    @property
    def is_signed(self) -> bool:
        """True if the message already has a signature."""
        return bool(self.signature)


class Composer:
    """A composer and signer of all kinds of mail. Thread-safe. Share one per process: it caches fragments.

    The constructor raises InvalidSettings if a DKIM key or the sender's name or address is unusable.
    """

    def __init__(self, settings: Settings, signer: LinkSigner, renderer: Renderer) -> None:
        self._settings = settings
        self._signer = signer
        self._renderer = renderer
        self._domain = settings.mail_domain
        self._echoed = bulk_headers.echoed(settings.smtp_host)
        self._keys = dkim.load(settings.dkim_keys)
        self._base_fingerprint = _base_fingerprint(settings, self._keys)
        self._fragments = Fragments(renderer, signer)
        try:
            self._from = message.sender(settings.site_name, settings.from_address).encode()
        except DeliveryError as error:
            raise InvalidSettings(f"PAPERBOY_SITE_NAME, PAPERBOY_FROM_ADDRESS: {error}") from None
        # All digests in an edition have the same date.
        self._date = lru_cache(64)(lambda date: message.date(date).encode())

    def start_day(self, day: date) -> None:
        """Drop the fragments that were cached on another day."""
        self._fragments.start_day(day)

    @property
    def signs(self) -> bool:
        """True if messages are signed here. Otherwise, the relay may sign them."""
        return bool(self._keys)

    def draft(self, request: MailRequest) -> Draft:
        """Compose a message. Raise DeliveryError if nothing can be shown or an address is invalid."""
        message_id = request.message_id or self._signer.message_id(request.delivery_id, self._domain)
        sender = self._signer.return_path(request.delivery_id, self._domain)
        if request.kind is MailKind.DIGEST:
            return self._digest(request, message_id, sender)
        mail = self._renderer.render(request)
        envelope = message.Envelope(
            delivery_id=request.delivery_id,
            message_id=message_id,
            return_path=sender,
            from_name=self._settings.site_name,
            from_address=self._settings.from_address,
            to_address=request.email,
            date=request.issued_at,
        )
        composed = message.compose(mail, envelope)
        head, _, body = composed.data.partition(b"\r\n\r\n")
        return Draft(
            request, message_id, mail.subject, sender, composed.recipient,
            head + b"\r\n", [body], mail.left_out, self._valid_signature(request, message_id),
        )  # fmt: skip

    def report(self, report: OperatorReport, to: str, now: datetime) -> OutgoingMail:
        """Compose and sign an email to an operator. Raise DeliveryError if the address is invalid."""
        message_id = f"<report-{uuid.uuid4().hex}@{self._domain}>"
        own = self._settings.from_address
        envelope = message.Envelope(0, message_id, own, self._settings.site_name, own, to, now)
        mail = message.compose(self._renderer.report(report), envelope)
        if not self._keys:
            return mail
        head, _, body = mail.data.partition(b"\r\n\r\n")
        signature = dkim.signature(self._keys, self._domain, head + b"\r\n", [body], now)
        return mail._replace(data=signature + mail.data)

    def sign_and_serialize(self, draft: Draft) -> OutgoingMail:
        """Return the message to send. Sign it if there are DKIM keys.

        Some relays replace the return path and Message-ID. For these, add the header whose value the relay
        reports in its webhooks, so that notices can be matched to deliveries. DKIM does not cover this
        header, because relays remove it.
        """
        signature = draft.signature or (self._sign(draft) if self._keys else b"")
        if self._echoed:
            token = draft.sender.partition("@")[0].removeprefix("bounce+").encode()
            signature = token.join(self._echoed) + signature
        return OutgoingMail(
            delivery_id=draft.request.delivery_id,
            message_id=draft.message_id,
            subject=draft.subject,
            sender=draft.sender,
            recipient=draft.recipient,
            data=b"".join([signature, draft.head, b"\r\n", *draft.body]),
            needs_smtputf8=not draft.recipient.isascii(),
            no_leading_dots=True,
        )

    def signature(self, draft: Draft) -> tuple[str, str]:
        """Return the DKIM-Signature header lines of a draft, and the fingerprint of the signed content.

        A request that carries both values is not signed again while the fingerprint still matches.
        """
        return self._sign(draft).decode(), self._fingerprint(draft.request, draft.message_id)

    # --- compose

    def _digest(self, request: MailRequest, message_id: str, sender: str) -> Draft:
        """Compose a digest from fragments. When decoded, it equals the output of `message.compose`."""
        recipient = message.address(request.email)
        digest = request.digest or Digest(request.edition, ())
        for step in range(len(LIMIT_STEPS)):
            parts = self._parts(request, digest, step)
            html = b"".join(parts.html)
            # Decoding never makes HTML longer, so only encoded HTML that exceeds the limit is decoded.
            if len(html) <= MAX_HTML_BYTES:
                break
            if len(binascii.a2b_qp(html).replace(b"\r\n", b"\n")) <= MAX_HTML_BYTES:
                break
        before, between, after = parts.shell.headers
        head = (
            self._from, b"To: ", recipient.encode(), b"\r\n", parts.subject.header,
            self._date(request.issued_at), b"Message-ID: ", message_id.encode(), b"\r\n",
            before, parts.unsubscribe, between, parts.unsubscribe, after,
        )  # fmt: skip
        item_count = request.unreadable + sum(len(section.picks) for section in digest.sections)
        return Draft(
            request, message_id, parts.subject.text, sender, recipient, b"".join(head),
            [_BEFORE_TEXT, *parts.text, _BEFORE_HTML, html, _AFTER_HTML],
            item_count - parts.paper_count, self._valid_signature(request, message_id),
        )  # fmt: skip

    def _parts(self, request: MailRequest, digest: Digest, step: int) -> BodyParts:
        """Return the text and HTML parts of a digest, using the text limits in LIMIT_STEPS[step]."""
        layout = self._fragments.layout(digest.sections, step)
        cards = [card for section in layout for card in section.cards]
        if not cards:
            reason, is_permanent = "no paper in this digest can be shown", not request.unreadable
            error = self._fragments.card_error(digest.sections, step)
            raise DeliveryError(reason, permanent=is_permanent) from error
        subject = self._fragments.subject(tuple(card.title for card in cards[:2]), len(cards))
        in_preview = subject_and_preview.in_preview(cards, subject.named)
        note = self._fragments.note(digest.note)
        has_marks = any(card.has_marks for card in cards)
        is_odd = sum([card.link_count for card in cards]) % 2 == 1
        updates = self._fragments.updates(digest.updates, step)
        shell = self._fragments.shell(
            request.edition, len(in_preview), bool(note.text), bool(updates.text), has_marks, is_odd
        )
        trending = sum([len(section.cards) for section in layout if section.is_beyond_interests])
        intro = self._fragments.intro(len(cards), digest.considered, trending)
        if _PLAIN_ADDRESS.fullmatch(email := readable_address(request.email)):
            address = email.encode() + SOFT_BREAK
            reader = Line(address, address)
        else:
            escaped = message.quoted_printable_lines(str(escape(email)))
            reader = Line(escaped, message.quoted_printable_lines(email))
        links = (*_SUBSCRIBER_LINKS, (Purpose.VIEW, request.delivery_id))
        values = self._signer.tokens(request.subscriber_id, request.issued_at, request.link_epoch, links)
        tokens = dict(zip(_TOKENS, values, strict=True))
        preview = {name: card.preview_title for name, card in zip(_PREVIEW_TITLES, in_preview, strict=False)}
        if not preview:
            preview["preview_reason"] = self._fragments.preview_reason(
                cards[0].reason, cards[0].title if len(cards) > 1 else ""
            )
        in_text = {
            **tokens,
            "intro": intro.text,
            "note": note.text,
            "reader": reader.text,
            "updates": updates.text,
        }
        in_html = {
            **tokens, "intro": intro.html, "note": note.html, "reader": reader.html, "subject": subject.html,
            "updates": updates.html,
            **preview,
        }  # fmt: skip
        text, html = _join_sections(layout, tokens[Purpose.FEEDBACK])
        return BodyParts(
            shell, subject, tokens[Purpose.UNSUBSCRIBE], len(cards),
            _fill_shell(shell.text, in_text, text), _fill_shell(shell.html, in_html, html),
        )  # fmt: skip

    # --- sign

    def _sign(self, draft: Draft) -> bytes:
        return dkim.signature(self._keys, self._domain, draft.head, draft.body, draft.request.issued_at)

    def _valid_signature(self, request: MailRequest, message_id: str) -> bytes:
        """Return the signature that was made in advance if it is still valid, otherwise empty bytes."""
        if (
            request.signature
            and self._keys
            and request.signature_fingerprint == self._fingerprint(request, message_id)
        ):
            return request.signature.encode()
        return b""

    def _fingerprint(self, request: MailRequest, message_id: str) -> str:
        """Return a hash of everything that a message depends on, except its digest.

        Its signature is deleted if the digest changes (see `ledger.removal`).
        """
        own_values = (
            request.email, request.link_epoch, request.delivery_id, request.subscriber_id, request.edition,
            request.unreadable, message_id, request.issued_at.timestamp(),
        )  # fmt: skip
        state = self._base_fingerprint.copy()
        state.update(repr(own_values).encode())
        return state.hexdigest()


def _join_sections(layout: Sequence[EncodedSection], token: bytes) -> tuple[list[bytes], list[bytes]]:
    """Return the sections as text with numbered papers, and as HTML with the token in all feedback links."""
    text: list[bytes] = []
    html: list[bytes] = []
    numbers = itertools.count(1)
    for heading, cards, _ in layout:
        text.append(heading.text)
        html.append(heading.html)
        for card in cards:
            text += (_number(next(numbers)), card.text)
            before, between, after = card.html
            html += (before, token, between, token, after)
    return text, html


@lru_cache
def _number(number: int) -> bytes:
    return message.quoted_printable_lines(render.number_text(number))


def _fill_shell(
    shell: tuple[TemplatePieces, TemplatePieces], values: Mapping[Any, bytes], sections: list[bytes]
) -> list[bytes]:
    """Return the sections inside the shell, with the shell's placeholders replaced by `values`."""
    before, after = shell
    return [*map(values.get, before, before), *sections, *map(values.get, after, after)]


def _base_fingerprint(settings: Settings, keys: Iterable[dkim.Key]) -> blake2b:
    """Return a hash of what all messages depend on: settings, templates, code, library versions and keys."""
    state = _program_fingerprint(template_folders.search_path(settings, "email")).copy()
    values = [getattr(settings, name) for name in SIGNED_SETTINGS]
    public_keys = [(key.selector, key.public) for key in keys]
    first_secret = settings.secret_keys[:1]  # the others only verify links
    state.update(repr((values, first_secret, public_keys)).encode())
    return state


@cache
def _program_fingerprint(folders: tuple[Path, ...]) -> blake2b:
    """Return a hash of templates, code and library versions, which stay the same while the process runs."""
    versions = [importlib.metadata.version(name) for name in ("mjml-python", "jinja2", "markupsafe")]
    state = blake2b(repr((platform.python_version(), versions)).encode(), digest_size=16)
    for path in SIGNED_CODE:
        state.update(path.read_bytes())
    for folder in folders:
        for path in sorted(filter(Path.is_file, folder.rglob("*"))):
            state.update(repr(path.relative_to(folder)).encode() + path.read_bytes())
    return state
