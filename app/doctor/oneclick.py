"""Check one-click unsubscribing (RFC 8058) by calling our own web app, without a network."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from starlette.types import ASGIApp

from app.application import Application
from app.doctor.findings import Finding, error, ok
from app.doctor.message_checks import REPORT_BUG
from app.storage.models import Subscriber, SubscriberState

_FIELD, _VALUE, _BOUNDARY = "List-Unsubscribe", "One-Click", "=_oneclick"
_MULTIPART = (
    f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="{_FIELD}"\r\n\r\n{_VALUE}\r\n--{_BOUNDARY}--\r\n'
)
# Content type and body of the request, in each encoding that mail programs use.
FORM_ENCODINGS = {
    "urlencoded": ("application/x-www-form-urlencoded", f"{_FIELD}={_VALUE}"),
    "multipart": (f"multipart/form-data; boundary={_BOUNDARY}", _MULTIPART),
}


@dataclass
class OneClickResponse:
    """Status and headers of the web app's response."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)


def check(app: Application, site: ASGIApp, subscriber_id: int, url: str) -> Iterator[Finding]:
    """Open the unsubscribe link, then post to it in each encoding. The subscriber must be a test one."""
    problems = [
        _check_opening(app, site, subscriber_id, url),
        *(_check_posting(app, site, subscriber_id, url, encoding) for encoding in FORM_ENCODINGS),
    ]
    problems = [problem for problem in problems if problem]
    yield from (error("one-click", problem, REPORT_BUG) for problem in problems)
    if not problems:
        encodings = " and ".join(FORM_ENCODINGS)
        yield ok(
            "one-click",
            f"one POST ({encodings}) to the link in the mail unsubscribes; opening the link changes nothing",
        )


def _check_opening(app: Application, site: ASGIApp, subscriber_id: int, url: str) -> str:
    """Return the problem with opening the link, if any. It must change nothing: mail scanners open links."""
    reply = send_request(site, "GET", url)
    if _state(app, subscriber_id) is not SubscriberState.ACTIVE:
        return "opening the link unsubscribes, so mail scanners unsubscribe readers"
    return "" if reply.status == 200 else f"the link in the mail cannot be opened: HTTP {reply.status}"


def _check_posting(app: Application, site: ASGIApp, subscriber_id: int, url: str, encoding: str) -> str:
    """Return the problem with posting to the link, if any."""
    with app.db.write() as session:
        session.get_one(Subscriber, subscriber_id).state = SubscriberState.ACTIVE
    reply = send_request(site, "POST", url, *FORM_ENCODINGS[encoding])
    if 300 <= reply.status < 400:
        location = reply.headers.get("location")
        return f"a POST ({encoding}) is redirected to {location}: mail programs do not follow redirects"
    if not 200 <= reply.status < 300:
        return f"a POST ({encoding}) without a login fails with HTTP {reply.status}"
    if _state(app, subscriber_id) is not SubscriberState.UNSUBSCRIBED:
        return f"a POST ({encoding}) succeeds, but does not unsubscribe"
    return ""


def _state(app: Application, subscriber_id: int) -> SubscriberState:
    with app.db.read() as session:
        return session.get_one(Subscriber, subscriber_id).state


def send_request(
    site: ASGIApp, method: str, url: str, content_type: str = "", body: str = ""
) -> OneClickResponse:
    """Send a request without cookies or a login to an ASGI app, and return its reply."""
    return asyncio.run(_send_request(site, method, url, content_type, body))


async def _send_request(
    site: ASGIApp, method: str, url: str, content_type: str, body: str
) -> OneClickResponse:
    parts, reply = urlsplit(url), OneClickResponse()
    headers = {"host": parts.netloc, "content-type": content_type, "content-length": str(len(body))}
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
