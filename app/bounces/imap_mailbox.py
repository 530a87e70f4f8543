"""The mailbox that notices arrive in, by IMAP."""

from __future__ import annotations

import imaplib
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Event, Thread
from time import monotonic
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from imap_tools import AND, BaseMailBox, ImapToolsError

from app.bounces.mime_parser import MAX_BYTES
from app.bounces.notices import one_line
from app.errors import MailboxError

TIMEOUT = 30  # seconds, for each answer
LONGEST = 600  # seconds, for all that is done with the mailbox while it is open
TICK = 0.2  # seconds until it is noticed that the service stops
Answer = TypeVar("Answer")
Watch = Callable[[socket.socket], None]
_FAULTS = (ImapToolsError, imaplib.IMAP4.error, OSError)


class _Plain(imaplib.IMAP4):
    """A connection that is watched from its first moment: the server speaks before anything is asked."""

    def __init__(self, watch: Watch, *address: Any, **options: Any) -> None:
        self._watch = watch
        super().__init__(*address, **options)

    def open(self, *address: Any, **options: Any) -> None:
        super().open(*address, **options)
        self._watch(self.sock)


class _Tls(_Plain, imaplib.IMAP4_SSL):
    """The same over TLS."""


class _Box(BaseMailBox):
    """A mailbox on a connection of ours."""

    def __init__(self, connect: Callable[[], imaplib.IMAP4]) -> None:
        self._connect = connect
        super().__init__()

    def _get_mailbox_client(self) -> imaplib.IMAP4:
        return self._connect()


class Mailbox:
    """Mails are deleted when they were processed. What is no notice stays, flagged, and is not read again.

    The connection is cut when `stopping` is set, and when it has been open for `LONGEST` seconds: a server
    that sends a byte now and then is within every timeout of a socket.
    """

    name = "the mailbox"

    def __init__(self, url: str, timeout: float = TIMEOUT, stopping: Event | None = None) -> None:
        self._url, self._timeout = urlsplit(url), timeout
        self._box: BaseMailBox | None = None
        self._stopping, self._closed = stopping or Event(), Event()

    def __enter__(self) -> Mailbox:
        user, password = unquote(self._url.username or ""), unquote(self._url.password or "")
        folder = unquote(self._url.path.strip("/")) or "INBOX"
        try:
            self._box = self._connect()
            self._box.login(user, password, initial_folder=folder)
        except _FAULTS as error:
            self._hang_up()
            raise MailboxError(f"{self._url.hostname}: {_told(error)}") from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(MailboxError):  # what was done is done
            self._do(lambda box: box.logout())
        self._hang_up()

    def _watch(self, connection: socket.socket) -> None:
        Thread(target=self._cut_in_time, args=(connection,), name="mailbox", daemon=True).start()

    def _cut_in_time(self, connection: socket.socket) -> None:
        ends = monotonic() + LONGEST
        while not self._closed.wait(TICK):
            if self._stopping.is_set() or monotonic() > ends:
                with suppress(OSError):  # of TLS, too, whose own shutdown would wait for the other side
                    socket.socket.shutdown(connection, socket.SHUT_RDWR)
                return

    def _hang_up(self) -> None:
        self._closed.set()
        if self._box:
            with suppress(*_FAULTS):
                self._box.client.shutdown()

    def waiting(self, most: int) -> Sequence[str]:
        """The numbers of mails to be read, the oldest first."""
        return self._do(lambda box: box.uids(AND(flagged=False, deleted=False)))[:most]

    def raw(self, name: str) -> bytes | None:
        """The bytes of a mail, as many as are looked at; None where it is not given. It stays unread."""
        _, got = self._do(lambda box: box.client.uid("FETCH", name, f"(BODY.PEEK[]<0.{MAX_BYTES}>)"))
        return next((bytes(part[1]) for part in got if isinstance(part, tuple)), None)

    def remove(self, names: Sequence[str]) -> None:
        """Delete what was processed. What others have marked stays, where the server can tell them apart."""
        if not names:
            return
        self._ask("STORE", ",".join(names), "+FLAGS.SILENT", r"(\Deleted)")
        if self._do(lambda box: b"UIDPLUS" in box.client.capability()[1][0].upper()):
            self._ask("EXPUNGE", ",".join(names))
        else:
            self._do(lambda box: box.expunge())

    def keep(self, names: Sequence[str]) -> None:
        """Flag what a person should look at."""
        if names:
            self._ask("STORE", ",".join(names), "+FLAGS.SILENT", r"(\Flagged)")

    def _connect(self) -> BaseMailBox:
        host, timeout = self._url.hostname or "", self._timeout
        if self._url.scheme == "imaps":
            context = ssl.create_default_context()  # imaplib's own verifies nobody
            port = self._url.port or 993
            return _Box(lambda: _Tls(self._watch, host, port, ssl_context=context, timeout=timeout))
        return _Box(lambda: _Plain(self._watch, host, self._url.port or 143, timeout=timeout))

    def _ask(self, command: str, *arguments: str) -> None:
        status, told = self._do(lambda box: box.client.uid(command, *arguments))
        if status != "OK":
            raise MailboxError(f"{self._url.hostname}: {command}: {one_line(str(told), 300)}")

    def _do(self, work: Callable[[BaseMailBox], Answer]) -> Answer:
        assert self._box is not None  # noqa: S101 - it is used as a context manager
        try:
            return work(self._box)
        except _FAULTS as error:
            raise MailboxError(f"{self._url.hostname}: {_told(error)}") from None


def _told(error: Exception) -> str:
    return one_line(str(error), 300) or type(error).__name__
