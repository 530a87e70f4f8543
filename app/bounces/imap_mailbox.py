"""An IMAP mailbox that receives notices."""

import imaplib
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Event, Thread
from time import monotonic
from typing import Any, Self, TypeVar
from urllib.parse import unquote, urlsplit

import structlog
from imap_tools import AND, BaseMailBox, ImapToolsError

from app.bounces.mime_parser import MAX_BYTES
from app.bounces.notices import printable_line
from app.errors import MailboxError, UnreadableMail

REPLY_TIMEOUT = 30  # seconds, for each reply
MAX_SESSION = 600  # seconds, for all connections of a mailbox
POLL_INTERVAL = 0.2  # seconds between checks of whether the service is stopping
Result = TypeVar("Result")
Watch = Callable[[socket.socket], None]
# imaplib raises ValueError if it cannot encode or parse something, such as a host name or a reply.
_ERRORS = (ImapToolsError, imaplib.IMAP4.error, OSError, ValueError)

log = structlog.get_logger(__name__)


class _Plain(imaplib.IMAP4):
    """A connection that `watch` can close before the greeting, which the server may delay."""

    def __init__(self, watch: Watch, *address: Any, **options: Any) -> None:
        self._watch = watch
        super().__init__(*address, **options)

    def open(self, *address: Any, **options: Any) -> None:
        super().open(*address, **options)
        Thread(target=self._watch, args=(self.sock,), name="mailbox", daemon=True).start()


class _Tls(_Plain, imaplib.IMAP4_SSL):
    """A `_Plain` connection over TLS."""


class _MailBox(BaseMailBox):
    """A mailbox on a connection that `connect` opens."""

    def __init__(self, connect: Callable[[], imaplib.IMAP4]) -> None:
        self._connect = connect
        super().__init__()

    def _get_mailbox_client(self) -> imaplib.IMAP4:
        return self._connect()


class Mailbox:
    """A source of notices. Processed messages are deleted, and those that cannot be processed are flagged.

    Flagged messages are skipped. The connection is closed when `stopping` is set or after MAX_SESSION
    seconds, because a socket timeout does not end a connection on which a byte arrives now and then. Entering
    the context, and all methods, raise MailboxError if the server refuses a command or the connection breaks.
    """

    name = "the mailbox"

    def __init__(self, url: str, timeout: float = REPLY_TIMEOUT, stopping: Event | None = None) -> None:
        self._url, self._timeout = urlsplit(url), timeout
        self._box: BaseMailBox | None = None
        self._stopping, self._closed = stopping or Event(), Event()
        self._deadline = monotonic() + MAX_SESSION
        self._uid_validity: object = None  # identifies the assignment of UIDs (RFC 9051, 2.3.1.1)

    def __enter__(self) -> Self:
        self._open()
        return self

    def _open(self) -> None:
        user, password = unquote(self._url.username or ""), unquote(self._url.password or "")
        folder = unquote(self._url.path.strip("/")) or "INBOX"
        try:
            self._box = self._connect()
            # Only AUTHENTICATE takes UTF-8, but not every server supports it.
            login = self._box.login if (user + password).isascii() else self._box.login_utf8
            login(user, password, initial_folder=folder)
        except _ERRORS as error:
            self._close()
            raise MailboxError(f"{self._url.hostname}: {_error_text(error)}") from None
        uid_validity = self._box.client.response("UIDVALIDITY")[1]
        if self._uid_validity not in (None, uid_validity):
            changed = "the server has assigned new UIDs to its emails (UIDVALIDITY changed)"
            raise MailboxError(f"{self._url.hostname}: {changed}")
        self._uid_validity = uid_validity

    def __exit__(self, *_: object) -> None:
        with suppress(MailboxError):  # a failed logout does no harm
            self._do(lambda box: box.logout())
        self._close()

    def _watch(self, connection: socket.socket) -> None:
        """Close a connection when the service stops, or after MAX_SESSION. This runs in its own thread."""
        closed = self._closed  # of this connection
        while not closed.wait(POLL_INTERVAL):
            if self._must_end():
                with suppress(OSError):  # shut down the socket, because closing TLS would wait for the peer
                    socket.socket.shutdown(connection, socket.SHUT_RDWR)
                return

    def _must_end(self) -> bool:
        return self._stopping.is_set() or monotonic() > self._deadline

    def _close(self) -> None:
        self._closed.set()
        if self._box:
            with suppress(*_ERRORS):
                self._box.client.shutdown()

    def pending(self, limit: int) -> Sequence[str]:
        """Return the UIDs of messages to read, oldest first."""
        return self._do(lambda box: box.uids(AND(flagged=False, deleted=False)))[:limit]

    def fetch(self, name: str) -> bytes | None:
        """Return at most MAX_BYTES of a message, or None if it no longer exists. Do not mark it as read.

        Raise UnreadableMail if the server cannot return the message, for example because it is corrupt. Many
        servers then close the connection. They may also do so for other reasons, so connect and try again.
        """
        reply = ""
        for _ in range(2):
            try:
                status, parts = self._do(
                    lambda box: box.client.uid("FETCH", name, f"(BODY.PEEK[]<0.{MAX_BYTES}>)")
                )
            except MailboxError as error:
                if self._must_end():
                    raise
                reply = str(error)
                self._close()
                self._open()
                continue
            if status == "OK" or "[EXPUNGEISSUED]" in str(parts):  # the latter: RFC 5530
                if literal := next((part[1] for part in parts if isinstance(part, tuple)), b""):
                    return bytes(literal)
                return b"" if "BODY[]" in str(parts).upper() else None  # some servers return NIL for b""
            reply = f"{self._url.hostname}: FETCH: {printable_line(str(parts), 300)}"
        log.warning("an email could not be fetched", uid=name, error=reply)
        raise UnreadableMail(reply)

    def remove(self, names: Sequence[str]) -> None:
        """Delete messages. A server without UIDPLUS also deletes all others that are marked as deleted."""
        if not names:
            return
        self._command("STORE", ",".join(names), "+FLAGS.SILENT", r"(\Deleted)")
        if self._do(lambda box: b"UIDPLUS" in box.client.capability()[1][0].upper()):
            self._command("EXPUNGE", ",".join(names))
        else:
            self._do(lambda box: box.expunge())

    def set_aside(self, names: Sequence[str]) -> None:
        """Flag messages that an operator should look at."""
        if names:
            self._command("STORE", ",".join(names), "+FLAGS.SILENT", r"(\Flagged)")

    def _connect(self) -> BaseMailBox:
        self._closed = Event()
        host, timeout = self._url.hostname or "", self._timeout
        if self._url.scheme == "imaps":
            context = ssl.create_default_context()  # imaplib's default context does not verify certificates
            port = self._url.port or 993
            return _MailBox(lambda: _Tls(self._watch, host, port, ssl_context=context, timeout=timeout))
        return _MailBox(lambda: _Plain(self._watch, host, self._url.port or 143, timeout=timeout))

    def _command(self, command: str, *arguments: str) -> None:
        status, reply = self._do(lambda box: box.client.uid(command, *arguments))
        if status != "OK":
            raise MailboxError(f"{self._url.hostname}: {command}: {printable_line(str(reply), 300)}")

    def _do(self, work: Callable[[BaseMailBox], Result]) -> Result:
        assert self._box is not None  # noqa: S101 - the mailbox is open
        try:
            return work(self._box)
        except _ERRORS as error:
            raise MailboxError(f"{self._url.hostname}: {_error_text(error)}") from None


def _error_text(error: Exception) -> str:
    return printable_line(str(error), 300) or type(error).__name__
