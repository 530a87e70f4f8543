"""Test the doctor's check of one-click unsubscribing."""

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
def reader_id(app: Application, now: datetime) -> int:
    with app.db.write() as session:
        return factories.add_subscriber(session, "alice@example.org", [], now)


@pytest.fixture
def run_check(app: Application, reader_id: int, now: datetime) -> Callable[[ASGIApp], list[Finding]]:
    """Return a function that checks one-click unsubscribing of a site."""
    way_out = app.signer.link(Purpose.UNSUBSCRIBE, app.signer.token(Purpose.UNSUBSCRIBE, reader_id, now))
    return lambda site: list(oneclick.check(app, site, reader_id, way_out))


RunCheck = Callable[[ASGIApp], list[Finding]]


def test_own_web_app_passes(app: Application, run_check: RunCheck) -> None:
    """Both form encodings work, and opening the link changes nothing."""
    (finding,) = run_check(main.create_app(app))
    assert finding.level is Level.OK
    assert "urlencoded and multipart" in finding.message


def intercept(
    status: int, headers: dict[str, str] | None = None, method: str = "POST"
) -> Callable[[Application], ASGIApp]:
    """Return a proxy that answers requests of a method itself."""

    def wrap(app: Application) -> ASGIApp:
        behind = main.create_app(app)

        async def site(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["method"] != method:
                await behind(scope, receive, send)
                return
            raw_headers = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
            await send({"type": "http.response.start", "status": status, "headers": raw_headers})
            await send({"type": "http.response.body", "body": b""})

        return site

    return wrap


@pytest.mark.parametrize(
    ("in_front", "expected"),
    [
        (intercept(303, {"Location": "/goodbye"}), "is redirected to /goodbye"),
        (intercept(401), "without a login fails with HTTP 401"),
        (intercept(200), "succeeds, but does not unsubscribe"),
        (intercept(404, method="GET"), "cannot be opened: HTTP 404"),
    ],
)
def test_failing_unsubscribe_is_found(
    in_front: Callable[[Application], ASGIApp], expected: str, app: Application, run_check: RunCheck
) -> None:
    """Test a redirect, a login, a response without effect, and a broken link."""
    findings = run_check(in_front(app))
    assert all(finding.level is Level.ERROR and finding.fix for finding in findings)
    assert any(expected in finding.message for finding in findings)


def test_unsupported_form_encoding_is_found(app: Application, run_check: RunCheck) -> None:
    """Mail programs send either encoding."""
    behind = main.create_app(app)

    async def site(scope: Scope, receive: Receive, send: Send) -> None:
        if dict(scope["headers"]).get(b"content-type", b"").startswith(b"multipart"):
            await send({"type": "http.response.start", "status": 415, "headers": []})
            await send({"type": "http.response.body", "body": b""})
        else:
            await behind(scope, receive, send)

    (finding,) = run_check(site)
    assert (finding.level, "POST (multipart)" in finding.message) == (Level.ERROR, True)


def test_unsubscribing_by_get_is_found(
    app: Application, run_check: RunCheck, reader_id: int, now: datetime
) -> None:
    """Mail scanners open every link."""

    async def site(scope: Scope, receive: Receive, send: Send) -> None:
        with app.db.write() as session:
            subscribers.unsubscribe(session, reader_id, now)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"bye"})

    (finding,) = run_check(site)
    assert (finding.level, "scanners" in finding.message) == (Level.ERROR, True)


def test_in_process_request(app: Application, reader_id: int, now: datetime) -> None:
    """It has no cookie and no login, and the response of the app is returned."""
    site = main.create_app(app)
    url = app.signer.link(Purpose.UNSUBSCRIBE, app.signer.token(Purpose.UNSUBSCRIBE, reader_id, now))
    response = oneclick.send_request(site, "POST", url, *oneclick.FORM_ENCODINGS["urlencoded"])
    assert (response.status_code, "set-cookie" in response.headers) == (200, False)
    forged = oneclick.send_request(site, "POST", f"{url[:-1]}{'A' if url[-1] != 'A' else 'B'}")
    assert 400 <= forged.status_code < 500
    with app.db.read() as session:
        assert subscribers.get(session, reader_id).state is SubscriberState.UNSUBSCRIBED
