"""A local web server that receives webhooks, verifies them, and answers as it is told."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any


@dataclass(frozen=True, slots=True)
class Received:
    """A request, with its headers in lower case."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def event(self) -> dict[str, Any]:
        event: dict[str, Any] = json.loads(self.body)
        return event

    def is_signed_by(self, secret: str) -> bool:
        """Return whether one of the signatures is valid, by the Standard Webhooks specification."""
        key = base64.b64decode(secret.split("_", 1)[1])
        content = f"{self.headers['webhook-id']}.{self.headers['webhook-timestamp']}.".encode() + self.body
        expected = "v1," + base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode()
        return expected in self.headers["webhook-signature"].split(" ")


class WebhookReceiver:
    """Use as a context manager. It answers with `status`, and `headers`, and records all requests."""

    def __init__(self, status: int = 204) -> None:
        self.status, self.headers, self.answer = status, dict[str, str](), b""
        self.received: list[Received] = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                names = {name.lower(): value for name, value in self.headers.items()}
                owner.received.append(Received(self.path, names, body))
                self.send_response(owner.status)
                for name, value in owner.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(owner.answer)))
                self.end_headers()
                self.wfile.write(owner.answer)

            def log_message(self, *_: object) -> None:
                """Write nothing to standard error."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/hooks/s3cret"

    def __enter__(self) -> WebhookReceiver:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
