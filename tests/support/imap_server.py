"""A real IMAP server on a free port, with one mailbox in memory."""

import asyncio
import threading
from argparse import Namespace
from types import TracebackType
from typing import Self
from urllib.parse import quote

from imap_tools import AND, MailBoxUnencrypted
from proxyprotocol.reader import ProxyProtocolReader
from pymap.backend.dict import DictBackend
from pymap.imap import IMAPServer
from pysasl.hashing import BuiltinHash

USER, PASSWORD = "bounces", "p@ss/word"  # with characters that must be percent-encoded in a URL


class ImapServer:
    """Use as a context manager. `deliver` and `subjects` access the mailbox as another client does."""

    def __init__(self, password: str = PASSWORD) -> None:
        self._password = password
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.port = 0

    @property
    def url(self) -> str:
        return f"imap://{USER}:{quote(self._password, safe='')}@127.0.0.1:{self.port}/INBOX"

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(timeout=30)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(timeout=30)

    def deliver(self, *mails: bytes) -> None:
        """Append emails to the mailbox, as a mail server does."""
        with self._client() as box:
            for mail in mails:
                box.append(mail, "INBOX")

    def subjects(self, flagged: bool | None = None) -> list[str]:
        """Return the subjects of all emails, or of those that are (or are not) flagged."""
        with self._client() as box:
            criteria = AND(all=True) if flagged is None else AND(flagged=flagged)
            return [mail.subject for mail in box.fetch(criteria, mark_seen=False)]

    def _client(self) -> MailBoxUnencrypted:
        box = MailBoxUnencrypted("127.0.0.1", self.port, timeout=30)
        box.login_utf8(USER, self._password)
        return box

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    async def _serve(self) -> None:
        self._end = asyncio.Event()
        arguments = Namespace(
            host="127.0.0.1", port="0", debug=False, tls=False, cert=None, key=None, proxy_protocol=None,
            passlib_cfg=None, inherited_sockets=None, demo_data=False, demo_user=USER,
            demo_password=self._password,
        )  # fmt: skip
        fast_hash = BuiltinHash(rounds=1)  # the server hashes the password whenever a client signs in
        backend, config = await DictBackend.init(arguments, hash_context=fast_hash)
        config.apply_context()
        server = await asyncio.start_server(
            ProxyProtocolReader(config.proxy_protocol).get_callback(IMAPServer(backend.login, config)),
            "127.0.0.1",
            0,
        )
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._end.wait()
        server.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(0)
