"""Test the doctor's request to the web app at its base URL."""

from collections.abc import Callable
from datetime import datetime

import httpx
import pytest

from app.doctor import web_reachability
from app.doctor.findings import Finding, Level
from app.papers.sources.http_client import HttpTransport
from app.settings import Settings

Serve = Callable[[httpx.Request], httpx.Response]


def run_check(settings: Settings, now: datetime, serve: Serve) -> Finding:
    """Return the finding about a web app with these answers."""

    async def at_once(_seconds: float) -> None:
        pass

    (finding,) = web_reachability.check(
        settings, now, HttpTransport(httpx.MockTransport(serve), sleep=at_once)
    )
    return finding


def test_reachable_web_app(settings: Settings, now: datetime) -> None:
    """The health endpoint is requested."""

    def serve(request: httpx.Request) -> httpx.Response:
        assert str(request.url) == "https://paperboy.test/healthz"
        return httpx.Response(200, json={"status": "ok"})

    assert run_check(settings, now, serve).level is Level.OK


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(404, text="no such page"),
        httpx.Response(401, text="log in"),
        httpx.Response(200, text="<h1>Welcome to nginx!</h1>"),
        httpx.Response(200, json=["ok"]),
    ],
)
def test_other_server_at_the_base_url(answer: httpx.Response, settings: Settings, now: datetime) -> None:
    """Test a proxy error, a login page and another site."""
    finding = run_check(settings, now, lambda _: answer)
    assert (finding.level, "PAPERBOY_BASE_URL" in finding.fix) == (Level.ERROR, True)


def test_unreachable_web_app(settings: Settings, now: datetime) -> None:
    """The name, the network or the certificate is wrong."""

    def serve(_request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("certificate verify failed")

    finding = run_check(settings, now, serve)
    assert (finding.level, "certificate verify failed" in finding.message) == (Level.ERROR, True)


def test_base_url_without_https_is_not_requested(settings: Settings, now: datetime) -> None:
    def serve(_request: httpx.Request) -> httpx.Response:
        raise AssertionError("it was asked")

    finding = run_check(settings.model_copy(update={"base_url": "http://127.0.0.1:8000"}), now, serve)
    assert (finding.level, "PAPERBOY_BASE_URL" in finding.fix) == (Level.WARNING, True)
