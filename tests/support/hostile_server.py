"""A local web server that answers slowly or never finishes, as a hostile third party's might."""

import socketserver
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from tests.papers.sources import responses


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address, daemon_threads = True, True


class HostileServer:
    """Use as a context manager. `/rss` is a valid feed; `/body` and `/head` send bytes slowly without end."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.paths: list[str] = []
        self.hosts: list[str] = []
        self.trickling = threading.Event()  # set while a client waits for an endless response
        # Called before each byte. Return True to close the connection.
        self.enough: Callable[[], bool] = lambda: False
        self._ended = threading.Event()
        owner = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                with suppress(OSError):
                    owner._answer(self)

        self._server = _Server(("127.0.0.1", 0), Handler)
        if context:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self.port = self._server.server_address[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answer(self, handler: socketserver.StreamRequestHandler) -> None:
        path = handler.rfile.readline().split()[1].decode()
        while (line := handler.rfile.readline().strip()) and b":" in line:
            if line.lower().startswith(b"host:"):
                self.hosts.append(line[5:].strip().decode())
        self.paths.append(path)
        if path == "/rss":
            body = responses.RSS.encode()
            handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            return
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
        handler.wfile.write(b"X-Long: " if path == "/head" else b"Content-Length: 9000000\r\n\r\n")
        self._trickle(handler)

    def _trickle(self, handler: socketserver.StreamRequestHandler) -> None:
        self.trickling.set()
        while not self._ended.wait(0.02) and not self.enough():
            handler.wfile.write(b"x")
            handler.wfile.flush()
