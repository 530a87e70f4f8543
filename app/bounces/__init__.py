"""Bounce and complaint notices: read them, find the delivery, and apply the consequences.

processing          read the mailbox, the folder and webhooks; apply each notice
mime_parser         PURE: bounded MIME parsing
free_text_notices   PURE: parse notices in free text
notices             PURE: parse a message into notices (RFC 3464, RFC 5965)
automatic_replies   PURE: recognize automatic replies (RFC 3834)
unsubscribe_mails   PURE: recognize emails that ask to unsubscribe
webhook_signatures  PURE: verify the signatures of SNS, SendGrid and Mailgun
sns_certificates    fetch and cache the certificates of Amazon SNS
webhook_formats     PURE: notices from SES, Postmark, SendGrid, Mailgun and generic JSON
soft_bounce_score   PURE: decide when soft bounces suppress an address
rates               count bounces and complaints by receiver, pause sending if there are too many complaints
recording           record bounces and complaints, suppress addresses
imap_mailbox        notices in an IMAP mailbox
folder              notices that a mail server writes into a folder
"""

from app.bounces.folder import Folder
from app.bounces.imap_mailbox import Mailbox
from app.bounces.notices import Kind, Notice
from app.bounces.recording import (
    BouncedDelivery,
    find_delivery,
    is_request_recorded,
    record_complaint,
    record_hard,
    record_opt_out,
    record_refusal,
    record_request,
    record_sender_rejection,
    record_soft,
)
from app.bounces.sns_certificates import CertificateCache
from app.bounces.webhook_formats import (
    PROVIDERS,
    InvalidPayload,
    parse_mail,
    parse_webhook,
    sns_confirmation_url,
)
from app.bounces.webhook_signatures import (
    RefusedSignature,
    sns_certificate_url,
    verify_mailgun,
    verify_sendgrid,
    verify_sns,
)
