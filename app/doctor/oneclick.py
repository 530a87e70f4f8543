"""Check one-click unsubscribe (RFC 8058) and the unsubscribe address, without using the network."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from app import clock, pipeline
from app.application import Application
from app.doctor.findings import Finding, error, ok
from app.doctor.message_checks import REPORT_BUG
from app.storage.models import Subscriber, SubscriberState

if TYPE_CHECKING:
    from starlette.types import ASGIApp

_FIELD, _VALUE, _BOUNDARY = "List-Unsubscribe", "One-Click", "=_oneclick"
_MULTIPART = (
    f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="{_FIELD}"\r\n\r\n{_VALUE}\r\n--{_BOUNDARY}--\r\n'
)
# The content type and body of the request in each encoding that mail clients use.
FORM_ENCODINGS = {
    "urlencoded": ("application/x-www-form-urlencoded", f"{_FIELD}={_VALUE}"),
    "multipart": (f"multipart/form-data; boundary={_BOUNDARY}", _MULTIPART),
}


def check(app: Application, site: ASGIApp, subscriber_id: int, url: str) -> Iterator[Finding]:
    """Check that GET on the unsubscribe link changes nothing, and that POST in each encoding unsubscribes."""
    problems = []
    reply = send_request(site, "GET", url)
    if _state(app, subscriber_id) is not SubscriberState.ACTIVE:
        problems.append("opening the link unsubscribes, so mail scanners unsubscribe people")
    elif reply.status_code != 200:
        problems.append(f"the link in the email cannot be opened: HTTP {reply.status_code}")
    for encoding, form in FORM_ENCODINGS.items():
        with app.db.write() as session:
            session.get_one(Subscriber, subscriber_id).state = SubscriberState.ACTIVE
        reply, post = send_request(site, "POST", url, *form), f"a POST ({encoding})"
        if 300 <= reply.status_code < 400:
            location = reply.headers.get("location")
            problems.append(f"{post} is redirected to {location}: mail clients do not follow redirects")
        elif not 200 <= reply.status_code < 300:
            problems.append(f"{post} without a login fails with HTTP {reply.status_code}")
        elif _state(app, subscriber_id) is not SubscriberState.UNSUBSCRIBED:
            problems.append(f"{post} succeeds, but does not unsubscribe")
    yield from (error("one-click", problem, REPORT_BUG) for problem in problems)
    if not problems:
        message = "to the link in the email unsubscribes, and opening the link changes nothing"
        yield ok("one-click", f"one POST ({' and '.join(FORM_ENCODINGS)}) {message}")


def check_mailto(app: Application, subscriber_id: int, address: str) -> Iterator[Finding]:
    """Put an email to the unsubscribe address in the temporary service's folder, and process it."""
    if not app.settings.bounce_folder:
        return  # without a mailbox or folder, a person reads the emails to this address
    with app.db.write() as session:
        session.get_one(Subscriber, subscriber_id).state = SubscriberState.ACTIVE
    file = Path(app.settings.bounce_folder) / "unsubscribe.eml"
    file.write_text(f"From: reader@example.org\nTo: <{address}>\nSubject: unsubscribe\n\n")
    os.utime(file, (0, 0))  # old enough to be considered complete
    pipeline.read_bounces(app, clock.utcnow())
    if _state(app, subscriber_id) is SubscriberState.UNSUBSCRIBED:
        yield ok("unsubscribe mail", f"an email to …@{address.rpartition('@')[2]} unsubscribes its sender")
    else:
        yield error("unsubscribe mail", "an email to the address in the digest has no effect", REPORT_BUG)


def _state(app: Application, subscriber_id: int) -> SubscriberState:
    with app.db.read() as session:
        return session.get_one(Subscriber, subscriber_id).state


def send_request(
    site: ASGIApp, method: str, url: str, content_type: str = "", body: str = ""
) -> httpx.Response:
    """Send a request without cookies or a login to an ASGI app, and return the response."""
    client = httpx.AsyncClient(transport=httpx.ASGITransport(site))  # has no connections to close
    headers = {"content-type": content_type} if content_type else {}
    return asyncio.run(client.request(method, url, content=body, headers=headers))
