"""Check that bounce notices can be read from a mailbox or a folder, or received by webhook.

Only `check_mailbox` uses the network.
"""

from collections.abc import Iterator
from datetime import datetime
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from sqlalchemy.exc import SQLAlchemyError

from app.bounces.folder import Folder
from app.bounces.imap_mailbox import Mailbox
from app.doctor import file_permissions
from app.doctor.findings import Finding, error, ok, warning
from app.errors import MailboxError
from app.mail import bulk_headers
from app.settings import Settings
from app.storage import api_keys
from app.storage.api_keys import Scope
from app.storage.database import Database

TIMEOUT = 4.0  # seconds to wait for each reply from the mail server
MAX_COUNTED = 1000


def check_mailbox(url: str) -> Iterator[Finding]:
    """Connect to the mailbox, if there is one. Count the waiting notices without reading them."""
    if not url:
        return
    try:
        with Mailbox(url, TIMEOUT) as mailbox:
            count = len(mailbox.pending(MAX_COUNTED))
    except MailboxError as fault:
        fix = "check PAPERBOY_BOUNCE_MAILBOX: host, name, password (percent-encoded) and folder"
        yield error("bounce_mailbox", f"the mailbox cannot be used: {fault}", fix)
    else:
        yield ok("bounce_mailbox", f"the mailbox can be read; emails waiting: {count}")


def check(settings: Settings, database: Database, now: datetime) -> Iterator[Finding]:
    """Check that bounces are processed. Count the notices in the folder without reading them."""
    if settings.bounce_mailbox:
        yield from check_encryption(settings.bounce_mailbox)
    if settings.bounce_folder:
        name = settings.bounce_folder
        fix = "check PAPERBOY_BOUNCE_FOLDER, and that Paperboy may read and write there"
        try:
            with Folder(name, now) as folder:
                count = len(folder.pending(MAX_COUNTED))
        except OSError as fault:
            yield error("bounce_folder", f"{name} cannot be read: {fault.strerror}", fix)
        else:
            if reason := file_permissions.write_error(Path(name)):
                yield error("bounce_folder", f"{name} cannot be written to: {reason}", fix)
            else:
                yield ok("bounce_folder", f"{name} can be read; files waiting: {count}")
    yield from _check_webhooks(settings, database)


def _check_webhooks(settings: Settings, database: Database) -> Iterator[Finding]:
    has_key = _has_webhook_key(database)
    if has_key:
        yield from _check_signatures(settings)
    if settings.bounce_mailbox or settings.bounce_folder:
        return
    if has_key:
        yield ok("bounces", "a relay can report them by webhook: a key with the “bounces” scope exists")
    else:
        yield warning(
            "bounces",
            "none are processed, so mail to deleted mailboxes continues and harms your reputation",
            "set PAPERBOY_BOUNCE_MAILBOX or PAPERBOY_BOUNCE_FOLDER, or use your relay's webhooks: "
            "`paperboy key create relay --scope bounces` creates a key for them",
        )


def check_encryption(url: str) -> Iterator[Finding]:
    """Warn if the password of a mailbox is sent over a network without encryption."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        is_loopback = ip_address(host).is_loopback
    except ValueError:
        is_loopback = host == "localhost"
    if parts.scheme == "imap" and not is_loopback:
        message = "it is sent unencrypted to a server that does not prove its identity"
        yield warning("bounce_mailbox password", message, "begin PAPERBOY_BOUNCE_MAILBOX with imaps://")


def _check_signatures(settings: Settings) -> Iterator[Finding]:
    """Report the relays whose webhook signatures are verified.

    Warn if the configured relay signs its webhooks, but the signatures are not verified.
    """
    check_name, is_reported = "bounce webhooks", False
    for relay, signer, value, name in (
        ("ses", "Amazon SNS", settings.sns_topics, "PAPERBOY_SNS_TOPICS"),
        ("sendgrid", "SendGrid", settings.sendgrid_key, "PAPERBOY_SENDGRID_KEY"),
        ("mailgun", "Mailgun", settings.mailgun_key, "PAPERBOY_MAILGUN_KEY"),
    ):
        if value:
            yield ok(check_name, f"those from {signer} are accepted only with its signature")
        elif bulk_headers.relay_of(settings.smtp_host) == relay:
            message = (
                f"they are accepted without {signer}'s signature: the API key alone is enough to send them"
            )
            yield warning(check_name, message, f"set {name} (see .env.example)")
        else:
            continue
        is_reported = True
    if not is_reported:
        message = (
            "signatures are not verified: anyone with the API key can report bounces of emails whose "
            "Message-ID they know"
        )
        yield ok(check_name, message)


def _has_webhook_key(database: Database) -> bool:
    """Return whether there is a key with the `bounces` scope that has not been revoked.

    Return False if the database is unreachable, because `service_state` reports that.
    """
    try:
        with database.read() as session:
            return any(
                Scope.BOUNCES in row.scopes and not row.revoked_at for row in api_keys.list_keys(session)
            )
    except SQLAlchemyError:
        return False
