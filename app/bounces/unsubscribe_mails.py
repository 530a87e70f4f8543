"""PURE. Recognize emails to the address in List-Unsubscribe, and emails that say "unsubscribe".

Like the link in the digest, the address contains a signed token that identifies the subscription. An email
without a token proves nothing, because its sender can be forged.
"""

import re
from dataclasses import dataclass

from app.bounces import mime_parser
from app.links import TOKEN_CHARS
from app.subscribers.address import ascii_domain
from app.text import characters, sanitize

_TO = ("to", "cc", "delivered-to", "x-original-to", "envelope-to", "x-envelope-to", "x-delivered-to")
_ADDRESS = re.compile(r"(?<![\w.+-])unsubscribe(?:\+([\w-]{1,60}))?@", re.IGNORECASE | re.ASCII)
_REQUEST = re.compile(
    rf"(?:re:[ \t]?)?unsubscribe(?:[ \t]+([\w-]{{{TOKEN_CHARS}}}))?[ \t.!]{{0,9}}", re.IGNORECASE | re.ASCII
)
_LETTER = r"[A-Za-z0-9\u0080-\U0010ffff-]"  # of a domain in any script
_SENDER = re.compile(rf"{sanitize.LOCAL_PART}@(?:{_LETTER}{{1,63}}\.){{1,9}}{_LETTER}{{1,63}}")
_AUTOMATIC = ("auto-submitted", "x-autoreply", "x-autorespond", "list-id", "x-failed-recipients")


@dataclass(frozen=True, slots=True)
class UnsubscribeMail:
    """A request to unsubscribe. Without a valid token, only `sender` shows who asks, but it can be forged."""

    tokens: tuple[str, ...]
    sender: str  # empty if it is unclear or the email is automatic


def parse(raw: bytes) -> UnsubscribeMail | None:
    """Return the unsubscribe request in an email, or None if there is none."""
    mail = mime_parser.parse(raw)
    recipients = " ".join(value for name in _TO for value in mail.headers.get(name, ()))
    text = next((part.text for part in mail.walk() if part.kind in ("text/plain", "text/html")), "")
    first_line = next((line.strip() for line in text[:2000].split("\n") if line.strip()), "")
    addresses = _ADDRESS.findall(recipients)
    # Mail programs in Hebrew or Arabic insert direction marks.
    lines = [
        _REQUEST.fullmatch(characters.remove_copied_marks(line).strip())
        for line in (mail.header("subject"), first_line)
    ]
    requests = [line for line in lines if line]
    tokens = dict.fromkeys(token for token in (*addresses, *(line[1] for line in requests)) if token)
    automatic = mail.header("auto-submitted").lower() != "no" and any(map(mail.header, _AUTOMATIC))
    senders = _senders(mail.header("from"))
    is_clear = (addresses or requests) and not automatic and len(senders) == 1
    sender = senders.pop() if is_clear else ""
    return UnsubscribeMail(tuple(tokens), sender) if tokens or sender else None


def _senders(header: str) -> set[str]:
    """Return the addresses in a From header, but not those in the name before an address in angle brackets.

    Such a name is often the address again, with other characters around it.
    """
    mailboxes = re.split("[,;]", characters.remove_copied_marks(header))
    addresses = (mailbox[max(mailbox.find("<"), 0) :] for mailbox in mailboxes)
    return {ascii_domain(match[0]) for address in addresses for match in _SENDER.finditer(address)}
