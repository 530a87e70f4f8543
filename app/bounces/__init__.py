"""What comes back: notices → whose mail it was → events → scores → suppression.

mime       PURE: mails as strangers write them → their parts, within limits
prose      PURE: what a notice says in words
notices    PURE: the bytes of a mail → notices
shapes     PURE: what relays tell by webhook → notices
scores     PURE: when soft bounces are enough
events     whose mail it was, what is written down, and what follows from it
mailbox    the mailbox that notices arrive in, by IMAP
folder     the folder that a mail server drops them into
"""

from app.bounces.events import (
    TRUSTED,
    Whose,
    bounced,
    bounced_softly,
    complained,
    note_refusal,
    opted_out,
    refused_us,
    whose,
)
from app.bounces.folder import Folder
from app.bounces.mailbox import Mailbox
from app.bounces.notices import Kind, Notice
from app.bounces.shapes import SHAPES, Unreadable, read_mail, read_webhook, subscription

__all__ = [
    "SHAPES",
    "TRUSTED",
    "Folder",
    "Kind",
    "Mailbox",
    "Notice",
    "Unreadable",
    "Whose",
    "bounced",
    "bounced_softly",
    "complained",
    "note_refusal",
    "opted_out",
    "read_mail",
    "read_webhook",
    "refused_us",
    "subscription",
    "whose",
]
