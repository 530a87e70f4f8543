"""A local web server that receives webhooks, verifies them, and returns a configured response."""

import base64
import hashlib
import hmac
import json
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.support.local_web_server import LocalWebServer, QuietHandler


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


class WebhookReceiver(LocalWebServer):
    """Use as a context manager. It responds with `status` and `headers`, and records all requests."""

    def __init__(self, status: int = 204) -> None:
        self.status, self.headers, self.answer = status, dict[str, str](), b""
        self.received: list[Received] = []
        owner = self

        class Handler(QuietHandler, BaseHTTPRequestHandler):
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

        super().__init__(Handler)
        self.url += "/hooks/s3cret"
