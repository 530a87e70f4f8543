"""The mailbox that notices arrive in, by IMAP."""

from __future__ import annotations

import imaplib
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TypeVar
from urllib.parse import unquote, urlsplit

from imap_tools import AND, BaseMailBox, ImapToolsError, MailBox, MailBoxUnencrypted, MailMessageFlags

from app.bounces.mime import MAX_BYTES
from app.bounces.notices import one_line
from app.errors import MailboxError

TIMEOUT = 30  # seconds, for each answer
Answer = TypeVar("Answer")
_FAULTS = (ImapToolsError, imaplib.IMAP4.error, OSError)


class Mailbox:
    """Mails are deleted when they were processed. What is no notice stays, flagged, and is not read again."""

    name = "the mailbox"

    def __init__(self, url: str, timeout: float = TIMEOUT) -> None:
        self._url, self._timeout = urlsplit(url), timeout
        self._box: BaseMailBox | None = None

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

    def _hang_up(self) -> None:
        if self._box:
            with suppress(*_FAULTS):
                self._box.client.shutdown()

    def waiting(self, most: int) -> Sequence[str]:
        """The numbers of mails to be read, the oldest first."""
        return self._do(lambda box: box.uids(AND(flagged=False, deleted=False)))[:most]

    def raw(self, name: str) -> bytes:
        """The bytes of a mail, as many as are looked at. It is not marked as read."""
        got = self._do(lambda box: box.client.uid("FETCH", name, f"(BODY.PEEK[]<0.{MAX_BYTES}>)"))
        return next((bytes(part[1]) for part in got[1] if isinstance(part, tuple)), b"")

    def remove(self, names: Sequence[str]) -> None:
        """Delete what was processed."""
        if names:
            self._do(lambda box: box.delete(list(names)))

    def keep(self, names: Sequence[str]) -> None:
        """Flag what a person should look at."""
        if names:
            self._do(lambda box: box.flag(list(names), MailMessageFlags.FLAGGED, True))

    def _connect(self) -> BaseMailBox:
        host = self._url.hostname or ""
        if self._url.scheme == "imaps":
            return MailBox(host, self._url.port or 993, timeout=self._timeout)
        return MailBoxUnencrypted(host, self._url.port or 143, timeout=self._timeout)

    def _do(self, work: Callable[[BaseMailBox], Answer]) -> Answer:
        assert self._box is not None  # noqa: S101 - it is used as a context manager
        try:
            return work(self._box)
        except _FAULTS as error:
            raise MailboxError(f"{self._url.hostname}: {_told(error)}") from None


def _told(error: Exception) -> str:
    return one_line(str(error), 300) or type(error).__name__
