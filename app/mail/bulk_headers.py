"""The headers of bulk mail, which mailbox providers require of digests, and Reply-To."""

import hashlib
import re

from app.settings import Settings

# The relays with webhooks that we read, by the end of their host names.
_RELAYS = {
    ".postmarkapp.com": "postmark",
    ".sendgrid.net": "sendgrid",
    ".mailgun.org": "mailgun",
    ".amazonaws.com": "ses",
}
# The headers whose values these relays report in their webhooks.
_ECHOED = {
    "postmark": (b"X-PM-Metadata-paperboy: ", b"\r\n"),
    "sendgrid": (b'X-SMTPAPI: {"unique_args": {"paperboy": "', b'"}}\r\n'),
    "mailgun": (b'X-Mailgun-Variables: {"paperboy": "', b'"}\r\n'),
    "ses": (b"X-SES-MESSAGE-TAGS: paperboy=", b"\r\n"),
}


def relay_of(smtp_host: str) -> str:
    """Return the name of the relay in the URL of its webhooks, or "" if we have no format for it."""
    return next((relay for end, relay in _RELAYS.items() if smtp_host.lower().endswith(end)), "")


def echoed(smtp_host: str) -> tuple[bytes, bytes] | None:
    """Return the texts around the token in the header that this relay echoes, or None for other relays."""
    return _ECHOED.get(relay_of(smtp_host))


def reply_to(settings: Settings) -> dict[str, str]:
    """Return the Reply-To header, or {} if there is no separate contact address."""
    has_contact = settings.contact_address not in ("", settings.from_address)
    return {"Reply-To": settings.contact_address} if has_contact else {}


def bulk_headers(settings: Settings, edition: str, unsubscribe: str) -> dict[str, str]:
    """Return the headers of a digest (RFC 2369, 2919, 8058) whose unsubscribe link is `unsubscribe`."""
    domain, contact = settings.mail_domain, settings.contact_address or settings.from_address
    token = unsubscribe.rpartition("/")[2]
    # If Paperboy reads no bounce mailbox or folder, a person reads unsubscribe emails at the contact address.
    mailto = f"unsubscribe+{token}@{domain}?subject=unsubscribe"
    if not (settings.bounce_mailbox or settings.bounce_folder):
        mailto = f"{contact}?subject=unsubscribe%20{token}"
    return {
        **reply_to(settings),
        "List-Unsubscribe": f"<{unsubscribe}>, <mailto:{mailto}>",
        "List-Unsubscribe-Post": "List-Unsubscribe=One-Click",
        "List-Id": f"<digest.{domain}>",
        "List-Help": f"<{settings.base_url}/>, <mailto:{contact}?subject=help>",
        "Feedback-ID": f"{edition}:digest:paperboy:{sender_id(domain)}",
        "Precedence": "bulk",
    }


def sender_id(domain: str) -> str:
    """Return the SenderId of a Feedback-ID. Gmail asks for 5 to 15 characters, constant per domain."""
    name = re.sub(r"[^a-z0-9]+", "-", domain.lower())
    if 5 <= len(name) <= 15:
        return name
    return f"{name[:8]}-{hashlib.blake2s(domain.encode(), digest_size=3).hexdigest()}"
