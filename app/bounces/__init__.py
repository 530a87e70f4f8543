"""Bounce and complaint notices: read them, find whose mail it was, and apply the consequences.

processing    read the mailbox, the folder and webhooks; apply each notice
mime_parser   PURE: bounded MIME parsing
free_text     PURE: notices in free text: whom they are about, where the returned mail begins
notices       PURE: a mail's bytes → notices (RFC 3464, RFC 5965)
webhooks      PURE: SES, Postmark, SendGrid, Mailgun and generic JSON → notices
scoring       PURE: when soft bounces are enough
events        what is recorded, and what follows
imap_mailbox  notices that arrive in a mailbox, by IMAP
folder        notices that a mail server drops into a folder
"""

from app.bounces.events import (
    TRUSTED,
    BouncedDelivery,
    find_delivery,
    record_complaint,
    record_hard,
    record_opt_out,
    record_refusal,
    record_sender_rejection,
    record_soft,
)
from app.bounces.folder import Folder
from app.bounces.imap_mailbox import Mailbox
from app.bounces.notices import Kind, Notice
from app.bounces.webhooks import PROVIDERS, Unreadable, parse_webhook, read_mail, sns_confirmation_url
