"""Leaving by one click (RFC 8058), done to our own web app, without a network."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from starlette.types import ASGIApp

from app.application import Application
from app.doctor.findings import Finding, error, well
from app.doctor.message_checks import OURS
from app.storage.models import Subscriber, SubscriberState

_FIELD, _VALUE, _EDGE = "List-Unsubscribe", "One-Click", "=_oneclick"
_MULTIPART = (
    f'--{_EDGE}\r\nContent-Disposition: form-data; name="{_FIELD}"\r\n\r\n{_VALUE}\r\n--{_EDGE}--\r\n'
)
# How mail programs send the promised field.
FORMS = {
    "urlencoded": ("application/x-www-form-urlencoded", f"{_FIELD}={_VALUE}"),
    "multipart": (f"multipart/form-data; boundary={_EDGE}", _MULTIPART),
}


@dataclass
class Reply:
    """What the web app answered."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)


def look(app: Application, site: ASGIApp, reader_id: int, way_out: str) -> Iterator[Finding]:
    """Open the link, then leave by it, in each of the ways; the reader is to be nobody's."""
    faults = [
        _opened(app, site, reader_id, way_out),
        *(_left(app, site, reader_id, way_out, each) for each in FORMS),
    ]
    found = [fault for fault in faults if fault]
    yield from (error("one-click", fault, OURS) for fault in found)
    if not found:
        ways = " and ".join(FORMS)
        yield well(
            "one-click", f"one POST ({ways}) to the link in the mail is enough; opening it changes nothing"
        )


def _opened(app: Application, site: ASGIApp, reader_id: int, way_out: str) -> str:
    """Scanners open every link."""
    reply = asked(site, "GET", way_out)
    if _state(app, reader_id) is not SubscriberState.ACTIVE:
        return "whoever opens the link is unsubscribed, scanners of mails included"
    return "" if reply.status == 200 else f"the link in the mail cannot be opened: HTTP {reply.status}"


def _left(app: Application, site: ASGIApp, reader_id: int, way_out: str, form: str) -> str:
    _set_active(app, reader_id)
    reply = asked(site, "POST", way_out, *FORMS[form])
    if 300 <= reply.status < 400:
        return f"a POST ({form}) is sent on to {reply.headers.get('location')}: mail programs do not follow"
    if not 200 <= reply.status < 300:
        return f"a POST ({form}) without a login is answered with HTTP {reply.status}"
    if _state(app, reader_id) is not SubscriberState.UNSUBSCRIBED:
        return f"a POST ({form}) is answered well, and does not unsubscribe"
    return ""


def _state(app: Application, reader_id: int) -> SubscriberState:
    with app.db.read() as session:
        return session.get_one(Subscriber, reader_id).state


def _set_active(app: Application, reader_id: int) -> None:
    with app.db.write() as session:
        session.get_one(Subscriber, reader_id).state = SubscriberState.ACTIVE


def asked(site: ASGIApp, method: str, url: str, kind: str = "", body: str = "") -> Reply:
    """What a request is answered that comes without cookies or a login, as if by network."""
    return asyncio.run(_ask(site, method, url, kind, body))


async def _ask(site: ASGIApp, method: str, url: str, kind: str, body: str) -> Reply:
    parts, reply = urlsplit(url), Reply()
    headers = {"host": parts.netloc, "content-type": kind, "content-length": str(len(body))}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": parts.scheme,
        "path": parts.path,
        "raw_path": parts.path.encode(),
        "query_string": parts.query.encode(),
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items() if value],
        "client": ("127.0.0.1", 0),
        "server": (parts.hostname, parts.port or 443),
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body.encode(), "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            reply.status = message["status"]
            reply.headers = {name.decode().lower(): value.decode() for name, value in message["headers"]}

    await site(scope, receive, send)
    return reply
