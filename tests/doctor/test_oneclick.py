"""The doctor unsubscribes by one click, as mail programs do, and finds what prevents it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from app import main, subscribers
from app.application import Application
from app.doctor import oneclick
from app.doctor.findings import Finding, Level
from app.links import Purpose
from app.storage.models import SubscriberState
from tests.support import factories

Answer = Callable[[Scope, Receive, Send], object]


@pytest.fixture
def reader(app: Application, now: datetime) -> int:
    with app.db.write() as session:
        return factories.reader(session, "alice@example.org", [], now)


@pytest.fixture
def run_check(app: Application, reader: int, now: datetime) -> Callable[[ASGIApp], list[Finding]]:
    """Return a function that checks one-click unsubscribing of a site."""
    way_out = app.signer.link(Purpose.UNSUBSCRIBE, app.signer.token(Purpose.UNSUBSCRIBE, reader, now))
    return lambda site: list(oneclick.check(app, site, reader, way_out))


RunCheck = Callable[[ASGIApp], list[Finding]]


def test_the_way_out_of_our_own_web_app_works(app: Application, run_check: RunCheck) -> None:
    """By both kinds of forms, and not by opening the link."""
    (finding,) = run_check(main.create_app(app))
    assert finding.level is Level.OK
    assert "urlencoded and multipart" in finding.message


def answering(
    status: int, headers: dict[str, str] | None = None, method: str = "POST"
) -> Callable[[Application], ASGIApp]:
    """Something in front of the web app that answers requests of a method by itself."""

    def in_front(app: Application) -> ASGIApp:
        behind = main.create_app(app)

        async def site(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["method"] != method:
                await behind(scope, receive, send)
                return
            sent = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
            await send({"type": "http.response.start", "status": status, "headers": sent})
            await send({"type": "http.response.body", "body": b""})

        return site

    return in_front


@pytest.mark.parametrize(
    ("in_front", "expected"),
    [
        (answering(303, {"Location": "/goodbye"}), "is redirected to /goodbye"),
        (answering(401), "without a login fails with HTTP 401"),
        (answering(200), "succeeds, but does not unsubscribe"),
        (answering(404, method="GET"), "cannot be opened: HTTP 404"),
    ],
)
def test_what_keeps_readers_from_leaving_is_found(
    in_front: Callable[[Application], ASGIApp], expected: str, app: Application, run_check: RunCheck
) -> None:
    """A redirect, a login, an answer without a deed, a link that leads nowhere."""
    findings = run_check(in_front(app))
    assert all(finding.level is Level.ERROR and finding.fix for finding in findings)
    assert any(expected in finding.message for finding in findings)


def test_a_form_that_is_not_understood_is_found(app: Application, run_check: RunCheck) -> None:
    """Mail programs send either kind."""
    behind = main.create_app(app)

    async def site(scope: Scope, receive: Receive, send: Send) -> None:
        if dict(scope["headers"]).get(b"content-type", b"").startswith(b"multipart"):
            await send({"type": "http.response.start", "status": 415, "headers": []})
            await send({"type": "http.response.body", "body": b""})
        else:
            await behind(scope, receive, send)

    (finding,) = run_check(site)
    assert (finding.level, "POST (multipart)" in finding.message) == (Level.ERROR, True)


def test_a_link_that_unsubscribes_whoever_opens_it_is_found(
    app: Application, run_check: RunCheck, reader: int, now: datetime
) -> None:
    """Scanners of mails open every link."""

    async def site(scope: Scope, receive: Receive, send: Send) -> None:
        with app.db.write() as session:
            subscribers.unsubscribe(session, reader, now)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"bye"})

    (finding,) = run_check(site)
    assert (finding.level, "scanners" in finding.message) == (Level.ERROR, True)


def test_a_request_is_as_by_network(app: Application, reader: int, now: datetime) -> None:
    """No cookie and no login goes with it; what the web app answers comes back."""
    site = main.create_app(app)
    url = app.signer.link(Purpose.UNSUBSCRIBE, app.signer.token(Purpose.UNSUBSCRIBE, reader, now))
    left = oneclick.send_request(site, "POST", url, *oneclick.FORM_ENCODINGS["urlencoded"])
    assert (left.status_code, "set-cookie" in left.headers) == (200, False)
    forged = oneclick.send_request(site, "POST", f"{url[:-1]}{'A' if url[-1] != 'A' else 'B'}")
    assert 400 <= forged.status_code < 500
    with app.db.read() as session:
        assert subscribers.get(session, reader).state is SubscriberState.UNSUBSCRIBED
