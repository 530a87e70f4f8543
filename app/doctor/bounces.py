"""Whether what comes back can be read: a mailbox, a folder, or a relay that tells of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from sqlalchemy.exc import SQLAlchemyError

from app.bounces.folder import Folder
from app.bounces.imap_mailbox import Mailbox
from app.doctor import configuration
from app.doctor.findings import Finding, error, warning, well
from app.errors import MailboxError
from app.settings import Settings
from app.storage import api_keys
from app.storage.database import Database
from app.storage.models import Scope

PATIENCE = 4.0  # seconds, for each answer of the mailbox
MANY = 1000


def look(settings: Settings, database: Database, now: datetime) -> Iterator[Finding]:
    """Log in and count, look into the folder; nothing is read or removed."""
    if settings.bounce_mailbox:
        yield _mailbox(settings.bounce_mailbox)
        yield from in_clear(settings.bounce_mailbox)
    if settings.bounce_folder:
        yield _folder(settings.bounce_folder, now)
    if settings.bounce_mailbox or settings.bounce_folder:
        return
    if _is_told(database):
        yield well("bounces", "a relay tells of them over a webhook, for which there is a key")
    else:
        yield warning(
            "bounces",
            "nothing reads them: mailboxes that are gone are written to on and on, and providers mind",
            "set PAPERBOY_BOUNCE_MAILBOX or PAPERBOY_BOUNCE_FOLDER, or let your relay tell of them: "
            "`paperboy key create relay --scope bounces` makes the key for its webhook",
        )


def _mailbox(url: str) -> Finding:
    try:
        with Mailbox(url, PATIENCE) as box:
            waiting = len(box.waiting(MANY))
    except MailboxError as fault:
        fix = "check PAPERBOY_BOUNCE_MAILBOX: host, name, password (percent-encoded) and folder"
        return error("bounce_mailbox", f"cannot be used: {fault}", fix)
    return well("bounce_mailbox", f"can be read; {waiting} mails wait there")


def in_clear(url: str) -> Iterator[Finding]:
    """Whether the password of a mailbox goes over a network for everybody to read."""
    parts = urlsplit(url)
    if parts.scheme == "imap" and not _is_here(parts.hostname or ""):
        said = "its password is sent in clear, and nothing proves who answers"
        yield warning("bounce_mailbox password", said, "begin PAPERBOY_BOUNCE_MAILBOX with imaps://")


def _is_here(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _folder(name: str, now: datetime) -> Finding:
    fix = "check PAPERBOY_BOUNCE_FOLDER, and that Paperboy may read and write there"
    try:
        with Folder(name, now) as folder:
            waiting = len(folder.waiting(MANY))
    except OSError as fault:
        return error("bounce_folder", f"{name} cannot be read: {fault.strerror}", fix)
    if why := configuration.write_error(Path(name)):
        return error("bounce_folder", f"{name} cannot be written to: {why}", fix)
    return well("bounce_folder", f"{name} can be read; {waiting} files wait there")


def _is_told(database: Database) -> bool:
    """Whether there is a key for a webhook; that a database cannot be asked is said elsewhere."""
    try:
        with database.read() as session:
            return any(
                Scope.BOUNCES in row.scopes and not row.revoked_at for row in api_keys.list_keys(session)
            )
    except SQLAlchemyError:
        return False
