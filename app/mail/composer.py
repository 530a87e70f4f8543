"""Letter → Outgoing: from fragments that are encoded once, and signed."""

from __future__ import annotations

import binascii
import importlib.metadata
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import escape

from app import links
from app.errors import DeliveryError, InvalidSettings
from app.links import LinkSigner, Purpose
from app.mail import dkim, fragments, message, render
from app.mail.fragments import EncodedCard, Fragments, Line, SectionLayout, Shell, Subject, TemplatePieces
from app.mail.message import SOFT_BREAK
from app.mail.render import LIMIT_STEPS, MAX_HTML_BYTES, Renderer
from app.settings import Settings
from app.types import Digest, MailKind, MailRequest, OutgoingMail

# The tokens of a digest: those of the links at the foot, of which the last shows this very digest, and before
# them that of the links in all cards.
_LASTING = (Purpose.FEEDBACK, Purpose.PREFERENCES, Purpose.PAUSE, Purpose.UNSUBSCRIBE)
_LASTING_LINKS = [(purpose, 0) for purpose in _LASTING]
_TOKENS = [*(purpose.value for purpose in _LASTING), Purpose.VIEW.value]
_ALSO = [f"also{number}" for number in range(render.ALSO)]
_BEFORE_TEXT, _BEFORE_HTML = message.part("plain"), b"\r\n" + message.part("html")
_AFTER_HTML = b"\r\n" + message.END
_PLAIN_ADDRESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+@-]{1,70}")  # the same in any encoding, on one line


class BodyParts(NamedTuple):
    """Both parts of a digest, and what its head needs to know of them."""

    shell: Shell
    subject: Subject
    unsubscribe: bytes  # the token
    shown: int  # how many papers
    text: list[bytes]
    html: list[bytes]


class Draft(NamedTuple):
    """A mail that is written, in pieces, and not put together yet."""

    letter: MailRequest
    message_id: str
    subject: str
    sender: str
    recipient: str
    head: bytes
    body: list[bytes]
    left_out: int  # picks that could not be read or rendered
    signature: bytes = b""  # made ahead, and still good

    @property
    def signed(self) -> bool:
        """Whether nothing is left to be computed."""
        return bool(self.signature)


class Composer:
    """Writes any letter. Made once: it keeps the keys, and what it has encoded. Threads may share it."""

    def __init__(self, settings: Settings, signer: LinkSigner, renderer: Renderer) -> None:
        self._settings = settings
        self._signer = signer
        self._renderer = renderer
        self._domain = settings.mail_domain
        self._keys = dkim.load(settings.dkim_keys)
        self._ground = _fingerprint_of_everything(settings, self._keys)
        self._fragments = Fragments(renderer, signer)
        self._from = _from(settings)
        # The digests of an edition share their moment.
        self._date = lru_cache(64)(lambda moment: message.date(moment).encode())

    @property
    def signs(self) -> bool:
        """Whether mails are signed here, and not by the relay."""
        return bool(self._keys)

    def draft(self, letter: MailRequest) -> Draft:
        """Write a letter; DeliveryError where nothing of it can be written."""
        message_id = letter.message_id or self._signer.message_id(letter.delivery_id, self._domain)
        sender = self._signer.return_path(letter.delivery_id, self._domain)
        if letter.kind is MailKind.DIGEST:
            return self._digest(letter, message_id, sender)
        return self._service(letter, message_id, sender)

    def seal(self, draft: Draft) -> OutgoingMail:
        """The mail as it goes over the wire, signed where there are keys."""
        signature = draft.signature or (self._sign(draft) if self._keys else b"")
        return OutgoingMail(
            delivery_id=draft.letter.delivery_id,
            message_id=draft.message_id,
            subject=draft.subject,
            sender=draft.sender,
            recipient=draft.recipient,
            data=b"".join([signature, draft.head, b"\r\n", *draft.body]),
            needs_smtputf8=not draft.recipient.isascii(),
            no_leading_dots=True,
        )

    def signature(self, draft: Draft) -> tuple[str, str]:
        """The DKIM-Signature header lines of a draft, and the fingerprint of what they hold for.

        A letter that brings both along is not signed again as long as the fingerprint is the same.
        """
        return self._sign(draft).decode(), self._fingerprint(draft.letter, draft.message_id)

    # --- what a mail is made of

    def _service(self, letter: MailRequest, message_id: str, sender: str) -> Draft:
        mail = self._renderer.render(letter)
        envelope = message.Envelope(
            delivery_id=letter.delivery_id,
            message_id=message_id,
            return_path=sender,
            from_name=self._settings.site_name,
            from_address=self._settings.from_address,
            to_address=letter.email,
            date=letter.issued_at,
        )
        written = message.compose(mail, envelope)
        head, _, body = written.data.partition(b"\r\n\r\n")
        return Draft(
            letter, message_id, mail.subject, sender, written.recipient,
            head + b"\r\n", [body], mail.left_out, self._made_ahead(letter, message_id),
        )  # fmt: skip

    def _digest(self, letter: MailRequest, message_id: str, sender: str) -> Draft:
        """What `render` and `compose` would give, from fragments."""
        recipient = message.address(letter.email)
        digest = letter.digest or Digest(letter.edition, ())
        for step in range(len(LIMIT_STEPS)):
            parts = self._parts(letter, digest, step)
            html = b"".join(parts.html)
            if _is_small(html):
                break
        before, between, after = parts.shell.headers
        head = (
            self._from, b"To: ", recipient.encode(), b"\r\n", parts.subject.header,
            self._date(letter.issued_at), b"Message-ID: ", message_id.encode(), b"\r\n",
            before, parts.unsubscribe, between, parts.unsubscribe, after,
        )  # fmt: skip
        left_out = letter.unreadable + sum(len(section.picks) for section in digest.sections) - parts.shown
        return Draft(
            letter, message_id, parts.subject.text, sender, recipient, b"".join(head),
            [_BEFORE_TEXT, *parts.text, _BEFORE_HTML, html, _AFTER_HTML],
            left_out, self._made_ahead(letter, message_id),
        )  # fmt: skip

    def _parts(self, letter: MailRequest, digest: Digest, step: int) -> BodyParts:
        """Both parts, with the room of a step."""
        layout = self._fragments.layout(digest.sections, step)
        placed = [one for _, section in layout for one in section]
        if not placed:
            raise DeliveryError("no paper of this digest can be shown", permanent=not letter.unreadable)
        scores, cards = zip(*placed, strict=True)
        at = scores.index(max(scores))
        best, others = cards[at], cards[:at] + cards[at + 1 :]
        note = self._fragments.note(digest.note)
        shell = self._fragments.shell(letter.edition, min(len(others), render.ALSO), bool(note.text))
        subject = self._fragments.subject(best.title, len(others))
        intro = self._fragments.intro(len(cards), digest.considered)
        reader = _reader(letter.email)
        links = self._tokens(letter)
        in_text = {**links, "intro": intro.text, "note": note.text, "reader": reader.text}
        in_html = {
            **links, "intro": intro.html, "note": note.html, "reader": reader.html, "subject": subject.html,
            **self._preview(best, others),
        }  # fmt: skip
        text, html = _in_sections(layout, links[Purpose.FEEDBACK])
        return BodyParts(
            shell, subject, links[Purpose.UNSUBSCRIBE], len(cards),
            _around(shell.text, in_text, text), _around(shell.html, in_html, html),
        )  # fmt: skip

    def _tokens(self, letter: MailRequest) -> dict[str, bytes]:
        links = (*_LASTING_LINKS, (Purpose.VIEW, letter.delivery_id))
        made = self._signer.tokens(letter.subscriber_id, letter.issued_at, letter.link_epoch, links)
        return dict(zip(_TOKENS, made, strict=True))

    def _preview(self, best: EncodedCard, others: Sequence[EncodedCard]) -> dict[str, bytes]:
        if not others:
            return {"why": self._fragments.why(best.why)}
        return {name: card.also for name, card in zip(_ALSO, others, strict=False)}

    # --- its signature

    def _sign(self, draft: Draft) -> bytes:
        return dkim.signature(self._keys, self._domain, draft.head, draft.body, draft.letter.issued_at)

    def _made_ahead(self, letter: MailRequest, message_id: str) -> bytes:
        if (
            letter.signature
            and self._keys
            and letter.signature_fingerprint == self._fingerprint(letter, message_id)
        ):
            return letter.signature.encode()
        return b""

    def _fingerprint(self, letter: MailRequest, message_id: str) -> str:
        """Of all that is in a mail beside its digest, which never changes."""
        own = (
            letter.email, letter.link_epoch, letter.delivery_id, letter.subscriber_id, letter.edition,
            letter.unreadable, message_id, letter.issued_at.timestamp(),
        )  # fmt: skip
        state = self._ground.copy()
        state.update(repr(own).encode())
        return state.hexdigest()


def _from(settings: Settings) -> bytes:
    try:
        return message.sender(settings.site_name, settings.from_address).encode()
    except DeliveryError as error:
        raise InvalidSettings(f"PAPERBOY_SITE_NAME, PAPERBOY_FROM_ADDRESS: {error}") from None


def _in_sections(layout: SectionLayout, opinion: bytes) -> tuple[list[bytes], list[bytes]]:
    """The text and the HTML of all sections, with the token in each of a card's links."""
    text: list[bytes] = []
    html: list[bytes] = []
    for heading, placed in layout:
        text.append(heading.text)
        html.append(heading.html)
        for _, card in placed:
            before, second, third, fourth, after = card.text
            text += (before, opinion, second, opinion, third, opinion, fourth, opinion, after)
            before, second, third, fourth, after = card.html
            html += (before, opinion, second, opinion, third, opinion, fourth, opinion, after)
    return text, html


def _around(
    shell: tuple[TemplatePieces, TemplatePieces], values: Mapping[Any, bytes], within: list[bytes]
) -> list[bytes]:
    """The shell with its holes filled, and what is within it. What is no name of a hole stands for itself."""
    before, after = shell
    return [*map(values.get, before, before), *within, *map(values.get, after, after)]


def _reader(email: str) -> Line:
    if _PLAIN_ADDRESS.fullmatch(email):
        line = email.encode() + SOFT_BREAK
        return Line(line, line)
    return Line(message.quoted_printable_lines(str(escape(email))), message.quoted_printable_lines(email))


def _is_small(html: bytes) -> bool:
    """Whether the HTML, decoded, is of a size that is not clipped. Decoding makes nothing longer."""
    if len(html) <= MAX_HTML_BYTES:
        return True
    return len(binascii.a2b_qp(html).replace(b"\r\n", b"\n")) <= MAX_HTML_BYTES


def _fingerprint_of_everything(settings: Settings, keys: Iterable[dkim.Key]) -> blake2b:
    """Of what shows in every mail: the settings, the templates, the code that fills them in, and the keys."""
    state = blake2b(digest_size=16)
    shown = (
        settings.base_url, settings.site_name, settings.from_address, settings.contact_address,
        settings.postal_address, settings.secret_keys[:1],
    )  # fmt: skip
    versions = [importlib.metadata.version(name) for name in ("mjml-python", "jinja2")]
    state.update(repr((shown, versions, [(key.selector, key.public) for key in keys])).encode())
    code = [Path(str(module.__file__)) for module in (dkim, fragments, message, render, links)]
    for path in [Path(__file__), *code, *sorted(render.FOLDER.rglob("*.*"))]:
        state.update(path.read_bytes())
    return state
