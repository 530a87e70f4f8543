"""Letter → Outgoing: the mail that `render` describes, as bytes that are made fast, and signed."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from app import dkim, message, render, tokens
from app.records import Letter, Outgoing
from app.render import Renderer
from app.settings import Settings
from app.tokens import Signer


@dataclass(frozen=True, slots=True)
class Draft:
    """A mail that is written, in pieces, and not put together yet."""

    letter: Letter
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
    """Writes any letter. Made once: it keeps the keys, and what it has encoded."""

    def __init__(self, settings: Settings, signer: Signer, renderer: Renderer) -> None:
        self._settings = settings
        self._signer = signer
        self._renderer = renderer
        self._domain = settings.mail_domain.encode("idna").decode()
        self._keys = dkim.load(settings.dkim_keys)
        self._ground = _fingerprint_of_everything(settings, self._keys)

    @property
    def signs(self) -> bool:
        """Whether mails are signed here, and not by the relay."""
        return bool(self._keys)

    def draft(self, letter: Letter) -> Draft:
        """Write a letter; DeliveryError where nothing of it can be written."""
        domain = self._settings.mail_domain
        message_id = letter.message_id or self._signer.message_id(letter.delivery_id, domain)
        mail = self._renderer.render(letter)
        envelope = message.Envelope(
            delivery_id=letter.delivery_id,
            message_id=message_id,
            return_path=self._signer.return_path(letter.delivery_id, domain),
            from_name=self._settings.site_name,
            from_address=self._settings.from_address,
            to_address=letter.email,
            date=letter.issued_at,
        )
        written = message.compose(mail, envelope)
        head, _, body = written.data.partition(b"\r\n\r\n")
        return Draft(
            letter,
            message_id,
            mail.subject,
            written.sender,
            written.recipient,
            head + b"\r\n",
            [body],
            mail.left_out,
            self._made_ahead(letter, message_id),
        )

    def seal(self, draft: Draft) -> Outgoing:
        """The mail as it goes over the wire, signed where there are keys."""
        signature = draft.signature or (self._sign(draft) if self._keys else b"")
        return Outgoing(
            delivery_id=draft.letter.delivery_id,
            message_id=draft.message_id,
            subject=draft.subject,
            sender=draft.sender,
            recipient=draft.recipient,
            data=b"".join((signature, draft.head, b"\r\n", *draft.body)),
            needs_smtputf8=not draft.recipient.isascii(),
        )

    def signature(self, draft: Draft) -> tuple[str, str]:
        """The DKIM-Signature header lines of a draft, and the fingerprint of what they hold for.

        A letter that brings both along is not signed again as long as the fingerprint is the same.
        """
        return self._sign(draft).decode(), self._fingerprint(draft.letter, draft.message_id)

    def _sign(self, draft: Draft) -> bytes:
        return dkim.signature(self._keys, self._domain, draft.head, draft.body, draft.letter.issued_at)

    def _made_ahead(self, letter: Letter, message_id: str) -> bytes:
        if letter.signature and self._keys and letter.signed_as == self._fingerprint(letter, message_id):
            return letter.signature.encode()
        return b""

    def _fingerprint(self, letter: Letter, message_id: str) -> str:
        """Of all that is in a mail beside its digest, which never changes."""
        own = (
            letter.email, letter.link_epoch, letter.delivery_id, letter.subscriber_id, letter.unreadable,
            message_id, letter.issued_at.isoformat(),
        )  # fmt: skip
        state = self._ground.copy()
        state.update(repr(own).encode())
        return state.hexdigest()


def _fingerprint_of_everything(settings: Settings, keys: Iterable[dkim.Key]) -> blake2b:
    """Of what shows in every mail: the settings, the templates, the code that fills them in, and the keys."""
    state = blake2b(digest_size=16)
    shown = (
        settings.base_url, settings.site_name, settings.from_address, settings.contact_address,
        settings.postal_address, settings.secret_keys[:1],
    )  # fmt: skip
    versions = [importlib.metadata.version(name) for name in ("mjml-python", "jinja2")]
    state.update(repr((shown, versions, [(key.selector, key.public) for key in keys])).encode())
    code = [Path(module.__file__ or "") for module in (dkim, message, render, tokens)]
    for path in [Path(__file__), *code, *sorted(render.FOLDER.rglob("*.*"))]:
        state.update(path.read_bytes())
    return state
